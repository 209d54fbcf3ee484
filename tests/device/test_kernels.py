"""Every CUDA kernel of the library against the reference of its row in tests/opinfo."""

import pytest

from miniml.backends import registry
from miniml.backends.device import get_device
from miniml.testing.calls import dtypes_of
from tests.conftest import DEEP
from tests.frame.calls import rng_of
from tests.frame.completeness import library
from tests.frame.device import check_device, check_device_layouts, chosen
from tests.opinfo import ROWS

CASES = [(row, dtype) for row in ROWS for dtype in chosen(row, DEEP)]


@pytest.mark.parametrize(
    ("row", "dtype"), CASES, ids=[f"{row.primitive.name}-{dtype}" for row, dtype in CASES]
)
def test_kernel(row, dtype, device):
    name = row.primitive.name
    check_device(row, dtype, rng_of(name, dtype), device)
    check_device_layouts(row, dtype, rng_of(name, dtype), device)


def test_every_signature_of_the_cpu_has_a_cuda_kernel():
    get_device("cuda-sim")
    lacking = []
    for primitive in library():
        on_cuda = {str(e.signature) for e in registry.table.get((primitive.name, "cuda"), [])}
        lacking += [
            f"{primitive.name} {entry.signature}"
            for entry in registry.table.get((primitive.name, "cpu"), [])
            if entry.provider == registry.BUILTIN and str(entry.signature) not in on_cuda
        ]
    assert not lacking


def test_rows_exist_for_all_that_is_tested():
    assert all(dtypes_of(row) for row in ROWS)
