"""Every CUDA kernel of the library against the reference of its row in tests/opinfo."""

import os
from pathlib import Path

import pytest

from miniml.backends import registry
from miniml.backends.selection import get_device
from tests.frame.calls import rng_of
from tests.frame.completeness import library
from tests.frame.device import check_device, check_device_layouts, chosen
from tests.opinfo import ROWS

SWEEP = os.environ.get("MINIML_SWEEP", "") not in ("", "0")  # every dtype: half an hour


def cases():
    """Rows with dtypes: the first of each is tried every day, further ones of every second row."""
    for i, row in enumerate(ROWS):
        for k, dtype in enumerate(chosen(row, SWEEP)):
            marks = [pytest.mark.deep] * (k > 0 and i % 2)
            yield pytest.param(row, dtype, marks=marks, id=f"{row.primitive.name}-{dtype}")


@pytest.mark.parametrize(("row", "dtype"), list(cases()))
def test_kernel(row, dtype, device):
    name = row.primitive.name
    check_device(row, dtype, rng_of(name, dtype), device)
    check_device_layouts(row, dtype, rng_of(name, dtype), device)


def lacking():
    """The signatures of built-in CPU kernels for which CUDA has none, but for those of dynamic
    outputs, which run on the host."""
    get_device("cuda-sim")
    found = []
    for primitive in library():
        on_cuda = {str(e.signature) for e in registry.table.get((primitive.name, "cuda"), [])}
        found += [
            f"{primitive.name} {entry.signature}"
            for entry in registry.table.get((primitive.name, "cpu"), [])
            if entry.provider == registry.BUILTIN
            and not primitive.dynamic_outputs
            and not entry.signature.arranged
            and not {"F", "D"} & set(str(entry.signature))
            and str(entry.signature) not in on_cuda
        ]
    return found


def test_the_document_says_what_is_lacking():
    (line,) = (
        text
        for text in (Path(__file__).parents[2] / "docs" / "cuda.md").read_text().splitlines()
        if text.startswith(
            "Primitives or signatures that the CPU has and CUDA lacks, but for memory formats and "
            "complex numbers: "
        )
    )
    assert line.endswith(f": {', '.join(lacking()) or 'none'}.")
