"""ONNX's indexing: gathering and scattering, resizing, sampling.

Parts: elements taken from, and put at, given indices; Resize, axis by axis, on the points that ONNX
defines; GridSample, at the points in a tensor.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ... import ops
from ...core.abstract import as_dtype, bool_, float32, int64, is_float
from ...core.errors import OnnxError
from ...ops.images import blended, weighted
from ..operators import Constant, Floats, Ints, Literal, Setting, register_operator, register_writer
from ..tensors import Array, code_of, counted, extent, ints, number
from .elementwise import along
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
    times = counted(extent(x, time_axis)).reshape(along(x, time_axis))
    lengths = ops.reshape(ops.cast(sequence_lens, int64), along(x, batch_axis))
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
            here = grid.outside().reshape(along(x, axis))
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
    d = len(x.shape) - 2
    if not 1 <= d <= 3 or (len(grid.shape), grid.shape[-1]) != (d + 2, d):
        raise OnnxError(f"a grid of shape {tuple(grid.shape)} has no points in {tuple(x.shape)}")
    floats = x if is_float(x.dtype) else ops.cast(x, float32)
    kind = mode.removeprefix("bi")
    out = ops.grid_sample(floats, grid, kind, padding_mode, bool(align_corners))
    return ops.cast(out, x.dtype)


# --- The way back ---------------------------------------------------------------------------------


@register_writer(ops.Gather)
def write_gather(emit: Any, node: Any, x: Any, indices: Any) -> Any:
    return emit("Gather", x, indices, axis=node.primitive.axis)


@register_writer(ops.TakeAlongAxis)
def write_take_along_axis(emit: Any, node: Any, x: Any, indices: Any) -> Any:
    """Axes that broadcast are expanded first."""
    axis = node.primitive.axis
    given, at, out = (v.abstract.shape for v in (*node.inputs, *node.outputs))
    axis %= len(out)
    if at != out:
        indices = emit("Expand", indices, emit.extents(*out))
    full = (*out[:axis], given[axis], *out[axis + 1 :])
    if given != full:
        x = emit("Expand", x, emit.extents(*full))
    return emit("GatherElements", x, indices, axis=axis)


@register_writer(ops.Index)
def write_index(emit: Any, node: Any, x: Any, *indices: Any) -> Any:
    """As GatherND of a tensor whose indexed axes are in front."""
    p, (source, *at) = node.primitive, [v.abstract.shape for v in node.inputs]
    rank = len(source)
    axes = [a % rank for a in p.axes]
    rest = [a for a in range(rank) if a not in axes]
    if axes + rest != list(range(rank)):
        x = emit("Transpose", x, perm=(*axes, *rest))
    taken = emit("GatherND", x, stacked_indices(emit, node, indices))
    depth = len(np.broadcast_shapes(*at))
    order = [*range(depth, depth + p.at), *range(depth), *range(depth + p.at, depth + len(rest))]
    return taken if order == sorted(order) else emit("Transpose", taken, perm=tuple(order))


def stacked_indices(emit: Any, node: Any, indices: Any) -> Any:
    """Index tensors, broadcast to one shape, as the last axis of one of int64."""
    given = node.inputs[-len(indices) :]
    whole = np.broadcast_shapes(*(v.abstract.shape for v in given))
    rows = []
    for value, var in zip(indices, given, strict=True):
        wide = emit("Cast", value, to=code_of(int64))
        if var.abstract.shape != whole:
            wide = emit("Expand", wide, emit.extents(*whole))
        rows.append(emit("Unsqueeze", wide, np.array([-1], np.int64)))
    return emit("Concat", *rows, axis=-1)


@register_writer(ops.ScatterAdd)
def write_scatter_add(emit: Any, node: Any, x: Any, indices: Any, updates: Any) -> Any:
    """As ScatterND of a tensor whose axis is in front."""
    source, at, given = (v.abstract.shape for v in node.inputs)
    axis, rank = node.primitive.axis % len(source), len(source)
    full = (*source[:axis], *at, *source[axis + 1 :])
    if given != full:
        updates = emit("Expand", updates, emit.extents(*full))
    front = (axis, *(a for a in range(rank) if a != axis))
    if axis:
        x = emit("Transpose", x, perm=front)
        moved = range(axis, axis + len(at))
        order = (*moved, *(a for a in range(len(full)) if a not in moved))
        updates = emit("Transpose", updates, perm=order)
    rows = emit("Unsqueeze", emit("Cast", indices, to=code_of(int64)), np.array([-1], np.int64))
    out = emit("ScatterND", x, rows, updates, reduction="add")
    return out if not axis else emit("Transpose", out, perm=tuple(np.argsort(front).tolist()))


@register_writer(ops.Scatter)
def write_scatter(emit: Any, node: Any, x: Any, value: Any, *indices: Any) -> Any:
    """As ScatterElements of the flat tensor, at positions that are known."""
    if indices:
        raise OnnxError("writing x[index] = value is not written where the index is a tensor")
    shape = node.inputs[0].abstract.shape
    index = tuple(node.primitive.index)
    places = np.arange(int(np.prod(shape)), dtype=np.int64).reshape(shape)[index]
    put = emit("Expand", value, np.array(places.shape, np.int64))
    one = np.array([-1], np.int64)
    flat = emit("Reshape", x, one), places.reshape(-1), emit("Reshape", put, one)
    return emit("Reshape", emit("ScatterElements", *flat), np.array(shape, np.int64))


@register_writer(ops.PutAlongAxisAdd)
def write_put_along_axis(emit: Any, node: Any, updates: Any, indices: Any) -> Any:
    given, at, out = (v.abstract for v in (*node.inputs, *node.outputs))
    zero = Literal(out.dtype, (1,), np.zeros(1, out.dtype).tobytes())
    zeros = emit("ConstantOfShape", emit.extents(*out.shape), value=zero)
    if at.shape != given.shape:
        indices = emit("Expand", indices, emit.extents(*given.shape))
    axis = node.primitive.axis
    return emit("ScatterElements", zeros, indices, updates, axis=axis, reduction="add")


@register_writer(ops.IndexAdd)
def write_index_add(emit: Any, node: Any, updates: Any, *indices: Any) -> Any:
    """As ScatterND into zeros whose indexed axes are in front."""
    p, out = node.primitive, node.outputs[0].abstract
    rank = len(out.shape)
    axes = [a % rank for a in p.axes]
    order = [*axes, *(a for a in range(rank) if a not in axes)]
    depth = len(np.broadcast_shapes(*(v.abstract.shape for v in node.inputs[1:])))
    zero = Literal(out.dtype, (1,), np.zeros(1, out.dtype).tobytes())
    zeros = emit("ConstantOfShape", emit.extents(*(out.shape[a] for a in order)), value=zero)
    front = [
        *range(p.at, p.at + depth),
        *range(p.at),
        *range(p.at + depth, rank - len(axes) + depth),
    ]
    if front != sorted(front):
        updates = emit("Transpose", updates, perm=tuple(front))
    at = stacked_indices(emit, node, indices)
    put = emit("ScatterND", zeros, at, updates, reduction="add")
    if order == sorted(order):
        return put
    return emit("Transpose", put, perm=tuple(np.argsort(order).tolist()))
