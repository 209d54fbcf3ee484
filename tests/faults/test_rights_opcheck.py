"""opcheck calls no primitive faulty that is right, however its author wrote it."""

import numpy as np
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
    report = judging.check_planted(row, budget=1.0)
    assert report.ok, str(report)


@pytest.mark.deep
@pytest.mark.parametrize("row", RIGHTS, ids=lambda row: row.name)
def test_no_right_primitive_is_called_faulty(row):
    """In the first three seconds; `make rates` takes all of them, at fresh seeds."""
    report = judging.check_planted(row, budget=3.0, seed=RIGHTS.index(row) % 3)
    assert report.ok, str(report)


def given(row, check, *inputs):
    """The report of one check of a right primitive on these inputs."""
    with planted(row) as (primitive, _):
        return opcheck(primitive, inputs=inputs, checks=(check,), raise_error=False)


def test_what_cancels_is_a_warning_for_zeros_alone_too():
    """x + log1p(exp(-2 x)) - log(2) is 2e-9 at 0, in float32."""
    report = given(by_name("LogCosh"), "kernels", np.array(-0.0, np.float32))
    assert [f.severity for f in report.findings] == ["warning"], str(report)


def test_a_gradient_that_leaves_the_range_for_large_cotangents_is_linear():
    """y x^(y - 1) is 7e35 here, and 1024 times that is no float32."""
    x, y = np.array([1.0, 38.223484], np.float32), np.float32(22.956558)
    report = given(by_name("PowerOfBoth"), "gradient cotangents", x, y)
    assert report.ok, str(report)


def test_a_product_that_leaves_the_range_for_large_cotangents_is_linear():
    """Each gradient is 1e33; what is divided to get it is 1000 times that, and 1024 for dout."""
    x = np.linspace(995.0, 1005.0, 12, dtype=np.float32).reshape(1, 12)
    report = given(by_name("ProductOfRows"), "gradient cotangents", x)
    assert report.ok, str(report)


def test_a_sum_that_overflows_in_one_order_only_is_no_fault_of_strides():
    """1/x is 1e308 and has either sign: NumPy adds rows in one order, columns in another."""
    rng = np.random.default_rng(3)
    x = rng.choice([-1.0, 1.0], (40, 8)) * rng.uniform(0.8e-308, 2e-308, (40, 8))
    with np.errstate(all="ignore"):
        rows, columns = (1 / x).sum(-1), (1 / np.asfortranarray(x)).sum(-1)
    assert (np.isfinite(rows) != np.isfinite(columns)).any()
    report = given(by_name("HarmonicMean"), "layouts", x)
    assert report.ok, str(report)


def by_name(name):
    return next(row for row in RIGHTS if row.name == name)


def test_a_nan_that_may_vanish_is_a_warning_at_most():
    """As in 1**nan, which is 1; here in a product."""

    def own(x, y, *, out):
        out[...] = np.nan_to_num(x * y, nan=1)

    body = {"differentiable": False}
    row = Planted("OwnPower", PRODUCT, "", fn=own, bprop="none", body=body)
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
