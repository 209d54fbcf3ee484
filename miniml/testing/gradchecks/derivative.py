"""Derivatives to compare with: of one real number, with error bars; and tangents by forward mode.

y(t) is a vector, and every component has its own extrapolation, error and noise, so that a
component with a pole or a kink nearby does not blur the others. In order: central and one-sided
differences at several scales; their limits for steps that go to 0, by Neville's scheme, and their
noise; perturbed runs, in which each operation is off by a unit in the last place; tangents, and the
call at fault where they are not what its pull-back gives: one whose jvp rule, or whose fact, gives
another tangent than the transpose of its bprop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np

from ...core.abstract import is_float, is_inexact, real_dtype
from ...core.errors import MinimlError
from ...core.primitive import Primitive
from ...core.tensor import Tensor
from ...core.trace import current_trace
from ...grad.forward import joint, jvp_rules, push, transposed
from ...grad.reverse import linearize
from ...grad.transforms import jvp
from ...graph.record import Call
from ...graph.tracing import ForwardingTrace
from ..report import Arrays
from ..tolerance import Array, Perturbation, Tuned, of_one_size

# Rounding of y in an extrapolated quotient, in units of noise / h: the weights of Neville's scheme
# add up to 2 in powers of h^2, to 8 in powers of h; twice, and one and a half times, that.
ROUNDING, ONE_SIDED = 4.0, 12.0
COLUMNS = 6  # a truncation of h^14 (h^7 on one side): more columns only add up rounding
ENOUGH = 2 * COLUMNS  # steps worth an extrapolation of their own: the last column has six entries

FIRST = 0.1  # times the size of the numbers: no step reaches 0, and h^14 is below rounding
HALVINGS = 6  # steps that a smooth function needs; each further two come one by one
ROWS = 30  # steps at most, two calls each: 0.1 halved so often is 1e-10, below rounding


def climb(line: Line, first: float, done: Callable[[Slopes], bool]) -> Slopes:
    """Measure from step `first` down, halving it, until `done` or no smaller step can help.

    Some far smaller steps are measured at once: they show noise and structure that the larger
    ones miss. Where even those do not agree, the next steps are the smallest ones: either what
    looks like noise has a derivative there, or smaller steps will not help.
    """
    count = HALVINGS
    line.add(*_halved(first, 0, count))
    sixth = line.steps[-1]
    line.add(*(sixth / s for s in Tuned.SENTINELS))
    looked, deep = False, False
    while True:
        slopes = line.slopes()
        vague = vague_in(line, slopes)
        if not looked and 0 < vague.sum() <= (vague.size + 9) // 10:
            looked = True  # few of many: more likely chance than structure
            line.add(*(sixth / s for s in Tuned.MORE_SENTINELS))
        elif not deep and (vague & _unsettled(line)).any():
            deep = True
            line.add(*(first * t for t in Tuned.DEEP))
        elif (len(line.steps) >= ROWS or done(slopes)) and _all_at_zero(line, slopes, done):
            return slopes
        else:
            line.add(*_halved(first, count, count + 2))
            count += 2


def _halved(first: float, start: int, stop: int) -> Sequence[float]:
    """About first / 2**k, but not exact powers: roundings at one step would repeat at its half."""
    return [first / 2**k * (1 + 0.2 * (0.618034 * k % 1)) for k in range(start, stop)]


def vague_in(line: Line, slopes: Slopes) -> Array:
    """Components without a usable derivative that have a value at 0 and matter.

    Uncertainty does not matter below the rounding of their own values, a millionth of their change
    over all steps, and a millionth of the slope of most components.
    """
    error, value = slopes.central.error, np.abs(slopes.central.value)
    typical = float(np.median(value[np.isfinite(error)])) if np.isfinite(error).any() else 0.0
    with np.errstate(invalid="ignore"):
        small = np.fmax(Tuned.SMALL * line.grain, 1e-6 * np.fmax(slopes.reach, typical))
        usable = (error <= Tuned.SHARP * value) | (error <= small)
    return np.asarray(~usable & ~slopes.kink & np.isfinite(line.origin))


def _unsettled(line: Line) -> Array:
    """Components whose quotients still change at the smallest steps."""
    last = np.argsort(line.steps)[:3]
    quotients = np.array([(line.above[k] - line.below[k]) / line.steps[k] for k in last])
    with np.errstate(invalid="ignore"):
        among = quotients.max(axis=0) - quotients.min(axis=0)
        return np.asarray(among > 0.1 * np.abs(quotients).max(axis=0))


def _all_at_zero(line: Line, slopes: Slopes, done: Callable[[Slopes], bool]) -> bool:
    """Remove kinks that are only nearby, which far smaller steps do not see.

    True if nothing else remains to be measured.
    """
    kink = np.flatnonzero(slopes.kink)
    if not kink.size:
        return True
    jump = np.abs(slopes.right.value - slopes.left.value)[kink]
    rounding = 2 * line.grain[kink] + EPS * jump
    if not line.bends:
        for h in (line.steps[0] * t for t in Tuned.TINY):
            line.bends.append((h, np.abs(line.at(h) + line.at(-h) - 2 * line.origin)))
    for h, bends in line.bends:
        near = kink[(bends[kink] < 0.5 * jump * h) & (rounding < jump * h / 16)]
        slopes.bent[near] = False
        slopes.central.truncation[near] = np.inf
    return len(line.steps) >= ROWS or done(slopes)


def converged(origin: Array) -> Callable[[Slopes], bool]:
    """The test that smaller steps gain nothing: all is sharp, kinked, or blurred by rounding.

    Sharp is 1e-9 of the derivative, or 1e-12 of the whole change of y: no fault is that small.
    """
    size = np.abs(origin)

    def done(slopes: Slopes) -> bool:
        central = slopes.central
        with np.errstate(invalid="ignore"):
            sharp = (central.error <= 1e-9 * np.abs(central.value)) | (
                central.error <= 1e-12 * np.fmax(size, slopes.reach)
            )
            blurred = np.isfinite(central.rounding) & (central.rounding >= central.truncation)
        return bool(np.all(sharp | blurred | slopes.kink | ~np.isfinite(size)))

    return done


@dataclass(slots=True)
class Line:
    """Values of y(t) on both sides of 0, at the steps measured so far.

    at: y, a vector of m components; NaN where it has no value. origin: y(0). unit: the unit
    roundoff of each component. inside: the effect of roundings inside y, where known.
    bends: steps far smaller still, and |y(h) + y(-h) - 2 y(0)|.
    """

    at: Callable[[float], Array]
    origin: Array
    unit: Array
    inside: Array | float = 0.0
    steps: list[float] = field(default_factory=list)
    above: list[Array] = field(default_factory=list)
    below: list[Array] = field(default_factory=list)
    bends: list[tuple[float, Array]] = field(default_factory=list)

    @property
    def grain(self) -> Array:
        """The precision of y at 0: its own rounding, or that of the terms it is computed from.

        The latter also shows as stairs: y stays constant, then jumps by a large unit.
        """
        own = np.fmax(self.unit * np.abs(self.origin), self.inside)
        return np.asarray(np.fmax(own, _stairs(np.array(self.above + self.below) - self.origin)))

    def add(self, *steps: float) -> None:
        """Measure y at plus and minus each step."""
        for h in steps:
            self.steps.append(h)
            self.above.append(self.at(h))
            self.below.append(self.at(-h))

    def slopes(self) -> Slopes:
        """The derivatives at 0 that the values so far support.

        Numbers that never changed have derivative 0, to their rounding; inf has none.
        """
        order = np.argsort(self.steps)[::-1]
        h, above, below = (np.array(a)[order] for a in (self.steps, self.above, self.below))
        moved = ((above != self.origin) | (below != self.origin)).any(axis=0)
        columns = np.flatnonzero(moved | ~np.isfinite(self.origin))
        up, down, grain = above[:, columns], below[:, columns], self.grain
        with np.errstate(all="ignore"):
            found = _slopes(h, up, down, self.origin[columns], self.unit[columns], grain[columns])
        still = 2 * grain / h[0]
        whole = Slopes.at_rest(np.where(np.isfinite(still), still, 0.0))
        whole.put(columns, found)
        return whole


@dataclass(frozen=True, slots=True)
class Slopes:
    """The result of differences of y at 0: the derivative, both one-sided ones, and y's noise.

    bent: the difference between the two sides is there at the smallest steps, too. reach: the
    typical size of a difference quotient, over all steps and both sides.
    """

    central: Estimate
    right: Estimate
    left: Estimate
    noise: Array
    bent: Array
    reach: Array

    @property
    def kink(self) -> Array:
        """True where the one-sided derivatives differ: by far more than their errors, which are
        estimates, and by more than the millionth that large steps leave of a curve."""
        with np.errstate(invalid="ignore"):
            jump = np.abs(self.right.value - self.left.value)
            blur = self.right.error + self.left.error
            size = np.abs(self.right.value) + np.abs(self.left.value)
            return np.asarray((jump > 8 * blur) & (jump > 1e-6 * size) & self.bent)

    def put(self, columns: Array, part: Slopes) -> None:
        """Insert the slopes of some components."""
        for old, new in zip(self._arrays(), part._arrays(), strict=True):
            old[columns] = new

    def _arrays(self) -> tuple[Array, ...]:
        return *self.central, *self.right, *self.left, self.noise, self.bent, self.reach

    @staticmethod
    def at_rest(still: Array) -> Slopes:
        """The slopes of components that do not change: 0 +- still."""

        def zeros() -> Array:
            return np.zeros(still.size)

        def nothing() -> Estimate:
            return Estimate(zeros(), zeros(), still.copy(), zeros())

        return Slopes(nothing(), nothing(), nothing(), zeros(), zeros() > 0, zeros())


def _slopes(h: Array, up: Array, down: Array, y0: Array, unit: Array, rounds: Array) -> Slopes:
    """The derivatives at 0 of components with the values up at h, down at -h and y0 at 0.

    h falls. rounds: the precision of each y. The derivatives of a component whose largest steps
    jump over some structure come from the smaller steps alone, if there are enough of those.
    """
    rows = (up - down) / (2 * h[:, None])
    sizes = (np.abs(up - y0) + np.abs(down - y0)) / (2 * h[:, None])
    grain, floor = 2 * unit * sizes, 2 * rounds
    between = Scheme.of(h, rows, grain, 2)
    rough = between.limit(floor, ROUNDING)
    least = floor + np.where(np.isfinite(rough.value), EPS * np.abs(rough.value), 0.0)
    noise, structured = _noise_in(h, between, rough, least)
    central = between.limit(noise, ROUNDING)
    structured |= _finer(h, rows, central, least)
    central = central._replace(truncation=np.where(structured, np.inf, central.truncation))
    sides = np.hstack([up - y0, y0 - down]) / h[:, None]
    both = Scheme.of(h, sides, np.hstack([grain, grain]), 1).limit(np.tile(noise, 2), ONE_SIDED)
    right, left = map(Estimate._make, zip(*(np.split(a, 2) for a in both), strict=True))
    bent = _bent(h, (up + down - 2 * y0) / h[:, None], right.value - left.value, noise)
    found = Slopes(central, right, left, noise, bent, np.median(sizes, axis=0))
    smaller = h <= h[0] / 4
    again = np.flatnonzero(structured & ~found.kink)
    if smaller.sum() >= ENOUGH and again.size:
        y = up[smaller][:, again], down[smaller][:, again], y0[again]
        found.put(again, _slopes(h[smaller], *y, unit[again], rounds[again]))
    return found


def _bent(h: Array, bends: Array, jump: Array, noise: Array) -> Array:
    """True where the sides differ by half the jump at the smallest step that could show it."""
    clear = noise < np.abs(jump) * h[:, None] / 8
    last = len(h) - 1 - np.argmax(clear[::-1], axis=0)
    there = np.abs(bends[last, np.arange(last.size)]) > 0.5 * np.abs(jump)
    return np.asarray(there & clear.any(axis=0))


# --- Extrapolation and noise ----------------------------------------------------------------------


EPS = float(np.finfo(np.float64).eps)


class Estimate(NamedTuple):
    """A derivative per component: its value, the errors of extrapolation and of rounding.

    step: the smallest step used; 0 for a component that never changed.
    """

    value: Array
    truncation: Array
    rounding: Array
    step: Array

    @property
    def error(self) -> Array:
        """The half width of the interval that holds the derivative; inf where there is none."""
        return self.truncation + self.rounding


class Scheme(NamedTuple):
    """Neville's scheme for the limit of rows[k] for h[k] -> 0, if rows are a polynomial in h**power
    near 0.

    columns: the rows, then what is extrapolated from each two neighbours of the column before. The
    entries of all columns but the first stand one under the other: their values, the changes from
    their neighbours, the grain of the rows they are computed from, the smallest of those steps.
    Source: Ridders, "Accurate computation of F'(x) and F'(x)F''(x)" (1982).
    """

    columns: list[Array]
    value: Array
    change: Array
    grain: Array
    step: Array

    @staticmethod
    def of(h: Array, rows: Array, grain: Array, power: int) -> Scheme:
        """The scheme of difference quotients (steps, m), rounded by `grain`, at steps that fall.

        At least three rows have to agree, and the WITNESSES smallest steps give no entry of their
        own: they show the noise. The changes of others are infinite.
        """
        columns, changes, grains, steps = [rows], list[Array](), list[Array](), list[Array]()
        for c in range(1, min(COLUMNS, len(h) - 1) + 1):
            previous, current = columns[-1], _next_column(h, columns[-1], c, power)
            change = np.maximum(np.abs(current - previous[1:]), np.abs(current - previous[:-1]))
            change[1:] = np.maximum(change[1:], np.abs(current[1:] - current[:-1]))
            change[max(len(change) - Tuned.WITNESSES, 0) :] = np.inf
            if c == 1:
                change[0] = np.inf
            grain = np.maximum(grain[1:], grain[:-1])
            columns.append(current)
            changes.append(change)
            grains.append(grain)
            steps.append(h[c:, None])
        return Scheme(columns, *map(np.concatenate, (columns[1:], changes, grains, steps)))

    def limit(self, noise: Array, blur: float) -> Estimate:
        """For each component the entry with the least error: its change, TRUNCATION-fold, and blur
        times the larger of noise / h and its grain; NaN where no entry has a finite one."""
        truncation = Tuned.TRUNCATION * self.change
        rounding = blur * np.maximum(noise / self.step, self.grain)
        error = truncation + rounding
        error[np.isnan(error)] = np.inf
        k, every = np.argmin(error, axis=0), np.arange(error.shape[1])
        known = error[k, every] < np.inf
        entry = *(a[k, every] for a in (self.value, truncation, rounding)), self.step[k, 0]
        none = np.nan, np.inf, np.inf, np.inf
        return Estimate._make(np.where(known, a, b) for a, b in zip(entry, none, strict=True))


def _next_column(h: Array, previous: Array, c: int, power: int) -> Array:
    """Column c of Neville's scheme in h**power: each entry is extrapolated from two before it."""
    ratio = (h[:-c] / h[c:])[:, None] ** power - 1
    return np.asarray(previous[1:] + (previous[1:] - previous[:-1]) / ratio)


def _noise_in(h: Array, scheme: Scheme, rough: Estimate, least: Array) -> tuple[Array, Array]:
    """The noise of y, from the steps below the best one, where the derivative is known.

    There y is off by h |quotient - derivative|. Noise is as large at one step as at another;
    an error that fades or grows with h is not noise but structure that the best step is too large
    to show (second result: such an estimate is worthless). The factors leave room for chance: of a
    few draws of noise the largest is seldom 8 times, and never 24 times, another.
    """
    steps, seen = h[:, None], np.full(scheme.columns[0].shape, np.nan)
    for c, column in enumerate(scheme.columns):
        seen[c:] = np.fmin(seen[c:], steps[c:] * np.abs(column - rough.value))
    seen = np.where(np.isfinite(seen) & (steps < rough.step), seen, 0.0)
    largest = seen.max(axis=0, initial=0.0)
    lowest = np.where(steps <= 4 * h[-1], seen, 0.0).max(axis=0, initial=0.0)
    above = np.where((steps > 4 * h[-1]) & (seen > 0), seen, np.nan)
    above.sort(axis=0)  # NaN last
    count = np.isfinite(above).sum(axis=0)
    typical = above[np.maximum(count - 1, 0) // 2, np.arange(count.size)]
    growing = (count > 1) & (lowest > 24 * typical)
    fading = (lowest < largest / 8) & (lowest < typical / 2)
    structured = (fading | growing) & (largest > 32 * least)
    return np.maximum(least, 2 * largest), structured


def _finer(h: Array, rows: Array, found: Estimate, least: Array) -> Array:
    """True where the smallest steps agree with one another, but not with the estimate.

    Noise would make them disagree with one another as much.
    """
    last = rows[-max(3, int(np.sum(h <= 4.5 * h[-1]))) :]
    away = np.abs(last - found.value).min(axis=0)
    among = last.max(axis=0) - last.min(axis=0)
    seen = away > np.maximum(found.error, 8 * least / h[-1])
    return np.asarray((among < 0.3 * away) & seen)


def _stairs(changes: Array) -> Array:
    """The stair of each component whose small changes are all 0 or multiples of one number.

    They are so where y is a difference of rounded numbers far larger than itself, as in
    1 - tanh(x)**2 at 18; 0 for components that change in other ways. changes: (points, m).
    """
    found, still = np.zeros(changes.shape[1:]), (changes == 0).sum(axis=0)
    both = (still >= Tuned.STILL) & (len(changes) - still >= Tuned.STILL)  # true of few, as a rule
    sizes = np.abs(changes[:, both])
    least = np.where(sizes > 0, sizes, np.inf).min(axis=0, initial=np.inf)
    with np.errstate(invalid="ignore", divide="ignore"):
        count = Tuned.STEP_PARTS * sizes / least
        near = (sizes > 0) & (sizes < 64 * least)  # further up a slope blurs the stairs
        whole = np.abs(count - np.round(count)) < 1e-6
    steps = (near.sum(axis=0) >= Tuned.STILL) & (whole | ~near).all(axis=0)
    found[both] = np.where(steps & np.isfinite(least), least, 0.0)
    return found


# --- Perturbed rounding ---------------------------------------------------------------------------


class Rounding(ForwardingTrace):
    """The enclosing trace, with the result of every operation that rounds perturbed.

    The change of a result is then the effect of roundings inside the function and its pull-back:
    the 1 - out**2 of a tanh near 1 keeps few digits of `out`, which no change of the point shows.
    An operation that only moves or chooses numbers does not round.
    """

    def __init__(self, by: Perturbation, rng: np.random.Generator):
        super().__init__(current_trace())
        self.by, self.rng = by, rng

    def bind(self, primitive: Primitive, args: Sequence[Any]) -> tuple[Any, ...]:
        outs = self.parent.bind(primitive, args)
        rounds = type(primitive).rounds
        if primitive.effect != "pure" or rounds is False:
            return outs
        given = [np.abs(_reals(a)) for a in args if _varies(a)]
        known = np.concatenate(given) if given else np.zeros(0)
        return tuple(self._rounded(o, known, bool(rounds)) if _varies(o) else o for o in outs)

    def _rounded(self, out: Tensor, known: Array, always: bool) -> Tensor:
        reals = _reals(out)
        if not known.size or (not always and np.isin(np.abs(reals), known).all()):
            return out
        rounded = self.by.of(reals, self.rng).view(out.dtype).reshape(out.shape)
        return Tensor(rounded, device=out.device)


def _varies(value: Any) -> bool:
    return isinstance(value, (Tensor, np.ndarray)) and is_inexact(value.dtype)


def _reals(value: Any) -> Array:
    """The elements as one array of floats: of complex numbers the two parts of each."""
    array = np.ascontiguousarray(value).reshape(-1)
    return array.view(real_dtype(array.dtype))


# --- Tangents, and the call at fault --------------------------------------------------------------

Function = Callable[..., Any]


class Tangents(Protocol):
    """Tangents of the outputs of a function for tangents of its inputs."""

    def moved(self, arrays: Arrays, tangents: Arrays) -> Arrays:
        """The tangents of the outputs for these of the inputs."""

    def fault(self, arrays: Arrays, rng: np.random.Generator, tolerance: float) -> str:
        """The first call at fault, in a sentence; "" if there is none, or none is looked for."""


@dataclass(frozen=True)
class Forward:
    """Tangents of a function of tensors to a tuple of them. tensors: makes tensors of arrays."""

    function: Function
    tensors: Callable[[Arrays], list[Tensor]]

    def moved(self, arrays: Arrays, tangents: Arrays) -> Arrays:
        """The tangents of the outputs for these of the inputs."""
        given = tuple(self.tensors(arrays)), tuple(self.tensors(tangents))
        return [np.asarray(t.asnumpy()) for t in jvp(self.function, *given)[1]]

    def fault(self, arrays: Arrays, rng: np.random.Generator, tolerance: float) -> str:
        """The first call whose tangent is not the transpose of its bprop; "" if there is none."""
        found = linearize(self.function, self.tensors(arrays), range(len(arrays)))
        for call in found.trace.calls:
            said = _says(call)
            if said and not _transposes(call, rng, tolerance):
                return (
                    f"the tangent of {call.primitive.name}, by {said}, is not what the transpose "
                    f"of its bprop gives; called at {call.where}"
                )
        return ""


def _says(call: Call) -> str:
    """The origin of the tangent of a call; "" where it is the transpose of the bprop itself."""
    cls = type(call.primitive)
    if jvp_rules.find(cls) is not None or cls in joint:
        return "its jvp rule"
    facts = {"view": cls.view, "linear": cls.linear, "elementwise": cls.elementwise}
    return next((f"{name} = {value!r}" for name, value in facts.items() if value), "")


def _transposes(call: Call, rng: np.random.Generator, tolerance: float) -> bool:
    """False where the tangents of a call differ from the transpose of its bprop."""
    tangents = [
        Tensor(of_one_size(rng, x.shape).astype(x.dtype), device=x.device)
        if var is not None and is_float(x.dtype)
        else None
        for var, x in zip(call.inputs, call.given, strict=True)
    ]
    try:
        expected = transposed(call.primitive, call.given, tangents, call.outs)
    except MinimlError:  # its bprop is not made of operations with a gradient
        return True
    got = push(call.primitive, call.given, tangents, call.outs)
    return all(_agree(a, b, tolerance) for a, b in zip(got, expected, strict=True))


def _agree(got: Tensor | None, expected: Tensor | None, tolerance: float) -> bool:
    if got is None or expected is None:
        other = expected if got is None else got
        return other is None or not np.any(other.asnumpy())
    if got.shape != expected.shape:
        return False
    a, b = got.asnumpy(), expected.asnumpy()
    known = np.isfinite(a) & np.isfinite(b)
    scale = np.abs(b[known]).max(initial=0.0)
    return bool(np.all(np.abs(a - b)[known] <= tolerance * scale))
