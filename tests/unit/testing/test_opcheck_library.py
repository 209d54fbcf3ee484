"""opcheck of the library's own primitives, with their rows."""

import pytest

from miniml.testing import opcheck
from tests.opinfo import ROWS

# Warnings that are meant, by primitive and check.
ATOMICS = "CUDA sums floats with atomics, in the order in which threads come"
MEANT: dict[tuple[str, str], str] = {
    ("AvgPool2DGrad", "devices"): ATOMICS,
    ("CumSum", "devices"): "CUDA's scan begins with 0, and 0 + -0 is 0",
    ("IndexAdd", "devices"): ATOMICS,
    ("MaxPool2DGrad", "devices"): ATOMICS,
    ("PutAlongAxisAdd", "devices"): ATOMICS,
    ("ScatterAdd", "devices"): ATOMICS,
}
FEW = {
    "Add",
    "Cast",
    "Exp",
    "Flip",
    "Gather",
    "MatMul",
    "ReLU",
    "Softmax",
    "Sum",
    "TopK",
    "Uniform",
}


def test_what_is_meant_is_said_of_primitives_of_the_library():
    assert {name for name, _ in MEANT} <= {row.primitive.name for row in ROWS}


def checked(row, **options):
    report = opcheck(row.primitive, row, raise_error=False, **options)
    meant = [f for f in report.warnings if (row.primitive.name, f.check) in MEANT]
    assert len(meant) == len(report.findings), str(report)


@pytest.mark.parametrize("row", [r for r in ROWS if r.primitive.name in FEW],
                         ids=lambda r: r.primitive.name)  # fmt: skip
def test_a_few_quickly(row):
    checked(row)


@pytest.mark.rates
@pytest.mark.parametrize("row", ROWS, ids=lambda r: r.primitive.name)
def test_all(row):
    """With the draws of every day; tests/faults/test_rates.py takes fresh ones."""
    checked(row)
