"""Where each element of a resized axis lies in the input, as ONNX has it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..errors import OnnxError
from .known import Array, counted


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
