"""Whole models: as onnx's own evaluator computes them, trained further, with unknown extents."""

import glob
import os
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import miniml as ml
from miniml import nn, ops, optim
from miniml.errors import OnnxError, OnnxWarning, ShapeError
from miniml.grad import value_and_grad
from miniml.testing import gradcheck

pytest.importorskip("onnx", reason="no onnx")

import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from miniml.onnx.tensors import array_of

from .test_cases import loaded

DATA = Path(onnx.__file__).parent / "backend/test/data"
RNG = np.random.default_rng(0)


def weight(name, *shape):
    return numpy_helper.from_array(RNG.normal(0, 0.3, shape).astype(np.float32), name)


def number(name, value):
    return numpy_helper.from_array(np.asarray(value), name)


def ints(name, *values):
    return numpy_helper.from_array(np.array(values, np.int64), name)


def node(type_, inputs, output, **attributes):
    return helper.make_node(type_, inputs.split(), [output], name=f"make {output}", **attributes)


def model(nodes, initializers, x=("batch", 4), y=(None, None), opset=18):
    graph = helper.make_graph(
        nodes, "net", [helper.make_tensor_value_info("x", TensorProto.FLOAT, x)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, y)], initializers,
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def mlp():
    return model(
        [node("Gemm", "x w1 b1", "h", transB=1), node("Relu", "h", "a"),
         node("MatMul", "a w2", "m"), node("Add", "m b2", "y")],
        [weight("w1", 8, 4), weight("b1", 8), weight("w2", 8, 3), weight("b2", 3)],
    )  # fmt: skip


def lenet():
    """Its flattening is computed from shapes, as exporters write it."""
    return model(
        [node("Conv", "x c1 d1", "h1", kernel_shape=[5, 5], pads=[2, 2, 2, 2]),
         node("BatchNormalization", "h1 g1 e1 m1 v1", "n1"),
         node("Relu", "n1", "a1"), node("MaxPool", "a1", "p1", kernel_shape=[2, 2], strides=[2, 2]),
         node("Conv", "p1 c2 d2", "h2"), node("Clip", "h2 zero six", "a2"),
         node("AveragePool", "a2", "p2", kernel_shape=[2, 2], strides=[2, 2]),
         node("Shape", "p2", "s"), node("Gather", "s first", "n"),
         node("Unsqueeze", "n axes", "n1d"),
         node("Concat", "n1d rest", "flat", axis=0), node("Reshape", "p2 flat", "f"),
         node("Gemm", "f w b", "y", transB=1)],
        [weight("c1", 4, 1, 5, 5), weight("d1", 4), weight("c2", 6, 4, 3, 3), weight("d2", 6),
         *(weight(n, 4) for n in ("g1", "e1", "m1")),
         numpy_helper.from_array(np.ones(4, np.float32), "v1"),
         number("zero", np.float32(0)), number("six", np.float32(6)), number("first", np.int64(0)),
         ints("axes", 0), ints("rest", -1),
         weight("w", 10, 6 * 6 * 6), weight("b", 10)],
        x=("batch", 1, 28, 28),
    )  # fmt: skip


def transformer(d=8, heads=2):
    """A block whose heads are split by shapes computed in the graph."""
    return model(
        [node("LayerNormalization", "x g1 e1", "n"), node("MatMul", "n wqkv", "qkv"),
         helper.make_node("Split", ["qkv"], ["q0", "k0", "v0"], axis=2, num_outputs=3),
         *(node("Reshape", f"{t}0 heads", f"{t}1") for t in "qkv"),
         *(node("Transpose", f"{t}1", t, perm=[0, 2, 1, 3]) for t in "qv"),
         node("Transpose", "k1", "k", perm=[0, 2, 3, 1]),
         node("MatMul", "q k", "s0"), node("Mul", "s0 scale", "s"),
         node("Softmax", "s", "p", axis=-1),
         node("MatMul", "p v", "o0"), node("Transpose", "o0", "o1", perm=[0, 2, 1, 3]),
         node("Shape", "x", "shape"), node("Reshape", "o1 shape", "o2"),
         node("MatMul", "o2 wo", "o"),
         node("Add", "x o", "r"), node("LayerNormalization", "r g2 e2", "n2"),
         node("MatMul", "n2 w1", "h0"), node("Erf", "h0", "e"), node("Mul", "h0 e", "h"),
         node("MatMul", "h w2", "f"), node("Add", "r f", "y")],
        [*(weight(n, d) for n in ("g1", "e1", "g2", "e2")), weight("wqkv", d, 3 * d),
         ints("heads", 0, 0, heads, -1), number("scale", np.float32((d / heads) ** -0.5)),
         weight("wo", d, d), weight("w1", d, 2 * d), weight("w2", 2 * d, d)],
        x=("batch", "time", d), y=(None, None, None),
    )  # fmt: skip


MODELS = {
    "mlp": (mlp, (5, 4)),
    "lenet": (lenet, (2, 1, 28, 28)),
    "transformer": (transformer, (2, 5, 8)),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_computes_what_its_evaluator_computes(name, tmp_path):
    make, shape = MODELS[name]
    proto, x = make(), RNG.normal(size=shape).astype(np.float32)
    onnx.save(proto, tmp_path / "model.onnx")
    graph = ml.onnx.load(tmp_path / "model.onnx", shapes={"x": shape})
    (expected,) = ReferenceEvaluator(proto).run(None, {"x": x})
    np.testing.assert_allclose(graph(x).asnumpy(), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(graph(x=x).asnumpy(), expected, rtol=1e-4, atol=1e-5)


def test_extents_are_given_by_name():
    graph = ml.onnx.load(mlp(), dims={"batch": 7})
    assert graph.inputs[0].abstract.shape == (7, 4)
    with pytest.raises(ShapeError, match=r"takes x: float32\[7, 4\]"):
        graph(np.zeros((1, 4), np.float32))


def test_unknown_extents_are_asked_for():
    with pytest.raises(
        OnnxError, match=r"has shape \(batch, 4\), .* dims=\{'batch': 1\} or shapes"
    ):
        ml.onnx.load(mlp())
    with pytest.raises(OnnxError, match="dims names time; the model has batch"):
        ml.onnx.load(mlp(), dims={"time": 1})
    with pytest.raises(OnnxError, match="shapes names z; the model has x"):
        ml.onnx.load(mlp(), shapes={"z": (1, 4)})
    with pytest.raises(OnnxError, match="values names z; the model has x"):
        ml.onnx.load(mlp(), values={"z": X0})


X0 = np.zeros((1, 4), np.float32)


def scaled():
    """x of (n, 4), times a number r, in the shape s."""
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [node("Mul", "x r", "a"), node("Reshape", "a s", "y")], "net",
        [value("x", 1, ("n", 4)), value("r", 1, ()), value("s", TensorProto.INT64, (2,)),
         value("w", 1, (2,))],
        [value("y", 1, None)], [number("w", np.ones(2, np.float32))],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])


N2, SHAPE = {"n": 2}, {"s": np.array([2, -1])}


@pytest.mark.parametrize("r", [0.5, 2, True, np.float32(3), np.array(0.25, np.float32)], ids=repr)
def test_numbers_are_values(r):
    graph = ml.onnx.load(scaled(), dims=N2, values={"r": r, "s": [4, 2]})
    np.testing.assert_array_equal(graph(np.ones((2, 4), "f")), np.full((4, 2), r, np.float32))


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"dims": {"n": n}}, r"dims\['n'\] is .*; an extent is a whole number, 0 or more")
        for n in (2.5, "2", None, True, -1, [2])
    ]
    + [
        ({"shapes": {"x": n}}, r"shapes\['x'\].* is .*whole number")
        for n in (8, "24", (2, 4.5), (None, 4), (2, -4))
    ]
    + [
        ({what: given}, f"{what} is .*; give a dict, as {what}=")
        for what in ("dims", "shapes", "values")
        for given in (2, [("n", 2)], None)
    ]
    + [
        ({"values": {"s": value}}, r"values\['s'\] is .*; it takes int64\[2\]")
        for value in (np.array([2, 2, 2]), np.array(8), 8, "8", [2.0, 4.0], SHAPE["s"] > 0, None,
                      np.array([2, -1], np.int32))
    ]
    + [
        ({"values": {"s": [[2], [1, 2]]}}, r"values\['s'\] is no array"),
        ({"values": {"s": 2**70}}, r"values\['s'\] is no array"),
        ({"values": {"w": np.ones(2, "f")}}, "values names w; the model has x, r, s"),
        ({"shapes": {3: (2, 4)}}, "shapes names 3; the model has x, r, s, w"),
        ({"train_constants": "yes"}, "train_constants is 'yes'; give True, False or None"),
    ],
    ids=str,
)  # fmt: skip
def test_options_of_another_kind_are_refused_by_name(options, match):
    with pytest.raises(OnnxError, match=match):
        ml.onnx.load(scaled(), **{"dims": N2, "values": SHAPE, **options})


@pytest.mark.parametrize("seed", range(30))
def test_an_extent_below_zero_is_an_unknown_one(seed):
    """What the sentence proposes is taken: by name where all that is unknown has a name."""
    draw = random.Random(seed)
    declared = [draw.choice([2, 3, -1, -7, None, "n", "m"]) for _ in range(draw.randint(1, 4))]
    proto = model([node("Exp", "x", "y")], [], x=declared, y=None)
    shape = tuple(d if type(d) is int and d > 0 else 1 for d in declared)
    names = {d: 1 for d in declared if type(d) is str}
    unknown = [d for d in declared if type(d) is not int or d < 0]
    if unknown:
        with pytest.raises(OnnxError, match=r"all known; give .*shapes=\{'x'") as caught:
            ml.onnx.load(proto)
        offered = ", ".join(f"{n!r}: 1" for n in names)
        assert (f"dims={{{offered}}} or" in str(caught.value)) == (len(names) == len({*unknown}))
    if len(names) == len({*unknown}):
        assert ml.onnx.load(proto, dims=names).inputs[0].abstract.shape == shape
    graph = ml.onnx.load(proto, shapes={"x": shape})
    assert graph(np.zeros(shape, np.float32)).shape == shape


def test_shapes_that_a_model_computes_are_known_when_it_is_read():
    text = str(ml.onnx.load(lenet(), dims={"batch": 2}))
    assert "Gather" not in text
    assert "Concat" not in text
    assert "Reshape(shape=(2, -1))" in text


def test_initializers_of_floats_are_parameters_of_their_names():
    graph = ml.onnx.load(lenet(), dims={"batch": 2})
    names = [p.name for p in graph.trainable_params()]
    assert sorted(names) == sorted("c1 d1 g1 e1 c2 d2 w b".split())  # no statistics, no bounds


def with_constants(proto, names):
    """The model with these initializers as Constant nodes."""
    moved, kept = onnx.ModelProto(), [t for t in proto.graph.initializer if t.name not in names]
    moved.CopyFrom(proto)
    given = [t for t in proto.graph.initializer if t.name in names]
    nodes = [helper.make_node("Constant", [], [t.name], value=t) for t in given]
    for field, rows in (("node", [*nodes, *proto.graph.node]), ("initializer", kept)):
        moved.graph.ClearField(field)
        getattr(moved.graph, field).extend(rows)
    return moved


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("name", MODELS)
def test_weights_in_constant_nodes_are_those_of_initializers(name, seed):
    """Whichever tensors are moved there: with train_constants=True the Parameters, the outputs and
    the gradients are the same; without, those that were moved stay as they are."""
    make, shape = MODELS[name]
    proto, draw = make(), random.Random(seed)
    chosen = {t.name for t in proto.graph.initializer if draw.random() < draw.choice([0.3, 0.9])}
    moved = with_constants(proto, chosen)
    x = np.random.default_rng(seed).normal(size=shape).astype(np.float32)

    def trained(proto, **options):
        graph = ml.onnx.load(proto, shapes={"x": shape}, **options)
        loss = value_and_grad(lambda x: ops.sum(ops.square(graph(x))), weights=graph)
        weights = [p for p in graph.trainable_params() if p.shape]  # not single numbers
        value, (_, gradients) = loss(x)
        every = dict(zip((p.name for p in graph.trainable_params()), gradients, strict=True))
        return value, {p.name: every[p.name] for p in weights}

    expected, gradients = trained(proto)
    value, same = trained(moved, train_constants=True)
    assert (float(value), same.keys()) == (float(expected), gradients.keys())
    for key, gradient in gradients.items():
        np.testing.assert_array_equal(same[key].asnumpy(), gradient.asnumpy())
    value, left = trained(moved, train_constants=False)
    np.testing.assert_allclose(float(value), float(expected), rtol=1e-5)
    assert left.keys() == gradients.keys() - chosen


def test_a_graph_that_has_nothing_to_train_says_so():
    names = {t.name for t in mlp().graph.initializer}
    with pytest.warns(OnnxWarning, match="net has nothing to train: 2 tensors of floats, 56 num"):
        graph = ml.onnx.load(with_constants(mlp(), names), dims={"batch": 2})
    assert graph.trainable_params() == []
    ml.onnx.load(with_constants(mlp(), names - {"b2"}), dims={"batch": 2})  # has something
    ml.onnx.load(with_constants(mlp(), names), dims={"batch": 2}, train_constants=False)
    ml.onnx.load(model([node("Exp", "x", "y")], []), dims={"batch": 2})


def test_a_constant_node_is_one_weight_however_often_it_is_run():
    """In a body that is read turn by turn, and in a function that is called twice."""
    twice = np.full(2, 2, np.float32)
    value = helper.make_tensor_value_info
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["on"]), node("Unsqueeze", "turn zero", "row"),
         node("Gather", "x row", "part"), node("Constant", "", "w", value_floats=twice),
         node("Mul", "part w", "sw"), node("Add", "total sw", "sum")],
        "body",
        [value("turn", TensorProto.INT64, ()), value("go", TensorProto.BOOL, ()),
         value("total", 1, (1, 2))],
        [value("on", TensorProto.BOOL, ()), value("sum", 1, (1, 2))],
        [ints("zero", 0)],
    )  # fmt: skip
    scaled = helper.make_function(
        "mine", "Scaled", ["v"], ["r"],
        [helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(twice)),
         helper.make_node("Mul", ["v", "c"], ["r"])],
        [helper.make_opsetid("", 18)],
    )  # fmt: skip
    proto = model(
        [helper.make_node("Loop", ["count", "", "start"], ["l"], body=body),
         *(helper.make_node("Scaled", [a], [b], domain="mine") for a, b in ("lm", "my"))],
        [number("count", np.int64(3)), number("start", np.zeros((1, 2), np.float32))],
        x=(3, 2), y=(),
    )  # fmt: skip
    proto.functions.append(scaled)
    proto.opset_import.append(helper.make_opsetid("mine", 1))
    graph = ml.onnx.load(proto, train_constants=True)
    assert sorted(p.name for p in graph.trainable_params()) == ["c", "start", "w"]
    np.testing.assert_array_equal(graph(np.ones((3, 2), np.float32)).asnumpy(), [[24, 24]])


def test_a_model_has_gradients_with_respect_to_its_weights():
    graph, x = ml.onnx.load(mlp(), dims={"batch": 5}), RNG.normal(size=(5, 4)).astype(np.float32)
    loss, gradients = value_and_grad(lambda x: ops.sum(ops.square(graph(x))), None, weights=graph)(
        x
    )
    w1, b1, w2, b2 = (p.asnumpy() for p in graph.trainable_params())
    a = np.maximum(x @ w1.T + b1, 0)
    y = a @ w2 + b2
    np.testing.assert_allclose(float(loss), np.sum(y**2), rtol=1e-5)
    np.testing.assert_allclose(gradients[2].asnumpy(), a.T @ (2 * y), rtol=1e-4)
    np.testing.assert_allclose(gradients[3].asnumpy(), (2 * y).sum(0), rtol=1e-4)


def test_the_gradient_of_a_model_agrees_with_differences():
    graph = ml.onnx.load(transformer(), shapes={"x": (1, 3, 8)})
    for p in graph.trainable_params():
        assert p.dtype == ml.float32
    assert gradcheck(graph, RNG.normal(size=(1, 3, 8)).astype(np.float32)).ok


def test_a_model_is_trained_further():
    graph = ml.onnx.load(mlp(), dims={"batch": 16})
    x = RNG.normal(size=(16, 4)).astype(np.float32)
    labels = (x[:, 0] > 0).astype(np.int64)
    step = ml.train_step(
        graph, nn.CrossEntropyLoss(), optim.Adam(graph.trainable_params(), lr=0.05)
    )
    losses = [float(step(x, labels)) for _ in range(30)]
    assert losses[-1] < 0.3 * losses[0]


def test_a_known_branch_is_taken_and_an_unknown_one_stays():
    def branch(type_):
        return helper.make_graph(
            [node(type_, "x", "t")], type_, [], [helper.make_tensor_value_info("t", 1, None)]
        )

    def branching(initializers, nodes=()):
        taken = node("If", "p", "y", then_branch=branch("Exp"), else_branch=branch("Neg"))
        return model([*nodes, taken], initializers, x=(2, 2))

    known = ml.onnx.load(branching([numpy_helper.from_array(np.array(False), "p")]))
    assert [n.primitive.name for n in known.nodes] == ["Neg"]
    asked = [node("ReduceSum", "x", "s", keepdims=0), node("Greater", "s zero", "p")]
    zero = numpy_helper.from_array(np.float32(0), "zero")
    unknown = ml.onnx.load(branching([zero], asked))
    ones = np.ones((2, 2), np.float32)
    np.testing.assert_allclose(unknown(ones).asnumpy(), np.exp(ones), rtol=1e-6)
    np.testing.assert_allclose(unknown(-ones).asnumpy(), ones)


def test_the_weights_of_a_loop_are_those_of_all_its_turns():
    """Turn by turn, since the number of the turn says which row is taken."""
    value = helper.make_tensor_value_info
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["on"]), node("Unsqueeze", "turn zero", "row"),
         node("Add", "turn one", "next"), node("Unsqueeze", "next zero", "end"),
         node("Slice", "x row end", "part"), node("ReduceSum", "part", "s", keepdims=0),
         node("Mul", "s w", "sw"), node("Add", "total sw", "sum")],
        "body",
        [value("turn", TensorProto.INT64, ()), value("go", TensorProto.BOOL, ()),
         value("total", 1, ())],
        [value("on", TensorProto.BOOL, ()), value("sum", 1, ())],
        [number("w", np.float32(2)), ints("zero", 0), number("one", np.int64(1))],
    )  # fmt: skip
    proto = model(
        [helper.make_node("Loop", ["count", "", "start"], ["y"], body=body)],
        [number("count", np.int64(3)), number("start", np.float32(0))], x=(3, 2), y=(),
    )  # fmt: skip
    graph, x = ml.onnx.load(proto), np.ones((3, 2), np.float32)
    assert float(graph(x)) == 12
    assert sorted(p.name for p in graph.trainable_params()) == ["start", "w"]


def test_a_function_of_the_model_is_written_out():
    scaled = helper.make_function(
        "mine", "Scaled", ["v"], ["r"],
        [helper.make_node("LeakyRelu", ["v"], ["l"]), helper.make_node("Mul", ["l", "l"], ["r"])],
        [helper.make_opsetid("", 18)], attributes=["slope"],
    )  # fmt: skip
    slope = scaled.node[0].attribute.add()
    slope.name, slope.ref_attr_name, slope.type = "alpha", "slope", onnx.AttributeProto.FLOAT
    proto = model(
        [helper.make_node("Scaled", ["x"], ["y"], domain="mine", slope=0.5)], [], x=(1, 2)
    )
    proto.functions.append(scaled)
    proto.opset_import.append(helper.make_opsetid("mine", 1))
    out = ml.onnx.load(proto)(np.array([[-4.0, 3.0]], np.float32))
    np.testing.assert_allclose(out.asnumpy(), [[4.0, 9.0]])


def test_names_inside_a_function_are_its_own():
    """Its `w` is a shape that must be known; the `w` of the graph is a weight."""
    shaped = helper.make_function(
        "mine", "Shaped", ["v", "w"], ["r"], [helper.make_node("Reshape", ["v", "w"], ["r"])],
        [helper.make_opsetid("", 18)],
    )  # fmt: skip
    proto = model(
        [node("Mul", "x w", "m"), helper.make_node("Shaped", ["m", "s"], ["y"], domain="mine")],
        [weight("w", 6), ints("s", 2, 3)], x=(1, 6),
    )  # fmt: skip
    proto.functions.append(shaped)
    proto.opset_import.append(helper.make_opsetid("mine", 1))
    graph = ml.onnx.load(proto)
    assert [p.name for p in graph.trainable_params()] == ["w"]
    assert graph(np.ones((1, 6), np.float32)).shape == (2, 3)


def stored(path):
    tensor = TensorProto()
    tensor.ParseFromString(Path(path).read_bytes())
    return array_of(tensor)


OLD = sorted(glob.glob(str(DATA / "pytorch-*/*")) + glob.glob(str(DATA / "simple/test_expand*")))


@pytest.mark.parametrize("part", range(4))
def test_models_that_pytorch_exported_long_ago(part):
    """Of operator sets 6 to 12, with the outputs of PyTorch."""
    assert len(OLD) >= 117
    for folder in OLD[part::4]:
        proto = onnx.load(f"{folder}/model.onnx")
        initial = {t.name for t in proto.graph.initializer}
        names = [v.name for v in proto.graph.input if v.name not in initial]
        for data in glob.glob(f"{folder}/test_data_set_*"):
            inputs = {n: stored(f"{data}/input_{i}.pb") for i, n in enumerate(names)}
            graph, taken = loaded(f"{folder}/model.onnx", inputs)
            out = graph(*taken.values())
            for i, got in enumerate(out if isinstance(out, tuple) else (out,)):
                expected = stored(f"{data}/output_{i}.pb")
                np.testing.assert_allclose(got.asnumpy(), expected, 1e-3, 1e-5, err_msg=folder)


# The others of the wheel: onnx's evaluator, which made the outputs, takes the batch for the
# channels in LRN, and the statistics of the batch in BatchNormalization before version 14.
LIGHT = "densenet121 inception_v1 shufflenet squeezenet".split()


@pytest.mark.deep
@pytest.mark.parametrize("name", LIGHT)
def test_large_networks_of_the_wheel(name):
    graph = ml.onnx.load(DATA / f"light/light_{name}.onnx")
    shape = graph.inputs[0].abstract.shape
    x = (np.arange(np.prod(shape)).reshape(shape) / np.prod(shape)).astype(np.float32)
    expected = stored(DATA / f"light/light_{name}_output_0.pb")
    last = next((n for n in reversed(graph.nodes) if n.primitive.name == "Softmax"), None)
    if last is None:
        np.testing.assert_allclose(graph(x).asnumpy(), expected, rtol=1e-3, atol=1e-6)
        return
    # Softmax turns what a processor rounds in large scores into other probabilities altogether.
    scores = replace(graph, outputs=last.inputs)(x).asnumpy().astype(float).ravel()
    logs = scores - scores.max()
    logs -= np.log(np.exp(logs).sum())
    np.testing.assert_allclose(logs, np.log(expected.ravel()), 1e-3, 1e-5 * np.abs(scores).max())


def test_it_reads_from_the_folder_it_is_in(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    onnx.save(mlp(), "model.onnx", save_as_external_data=True, location="weights", size_threshold=0)
    assert os.path.getsize("weights") > 0
    graph = ml.onnx.load("model.onnx", dims={"batch": 1})
    assert graph(np.zeros((1, 4), np.float32)).shape == (1, 3)
