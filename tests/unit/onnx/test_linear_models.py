"""Linear models of the domain ai.onnx.ml compute here what onnxruntime computes, and train."""

from pathlib import Path

import numpy as np
import pytest

import miniml as ml
from miniml import ops
from miniml.errors import OnnxError, OnnxWarning
from miniml.grad import value_and_grad
from miniml.testing import gradcheck

onnx = pytest.importorskip("onnx", reason="no onnx")
ort = pytest.importorskip("onnxruntime", reason="no onnxruntime")
ort.set_default_logger_severity(4)

from onnx import TensorProto, helper  # noqa: E402

DRAW = np.random.default_rng(0)
X = DRAW.normal(size=(6, 4)).astype(np.float32)
X[2] = 0.0


def floats(n):
    return DRAW.normal(size=n).astype(np.float32).tolist()


THREE = {"coefficients": floats(12), "intercepts": floats(3), "classlabels_ints": [3, 5, 9]}
TWO = {"coefficients": floats(4), "intercepts": floats(1), "classlabels_ints": [0, 1]}
CASES = {
    "Scaler": {"offset": floats(4), "scale": floats(4)},
    "Scaler of one number": {"offset": [0.5], "scale": [2.0]},
    **{f"Normalizer {n}": {"norm": n} for n in ("MAX", "L1", "L2")},
    "LinearRegressor": {"coefficients": floats(4), "intercepts": floats(1)},
    "LinearRegressor of two": {"coefficients": floats(8), "intercepts": floats(2), "targets": 2},
    "LinearRegressor without": {"coefficients": floats(4)},
    **{
        f"LinearClassifier {t}": {**THREE, "post_transform": t}
        for t in ("NONE", "LOGISTIC", "SOFTMAX")
    },
    **{f"LinearClassifier of one {t}": {**TWO, "post_transform": t} for t in ("NONE", "LOGISTIC")},
}


def model(type_, attributes):
    names = ["label", "y"] if type_ == "LinearClassifier" else ["y"]
    node = helper.make_node(type_, ["x"], names, domain="ai.onnx.ml", **attributes)
    outputs = [
        helper.make_tensor_value_info(n, TensorProto.INT64 if n == "label" else 1, None)
        for n in names
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, X.shape)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 1)]
    return helper.make_model(
        helper.make_graph([node], "one", [x], outputs), opset_imports=opsets, ir_version=8
    )


def as_tuple(out):
    return out if isinstance(out, tuple) else (out,)


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_a_linear_model(name, train):
    made = model(name.partition(" ")[0], CASES[name])
    want = ort.InferenceSession(made.SerializeToString()).run(None, {"x": X})
    got = as_tuple(ml.onnx.load(made, train_constants=train)(X))
    for a, b in zip(got, want, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        np.testing.assert_allclose(a.asnumpy(), b, 1e-5, 1e-6)


def test_coefficients_are_weights_on_demand():
    made = model("LinearClassifier", {**THREE, "post_transform": "SOFTMAX"})
    with pytest.warns(OnnxWarning, match="12 numbers, stand in nodes.*train_constants=True"):
        ml.onnx.load(made)
    graph = ml.onnx.load(made, train_constants=True)
    names = ["label.coefficients", "label.intercepts"]
    assert [p.name for p in graph.trainable_params()] == names

    def loss():
        return ops.mean(ops.square(graph(X)[1]))

    gradients = value_and_grad(loss, None, weights=graph)()[1]
    assert [g.shape for g in gradients] == [(3, 4), (3,)]
    assert gradcheck(lambda x: graph(x)[1], X).ok


@pytest.mark.parametrize(
    ("changed", "match"),
    [
        ({"coefficients": floats(11)}, "has 11 coefficients; it takes 12"),
        ({"post_transform": "PROBIT"}, "post_transform 'PROBIT' is not there; NONE, LOGISTIC"),
        ({"classlabels_strings": ["a"]}, "labels that are text, which miniml lacks"),
    ],
)
def test_what_is_refused(changed, match):
    with pytest.raises(OnnxError, match=match):
        ml.onnx.load(model("LinearClassifier", {**THREE, **changed}), train_constants=False)


def test_a_trained_model_of_a_wheel():
    """onnxruntime ships a classifier of irises whose last node makes maps: here they are columns.
    It has four coefficients a class, and declares two columns, of which onnxruntime takes some."""
    made = onnx.load(Path(ort.__file__).parent / "datasets" / "logreg_iris.onnx")
    with pytest.raises(OnnxError, match="has 12 coefficients; it takes 6"):
        ml.onnx.load(made)
    made.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 4
    x = np.array([[5.1, 3.5, 1.4, 0.2], [6.0, 2.7, 5.1, 1.6], [7.2, 3.0, 5.8, 1.6]], np.float32)
    labels, maps = ort.InferenceSession(made.SerializeToString()).run(None, {"float_input": x})
    got, table = ml.onnx.load(made, train_constants=False)(x)
    assert got.tolist() == labels.tolist() == [0, 2, 1]
    np.testing.assert_allclose(table.asnumpy(), [[*m.values()] for m in maps], 1e-5, 1e-6)
