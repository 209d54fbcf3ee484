"""Every primitive of the library with its row of tests/opinfo.

One family or primitive:  pytest tests/unit/test_ops.py -k Add
As a user would ask:      opcheck(ops.Add(), row)
"""

import pytest

from miniml import float64
from miniml.testing import opcheck
from miniml.testing.calls import dtypes_of
from tests.frame.calls import rng_of
from tests.frame.gradients import check_gradients
from tests.opinfo import ROWS

# Warnings that are meant, by primitive and check.
ENDS = "SciPy's functions end a little early, where numbers are below the smallest normal one"
ATOMICS = "CUDA sums floats with atomics, in the order in which threads come"
MEANT: dict[tuple[str, str], str] = {
    ("Erfc", "kernels"): ENDS,
    ("GELU", "kernels"): ENDS,
    ("CumSum", "devices"): "CUDA's scan begins with 0, and 0 + -0 is 0",
    ("IndexAdd", "devices"): ATOMICS,
    ("PutAlongAxisAdd", "devices"): ATOMICS,
    ("ScatterAdd", "devices"): ATOMICS,
}
FEW = {"Gather", "Softmax"}  # with all draws every day


def name_of(row):
    return row.primitive.name


def each(rows):
    return pytest.mark.parametrize("row", rows, ids=name_of)


def checked(row, **options):
    report = opcheck(row.primitive, row, raise_error=False, **options)
    meant = [f for f in report.warnings if (row.primitive.name, f.check) in MEANT]
    assert len(meant) == len(report.findings), str(report)


@each(ROWS)
def test_on_its_samples(row):
    checked(row, draws="samples", budget=60)


@each([r for r in ROWS if r.primitive.name in FEW])
def test_a_few_with_all_draws(row):
    checked(row)


@pytest.mark.rates
@each(ROWS)
def test_with_all_draws(row):
    """The draws of every day; tests/faults/test_rates.py takes fresh ones."""
    checked(row)


def shown(primitive):
    return primitive.differentiable and not primitive.implicit


@each([r for r in ROWS if shown(r.primitive) and float64 in dtypes_of(r)])
def test_gradients_of_a_second_witness(row):
    check_gradients(row, rng_of(row.primitive.name))


@each([r for r in ROWS if r.refused])
def test_refusals_show_the_line_of_the_call(row):
    for refusal in row.refused:
        with pytest.raises(refusal.error) as caught:
            row.primitive(**refusal.attrs)(*refusal.inputs)
        assert "(*refusal.inputs)" in "\n".join(caught.value.__notes__)


def test_what_is_meant_is_said_of_primitives_of_the_library():
    assert {name for name, _ in MEANT} <= set(map(name_of, ROWS))
