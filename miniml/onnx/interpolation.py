"""Interpolation along one axis: where each output lies in the input, and the weights of the inputs
around it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..errors import OnnxError
from .known import Array, counted, table


@dataclass(frozen=True)
class Grid:
    """The points of an axis of extent `count` in an axis of extent `extent`.

    scale: of the whole; start, stop: of the part of the input that is read, for
    tf_crop_and_resize. mode: ONNX's coordinate_transformation_mode.
    """

    extent: int
    count: int
    scale: float
    mode: str
    start: float = 0.0
    stop: float = 1.0

    def points(self) -> Array:
        """(count,): the coordinate of each output in the input."""
        x, last, width = counted(self.count), self.extent - 1, self.scale * self.extent
        if self.mode == "align_corners":
            return np.asarray(x * last / (width - 1) if width != 1 else x * 0.0)
        if self.mode == "asymmetric":
            return np.asarray(x / self.scale)
        if self.mode == "tf_crop_and_resize":
            share = x / (width - 1) if width != 1 else x * 0.0 + 0.5
            return np.asarray((self.start + share * (self.stop - self.start)) * last)
        if self.mode == "pytorch_half_pixel" and width == 1:
            return np.asarray(x * 0.0 - 0.5)
        if self.mode == "half_pixel_symmetric":
            shift = self.extent / 2 * (1 - self.count / width)
            return np.asarray(shift + (x + 0.5) / self.scale - 0.5)
        if self.mode not in ("half_pixel", "pytorch_half_pixel"):
            raise OnnxError(f"coordinate_transformation_mode {self.mode!r} is unknown")
        return np.asarray((x + 0.5) / self.scale - 0.5)

    def outside(self) -> Array:
        """(count,): True for outputs that lie outside of the input, where that has a value."""
        x = self.points()
        return np.asarray((self.mode == "tf_crop_and_resize") & ((x < 0) | (x > self.extent - 1)))


_ROUNDINGS: dict[str, Callable[[Array], Array]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


def nearest(grid: Grid, rounding: str) -> Array:
    """(count,): the input that is nearest to each output."""
    if rounding not in _ROUNDINGS:
        raise OnnxError(f"nearest_mode {rounding!r} is not {', '.join(_ROUNDINGS)}")
    found = _ROUNDINGS[rounding](grid.points())
    return np.asarray(np.clip(found, 0, grid.extent - 1).astype(np.int64))


def _linear(t: Array) -> Array:
    return np.asarray(np.clip(1 - np.abs(t), 0, 1))


def _cubic(t: Array, a: float) -> Array:
    """Keys' kernel."""
    t = np.abs(t)
    near = ((a + 2) * t - (a + 3)) * t * t + 1
    far = ((t - 5) * t + 8) * t * a - 4 * a
    return np.asarray(np.where(t <= 1, near, np.where(t < 2, far, 0)))


def weighted(
    grid: Grid, cubic: bool, a: float, antialias: bool, exclude_outside: bool
) -> tuple[Array, Array]:
    """(count, taps): the inputs around each output, and their weights, which sum to 1.

    antialias: where the input shrinks, the kernel is as much wider. exclude_outside: what lies
    outside of the input has no weight; else it is as the input's end.
    """
    x, scale = grid.points(), min(grid.scale, 1.0) if antialias else 1.0
    first = int(np.floor(-(2 if cubic else 1) / scale)) + 1
    table(grid.count, 2 - 2 * first)
    taps = np.floor(x).astype(np.int64)[:, None] + np.arange(first, 2 - first)
    distance = (taps - x[:, None]) * scale
    weights = _cubic(distance, a) if cubic else _linear(distance)
    if exclude_outside:
        weights = weights * ((taps >= 0) & (taps < grid.extent))
    weights = weights / weights.sum(1, keepdims=True)
    return np.clip(taps, 0, grid.extent - 1), weights
