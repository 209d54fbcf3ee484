"""ONNX's constants, ranges and windows: tensors made of numbers alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import ops
from ...core.dtype import as_dtype
from ...core.errors import OnnxError
from ..operators import Constant, Floats, Ints, Literal, register_operator, register_writer
from ..tensors import checked_shape, code_of, counted, dtype_of, extent, ints, number, table


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
def range(start: Constant, limit: Constant, delta: Constant, *, stash_type: int = 1) -> Any:
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


@register_writer(ops.OneHot)
def write_one_hot(emit: Any, node: Any, x: Any) -> Any:
    """A comparison with 0, 1, ...: ONNX's OneHot counts negative indices from the end."""
    primitive = node.primitive
    column = emit("Unsqueeze", x, np.array([-1], np.int64))
    columns = np.arange(primitive.depth).astype(node.inputs[0].abstract.dtype)
    return emit("Cast", emit("Equal", column, columns), to=code_of(primitive.dtype))
