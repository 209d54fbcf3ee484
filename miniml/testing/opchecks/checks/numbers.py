"""Faults that a kernel's numbers show on their own: lost digits, overflow on the way, isolated
values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from ....backends.kernel import KernelEntry
from ....dtype import float64, is_float
from ...calls import Array, Call
from ...gradchecks.derivative import Line
from ...gradchecks.isolated import lonely
from ...tolerance import limits_of, unit_roundoff
from ..session import Issue
from .accuracy import largest_of, moved_by_rounding
from .gradients import has_bprop
from .launches import launch, launched

_STEP = 2.0**-22  # four units of float32: rounding to float32 shows as noise
_POINTS, _DIFFERENCE = 13, (1.0, -4.0, 6.0, -4.0, 1.0)
_NOISE = 1e-10  # of the largest output: a million roundings of float64
_CONDITION = 64.0
_TOP = 0.9
_MODEST = 0.2  # of the exponents of a dtype, as _TOP
_POINTS_OF_INTEREST = (0.0, 1.0, -1.0, 2.0, 3.0, -2.0, 10.0, 0.5)
_STEPS = 2.0**-12, 2.0**-18, 2.0**-24
_LEAST = 1e-6  # of the values: a smaller gap may be rounding
_SINGLY = 2  # of the values, in a single element


def own_numbers(call: Call) -> bool:
    """True for calls in float64 that no reference covers."""
    floats = {d for d in call.dtypes if is_float(d)}
    return floats == {float64} and not call.referenced and launched(call)


def precision(call: Call) -> Iterator[Issue]:
    """A float64 kernel computes in float64: beside a point its outputs follow a smooth curve."""
    for entry in call.entries():
        outs = launch(entry, call)
        moved = moved_by_rounding(partial(launch, entry, call), call.arrays, outs)
        for i, (noise, out) in enumerate(zip(_noise(entry, call), outs)):
            if out.dtype != float64 or not np.isfinite(out).all() or not out.size:
                continue
            size = float(np.max(np.abs(out)))
            bar = np.fmax(_NOISE * size, _CONDITION * moved[i])
            if (noise > bar).any():
                digits = float(np.max(np.where(noise > bar, noise, 0.0))) / size
                yield Issue(
                    f"output {i}",
                    f"{call}: output {i} of the kernel {entry.describe()} has noise of "
                    f"{digits:.1g} of its value, where float64 has 1e-16: it is computed in a "
                    "narrower dtype, or terms cancel in it",
                    "compute in float64 throughout (look for dtype= and astype), and rewrite what "
                    "cancels",
                )


def _noise(entry: KernelEntry, call: Call) -> Iterator[Array]:
    """For each output the rounding error that fourth differences at close points show.

    For a smooth function they are of the order of _STEP^4. At least half of them must show it, so
    that a single jump does not.
    """
    signs = np.random.default_rng(0)
    along = [_STEP * signs.choice([-1.0, 1.0], a.shape) for a in call.arrays]
    runs = [
        launch(entry, call, tuple(_scaled(a, 1 + k * s) for a, s in zip(call.arrays, along)))
        for k in range(_POINTS)
    ]
    for rows in zip(*runs):
        with np.errstate(all="ignore"):
            windows = [
                np.abs(sum(c * rows[k + j].astype(float64) for j, c in enumerate(_DIFFERENCE)))
                for k in range(_POINTS - len(_DIFFERENCE) + 1)
            ]
            yield np.nan_to_num(np.median(windows, axis=0) / np.sqrt(70.0), nan=0.0, posinf=0.0)


def _scaled(a: Array, by: Array) -> Array:
    return np.asarray(a * by) if is_float(a.dtype) else a.copy()


def overflow(call: Call) -> Iterator[Issue]:
    """Where finite inputs grow until an output is not finite, the last finite ones were large."""
    for entry in call.entries():
        for other in (call, call.of_floats(np.abs)):
            found = _last_finite(entry, other)
            if found is not None:
                yield from _modest(entry, *found)
                break


def _last_finite(entry: KernelEntry, call: Call) -> tuple[Call, Call] | None:
    """The call with inputs as large as outputs are finite for, and with ones twice as large.

    None if they are finite for all inputs, or not for inputs of about 8. The top of the range is
    left out: there sin(3 x) overflows, which is no fault.
    """
    limits = [limits_of(a.dtype) for a in call.arrays if is_float(a.dtype)]
    low, high = 3, int(_TOP * np.log2(min(float(limit.max) for limit in limits)))
    if not _finite(entry, _grown(call, low)) or _finite(entry, _grown(call, high)):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        if _finite(entry, _grown(call, middle)):
            low = middle
        else:
            high = middle
    return _grown(call, low), _grown(call, high)


def _grown(call: Call, exponent: int) -> Call:
    """The call with its largest numbers just below 2**exponent."""
    largest = max(largest_of(a) for a in call.arrays if is_float(a.dtype)) or 1.0
    return call.of_floats(lambda a: np.ldexp(a.astype(float64) / largest, exponent))


def _finite(entry: KernelEntry, call: Call) -> bool:
    outs = (o for o in launch(entry, call) if is_float(o.dtype))
    return all(np.isfinite(o.astype(float64)).all() for o in outs)


def _modest(entry: KernelEntry, last: Call, beyond: Call) -> Iterator[Issue]:
    """Outputs of ordinary size that are not finite for inputs twice as large.

    x^n and exp(x) come near the largest number before: half the inputs still give it to the power
    of 1/2 or more, exp(x^2) to that of 1/4.
    """
    largest = max(largest_of(a) for a in beyond.arrays if is_float(a.dtype))
    for i, (out, then) in enumerate(zip(launch(entry, last), launch(entry, beyond))):
        if not is_float(out.dtype):
            continue
        if largest_of(out) > float(limits_of(out.dtype).max) ** _MODEST:
            continue
        bad = np.argwhere(~np.isfinite(then.astype(float64)))
        if len(bad):
            index = tuple(int(n) for n in bad[0])
            yield Issue(
                f"output {i}",
                f"{beyond}: output {i} of the kernel {entry.describe()} is {then[index]!s} at "
                f"{list(index)} for inputs up to {largest!s}; for inputs of "
                f"half the size it is {out[index]!s}",
                "rewrite the formula so that nothing overflows on the way (subtract the largest "
                "number before exp, divide before squaring)",
                "warning",
                beyond,
            )


@dataclass(frozen=True, slots=True)
class Isolated:
    """An output that is off its limit. flat: it is constant beside the point, as a count is."""

    index: tuple[int, ...]
    value: float
    limit: float
    flat: bool


def isolated(at: Callable[[float], Array]) -> Isolated | None:
    """The first element of at(0) that differs from the limit on which both sides agree.

    at(h): the outputs of a function at a distance h from a point. The steps are so far apart that
    a root, a kink or 1 / log|h| move on the way, and are not mistaken for it. A value that is not
    finite at the point counts as off by 1 plus the size of the limit.
    """
    here = np.asarray(at(0.0).astype(float64))
    unit = np.array(unit_roundoff(float64))
    line = Line(lambda h: np.ravel(at(h)).astype(float64), np.ravel(here), unit)
    with np.errstate(all="ignore"):
        line.add(*_STEPS)
        limit = (line.above[-1] + line.below[-1]) / 2
        line.origin = np.where(np.isfinite(line.origin), line.origin, limit + 1 + np.abs(limit))
        size = np.fmax(np.abs(limit), np.abs(line.origin))
        off = lonely(line) & (np.abs(line.origin - limit) > _LEAST * size)
    if not off.any():
        return None
    k = int(np.flatnonzero(off)[0])
    index = tuple(int(n) for n in np.unravel_index(k, here.shape))
    flat = len({float(side[k]) for side in (*line.above, *line.below)}) == 1
    return Isolated(index, float(here[index]), float(limit[k]), flat)


def isolated_values(call: Call) -> Iterator[Issue]:
    """At 0, 1, -1 and other plain numbers a kernel gives the limit from both sides."""
    for entry in call.entries():
        for k, a in enumerate(call.arrays):
            if is_float(a.dtype) and a.size:
                yield from _isolated_in(entry, call, k)


def _isolated_in(entry: KernelEntry, call: Call, k: int) -> Iterator[Issue]:
    """The first isolated value that plain numbers in input k show: many at once, then one alone."""
    size, points = call.arrays[k].size, np.array(_POINTS_OF_INTEREST)
    count = min(size, len(points))
    alone = range(len(points) if size == 1 else _SINGLY)
    planted = [(np.arange(count), points[:count])]
    for members, values in planted + [(np.array([n % size]), points[n : n + 1]) for n in alone]:
        near = partial(_near, call, k, members, values)
        for i in range(len(call.inferred)):
            found = isolated(partial(_output, entry, near, i))
            if found is None:
                continue
            meant = found.flat or not has_bprop(call) or not np.isfinite(found.value)
            yield Issue(
                f"output {i}",
                f"{near(0.0)}: output {i} of the kernel {entry.describe()} is {found.value:.9g} at "
                f"{list(found.index)}; inputs next to these lead to {found.limit:.9g} from both "
                "sides",
                "let the value be the limit; should it be meant, give an OpInfo with a reference",
                "warning" if meant else "fault",
                near(0.0),
            )
            return


def _near(call: Call, k: int, members: Array, values: Array, h: float) -> Call:
    """The call with numbers at a distance h from these values as members of input k."""
    array = np.array(call.arrays[k], order="C")
    array.reshape(-1)[members] = values + h * np.maximum(np.abs(values), 1.0)
    return call.on((*call.arrays[:k], array, *call.arrays[k + 1 :]))


def _output(entry: KernelEntry, near: Callable[[float], Call], i: int, h: float) -> Array:
    return launch(entry, near(h))[i]
