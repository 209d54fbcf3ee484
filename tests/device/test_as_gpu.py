"""The library's kernels on the device "cuda", with the double in the place of cupy: there every
launch is compared with the text of its kernel, and nothing is put around it."""

import pytest

from miniml.backends.cuda.sim.settings import using
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
    with using(mode="fast"):
        for dtype in chosen(row, False):
            check_device(row, dtype, rng_of(row.primitive.name, dtype), "cuda")
