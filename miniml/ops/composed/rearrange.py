"""Elements kept, moved, repeated or counted by place, made of other operations: tril, roll ..."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...abstract import Shape
from ...attributes import freeze
from ...dtype import bool_
from ...errors import AttributeRefusedError, OutOfRangeError, ShapeError
from .. import reduce
from ..arithmetic import sub
from ..compare import less, select
from ..create import zeros
from ..index import as_indices, gather, index_by, scatter_add, values_like
from ..inference.bodies import known_truth
from ..inference.devices import on_one_device
from ..inference.shapes import dtype_of, normal_axis, shape_of
from ..join import Slice, SliceGrad, concat, split
from ..shape import broadcast_to, broadcasts_to, expand_dims, reshape, squeeze

if TYPE_CHECKING:
    from ...tensor import Tensor

__all__ = [
    "bincount", "diag", "gather_nd", "masked_fill", "meshgrid", "repeat", "roll", "tril", "triu",
    "unstack",
]  # fmt: skip


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
    shape, k = shape_of(x), _whole(name, "k", k)
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
    shape, k = shape_of(x), _whole("diag", "k", k)
    if len(shape) == 1:
        n = shape[0] + abs(k)
        return reshape(SliceGrad((n * n,), *_diagonal(n, n, k))(x), (n, n))
    if len(shape) == 2:
        return Slice(*_diagonal(*shape, k))(reshape(x, shape[0] * shape[1]))
    raise ShapeError(f"diag got x of shape {shape}; it takes a vector or a matrix")


def _diagonal(n: int, m: int, k: int) -> tuple[Shape, Shape, Shape]:
    """Where diagonal k of an (n, m) matrix begins and ends in row-major order, and its step."""
    count = max(0, min(n + min(k, 0), m - max(k, 0)))
    begin = (k if k >= 0 else -k * m) if count else 0
    return (begin,), (begin + (count - 1) * (m + 1) + 1 if count else 0,), (m + 1,)


@on_one_device
def roll(x: Any, shift: int | tuple[int, ...], axis: int | tuple[int, ...] | None = None) -> Tensor:
    """x with its elements moved by `shift` along `axis`; what leaves the end enters in front.

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
        x = _rolled(x, by, normal_axis("roll", along, len(shape_of(x))))
    return x  # type: ignore[no-any-return]


def _rolled(x: Any, shift: int, axis: int) -> Tensor:
    n = shape_of(x)[axis]
    last = shift % n if n else 0
    return concat(split(x, (n - last, last), axis)[::-1], axis)


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


@on_one_device
def meshgrid(*xs: Any, indexing: str = "xy") -> tuple[Tensor, ...]:
    """Coordinates of a grid: for each vector of `xs` a tensor in which it runs along its own axis.

    All have one shape, with an axis for each vector. indexing="xy", the default as in NumPy,
    exchanges the axes of the first two; "ij", PyTorch's default, does not.

    >>> [grid.tolist() for grid in meshgrid([1, 2], [5, 6, 7], indexing="ij")]
    [[[1, 1, 1], [2, 2, 2]], [[5, 6, 7], [5, 6, 7]]]
    """
    if indexing not in ("xy", "ij"):
        raise AttributeRefusedError(f"meshgrid got indexing={indexing!r}; use 'xy' or 'ij'")
    shapes = [shape_of(x) for x in xs]
    if any(len(shape) > 1 for shape in shapes):
        got = " and ".join(map(str, shapes))
        raise ShapeError(f"meshgrid got tensors of shape {got}; it takes vectors")
    places = list(range(len(xs)))
    if indexing == "xy" and len(xs) > 1:
        places[:2] = 1, 0
    extents = [shape[0] if shape else 1 for shape in shapes]
    out = tuple(extents[i] for i in places)
    return tuple(
        broadcast_to(reshape(x, tuple(n if a == place else 1 for a in range(len(xs)))), out)
        for x, n, place in zip(xs, extents, places, strict=True)
    )


@on_one_device
def unstack(x: Any, axis: int = 0) -> tuple[Tensor, ...]:
    """The slices of x along `axis`, without that axis: what `stack` puts together."""
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


def _whole(name: str, what: str, number: Any) -> int:
    if type(frozen := freeze(number, name, what)) is int:
        return frozen
    raise AttributeRefusedError(f"{name} got {what}={number!r}; it takes a whole number, an int")


def _entries(name: str, what: str, given: Any) -> tuple[int, ...]:
    """One int or several as a tuple; AttributeRefusedError for anything else."""
    frozen = freeze(given, name, what)
    entries = frozen if isinstance(frozen, tuple) else (frozen,)
    if not all(type(n) is int for n in entries):
        raise AttributeRefusedError(f"{name} got {what}={given!r}; it takes whole numbers, ints")
    return entries


@on_one_device
def gather_nd(x: Any, indices: Any) -> Tensor:
    """out[..., :] = x[indices[..., 0], ..., indices[..., k - 1], :], k the last extent of indices.

    The last axis of integer `indices` names places on the first k axes of x, so that out has shape
    indices.shape[:-1] + x.shape[k:]. Negative indices count from the end. ShapeError where x has
    fewer than k axes; OutOfRangeError, as of gather, when it runs. TensorFlow's and ONNX's.

    >>> gather_nd([[1, 2], [3, 4]], [[0, 1], [1, 0]]).tolist()
    [2, 3]
    """
    indices = as_indices("gather_nd", indices)
    shape, places = shape_of(x), shape_of(indices)
    if not places or places[-1] > len(shape):
        raise ShapeError(
            f"gather_nd got indices of shape {places} for x of shape {shape}; their last axis has "
            f"an index for each of the first axes of x, at most {len(shape)}"
        )
    if places[-1] == 0:
        return broadcast_to(x, (*places[:-1], *shape))
    parts = split(indices, places[-1], -1)
    axes = tuple(range(places[-1]))
    return index_by(x, tuple(reshape(part, places[:-1]) for part in parts), axes, 0)


@on_one_device
def bincount(x: Any, length: int, weights: Any = None) -> Tensor:
    """out_i = how many elements of x are i, for i < length; with weights, the sum of theirs.

    x: integers in [0, length), of any shape; weights of the same shape, whose dtype the result has,
    and to which the gradient passes; else it is int64. length: an int, which NumPy's bincount takes
    from the values; here it is part of the program. OutOfRangeError for what is not in range, as of
    scatter_add, which on a GPU leaves it out; the message of a compiled function
    shows negative ones minus `length`.

    >>> bincount([0, 2, 2], 4).tolist(), bincount([0, 2, 2], 4, [0.5, 1.0, 2.0]).tolist()
    ([1, 0, 2, 0], [0.5, 0.0, 3.0, 0.0])
    """
    if not hasattr(length, "__index__") or hasattr(length, "dtype") or length < 0:
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
    places = select(negative, sub(x, length), x)  # which would count from the end otherwise
    counts = zeros(length, dtype_of(given))
    return scatter_add(counts, reshape(places, -1), reshape(given, -1))
