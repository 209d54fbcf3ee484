"""Accuracy: every kernel against float64 and against the other kernels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ....backends.kernel import KernelEntry
from ....dtype import float64, is_float
from ...calls import Array, Arrays, Call, reference, wide
from ...tolerance import limits_of, mismatch, spread_of, unit_roundoff
from ..session import ENDS, Difference, Issue, Remark
from .accuracy import (
    at_an_end,
    degree,
    largest_ulp,
    moved_by_rounding,
    scale_of,
    ulps,
    where_too_large,
)
from .launches import launch, launched, wide_kernel

_NUDGES = 3
_CAP = 0.01  # of the result
_ADVICE = {
    "wrong": "correct the kernel for this dtype (or the reference, should that be wrong)",
    "inaccurate": "rewrite the formula so that terms do not cancel, or compute it in a wider dtype",
    ENDS: "where squares of these numbers leave the range of the dtype, scale before squaring, or "
    "compute in a wider dtype, should such numbers come",
}


class Expected:
    """The expected outputs of a call, in float64: from the OpInfo's reference, else from the
    primitive's own float64 kernel. `known` is False if there is neither."""

    def __init__(self, call: Call):
        self.call = call
        self.given = call.referenced
        self.entry = None if self.given else self._float64_kernel()
        self.known = self._answers() if self.given else self.entry is not None

    @property
    def source(self) -> str:
        """The source of the numbers, in words."""
        return "the reference" if self.given else "the kernel in float64"

    def _float64_kernel(self) -> KernelEntry | None:
        """None if there is none, or if it is the kernel to be checked."""
        arrays = tuple(map(wide, self.call.arrays))
        same = all(a.dtype == b.dtype for a, b in zip(arrays, self.call.arrays))
        return (
            None if same or self.call.primitive.dynamic_outputs else wide_kernel(self.call, arrays)
        )

    def _answers(self) -> bool:
        """False if the reference covers less than the rules accept."""
        if self.call.sample:
            return True
        try:
            self.exact()
        except Exception:
            return False
        return True

    def outputs(self, *inputs: object) -> Arrays:
        """The outputs for inputs in the order of the primitive's."""
        if self.given:
            return reference(self.call, inputs)
        assert self.entry is not None
        consts = {i for i, _ in self.call.primitive._const} if self.call.consts else set()
        arrays = tuple(np.asarray(a) for i, a in enumerate(inputs) if i not in consts)
        return tuple(wide(o) for o in launch(self.entry, self.call.on(arrays), arrays))

    def exact(self) -> Arrays:
        """The outputs for the call's own inputs."""
        return self.outputs(*self.wide_args())

    def wide_args(self) -> tuple[object, ...]:
        """The call's arguments with floats in float64."""
        return self.call.args(tuple(map(wide, self.call.arrays)))

    def by_itself(self, i: int) -> bool:
        """True where numbers of output i, the first, one in the middle and the last, come from
        those of the inputs at their own places alone: what is off is then the formula. False for
        one number, which does not tell."""
        right = self.exact()[i]
        places = {np.unravel_index(k, right.shape) for k in (0, right.size // 2, right.size - 1)}
        try:
            return right.size > 1 and all(
                np.isclose(self._alone(at, right.shape)[i], right[at], 1e-6, 0.0, True).all()
                for at in places
            )
        except Exception:  # inputs that do not broadcast, or none that the reference takes
            return False

    def _alone(self, at: tuple[Any, ...], shape: tuple[int, ...]) -> Arrays:
        """The outputs for what the inputs have at one place of an output."""
        one = tuple(slice(k, k + 1) for k in at)
        spanned = (np.broadcast_to(wide(a), shape)[one] for a in self.call.arrays)
        return self.outputs(*self.call.args(tuple(spanned)))


def kernels(call: Call) -> Iterator[Remark]:
    """Every kernel agrees with float64 up to rounding, and with the other kernels."""
    if not launched(call):
        return
    results = {entry.describe(): launch(entry, call) for entry in call.entries()}
    expected = Expected(call)
    if expected.known:
        for name, outs in results.items():
            yield from against(call, expected, name, outs)
    first = next(iter(results), None)
    for name in list(results)[1:]:
        assert first is not None
        yield from between(call, name, results[name], first, results[first])


def against(call: Call, expected: Expected, name: str, outs: Arrays) -> Iterator[Remark]:
    """Issues of a kernel's outputs against the expected ones."""
    exact = expected.exact()
    if len(outs) != len(exact):
        return
    numbers = [o.dtype for o in outs if is_float(o.dtype)]
    spreads: tuple[Array | float, ...] = (0.0,) * len(exact)
    if numbers and numbers[0] in (*call.dtypes, *(o.dtype for o in call.inferred)):
        rng = np.random.default_rng(0)
        spreads = spread_of(expected.outputs, expected.wide_args(), numbers[0], rng)
    for i, (out, right, moved) in enumerate(zip(outs, exact, spreads)):
        yield from _small(call, name, i, out, right)
        right = where_too_large(out, right)
        wrong = mismatch(out, right, call.terms, moved)
        if wrong is None:
            yield from compared(call, name, expected.source, out, right)
        if wrong is None or (not expected.given and _jumps(expected, i, out, moved)):
            continue
        how = degree(call, out, right)
        if how == "rounding" and expected.given and call.sample and expected.by_itself(i):
            how = "inaccurate"
        if how == "rounding" or _rounds(expected, i, out, right):
            continue
        if how == "wrong" and at_an_end(call):
            how = ENDS
        yield Issue(
            ENDS if how == ENDS else f"{how} {i}",
            f"{call}: output {i} of the kernel {name} {wrong} ({expected.source})"
            f"{ulps(out, right)}",
            _ADVICE[how],
            "fault" if how == "wrong" else "warning",
        )


def _rounds(expected: Expected, i: int, out: Array, right: Array) -> bool:
    """True where the exact result moves as far when inputs move by a rounding: near a pole, or
    where terms cancel almost completely. It is capped, since results also move far at steps."""
    call = expected.call
    if not is_float(out.dtype) or out.shape != right.shape:
        return False

    def exact(arrays: Arrays) -> Arrays:
        return expected.outputs(*call.args(tuple(map(wide, arrays))))

    moved = moved_by_rounding(exact, call.arrays, expected.exact())[i]
    return mismatch(out, right, call.terms, np.minimum(moved, _CAP * np.abs(right))) is None


def _small(call: Call, name: str, i: int, out: Array, right: Array) -> Iterator[Issue]:
    """Numbers next to zero are kept, and zeros have their sign."""
    if not is_float(out.dtype) or out.shape != right.shape:
        return
    size, zero, limits = np.abs(right), out == 0, limits_of(out.dtype)
    kept = 2 * float(limits.smallest_subnormal)
    flushed = zero & (size >= kept) & (size < float(limits.tiny))
    signless = zero & (right == 0) & (np.signbit(out) != np.signbit(right))
    for kind, what, lost in (
        (ENDS, "is 0 where numbers below the smallest normal one are right", flushed),
        (f"sign of zero {i}", "has zeros of the other sign", signless),
    ):
        if lost.any():
            index = tuple(int(n) for n in np.argwhere(lost)[0])
            yield Issue(
                kind,
                f"{call}: output {i} of the kernel {name} {what}: at {list(index)} it is "
                f"{out[index]!s}, should be {right[index]!s}",
                _ADVICE[ENDS] if kind == ENDS else "let -0.0 pass, should its sign matter",
                "warning",
            )


def between(call: Call, name: str, outs: Arrays, other: str, others: Arrays) -> Iterator[Remark]:
    """Issues of a kernel's outputs against those of another."""
    for i, (out, right) in enumerate(zip(outs, others)):
        unit = unit_roundoff(right.dtype) if is_float(right.dtype) else 0.0
        wrong = mismatch(out, right, call.terms, 4 * scale_of(call, right) * unit)
        expected = Expected(call) if wrong is not None else None
        if wrong is None:
            yield from compared(call, name, other, out, right)
        elif not (expected and expected.known and _rounds(expected, i, out, right.astype(float64))):
            far = at_an_end(call)
            yield Issue(
                ENDS if far else f"kernels differ {i}",
                f"{call}: output {i} of the kernel {name} {wrong} (the kernel {other})"
                f"{ulps(out, right)}",
                _ADVICE[ENDS] if far else "correct one of the two kernels",
                "warning" if far else "fault",
            )


def compared(call: Call, name: str, other: str, out: Array, right: Array) -> Iterator[Difference]:
    """How far two right results are apart, for numbers of ordinary size."""
    ulp, index = largest_ulp(out, right)
    if call.smooth and ulp:
        yield Difference(name, other, ulp, f"{call} at {index}")


def _jumps(expected: Expected, i: int, out: Array, moved: Array | float) -> bool:
    """True where the exact result itself jumps when inputs move by a rounding: at a step."""
    rng, call = np.random.default_rng(1), expected.call
    u = max((unit_roundoff(a.dtype) for a in call.arrays if is_float(a.dtype)), default=0.0)
    exact = call.on(tuple(map(wide, call.arrays)))
    for _ in range(_NUDGES):
        near = exact.of_floats(lambda a: a * (1 + 4 * u * rng.choice([-1.0, 1.0], a.shape)))
        if mismatch(out, expected.outputs(*near.args())[i], call.terms, moved) is None:
            return True
    return False
