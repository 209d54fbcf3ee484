"""Checks of a kernel's numbers without a reference: lost digits, overflow, isolated values, NaN.

In order: noise above that of float64, overflow of intermediate results, and values that differ from
the limit on both sides; NaN and infinities, which must reach the outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from ...backends.kernel import KernelEntry
from ...core.abstract import float64, is_float
from ..calls import Array, Arrays, Call, launch, launched
from ..gradchecks.derivative import Line
from ..gradchecks.probe import removable_jump
from ..tolerance import (
    at_an_end,
    largest_of,
    limits_of,
    moved_by_rounding,
    roughness,
    unit_roundoff,
)
from .gradients import has_bprop
from .kernels import Expected, memory
from .session import Issue

_NOISE = 1e-10  # of the largest output: a million roundings of float64
_CONDITION = 64.0  # times the change of outputs when inputs are rounded
_SHARE = 2.0**-10  # of the elements: of many, few may lie beside a pole
_TOP = 0.9  # of the exponents of a dtype
_MODEST = 0.2  # of the exponents of a dtype
_POINTS_OF_INTEREST = (0.0, 1.0, -1.0, 2.0, 3.0, -2.0, 10.0, 0.5)
_STEPS = 2.0**-12, 2.0**-18, 2.0**-24
_LEAST = 1e-6  # of the values: a smaller gap may be rounding
_SINGLY = 2  # points of interest that are put into a single element


def own_numbers(call: Call) -> bool:
    """True for calls in float64 that no reference covers."""
    floats = {d for d in call.dtypes if is_float(d)}
    return floats == {float64} and not call.referenced and launched(call)


def precision(call: Call) -> Iterator[Issue]:
    """A float64 kernel computes in float64: beside a point its outputs follow a smooth curve."""
    for entry in call.entries:
        outs = launch(entry, call)
        run = partial(launch, entry, call)
        moved = moved_by_rounding(run, call.arrays, outs)
        for i, (rough, out) in enumerate(zip(roughness(run, call.arrays), outs)):
            noise = np.median(rough, axis=0)
            if out.dtype != float64 or not np.isfinite(out).all() or not out.size:
                continue
            size = float(np.max(np.abs(out)))
            bar = np.fmax(_NOISE * size, _CONDITION * moved[i])
            if np.mean(noise > bar) > _SHARE:
                digits = float(np.max(np.where(noise > bar, noise, 0.0))) / size
                yield Issue(
                    f"output {i}",
                    f"{call}: output {i} of the kernel {entry.describe()} has noise of "
                    f"{digits:.1g} of its value, where float64 has 1e-16: it is computed in a "
                    "narrower dtype, or terms cancel in it",
                    "compute in float64 throughout (look for dtype= and astype), and rewrite what "
                    "cancels",
                )


def overflow(call: Call) -> Iterator[Issue]:
    """If finite inputs grow until an output is not finite, the last finite outputs are large."""
    for entry in call.entries:
        for other in (call, call.of_floats(np.abs)):
            found = _last_finite(entry, other)
            if found is not None:
                yield from _modest(entry, *found)
                break


def _last_finite(entry: KernelEntry, call: Call) -> tuple[Call, Call] | None:
    """The call with the largest inputs for which outputs are finite, and with ones twice as large.

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


def isolated_values(call: Call) -> Iterator[Issue]:
    """At 0, 1, -1 and other plain numbers a kernel gives the limit from both sides."""
    for entry in call.entries:
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


def isolated(at: Callable[[float], Array]) -> Isolated | None:
    """The first element of at(0) that differs from the limit on which both sides agree.

    at(h): the outputs of a function at a distance h from a point. The steps are so far apart that
    a root, a kink or 1 / log|h| changes between them, and is not mistaken for it. A value that is
    not finite at the point counts as off by 1 plus the size of the limit.
    """
    here = np.asarray(at(0.0).astype(float64))
    unit = np.array(unit_roundoff(float64))
    line = Line(lambda h: np.ravel(at(h)).astype(float64), np.ravel(here), unit)
    with np.errstate(all="ignore"):
        line.add(*_STEPS)
        limit = (line.above[-1] + line.below[-1]) / 2
        line.origin = np.where(np.isfinite(line.origin), line.origin, limit + 1 + np.abs(limit))
        size = np.fmax(np.abs(limit), np.abs(line.origin))
        off = removable_jump(line) & (np.abs(line.origin - limit) > _LEAST * size)
    if not off.any():
        return None
    k = int(np.flatnonzero(off)[0])
    index = tuple(int(n) for n in np.unravel_index(k, here.shape))
    flat = len({float(side[k]) for side in (*line.above, *line.below)}) == 1
    return Isolated(index, float(here[index]), float(limit[k]), flat)


@dataclass(frozen=True, slots=True)
class Isolated:
    """An output that is off its limit. flat: it is constant beside the point, as a count is."""

    index: tuple[int, ...]
    value: float
    limit: float
    flat: bool


# --- NaN and infinity -----------------------------------------------------------------------------


_SPECIAL = {"NaN": np.nan, "inf": np.inf, "-inf": -np.inf}
_NUMBERS = (-3.75, -0.5, 0.625, 1.5, 40.0)  # that replace a NaN

_ADVICE = {
    "NaN": "let the NaN through",
    "infinity": "let the infinity through",
    "number": "write a formula that has the limit there, as 1 / (1 + exp(-x)) has for a sigmoid",
}
_GROWING = (1234.3, 3210.7, 12345.6)  # not whole: a sawtooth is 0 at all whole numbers
_ORDINARY = (1e-3, 0.5, 2.0, -1.0)


def special(call: Call) -> Iterator[Issue]:
    """NaN stays NaN, and infinities are not replaced by numbers; memory is used as for others."""
    handled = call.info is not None and call.info.nan == "handled"
    if not launched(call) or handled or at_an_end(call.arrays):
        return
    for other, *_ in specials(call, 1):
        yield from memory(other)
    for other, number, i in specials(call):
        what = f"{number} in input {i}"
        for entry in other.entries:
            yield from _lost(other, what, entry)
            if "inf" in number and not call.referenced:
                yield from _limit_lost(other, what, i, entry)


def specials(call: Call, most: int = 3) -> Iterator[tuple[Call, str, int]]:
    """The call with one special number, at the ends and in the middle of each input (or at fewer
    positions), its name, and the input; the call itself if it has such a number already."""
    floats = [i for i, a in enumerate(call.arrays) if is_float(a.dtype) and a.size]
    own = [i for i in floats if not np.isfinite(call.arrays[i].astype(float64)).all()]
    if own:
        i = own[0]
        numbers = call.arrays[i].astype(float64)
        yield call, "NaN" if np.isnan(numbers).any() else "inf", i
        return
    for i in floats:
        array = call.arrays[i]
        for index in sorted({0, array.size // 2, array.size - 1})[:most]:
            for name, value in _SPECIAL.items():
                changed = array.copy()
                changed.reshape(-1)[index] = value
                arrays = (*call.arrays[:i], changed, *call.arrays[i + 1 :])
                yield call.on(arrays), name, i


def _lost(call: Call, what: str, entry: KernelEntry) -> Iterator[Issue]:
    """The issue of the first output in which a NaN or an infinity is missing, or at an infinity a
    number that the reference of an elementwise formula has; without anything to compare with, the
    issue that no output has a NaN."""
    outs = {k: o.astype(float64) for k, o in enumerate(launch(entry, call)) if is_float(o.dtype)}
    name, expected = f"the kernel {entry.describe()}", Expected(call)
    limits = expected.given and "NaN" not in what  # what sums make of NaN has no one answer
    for k, got in outs.items() if expected.known else ():
        right = expected.exact()[k].astype(float64)
        if got.shape != right.shape:
            continue
        for kind, lost in (
            ("NaN", np.isnan(right) & ~np.isnan(got)),
            ("infinity", np.isinf(right) & (got != right) & ~np.isnan(got)),
            ("number", limits & np.isnan(got) & ~np.isnan(right)),
        ):
            if lost.any() and (kind != "number" or expected.by_itself(k)):
                index = tuple(int(n) for n in np.argwhere(lost)[0])
                yield Issue(
                    f"{kind} lost",
                    f"{call} with {what}: output {k} of {name} is {got[index]!s} at {list(index)}, "
                    f"where {expected.source} is {right[index]!s}",
                    f"{_ADVICE[kind]}, or say nan='handled' in an OpInfo",
                    "warning" if kind == "number" else "fault",
                    call,
                )
                return
    vanished = any(o.size for o in outs.values()) and not any(
        np.isnan(o).any() for o in outs.values()
    )
    if vanished and not expected.given and "NaN" in what and _matters(call, entry):
        yield Issue(
            "NaN vanishes",
            f"{call} with {what}: no output of {name} has a NaN",
            "let the NaN through (np.maximum and np.where on a finite test do; comparisons are "
            "false for NaN), or say nan='handled' in an OpInfo if it may vanish",
            "warning",
            call,
        )


def _matters(call: Call, entry: KernelEntry) -> bool:
    """True if the outputs depend on the elements that are NaN: elements that a kernel does not
    read, or that drop out of its formula, do not matter."""
    found = []
    for number in _NUMBERS:
        arrays = tuple(
            np.where(np.isnan(a.astype(float64)), number, a).astype(a.dtype)
            if is_float(a.dtype)
            else a
            for a in call.arrays
        )
        found.append(launch(entry, call, arrays))
    return any(
        not np.array_equal(before, after)
        for outs in found[1:]
        for before, after in zip(found[0], outs, strict=True)
    )


def _limit_lost(call: Call, what: str, i: int, entry: KernelEntry) -> Iterator[Issue]:
    """The issue of an elementwise formula that gives NaN at an infinity of input i, where ever
    larger numbers give one number, and ordinary ones others.

    Elements beside it, along each axis, tell such a formula from one of rows, as a softmax.
    Where all numbers give the same, the element meets a factor 0, and inf * 0 is NaN. In 16 bits
    all large numbers are whole.
    """
    if call.arrays[i].dtype.itemsize < 4:
        return
    far = np.isinf(call.arrays[i].astype(float64))
    at, here = np.argwhere(far)[0], launch(entry, call)
    if far.sum() != 1 or min(far.shape, default=1) < 2 or any(o.shape != far.shape for o in here):
        return
    index = tuple(int(n) for n in at)
    sign = np.sign(call.arrays[i][index])
    near = [launch(entry, call.on(_put(call.arrays, i, index, sign * n))) for n in _GROWING]
    for k, rows in enumerate(zip(here, *near)):
        got, *runs = (o.astype(float64) for o in rows)
        beside = all(np.array_equal(got[~far], run[~far], equal_nan=True) for run in runs)
        limit = float(runs[0][index])
        same = np.isfinite(limit) and all(run[index] == limit for run in runs)
        if same and beside and np.isnan(got[index]) and _varies(call, i, index, entry, k):
            yield Issue(
                "limit lost",
                f"{call} with {what}: output {k} of the kernel {entry.describe()} is nan at "
                f"{list(index)}; numbers from {sign * _GROWING[0]:g} on give {limit:g}",
                _ADVICE["number"],
                "warning",
                call,
            )
            return


def _varies(call: Call, i: int, index: tuple[int, ...], entry: KernelEntry, k: int) -> bool:
    """True if this element of output k is not the same for all ordinary numbers there."""
    runs = [launch(entry, call.on(_put(call.arrays, i, index, n))) for n in _ORDINARY]
    values = {float(outs[k][index]) for outs in runs}
    return len({value for value in values if np.isfinite(value)}) > 1


def _put(arrays: Arrays, i: int, index: tuple[int, ...], value: float) -> Arrays:
    changed = arrays[i].copy()
    changed[index] = value
    return (*arrays[:i], changed, *arrays[i + 1 :])
