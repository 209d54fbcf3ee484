"""ONNX out: onnxruntime computes of a file, and miniml again, what was computed before."""

from contextlib import nullcontext

import numpy as np
import optree
import pytest

import miniml as ml
from miniml import Primitive, cli, kernel, nn, ops
from miniml.errors import CheckpointError, OnnxError, OnnxWarning
from miniml.onnx import operators, writer
from miniml.testing.calls import calls
from tests.opinfo import ROWS

onnx = pytest.importorskip("onnx", reason="no onnx")
ort = pytest.importorskip("onnxruntime", reason="no onnxruntime")
ort.set_default_logger_severity(4)

# Primitives that no file can hold: what they compute has no operator, and no composition is known.
UNWRITTEN = set(
    """AllGather AllReduce AllToAll AvgPool2DGrad Broadcast Cholesky Conv2DWeightGrad Convert
    CrossEntropyGrad Eigh ErfInv Fused Gamma IndexReduce LGamma LeftShift MaxPool2DGather
    MaxPool2DGrad Pinv Poisson Polygamma QR Reduce ReduceScatter RightShift SVD
    ScaledDotProductAttentionGrad ScaledDotProductAttentionMaskGrad SendRecv SlogDet Solve
    TriangularSolve TruncatedNormal""".split()
)
DRAWN = {"Bernoulli", "Gumbel", "Normal", "Uniform"}
LOGICAL = "And", "Or", "Xor", "Not"
INPUTS = dict.fromkeys(["LeftShift", "RightShift"], "l")
INPUTS |= {f"Logical{name}": "?" for name in LOGICAL} | {f"Bitwise{name}": "l" for name in LOGICAL}
# Cases that onnxruntime does not run, though ONNX's checker accepts them: empty tensors.
EMPTY = {"Scan", "SliceGrad"}


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def run(path, *arrays):
    onnx.checker.check_model(path, full_check=True)
    session = ort.InferenceSession(path)
    return session.run(None, {i.name: a for i, a in zip(session.get_inputs(), arrays, strict=True)})


def expected(fn, arrays):
    return [np.asarray(leaf) for leaf in optree.tree_leaves(ml.jit(fn)(*arrays))]


def same(got, want, tolerance=1e-5):
    assert len(got) == len(want)
    for a, b in zip(got, want, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        np.testing.assert_allclose(
            np.asarray(a, np.float64), np.asarray(b, np.float64), tolerance, tolerance
        )


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "net.onnx")


def holds(fn, path, *arrays, others=(), tolerance=1e-5, **options):
    """The function is written, and read by onnxruntime, and here, as what it was; for others, too,
    where extents are open."""
    ml.onnx.save(fn, path, *arrays, **options)
    for given in (arrays, *others):
        same(run(path, *given), expected(fn, given), tolerance)
    if not options.get("dynamic"):
        again = ml.onnx.load(path, train_constants=False)
        same(expected(again, arrays), expected(fn, arrays), tolerance)
    return onnx.load(path)


def types(model):
    return [n.op_type for n in model.graph.node]


# --- Primitives -----------------------------------------------------------------------------------


def cases(row, code):
    return [*calls(row, np.dtype(code), np.random.default_rng(0))][:6]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.primitive.__name__)
def test_every_primitive_is_written(row, path):
    name = row.primitive.__name__
    known = (row.dtypes or "").replace("E", "")
    code = INPUTS.get(name) or ("f" if "f" in (known or "f") else known[0])
    for case in cases(row, code):
        primitive = case.primitive
        if primitive.dynamic_outputs:
            continue
        if name in UNWRITTEN:
            with pytest.raises(OnnxError, match=f"{name} cannot be written"):
                ml.onnx.save(primitive, path, *case.arrays)
            return
        if getattr(primitive, "dropout", 0.0):
            with pytest.raises(OnnxError, match="attention with dropout is not written"):
                ml.onnx.save(primitive, path, *case.arrays)
            continue
        with nullcontext() if name not in DRAWN else pytest.warns(OnnxWarning, match="draws"):
            ml.onnx.save(primitive, path, *case.arrays)
        onnx.checker.check_model(path, full_check=True)
        if 0 in [n for a in case.arrays for n in a.shape] and name in EMPTY:
            continue
        want = expected(primitive, case.arrays)
        if name in DRAWN and any(w.dtype.name == "bfloat16" for w in want):
            continue  # onnxruntime has no arrays of bfloat16
        got = run(path, *case.arrays)
        if name in DRAWN:
            assert [(g.shape, g.dtype) for g in got] == [(w.shape, w.dtype) for w in want]
        else:
            same(got, want, 1e-4)


DTYPES = "edil?"


def lacking(path, arrays):
    """True where onnxruntime says that it has no kernel, or none for what is empty."""
    onnx.checker.check_model(path, full_check=True)
    try:
        run(path, *arrays)
    except Exception as error:  # it has classes of its own
        words = "NOT_IMPLEMENTED", "CPU execution provider", "unsupported type", "Invalid rank"
        return any(w in str(error) for w in words) or 0 in [n for a in arrays for n in a.shape]
    return False


@pytest.mark.deep
@pytest.mark.parametrize("code", DTYPES)
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.primitive.__name__)
def test_every_primitive_in_other_dtypes(row, code, path):
    """What onnxruntime runs is equal; what it has no kernel for is accepted by ONNX's checker."""
    name = row.primitive.__name__
    if name in UNWRITTEN | DRAWN or (row.dtypes and code not in row.dtypes):
        return
    try:
        found = cases(row, code)
    except (TypeError, ValueError):  # numbers that the row does not draw in this dtype
        return
    for case in found:
        try:
            ml.onnx.save(case.primitive, path, *case.arrays)
            want = expected(case.primitive, case.arrays)
        except ml.core.errors.MinimlError:
            continue
        if lacking(path, case.arrays):
            continue
        got = run(path, *case.arrays)
        same(got, want, {"e": 2e-2, "f": 1e-4}.get(want[0].dtype.char, 1e-9))


# --- Layers and networks --------------------------------------------------------------------------


def evaluated(net):
    net.set_train(False)
    return net


def classifier():
    return evaluated(
        nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(4, 4, 3, stride=2), nn.Dropout(0.5), nn.Flatten(), nn.Dense(4, 3),
        )
    )  # fmt: skip


LAYERS = {
    "dense": (nn.Dense(4, 3), (2, 4)),
    "cnn": (classifier(), (2, 1, 9, 9)),
    "lstm": (nn.LSTM(3, 4), (5, 2, 3)),
    "gru": (nn.GRU(3, 4), (5, 2, 3)),
    "encoder": (evaluated(nn.TransformerEncoderLayer(8, 2, 16)), (2, 5, 8)),
    "group norm": (nn.GroupNorm(2, 4), (2, 4, 3, 3)),
    "pooled": (nn.Sequential(nn.Conv2d(1, 4, 3), nn.AdaptiveAvgPool2d(1)), (2, 1, 5, 6)),
}


OPEN = {
    "dense": {"x": {0: "n"}},
    "cnn": {"x": {0: "n"}},
    "lstm": {"x": {0: "t", 1: "n"}},
    "gru": {"x": {0: "t", 1: "n"}},
    "encoder": {"x": {0: "n", 1: "t"}},
    "group norm": {"x": {0: "n", 2: "h", 3: "w"}},
    "pooled": {"x": {0: "n", 2: "h", 3: "w"}},
}


@pytest.mark.parametrize("name", OPEN)
def test_layers_with_open_extents(name, path):
    layer, shape = LAYERS[name]
    other = list(shape)
    for axis in OPEN[name]["x"]:
        other[axis] += 3
    holds(
        layer, path, numbers(*shape), others=[(numbers(*other),)], dynamic=OPEN[name],
        tolerance=1e-4,
    )  # fmt: skip


FUNCTIONS = {
    "sizes": (lambda x: ops.zeros((x.shape[0], 2 * x.shape[1] + 1)) + 1.0, (2, 3), (3, 5)),
    "merged": (lambda x: ops.reshape(x, (x.shape[0] * x.shape[1],)), (2, 3), (3, 5)),
    "counted": (lambda x: ops.arange(x.shape[0]) + x[:, 0], (2, 3), (3, 5)),
    "divided": (lambda x: ops.var(x, 0, correction=1), (3, 3), (4, 5)),
    "rolled": (lambda x: ops.concat([x[1:], x[:1]]), (2, 3), (4, 3)),
    "causal": (
        lambda x: ops.scaled_dot_product_attention(x, x, x, is_causal=True), (5, 3), (7, 3),
    ),
    "ones": (lambda x: x + ops.ones(x.shape), (2, 3), (3, 5)),
    "flipped": (lambda x: x[::-1, 1:], (2, 3), (3, 5)),
    "spread": (lambda x: ops.broadcast_to(x[:1], x.shape), (2, 3), (3, 5)),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_numbers_that_follow_extents(name, path):
    fn, shape, other = FUNCTIONS[name]
    dynamic = {"x": {0: "n"} if other[1] == shape[1] else {0: "n", 1: "m"}}
    holds(fn, path, numbers(*shape), others=[(numbers(*other),)], dynamic=dynamic)


def test_an_example_of_one_row_may_stand_for_many(path):
    holds(nn.Dense(4, 3), path, numbers(1, 4), others=[(numbers(6, 4),)], dynamic={"x": {0: "n"}})


def test_inputs_share_a_symbol(path):
    model = holds(
        lambda x, y: x @ y, path, numbers(2, 3), numbers(3, 4),
        others=[(numbers(2, 5), numbers(5, 4))], dynamic={"x": {1: "k"}, "y": {0: "k"}},
    )  # fmt: skip
    dims = [d.dim_param or d.dim_value for d in model.graph.input[1].type.tensor_type.shape.dim]
    assert dims == ["k", 4]


def test_branches_and_loops(path):
    x = numbers(3, 4)
    holds(lambda x: ops.cond(ops.sum(x) > 0, lambda v: v * 2, lambda v: v - 1, x), path, x)
    holds(lambda x: ops.while_loop(lambda v: ops.sum(v * v) > 0.1, lambda v: 0.5 * v, x), path, x)
    holds(lambda x: ops.scan(lambda c, _: (c * 0.5, c), x, None, 4), path, x)
    holds(lambda x: ops.scan(lambda c, r: (c + r, c * 1), x[0], x, reverse=True), path, x)


# --- What a file looks like -----------------------------------------------------------------------


def test_products_take_their_bias_and_layers_name_their_nodes(path):
    model = holds(classifier(), path, numbers(2, 1, 9, 9))
    assert types(model)[0] == "Conv"
    assert len(model.graph.node[0].input) == 3
    assert types(model)[-1] == "Gemm"
    assert model.graph.node[0].doc_string == "layer 0 (Conv2d)"
    assert [t.name for t in model.graph.initializer][:2] == ["0.weight", "0.bias"]


def test_names_of_inputs_and_outputs(path):
    model = holds(nn.Dense(4, 3), path, numbers(2, 4), names={"x": "image", "out": "logits"})
    assert [v.name for v in (*model.graph.input, *model.graph.output)] == ["image", "logits"]


@pytest.mark.parametrize("opset", range(18, 25))
def test_older_and_newer_operator_sets(opset, path):
    net = nn.Sequential(nn.Dense(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Softmax())
    model = holds(net, path, numbers(2, 4), opset=opset)
    assert model.opset_import[0].version == opset


def test_an_expression_of_ones_own_is_a_function_in_the_file(path):
    ripple = ml.elementwise("SavedRipple", "x + sin(alpha * x) * sin(alpha * x) / alpha", alpha=1.0)
    model = holds(lambda x: ripple(0.5)(ripple()(x)), path, numbers(3))
    assert types(model) == ["SavedRipple", "SavedRipple_2"]
    assert {f.domain for f in model.functions} == {"tests"}


def test_a_writer_and_a_composition_of_ones_own(path, monkeypatch):
    monkeypatch.setattr(operators, "_writers", dict(operators._writers))

    class SavedHalf(Primitive):
        elementwise = True

        def infer_shape(self, x):
            return x

        def infer_dtype(self, x):
            return x

    @kernel("SavedHalf", "cpu", "f->f")
    def half(x, *, out):
        np.multiply(x, 0.5, out=out)

    def twice(x):
        return SavedHalf()(x) + 1.0

    with pytest.raises(OnnxError, match=r"SavedHalf cannot be written.*register_writer") as caught:
        ml.onnx.save(twice, path, numbers(3))
    assert "return SavedHalf()(x) + 1.0" in "".join(caught.value.__notes__)

    @ml.onnx.register_writer(SavedHalf)
    def write(emit, node, x):
        return emit("Mul", x, np.float32(0.5))

    assert types(holds(twice, path, numbers(3))) == ["Mul", "Add"]
    ml.onnx.register_composition(SavedHalf)(lambda self, x: ops.mul(x, 0.5))
    assert types(holds(twice, path, numbers(3))) == ["SavedHalf", "Add"]


def test_training_mode_is_written_as_it_is_and_said(path):
    net = nn.Sequential(nn.Dense(4, 3), nn.BatchNorm1d(3), nn.Dropout(0.5))
    before = net[1].running_mean.asnumpy()
    with pytest.warns(OnnxWarning, match=r"training mode.*set_train\(False\)"):
        ml.onnx.save(net, path, numbers(5, 4))
    names = [v.name for v in onnx.load(path).graph.output]
    assert names == ["out", "1.running_mean_next", "1.running_var_next"]
    x = numbers(5, 4)
    out, mean, _ = run(path, x)
    hidden = x @ net[0].weight.asnumpy() + net[0].bias.asnumpy()
    np.testing.assert_allclose(mean, 0.9 * before + 0.1 * hidden.mean(0), 1e-4, 1e-6)
    assert 0 < (out == 0).mean() < 1
    assert (net[1].running_mean.asnumpy() == before).all()


def test_large_arrays_stand_beside_the_file(path, monkeypatch):
    monkeypatch.setattr(writer, "INSIDE", 1024)
    net = nn.Dense(64, 32)
    holds(net, path, numbers(2, 64))
    assert onnx.load(path, load_external_data=False).graph.initializer[0].data_location == 1


def test_a_graph_and_a_saved_one(path, tmp_path, capsys):
    x = numbers(2, 3)
    graph = ml.trace(lambda x: ops.softmax(x * 2.0), x)
    ml.onnx.save(graph, path)
    same(run(path, x), expected(graph, [x]))
    ml.save_graph(graph, tmp_path / "graph.json")
    assert cli.main(["onnx", "save", str(tmp_path / "graph.json"), path]) == 0
    same(run(path, x), expected(graph, [x]))
    assert "net.onnx" in capsys.readouterr().out


def norms():
    net = evaluated(
        nn.Sequential(
            nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.GroupNorm(2, 4), nn.GELU(), nn.Flatten(),
            nn.LayerNorm(36), nn.Dense(36, 3), nn.BatchNorm1d(3, eps=0.1),
        )
    )  # fmt: skip
    for i in (1, 7):  # as if it had been trained
        net[i].running_mean.set_data(numbers(net[i].num_features, seed=1))
        net[i].running_var.set_data(np.square(numbers(net[i].num_features, seed=2)) + 0.5)
    return net


def test_a_normalization_by_known_statistics_is_one_node(path):
    model = holds(norms(), path, numbers(2, 2, 5, 5), tolerance=1e-4)
    found = [n for n in model.graph.node if n.op_type == "BatchNormalization"]
    assert [list(n.input)[1:] for n in found] == [
        [f"{i}.{n}" for n in ("weight", "bias", "running_mean", "running_var")] for i in (1, 7)
    ]
    assert found[1].attribute[0].f == np.float32(0.1)
    layers = [n.doc_string for n in model.graph.node]
    assert layers.count("layer 1 (BatchNorm2d)") == layers.count("layer 7 (BatchNorm1d)") == 1
    open_batch = {"x": {0: "n"}}
    holds(
        norms(), path, numbers(2, 2, 5, 5), others=[(numbers(3, 2, 5, 5),)], dynamic=open_batch,
        tolerance=1e-4,
    )  # fmt: skip


NEAR = {
    "another order": lambda x, m, s, b: (x * s - m) + b,
    "two readers": lambda x, m, s, b: (x - m) * s + (x - m),
    "another axis": lambda x, m, s, b: (x - ops.reshape(m, (1, 4))) * s + b,
    "no statistics": lambda x, m, s, b: (x - m) * s + b,
}


@pytest.mark.parametrize("name", NEAR)
def test_what_is_near_a_normalization_stays(name, path):
    """Neighbours of the pattern, on 4 channels of 4 x 4, compute what they did."""
    m, b, gamma, var = (numbers(4, seed=i) for i in range(4))

    def fn(x):
        scale = gamma * ops.rsqrt(ops.square(var) + 1e-3) if name != "no statistics" else gamma
        return NEAR[name](x, *(ops.reshape(v, (4, 1, 1)) for v in (m, scale, b)))

    assert "BatchNormalization" not in types(holds(fn, path, numbers(2, 4, 4, 4)))


@pytest.mark.parametrize("frozen", [False, True])
def test_what_is_learned_here_is_learned_again(frozen, path):
    """Neither constants of the program, nor running statistics, nor frozen parameters."""
    net = norms()
    if frozen:
        net[0].freeze()
    ml.onnx.save(net, path, numbers(2, 2, 5, 5))
    again = ml.onnx.load(path)
    assert {p.name for p in again.trainable_params()} == {p.name for p in net.trainable_params()}
    assert len(again.trainable_params()) == 12 - 2 * frozen


# --- Refusals -------------------------------------------------------------------------------------


REFUSED = {
    "has no such axis": ({"dynamic": {"x": {5: "n"}}}, r"axis 5 of x, of shape \(2, 4\)"),
    "has no such input": ({"dynamic": {"y": {0: "n"}}}, "the inputs are x"),
    "is fixed": ({"dynamic": {"x": {1: "n"}}}, "'n' cannot stay open: .* takes extent 4"),
    "is no name": ({"dynamic": {"x": {0: "a b"}}}, "'a b'; give a name"),
    "is no dict": ({"dynamic": [0]}, r"give a dict, \{'x': \{0: 'batch'\}\}"),
    "is two": ({"dynamic": {"x": {0: "n", 1: "n"}}}, "extents 2 and 4"),
    "is old": ({"opset": 12}, "opset is 12; give one from 18 to"),
    "is no number": ({"opset": "21"}, "opset is '21'"),
    "is unknown": ({"names": {"z": "y"}}, "inputs and outputs are x, out"),
    "is taken": ({"names": {"x": "weight"}}, "give a name that nothing else has"),
}


@pytest.mark.parametrize("why", REFUSED)
def test_refusals(why, path, tmp_path):
    options, match = REFUSED[why]
    with pytest.raises(OnnxError, match=match):
        ml.onnx.save(nn.Dense(4, 3), path, numbers(2, 4), **options)
    assert not list(tmp_path.iterdir())


def test_what_cannot_follow_an_extent(path):
    def table(x):
        return x + np.sqrt(np.arange(x.shape[0], dtype=np.float32))

    with pytest.raises(OnnxError, match=r"shapes \(2,\), \(3,\), \(4,\) where the open extents"):
        ml.onnx.save(table, path, numbers(2), dynamic={"x": {0: "n"}})

    def unrolled(x):
        for _ in range(x.shape[0]):
            x = ops.tanh(x)
        return x

    with pytest.raises(OnnxError, match="the graph has 2 nodes for the example, and 3 for"):
        ml.onnx.save(unrolled, path, numbers(2), dynamic={"x": {0: "n"}})


def test_a_graph_has_its_types(path):
    graph = ml.trace(ops.tanh, numbers(2))
    with pytest.raises(OnnxError, match="has its types already"):
        ml.onnx.save(graph, path, numbers(2))


def test_a_path_that_cannot_be_written(tmp_path):
    with pytest.raises(CheckpointError, match="there is no folder"):
        ml.onnx.save(nn.Dense(4, 3), tmp_path / "no" / "net.onnx", numbers(2, 4))


def test_a_failed_save_keeps_the_file(path):
    ml.onnx.save(nn.Dense(4, 3), path, numbers(2, 4))
    with open(path, "rb") as file:
        before = file.read()
    with pytest.raises(OnnxError):
        ml.onnx.save(ops.svd, path, numbers(3, 3))
    with open(path, "rb") as file:
        assert file.read() == before
