"""Images resized along each axis: nearest elements, or sums of those around by weights."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from ...abstract import Shape
from ...dtype import float32, float64, is_float
from ...errors import AttributeRefusedError, ShapeError
from ..arithmetic import add, cast, mul
from ..index import gather
from ..inference.devices import on_one_device
from ..inference.geometry import EXTENTS, Lengths, lengths
from ..inference.shapes import dtype_of, shape_of
from ..inference.windows import Array

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...tensor import Tensor

__all__ = ["resize"]

WIDE = (float32, float64)
MODES = ("nearest", "nearest-exact", "linear", "cubic")


@on_one_device
def resize(
    x: Any,
    size: Lengths | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool = False,
) -> Tensor:
    """out[n, c, r, q] = sum over i, j of a[r, i] * b[q, j] * x[n, c, i, j], for weights a and b
    that interpolate each axis by itself.

    x (N, C, H, W), or with one or three axes behind (N, C) in the same way.
    size: the new extents, an int or one for each axis; or scale_factor: their ratio to the old,
    rounded down. Element r of an axis lies at (r + 1/2) / scale - 1/2 of the old one, the ends
    repeated; with align_corners at r * (old - 1) / (new - 1). mode: "nearest", the element at
    floor(r / scale); "nearest-exact", that at floor((r + 1/2) / scale); "linear", the two around
    it; "cubic", the four around it by Keys' kernel with a = -3/4. The dtype is kept, but that
    linear and cubic take integers as float32. These are the numbers of PyTorch's interpolate, where
    linear is called bilinear or trilinear for two or three axes and cubic bicubic; an axis whose
    extent stays is left as it is, which PyTorch does in some modes only.
    ShapeError or AttributeRefusedError for what does not fit.

    >>> resize([[[1.0, 3.0]]], 4, mode="linear").tolist()
    [[[1.0, 1.5, 2.5, 3.0]]]
    """
    check_mode("resize", mode, align_corners)
    given, nearest = dtype_of(x), mode.startswith("nearest")
    half = 0.0 if mode == "nearest" else 0.5
    out = x if nearest or given in WIDE else cast(x, float32)
    for at, line in enumerate(_lines(shape_of(x), size, scale_factor), 2):
        if line.extent == line.count:
            continue
        if nearest:
            places = np.minimum(line.points(half).astype(np.int64), line.extent - 1)
            out = gather(out, places, at)
        else:
            points = line.corners() if align_corners else line.points(half) - half
            out = blended(out, at, *weighted(points, line.extent, mode == "cubic"))
    kept = given if nearest or is_float(given) else float32
    return cast(out, kept) if out is x or dtype_of(out) != kept else out


def check_mode(name: str, mode: str, align_corners: bool) -> None:
    """AttributeRefusedError for a mode that is none, or one without corners to be aligned."""
    if mode not in MODES:
        raise AttributeRefusedError(
            f"{name} got mode={mode!r}; expected one of {', '.join(map(repr, MODES))}, for any "
            "number of axes: bilinear and trilinear are 'linear', bicubic is 'cubic'"
        )
    if align_corners and mode not in ("linear", "cubic"):
        raise AttributeRefusedError(
            f"{name} got align_corners=True for mode={mode!r}; 'linear' and 'cubic' have corners"
        )


@dataclass(frozen=True)
class Line:
    """An axis to be resized: element r of `count` lies at r * numerator / denominator."""

    extent: int
    count: int
    numerator: float
    denominator: float

    def points(self, half: float) -> Array:
        """(count,): where each element lies, and `half` an element."""
        return np.asarray((np.arange(self.count) + half) * self.numerator / self.denominator)

    def corners(self) -> Array:
        """(count,): where each lies if the first and the last ones do so at the ends."""
        return np.asarray(np.arange(self.count) * (self.extent - 1) / max(self.count - 1, 1))


def _lines(shape: Shape, size: Any, scale_factor: Any) -> list[Line]:
    n = len(shape) - 2
    if n not in EXTENTS or 0 in shape[2:]:
        raise ShapeError(
            f"resize got x of shape {shape}; it takes (N, C, ...) with one to three axes behind, "
            "none of them empty"
        )
    if (size is None) == (scale_factor is None):
        raise AttributeRefusedError(
            f"resize got size={size!r} and scale_factor={scale_factor!r}; give one of the two"
        )
    if size is not None:
        counts = lengths("resize", "size", size, n)
        return [Line(e, m, e, m) for e, m in zip(shape[2:], counts, strict=True)]
    given = [scale_factor] * n if np.ndim(scale_factor) == 0 else [*scale_factor]
    if len(given) != n or not all(_positive(s) for s in given):
        raise AttributeRefusedError(
            f"resize got scale_factor={scale_factor!r}; give a number above 0, or one for each of "
            f"({EXTENTS[n]})"
        )
    lines = [Line(e, int(e * s), 1.0, float(s)) for e, s in zip(shape[2:], given, strict=True)]
    if not all(line.count for line in lines):
        raise ShapeError(f"resize got x of shape {shape}, of which {scale_factor} leaves nothing")
    return lines


def _positive(value: Any) -> bool:
    real = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
    return bool(real and 0 < value < math.inf)


def weighted(
    points: Array, extent: int, cubic: bool, a: float = -0.75, shrunk: float = 1.0,
    exclude_outside: bool = False,
) -> tuple[Array, Array]:  # fmt: skip
    """(count, taps): the elements of an axis around each of its `points`, and their weights, which
    sum to 1, by a linear or Keys' cubic kernel.

    shrunk: below 1 the kernel is as much wider. exclude_outside: what lies outside of the axis has
    no weight; else it is as the axis's end.
    Source of the kernel: Keys 1981, "Cubic convolution interpolation for digital image processing".
    """
    first = int(np.floor(-(2 if cubic else 1) / shrunk)) + 1
    taps = np.floor(points).astype(np.int64)[:, None] + np.arange(first, 2 - first)
    distance = np.abs(taps - points[:, None]) * shrunk
    weights = _cubic(distance, a) if cubic else np.clip(1 - distance, 0, 1)
    if exclude_outside:
        weights = weights * ((taps >= 0) & (taps < extent))
    weights = weights / weights.sum(1, keepdims=True)
    return np.clip(taps, 0, extent - 1), weights


def _cubic(t: Array, a: float) -> Array:
    near = ((a + 2) * t - (a + 3)) * t * t + 1
    far = ((t - 5) * t + 8) * t * a - 4 * a
    return np.asarray(np.where(t <= 1, near, np.where(t < 2, far, 0)))


def blended(x: Any, at: int, taps: Array, weights: Array) -> Tensor:
    """sum over k of weights[:, k] * x at taps[:, k], along axis `at`."""
    shape = (-1, *(1,) * (len(shape_of(x)) - 1 - at))
    factors = weights.astype(dtype_of(x)).T
    parts = (
        mul(gather(x, places, at), factor.reshape(shape))
        for places, factor in zip(taps.T, factors, strict=True)
    )
    return reduce(add, parts)
