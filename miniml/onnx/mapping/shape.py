"""ONNX's operators on shapes: reshaping and reordering; joining, cutting, slicing and padding.

Then tensors made of numbers alone: constants, ranges and windows.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ... import ops
from ...core.abstract import as_dtype
from ...core.errors import OnnxError
from ..operators import Constant, Floats, Ints, Literal, Strings, register_operator, register_writer
from ..reader import Node
from ..tensors import checked_shape, code_of, counted, dtype_of, extent, ints, number, table

# --- Reshaping and reordering ---------------------------------------------------------------------


@register_operator("", "Identity", (1, None))
def identity(x: Any) -> Any:
    return x


@register_operator("", "Shape", (1, None))
def shape(x: Any, *, start: int = 0, end: int | None = None) -> Any:
    return np.array(tuple(x.shape)[start:end], np.int64)


@register_operator("", "Size", (1, None))
def size(x: Any) -> Any:
    return np.array(prod(x.shape), np.int64)


@register_operator("", "Reshape", (5, None))
def reshape(x: Any, shape: Constant, *, allowzero: int = 0) -> Any:
    target = ints(shape)
    if not allowzero:
        if 0 in target[len(x.shape) :]:
            raise OnnxError(f"shape {target} copies an extent that {tuple(x.shape)} lacks")
        target = tuple(n or x.shape[i] for i, n in enumerate(target))
    return ops.reshape(x, target)


@register_operator("", "Flatten", (1, None))
def flatten(x: Any, *, axis: int = 1) -> Any:
    split = axis if axis >= 0 else axis + len(x.shape)
    return ops.reshape(x, (prod(x.shape[:split]), prod(x.shape[split:])))


@register_operator("", "Transpose", (1, None))
def transpose(x: Any, *, perm: Ints | None = None) -> Any:
    return ops.transpose(x, perm)


@register_operator("", "Squeeze", (1, 12))
def squeeze_axes(x: Any, *, axes: Ints | None = None) -> Any:
    return ops.squeeze(x, axes)


@register_operator("", "Squeeze", (13, None))
def squeeze(x: Any, axes: Constant | None = None) -> Any:
    return ops.squeeze(x, None if axes is None else ints(axes))


@register_operator("", "Unsqueeze", (1, 12))
def unsqueeze_axes(x: Any, *, axes: Ints) -> Any:
    return ops.expand_dims(x, axes)


@register_operator("", "Unsqueeze", (13, None))
def unsqueeze(x: Any, axes: Constant) -> Any:
    return ops.expand_dims(x, ints(axes))


@register_operator("", "Expand", (8, None))
def expand(x: Any, shape: Constant) -> Any:
    return ops.broadcast_to(x, np.broadcast_shapes(tuple(x.shape), ints(shape)))


@register_operator("", "Tile", (6, None))
def tile(x: Any, repeats: Constant) -> Any:
    return ops.tile(x, ints(repeats))


def _check_blocks(x: Any) -> None:
    if len(x.shape) != 4:
        raise OnnxError(f"got shape {tuple(x.shape)}; expected (N, C, H, W)")


@register_operator("", "DepthToSpace", (1, None))
def depth_to_space(x: Any, *, blocksize: int, mode: str = "DCR") -> Any:
    _check_blocks(x)
    return ops.depth_to_space(x, blocksize, mode)


@register_operator("", "SpaceToDepth", (1, None))
def space_to_depth(x: Any, *, blocksize: int, mode: str = "DCR") -> Any:
    _check_blocks(x)
    return ops.space_to_depth(x, blocksize, mode)


# --- Joining, cutting, slicing and padding --------------------------------------------------------


@register_operator("", "Concat", (4, None))
def concat(*xs: Any, axis: int) -> Any:
    return ops.concat(list(xs), axis)


@register_operator("ai.onnx.ml", "ZipMap", (1, None))
def zip_map(
    x: Any, *, classlabels_int64s: Ints | None = None, classlabels_strings: Strings | None = None
) -> Any:
    """x itself: a column for each label, in their order, in place of a map for each row."""
    return x


@register_operator("", "Split", (2, 12))
def split_sizes(x: Any, *, axis: int = 0, split: Ints | None = None, node: Node) -> Any:
    return ops.split(x, split or _parts(x, axis, len(node.outputs)), axis)


@register_operator("", "Split", (13, None))
def split(
    x: Any, split: Constant | None = None, *, axis: int = 0, num_outputs: int | None = None,
    node: Node,
) -> Any:  # fmt: skip
    if num_outputs not in (None, len(node.outputs)):
        raise OnnxError(f"has num_outputs {num_outputs} and {len(node.outputs)} outputs")
    sizes = _parts(x, axis, len(node.outputs)) if split is None else ints(split)
    return ops.split(x, sizes, axis)


def _parts(x: Any, axis: int, count: int) -> Ints:
    """The extents of `count` parts, of which the last may be smaller."""
    n = extent(x, axis)
    if not 0 < count <= max(n, 1):
        raise OnnxError(f"cannot cut extent {n} into {count} parts")
    size = -(-n // count)
    return (size,) * (count - 1) + (n - size * (count - 1),)


@register_operator("", "Slice", (1, 9))
def slice_attributes(x: Any, *, starts: Ints, ends: Ints, axes: Ints | None = None) -> Any:
    return _sliced(x, starts, ends, axes, None)


@register_operator("", "Slice", (10, None))
def slice(
    x: Any,
    starts: Constant,
    ends: Constant,
    axes: Constant | None = None,
    steps: Constant | None = None,
) -> Any:
    named = [None if v is None else ints(v) for v in (axes, steps)]
    return _sliced(x, ints(starts), ints(ends), *named)


def _sliced(x: Any, starts: Ints, ends: Ints, axes: Ints | None, steps: Ints | None) -> Any:
    """x[start:end:step] along each of the axes; ends beyond the extents are clipped."""
    axes = axes or tuple(range(len(starts)))
    steps = steps or (1,) * len(starts)
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise OnnxError(
            f"starts {starts}, ends {ends}, axes {axes}, steps {steps} differ in number"
        )
    rows: list[tuple[Any, Any, Any]] = [(None, None, None)] * len(x.shape)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        n = extent(x, axis)
        # An end below -n runs backwards past the first element; in Python that is None.
        rows[axis] = (start, None if step < 0 and end < -n else end, step)
    return ops.slice(x, *zip(*rows, strict=True)) if rows else x


@register_operator("", "Pad", (2, 10))
def pad_attributes(x: Any, *, pads: Ints, mode: str = "constant", value: float = 0.0) -> Any:
    return padded(x, _pairs(x, pads, range(len(x.shape))), mode, value)


@register_operator("", "Pad", (11, None))
def pad(
    x: Any,
    pads: Constant,
    constant_value: Constant | None = None,
    axes: Constant | None = None,
    *,
    mode: str = "constant",
) -> Any:
    value = 0 if constant_value is None or not constant_value.size else number(constant_value)
    named = range(len(x.shape)) if axes is None else ints(axes)
    return padded(x, _pairs(x, ints(pads), named), mode, value)


def _pairs(x: Any, pads: Ints, axes: Any) -> list[tuple[int, int]]:
    """(before, after) for each axis; `pads` has all befores, then all afters."""
    if len(pads) != 2 * len(axes):
        raise OnnxError(f"got {len(pads)} pads for {len(axes)} axes; expected two for each")
    pairs = [(0, 0)] * len(x.shape)
    for i, axis in enumerate(axes):
        extent(x, axis)
        pairs[axis] = (pads[i], pads[i + len(axes)])
    return pairs


def padded(x: Any, pairs: list[tuple[int, int]], mode: str, value: Any = 0) -> Any:
    """x with (before, after) more elements along each axis, or with fewer where negative: of one
    value, or by "edge", "reflect" or "wrap" the elements of x."""
    cut = [(max(-b, 0), n - max(-a, 0)) for (b, a), n in zip(pairs, x.shape, strict=True)]
    if any((b, e) != (0, n) for (b, e), n in zip(cut, x.shape, strict=True)):
        x = ops.slice(x, *zip(*cut, strict=True))
    pairs = [(max(b, 0), max(a, 0)) for b, a in pairs]
    if mode == "constant":
        whole = int(value) if as_dtype(x.dtype).kind in "iu" else value
        return ops.pad(x, tuple(pairs), whole) if any(map(any, pairs)) else x
    if mode not in ("edge", "reflect", "wrap"):
        raise OnnxError(f"mode {mode!r} is not constant, edge, reflect or wrap")
    for n, pair in zip(x.shape, pairs, strict=True):
        table(n + sum(pair))  # an index for each element
    return ops.pad(x, tuple(pairs), mode=mode)


@register_operator("", "CenterCropPad", (18, None))
def center_crop_pad(x: Any, shape: Constant, *, axes: Ints | None = None) -> Any:
    pairs = [(0, 0)] * len(x.shape)
    for axis, n in zip(axes or range(len(x.shape)), ints(shape), strict=True):
        more = n - extent(x, axis)
        before = more // 2 if more >= 0 else -(-more // 2)
        pairs[axis] = (before, more - before)
    return padded(x, pairs, "constant")


# --- The way back ---------------------------------------------------------------------------------


@register_writer(ops.Reshape)
def write_reshape(emit: Any, node: Any, x: Any) -> Any:
    return emit("Reshape", x, emit.extents(*node.outputs[0].abstract.shape), allowzero=_zero(node))


def _zero(node: Any) -> int:
    """1 where an extent of the result is 0, which would else stand for the input's."""
    return int(0 in node.outputs[0].abstract.shape)


@register_writer(ops.ExpandDims)
def write_expand_dims(emit: Any, node: Any, x: Any) -> Any:
    axes = node.primitive.axis
    return emit("Unsqueeze", x, np.array([axes] if isinstance(axes, int) else axes, np.int64))


@register_writer(ops.Squeeze)
def write_squeeze(emit: Any, node: Any, x: Any) -> Any:
    axes, shape = node.primitive.axis, node.inputs[0].abstract.shape
    if axes is None:
        axes = tuple(i for i, n in enumerate(shape) if n == 1)
    return emit("Squeeze", x, np.array([axes] if isinstance(axes, int) else axes, np.int64))


@register_writer(ops.Transpose)
def write_transpose(emit: Any, node: Any, x: Any) -> Any:
    rank = len(node.inputs[0].abstract.shape)
    return emit("Transpose", x, perm=tuple(axis % rank for axis in node.primitive.axes))


@register_writer(ops.BroadcastTo)
def write_broadcast_to(emit: Any, node: Any, x: Any) -> Any:
    """As Expand, which broadcasts both ways: axes that stay have 1."""
    given, shape = (v.abstract.shape for v in (node.inputs[0], node.outputs[0]))
    own = (1,) * (len(shape) - len(given)) + given
    return emit("Expand", x, emit.extents(*(1 if a == b else b for a, b in zip(own, shape))))


@register_writer(ops.SumTo)
def write_sum_to(emit: Any, node: Any, x: Any) -> Any:
    given, shape = node.inputs[0].abstract.shape, node.primitive.shape
    more = len(given) - len(shape)
    kept = [more + i for i, n in enumerate(shape) if n == 1 and given[more + i] != 1]
    for axes, keep in ((kept, 1), (list(range(more)), 0)):
        if axes:
            x = emit("ReduceSum", x, np.array(axes, np.int64), keepdims=keep)
    return x


@register_writer(ops.Concat)
def write_concat(emit: Any, node: Any, *xs: Any) -> Any:
    return emit("Concat", *xs, axis=node.primitive.axis)


@register_writer(ops.Split)
def write_split(emit: Any, node: Any, x: Any) -> Any:
    axis = node.primitive.axis
    sizes = [v.abstract.shape[axis] for v in node.outputs]
    return emit.several(len(sizes), "Split", x, emit.extents(*sizes), axis=axis)


WHOLE = 2**63 - 1  # the end of a slice that goes to the end of its axis, whatever the extent


@register_writer(ops.Slice)
def write_slice(emit: Any, node: Any, x: Any) -> Any:
    primitive, shape = node.primitive, node.inputs[0].abstract.shape
    spans = zip(shape, primitive.begin, primitive.end, primitive.strides, strict=True)
    rows = [
        (i, begin, -WHOLE if end < 0 else WHOLE if end == n and stride > 0 else end, stride)
        for i, (n, begin, end, stride) in enumerate(spans)
        if (begin, end, stride) != (0, n, 1)
    ]
    if rows:
        axes, begins, ends, strides = zip(*rows, strict=True)
        fixed = [np.array(v, np.int64) for v in (axes, strides)]
        x = emit("Slice", x, emit.extents(*begins), emit.extents(*ends), *fixed)
    dropped = primitive.dropped
    if dropped:
        return emit("Squeeze", x, np.array(dropped, np.int64))
    return x if rows else emit("Identity", x)


@register_writer(ops.SliceGrad)
def write_slice_grad(emit: Any, node: Any, dout: Any) -> Any:
    """Zeros into which the elements go."""
    primitive = node.primitive
    at = tuple(
        np.s_[b : None if e < 0 else e : s]
        for b, e, s in zip(primitive.begin, primitive.end, primitive.strides, strict=True)
    )
    places = np.arange(prod(primitive.shape)).reshape(primitive.shape)[at].reshape(-1)
    dtype = node.inputs[0].abstract.dtype
    zeros = np.zeros(prod(primitive.shape), dtype)
    flat = emit("Reshape", dout, np.array([-1], np.int64))
    put = emit("ScatterElements", zeros, places.astype(np.int64), flat)
    return emit("Reshape", put, np.array(primitive.shape, np.int64), allowzero=_zero(node))


@register_writer(ops.Pad)
def write_pad(emit: Any, node: Any, x: Any) -> Any:
    if not node.primitive.padding:
        return emit("Identity", x)
    around = np.array(node.primitive.padding, np.int64).reshape(-1, 2)
    value = np.array(node.primitive.value, node.inputs[0].abstract.dtype)
    return emit("Pad", x, emit.extents(*around.T.reshape(-1)), value)


@register_writer(ops.Flip)
def write_flip(emit: Any, node: Any, x: Any) -> Any:
    axes, rank = node.primitive.axis, len(node.inputs[0].abstract.shape)
    axes = range(rank) if axes is None else [axes] if isinstance(axes, int) else axes
    if not axes:
        return emit("Identity", x)
    minus, least = (np.full(len(axes), n, np.int64) for n in (-1, -WHOLE))
    return emit("Slice", x, minus, least, np.array(axes, np.int64), minus)


@register_writer(ops.SlidingWindow)
def write_sliding_window(emit: Any, node: Any, x: Any) -> Any:
    """As Gather of the positions of every window, whose axis then comes last."""
    p, (out,) = node.primitive, [v.abstract.shape for v in node.outputs]
    axis, rank = p.axis % (len(out) - 1), len(out)
    starts = np.arange(out[axis], dtype=np.int64)[:, None] * p.step
    taken = emit("Gather", x, starts + np.arange(p.size), axis=axis)
    order = [a for a in range(rank) if a != axis + 1] + [axis + 1]
    return emit("Transpose", taken, perm=tuple(order))


# --- Tensors from numbers alone -------------------------------------------------------------------


@register_operator("", "Constant", (1, None))
def constant(
    *,
    value: Literal | None = None,
    value_float: float | None = None,
    value_floats: Floats | None = None,
    value_int: int | None = None,
    value_ints: Ints | None = None,
) -> Any:
    if value is not None:
        return value.array
    floats = value_float if value_floats is None else value_floats
    if floats is not None:
        return np.array(floats, np.float32)
    whole = value_int if value_ints is None else value_ints
    if whole is None:
        raise OnnxError("has no value that miniml reads: a tensor, numbers, or a list of numbers")
    return np.array(whole, np.int64)


@register_operator("", "ConstantOfShape", (9, None))
def constant_of_shape(shape: Constant, *, value: Literal | None = None) -> Any:
    filled = np.zeros(1, np.float32) if value is None else value.array
    extents = checked_shape(ints(shape), filled.itemsize, "its output")
    return ops.full(extents, number(filled), filled.dtype)


@register_operator("", "Range", (11, None))
def arange(start: Constant, limit: Constant, delta: Constant, *, stash_type: int = 1) -> Any:
    first, last, step = (number(v) for v in (start, limit, delta))
    if step == 0:
        raise OnnxError("delta is 0")
    count = max(0, int(np.ceil((last - first) / step)))
    checked_shape((count,), start.dtype.itemsize, "its output")
    if start.dtype.kind in "iu":
        return ops.arange(first, first + count * step, step, start.dtype)
    return ops.cast(ops.add(ops.mul(ops.arange(count, dtype="float64"), step), first), start.dtype)


@register_operator("", "EyeLike", (9, None))
def eye_like(x: Any, *, dtype: int | None = None, k: int = 0) -> Any:
    kind = as_dtype(x.dtype) if dtype is None else dtype_of(dtype, "the output")
    rows, columns = counted(extent(x, 0)), counted(extent(x, 1))
    return ops.cast(ops.equal(ops.add(rows[:, None], k), columns), kind)


def _window(size: Constant, periodic: int, dtype: int, weights: Floats) -> Any:
    """A sum of cosines: weights[k] * cos(2 pi k n / N), N being size or, if symmetric, size - 1."""
    n = int(number(size))
    angles = 2 * np.pi * counted(n) / max(n if periodic else n - 1, 1)
    values = sum(w * np.cos(k * angles) for k, w in enumerate(weights))
    return np.asarray(values).astype(dtype_of(dtype, "the output"))


def _register_window(type: str, weights: Floats) -> None:
    @register_operator("", type, (17, None))
    def window(size: Constant, *, output_datatype: int = 1, periodic: int = 1) -> Any:
        return _window(size, periodic, output_datatype, weights)


_register_window("HannWindow", (0.5, -0.5))
_register_window("HammingWindow", (25 / 46, -21 / 46))
_register_window("BlackmanWindow", (0.42, -0.5, 0.08))


@register_operator("", "MelWeightMatrix", (17, None))
def mel_weight_matrix(
    num_mel_bins: Constant,
    dft_length: Constant,
    sample_rate: Constant,
    lower_edge_hertz: Constant,
    upper_edge_hertz: Constant,
    *,
    output_datatype: int = 1,
) -> Any:
    """Triangles between neighbouring edges, which lie at equal distances in mel."""
    bins, length, rate = (int(number(v)) for v in (num_mel_bins, dft_length, sample_rate))
    spectrum = length // 2 + 1
    table(spectrum, bins)
    low, high = (2595 * np.log10(1 + number(v) / 700) for v in (lower_edge_hertz, upper_edge_hertz))
    mel = low + counted(bins + 2) * (high - low) / (bins + 2)
    edges = (700 * (10 ** (mel / 2595) - 1) * (length + 1) // rate).astype(np.int64)
    if edges[0] < 0 or edges[-1] >= spectrum:
        raise OnnxError(f"has edges {edges[0]} to {edges[-1]}; the spectrum has {spectrum} places")
    out = np.zeros((spectrum, bins))
    for i, (left, middle, right) in enumerate(zip(edges, edges[1:], edges[2:], strict=False)):
        rising = np.arange(left, middle + 1)
        out[rising, i] = (rising - left) / (middle - left) if middle > left else 1
        falling = np.arange(middle, right)
        out[falling, i] = (right - falling) / (right - middle)
    return out.astype(dtype_of(output_datatype, "the output"))


# --- The way back ---------------------------------------------------------------------------------


@register_writer(ops.Full)
def write_full(emit: Any, node: Any) -> Any:
    primitive = node.primitive
    value = np.array([primitive.value], primitive.dtype)
    literal = Literal(primitive.dtype, (1,), value.tobytes())
    return emit("ConstantOfShape", emit.extents(*primitive.shape), value=literal)


@register_writer(ops.Arange)
def write_arange(emit: Any, node: Any) -> Any:
    """start + step * (0, 1, ...), of a count that may follow an open extent."""
    primitive = node.primitive
    (count,) = node.outputs[0].abstract.shape
    none = np.array([0], np.int64)
    numbers = emit("Range", np.int64(0), emit("Squeeze", emit.extents(count), none), np.int64(1))
    start, step = (np.array(n, primitive.dtype) for n in (primitive.start, primitive.step))
    spaced = emit("Mul", emit("Cast", numbers, to=code_of(primitive.dtype)), step)
    return emit("Add", spaced, start)


@register_writer(ops.Eye)
def write_eye(emit: Any, node: Any) -> Any:
    primitive = node.primitive
    shape = emit("ConstantOfShape", emit.extents(primitive.n, primitive.m))
    return emit("EyeLike", shape, dtype=code_of(primitive.dtype))


@register_writer(ops.Linspace)
def write_linspace(emit: Any, node: Any) -> Any:
    p = node.primitive
    return emit("Identity", np.linspace(p.start, p.stop, p.num, dtype=p.dtype))
