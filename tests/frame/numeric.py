"""Derivatives of functions of one number by central differences with Richardson extrapolation."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

EPS = float(np.finfo(np.float64).eps)
STEPS = (5e-2, 2e-3, 1e-4)


def richardson(phi: Callable[[float], float], h: float, rows: int = 5) -> tuple[float, float]:
    """phi'(0) from steps h, h/2, h/4, ...; and an estimate of its error.

    The error of a central difference has even powers of h only; each column of the tableau
    removes one. The error is the change from one column to the next, plus what rounding of phi
    does to a difference quotient.
    """
    best, error, last = np.nan, np.inf, []
    for k in range(rows):
        step = h / 2**k
        above, below = phi(step), phi(-step)
        row = [(above - below) / (2 * step)]
        for j, previous in enumerate(last):
            row.append(row[j] + (row[j] - previous) / (4.0 ** (j + 1) - 1))
        rounding = 8 * EPS * max(abs(above), abs(below)) / step
        if last:
            changed = max(abs(row[-1] - row[-2]), abs(row[-1] - last[-1])) + rounding
            if changed < error:
                best, error = row[-1], changed
        last = row
    return best, error


def disagreement(phi: Callable[[float], float], claimed: float, scale: float) -> str | None:
    """Why `claimed` is not phi'(0), in a sentence; None if it is at one of several step sizes.

    scale: the size of what was summed to give `claimed`; relative errors are of this.
    """
    sharpest = (np.inf, np.nan)
    blur = 1e-9 * abs(phi(0.0))
    for h in STEPS:
        value, error = richardson(phi, h)
        if not np.isfinite(value):
            continue
        size = max(scale, abs(value))
        if error <= 1e-6 * size + blur and abs(value - claimed) <= 10 * error + 1e-9 * size:
            return None
        if error < sharpest[0]:
            sharpest = (error, value)
    error, value = sharpest
    return f"is {claimed:.10g}; differences give {value:.10g} +- {error:.1g}"
