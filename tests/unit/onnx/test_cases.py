"""ONNX's own cases of its operators, made by its wheel: those whose types miniml has all pass."""

import re
import warnings
from collections import defaultdict
from functools import cache

import ml_dtypes
import numpy as np
import pytest

import miniml as ml

pytest.importorskip("onnx", reason="no onnx")

import onnx
from onnx.backend.test.case.node import collect_testcases

from miniml.errors import OnnxError
from miniml.onnx import operators
from miniml.onnx.tensors import array_of

HAS = {1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13, 16}  # the numbers of the dtypes that miniml has
RANDOM = "its numbers are drawn by another generator"
EXCLUDED = {
    "test_bernoulli": RANDOM,
    "test_bernoulli_double": RANDOM,
    "test_bernoulli_seed": RANDOM,
    "test_training_dropout": RANDOM,
    "test_training_dropout_default": RANDOM,
    "test_training_dropout_mask": RANDOM,
    "test_training_dropout_default_mask": RANDOM,
}
EXCLUDED |= {f"{name}_expanded": reason for name, reason in EXCLUDED.items()}
# Operators of the wheel's cases that no row reads.
UNREAD = set(
    """Adagrad Adam BitCast DFT DeformConv
    FlexAttention ImageDecoder LabelEncoder LinearAttention Momentum NonMaxSuppression
    OptionalGetElement OptionalHasElement RegexFullMatch RoiAlign STFT
    SequenceInsert SequenceMap SplitToSequence StringConcat StringNormalizer StringSplit
    TfIdfVectorizer TreeEnsemble""".split()
)


def types_of(graph):
    """The kinds and dtypes of all values that a graph and its subgraphs declare."""
    for value in (*graph.input, *graph.output, *graph.value_info):
        kind = value.type.WhichOneof("value")
        yield value.type.tensor_type.elem_type if kind == "tensor_type" else kind
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from types_of(attribute.g)


@cache
def cases():
    """The wheel's cases by the domain and type of their operator, "" for those of several."""
    found = defaultdict(list)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for case in collect_testcases(None):
            nodes = case.model.graph.node
            key = (nodes[0].domain, nodes[0].op_type) if len(nodes) == 1 else ("", "")
            found[key].append(case)
    return found


def expressible(case):
    return HAS.issuperset(types_of(case.model.graph)) and case.name not in EXCLUDED


def array(value):
    return array_of(value) if isinstance(value, onnx.TensorProto) else np.asarray(value)


def loaded(model, inputs, **options):
    """The graph, and the inputs that it takes: values are given as the errors say, which name
    inputs of the model and nothing else."""
    fixed = {}
    while True:
        try:
            graph = ml.onnx.load(model, values=fixed, train_constants=False, **options)
        except OnnxError as error:
            asked = re.findall(r"'(\w+)': \.\.\.", str(error))
            if not asked or not {*asked} <= inputs.keys() - fixed.keys():
                raise
            fixed |= {name: inputs[name] for name in asked}
        else:
            return graph, {n: v for n, v in inputs.items() if n not in fixed}


def check(case):
    """Load the model, run it, and compare."""
    names = [v.name for v in case.model.graph.input]
    for given, expected in case.data_sets:
        inputs = dict(zip(names, map(array, given), strict=True))
        shapes = {n: v.shape for n, v in inputs.items()}
        graph, taken = loaded(case.model, inputs, shapes=shapes)
        out = graph(*taken.values())
        for got, value in zip(out if isinstance(out, tuple) else (out,), expected, strict=True):
            compare(got.asnumpy(), array(value), case)


def compare(got, expected, case):
    assert (got.shape, got.dtype) == (expected.shape, expected.dtype), case.name
    rtol, atol = case.rtol, case.atol
    if got.dtype.itemsize == 2 and got.dtype.kind in "fV":  # half a unit each, in several steps
        rtol = max(rtol, 4 * float(ml_dtypes.finfo(got.dtype).eps))
        got, expected = got.astype(np.float32), expected.astype(np.float32)
    np.testing.assert_allclose(got, expected, rtol, atol, err_msg=case.name)


# Operators of which the wheel has no case, or none whose numbers can be compared.
WITHOUT = {
    *"Bernoulli GlobalLpPool RandomNormal RandomNormalLike RandomUniform RandomUniformLike".split(),
    *"LinearClassifier LinearRegressor Normalizer Scaler ZipMap".split(),  # test_linear_models.py
}
ROWS = sorted(
    {
        (r.domain, r.type) for r in operators.rows()
        if r.type not in WITHOUT and r.domain != "com.microsoft"  # see test_quantized.py
    }
)  # fmt: skip


@pytest.mark.parametrize(("domain", "type_"), ROWS, ids=[t for _, t in ROWS])
def test_all_cases_of_an_operator_that_its_types_allow(domain, type_):
    found = [case for case in cases()[domain, type_] if expressible(case)]
    assert found, "no case shows that the operator is read; does the wheel still have one?"
    for case in found:
        check(case)


@pytest.mark.parametrize("part", range(4))
def test_operators_written_out_as_graphs_of_others(part):
    found = [case for case in cases()["", ""] if expressible(case)]
    for case in found[part::4]:
        check(case)


def test_how_many_operators_are_read():
    operators_of_the_wheel = {key for key in cases() if key != ("", "")}
    assert len(ROWS) >= 105
    assert {t for _, t in operators_of_the_wheel.difference(ROWS)} - WITHOUT == UNREAD
