"""Models as onnxruntime's quantizer writes them compute here what they compute there."""

import warnings

import numpy as np
import pytest

import miniml as ml
from miniml import nn

onnx = pytest.importorskip("onnx", reason="no onnx")
ort = pytest.importorskip("onnxruntime", reason="no onnxruntime")
ort.set_default_logger_severity(4)

from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from onnxruntime.quantization import (  # noqa: E402
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)

from miniml.onnx import operators  # noqa: E402

DRAW = np.random.default_rng(0)
U8, I8, F32 = np.uint8, np.int8, np.float32


def session_of(model):
    """On one thread: on several each quantizes the hidden state of an LSTM for its part alone."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    return ort.InferenceSession(model, options)


def levels(*shape, dtype=U8):
    info = np.iinfo(dtype)
    return DRAW.integers(info.min, info.max + 1, shape).astype(dtype)


def weights(*shape):
    """Of seven bits, with which onnxruntime is exact on every processor: by AVX2 it adds products
    in pairs in 16 bits, which 255 * 127 + 255 * 127 does not fit."""
    return DRAW.integers(-64, 64, shape).astype(I8)


def scale(x=0.02):
    return np.float32(x)


def zero(n=120, dtype=U8):
    return np.array(n, dtype)


# Of an operator its inputs, None for an absent one, its attributes, and how many outputs it has.
X, OUT = (levels(2, 3, 4, 4), scale(), zero()), (scale(0.03), zero(100))
MATRIX = weights(5, 6)
LSTM = {"hidden_size": 3, "direction": "bidirectional"}


def lstm(per_channel):
    each = (2, 12) if per_channel else (2,)
    zeros = [np.zeros(each, I8)] * 2
    scales = [DRAW.uniform(0.005, 0.01, each).astype(F32) for _ in range(2)]
    w, r = weights(2, 4, 12), weights(2, 3, 12)
    b = DRAW.normal(size=(2, 24)).astype(F32)
    x = DRAW.normal(size=(5, 2, 4)).astype(F32)
    return (x, w, r, b, None, None, None, None, scales[0], zeros[0], scales[1], zeros[1])


CASES = {
    "QLinearAdd": ((*X, levels(4, 4), scale(0.05), zero(7), *OUT), {}),
    "QLinearMul": ((*X, levels(3, 1, 1), scale(0.05), zero(7), *OUT), {}),
    "QLinearAdd signed": (
        (levels(3, 4, dtype=I8), scale(), zero(5, I8), levels(3, 4, dtype=I8), scale(),
         zero(-3, I8), scale(0.03), zero(1, I8)), {},
    ),
    "QLinearSigmoid": ((*X, scale(1 / 256), zero(0)), {}),
    "QLinearLeakyRelu": ((*X, *OUT), {"alpha": 0.2}),
    "QLinearSoftmax": ((*X, scale(1 / 256), zero(0)), {"axis": 1, "opset": 13}),
    "QLinearSoftmax of rows": ((*X, scale(1 / 256), zero(0)), {"axis": 2, "opset": 11}),
    "QLinearGlobalAveragePool": ((*X, *OUT), {"channels_last": 0}),
    "QLinearGlobalAveragePool last": ((*X, *OUT), {"channels_last": 1}),
    "QLinearAveragePool": (
        (*X, *OUT), {"kernel_shape": [2, 3], "strides": [2, 1], "pads": [0, 1, 0, 1]},
    ),
    "QLinearAveragePool last": ((*X, *OUT), {"kernel_shape": [2, 2], "channels_last": 1}),
    "QLinearConcat": ((*OUT, *X, levels(2, 5, 4, 4), scale(0.05), zero(7)), {"axis": 1}),
    "QLinearWhere": (
        (DRAW.random((4, 4)) > 0.5, *X, levels(4, 4), scale(0.05), zero(7), *OUT), {},
    ),
    "QGemm": (
        (levels(4, 5), scale(), zero(), MATRIX, scale(), zero(3, I8),
         DRAW.integers(-999, 999, 6).astype(np.int32), scale(0.5), zero()), {},
    ),
    "QGemm by column": (
        (levels(4, 5), scale(), zero(), MATRIX, DRAW.uniform(0.01, 0.02, 6).astype(F32),
         np.zeros(6, I8)), {"alpha": 0.5},
    ),
    "QGemm turned": (
        (levels(5, 4), scale(), zero(), MATRIX.T.copy(), scale(), zero(3, I8), None, scale(0.5),
         zero()), {"transA": 1, "transB": 1},
    ),
    "MatMulIntegerToFloat": (
        (levels(4, 5), MATRIX, scale(), DRAW.uniform(0.01, 0.02, 6).astype(F32), zero(),
         np.zeros(6, I8), DRAW.normal(size=6).astype(F32)), {},
    ),
    "DynamicQuantizeMatMul": (
        (DRAW.normal(size=(4, 5)).astype(F32), MATRIX, scale(), zero(3, I8)), {},
    ),
    "DynamicQuantizeLSTM": (lstm(False), LSTM),
    "DynamicQuantizeLSTM by column": (lstm(True), LSTM),
    "QuantizeLinear": ((DRAW.normal(size=(3, 4)).astype(F32), scale(), zero()), {}),
    "DequantizeLinear": (X, {}),
}  # fmt: skip


def test_every_operator_of_the_domain_has_a_case():
    read = {r.type for r in operators.rows() if r.domain == "com.microsoft"}
    assert {name.partition(" ")[0] for name in CASES} == read


@pytest.mark.parametrize("name", CASES)
def test_an_operator_of_onnxruntimes_own(name):
    """Levels differ by one at most, where numbers lie between two; floats by rounding."""
    arrays, attributes = CASES[name]
    names = [f"x{i}" if a is not None else "" for i, a in enumerate(arrays)]
    type_ = name.partition(" ")[0]
    outputs = ["y", "h", "c"] if type_ == "DynamicQuantizeLSTM" else ["y"]
    node = helper.make_node(type_, names, outputs, domain="com.microsoft", **attributes)
    # What changes from call to call is an input, the rest stands in the file.
    given = {n: a for n, a in zip(names, arrays, strict=True) if a is not None}
    first = next(n for n, a in given.items() if np.ndim(a) > 1)
    initial = [numpy_helper.from_array(np.asarray(a), n) for n, a in given.items() if n != first]
    code = helper.np_dtype_to_tensor_dtype(given[first].dtype)
    float_out = type_ in ("DynamicQuantizeLSTM", "DequantizeLinear", "DynamicQuantizeMatMul",
                          "MatMulIntegerToFloat") or name == "QGemm by column"  # fmt: skip
    signed = TensorProto.INT8 if name.endswith("signed") else TensorProto.UINT8
    graph = helper.make_graph(
        [node], "one", [helper.make_tensor_value_info(first, code, given[first].shape)],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT if float_out else signed, None)
         for n in outputs], initial,
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    want = session_of(model.SerializeToString()).run(None, {first: given[first]})
    out = ml.onnx.load(model, train_constants=False)(given[first])
    got = [o.asnumpy() for o in (out if isinstance(out, tuple) else (out,))]
    for a, b in zip(got, want, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        if a.dtype.kind == "f":
            np.testing.assert_allclose(a, b, 1e-5, 1e-5)
        else:
            distance = np.abs(a.astype(int) - b.astype(int))
            assert distance.max() <= 1
            assert (distance > 0).mean() < 0.1


# --- Whole models ---------------------------------------------------------------------------------


class Residual(nn.Cell):
    """Convolutions, a sum, a product by gates, pooling and a softmax: one of each that is read."""

    def __init__(self):
        self.first = nn.Conv2d(1, 8, 3, padding=1)
        self.second = nn.Conv2d(8, 8, 3, padding=1)
        self.last = nn.Dense(8, 4)

    def construct(self, x):
        h = ml.ops.relu(self.first(x))
        h = h + ml.ops.leaky_relu(self.second(h), 0.1)
        h = h * ml.ops.sigmoid(h)
        h = ml.ops.concat([h, -h], 1)[:, :8]
        return ml.ops.softmax(self.last(ml.ops.mean(h, (2, 3))))


class _Samples(CalibrationDataReader):
    def __init__(self, name, arrays):
        self.left = iter([{name: a} for a in arrays])

    def get_next(self):
        return next(self.left, None)


IMAGES = DRAW.normal(size=(16, 2, 1, 8, 8)).astype(F32)


@pytest.fixture(scope="module")
def residual(tmp_path_factory):
    ml.manual_seed(0)
    net, path = Residual(), tmp_path_factory.mktemp("net") / "net.onnx"
    net.set_train(False)
    ml.onnx.save(net, path, IMAGES[0], opset=18)
    return path


def both(path, x):
    session = session_of(str(path))
    there = session.run(None, {session.get_inputs()[0].name: x})
    here = ml.onnx.load(path, train_constants=False)(x)
    return [o.asnumpy() for o in (here if isinstance(here, tuple) else (here,))], there


@pytest.mark.parametrize("form", ["QOperator", "QDQ"])
@pytest.mark.parametrize("per_channel", [False, True])
def test_a_network_quantized_by_calibration(form, per_channel, residual, tmp_path):
    path = tmp_path / "quantized.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        quantize_static(
            residual, path, _Samples("x", IMAGES), QuantFormat[form], per_channel=per_channel,
            weight_type=QuantType.QInt8,
        )  # fmt: skip
    types = {n.op_type for n in onnx.load(path).graph.node}
    assert ("QLinearConv" in types) is (form == "QOperator")
    (got,), (want,) = both(path, IMAGES[3])
    assert np.abs(got - want).max() <= 2 / 255


@pytest.mark.parametrize("layer", ["dense", "conv", "lstm"])
def test_a_network_quantized_dynamically(layer, tmp_path):
    nets = {
        "dense": (nn.Sequential(nn.Dense(6, 8), nn.ReLU(), nn.Dense(8, 3)), (4, 6)),
        "conv": (nn.Conv2d(1, 4, 3), (2, 1, 6, 6)),
        "lstm": (None, (5, 2, 4)),
    }
    net, shape = nets[layer]
    x, path, target = DRAW.normal(size=shape).astype(F32), tmp_path / "a.onnx", tmp_path / "b.onnx"
    if net is None:
        onnx.save(_lstm_model(shape), path)
    else:
        ml.onnx.save(net, path, x, opset=18)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        quantize_dynamic(path, target, weight_type=QuantType.QUInt8)
    types = {n.op_type for n in onnx.load(target).graph.node}
    named = {"dense": "MatMulInteger", "conv": "ConvInteger", "lstm": "DynamicQuantizeLSTM"}
    assert named[layer] in types
    for a, b in zip(*both(target, x), strict=True):
        np.testing.assert_allclose(a, b, 1e-3, 2e-3)


def _lstm_model(shape):
    """An LSTM as PyTorch and others write it."""
    w, r = (DRAW.normal(size=(1, 12, n)).astype(F32) for n in (shape[-1], 3))
    node = helper.make_node("LSTM", ["x", "w", "r"], ["y"], hidden_size=3)
    x, y = (
        helper.make_tensor_value_info(n, TensorProto.FLOAT, s)
        for n, s in [("x", shape), ("y", (shape[0], 1, shape[1], 3))]
    )
    initial = [numpy_helper.from_array(a, n) for n, a in [("w", w), ("r", r)]]
    graph = helper.make_graph([node], "lstm", [x], [y], initial)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
