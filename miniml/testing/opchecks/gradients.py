"""Checks of gradients: the form of a bprop, its side effects, and its values.

In order: the bprop returns gradients of the right form and changes nothing; gradients equal
differences, at ordinary numbers, at ties and zeros, with other attributes and on long inputs; a
call as a function of its float inputs, with its vector-Jacobian product.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np

from ...core.abstract import Abstract, DType, float64, is_float, typed
from ...core.bprop import bprop_getters
from ...core.errors import BpropNotFoundError, MinimlError, OutOfRangeError
from ...core.tensor import Tensor
from ...grad.transforms import vjp
from ..calls import Array, Arrays, Call, as_tuple, go_on
from ..gradchecks.run import gradcheck
from ..report import GradFinding
from ..tolerance import largest_of, limits_of, of_one_size, unit_roundoff
from .draws import LONG_AND_ODD, first_part, light
from .rules import variations
from .session import Issue, first_line, gradchecked
from .values import LONGEST


def graded(call: Call) -> bool:
    """True for calls with float inputs and outputs, through which gradients should pass."""
    primitive = call.primitive
    if not primitive.differentiable or primitive.dynamic_outputs or primitive.effect == "state":
        return False
    return any(map(is_float, call.dtypes)) and any(is_float(o.dtype) for o in call.inferred)


def has_bprop(call: Call) -> bool:
    """True for calls with a gradient to check."""
    return graded(call) and bprop_getters.find(type(call.primitive)) is not None


def shown_by_differences(call: Call) -> bool:
    """True for calls with a gradient that is the derivative of their numbers."""
    return has_bprop(call) and not call.primitive.implicit


def in_float64(call: Call) -> bool:
    """True for calls whose gradient can be checked against differences."""
    return shown_by_differences(call) and Slope(call).dtypes() == {float64}


def narrow(call: Call) -> bool:
    """True for calls whose gradient is computed in a dtype narrower than float64."""
    return shown_by_differences(call) and float64 not in Slope(call).dtypes()


def bprop(call: Call) -> Iterator[Issue]:
    """The bprop gives a tuple with one gradient per input, of the input's shape and dtype."""
    primitive = call.primitive
    if not has_bprop(call):
        yield Issue(
            "missing",
            f"{primitive.name} has no bprop, so no gradient passes through it",
            f"register one with @bprop_getters.register({primitive.name!r}), or set "
            "differentiable = False in the class",
        )
        return
    try:
        gradients, _ = ran(call)
    except (BpropNotFoundError, OutOfRangeError):
        return  # a bprop that refuses on purpose, or refuses these numbers
    except np.linalg.LinAlgError:
        raise  # these numbers are outside the domain
    except Exception as error:
        yield Issue(
            "raises",
            f"{call}: its bprop raises {first_line(error)}",
            "let the bprop take (*inputs, out, dout) and be made of ops",
        )
        return
    yield from _returned(call, gradients)


def _returned(call: Call, gradients: Any) -> Iterator[Issue]:
    count = len(call.args())
    if not isinstance(gradients, tuple) or len(gradients) != count:
        got = str(len(gradients)) if isinstance(gradients, (tuple, list)) else "one"
        yield Issue(
            "count",
            f"{call}: its bprop returns a {type(gradients).__name__} of {got}; "
            f"{call.primitive.name} has {count} inputs",
            "return a tuple with one gradient per input, None where there is none, as (dx,)",
        )
        return
    consts = {i for i, _ in call.primitive._const} if call.consts else set()
    passed = [g for i, g in enumerate(gradients) if i not in consts]
    largest = call.inferred[0].shape
    for i, (gradient, x) in enumerate(zip(passed, call.arrays)):
        if gradient is None:
            continue
        if not is_float(x.dtype):
            if isinstance(gradient, Tensor) and gradient.asnumpy().any():
                yield Issue(
                    f"whole numbers {i}",
                    f"{call}: its bprop returns a gradient, {typed(gradient)}, for input {i}, "
                    f"{Abstract(x.shape, x.dtype)}: there is no derivative by whole numbers",
                    "return None for that input",
                    "warning",
                )
            continue
        if not isinstance(gradient, Tensor):
            got = type(gradient).__name__
        elif gradient.dtype == x.dtype and gradient.shape in (x.shape, largest):
            continue
        else:
            got = typed(gradient)
        yield Issue(
            f"gradient {i}",
            f"{call}: its bprop returns {got} for input {i}, which is {Abstract(x.shape, x.dtype)}",
            "return a gradient of the input's shape and dtype; for an input that was broadcast, "
            "the output's shape will do",
        )


def unchanged(call: Call) -> Iterator[Issue]:
    """Inputs, outputs and cotangents keep their bits while the bprop runs."""
    try:
        _, changed = ran(call)
    except MinimlError:
        return  # the bprop check reports it
    for name in changed:
        yield Issue(
            "changed",
            f"{call}: the bprop changes {name}",
            "make the bprop of ops only; do not write into the memory of tensors",
        )


def ran(call: Call) -> tuple[Any, dict[str, Tensor]]:
    """The results of the bprop, and those of its arguments that it changes, by role."""
    rng = np.random.default_rng(0)
    inputs = tuple(map(Tensor, call.arrays))
    outs = tuple(map(Tensor, call.run(inputs)))
    douts = [Tensor(weights(rng, o.shape, o.dtype)) if is_float(o.dtype) else None for o in outs]
    unwrap = call.primitive.unwrap
    args = *call.args(inputs), unwrap(outs), unwrap(tuple(douts))
    given = {f"input {i}": t for i, t in enumerate(inputs)}
    given |= {f"output {i}": t for i, t in enumerate(outs)}
    given |= {f"cotangent {i}": t for i, t in enumerate(douts) if t is not None}
    before = {name: t.asnumpy().tobytes() for name, t in given.items()}
    gradients = bprop_getters.get(call.primitive)(*args)
    return gradients, {n: t for n, t in given.items() if t.asnumpy().tobytes() != before[n]}


# --- Gradients against differences ----------------------------------------------------------------


_SATURATED = 64  # roundings
_SLOWEST = 0.05  # seconds for the first part of the longest inputs
_DIRECTIONS = 3  # in which the gradient of the longest inputs is checked
_EDGE = (
    "should such numbers come, give the derivative there, or a slope between those of both sides, "
    "by ops.where on the inputs"
)
_UNLIKELY = "correct the bprop for that attribute, or refuse the attribute in infer_shape"
_OVERFLOWS = "rewrite the bprop so that nothing overflows on the way"
_LONG = "look for what depends on the number of elements: blocks, remainders, narrow indices"
_STEPS = (1e-7, 2e-7)
_ALLOWED = (0.002, 0.05)  # of a gradient's norm, at least and at most
_SMALLER = 32  # times smaller than large numbers: ordinary ones


def gradient(call: Call) -> Iterator[Issue]:
    """Gradients agree with differences, for orders 1 and 2 in float64 and order 1 in narrower
    dtypes."""
    return _compared(call, 2 if Slope(call).dtypes() == {float64} else 1)


def stretched(call: Call) -> bool:
    """True for calls where an axis of extent 1 of one input meets a longer one of another."""
    shapes = [a.shape for a in call.arrays if a.ndim]
    return any(
        1 in pair and max(pair) > 1
        for one, two in combinations(shapes, 2)
        for pair in zip(reversed(one), reversed(two))
    )


def gradient_of_broadcast_inputs(call: Call) -> Iterator[Issue]:
    """The gradient by a broadcast input is the sum over the axes along which it is broadcast."""
    return _compared(call, 1)


def gradient_at_other_numbers(call: Call) -> Iterator[Issue]:
    """At ties, zeros and large numbers the gradient is the derivative, or a subgradient.

    A gradient that is not finite at ties or zeros is a warning: textbook formulas divide by 0
    there. Gradients at nearly too large numbers may be infinite. Where functions are saturated,
    only the rounding of terms as large as 1 and the outputs is left: smaller differences do not
    count, but where one element alone shows them: what is large may be another's.
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
        elif finding.index and (alone := _element(call, finding.index)):
            yield from gradient_at_other_numbers(alone)


def _element(call: Call, index: tuple[int, ...]) -> Call | None:
    """The call of one element of each input; None if the outputs there are not the same ones."""
    cut = tuple(slice(i, i + 1) for i in index)
    outs = call.run()
    shapes = {a.shape for a in (*call.arrays, *outs)}
    if len(shapes) > 1 or call.arrays[0].size == 1:
        return None
    alone = replace(call, arrays=tuple(a[cut] for a in call.arrays))
    try:
        same = [np.array_equal(o, out[cut]) for o, out in zip(alone.run(), outs)]
    except MinimlError:
        return None
    return alone if all(same) else None


def _finite_when_small(call: Call) -> bool:
    """True if the gradient is finite for smaller numbers: their size is then the cause."""
    slope = Slope(call.of_floats(lambda a: a / _SMALLER))
    pulled = slope.pulled(*map(Tensor, (*slope.xs, *slope.some_cotangents())))
    return all(np.isfinite(g.asnumpy().astype(float64)).all() for g in pulled)


def gradient_with_other_attributes(call: Call) -> Iterator[Issue]:
    """The gradient is the derivative for other values of each attribute, too.

    A value of the other sign, or a smaller whole number, is a warning: the rules accept it, but it
    may be none that was meant.
    """
    for twin, likely in variations(call.primitive):
        other = Call(twin, call.arrays, call.consts)
        if _runs(other) and in_float64(other):
            for issue in _compared(other, 1):
                if likely:
                    yield issue
                else:
                    yield issue._replace(
                        kind=f"{issue.kind}, unlikely", severity="warning", advice=_UNLIKELY
                    )


def _runs(call: Call) -> bool:
    """True if rules and kernels accept the attributes."""
    try:
        call.run()
    except Exception:
        return False
    return True


def long(call: Call) -> bool:
    """True for calls of the longest inputs, and of long odd ones."""
    odd = call.kind == "ordinary" and any(LONG_AND_ODD in a.shape for a in call.arrays)
    return odd or (call.kind == LONGEST and _few_at_once(call))


def _few_at_once(call: Call) -> bool:
    """True if the pull-back of the first part of the call allocates no table of all pairs, for
    which there may be no memory."""
    slope = Slope(first_part(call))
    try:
        given = (*slope.xs, *slope.some_cotangents())
        tensors = tuple(map(Tensor, given))
        return light(lambda: tuple(g.asnumpy() for g in slope.pulled(*tensors)), given, _SLOWEST)
    except Exception:  # shorter calls show that
        return False


def gradient_of_long_inputs(call: Call) -> Iterator[Issue]:
    """The gradient of inputs of an odd length is the derivative; that of the longest agrees with
    two differences along random directions, to 0.2 % where these agree, else to 5 %.

    One wrong element in ten thousand shows there, or in a thousand; steps are far smaller than the
    distances between inputs, so that sorting and choosing have derivatives.
    """
    if call.kind != LONGEST:
        yield from (issue._replace(advice=_LONG) for issue in _compared(call, 1))
        return
    slope, rng = Slope(call), np.random.default_rng(0)
    for _ in range(_DIRECTIONS):
        along, numeric, bar = _along(slope, rng)
        if abs(along - numeric) > bar:
            named = next(_compared(call, 1), None)
            text = (
                f"{call}: along a random direction the gradient is {along:.9g}; differences give "
                f"{numeric:.9g}"
            )
            yield Issue("long inputs", named.message if named else text, _LONG)
            return


def _along(slope: Slope, rng: np.random.Generator) -> tuple[float, float, float]:
    """The derivative along a direction, the same by differences, and the allowed error: inf if
    differences of two steps disagree."""
    u = tuple(rng.choice([-1.0, 1.0], x.shape) for x in slope.xs)
    douts = slope.cotangents(rng)
    pulled = [g.asnumpy() for g in slope.pulled(*map(Tensor, (*slope.xs, *douts)))]
    along = sum(float(np.vdot(g, d)) for g, d in zip(pulled, u))
    one, two = (_difference(slope, u, douts, step) for step in _STEPS)
    norm = float(np.sqrt(sum(float(np.vdot(g, g)) for g in pulled) + one * one))
    size = sum(float(np.sum(np.abs(o.asnumpy()))) for o in slope.outputs(*slope.xs))
    noise = _SATURATED * unit_roundoff(float64) * size / _STEPS[0]
    least, most = (share * norm + noise for share in _ALLOWED)
    apart = abs(one - two)
    return along, one, min(max(least, 64 * apart), most) if apart < most / 8 else np.inf


def _difference(slope: Slope, u: Arrays, douts: Arrays, step: float) -> float:
    """The central difference of <douts, outputs> along u."""
    ahead, behind = (
        [o.asnumpy() for o in slope.outputs(*(x + h * d for x, d in zip(slope.xs, u)))]
        for h in (step, -step)
    )
    with np.errstate(all="ignore"):
        change = sum(float(np.vdot(d, a - b)) for d, a, b in zip(douts, ahead, behind))
    return change / (2 * step)


def _compared(call: Call, order: int) -> Iterator[Issue]:
    """The issues that gradcheck finds."""
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
            f"{call}: {_sentence(finding)}",
            f"correct the bprop; {gradchecked(call)} says more",
            named=bool(finding.diagnosis),
        )
        if not finite and abs(finding.numeric) <= finding.error_bar:
            # 0 / 0 where the function is constant, as the spread of one number is
            issue = issue._replace(severity="warning", advice=_EDGE)
        yield issue, finding


def _sentence(finding: GradFinding) -> str:
    """A finding of gradcheck as a sentence."""
    which = finding.argument or f"argument {finding.argnum}{finding.path}"
    order = "the gradient" if finding.order == 1 else f"the derivative of order {finding.order}"
    where = "" if finding.index is None else f" at {list(finding.index)}"
    undiagnosed = "it is wrong" if np.isfinite(finding.analytic) else "not finite"
    return (
        f"{order} by {which}{where} is {finding.analytic:.9g}; differences give "
        f"{finding.numeric:.9g} +- {finding.error_bar:.1g}: {finding.diagnosis or undiagnosed}"
    )


# --- Vector-Jacobian products ---------------------------------------------------------------------


class Slope:
    """The float outputs of a call as a function of its float inputs.

    Integer inputs and const inputs are held fixed; integer outputs are left out.
    """

    def __init__(self, call: Call):
        self.call = call
        self.positions = [i for i, a in enumerate(call.arrays) if is_float(a.dtype)]
        self.xs: Arrays = tuple(call.arrays[i] for i in self.positions)

    def dtypes(self) -> set[DType]:
        """The dtypes of float inputs and outputs; several if attributes fix a dtype, as in Cast."""
        found = [x.dtype for x in self.xs] + [a.dtype for a in self.call.inferred]
        return {d for d in found if is_float(d)}

    def outputs(self, *xs: Any) -> tuple[Any, ...]:
        """The float outputs, as Tensors."""
        arrays: list[Any] = list(self.call.arrays)
        for i, x in zip(self.positions, xs):
            arrays[i] = x
        outs = as_tuple(self.call.primitive(*self.call.args(tuple(arrays))))
        return tuple(o for o in outs if is_float(o.dtype))

    def elsewhere(self, factor: float) -> None:
        """Call the function at other numbers, which it may refuse."""
        with suppress(Exception), np.errstate(all="ignore"):
            self.outputs(*(Tensor(np.asarray(x * x.dtype.type(factor))) for x in self.xs))

    def pulled(self, *xs_and_douts: Any) -> tuple[Any, ...]:
        """The gradients at xs for the cotangents that follow them; TimeIsUpError when the time of
        the check is up."""
        go_on()
        n = len(self.xs)
        _, pull = vjp(self.outputs, *xs_and_douts[:n])
        return pull(tuple(xs_and_douts[n:]))  # type: ignore[no-any-return]

    def some_cotangents(self) -> Arrays:
        """Cotangents, which are equal in each call."""
        return self.cotangents(np.random.default_rng(0))

    def cotangents(self, rng: np.random.Generator) -> Arrays:
        """One array per float output, of its dtype."""
        return tuple(weights(rng, o.shape, o.dtype) for o in self.outputs(*self.xs))


def weights(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> Array:
    """Numbers of either sign and of one size, of a dtype."""
    return of_one_size(rng, shape).astype(dtype)
