"""Derivatives of a function of one real number, by differences at several scales, with errors.

y(t) is a vector, and every component has its own extrapolation, error and noise: one component
with a pole or a kink nearby does not blur the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from .extrapolation import EPS, Array, Estimate, extrapolate, finer, noise_in, stairs

ROUNDING, ONE_SIDED, ENOUGH = 4.0, 12.0, 12


@dataclass(frozen=True, slots=True)
class Slopes:
    """What differences say of y at 0: the derivative, both one-sided ones, and y's noise.

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
    def estimates(self) -> tuple[Estimate, Estimate, Estimate]:
        """All three."""
        return self.central, self.right, self.left

    @property
    def kink(self) -> Array:
        """True where the one-sided derivatives are sharp and differ."""
        with np.errstate(invalid="ignore"):
            jump = np.abs(self.right.value - self.left.value)
            blur = self.right.error + self.left.error
            size = np.abs(self.right.value) + np.abs(self.left.value)
            return np.asarray((jump > 8 * blur) & (jump > 1e-6 * size) & self.bent)


@dataclass(slots=True)
class Line:
    """Values of y(t) on both sides of 0, at as many steps as were asked for.

    at: y, a vector of m components; NaN where it has no value. origin: y(0). unit: the unit
    roundoff of each component. inside: what roundings inside y do to it, where that is known.
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
        """How exactly y is known at 0: its own rounding, or that of what it is made of.

        The latter also shows in stairs: y stands still, then jumps by a large unit.
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

        Numbers that never changed by a bit have derivative 0, to their rounding; inf has none.
        """
        order = np.argsort(self.steps)[::-1]
        h = np.array(self.steps)[order]
        moved = ~np.isfinite(self.origin)
        for values in (*self.above, *self.below):
            moved |= values != self.origin
        columns = np.flatnonzero(moved)
        y0 = self.origin[columns]
        up = np.array([self.above[k][columns] for k in order])
        down = np.array([self.below[k][columns] for k in order])
        with np.errstate(all="ignore"):
            found = _slopes(h, up, down, y0, self.unit[columns], self.grain[columns])
        still = 2 * self.grain / h[0]
        return _spread(found, columns, np.where(np.isfinite(still), still, 0.0))


def _slopes(h: Array, up: Array, down: Array, y0: Array, unit: Array, rounds: Array) -> Slopes:
    """Of the components whose largest steps saw too little, again without those steps."""
    rows = (up - down) / (2 * h[:, None])
    sizes = (np.abs(up - y0) + np.abs(down - y0)) / (2 * h[:, None])
    grain, floor = 2 * unit * sizes, 2 * rounds
    rough = extrapolate(h, rows, floor, grain, 2, ROUNDING)
    least = floor + np.where(np.isfinite(rough.value), EPS * np.abs(rough.value), 0.0)
    noise, structured = noise_in(h, rows, rough, least)
    central = extrapolate(h, rows, noise, grain, 2, ROUNDING)
    structured |= finer(h, rows, central, least)
    doubt = np.where(structured, np.inf, 0.0)
    right = extrapolate(h, (up - y0) / h[:, None], noise, grain, 1, ONE_SIDED)
    left = extrapolate(h, (y0 - down) / h[:, None], noise, grain, 1, ONE_SIDED)
    bent = _bent(h, (up + down - 2 * y0) / h[:, None], right.value - left.value, noise)
    central = replace(central, truncation=central.truncation + doubt)
    found = Slopes(central, right, left, noise, bent, np.median(sizes, axis=0))
    smaller = h <= h[0] / 4
    again = np.flatnonzero(structured & ~found.kink)
    if smaller.sum() < ENOUGH or not again.size:
        return found
    sides = up[smaller][:, again], down[smaller][:, again]
    part = _slopes(h[smaller], *sides, y0[again], unit[again], rounds[again])
    return _merged(found, part, again)


def _bent(h: Array, bends: Array, jump: Array, noise: Array) -> Array:
    """True where the sides differ by half the jump at the smallest step that could show it."""
    telling = noise < np.abs(jump) * h[:, None] / 8
    last = len(h) - 1 - np.argmax(telling[::-1], axis=0)
    there = np.abs(bends[last, np.arange(last.size)]) > 0.5 * np.abs(jump)
    return np.asarray(there & telling.any(axis=0))


def _merged(found: Slopes, part: Slopes, columns: Array) -> Slopes:
    """Slopes with those of some components put in place."""
    for old, new in zip(found.estimates, part.estimates, strict=True):
        for name in ("value", "truncation", "rounding", "step"):
            getattr(old, name)[columns] = getattr(new, name)
    found.noise[columns], found.bent[columns] = part.noise, part.bent
    found.reach[columns] = part.reach
    return found


def _spread(found: Slopes, columns: Array, still: Array) -> Slopes:
    """The slopes of all components: those of `columns`, and 0 +- still of the others."""
    zeros = np.zeros(still.size)

    def at_rest() -> Estimate:
        return Estimate(zeros.copy(), zeros.copy(), still.copy(), zeros.copy())

    whole = Slopes(at_rest(), at_rest(), at_rest(), zeros, np.zeros(still.size, bool), zeros.copy())
    return _merged(whole, found, columns)


FIRST, HALVINGS, ROWS = 0.1, 6, 30
SENTINELS = (50.0, 1300.0, 2000.0, 3000.0)
MORE_SENTINELS = (700.0, 2500.0)
DEEP = (3e-6, 1e-6, 4e-7, 1.4e-7, 5e-8, 2e-8, 7e-9, 2.6e-9)
TINY = 1e-6, 1e-8, 1e-10, 1e-12


def climb(line: Line, first: float, done: Callable[[Slopes], bool]) -> Slopes:
    """Measure from step `first` down, halving it, until `done` or no smaller step can help.

    Some far smaller steps are measured at once: they show noise and structure that the larger
    ones miss. Where even those do not agree, the next steps are the smallest ones: either what
    looks like noise has a derivative there, or smaller steps will not help.
    """
    count = HALVINGS
    line.add(*_steps(first, 0, count))
    line.add(*(line.steps[-1] / s for s in SENTINELS))
    looked, deep = False, False
    while True:
        slopes = line.slopes()
        vague = _vague(line, slopes)
        if not looked and 0 < vague.sum() <= (vague.size + 9) // 10:
            looked = True  # a few of many: chance, more likely than structure
            line.add(*(line.steps[HALVINGS - 1] / s for s in MORE_SENTINELS))
            continue
        if not deep and (vague & _unsettled(line)).any():
            deep = True
            line.add(*(first * t for t in DEEP))
            continue
        if len(line.steps) >= ROWS or done(slopes):
            slopes = _at_kinks(line, slopes)
            if len(line.steps) >= ROWS or done(slopes):
                return slopes
        line.add(*_steps(first, count, count + 2))
        count += 2


def _vague(line: Line, slopes: Slopes) -> Array:
    """Components without a usable derivative, by more than the rounding of their own values."""
    error, value = slopes.central.error, np.abs(slopes.central.value)
    with np.errstate(invalid="ignore"):
        small = np.fmax(1e4 * line.grain, 1e-6 * slopes.reach)
        usable = (error <= 0.05 * value) | (error <= small)
    return np.asarray(~usable & ~slopes.kink & np.isfinite(line.origin))


def _unsettled(line: Line) -> Array:
    """Components whose quotients still change at the smallest steps."""
    last = np.argsort(line.steps)[:3]
    quotients = np.array([(line.above[k] - line.below[k]) / line.steps[k] for k in last])
    with np.errstate(invalid="ignore"):
        among = quotients.max(axis=0) - quotients.min(axis=0)
        return np.asarray(among > 0.1 * np.abs(quotients).max(axis=0))


def _at_kinks(line: Line, slopes: Slopes) -> Slopes:
    """The slopes, without the kinks that only stand near: far smaller steps do not see those."""
    kink = np.flatnonzero(slopes.kink)
    if not kink.size:
        return slopes
    jump = np.abs(slopes.right.value - slopes.left.value)[kink]
    rounding = 2 * line.grain[kink] + EPS * jump
    if not line.bends:
        for h in (line.steps[0] * t for t in TINY):
            line.bends.append((h, np.abs(line.at(h) + line.at(-h) - 2 * line.origin)))
    for h, bends in line.bends:
        bend = bends[kink]
        near = kink[(bend < 0.5 * jump * h) & (rounding < jump * h / 16)]
        slopes.bent[near] = False
        slopes.central.truncation[near] = np.inf
    return slopes


def _steps(first: float, start: int, stop: int) -> Sequence[float]:
    """About first / 2**k, but no exact powers: roundings at one step repeat at its half."""
    return [first / 2**k * (1 + 0.2 * (0.618034 * k % 1)) for k in range(start, stop)]


def derivative(
    fn: Callable[[float], float], at: float = 0.0, scale: float = 1.0
) -> tuple[float, float]:
    """fn'(at) of a real function, and the half width of the interval that holds it.

    scale: a change of `at` over which fn is smooth; far smaller ones are tried too.

    >>> value, error = derivative(lambda x: x**3, 2.0)
    >>> abs(value - 12.0) <= error < 1e-9
    True
    """

    def vector(t: float) -> Array:
        return np.array([fn(at + t)], np.float64)

    line = Line(vector, vector(0.0), np.full(1, EPS / 2))
    central = climb(line, FIRST * scale, converged(line.origin)).central
    return float(central.value[0]), float(central.error[0])


def converged(origin: Array) -> Callable[[Slopes], bool]:
    """Whether nothing is gained by smaller steps: all is sharp, kinked, or blurred by rounding."""
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
