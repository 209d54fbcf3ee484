"""The library's kernels on the device "cuda", with the double in the place of cupy: there every
launch is compared with the text of its kernel, and nothing is put around it."""

import numpy as np
import pytest

import miniml as ml
from tests.frame.calls import rng_of
from tests.frame.device import check_device, chosen
from tests.opinfo import ROWS

QUICK = ("Add", "Cast", "Einsum", "IndexAdd", "MatMul", "MaxPool2DGrad", "Scatter", "Sum", "TopK")


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(row, marks=() if row.primitive.name in QUICK else pytest.mark.deep)
        for row in ROWS
    ],
    ids=[row.primitive.name for row in ROWS],
)
def test_kernels(row, gpu):
    """On the draws of test_kernels.py, whose texts are then compiled already."""
    for dtype in chosen(row, False):
        check_device(row, dtype, rng_of(row.primitive.name, dtype), "cuda")


def test_bfloat16_goes_to_kernels_as_integers(gpu):
    """Not every cupy knows the dtype."""
    x = ml.Tensor(np.arange(3), ml.bfloat16)
    assert x._data.flat.dtype == np.uint16
    assert (x + x).tolist() == [0.0, 2.0, 4.0]
