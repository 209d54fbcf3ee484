"""Sampling an image at points that a tensor names, by the elements around each."""

from __future__ import annotations

from itertools import product
from typing import Any

from .. import ops
from ..dtype import int64
from ..errors import OnnxError
from .known import counted

_REACH = {"nearest": (0,), "linear": (0, 1), "cubic": (-1, 0, 1, 2)}  # taps, from the floor on
_A = -0.75  # of Keys' cubic kernel


def sampled(x: Any, grid: Any, mode: str, padding: str, align_corners: bool) -> Any:
    """x (N, C, ...) at the points of grid (N, *out, d), of which -1 and 1 are the ends of an axis
    and the first coordinate is that of the last axis: (N, C, *out), for d from 1 to 3.

    mode: nearest, linear or cubic. padding: what lies outside of x, zeros, border or reflection.
    """
    extents = tuple(x.shape[2:])
    if mode not in _REACH or padding not in ("zeros", "border", "reflection"):
        raise OnnxError(f"mode {mode!r} or padding_mode {padding!r} is unknown")
    d = len(extents)
    if not 1 <= d <= 3 or (len(grid.shape), grid.shape[-1]) != (d + 2, d):
        raise OnnxError(f"a grid of shape {tuple(grid.shape)} has no points in {tuple(x.shape)}")
    columns = ops.split(grid, d, -1)[::-1]
    axes = [
        _taps(ops.squeeze(g, -1), n, mode, padding, align_corners)
        for g, n in zip(columns, extents, strict=True)
    ]
    batch = counted(x.shape[0]).reshape((-1, *(1,) * d))
    last, total = ops.moveaxis(x, 1, -1), None
    for taps in product(*axes):
        values = ops.getitem(last, (batch, *(index for index, _ in taps)))
        for _, weight in taps:
            values = values if weight is None else ops.mul(values, ops.expand_dims(weight, -1))
        total = values if total is None else ops.add(total, values)
    return ops.moveaxis(total, -1, 1)


def _taps(g: Any, n: int, mode: str, padding: str, align: bool) -> list[tuple[Any, Any]]:
    """(index, weight) for each of the elements around, along one axis of extent n."""
    low, high = (0.0, n - 1.0) if align else (-0.5, n - 0.5)
    at = ops.add(ops.mul(ops.add(g, 1.0), (high - low) / 2), low)
    at = _inside(at, padding, n, low, high)
    if mode == "nearest":
        at = ops.round(at)
    first = ops.floor(at)
    share = ops.sub(at, first)
    bounds = n, mode, padding, low, high
    return [_tap(ops.add(first, float(k)), share, k, *bounds) for k in _REACH[mode]]


def _tap(
    place: Any, share: Any, k: int, n: int, mode: str, padding: str, low: float, high: float
) -> tuple[Any, Any]:
    """The element at `place`, k from the floor, and its weight; 0 for one outside among zeros."""
    weight = None if mode == "nearest" else _weight(ops.abs(ops.sub(share, float(k))), mode)
    if padding == "zeros":
        inside = ops.logical_and(ops.greater_equal(place, 0.0), ops.less(place, float(n)))
        real = ops.cast(inside, share.dtype)
        weight = real if weight is None else ops.mul(weight, real)
    index = ops.clip(_inside(place, padding, n, low, high), 0.0, n - 1.0)
    return ops.cast(index, int64), weight


def _inside(at: Any, padding: str, n: int, low: float, high: float) -> Any:
    """Coordinates, brought into the image where what lies outside is a copy of it."""
    if padding == "border":
        return ops.clip(at, 0.0, n - 1.0)
    if padding == "zeros" or high == low:
        return at
    span = high - low
    turn = ops.mod(ops.sub(at, low), 2 * span)
    return ops.add(ops.minimum(turn, ops.sub(2 * span, turn)), low)


def _weight(t: Any, mode: str) -> Any:
    """The kernel at distance t >= 0, at most its support."""
    if mode == "linear":
        return ops.sub(1.0, t)
    near = ops.add(ops.mul(ops.mul(ops.sub(ops.mul(t, _A + 2), _A + 3), t), t), 1.0)
    far = ops.mul(ops.sub(ops.mul(ops.add(ops.mul(ops.sub(t, 5.0), t), 8.0), t), 4.0), _A)
    return ops.where(ops.less_equal(t, 1.0), near, far)
