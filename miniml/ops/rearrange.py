"""Compositions that select, move, repeat or count elements by position: pad, tril, bincount."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.abstract import Shape
from ..core.dtype import bool_
from ..core.errors import AttributeRefusedError, OutOfRangeError, ShapeError
from ..core.options import choice, integer
from ..core.primitive import freeze
from . import reduce
from .checks import broadcasts_to, dtype_of, normal_axis, on_one_device, shape_of
from .control import known_truth
from .create import zeros
from .elementwise import less, select, sub
from .index import as_indices, gather, index_by, scatter_add, values_like
from .shape import (
    Pad,
    Slice,
    SliceGrad,
    broadcast_to,
    concat,
    expand_dims,
    reshape,
    split,
    squeeze,
)

if TYPE_CHECKING:
    from ..core.tensor import Tensor


__all__ = [
    "bincount", "diag", "gather_nd", "masked_fill", "meshgrid", "pad", "repeat", "roll", "tril",
    "triu", "unstack",
]  # fmt: skip


PAD_MODES = ("constant", "edge", "reflect", "symmetric", "wrap")
_OF_PYTORCH = "; PyTorch's 'replicate' is 'edge' here, its 'circular' 'wrap'"


@on_one_device
def pad(x: Any, padding: Any, value: Any = 0, mode: str = "constant") -> Tensor:
    """x with more elements around it: `value`, or by `mode` elements of x, as np.pad places them.

    padding: a pair (before, after) per axis, one such pair for all axes, or one number for both
    sides of all axes. mode: "constant", the value; "edge" repeats the first and the last element;
    "reflect" mirrors x in them, "symmetric" in the ends behind them, so that they are repeated;
    "wrap" goes on with the other end of x, as on a circle. A margin longer than x is mirrored or
    wrapped again. The dtype is kept. ShapeError for an axis without elements to go on with.

    >>> pad([1, 2, 3], (1, 2)).tolist(), pad([1, 2, 3], (1, 2), mode="reflect").tolist()
    ([0, 1, 2, 3, 0, 0], [2, 1, 2, 3, 2, 1])
    """
    frozen = freeze(padding, "Pad", "padding")
    ndim = len(shape_of(x))
    if isinstance(frozen, int):
        frozen = ((frozen, frozen),) * ndim
    elif isinstance(frozen, tuple) and len(frozen) == 2 and all(isinstance(n, int) for n in frozen):
        frozen = (frozen,) * ndim
    pairs = frozen if isinstance(frozen, tuple) else (frozen,)
    if not all(isinstance(p, tuple) and list(map(type, p)) == [int, int] for p in pairs):
        raise ShapeError(f"Pad got padding {padding!r}; give pairs (before, after), one per axis")
    if choice("Pad", "mode", mode, PAD_MODES, _OF_PYTORCH) == "constant":
        return Pad(frozen, value)(x)
    if not isinstance(value, (bool, int, float)) or value != 0:
        raise AttributeRefusedError(
            f"Pad got value={value!r} for mode={mode!r}, which takes elements of x; give one of "
            "the two"
        )
    return _continued(x, frozen, mode)


def _continued(x: Any, padding: tuple[tuple[int, int], ...], mode: str) -> Tensor:
    """x padded by a mode that takes elements of x: `padding` has a pair for each axis."""
    shape = shape_of(x)
    Pad(padding).infer_shape(shape)
    for axis, (n, pair) in enumerate(zip(shape, padding, strict=True)):
        if any(pair) and not n:
            raise ShapeError(
                f"Pad got x of shape {shape} and mode={mode!r}; axis {axis} has no elements to go "
                "on with; mode='constant' fills it"
            )
        if any(pair):
            x = gather(x, np.pad(np.arange(n), pair, mode), axis)  # type: ignore[call-overload]
    return x if any(map(any, padding)) else Pad(padding)(x)


def padding_mode(name: str, mode: str) -> str:
    """The mode of a layer: "zeros", or one of `pad` that takes elements of x."""
    return choice(name, "padding_mode", mode, ("zeros", *PAD_MODES[1:]), _OF_PYTORCH)


@on_one_device
def tril(x: Any, k: int = 0) -> Tensor:
    """x (..., n, m) with 0 above its diagonal k: x[..., i, j] stays where j - i <= k.

    >>> tril([[1, 2], [3, 4]]).tolist()
    [[1, 0], [3, 4]]
    """
    return _triangle("tril", x, k, upper=False)


@on_one_device
def triu(x: Any, k: int = 0) -> Tensor:
    """x (..., n, m) with 0 below its diagonal k: x[..., i, j] stays where j - i >= k."""
    return _triangle("triu", x, k, upper=True)


def _triangle(name: str, x: Any, k: int, upper: bool) -> Tensor:
    shape, k = shape_of(x), integer(name, "k", k)
    if len(shape) < 2:
        raise ShapeError(f"{name} got x of shape {shape}; it takes matrices, of shape (..., n, m)")
    n, m = (1, 1) if 0 in shape else shape[-2:]  # without elements the mask does not matter
    k = max(-n, min(k, m))
    kept = ~np.tri(n, m, k - 1, bool) if upper else np.tri(n, m, k, bool)
    return select(kept, x, False if dtype_of(x) == bool_ else 0)


@on_one_device
def diag(x: Any, k: int = 0) -> Tensor:
    """Diagonal k of a matrix, the elements x[i, i + k]; for a vector, the square matrix that has it
    there and zeros elsewhere.

    ShapeError for other ranks.

    >>> diag([1, 2], -1).tolist()
    [[0, 0, 0], [1, 0, 0], [0, 2, 0]]
    """
    shape, k = shape_of(x), integer("diag", "k", k)
    if len(shape) == 1:
        n = shape[0] + abs(k)
        return reshape(SliceGrad((n * n,), *_diagonal(n, n, k))(x), (n, n))
    if len(shape) == 2:
        return Slice(*_diagonal(*shape, k))(reshape(x, shape[0] * shape[1]))
    raise ShapeError(f"diag got x of shape {shape}; it takes a vector or a matrix")


def _diagonal(n: int, m: int, k: int) -> tuple[Shape, Shape, Shape]:
    """The begin, end and stride of diagonal k of an (n, m) matrix in row-major order."""
    count = max(0, min(n + min(k, 0), m - max(k, 0)))
    begin = (k if k >= 0 else -k * m) if count else 0
    return (begin,), (begin + (count - 1) * (m + 1) + 1 if count else 0,), (m + 1,)


@on_one_device
def roll(x: Any, shift: int | tuple[int, ...], axis: int | tuple[int, ...] | None = None) -> Tensor:
    """x with its elements moved by `shift` along `axis`; those beyond the end re-enter in front.

    With axis=None they move in row-major order; with several axes each has its own shift.

    >>> roll([1, 2, 3, 4], 1).tolist()
    [4, 1, 2, 3]
    """
    if axis is None:
        return reshape(roll(reshape(x, -1), shift, 0), shape_of(x))
    shifts, axes = _entries("roll", "shift", shift), _entries("roll", "axis", axis)
    if len(shifts) == 1 or len(axes) == 1:
        shifts, axes = shifts * len(axes), axes * len(shifts)
    if len(shifts) != len(axes) or not axes:
        raise ShapeError(f"roll got {len(shifts)} shifts for {len(axes)} axes; give one for each")
    for by, along in zip(shifts, axes, strict=True):
        at = normal_axis("roll", along, len(shape_of(x)))
        n = shape_of(x)[at]
        last = by % n if n else 0
        x = concat(split(x, (n - last, last), at)[::-1], at)
    return x  # type: ignore[no-any-return]


@on_one_device
def repeat(x: Any, repeats: int | tuple[int, ...], axis: int | None = None) -> Tensor:
    """Each slice of x along `axis` repeated `repeats` times, or slice i repeats[i] times.

    With axis=None each element is repeated, in row-major order. `tile` repeats x as a whole.

    >>> repeat([1, 2], 2).tolist(), repeat([1, 2], (0, 3)).tolist()
    ([1, 1, 2, 2], [2, 2, 2])
    """
    if axis is None:
        return repeat(reshape(x, -1), repeats, 0)
    shape = shape_of(x)
    at = normal_axis("repeat", axis, len(shape))
    counts = _entries("repeat", "repeats", repeats)
    if len(counts) not in (1, shape[at]) or any(n < 0 for n in counts):
        raise ShapeError(
            f"repeat got repeats={repeats!r} for axis {at} of shape {shape}; give one number of 0 "
            f"or more, or {shape[at]} of them"
        )
    if len(counts) > 1:
        return gather(x, np.repeat(np.arange(shape[at]), counts), at)
    (n,), before, behind = counts, shape[:at], shape[at + 1 :]
    spread = broadcast_to(expand_dims(x, at + 1), (*before, shape[at], n, *behind))
    return reshape(spread, (*before, shape[at] * n, *behind))


def _entries(name: str, what: str, given: Any) -> tuple[int, ...]:
    """One int or several as a tuple; AttributeRefusedError for anything else."""
    frozen = freeze(given, name, what)
    entries = frozen if isinstance(frozen, tuple) else (frozen,)
    if not all(type(n) is int for n in entries):
        raise AttributeRefusedError(f"{name} got {what}={given!r}; it takes whole numbers, ints")
    return entries


@on_one_device
def meshgrid(*xs: Any, indexing: str = "xy") -> tuple[Tensor, ...]:
    """Coordinates of a grid: for each vector of `xs` a tensor in which it runs along its own axis.

    All have one shape, with an axis for each vector. indexing="xy", the default as in NumPy,
    exchanges the axes of the first two; "ij", PyTorch's default, does not.

    >>> [grid.tolist() for grid in meshgrid([1, 2], [5, 6, 7], indexing="ij")]
    [[[1, 1, 1], [2, 2, 2]], [[5, 6, 7], [5, 6, 7]]]
    """
    choice("meshgrid", "indexing", indexing, ("xy", "ij"))
    shapes = [shape_of(x) for x in xs]
    if any(len(shape) > 1 for shape in shapes):
        got = " and ".join(map(str, shapes))
        raise ShapeError(f"meshgrid got tensors of shape {got}; it takes vectors")
    axes = list(range(len(xs)))
    if indexing == "xy" and len(xs) > 1:
        axes[:2] = 1, 0
    extents = [shape[0] if shape else 1 for shape in shapes]
    out = tuple(extents[i] for i in axes)
    return tuple(
        broadcast_to(reshape(x, tuple(n if a == axis else 1 for a in range(len(xs)))), out)
        for x, n, axis in zip(xs, extents, axes, strict=True)
    )


@on_one_device
def unstack(x: Any, axis: int = 0) -> tuple[Tensor, ...]:
    """The slices of x along `axis`, without that axis: the inverse of `stack`."""
    shape = shape_of(x)
    at = normal_axis("unstack", axis, len(shape))
    parts = split(x, (1,) * shape[at], at) if shape[at] else ()
    return tuple(squeeze(part, at) for part in parts)


@on_one_device
def masked_fill(x: Any, mask: Any, value: Any) -> Tensor:
    """x with `value` where `mask` is True, in the dtype of x.

    mask (bool) and value broadcast to x's shape, else ShapeError; DTypeError for a value that x's
    dtype does not hold.

    >>> masked_fill([1.0, 2.0], [True, False], -float("inf")).tolist()
    [-inf, 2.0]
    """
    shape = shape_of(x)
    for name, given in (("mask", mask), ("value", value)):
        if not broadcasts_to(shape_of(given), shape):
            raise ShapeError(
                f"masked_fill got a {name} of shape {shape_of(given)} for x of shape {shape}, to "
                "which it does not broadcast"
            )
    return select(mask, values_like("masked_fill", x, value), x)


@on_one_device
def gather_nd(x: Any, indices: Any) -> Tensor:
    """out[..., :] = x[indices[..., 0], ..., indices[..., k - 1], :], k the last extent of indices.

    The last axis of integer `indices` indexes the first k axes of x, so that out has shape
    indices.shape[:-1] + x.shape[k:]. Negative indices count from the end. ShapeError where x has
    fewer than k axes; OutOfRangeError, as of gather, when it runs. TensorFlow's and ONNX's.

    >>> gather_nd([[1, 2], [3, 4]], [[0, 1], [1, 0]]).tolist()
    [2, 3]
    """
    indices = as_indices("gather_nd", indices)
    shape, extents = shape_of(x), shape_of(indices)
    if not extents or extents[-1] > len(shape):
        raise ShapeError(
            f"gather_nd got indices of shape {extents} for x of shape {shape}; their last axis has "
            f"an index for each of the first axes of x, at most {len(shape)}"
        )
    if extents[-1] == 0:
        return broadcast_to(x, (*extents[:-1], *shape))
    parts = split(indices, extents[-1], -1)
    axes = tuple(range(extents[-1]))
    return index_by(x, tuple(reshape(part, extents[:-1]) for part in parts), axes, 0)


@on_one_device
def bincount(x: Any, length: int, weights: Any = None) -> Tensor:
    """out_i = the number of elements of x equal to i, for i < length; or the sum of their weights.

    x: integers in [0, length), of any shape; weights of the same shape, whose dtype the result has,
    and to which the gradient passes; else it is int64. length: an int, which NumPy's bincount takes
    from the values; here it is part of the program. OutOfRangeError for elements out of range, as
    of scatter_add, which on a GPU leaves it out; the message of a compiled function shows negative
    ones minus `length`.

    >>> bincount([0, 2, 2], 4).tolist(), bincount([0, 2, 2], 4, [0.5, 1.0, 2.0]).tolist()
    ([1, 0, 2, 0], [0.5, 0.0, 3.0, 0.0])
    """
    if not hasattr(type(length), "__index__") or hasattr(length, "dtype") or length < 0:
        raise ShapeError(f"bincount got length={length!r}; it takes an int that is not below 0")
    x = as_indices("bincount", x)
    given = np.ones(shape_of(x), np.int64) if weights is None else weights
    if shape_of(given) != shape_of(x):
        raise ShapeError(
            f"bincount got x of shape {shape_of(x)} and weights of shape {shape_of(given)}; they "
            "must be equal"
        )
    negative = less(x, 0)
    if known_truth("bincount", reduce.any(negative)):
        raise OutOfRangeError("bincount got a negative number; it counts those from 0 on")
    bins = select(negative, sub(x, length), x)  # a negative index would count from the end
    counts = zeros(length, dtype_of(given))
    return scatter_add(counts, reshape(bins, -1), reshape(given, -1))
