"""Compositions that select, move, repeat, count or combine elements by position.

In order: padding; triangles, diagonals and turns; repeats and grids; elements by masks and tuples
of indices; sums, means, products and extrema of segments.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.abstract import Shape, as_dtype, bool_, float32, is_float
from ...core.errors import AttributeRefusedError, DTypeError, OutOfRangeError, ShapeError
from ...core.options import choice, count, integer
from ...core.primitive import freeze
from ...core.trace import current_trace
from .. import reduce
from ..checks import (
    Tensor,
    broadcast,
    check_beside,
    composition,
    dtype_of,
    normal_axes,
    normal_axis,
    ordered_axes,
    shape_of,
)
from ..control import known_truth
from ..create import arange, zeros
from ..elementwise import cast, div, maximum, sub
from ..index import (
    IndexAdd,
    IndexReduce,
    as_indices,
    gather,
    index_by,
    known_parts,
    put,
    scatter_add,
    values_like,
)
from ..logic import equal, less, select
from ..shape import (
    Pad,
    Slice,
    SliceGrad,
    broadcast_to,
    concat,
    expand_dims,
    flip,
    moveaxis,
    reshape,
    split,
    swapaxes,
)

__all__ = [
    "atleast_1d", "atleast_2d", "atleast_3d", "diag", "diagonal", "pad", "roll", "rot90", "tril",
    "triu", "meshgrid", "repeat",
    "bincount", "gather_nd", "masked_fill", "masked_select", "one_hot", "scatter_nd",
    "segment_max", "segment_mean", "segment_min", "segment_prod", "segment_sum",
]  # fmt: skip


PAD_MODES = ("constant", "edge", "reflect", "symmetric", "wrap")
_OF_PYTORCH = "; PyTorch's 'replicate' is 'edge' here, its 'circular' 'wrap'"


@composition
def pad(x: Any, padding: Any, value: Any = 0, mode: str = "constant") -> Tensor:
    """x with more elements around it: `value`, or by `mode` elements of x, as np.pad places them.

    padding: a pair (before, after) per axis, one such pair for all axes, or one number for both
    sides of all axes. mode: "constant", the value; "edge" repeats the first and the last element;
    "reflect" mirrors x in them, "symmetric" in the ends behind them, so that they are repeated;
    "wrap" goes on with the other end of x, as on a circle. A margin longer than x is mirrored or
    wrapped again. The dtype is kept. ShapeError for an axis without elements to go on with;
    AttributeRefusedError for a value where the mode takes elements of x.

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


@composition
def tril(x: Any, k: int = 0) -> Tensor:
    """x (..., n, m) with 0 above its diagonal k: x[..., i, j] stays where j - i <= k.

    >>> tril([[1, 2], [3, 4]]).tolist()
    [[1, 0], [3, 4]]
    """
    return _triangle("tril", x, k, upper=False)


@composition
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


@composition
def diag(x: Any, k: int = 0) -> Tensor:
    """The diagonal k of a matrix, the elements x[i, i + k]; for a vector, the square matrix that
    has it there and zeros elsewhere.

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


@composition
def diagonal(x: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
    """The elements whose index along axis2 is that along axis1 plus `offset`, along a new last
    axis in place of these two.

    x of two axes at least, else ShapeError. `diag` takes one matrix, or makes one of a vector.

    >>> diagonal([[1, 2, 3], [4, 5, 6]], 1).tolist()
    [2, 6]
    """
    shape, k = shape_of(x), integer("diagonal", "offset", offset)
    if len(shape) < 2:
        raise ShapeError(f"diagonal got x of shape {shape}; it takes two axes at least")
    axes = tuple(normal_axis("diagonal", a, len(shape)) for a in (axis1, axis2))
    normal_axes("diagonal", axes, len(shape))  # refuses one named twice
    n, m = (shape[a] for a in axes)
    lead = tuple(extent for a, extent in enumerate(shape) if a not in axes)
    last = x if axes == (len(shape) - 2, len(shape) - 1) else moveaxis(x, axes, (-2, -1))
    rows = reshape(last, (*lead, n * m))
    (begin,), (end,), (stride,) = _diagonal(n, m, k)
    none = (0,) * len(lead)
    return Slice((*none, begin), (*lead, end), (*(1,) * len(lead), stride))(rows)


def _diagonal(n: int, m: int, k: int) -> tuple[Shape, Shape, Shape]:
    """The begin, end and stride of diagonal k of an (n, m) matrix in row-major order."""
    count = max(0, min(n + min(k, 0), m - max(k, 0)))
    begin = (k if k >= 0 else -k * m) if count else 0
    return (begin,), (begin + (count - 1) * (m + 1) + 1 if count else 0,), (m + 1,)


@composition
def rot90(x: Any, k: int = 1, axes: tuple[int, int] = (0, 1)) -> Tensor:
    """x turned k times by a quarter in the plane of two axes, from the first to the second.

    ShapeError for another number of axes.

    >>> rot90([[1, 2], [3, 4]]).tolist()
    [[2, 4], [1, 3]]
    """
    shape, turns = shape_of(x), integer("rot90", "k", k) % 4
    plane = freeze(axes, "rot90", "axes")
    if not isinstance(plane, tuple) or len(plane) != 2:
        raise ShapeError(f"rot90 got axes={axes!r}; it takes two axes")
    a, b = ordered_axes("rot90", plane, len(shape))
    if turns in (0, 2):
        return flip(x, (a, b) if turns else ())
    return flip(swapaxes(x, a, b), a if turns == 1 else b)


@composition
def atleast_1d(*xs: Any) -> Any:
    """x with one axis at least: numbers as (1,). A tuple for several arguments."""
    return _at_least(1, xs)


@composition
def atleast_2d(*xs: Any) -> Any:
    """x with two axes at least: vectors as rows (1, n). A tuple for several arguments."""
    return _at_least(2, xs)


@composition
def atleast_3d(*xs: Any) -> Any:
    """x with three axes at least, as NumPy's: vectors as (1, n, 1) and matrices as (m, n, 1).

    A tuple for several arguments.

    >>> atleast_3d([[1, 2]]).shape, [x.shape for x in atleast_3d(1, [1, 2])]
    ((1, 2, 1), [(1, 1, 1), (1, 2, 1)])
    """
    return _at_least(3, xs)


def _at_least(ndim: int, xs: tuple[Any, ...]) -> Any:
    grown = []
    for x in xs:
        shape = shape_of(x)
        front = (1,) * (min(ndim, 2) - len(shape))
        grown.append(reshape(x, front + shape + (1,) * (ndim - len(front + shape))))
    return grown[0] if len(xs) == 1 else tuple(grown)


@composition
def roll(x: Any, shift: int | tuple[int, ...], axis: int | tuple[int, ...] | None = None) -> Tensor:
    """x with its elements moved by `shift` along `axis`; those beyond the end re-enter in front.

    With axis=None they move in row-major order; with several axes each has its own shift, else
    ShapeError.

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


@composition
def repeat(x: Any, repeats: int | tuple[int, ...], axis: int | None = None) -> Tensor:
    """Each slice of x along `axis` repeated `repeats` times, or slice i repeats[i] times.

    With axis=None each element is repeated, in row-major order. `tile` repeats x as a whole.
    ShapeError for a number below 0, and unless there is one, or one for each slice.

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


@composition
def meshgrid(*xs: Any, indexing: str = "xy") -> tuple[Tensor, ...]:
    """Coordinates of a grid: for each vector of `xs` a tensor in which it runs along its own axis.

    All have one shape, with an axis for each vector. indexing="xy", the default as in NumPy,
    exchanges the axes of the first two; "ij", PyTorch's default, does not. ShapeError for what is
    no vector.

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


@composition
def masked_fill(x: Any, mask: Any, value: Any) -> Tensor:
    """x with `value` where `mask` is True, in the dtype of x.

    mask (bool) and value broadcast to x's shape, else ShapeError; DTypeError for a value that x's
    dtype does not hold.

    >>> masked_fill([1.0, 2.0], [True, False], -float("inf")).tolist()
    [-inf, 2.0]
    """
    for name, given in (("mask", mask), ("value", value)):
        check_beside("masked_fill", name, given, "x", x)
    return select(mask, values_like("masked_fill", x, value), x)


@composition
def masked_select(x: Any, mask: Any) -> Tensor:
    """The elements of x where `mask` is True, in row-major order, along one axis.

    x and mask (bool) broadcast together. How many there are depends on the mask, which must
    therefore be known: TracedValueError for one that a graph computes or that differs between the
    examples of a vmap; where keeps the shape. DTypeError for a mask that is not bool.

    >>> masked_select([1, 2, 3], [True, False, True]).tolist()
    [1, 3]
    """
    dtype = dtype_of(mask)
    if dtype != bool_:
        raise DTypeError(f"masked_select needs a bool mask; got {dtype.name}; compare it first")
    shape = broadcast("masked_select", shape_of(x), shape_of(mask))
    known = np.asarray(known_parts("masked_select", mask))
    known = known if known.shape == shape else np.broadcast_to(known, shape)
    whole = x if shape_of(x) == shape else broadcast_to(x, shape)
    return gather(reshape(whole, -1), known.reshape(-1).nonzero()[0])


@composition
def gather_nd(x: Any, indices: Any) -> Tensor:
    """out[..., :] = x[indices[..., 0], ..., indices[..., k - 1], :], k the last extent of indices.

    The last axis of integer `indices` indexes the first k axes of x, so that out has shape
    indices.shape[:-1] + x.shape[k:]. Negative indices count from the end. ShapeError where x has
    fewer than k axes; OutOfRangeError, as of gather, when it runs. TensorFlow's and ONNX's.

    >>> gather_nd([[1, 2], [3, 4]], [[0, 1], [1, 0]]).tolist()
    [2, 3]
    """
    shape, parts = shape_of(x), _along_axes("gather_nd", x, indices)
    if not parts:
        return broadcast_to(x, (*shape_of(indices)[:-1], *shape))
    return index_by(x, parts, tuple(range(len(parts))), 0)


def _along_axes(name: str, x: Any, indices: Any) -> tuple[Any, ...]:
    """The indices along each of the first axes of x, which the last axis of `indices` holds."""
    indices = as_indices(name, indices)
    shape, extents = shape_of(x), shape_of(indices)
    if not extents or extents[-1] > len(shape):
        raise ShapeError(
            f"{name} got indices of shape {extents} for x of shape {shape}; their last axis has "
            f"an index for each of the first axes of x, at most {len(shape)}"
        )
    parts = split(indices, extents[-1], -1) if extents[-1] else ()
    return tuple(reshape(part, extents[:-1]) for part in parts)


@composition
def scatter_nd(x: Any, indices: Any, updates: Any, mode: str = "set") -> Tensor:
    """A copy of x in which x[indices[..., 0], ..., indices[..., k - 1]] is updates[...], or
    combined with it: what gather_nd takes is put there. k is the last extent of indices, 1 to the
    rank of x.

    updates broadcast to indices.shape[:-1] + x.shape[k:]. mode: "set", "add", "mul", "min" or
    "max", as for `scatter`, whose dtypes, gradients and errors it has. ONNX's ScatterND,
    TensorFlow's tensor_scatter_nd_update. ShapeError for a k that is none of these.

    >>> scatter_nd([[1, 2], [3, 4]], [[0, 1], [1, 0]], [7, 8]).tolist()
    [[1, 7], [8, 4]]
    """
    parts = _along_axes("scatter_nd", x, indices)
    if not parts:
        raise ShapeError(
            f"scatter_nd got indices of shape {shape_of(indices)}, whose last axis names no axis "
            "of x; it holds an index for each of the first axes of x, one at least"
        )
    return put("scatter_nd", x, parts, updates, mode)


@composition
def bincount(x: Any, length: int, weights: Any = None) -> Tensor:
    """out_i = the number of elements of x equal to i, for i < length; or the sum of their weights.

    x: integers in [0, length), of any shape; weights of the same shape, whose dtype the result has,
    and to which the gradient passes; else it is int64. length: an int, which NumPy's bincount takes
    from the values; here it is part of the program. OutOfRangeError for elements out of range, as
    of scatter_add, which on a GPU leaves it out; the message of a compiled function shows negative
    ones minus `length`. ShapeError for weights of another shape, and a length below 0.

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
    if not current_trace().plans and known_truth("bincount", reduce.any(negative)):
        raise OutOfRangeError("bincount got a negative number; it counts those from 0 on")
    bins = select(negative, sub(x, length), x)  # a negative index would count from the end
    return scatter_add(zeros(length, dtype_of(given)), reshape(bins, -1), reshape(given, -1))


@composition
def one_hot(indices: Any, depth: int, dtype: object = float32) -> Tensor:
    """`indices` (integers of any shape) as rows of zeros with a one: shape (*indices, depth).

    An index outside 0 .. depth - 1 gives a row of zeros. DTypeError for indices that are no
    integers, ValueRefusedError for a depth below 0.

    >>> one_hot([2, 0, -1], 3).tolist()
    [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    """
    indices = as_indices("one_hot", indices)
    classes = arange(0, count("one_hot", "depth", depth, 0), dtype=dtype_of(indices))
    return cast(equal(expand_dims(indices, -1), classes), as_dtype(dtype))


# --- Segments -------------------------------------------------------------------------------------


@composition
def segment_sum(x: Any, segment_ids: Any, num_segments: int) -> Tensor:
    """out[k] = the sum of x[i] over all i with segment_ids[i] = k, for k < num_segments.

    segment_ids: integers, in any order, of the shape of the first axes of x, commonly (n,);
    negative ones count from the end. The output has the shape (num_segments, *rest), rest the other
    extents of x, and the dtype of x; 0 for segments without elements. num_segments: an int, which
    is part of the program. DTypeError for bool; OutOfRangeError, as of gather.

    >>> segment_sum([1.0, 2.0, 4.0], [0, 2, 0], 3).tolist()
    [5.0, 0.0, 2.0]
    """
    ids, shape = _segments("segment_sum", x, segment_ids, num_segments)
    return IndexAdd((0,), 0, shape)(x, ids)


@composition
def segment_mean(x: Any, segment_ids: Any, num_segments: int) -> Tensor:
    """The mean of each segment, as segment_sum has them; 0 for those without elements.

    Integers are cast to float32; 16 bits are summed in float32.
    """
    ids, shape = _segments("segment_mean", x, segment_ids, num_segments)
    dtype = dtype_of(x)
    wide = cast(x, float32) if dtype.itemsize < 4 or not is_float(dtype) else x
    sums = IndexAdd((0,), 0, shape)(wide, ids)
    counts = IndexAdd((0,), 0, shape[:1])(np.ones(shape_of(ids), dtype_of(wide)), ids)
    means = div(sums, reshape(maximum(counts, 1), shape[:1] + (1,) * (len(shape) - 1)))
    return cast(means, dtype) if is_float(dtype) and dtype_of(wide) != dtype else means


@composition
def segment_prod(x: Any, segment_ids: Any, num_segments: int) -> Tensor:
    """The product of each segment, as segment_sum has them; 1 for those without elements.

    The gradient of an element is the product of the others, where some are 0 too.

    >>> segment_prod([1.0, 2.0, 4.0], [0, 2, 0], 3).tolist()
    [4.0, 1.0, 2.0]
    """
    return _reduced("segment_prod", x, segment_ids, num_segments, "mul")


@composition
def segment_max(x: Any, segment_ids: Any, num_segments: int) -> Tensor:
    """The greatest of each segment, as segment_sum has them, NaN where there is one.

    Segments without elements get -inf, or the least integer. Equal maxima share the gradient
    equally, as in `max`.

    >>> segment_max([1.0, 2.0, 4.0], [0, 2, 0], 3).tolist()
    [4.0, -inf, 2.0]
    """
    return _reduced("segment_max", x, segment_ids, num_segments, "max")


@composition
def segment_min(x: Any, segment_ids: Any, num_segments: int) -> Tensor:
    """The least of each segment, as segment_sum has them, NaN where there is one.

    Segments without elements get inf, or the greatest integer. Equal minima share the gradient
    equally, as in `min`.
    """
    return _reduced("segment_min", x, segment_ids, num_segments, "min")


def _reduced(name: str, x: Any, segment_ids: Any, num_segments: int, mode: str) -> Tensor:
    ids, shape = _segments(name, x, segment_ids, num_segments)
    return IndexReduce((0,), 0, shape, mode)(x, ids)


def _segments(name: str, x: Any, segment_ids: Any, num_segments: int) -> tuple[Any, Shape]:
    """The segments' numbers as indices, and the shape of the result."""
    ids, number = as_indices(name, segment_ids), count(name, "num_segments", num_segments, 0)
    shape, named = shape_of(x), shape_of(ids)
    if not named or shape[: len(named)] != named:
        raise ShapeError(
            f"{name} got segment_ids of shape {named} for x of shape {shape}; there is one for "
            "each slice along the first axis of x, or the first axes"
        )
    return ids, (number, *shape[len(named) :])
