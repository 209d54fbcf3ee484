"""Limits of difference quotients for steps that go to 0, by Neville's scheme, with errors."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .report import Array

EPS = float(np.finfo(np.float64).eps)
COLUMNS = 6  # a truncation of h^14 (h^7 on one side): more columns only add up rounding
TRUNCATION = 3.0  # the last change estimates the remaining error, seldom wrong by a factor of three
WITNESSES = 2  # the smallest steps: one alone could agree with the larger ones by chance
# Constant points, and moving points: this many are not constant, or in step, by chance.
STILL = 4
STEP_PARTS = 4  # the least change seen may itself be up to four stairs high


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


def extrapolate(
    h: Array, rows: Array, noise: Array, grain: Array, power: int, blur: float
) -> Estimate:
    """The limit of rows[k] for h[k] -> 0, if rows are a polynomial in h**power near 0.

    h: steps, falling; rows: (steps, m) difference quotients, rounded by `grain`. Neville's scheme;
    the entry with the least error is taken. An entry's error is its change from its neighbours,
    TRUNCATION-fold, and blur times the larger of noise / h and the grain of the rows it is computed
    from. At least three rows have to agree, and the WITNESSES smallest steps give no entry of their
    own: they show the noise.
    Source: Ridders, "Accurate computation of F'(x) and F'(x)F''(x)" (1982).
    """
    m = rows.shape[1]
    best = Estimate(np.full(m, np.nan), *(np.full(m, np.inf) for _ in range(3)))
    previous = rows
    for c in range(1, min(COLUMNS, len(h) - 1) + 1):
        current = next_column(h, previous, c, power)
        change = np.maximum(np.abs(current - previous[1:]), np.abs(current - previous[:-1]))
        change[1:] = np.maximum(change[1:], np.abs(current[1:] - current[:-1]))
        if c == 1:
            change[0] = np.inf
        grain = np.maximum(grain[1:], grain[:-1])
        column = Estimate(
            current,
            TRUNCATION * change,
            blur * np.maximum(noise / h[c:, None], grain),
            np.broadcast_to(h[c:, None], current.shape),
        )
        best = _better(best, column)
        previous = current
    return best


def _better(best: Estimate, column: Estimate) -> Estimate:
    """For each component the entry with the least error, if that is less than before."""
    error = np.where(np.isnan(column.error), np.inf, column.error)
    error[max(len(error) - WITNESSES, 0) :] = np.inf
    k, every = np.argmin(error, axis=0), np.arange(error.shape[1])
    better = error[k, every] < best.error
    entry = (a[k, every] for a in column)
    return Estimate(*(np.where(better, new, old) for new, old in zip(entry, best, strict=True)))


def next_column(h: Array, previous: Array, c: int, power: int) -> Array:
    """Column c of Neville's scheme in h**power: each entry is extrapolated from two before it."""
    ratio = (h[:-c] / h[c:])[:, None] ** power - 1
    return np.asarray(previous[1:] + (previous[1:] - previous[:-1]) / ratio)


def stairs(changes: Array) -> Array:
    """The stair of each component whose small changes are all 0 or multiples of one number.

    They are so where y is a difference of rounded numbers far larger than itself, as in
    1 - tanh(x)**2 at 18; 0 for components that change in other ways. changes: (points, m).
    """
    found, still = np.zeros(changes.shape[1:]), (changes == 0).sum(axis=0)
    both = (still >= STILL) & (len(changes) - still >= STILL)  # true of few, as a rule
    sizes = np.abs(changes[:, both])
    least = np.where(sizes > 0, sizes, np.inf).min(axis=0, initial=np.inf)
    with np.errstate(invalid="ignore", divide="ignore"):
        count = STEP_PARTS * sizes / least
        near = (sizes > 0) & (sizes < 64 * least)  # further up a slope blurs the stairs
        whole = np.abs(count - np.round(count)) < 1e-6
    steps = (near.sum(axis=0) >= STILL) & (whole | ~near).all(axis=0)
    found[both] = np.where(steps & np.isfinite(least), least, 0.0)
    return found


def noise_in(h: Array, rows: Array, rough: Estimate, least: Array) -> tuple[Array, Array]:
    """The noise of y, from the steps below the best one, where the derivative is known.

    There y is off by h |quotient - derivative|. Noise is as large at one step as at another;
    an error that fades or grows with h is not noise but structure that the best step was too large
    to see (second result: such an estimate is worthless). The factors leave room for chance: of a
    few draws of noise the largest is seldom 8 times, and never 24 times, another.
    """
    steps, column = h[:, None], rows
    seen = steps * np.abs(rows - rough.value)
    for c in range(1, min(COLUMNS, len(h) - 1) + 1):
        column = next_column(h, column, c, 2)
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


def finer(h: Array, rows: Array, found: Estimate, least: Array) -> Array:
    """True where the smallest steps agree with one another, but not with the estimate.

    Noise would make them disagree with one another as much.
    """
    last = rows[-max(3, int(np.sum(h <= 4.5 * h[-1]))) :]
    away = np.abs(last - found.value).min(axis=0)
    among = last.max(axis=0) - last.min(axis=0)
    seen = away > np.maximum(found.error, 8 * least / h[-1])
    return np.asarray((among < 0.3 * away) & seen)
