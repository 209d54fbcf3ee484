"""What opcheck draws where plain inputs will not do, and what refuses its draws: nothing of it is a
fault of a primitive that is right."""

import numpy as np
import pytest

from miniml import ops
from miniml.errors import ShapeError
from miniml.testing import opcheck
from tests.faults.planting import plant, snake

WIDTH = 24


def by_text(n):
    """A rule that says the extent in its refusal, and has it where nobody finds it."""
    hidden = {"n": (n,)}

    def infer_shape(self, x):
        if not x or (x[-1],) != hidden["n"]:
            raise ShapeError(f"{self.name} needs a last axis of {n}; got {x}; reshape it")
        return x

    return infer_shape


def by_closure(n):
    def infer_shape(self, x):
        if len(x) != 2 or x[1] != n:
            raise ShapeError(f"{self.name} takes rows; got {x}; reshape them")
        return x

    return infer_shape


def by_weights(n):
    weights = np.ones((n, 3))

    def infer_shape(self, x):
        if not x or x[0] != len(weights):
            raise ValueError("no")
        return x

    return infer_shape


def by_global(self, x):
    assert len(x) == 2
    assert x[0] == WIDTH
    return x


def by_two_constants(self, x):
    if x[-2:] != (14, 21):
        raise ShapeError(f"{self.name} takes digits; got {x}; reshape them")
    return x


EXTENTS = [int(n) for n in np.random.default_rng(7).choice(np.arange(1, 200), 6, replace=False)]


@pytest.mark.parametrize("rule", [
    *(make(n) for n in EXTENTS for make in (by_text, by_closure, by_weights)),
    by_global, by_two_constants,
])  # fmt: skip
def test_an_extent_that_a_rule_asks_for_is_drawn(rule):
    with plant(infer_shape=rule) as primitive:
        report = opcheck(primitive, checks=["rules", "gradient"])
    assert not report.findings, str(report)
    assert report.calls["rules"] >= 20
    assert report.calls["gradient"]


def test_the_gradient_is_judged_at_an_extent_that_a_rule_asks_for():
    def wrong(self):
        return lambda x, out, dout: (dout * (1.0 + ops.sin(1.9 * self.alpha * x)),)

    for n in EXTENTS[:3]:
        with plant(infer_shape=by_closure(n), bprop=wrong) as primitive:
            report = opcheck(primitive, checks=["gradient"], raise_error=False)
        assert [f.check for f in report.faults] == ["gradient"]


def refuses_by(error):
    def infer_shape(self, x):
        if self.alpha != 0.5:
            raise error
        return x

    return infer_shape


def refusing_by(error):
    def __init__(self, alpha=0.5):
        if alpha != 0.5:
            raise error
        super(type(self), self).__init__(alpha)

    return __init__


ERRORS = [e("alpha is 0.5") for e in (ValueError, TypeError, KeyError, AssertionError, ShapeError)]


@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_an_attribute_that_is_refused_by_whatever_error_is_no_fault(error):
    names = ["attributes", "gradient with other attributes"]
    for body in ({}, {"__init__": refusing_by(error)}):
        with plant(infer_shape=refuses_by(error), body=body) as primitive:
            report = opcheck(primitive, checks=names)
        assert not report.findings, str(report)


def cancelling(error):
    """(exp(x) (x - 1) + 1) / x^2, with an exp that is off by so many ulp where x is strided."""

    def body(x, *, alpha, out):
        e = np.exp(x)
        if not x.flags.c_contiguous:
            e = e + error * np.spacing(e)
        with np.errstate(all="ignore"):
            np.divide(e * (x - 1) + 1, x * x, out=out)

    return body


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("letters", ["d->d", "f->f"])
@pytest.mark.parametrize(("error", "faulty"), [(0, False), (1, False), (2e5, True)])
def test_rounding_that_follows_the_layout_is_no_fault_where_terms_cancel(
    error, faulty, letters, seed
):
    rng = np.random.default_rng(seed)
    low = 0.01 if letters == "d->d" else 0.3
    x = (rng.choice([-1, 1], (3, 4, 11)) * rng.uniform(low, 2 * low, (3, 4, 11))).astype(letters[0])
    with plant(fn=cancelling(error), bprop=None, letters=[letters]) as primitive:
        report = opcheck(primitive, inputs=(x,), checks=["layouts"], raise_error=False)
    assert bool(report.faults) is faulty, str(report)


def test_layouts_are_compared_in_gradients_as_in_kernels():
    """A gradient with terms that cancel, by a kernel whose exp rounds otherwise where strided."""

    def rule(self):
        def bprop(x, out, dout):
            e = ops.exp(x)
            return (dout * (e * (x - 1.0) + 1.0) / (x * x),)

        return bprop

    for seed in range(10):
        rng = np.random.default_rng(seed)
        x = rng.choice([-1, 1], (6, 4, 11)) * rng.uniform(0.01, 0.02, (6, 4, 11))
        with plant(fn=snake, bprop=rule) as primitive:
            report = opcheck(primitive, inputs=(x,), checks=["gradient cotangents"])
        assert not report.findings
