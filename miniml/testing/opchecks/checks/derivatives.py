"""Is the gradient the derivative: at ordinary numbers, at ties and zeros, and with other
attributes?"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ....dtype import float64, is_float
from ....errors import BpropNotFoundError
from ....tensor import Tensor
from ...calls import Arrays, Call
from ...gradchecks.report import GradFinding
from ...gradchecks.run import gradcheck
from ...tolerance import limits_of, unit_roundoff
from ..session import Issue
from ..vjp import Slope
from .accuracy import largest_of
from .attributes import others

_SATURATED = 64  # roundings
_DIRECTIONS = 3
_EDGE = (
    "should such numbers come, give the derivative there, or a slope between those of both sides, "
    "by ops.where on the inputs"
)
_OVERFLOWS = "rewrite the bprop so that nothing overflows on the way"
_STEPS = (1e-7, 2e-7)
_SMALLER = 32


def gradient(call: Call) -> Iterator[Issue]:
    """Gradients agree with differences, for orders 1 and 2 in float64 and order 1 in narrower
    dtypes."""
    return _compared(call, 2 if Slope(call).dtypes() == {float64} else 1)


def gradient_at_other_numbers(call: Call) -> Iterator[Issue]:
    """At ties, zeros and large numbers the gradient is the derivative, or a subgradient.

    A gradient that is not finite at ties or zeros is a warning: textbook formulas divide by 0
    there. Gradients at nearly too large numbers may be infinite. Where functions are saturated,
    only the rounding of terms as large as 1 and the outputs is left: smaller differences do not
    count.
    """
    dtypes = Slope(call).dtypes()
    outs = [o for o in call.run() if is_float(o.dtype)]
    largest = max((largest_of(o) for o in outs), default=0.0)
    blur = _SATURATED * max(map(unit_roundoff, dtypes)) * max(1.0, largest)
    large = np.sqrt(min(float(limits_of(d).max) for d in dtypes))
    for issue, finding in _found(call, 1):
        finite = np.isfinite(finding.analytic)
        if not finite and abs(finding.numeric) > large:
            continue
        if not finite and call.kind != "large":
            yield issue._replace(severity="warning", advice=_EDGE)
        elif not finite and _finite_when_small(call):
            yield issue._replace(severity="fault", advice=_OVERFLOWS)
        elif not finite or abs(finding.analytic - finding.numeric) > blur:
            yield issue


def _finite_when_small(call: Call) -> bool:
    """True where it is the size of the numbers that makes a gradient NaN or infinite."""
    slope = Slope(call.of_floats(lambda a: a / _SMALLER))
    pulled = slope.pulled(*map(Tensor, (*slope.xs, *slope.some_cotangents())))
    return all(np.isfinite(g.asnumpy().astype(float64)).all() for g in pulled)


def gradient_with_other_attributes(call: Call) -> Iterator[Issue]:
    """The gradient is the derivative for other values of each float attribute, too."""
    for twin in others(call.primitive):
        changed = [k for k, v in twin.attributes.items() if v != call.primitive.attributes[k]]
        if all(isinstance(twin.attributes[k], float) for k in changed):
            other = Call(twin, call.arrays, call.consts)
            if _runs(other):
                yield from _compared(other, 1)


def _runs(call: Call) -> bool:
    """True where rules and kernels take the attributes."""
    try:
        call.run()
    except Exception:
        return False
    return True


def _compared(call: Call, order: int) -> Iterator[Issue]:
    """What gradcheck finds wrong."""
    return (issue for issue, _ in _found(call, order))


def _found(call: Call, order: int) -> Iterator[tuple[Issue, GradFinding]]:
    try:
        report = gradcheck(call.primitive, *call.args(), order=order, raise_error=False)
    except (BpropNotFoundError, np.linalg.LinAlgError):
        return
    for finding in report.findings:
        if finding.verdict != "wrong":
            continue
        finite = bool(np.isfinite(finding.analytic))
        issue = Issue(
            f"order {finding.order}, argument {finding.argnum}{'' if finite else ', not finite'}",
            f"{call}: {_said(finding)}",
            "correct the bprop; gradcheck on this call says more",
        )
        if not finite and abs(finding.numeric) <= finding.error_bar:
            # constant here, as the spread of one number is: 0 / 0
            issue = issue._replace(severity="warning", advice=_EDGE)
        yield issue, finding


def _said(finding: GradFinding) -> str:
    """A finding of gradcheck as a sentence."""
    which = finding.argument or f"argument {finding.argnum}{finding.path}"
    order = "the gradient" if finding.order == 1 else f"the derivative of order {finding.order}"
    place = "" if finding.index is None else f" at {list(finding.index)}"
    return (
        f"{order} by {which}{place} is {finding.analytic:.9g}; differences give "
        f"{finding.numeric:.9g} +- {finding.error_bar:.1g}: {finding.diagnosis or 'it is wrong'}"
    )


def gradient_of_long_inputs(call: Call) -> Iterator[Issue]:
    """Along random directions the gradient agrees with two differences to 5 %.

    One wrong element in a thousand shows; steps are far smaller than the inputs are apart, so that
    sorting and choosing have derivatives.
    """
    slope, rng = Slope(call), np.random.default_rng(0)
    for _ in range(_DIRECTIONS):
        along, numeric, bar = _along(slope, rng)
        if abs(along - numeric) > bar:
            yield Issue(
                "long inputs",
                f"{call}: along a random direction the gradient is {along:.9g}; differences give "
                f"{numeric:.9g}",
                "look for what depends on the number of elements: blocks, remainders, narrow "
                "indices",
            )
            return


def _along(slope: Slope, rng: np.random.Generator) -> tuple[float, float, float]:
    """The derivative along a direction, the one by differences, and the allowed difference: inf if
    differences of two steps disagree."""
    u = tuple(rng.choice([-1.0, 1.0], x.shape) for x in slope.xs)
    douts = slope.cotangents(rng)
    pulled = [g.asnumpy() for g in slope.pulled(*map(Tensor, (*slope.xs, *douts)))]
    along = sum(float(np.vdot(g, d)) for g, d in zip(pulled, u))
    one, two = (_difference(slope, u, douts, step) for step in _STEPS)
    bar = 0.05 * float(np.sqrt(sum(float(np.vdot(g, g)) for g in pulled) + one * one))
    size = sum(float(np.sum(np.abs(o.asnumpy()))) for o in slope.outputs(*slope.xs))
    bar += _SATURATED * unit_roundoff(float64) * size / _STEPS[0]
    return along, one, bar if abs(one - two) < bar / 8 else np.inf


def _difference(slope: Slope, u: Arrays, douts: Arrays, step: float) -> float:
    """The central difference of <douts, outputs> along u."""
    ahead, behind = (
        [o.asnumpy() for o in slope.outputs(*(x + h * d for x, d in zip(slope.xs, u)))]
        for h in (step, -step)
    )
    with np.errstate(all="ignore"):
        change = sum(float(np.vdot(d, a - b)) for d, a, b in zip(douts, ahead, behind))
    return change / (2 * step)
