"""Functions of `ops` run where their tensors are: arrays beside them follow, from any context."""

import numpy as np
import optree
import pytest

from docs import operations

ROWS = [
    r
    for r in operations.rows()
    if r.example and operations.numbers(r, operations.values("float32"))
]
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
