"""opcheck calls no primitive faulty that is right, however its author wrote it."""

import pytest

from miniml.testing import opcheck

from . import judging
from .planted import PRODUCT, WAVE, Planted, bprop_of, planted
from .rights import RIGHTS

# One row for each cause of a false alarm there has been.
FEW = (
    "OwnRoot", "OwnTanh", "SoftplusByItsOutput", "Hypotenuse", "PowerOfBoth", "LayerNormOfRows",
    "EuclideanNorm", "QuadraticForm",
)  # fmt: skip


@pytest.mark.parametrize("row", [r for r in RIGHTS if r.name in FEW], ids=lambda row: row.name)
def test_a_right_primitive_is_not_called_faulty(row):
    report = judging.check_planted(row, budget=2.0)
    assert report.ok, str(report)


@pytest.mark.deep
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("row", RIGHTS, ids=lambda row: row.name)
def test_no_right_primitive_is_called_faulty(row, seed):
    report = judging.check_planted(row, seed=seed)
    assert report.ok, str(report)


def test_a_nan_that_may_vanish_is_a_warning_at_most():
    """As in 1**nan, which is 1."""
    row = Planted("OwnPower", PRODUCT, "", fn=lambda x, y, *, out: out.fill(1), bprop="none",
        body={"differentiable": False})  # fmt: skip
    report = judging.check_planted(row, checks=["special"])
    assert report.ok
    assert {f.severity for f in report.findings} == {"warning"}


def test_a_gradient_that_is_nan_at_a_kink_is_a_warning():
    rule = bprop_of(lambda self, x, out, dout: (dout * x / out,))
    row = Planted("OwnMagnitude", WAVE, "", fn=magnitude, bprop=rule, letters="fd")
    with planted(row) as (primitive, _):
        report = opcheck(primitive, raise_error=False, checks=["gradient at other numbers"])
    assert report.ok, str(report)
    assert all("or a slope between" in f.advice for f in report.findings)
    assert report.findings


def magnitude(x, *, out):
    out[...] = abs(x)
