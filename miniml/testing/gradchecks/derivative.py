"""Derivatives of a function of one real number, by differences at several scales, with errors.

y(t) is a vector, and every component has its own extrapolation, error and noise, so that a
component with a pole or a kink nearby does not blur the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from .extrapolation import EPS, Estimate, extrapolate, finer, noise_in, stairs
from .report import Array

# Rounding of y in an extrapolated quotient, in units of noise / h: the weights of Neville's scheme
# add up to 2 in powers of h^2, to 8 in powers of h; twice, and one and a half times, that.
ROUNDING, ONE_SIDED = 4.0, 12.0
ENOUGH = 12  # steps worth an extrapolation of their own: the last of six columns has six entries

FIRST = 0.1  # times the size of the numbers: no step reaches 0, and h^14 is below rounding
HALVINGS = 6  # steps that a smooth function needs; each further two come one by one
ROWS = (
    30  # the most steps, each of two calls: halving 0.1 so often leaves 1e-10, less than rounding
)
# Of the sixth step: some far smaller ones, three of them near one another, so that they
# tell noise, which differs among them, from structure, which does not.
SENTINELS = (50.0, 1300.0, 2000.0, 3000.0)
MORE_SENTINELS = (700.0, 2500.0)  # between them, where one more look decides
# Of the first step: down to where rounding leaves half the digits, for what bends very near.
DEEP = (3e-6, 1e-6, 4e-7, 1.4e-7, 5e-8, 2e-8, 7e-9, 2.6e-9)
TINY = 1e-6, 1e-8, 1e-10, 1e-12  # of the first step: below any of those that saw the kink
SHARP = 0.05  # an error of 5 % of the derivative: a fault of a factor, a sign or a term shows
SMALL = 1e4  # roundings of y: what a long sum may leave, too little to look for a slope in


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
        """How exactly y is known at 0: its own rounding, or that of the terms it is computed from.

        The latter also shows as stairs: y stays constant, then jumps by a large unit.
        """
        own = np.fmax(self.unit * np.abs(self.origin), self.inside)
        return np.asarray(np.fmax(own, stairs(np.array(self.above + self.below) - self.origin)))

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
        h = np.array(self.steps)[order]
        moved = ~np.isfinite(self.origin)
        for values in (*self.above, *self.below):
            moved |= values != self.origin
        columns = np.flatnonzero(moved)
        up = np.array([self.above[k][columns] for k in order])
        down = np.array([self.below[k][columns] for k in order])
        grain = self.grain
        with np.errstate(all="ignore"):
            found = _slopes(h, up, down, self.origin[columns], self.unit[columns], grain[columns])
        still = 2 * grain / h[0]
        whole = Slopes.at_rest(np.where(np.isfinite(still), still, 0.0))
        whole.put(columns, found)
        return whole


def _slopes(h: Array, up: Array, down: Array, y0: Array, unit: Array, rounds: Array) -> Slopes:
    """The derivatives at 0 of components with the values up at h, down at -h and y0 at 0.

    h falls. rounds: how exactly each y is known. Of a component whose largest steps
    jumped over some structure, they come from the smaller steps alone, if those are enough.
    """
    rows = (up - down) / (2 * h[:, None])
    sizes = (np.abs(up - y0) + np.abs(down - y0)) / (2 * h[:, None])
    grain, floor = 2 * unit * sizes, 2 * rounds
    rough = extrapolate(h, rows, floor, grain, 2, ROUNDING)
    least = floor + np.where(np.isfinite(rough.value), EPS * np.abs(rough.value), 0.0)
    noise, structured = noise_in(h, rows, rough, least)
    central = extrapolate(h, rows, noise, grain, 2, ROUNDING)
    structured |= finer(h, rows, central, least)
    central = central._replace(truncation=np.where(structured, np.inf, central.truncation))
    right = extrapolate(h, (up - y0) / h[:, None], noise, grain, 1, ONE_SIDED)
    left = extrapolate(h, (y0 - down) / h[:, None], noise, grain, 1, ONE_SIDED)
    bent = _bent(h, (up + down - 2 * y0) / h[:, None], right.value - left.value, noise)
    found = Slopes(central, right, left, noise, bent, np.median(sizes, axis=0))
    smaller = h <= h[0] / 4
    again = np.flatnonzero(structured & ~found.kink)
    if smaller.sum() >= ENOUGH and again.size:
        sides = up[smaller][:, again], down[smaller][:, again]
        found.put(again, _slopes(h[smaller], *sides, y0[again], unit[again], rounds[again]))
    return found


def _bent(h: Array, bends: Array, jump: Array, noise: Array) -> Array:
    """True where the sides differ by half the jump at the smallest step that could show it."""
    telling = noise < np.abs(jump) * h[:, None] / 8
    last = len(h) - 1 - np.argmax(telling[::-1], axis=0)
    there = np.abs(bends[last, np.arange(last.size)]) > 0.5 * np.abs(jump)
    return np.asarray(there & telling.any(axis=0))


def climb(line: Line, first: float, done: Callable[[Slopes], bool]) -> Slopes:
    """Measure from step `first` down, halving it, until `done` or no smaller step can help.

    Some far smaller steps are measured at once: they show noise and structure that the larger
    ones miss. Where even those do not agree, the next steps are the smallest ones: either what
    looks like noise has a derivative there, or smaller steps will not help.
    """
    count = HALVINGS
    line.add(*_halved(first, 0, count))
    sixth = line.steps[-1]
    line.add(*(sixth / s for s in SENTINELS))
    looked, deep = False, False
    while True:
        slopes = line.slopes()
        vague = vague_in(line, slopes)
        if not looked and 0 < vague.sum() <= (vague.size + 9) // 10:
            looked = True  # few of many: more likely chance than structure
            line.add(*(sixth / s for s in MORE_SENTINELS))
        elif not deep and (vague & _unsettled(line)).any():
            deep = True
            line.add(*(first * t for t in DEEP))
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
        small = np.fmax(SMALL * line.grain, 1e-6 * np.fmax(slopes.reach, typical))
        usable = (error <= SHARP * value) | (error <= small)
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
        for h in (line.steps[0] * t for t in TINY):
            line.bends.append((h, np.abs(line.at(h) + line.at(-h) - 2 * line.origin)))
    for h, bends in line.bends:
        near = kink[(bends[kink] < 0.5 * jump * h) & (rounding < jump * h / 16)]
        slopes.bent[near] = False
        slopes.central.truncation[near] = np.inf
    return len(line.steps) >= ROWS or done(slopes)


def converged(origin: Array) -> Callable[[Slopes], bool]:
    """Whether nothing is gained by smaller steps: all is sharp, kinked, or blurred by rounding.

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
