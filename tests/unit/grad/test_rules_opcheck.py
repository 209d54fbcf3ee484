"""opcheck finds facts and rules for batches and tangents that do not hold, and names them."""

import re

import numpy as np
import pytest

from miniml import Primitive, kernel, ops
from miniml.grad import batch_rules, bprop_getters, jvp_rules
from miniml.ops import rules
from miniml.testing import opcheck


class RuleBase(Primitive, abstract=True):
    """A function of one tensor, in float64."""

    def infer_shape(self, x):
        return x

    def infer_dtype(self, x):
        return x


def cubed(cls):
    """x^3 with its gradient, for a class."""
    kernel(cls.name, "cpu", "d->d")(lambda x, *, out: np.power(x, 3, out=out))
    bprop_getters.register(cls)(lambda self: lambda x, out, dout: (3.0 * dout * x * x,))
    return cls


@cubed
class RuleRight(RuleBase):
    """x^3, whose rules are right."""


batch_rules.register(RuleRight)(lambda self: lambda batched, x: self(x))
jvp_rules.register(RuleRight)(lambda self: lambda p, t, out: 3.0 * p[0] ** 2 * t[0])


@cubed
class RuleTwice(RuleBase):
    """x^3, whose tangent is twice too large."""


jvp_rules.register(RuleTwice)(lambda self: lambda p, t, out: 6.0 * p[0] ** 2 * t[0])


@cubed
class RuleForgets(RuleBase):
    """x^3, whose tangent forgets the point."""


jvp_rules.register(RuleForgets)(lambda self: lambda p, t, out: 3.0 * t[0])


@cubed
class RuleFlips(RuleBase):
    """x^3, whose batch rule takes the examples in the wrong order."""


batch_rules.register(RuleFlips)(lambda self: lambda batched, x: ops.flip(self(x), 0))


@cubed
class RuleShares(RuleBase):
    """x^3, whose batch rule gives every example the result of the first."""


@batch_rules.register(RuleShares)
def get_batch_shares(self):
    return lambda batched, x: ops.broadcast_to(self(x)[:1], x.shape)


@cubed
class RuleLinear(RuleBase):
    """x^3, which says that it is linear."""

    linear = ("x",)


class RuleLeads(RuleBase):
    """x - x[0], along the first axis, which says that further axes may stand in front."""

    batch = "leading"


@kernel("RuleLeads", "cpu", "d->d")
def leads_cpu(x, *, out):
    np.subtract(x, x[:1] if x.ndim else x, out=out)


class RuleMeans(RuleBase):
    """x minus its mean, which says that further axes may stand in front: it takes all of them."""

    batch = "leading"


@kernel("RuleMeans", "cpu", "d->d")
def means_cpu(x, *, out):
    np.subtract(x, x.mean() if x.size else 0.0, out=out)


class RulePairs(RuleBase):
    """x y, whose batch rule is right where both are different in each example alone."""

    infer_shape = rules.same
    inputs = ("x", "y")

    def infer_dtype(self, x, y):
        return x


@kernel("RulePairs", "cpu", "dd->d")
def pairs_cpu(x, y, *, out):
    np.multiply(x, y, out=out)


batch_rules.register(RulePairs)(lambda self: lambda batched, x, y: x * y[: len(x)])


@pytest.mark.parametrize(
    ("op", "named"),
    [
        (RuleTwice, "by the jvp rule, the tangent is not what the transpose"),
        (RuleForgets, "by the jvp rule, the tangent is not what the transpose"),
        (RuleFlips, "by the batch rule, examples give something else"),
        (RuleShares, "by the batch rule, examples give something else"),
        (RuleLinear, "the tangent is not what the transpose|linear = 'x'"),
        (RuleMeans, 'by batch = "leading", examples give something else'),
        (RulePairs, "by the batch rule, examples that share an input give something else"),
        (RuleLeads, 'by batch = "leading", examples give something else'),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_false_rule_is_found_and_named(op, named):
    report = opcheck(op(), raise_error=False, budget=8, checks=["facts"])
    assert not report.ok
    found = [f.message for f in report.findings if f.check == "facts"]
    assert found
    assert any(re.search(named, message) for message in found), found


def test_right_rules_pass():
    report = opcheck(RuleRight(), raise_error=False, budget=8, checks=["facts"])
    assert not [f for f in report.findings if f.check == "facts"], str(report)
