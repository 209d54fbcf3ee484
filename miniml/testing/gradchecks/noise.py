"""Float64 functions whose values are noisier than float64: parts of them may be float32."""

from __future__ import annotations

import numpy as np

from .probe import Probe
from .report import Array
from .subject import Subject

NOISY = 1e-10  # relative to an output: far above the rounding of float64, far below that of float32
UNEXPLAINED = 1e3  # roundings of its own operations: more than even a long sum accumulates
SPACINGS = 1e-7, 3e-8  # near a unit of float32, where its stairs show
POINTS, ORDER, GROWTH = 7, 4, 8.0  # noise grows by sqrt(1 + 16 + 36 + 16 + 1) in 4th differences


def noise_of(subject: Subject, both: list[Probe]) -> float:
    """The largest relative deviation of an output from a smooth course next to the point.

    0 if nothing in the probes suggests more than NOISY; that costs no call. Else from a few points
    on one side, so near that only noise can show in their fourth differences. Roundings of the
    function's own operations do not count.
    """
    noise = np.min([seen.slopes.noise for seen in both], axis=0)
    size = np.maximum(np.abs(subject.y), np.max([seen.slopes.reach for seen in both], axis=0))
    with np.errstate(invalid="ignore"):
        suspect = (noise > NOISY * size) & np.isfinite(subject.y)
    if not suspect.any():
        return 0.0
    subject.settle()
    seen = np.min([_rough(subject, both[0].u, h) for h in SPACINGS], axis=0)
    with np.errstate(invalid="ignore"):
        worst = np.where(suspect & (seen > UNEXPLAINED * subject.grain), seen / size, 0.0)
    noise = float(worst.max())
    return noise if noise > NOISY else 0.0


def _rough(subject: Subject, u: Array, spacing: float) -> Array:
    y = np.array([subject(subject.x + k * spacing * u) for k in range(1, POINTS + 1)])
    with np.errstate(invalid="ignore"):
        return np.asarray(np.abs(np.diff(y, ORDER, axis=0)).max(axis=0) / GROWTH)


def note_on(noise: float) -> str:
    """The note on a noise above NOISY."""
    narrow = "float32" if noise < 1e-5 else "a narrower dtype"
    return (
        f"the function is noisy: next to the point its float64 values are off by about {noise:.0e} "
        f"of their size; something in it is computed in {narrow}, or is ill-conditioned"
    )
