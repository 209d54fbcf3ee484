"""gradcheck compares forward mode with the pull-back, and names the rule or fact at fault."""

import numpy as np
import pytest

from miniml import Primitive, ops
from miniml.errors import GraphError
from miniml.grad import jvp_rules
from miniml.testing import GradientError, gradcheck

X = np.array([0.3, 2.0, -1.1])


class ForwardChecked(Primitive, abstract=True):
    """x^3."""

    dtypes = "fd"

    def infer_shape(self, x):
        return x

    def bprop(self, x, out, dout):
        return (3.0 * dout * x * x,)

    def compute(self, x, *, out):
        np.power(x, 3, out=out)


class ForwardTwice(ForwardChecked):
    """With a rule that gives twice the tangent."""


jvp_rules.register(ForwardTwice)(lambda self: lambda p, t, out: 6.0 * p[0] ** 2 * t[0])


class ForwardStraight(ForwardChecked):
    """With a fact that is not true."""

    linear = ("x",)


class ForwardRight(ForwardChecked):
    """With a rule that is right."""


jvp_rules.register(ForwardRight)(lambda self: lambda p, t, out: 3.0 * p[0] ** 2 * t[0])


@pytest.mark.parametrize(
    ("op", "by"), [(ForwardTwice, "its jvp rule"), (ForwardStraight, r"linear = \('x',\)")]
)
def test_the_rule_or_the_fact_at_fault_is_named_with_its_line(op, by):
    with pytest.raises(GradientError) as caught:
        gradcheck(lambda x: ops.sin(op()(ops.exp(x))), X)
    (found,) = caught.value.report.findings
    assert (found.verdict, found.order, found.argument) == ("wrong", 1, "forward mode")
    says = f"the tangent of {op.__name__}, by {by}, is not what the transpose of its bprop gives"
    assert pytest.approx(found.analytic) != found.numeric
    assert caught.match(says)
    assert __file__ in str(caught.value)


def test_what_is_right_has_a_row_in_the_report():
    report = gradcheck(lambda x: ForwardRight()(x) * ops.tanh(x), X)
    assert [c.what for c in report.checks if "forward mode" in c.what]
    assert "forward mode, the tangent along one direction against the pull-back" in str(report)


class ForwardRefuses(ForwardChecked):
    """With a rule that refuses."""


@jvp_rules.register(ForwardRefuses)
def get_jvp_refuses(self):
    def jvp(primals, tangents, out):
        raise GraphError("no tangents today")

    return jvp


def test_a_refusal_of_forward_mode_is_a_note():
    report = gradcheck(ForwardRefuses(), X)
    assert report.ok
    assert report.notes == ["forward mode was not compared: no tangents today"]


def test_draws_repeat():
    report = gradcheck(lambda x: ops.dropout(x, 0.5), X)
    assert report.ok
    assert [c.what for c in report.checks if "forward mode" in c.what]
