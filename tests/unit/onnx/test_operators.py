"""The table of operators: registered, found by version, refused where ranges meet; attributes."""

import re
import subprocess
import sys

import numpy as np
import pytest

import miniml as ml
from miniml import cli, kernel, ops
from miniml.backends import registry
from miniml.core.primitive import primitives
from miniml.errors import (
    DeclarationError,
    DuplicateError,
    KernelNotFoundError,
    OnnxError,
    OnnxWarning,
)
from miniml.onnx import operators

pytest.importorskip("onnx", reason="no onnx")

import onnx
from onnx import TensorProto, helper

from .test_cases import cases, expressible, loaded

X = np.array([[-2.0, 3.0]], np.float32)


def model(type_, domain="mine", version=1, typed=True, **values):
    """One node of x, and of `w` where there are weights."""
    made = helper.make_node(type_, ["x"], ["y"], name="the node", domain=domain, **values)
    shape = X.shape if typed else None
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [made], "net", [value("x", TensorProto.FLOAT, X.shape)],
        [value("y", TensorProto.FLOAT, shape)],
    )  # fmt: skip
    imports = [helper.make_opsetid("", 18), helper.make_opsetid(domain, version)]
    return helper.make_model(graph, opset_imports=imports)


@pytest.fixture(autouse=True)
def _table_as_it_was(monkeypatch):
    monkeypatch.setattr(operators, "_rows", dict(operators._rows))


def test_an_operator_of_my_own_is_read_and_run():
    @ml.onnx.register_operator("mine", "Snake", (1, None))
    def snake(x, *, alpha: float = 1.0):
        return ops.add(x, ops.div(ops.square(ops.sin(ops.mul(x, alpha))), alpha))

    graph = ml.onnx.load(model("Snake", alpha=0.5))
    np.testing.assert_allclose(graph(X).asnumpy(), X + np.sin(0.5 * X) ** 2 / 0.5, rtol=1e-6)
    assert (graph.input_names, graph.output_names) == (("x",), ("y",))
    assert "Sin() " in str(graph)


def test_versions_of_an_operator_are_rows_of_their_own():
    @ml.onnx.register_operator("mine", "Twice", (1, 3))
    def old(x):
        return ops.mul(x, 2.0)

    @ml.onnx.register_operator("mine", "Twice", (4, None))
    def new(x, *, times: int = 3):
        return ops.mul(x, float(times))

    assert float(ml.onnx.load(model("Twice", version=3))(X)[0, 1]) == 6
    assert float(ml.onnx.load(model("Twice", version=9))(X)[0, 1]) == 9
    with pytest.raises(OnnxError, match="'times' is unknown; Twice has none"):
        ml.onnx.load(model("Twice", version=3, times=4))


@pytest.mark.parametrize("versions", [(1, None), (3, 5), (5, 5), (1, 3)])
def test_ranges_that_meet_are_refused(versions):
    @ml.onnx.register_operator("mine", "Meet", (3, 5))
    def first(x):
        return x

    with pytest.raises(DuplicateError, match=r"versions 3-5 by .*first; give ranges that do not"):

        @ml.onnx.register_operator("mine", "Meet", versions)
        def second(x):
            return x


def test_the_librarys_own_operators_are_not_replaced_by_mistake():
    with pytest.raises(DuplicateError, match=r"operator Exp of domain 'ai.onnx', versions 13\+"):
        ml.onnx.register_operator("ai.onnx", "Exp", (13, None))(lambda x: x)


def again(x):
    return x


def test_the_same_function_may_be_registered_again():
    for _ in range(2):
        ml.onnx.register_operator("mine", "Again", (1, None))(again)
    assert len(operators.known("mine", "Again")) == 1


@pytest.mark.parametrize("versions", [(0, None), (3, 2), 7, (1, 2, 3), "all"])
def test_wrong_versions_are_refused(versions):
    with pytest.raises(DeclarationError, match="got versions"):
        ml.onnx.register_operator("mine", "Wrong", versions)(again)


def test_a_type_that_no_attribute_has_is_refused():
    def wrong(x, *, size: dict):
        return x

    with pytest.raises(DeclarationError, match="declares size: dict; an attribute is one of float"):
        ml.onnx.register_operator("mine", "Wrong", (1, None))(wrong)


def test_attributes_without_names_are_refused():
    def wrong(x, **attributes):
        return x

    with pytest.raises(DeclarationError, match=r"takes \*\*; name each attribute"):
        ml.onnx.register_operator("mine", "Wrong", (1, None))(wrong)


def test_an_unknown_operator_stays_and_says_so_when_it_is_run():
    with pytest.warns(OnnxWarning, match=r"cannot run yet: .*, mine Unknown \(nodes: 1\); "):
        graph = ml.onnx.load(
            model("Unknown", size=3, ratio=0.5, mode="fast", axes=[1, 2], names=["a", "b"])
        )
    (one,) = graph.nodes
    assert type(one.primitive).__name__ == "mine.Unknown"
    assert (one.attrs["mode"], one.attrs["names"]) == (b"fast", b"a\0b")
    assert ops.unpack_attribute(one.attrs, "axes", "<i8", (-1,)) == (1, 2)
    with pytest.raises(KernelNotFoundError, match=r"mine\.Unknown has no kernel") as caught:
        graph(X)
    assert "the node" in "".join(caught.value.__notes__)


def test_an_unknown_operator_runs_once_it_has_a_kernel():
    with pytest.warns(OnnxWarning, match=r"@ml.kernel\('mine.Later', \.\.\.\) a kernel"):
        graph = ml.onnx.load(model("Later"))
    try:

        @kernel("mine.Later", "cpu", "f->f")
        def later(x, *, out):
            np.add(x, 1, out=out)

        np.testing.assert_array_equal(graph(X).asnumpy(), X + 1)
        ml.onnx.load(model("Later"))  # without a word
    finally:
        registry.forget("mine.Later")
        primitives.pop("mine.Later", None)


def read_by_nothing():
    """The wheel's cases of one operator that no row reads, whose values miniml has."""
    for key in sorted(cases()):
        for case in cases()[key] if key != ("", "") else ():
            versions = {o.domain: o.version for o in case.model.opset_import}
            if expressible(case) and operators.find(*key, versions.get(key[0], 1)) is None:
                yield key, versions.get(key[0], 1), case


def test_what_cannot_run_is_said_when_it_is_read():
    """With what would do, which is then taken: a row, after which there is nothing to say."""
    count = 0
    for (domain, type_), version, case in read_by_nothing():
        offered = re.escape(f"ml.onnx.register_operator({domain!r}, {type_!r}, ({version}, None))")
        with pytest.raises((OnnxError, OnnxWarning), match=offered) as caught:  # as errors here
            loaded(case.model, {})
        assert "ml.onnx.coverage(model)" in str(caught.value)
        assert (domain, type_) in {(n.domain, n.type) for n in ml.onnx.coverage(case.model).missing}
        taken = ml.onnx.register_operator(domain, type_, (version, None))
        taken(lambda *inputs, node: inputs[:1] * len(node.outputs))
        (row,) = operators.known(domain, type_)
        assert row.covers(version)
        (node,) = case.model.graph.node
        if not node.attribute and any(
            node.input[:1]
        ):  # the row has no attributes, and gives its input
            loaded(case.model, {})
        operators._rows.pop((domain, type_))
        count += 1
    assert count > 80


def test_an_unknown_operator_whose_types_are_not_in_the_file_is_refused():
    with pytest.raises(OnnxError, match=r"register_operator\('mine', 'Unknown', \(1, None\)\)"):
        ml.onnx.load(model("Unknown", typed=False))


def test_an_error_names_the_node():
    with pytest.raises(OnnxError, match=r"node 'the node' \(Softmax\): .*axis 5"):
        ml.onnx.load(model("Softmax", domain="", version=18, axis=5))


A = np.arange(24, dtype=np.float32).reshape(2, 3, 4) - 7
B = np.abs(A) + 1
ROW = np.array([3.0, -1.0, 2.0], np.float32)
ROWS3 = ROW[:, None]
# Operators as older versions have them: (type, version, attributes, inputs, expected).
OLD = {
    "Add, aligned by an attribute": ("Add", 6, {"broadcast": 1, "axis": 1}, [A, ROW], A + ROWS3),
    "Sub, not broadcast": ("Sub", 6, {}, [A, A], A * 0),
    "Mul, aligned at the end": ("Mul", 6, {"broadcast": 1}, [A, A[0, 0]], A * A[0, 0]),
    "Pow, aligned": ("Pow", 6, {"broadcast": 1, "axis": 1}, [B, ROW], B**ROWS3),
    "Greater, aligned": ("Greater", 1, {"broadcast": 1, "axis": 1}, [A, ROW], A > ROWS3),
    "Equal, not broadcast": ("Equal", 6, {}, [A, A], A == A),
    "TopK by an attribute": ("TopK", 9, {"k": 2}, [A], A[..., [3, 2]]),
    "TopK by an input": ("TopK", 10, {}, [A, np.array([1])], A[..., 3:]),
    "Softmax of all the axes": (
        "Softmax", 12, {}, [A], np.exp(A) / np.exp(A).sum((1, 2), keepdims=True),
    ),
    "Hardmax of all the axes": ("Hardmax", 11, {}, [A], A.max((1, 2), keepdims=True) == A),
    "Upsample by an attribute": (
        "Upsample", 7, {"scales": [1.0, 1.0, 2.0]}, [A], A.repeat(2, 2),
    ),
    "Resize without a choice": (
        "Resize", 10, {}, [A, np.array([1, 2, 1], np.float32)], A.repeat(2, 1),
    ),
    "ReduceL1 by an attribute": ("ReduceL1", 17, {"axes": [0]}, [A], np.abs(A).sum(0)[None]),
    "ReduceSum by an attribute": ("ReduceSum", 12, {"keepdims": 0}, [A], A.sum()),
    "Squeeze by an attribute": ("Squeeze", 12, {"axes": [0]}, [A[:1]], A[0]),
    "Unsqueeze by an attribute": ("Unsqueeze", 12, {"axes": [1]}, [A], A[:, None]),
    "Clip by attributes": ("Clip", 10, {"min": -1.0, "max": 4.0}, [A], A.clip(-1, 4)),
    "Slice by attributes": ("Slice", 9, {"starts": [1], "ends": [9], "axes": [2]}, [A], A[..., 1:]),
    "Split by an attribute": ("Split", 12, {"axis": 2, "split": [1, 3]}, [A], A[..., :1]),
    "Pad by an attribute": (
        "Pad", 10, {"pads": [0, 1, 0, 0, 0, 2], "value": 5.0}, [A],
        np.pad(A, ((0, 0), (1, 0), (0, 2)), constant_values=5),
    ),
    "PRelu by channel": ("PRelu", 8, {}, [A, ROW], np.where(A < 0, A * ROWS3, A)),
    "Dropout": ("Dropout", 10, {"ratio": 0.9}, [A], A),
    "Scatter": (
        "Scatter", 10, {"axis": 1}, [A[0], np.array([[2], [0], [1]]), ROWS3],
        [[-7, -6, 3, -4], [-1, -2, -1, 0], [1, 2, 3, 4]],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", OLD)
def test_operators_of_older_versions(case):
    type_, version, values, given, expected = OLD[case]
    names, outputs = "abc"[: len(given)], ["y", "z"] if type_ == "Split" else ["y"]
    made = helper.make_node(type_, list(names), outputs, **values)
    shapes = [v.shape for v in given]
    kinds = [helper.np_dtype_to_tensor_dtype(v.dtype) for v in given]
    graph = helper.make_graph(
        [made], "net",
        [helper.make_tensor_value_info(*row) for row in zip(names, kinds, shapes)],
        [helper.make_tensor_value_info("y", 1, None)],
    )  # fmt: skip
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)])
    graph, taken = loaded(proto, dict(zip(names, given)))
    np.testing.assert_allclose(graph(*taken.values()).asnumpy(), expected, rtol=1e-5)


def nodes():
    """The nodes of all cases that a row reads."""
    for found in cases().values():
        for case in found:
            versions = {o.domain: o.version for o in case.model.opset_import}
            for node in case.model.graph.node:
                row = operators.find(node.domain, node.op_type, versions.get(node.domain, 1))
                if (
                    row is not None
                    and "sparse" not in str(node)
                    and "value_string" not in str(node)
                ):
                    yield row, node


def test_parameters_are_packed_into_what_they_were_read_from():
    count = 0
    for row, node in nodes():
        try:
            values = operators.read(row.parameters, node.attribute)
        except OnnxError:  # a tensor of a dtype that miniml lacks
            continue
        packed = operators.pack(values)
        assert operators.read(row.parameters, packed) == values
        given = {a.name: a for a in node.attribute}
        for proto in packed:
            assert helper.get_attribute_value(given[proto.name]) is not None
            assert proto.type == given[proto.name].type
        count += len(packed)
    assert count > 1000


def test_parameters_are_values():
    struct = operators.find("", "Gemm", 13).parameters
    assert struct(alpha=0.5) == struct(alpha=0.5) != struct()
    assert repr(struct(transB=1)) == "Gemm(alpha=1.0, beta=1.0, transA=0, transB=1)"
    with pytest.raises(AttributeError):
        struct().alpha = 2.0


def test_rows_declare_what_the_standard_declares():
    """Every attribute of every version, of its type, with its default."""
    kinds = {float: "FLOAT", int: "INT", str: "STRING", bytes: "STRING"}
    for schema in onnx.defs.get_all_schemas_with_history():
        row = operators.find("" if schema.domain == "ai.onnx" else schema.domain, schema.name,
                             schema.since_version)  # fmt: skip
        if row is None or schema.deprecated:
            continue
        declared = {p.name: p for p in row.attributes}
        for name, attribute in schema.attributes.items():
            if name in IGNORED.get(schema.name, ()):
                continue
            where = f"{schema.name}-{schema.since_version}.{name}"
            assert name in declared, where
            kind = kinds.get(operators.bare(declared[name].annotation))
            assert kind is None or kind == attribute.type.name, where
            default = helper.get_attribute_value(attribute.default_value)
            if default is not None and where not in OTHER_DEFAULTS:
                default = default.decode() if isinstance(default, bytes) else default
                default = tuple(default) if isinstance(default, list) else default
                if isinstance(default, tuple) and default and isinstance(default[0], bytes):
                    default = tuple(d.decode() for d in default)
                if isinstance(default, float):
                    default = pytest.approx(default, rel=1e-6)
                assert declared[name].default == default, where


# Attributes that miniml refuses: they hold text or sparse tensors.
IGNORED = {"Constant": ("sparse_value", "value_string", "value_strings")}
# Where running a model means inference: what trains is refused. One mode has two names.
OTHER_DEFAULTS = {"BatchNormalization-6.is_test", "Dropout-6.is_test", "GridSample-16.mode"}


RANDOM = {
    "RandomNormal": ({"shape": [4000], "mean": 3.0, "scale": 0.5}, 3.0, 0.5),
    "RandomNormalLike": ({"mean": -1.0}, -1.0, 1.0),
    "RandomUniform": ({"shape": [4000], "low": 1.0, "high": 3.0}, 2.0, 12**-0.5 * 2),
    "RandomUniformLike": ({"dtype": TensorProto.DOUBLE}, 0.5, 12**-0.5),
    "Bernoulli": ({"dtype": TensorProto.INT32}, 0.25, (0.25 * 0.75) ** 0.5),
}


@pytest.mark.parametrize("type_", RANDOM)
def test_draws_have_the_moments_they_should(type_):
    values, mean, deviation = RANDOM[type_]
    given = [] if "shape" in values else ["x"]
    made = helper.make_node(type_, given, ["y"], **values)
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [made], "net", [value("x", TensorProto.FLOAT, (4000,))], [value("y", 1, None)]
    )
    loaded = ml.onnx.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]))
    x = np.full(4000, 0.25, np.float32)
    first, second = loaded(x).asnumpy(), loaded(x).asnumpy()
    assert (first != second).any()
    kind = values.get("dtype", TensorProto.FLOAT)
    assert first.dtype == helper.tensor_dtype_to_np_dtype(kind)
    error = deviation / 4000**0.5
    assert abs(first.mean() - mean) < 4 * error
    assert abs(first.std() - deviation) < 4 * error


def test_pooling_over_all_places_by_a_norm():
    made = helper.make_node("GlobalLpPool", ["x"], ["y"], p=3)
    value = helper.make_tensor_value_info
    graph = helper.make_graph([made], "net", [value("x", 1, (1, 1, 1, 2))], [value("y", 1, None)])
    loaded = ml.onnx.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]))
    assert float(loaded(X.reshape(1, 1, 1, 2))) == pytest.approx((8 + 27) ** (1 / 3))


def test_coverage_lists_what_is_missing(tmp_path, capsys):
    path = tmp_path / "model.onnx"
    onnx.save(model("Unknown"), path)
    assert cli.main(["onnx", "coverage", str(path)]) == 1
    printed = capsys.readouterr().out
    assert "mine Unknown" in printed
    assert "1 operators; 1 missing, in 1 nodes" in printed
    onnx.save(model("Exp", domain="", version=18), path)
    assert cli.main(["onnx", "coverage", str(path)]) == 0
    assert "read (versions 6+)" in capsys.readouterr().out
    assert ml.onnx.coverage(path).missing == ()
    assert cli.main(["onnx", "coverage", str(tmp_path / "gone")]) == 2


def test_import_miniml_leaves_onnx_alone():
    code = "import sys, miniml; print('miniml.onnx' in sys.modules, 'onnx' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert run.stdout.split() == ["False", "False"]


def test_without_the_wheel_a_sentence_says_how_to_get_it(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "onnx", None)
    (tmp_path / "model.onnx").write_bytes(b"")
    with pytest.raises(OnnxError, match=r"not installed; pip install 'miniml\[onnx\]'"):
        ml.onnx.load(tmp_path / "model.onnx")
