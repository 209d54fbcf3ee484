"""ONNX's indexing: gathering and scattering, resizing, sampling.

Parts: elements taken from, and put at, given indices; Resize, axis by axis, on the points that ONNX
defines; GridSample, at the points in a tensor, from the elements around each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from ... import ops
from ...core.dtype import as_dtype, bool_, float32, int64, is_float
from ...core.errors import OnnxError
from ...ops.images import blended, weighted
from ..operators import Constant, Floats, Ints, Setting, register_operator
from ..tensors import Array, counted, extent, ints, number
from .shape import flatten

# --- Gathering and scattering ---------------------------------------------------------------------


@register_operator("", "Gather", (1, None))
def gather(x: Any, indices: Any, *, axis: int = 0) -> Any:
    return ops.gather(x, indices, axis)


@register_operator("", "GatherElements", (11, None))
def gather_elements(x: Any, indices: Any, *, axis: int = 0) -> Any:
    return ops.getitem(x, _elements(x, indices, axis))


def _elements(x: Any, indices: Any, axis: int) -> tuple[Any, ...]:
    """One index tensor for each axis: `indices` along `axis`, their own positions elsewhere."""
    extent(x, axis)
    if len(indices.shape) != len(x.shape):
        raise OnnxError(f"got indices of shape {tuple(indices.shape)} into {tuple(x.shape)}")
    places: list[Any] = [
        counted(n).reshape((-1, *(1,) * (len(x.shape) - 1 - i)))
        for i, n in enumerate(indices.shape)
    ]
    places[axis] = ops.cast(indices, int64)
    return tuple(places)


@register_operator("", "GatherND", (11, None))
def gather_nd(x: Any, indices: Any, *, batch_dims: int = 0) -> Any:
    return ops.getitem(x, _tuples(x, indices, batch_dims))


def _tuples(x: Any, indices: Any, batch_dims: int = 0) -> tuple[Any, ...]:
    """The entries of the last axis of `indices` as index tensors, after those of the batch axes."""
    count, rest = extent(indices, -1), len(indices.shape) - 1
    if not 0 <= batch_dims <= len(x.shape) - count:
        raise OnnxError(f"has {count} indices behind {batch_dims} axes of {tuple(x.shape)}")
    batch = [
        counted(n).reshape((-1, *(1,) * (rest - 1 - i)))
        for i, n in enumerate(indices.shape[:batch_dims])
    ]
    parts = ops.split(ops.cast(indices, int64), count, -1) if count else ()
    return (*batch, *(ops.squeeze(p, -1) for p in parts))


@register_operator("", "ScatterElements", (11, None))
def scatter_elements(
    x: Any, indices: Any, updates: Any, *, axis: int = 0, reduction: str = "none"
) -> Any:
    return _scattered(x, _elements(x, indices, axis), updates, reduction)


@register_operator("", "Scatter", (9, 10))
def scatter(x: Any, indices: Any, updates: Any, *, axis: int = 0) -> Any:
    return _scattered(x, _elements(x, indices, axis), updates, "none")


@register_operator("", "ScatterND", (11, None))
def scatter_nd(x: Any, indices: Any, updates: Any, *, reduction: str = "none") -> Any:
    return _scattered(x, _tuples(x, indices), updates, reduction)


def _scattered(x: Any, places: tuple[Any, ...], updates: Any, reduction: str) -> Any:
    """x with updates at the given indices, put there or combined with its elements."""
    if reduction not in ("none", "add", "mul", "max", "min"):
        raise OnnxError(f"reduction {reduction!r} is not none, add, mul, max or min")
    return ops.scatter(x, places, updates, "set" if reduction == "none" else reduction)


def positions(indices: Any, n: int) -> Any:
    """Indices counted from the start; those below 0 count from the end of an axis of extent n."""
    wide = ops.cast(indices, int64)
    return ops.where(ops.less(wide, 0), ops.add(wide, n), wide)


@register_operator("", "OneHot", (9, None))
def one_hot(indices: Any, depth: Constant, values: Setting, *, axis: int = -1) -> Any:
    n = int(number(depth))
    places = positions(indices, n)
    hot = ops.moveaxis(ops.one_hot(places, n, bool_), -1, axis)
    off, on = ops.split(values, 2)
    return ops.where(hot, ops.reshape(on, ()), ops.reshape(off, ()))


@register_operator("", "NonZero", (9, None))
def nonzero(x: Constant) -> Any:
    return np.array(np.nonzero(x), np.int64)


@register_operator("", "Compress", (9, None))
def compress(x: Any, condition: Constant, *, axis: int | None = None) -> Any:
    flat = ops.reshape(x, -1) if axis is None else x
    return ops.gather(flat, np.flatnonzero(condition).astype(np.int64), axis or 0)


@register_operator("", "Trilu", (14, None))
def trilu(x: Any, k: Constant | None = None, *, upper: int = 1) -> Any:
    return (ops.triu if upper else ops.tril)(x, 0 if k is None else int(number(k)))


@register_operator("", "ReverseSequence", (10, None))
def reverse_sequence(x: Any, sequence_lens: Any, *, batch_axis: int = 1, time_axis: int = 0) -> Any:
    times = counted(extent(x, time_axis)).reshape(_along(x, time_axis))
    lengths = ops.reshape(ops.cast(sequence_lens, int64), _along(x, batch_axis))
    turned = ops.where(ops.less(times, lengths), ops.sub(ops.sub(lengths, 1), times), times)
    shape = [1] * len(x.shape)
    shape[batch_axis], shape[time_axis] = extent(x, batch_axis), extent(x, time_axis)
    return ops.take_along_axis(x, ops.broadcast_to(turned, tuple(shape)), time_axis)


@register_operator("ai.onnx.ml", "ArrayFeatureExtractor", (1, None))
def array_feature_extractor(x: Any, indices: Any) -> Any:
    return ops.gather(flatten(x, axis=-1), ops.reshape(indices, -1), 1)


@register_operator("", "TensorScatter", (24, None))
def tensor_scatter(
    past: Any, update: Any, write_indices: Any = None, *, axis: int = -2, mode: str = "linear"
) -> Any:
    n, steps = extent(past, axis), counted(extent(update, axis))
    batch = counted(extent(past, 0))[:, None]
    starts = batch * 0 if write_indices is None else write_indices
    places = ops.add(ops.reshape(starts, (-1, 1)), steps)
    places = ops.mod(places, n) if mode == "circular" else places
    front = ops.moveaxis(past, axis, 1)
    return ops.moveaxis(ops.scatter(front, (batch, places), ops.moveaxis(update, axis, 1)), 1, axis)


def _along(x: Any, axis: int) -> tuple[int, ...]:
    shape = [1] * len(x.shape)
    shape[axis] = -1
    return tuple(shape)


# --- Resizing -------------------------------------------------------------------------------------


@register_operator("", "Upsample", (7, 8))
def upsample_attribute(x: Any, *, scales: Floats, mode: str = "nearest") -> Any:
    return resize_asymmetric(x, np.array(scales), mode=mode)


@register_operator("", "Upsample", (9, 9))
def upsample(x: Any, scales: Constant, *, mode: str = "nearest") -> Any:
    return resize_asymmetric(x, scales, mode=mode)


@register_operator("", "Resize", (10, 10))
def resize_asymmetric(x: Any, scales: Constant, *, mode: str = "nearest") -> Any:
    return resize(
        x, None, scales, mode=mode, coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )  # fmt: skip


@register_operator("", "Resize", (11, None))
def resize(
    x: Any, roi: Constant | None = None, scales: Constant | None = None,
    sizes: Constant | None = None, *, mode: str = "nearest",
    coordinate_transformation_mode: str = "half_pixel", cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0, extrapolation_value: float = 0.0,
    nearest_mode: str = "round_prefer_floor", antialias: int = 0, axes: Ints | None = None,
    keep_aspect_ratio_policy: str = "stretch",
) -> Any:  # fmt: skip
    """Axis by axis: nearest elements, or sums of neighbours with the weights of a kernel."""
    if mode not in ("nearest", "linear", "cubic"):
        raise OnnxError(f"mode {mode!r} is not nearest, linear or cubic")
    outside: Any = None
    values = x if is_float(as_dtype(x.dtype)) else ops.cast(x, float32)
    named = tuple(range(len(x.shape))) if axes is None else axes
    given = _scales(x, named, scales, sizes, keep_aspect_ratio_policy)
    bounds = np.zeros(0) if roi is None else roi
    for i, (axis, (scale, count)) in enumerate(zip(named, given, strict=True)):
        grid = Grid(extent(x, axis), count, scale, coordinate_transformation_mode)
        if bounds.size == 2 * len(named):
            start, stop = float(bounds[i]), float(bounds[i + len(named)])
            grid = replace(grid, start=start, stop=stop)
        if (grid.extent, scale) == (count, 1.0) and (grid.start, grid.stop) == (0.0, 1.0):
            continue
        if mode == "nearest":
            values = ops.gather(values, nearest(grid, nearest_mode), axis)
        else:
            points, cubic = grid.points(), mode == "cubic"
            shrunk = min(scale, 1.0) if antialias else 1.0
            if shrunk < 0.005:
                raise OnnxError(f"antialias of scale {scale} takes too many elements for each")
            near = weighted(
                points, grid.extent, cubic, cubic_coeff_a, shrunk, bool(exclude_outside)
            )
            values = blended(values, axis % len(x.shape), *near)
        if grid.outside().any():
            here = grid.outside().reshape(_along(x, axis))
            outside = here if outside is None else ops.logical_or(outside, here)
    if outside is not None:
        values = ops.where(outside, extrapolation_value, values)
    return ops.cast(values, x.dtype)


def _scales(
    x: Any, axes: Ints, scales: Constant | None, sizes: Constant | None, policy: str
) -> list[tuple[float, int]]:
    """(scale, extent of the output) for each axis, from scales or from sizes."""
    extents = [extent(x, a) for a in axes]
    if sizes is None or not sizes.size:
        if scales is None or scales.size != len(axes) or scales.min() <= 0:
            raise OnnxError(f"needs sizes, or scales > 0, one for each of {len(axes)} axes")
        found = [(float(s), int(n * float(s))) for s, n in zip(scales, extents, strict=True)]
    else:
        found = [(m / n, m) for m, n in zip(ints(sizes), extents, strict=True)]
        if policy != "stretch":
            if policy not in ("not_larger", "not_smaller"):
                raise OnnxError(f"keep_aspect_ratio_policy {policy!r} is unknown")
            scale = (min if policy == "not_larger" else max)(s for s, _ in found)
            found = [(scale, int(scale * n + 0.5)) for n in extents]
    return found


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
        """(count,): True for outputs outside of the input, in the mode that gives them a value."""
        x = self.points()
        return np.asarray((self.mode == "tf_crop_and_resize") & ((x < 0) | (x > self.extent - 1)))


_ROUNDINGS: dict[str, Callable[[Array], Array]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


def nearest(grid: Grid, rounding: str) -> Array:
    """(count,): the index of the input nearest to each output."""
    if rounding not in _ROUNDINGS:
        raise OnnxError(f"nearest_mode {rounding!r} is not {', '.join(_ROUNDINGS)}")
    found = _ROUNDINGS[rounding](grid.points())
    return np.asarray(np.clip(found, 0, grid.extent - 1).astype(np.int64))


# --- Sampling -------------------------------------------------------------------------------------


@register_operator("", "GridSample", (16, None))
def grid_sample(
    x: Any, grid: Any, *, align_corners: int = 0, mode: str = "linear", padding_mode: str = "zeros"
) -> Any:
    return sampled(x, grid, mode.removeprefix("bi"), padding_mode, bool(align_corners))


_REACH = {"nearest": (0,), "linear": (0, 1), "cubic": (-1, 0, 1, 2)}  # taps, from the floor on
_A = -0.75  # of Keys' cubic kernel


def sampled(x: Any, grid: Any, mode: str, padding: str, align_corners: bool) -> Any:
    """x (N, C, ...) at the points of grid (N, *out, d), whose axes run from -1 to 1 and whose first
    coordinate is that of the last axis: (N, C, *out), for d from 1 to 3.

    mode: nearest, linear or cubic. padding: of x, by zeros, border or reflection.
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
    """(index, weight) for each of the neighbouring elements, along one axis of extent n."""
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
    at: Any, share: Any, k: int, n: int, mode: str, padding: str, low: float, high: float
) -> tuple[Any, Any]:
    """The index of the element at `at`, k from the floor, and its weight, 0 in a zero padding."""
    weight = None if mode == "nearest" else _weight(ops.abs(ops.sub(share, float(k))), mode)
    if padding == "zeros":
        inside = ops.logical_and(ops.greater_equal(at, 0.0), ops.less(at, float(n)))
        real = ops.cast(inside, share.dtype)
        weight = real if weight is None else ops.mul(weight, real)
    index = ops.clip(_inside(at, padding, n, low, high), 0.0, n - 1.0)
    return ops.cast(index, int64), weight


def _inside(at: Any, padding: str, n: int, low: float, high: float) -> Any:
    """Coordinates, mapped into the image where its padding repeats it."""
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
