"""Indexing: elements taken from, put into and added at places that integer tensors name."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ..abstract import Shape, typed
from ..dtype import INTEGERS, DType, int32, int64, promote, scalar_dtype
from ..errors import DTypeError, ShapeError
from ..primitive import Primitive
from .arithmetic import cast
from .inference.shapes import broadcast, dtype_of, needs_number, normal_axis
from .inference.subscript import analyse
from .shape import broadcasts_to

if TYPE_CHECKING:
    from ..tensor import Tensor

__all__ = [
    "Gather", "Index", "IndexAdd", "NonZero", "PutAlongAxisAdd", "Scatter", "ScatterAdd",
    "TakeAlongAxis", "gather", "nonzero", "scatter_add", "take_along_axis",
]  # fmt: skip


class Gather(Primitive):
    """The slices of x along `axis` that `indices` name: its shape takes the place of that axis.

    indices: int32 or int64, any shape; negative ones count from the end. An index outside the
    axis raises OutOfRangeError when it runs.
    """

    axis: int = 0

    def infer_shape(self, x: Shape, indices: Shape) -> Shape:
        axis = normal_axis("Gather", self.axis, len(x))
        return (*x[:axis], *indices, *x[axis + 1 :])

    def infer_dtype(self, x: DType, indices: DType) -> DType:
        check_indices("Gather", indices)
        return x


class Index(Primitive):
    """Elements of x at the positions that `indices`, one per entry of `axes`, name together.

    indices broadcast to one shape B. The output has the axes of x that are not indexed, in order,
    and B in front of number `at` of them. OutOfRangeError as in Gather.
    """

    axes: tuple[int, ...]
    at: int

    def infer_shape(self, x: Shape, *indices: Shape) -> Shape:
        return indexed_shape("Index", x, self.axes, self.at, indices)

    def infer_dtype(self, x: DType, *indices: DType) -> DType:
        check_indices("Index", *indices)
        return x


class IndexAdd(Primitive):
    """Zeros of `shape` to which updates are added at indexed positions: the transpose of Index.

    updates: what Index(axes, at) gives for a tensor of `shape`. Positions named more than once
    get the sum.
    """

    axes: tuple[int, ...]
    at: int
    shape: Shape

    def infer_shape(self, updates: Shape, *indices: Shape) -> Shape:
        expected = indexed_shape("IndexAdd", self.shape, self.axes, self.at, indices)
        if updates != expected:
            raise ShapeError(
                f"IndexAdd got updates of shape {updates}; indices into {self.shape} along axes "
                f"{self.axes} name {expected}"
            )
        return self.shape

    def infer_dtype(self, updates: DType, *indices: DType) -> DType:
        check_indices("IndexAdd", *indices)
        return needs_number("IndexAdd", updates)


class TakeAlongAxis(Primitive):
    """out[..., i, ...] = x[..., indices[..., i, ...], ...], `axis` being the place of i.

    x and indices have the same rank; their other axes broadcast. OutOfRangeError as in Gather.
    """

    axis: int = -1

    def infer_shape(self, x: Shape, indices: Shape) -> Shape:
        if len(x) != len(indices):
            raise ShapeError(
                f"TakeAlongAxis got x of shape {x} and indices of shape {indices}; they need "
                "equal ranks"
            )
        axis = normal_axis("TakeAlongAxis", self.axis, len(x))
        one = (*x[:axis], indices[axis], *x[axis + 1 :])
        return broadcast("TakeAlongAxis", one, indices)

    def infer_dtype(self, x: DType, indices: DType) -> DType:
        check_indices("TakeAlongAxis", indices)
        return x


class PutAlongAxisAdd(Primitive):
    """Zeros with `extent` entries along `axis`, to which updates are added where indices say.

    The transpose of TakeAlongAxis: indices broadcast to the shape of updates except along `axis`,
    where there is one for each, and positions named more than once get the sum.
    """

    axis: int
    extent: int

    def infer_shape(self, updates: Shape, indices: Shape) -> Shape:
        axis = normal_axis("PutAlongAxisAdd", self.axis, len(updates))
        alike = len(indices) == len(updates) and indices[axis] == updates[axis]
        if not alike or not broadcasts_to(indices, updates):
            raise ShapeError(
                f"PutAlongAxisAdd got updates of shape {updates} and indices of shape {indices}; "
                f"indices must have that rank, broadcast to it and be as long along axis {axis}"
            )
        return (*updates[:axis], self.extent, *updates[axis + 1 :])

    def infer_dtype(self, updates: DType, indices: DType) -> DType:
        check_indices("PutAlongAxisAdd", indices)
        return needs_number("PutAlongAxisAdd", updates)


class ScatterAdd(Primitive):
    """x with updates added to the slices along `axis` that indices name, repeats accumulated.

    updates broadcast to the shape that Gather(axis) gives for x and indices.
    """

    axis: int = 0

    def infer_shape(self, x: Shape, indices: Shape, updates: Shape) -> Shape:
        axis = normal_axis("ScatterAdd", self.axis, len(x))
        expected = (*x[:axis], *indices, *x[axis + 1 :])
        if not broadcasts_to(updates, expected):
            raise ShapeError(
                f"ScatterAdd got updates of shape {updates}; indices of shape {indices} name "
                f"slices of shape {expected}, to which updates must broadcast"
            )
        return x

    def infer_dtype(self, x: DType, indices: DType, updates: DType) -> DType:
        check_indices("ScatterAdd", indices)
        check_equal("ScatterAdd", x, updates)
        return needs_number("ScatterAdd", x)


class Scatter(Primitive):
    """x with value in the place of x[index]; of several values for one place the last one stays.

    index: slices, ints, None, Ellipsis, and "tensor" in the place of each of `indices`, which
    come behind x and value. value broadcasts to the shape of x[index].
    """

    index: tuple[Any, ...]

    def infer_shape(self, x: Shape, value: Shape, *indices: Shape) -> Shape:
        named = sum(item == "tensor" for item in self.index)
        if named != len(indices):
            raise ShapeError(
                f"Scatter got {len(indices)} index tensors; its index {self.index} has places for "
                f"{named}"
            )
        expected = analyse("Scatter", self.index, x).region(indices)
        if not broadcasts_to(value, expected):
            raise ShapeError(
                f"Scatter got a value of shape {value} for a place of shape {expected}; the value "
                "must broadcast to it"
            )
        return x

    def infer_dtype(self, x: DType, value: DType, *indices: DType) -> DType:
        check_indices("Scatter", *indices)
        check_equal("Scatter", x, value)
        return x


class NonZero(Primitive):
    """The indices of the elements of x that are not 0, in row-major order: int64 (count, rank).

    It runs eagerly only; NaN is not 0.
    """

    dynamic_outputs = True
    differentiable = False

    def infer_shape(self, x: Shape) -> Shape:
        return prod(x), len(x)  # at most

    def infer_dtype(self, x: DType) -> DType:
        return int64


def gather(x: Any, indices: Any, axis: int = 0) -> Tensor:
    """The slices of x along `axis` selected by integer `indices` of any shape.

    out has shape x.shape[:axis] + indices.shape + x.shape[axis + 1:]. Negative indices count from
    the end; one outside the axis raises OutOfRangeError when it runs.
    """
    return Gather(axis)(x, as_indices("gather", indices))


def take_along_axis(x: Any, indices: Any, axis: int = -1) -> Tensor:
    """One element of x per entry of `indices`, which point along `axis`; as numpy.take_along_axis.

    x and indices have the same rank and broadcast along the other axes.
    """
    return TakeAlongAxis(axis)(x, as_indices("take_along_axis", indices))


def nonzero(x: Any) -> Tensor:
    """The indices of the elements of x that are not 0, in row-major order: int64 (count, rank).

    torch.nonzero and numpy.argwhere; numpy.nonzero gives the columns. It runs eagerly only, since
    the shape depends on values; where, masked_fill and sort keep shapes. NaN is not 0.

    >>> nonzero([[0, 5], [7, 0]]).tolist()
    [[0, 1], [1, 0]]
    """
    return NonZero()(x)


def scatter_add(x: Any, indices: Any, updates: Any, axis: int = 0) -> Tensor:
    """A copy of x with updates added to the slices along `axis` selected by integer `indices`.

    As x[indices] += updates, but with repeated indices accumulated. updates broadcast to
    x.shape[:axis] + indices.shape + x.shape[axis + 1:] and are cast to x's dtype; DTypeError when
    that would lose something.
    """
    named = as_indices("scatter_add", indices)
    return ScatterAdd(axis)(x, named, values_like("scatter_add", x, updates))


def indexed_shape(
    name: str, x: Shape, axes: tuple[int, ...], at: int, indices: tuple[Shape, ...]
) -> Shape:
    """The shape that Index(axes, at) gives; ShapeError when axes or indices do not fit."""
    if len(axes) != len(indices) or not axes:
        raise ShapeError(f"{name} got {len(indices)} indices for axes {axes}; give one for each")
    if list(axes) != sorted({normal_axis(name, a, len(x)) for a in axes}):
        raise ShapeError(f"{name} got axes {axes}; they are counted from 0 and ascend")
    others = tuple(n for i, n in enumerate(x) if i not in axes)
    if not 0 <= at <= len(others):
        raise ShapeError(f"{name} got at={at}; {len(others)} axes are not indexed")
    return (*others[:at], *broadcast(f"{name} indices", *indices), *others[at:])


def index_by(x: Any, indices: tuple[Any, ...], axes: tuple[int, ...], at: int) -> Tensor:
    """Index(axes, at), or the simpler Gather where that says the same."""
    return Gather(at)(x, *indices) if axes == (at,) else Index(axes, at)(x, *indices)


def as_indices(name: str, value: Any) -> Any:
    """Indices as an int32 or int64 tensor or array; DTypeError for anything but integers."""
    if not hasattr(value, "dtype"):
        value = np.asarray(value)
        value = value if value.size else value.astype(np.int64)
    dtype = dtype_of(value)
    if dtype not in INTEGERS:
        raise DTypeError(f"{name} needs integer indices; got {typed(value)}; cast them first")
    return value if dtype in (int32, int64) else cast(value, int64)


def values_like(name: str, x: Any, values: Any) -> Any:
    """Values in the dtype of x, which keeps it; DTypeError when that would lose something."""
    if not hasattr(x, "dtype"):
        return values
    dtype, own = dtype_of(x), dtype_of(values)
    if not hasattr(values, "dtype"):  # Python numbers are weak: only their class counts
        array = np.asarray(values)
        number = array.flat[0].item() if array.size else False
        if scalar_dtype(number, (dtype,)) == dtype:
            return array.astype(dtype)
    elif promote(dtype, own) == dtype:
        return values if own == dtype else cast(values, dtype)
    raise DTypeError(f"{name} got {own.name} values for a {dtype.name} tensor; cast one of the two")


def check_indices(name: str, *dtypes: DType) -> None:
    """DTypeError unless all are int32, or all int64."""
    if not all(d in (int32, int64) and d == dtypes[0] for d in dtypes):
        got = " and ".join(dict.fromkeys(d.name for d in dtypes))
        raise DTypeError(f"{name} needs int32 or int64 indices, all alike; got {got}; cast them")


def check_equal(name: str, x: DType, values: DType) -> None:
    """DTypeError unless values have the dtype of the tensor they go into."""
    if x != values:
        raise DTypeError(f"{name} got {values.name} values for a {x.name} tensor; cast one of them")
