"""Functions of `ops` run where their tensors are: arrays beside them follow, from any context."""

import numpy as np
import optree
import pytest

import miniml as ml
from docs import operations
from miniml import ops
from miniml.errors import MinimlError
from miniml.grad import grad, jacobian

WITH_NUMBERS = [
    r
    for r in operations.rows()
    if r.example and operations.numbers(r, operations.values("float32"))
]
COMPLEX = [
    r
    for r in WITH_NUMBERS
    if r.section == "Complex numbers and Fourier transforms" and not r.name.endswith("shift")
]
ROWS = [r for r in WITH_NUMBERS if r not in COMPLEX]
DAILY = {"inv", "cummax", "stack", "nll_loss", "conv1d", "rms_norm"}


@pytest.mark.parametrize(
    "row",
    [pytest.param(r, marks=() if r.name in DAILY else pytest.mark.deep, id=r.name) for r in ROWS],
)
def test_arrays_follow_any_of_the_tensors(row):
    given = operations.given_to(row)
    drawn = row.section == "Random draws"
    expected = optree.tree_leaves(operations.call(row, given)())
    arrays = {name: value.asnumpy() for name, value in given.items()}
    for name in operations.numbers(row, given):
        mixed = {**arrays, name: given[name].to("cuda-sim")}
        got = optree.tree_leaves(operations.call(row, mixed)())
        for out, right in zip(got, expected, strict=True):
            assert out.device == "cuda-sim"
            if not drawn:
                np.testing.assert_allclose(
                    out.asnumpy(), right.asnumpy(), rtol=1e-5, atol=1e-6, equal_nan=True
                )


@pytest.mark.parametrize("row", COMPLEX, ids=lambda row: row.name)
def test_complex_numbers_do_not_follow(row):
    """They are on the CPU alone, also where only what comes of the tensors is complex."""
    given = operations.given_to(row)
    arrays = {name: value.asnumpy() for name, value in given.items()}
    for name in operations.numbers(row, given):
        with pytest.raises(MinimlError, match="cpu alone"):
            operations.call(row, {**arrays, name: given[name].to("cuda-sim")})()


X = np.array([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]], np.float32)
ONES = np.ones(3, np.float32)
OPTIONS = {
    "cross_entropy": lambda x: ops.cross_entropy(
        x, [0, 2], weight=ONES, ignore_index=1, label_smoothing=0.1
    ),
    "batch_norm": lambda x: ops.batch_norm(x, ONES, ONES, ONES, ONES)[0],
    "group_norm": lambda x: ops.group_norm(x[..., None], 1, ONES, ONES),
    "scatter": lambda x: ops.scatter(x, (0, np.array([1, 2])), np.float32(3.0)),
    "norm of order 0": lambda x: ops.norm(x, 0, 1),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_gradients_are_where_the_input_is(name):
    slope = grad(lambda x: ops.sum(ops.square(OPTIONS[name](x))))
    got, expected = slope(ml.Tensor(X).to("cuda-sim")), slope(ml.Tensor(X))
    assert got.device == "cuda-sim"
    np.testing.assert_allclose(got.asnumpy(), expected.asnumpy(), rtol=1e-4, atol=1e-5)


def test_jacobians_are_where_the_input_is():
    found = jacobian(lambda x: ops.cumprod(x, 0))(ml.Tensor([1.0, 2.0]).to("cuda-sim"))
    assert found.device == "cuda-sim"
    assert found.tolist() == [[1.0, 0.0], [2.0, 1.0]]
