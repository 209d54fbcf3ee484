"""Gather, scatter and NumPy indexing: elements taken from, or put into, indexed positions.

In order: the primitives and what they check; the functions, of which `getitem` is x[index] and
`scatter` the copy of x in which x[index] is another value; subscripts, the analysis of a NumPy
index before any data are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod
from operator import index as as_int
from types import EllipsisType, NoneType
from typing import Any, NamedTuple

import numpy as np

from ..core.abstract import INTEGERS, DType, Shape, int32, int64, promote, scalar_dtype, typed
from ..core.errors import DTypeError, OutOfRangeError, ShapeError, TracedValueError
from ..core.options import choice
from ..core.primitive import Primitive
from .checks import (
    Tensor,
    as_array,
    broadcast,
    broadcasts_to,
    composition,
    dtype_of,
    needs_number,
    normal_axis,
    shape_of,
)
from .elementwise import add, cast, maximum, minimum, mul
from .rules import Move, always, per_input
from .shape import Reshape, Slice, broadcast_to, reshape

__all__ = [
    "Gather", "Index", "IndexAdd", "IndexReduce", "NonZero", "PutAlongAxisAdd", "Scatter",
    "ScatterAdd", "TakeAlongAxis", "gather", "nonzero", "scatter_add", "take_along_axis",
    "getitem", "scatter",
]  # fmt: skip


def _of_first(self: Primitive, x: DType, *indices: DType) -> DType:
    """The dtype of x, for indices that are integers."""
    check_indices(self.name, *indices)
    return x


def _of_updates(self: Primitive, updates: DType, *indices: DType) -> DType:
    """The dtype of updates, which are numbers to be added."""
    check_indices(self.name, *indices)
    return needs_number(self.name, updates)


class Gather(Move):
    """The slices of x along `axis` that `indices` name: its shape replaces that axis.

    indices: int32 or int64, any shape; negative ones count from the end. An index outside the
    axis raises OutOfRangeError when it runs.
    """

    refuses = True
    linear = ("x",)
    axis: int = 0

    def infer_shape(self, x: Shape, indices: Shape) -> Shape:
        axis = normal_axis("Gather", self.axis, len(x))
        return (*x[:axis], *indices, *x[axis + 1 :])

    infer_dtype = _of_first


class Index(Move):
    """Elements of x at the positions that `indices`, one per entry of `axes`, name together.

    indices broadcast to one shape B. The output has the axes of x that are not indexed, in order,
    and B in front of number `at` of them. OutOfRangeError as in Gather.
    """

    refuses = True
    axes: tuple[int, ...]
    at: int

    def infer_shape(self, x: Shape, *indices: Shape) -> Shape:
        return indexed_shape("Index", x, self.axes, self.at, indices)

    infer_dtype = _of_first


class IndexAdd(Primitive):
    """Zeros of `shape` to which updates are added at indexed positions: the transpose of Index.

    updates: of the shape of Index(axes, at) for a tensor of `shape`. Positions named more than once
    get the sum.
    """

    refuses = True
    takes_complex = True
    axes: tuple[int, ...]
    at: int
    shape: Shape

    def infer_shape(self, updates: Shape, *indices: Shape) -> Shape:
        return _updated_shape(self, updates, indices)

    infer_dtype = _of_updates


class IndexReduce(Primitive):
    """For each position of a tensor of `shape` the product, the least or the greatest of the
    updates that the indices name it for, by `mode`: "mul", "min" or "max".

    updates: of the shape of Index(axes, at) for a tensor of `shape`. Where there are none it is 1,
    or the greatest or the least number of the dtype, infinities for floats; NaN where one is NaN.
    Updates equal to the extremum share its gradient equally.
    """

    refuses = True
    flops = per_input(1)
    axes: tuple[int, ...]
    at: int
    shape: Shape
    mode: str

    def infer_shape(self, updates: Shape, *indices: Shape) -> Shape:
        choice("IndexReduce", "mode", self.mode, ("mul", "min", "max"))
        return _updated_shape(self, updates, indices)

    infer_dtype = _of_updates


class TakeAlongAxis(Move):
    """out[..., i, ...] = x[..., indices[..., i, ...], ...], where i is at position `axis`.

    x and indices have the same rank; their other axes broadcast. OutOfRangeError as in Gather.
    ShapeError where the ranks differ.
    """

    refuses = True
    linear = ("x",)
    axis: int = -1

    def infer_shape(self, x: Shape, indices: Shape) -> Shape:
        if len(x) != len(indices):
            raise ShapeError(
                f"TakeAlongAxis got x of shape {x} and indices of shape {indices}; they need "
                "equal ranks"
            )
        axis = normal_axis("TakeAlongAxis", self.axis, len(x))
        return broadcast("TakeAlongAxis", (*x[:axis], indices[axis], *x[axis + 1 :]), indices)

    infer_dtype = _of_first


class PutAlongAxisAdd(Primitive):
    """Zeros with `extent` entries along `axis`, to which updates are added at `indices`.

    The transpose of TakeAlongAxis: indices broadcast to the shape of updates except along `axis`,
    where there is one for each, and positions named more than once get the sum. ShapeError where
    they do not.
    """

    refuses = True
    takes_complex = True
    linear = ("updates",)
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

    infer_dtype = _of_updates


class ScatterAdd(Primitive):
    """x with updates added to the slices along `axis` that indices name, repeats accumulated.

    updates broadcast to the shape that Gather(axis) gives for x and indices. ShapeError where they
    do not.
    """

    refuses = True
    takes_complex = True
    linear = ("x updates",)
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


class Scatter(Move):
    """x with value at x[index]; of several values for one position the last one stays.

    index: slices, ints, None, Ellipsis, and "tensor" for each of `indices`, the inputs that follow
    x and value. value broadcasts to the shape of x[index]. ShapeError where it does not, or `index`
    names another number of tensors.
    """

    refuses = True
    index: tuple[Any, ...]

    def infer_shape(self, x: Shape, value: Shape, *indices: Shape) -> Shape:
        named = sum(item == TENSOR for item in self.index)
        if named != len(indices):
            raise ShapeError(
                f"Scatter got {len(indices)} index tensors; its index {self.index} has places for "
                f"{named}"
            )
        _check_value("Scatter", value, analyse("Scatter", self.index, x).region(indices))
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

    infer_dtype = always(int64)


def indexed_shape(
    name: str, x: Shape, axes: tuple[int, ...], at: int, indices: tuple[Shape, ...]
) -> Shape:
    """The shape of Index(axes, at); ShapeError when axes or indices do not fit."""
    if len(axes) != len(indices) or not axes:
        raise ShapeError(f"{name} got {len(indices)} indices for axes {axes}; give one for each")
    if list(axes) != sorted({normal_axis(name, a, len(x)) for a in axes}):
        raise ShapeError(f"{name} got axes {axes}; they are counted from 0 and ascend")
    others = tuple(n for i, n in enumerate(x) if i not in axes)
    if not 0 <= at <= len(others):
        raise ShapeError(f"{name} got at={at}; {len(others)} axes are not indexed")
    return (*others[:at], *broadcast(f"{name} indices", *indices), *others[at:])


def _updated_shape(
    self: IndexAdd | IndexReduce, updates: Shape, indices: tuple[Shape, ...]
) -> Shape:
    """The attribute `shape`; ShapeError unless the updates have the shape that is indexed."""
    expected = indexed_shape(self.name, self.shape, self.axes, self.at, indices)
    if updates != expected:
        raise ShapeError(
            f"{self.name} got updates of shape {updates}; indices into {self.shape} along axes "
            f"{self.axes} name {expected}"
        )
    return self.shape


def _check_value(name: str, value: Shape, region: Shape) -> None:
    """ShapeError unless a value broadcasts to the region that an index names."""
    if not broadcasts_to(value, region):
        raise ShapeError(
            f"{name} got a value of shape {value} for a place of shape {region}; the value must "
            "broadcast to it"
        )


def check_indices(name: str, *dtypes: DType) -> None:
    """DTypeError unless all are int32, or all int64."""
    if not all(d in (int32, int64) and d == dtypes[0] for d in dtypes):
        got = " and ".join(dict.fromkeys(d.name for d in dtypes))
        raise DTypeError(f"{name} needs int32 or int64 indices, all alike; got {got}; cast them")


def check_equal(name: str, x: DType, values: DType) -> None:
    """DTypeError unless values have the dtype of the tensor they go into."""
    if x != values:
        raise DTypeError(f"{name} got {values.name} values for a {x.name} tensor; cast one of them")


# --- Functions ------------------------------------------------------------------------------------


_nonzero, _leading = NonZero(), Gather(0)


@composition
def gather(x: Any, indices: Any, axis: int = 0) -> Tensor:
    """The slices of x along `axis` selected by integer `indices` of any shape.

    out has shape x.shape[:axis] + indices.shape + x.shape[axis + 1:]. Negative indices count from
    the end; one outside the axis raises OutOfRangeError when it runs.
    """
    return Gather(axis)(x, as_indices("gather", indices))


@composition
def take_along_axis(x: Any, indices: Any, axis: int = -1) -> Tensor:
    """One element of x per entry of `indices`, which index `axis`; as numpy.take_along_axis.

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
    return _nonzero(x)


@composition
def scatter_add(x: Any, indices: Any, updates: Any, axis: int = 0) -> Tensor:
    """A copy of x with updates added to the slices along `axis` selected by integer `indices`.

    As x[indices] += updates, but with repeated indices accumulated. updates broadcast to
    x.shape[:axis] + indices.shape + x.shape[axis + 1:] and are cast to x's dtype; DTypeError when
    that would lose something.
    """
    named = as_indices("scatter_add", indices)
    return ScatterAdd(axis)(x, named, values_like("scatter_add", x, updates))


def getitem(x: Any, index: Any) -> Tensor:
    """x[index] with NumPy's meaning: ints, slices, None, Ellipsis, integer tensors, masks.

    Integer tensors, arrays and lists broadcast together; their common shape takes their position
    if they (and ints) are adjacent, and comes first otherwise. A boolean mask must be known when
    the call is made: one computed in a traced graph is refused. Raises ShapeError, DTypeError,
    OutOfRangeError; for indices in tensors the last is raised when the index runs.
    """
    shape = getattr(x, "shape", ()) or shape_of(x)
    key = index if type(index) is int else (None,) if index is None else _static_key(index)
    if key is None:
        if getattr(index, "dtype", None) == np.bool_ and index.shape and hasattr(x, "_host"):
            return _by_mask(x, index, shape)
        return _at(x, index)
    calls = _known.get((key, shape))
    if calls is None:
        basic = analyse("getitem", sort_out("getitem", index, shape)[0], shape)
        calls = tuple([p.__call__ for p in _basic(basic, shape, False)])
        if len(_known) >= _LIMIT:
            _known.clear()
        _known[key, shape] = calls
    for call in calls:
        x = call(x)
    return x  # type: ignore[no-any-return]


def _by_mask(x: Any, mask: Any, shape: Shape) -> Tensor:
    """x[mask]: of the positions along the axes that it covers those where it is True."""
    covered, rest = shape[: len(mask.shape)], shape[len(mask.shape) :]
    chosen = _known_mask("getitem", mask, covered).reshape(-1).nonzero()[0]
    return _leading(reshape(x, (prod(covered), *rest)) if len(covered) > 1 else x, chosen)


@composition
def _at(x: Any, index: Any) -> Tensor:
    """x[index] of any index, whose arrays and tensors may be indices or masks."""
    shape = shape_of(x)
    items, tensors = sort_out("getitem", index, shape)
    basic = analyse("getitem", items, shape)
    for primitive in _basic(basic, shape, bool(tensors)):
        x = primitive(x)
    return index_by(x, alike("getitem", tensors), basic.axes, basic.at) if tensors else x


_LIMIT = 4096
_known: dict[object, tuple[Callable[[Any], Tensor], ...]] = {}  # by static index and shape


class _Slice:
    """The type of `_SLICE`, which begins the three numbers of a slice; no index is one."""


_SLICE = _Slice()
_STATIC = {int, NoneType, EllipsisType, _Slice}


def _static_key(index: Any) -> object:
    """The cache key of an index of ints, slices, None and "..."; None for any other index."""
    key: list[Any] = []
    for item in index if type(index) is tuple else (index,):
        key += (_SLICE, item.start, item.stop, item.step) if type(item) is slice else (item,)
    return tuple(key) if _STATIC.issuperset(map(type, key)) else None


def _basic(basic: Subscript, shape: Shape, goes_on: bool) -> Iterator[Primitive]:
    """The primitives for the basic part of an index; at least one, unless `goes_on`."""
    ranges, left = basic.ranges, shape
    if ranges != tuple(map(range, shape)):
        left = tuple([len(r) for a, r in enumerate(ranges) if a not in basic.dropped])
        begin, end, strides = zip(*[(r.start, r.stop, r.step) for r in ranges], strict=True)
        yield Slice(begin, end, strides, basic.dropped)
        goes_on = True
    if left != basic.shape or not goes_on:
        yield Reshape(basic.shape)


def index_by(x: Any, indices: tuple[Any, ...], axes: tuple[int, ...], at: int) -> Tensor:
    """Index(axes, at), or the simpler Gather where that is the same."""
    return Gather(at)(x, *indices) if axes == (at,) else Index(axes, at)(x, *indices)


@composition
def scatter(x: Any, index: Any, value: Any, mode: str = "set") -> Tensor:
    """A copy of x in which x[index] is value, or combined with it, for any index that `getitem`
    takes.

    mode: "set"; "add", "mul", "min" or "max" combine the element with all values for its position.
    value broadcasts to the shape of x[index] and is cast to x's dtype; DTypeError when that would
    lose something, and for bool except with "set". Where the index names one position more than
    once, "set" keeps the last value. The gradient of "min" and "max" is shared: equally by values
    that are equal, and half and half where x is equal to them, as by `maximum`. OutOfRangeError,
    as of gather.

    >>> scatter([1, 2, 3], [0, 0, 2], [5, 7, 1]).tolist()
    [7, 2, 1]
    >>> scatter([1, 2, 3], [0, 0, 2], [5, 7, 1], mode="add").tolist()
    [13, 2, 4]
    """
    return put("scatter", x, index, value, mode)


def put(name: str, x: Any, index: Any, value: Any, mode: str) -> Tensor:
    """scatter(x, index, value, mode), whose errors begin with `name`."""
    choice(name, "mode", mode, ("set", *_COMBINE))
    items, tensors = sort_out(name, index, shape_of(x))
    named, values = alike(name, tensors), values_like(name, x, value)
    if mode == "set":
        return Scatter(items)(x, values, *named)
    return _combined(name, x, items, named, values, mode)


_COMBINE: dict[str, Any] = {"add": add, "mul": mul, "min": minimum, "max": maximum}


def _combined(
    name: str, x: Any, items: tuple[Any, ...], named: tuple[Any, ...], values: Any, mode: str
) -> Tensor:
    """The copy of x whose elements at an index are combined with values."""
    shape = shape_of(x)
    check_equal(name, needs_number(name, dtype_of(x)), dtype_of(values))
    basic = analyse(name, items, shape)
    region = basic.region(tuple([shape_of(i) for i in named]))
    _check_value(name, shape_of(values), region)
    if not named:
        found: Tensor = Scatter(items)(x, _COMBINE[mode](getitem(x, items), values))
        return found
    spread = values if shape_of(values) == region else broadcast_to(values, region)
    axes, at, whole = basic.axes, basic.at, shape
    if basic.shape != shape or basic.ranges != tuple(map(range, shape)):
        # The positions that the index names, in row-major order, along one axis.
        every = np.arange(prod(shape)).reshape(shape)
        rest = iter(named)
        index = tuple([next(rest) if item == TENSOR else item for item in items])
        named, axes, at, whole = (reshape(getitem(every, index), -1),), (0,), 0, (prod(shape),)
        spread = reshape(spread, -1)
    kind = IndexAdd(axes, at, whole) if mode == "add" else IndexReduce(axes, at, whole, mode)
    reduced = kind(spread, *named)
    out: Tensor = _COMBINE[mode](x, reduced if whole == shape else reshape(reduced, shape))
    return out


def alike(name: str, tensors: tuple[Any, ...]) -> tuple[Any, ...]:
    """Index tensors in one dtype, int64 unless all are int32."""
    indices = [as_indices(name, t) for t in tensors]
    if len({t.dtype for t in indices}) > 1:
        indices = [t if t.dtype == int64 else cast(t, int64) for t in indices]
    return tuple(indices)


def as_indices(name: str, value: Any) -> Any:
    """Indices as an int32 or int64 tensor or array; DTypeError for anything but integers."""
    if not hasattr(value, "dtype"):
        value = as_array(value)
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
    if not hasattr(values, "dtype"):  # Python numbers are weak: only their type counts
        array = np.asarray(values)
        number = array.flat[0].item() if array.size else False
        if scalar_dtype(number, (dtype,)) == dtype:
            return array.astype(dtype)
    elif promote(dtype, own) == dtype:
        return values if own == dtype else cast(values, dtype)
    raise DTypeError(f"{name} got {own.name} values for a {dtype.name} tensor; cast one of the two")


# --- Subscripts -----------------------------------------------------------------------------------


TENSOR = "tensor"


def sort_out(name: str, index: Any, shape: Shape) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """An index as the user writes it: (items for `analyse`, the tensors of its TENSOR items).

    Arrays, lists and tensors become TENSOR; a boolean mask becomes one per axis it covers.
    """
    given = index if isinstance(index, tuple) else (index,)
    items: list[Any] = []
    tensors: list[Any] = []
    axis = 0
    for item in given:
        if item is Ellipsis:
            axis += max(0, len(shape) - sum(map(_covers, given)))
            items.append(item)
        elif item is None or (isinstance(item, (slice, int, np.integer)) and not _is_bool(item)):
            items.append(_plain(name, item))
            axis += item is not None
        else:
            arrays = _index_tensors(name, item, shape, axis)
            items += [TENSOR] * len(arrays)
            tensors += arrays
            axis += len(arrays)
    return tuple(items), tuple(tensors)


def _is_bool(item: Any) -> bool:
    return isinstance(item, (bool, np.bool_))


def _plain(name: str, item: Any) -> Any:
    if item is None:
        return None
    try:
        if isinstance(item, slice):
            parts = (item.start, item.stop, item.step)
            return slice(*(None if p is None else as_int(p) for p in parts))
        return as_int(item)
    except TypeError as error:
        if isinstance(error, TracedValueError):
            raise
        raise DTypeError(
            f"{name} got {item!r}; the ends and the step of a slice are ints"
        ) from None


def _covers(item: Any) -> int:
    """Number of axes that an item of an index covers; 0 for None and Ellipsis."""
    if item is None or item is Ellipsis:
        return 0
    array: Any = item if isinstance(item, slice) else _array(item)
    return len(array.shape) if getattr(array, "dtype", None) == np.bool_ else 1


def _array(item: Any) -> Any:
    if hasattr(item, "dtype"):
        return item
    return as_array(item) if isinstance(item, (list, tuple)) else np.asarray(item)


def _index_tensors(name: str, item: Any, shape: Shape, axis: int) -> list[Any]:
    """The integer tensors of one item that is a tensor, an array or a list."""
    array = _array(item)
    if isinstance(item, (str, bytes, float)) or _is_bool(item) or array.dtype == np.object_:
        raise DTypeError(
            f"{name} got {item!r} as an index; an index is made of ints, slices, None, '...', "
            "integer tensors and boolean masks"
        )
    if array.dtype != np.bool_:
        return [array if array is item or array.size else array.astype(np.int64)]
    return list(np.nonzero(_known_mask(name, array, shape[axis : axis + len(array.shape)])))


def _known_mask(name: str, mask: Any, covered: Shape) -> Any:
    """The mask as an array; ShapeError unless it has the shape of the axes that it covers."""
    if not mask.shape or tuple(mask.shape) != covered:
        raise ShapeError(
            f"{name} got a mask of shape {tuple(mask.shape)} for axes of shape {covered}; a mask "
            "has the shape of the axes it covers"
        )
    return known_parts(name, mask)


def known_parts(name: str, mask: Any) -> Any:
    """The mask as an array; TracedValueError where a graph that is being traced computes it."""
    if not hasattr(mask, "_host"):
        return mask
    try:
        return mask._host("index")
    except TracedValueError:
        raise TracedValueError(
            f"{name} got a traced boolean mask {typed(mask)}: how many "
            "elements it takes is not known while the graph is traced; use "
            "ops.where(mask, x, other), which keeps the shape"
        ) from None


class Subscript(NamedTuple):
    """An index as a basic part, slices and new axes, and then tensors along `axes`.

    ranges: the positions that are taken along each axis of x. shape: of the basic part's result.
    dropped: the axes of x that ints index. axes: the axes of `shape` that tensors index. at: the
    number of the other axes ahead of their common shape, as in the primitive Index.
    """

    ranges: tuple[range, ...]
    dropped: tuple[int, ...]
    shape: Shape
    axes: tuple[int, ...]
    at: int

    def region(self, indices: tuple[Shape, ...]) -> Shape:
        """The shape of x[index] for tensors of the shapes `indices`."""
        others = [n for i, n in enumerate(self.shape) if i not in self.axes]
        return (*others[: self.at], *broadcast("indexing", *indices), *others[self.at :])


def analyse(name: str, items: tuple[Any, ...], shape: Shape) -> Subscript:
    """Take apart an index of slices, ints, None, Ellipsis and TENSOR for a tensor of `shape`.

    Raises ShapeError for too many indices and OutOfRangeError for an int outside its axis.
    """
    adjacent, items = _adjacent(items), _complete(name, items, shape)
    ranges: list[range] = []
    dropped: list[int] = []
    kept: list[int] = []
    axes: list[int] = []
    for item in items:
        if item is None:
            kept.append(1)
            continue
        ranges.append(_range(name, item, shape[len(ranges)], len(ranges)))
        if item == TENSOR:
            axes.append(len(kept))
        if isinstance(item, int):
            dropped.append(len(ranges) - 1)
        else:
            kept.append(len(ranges[-1]))
    at = next(i for i, item in enumerate(items) if _indexes(item)) if axes and adjacent else 0
    return Subscript(tuple(ranges), tuple(dropped), tuple(kept), tuple(axes), at)


def _complete(name: str, items: tuple[Any, ...], shape: Shape) -> tuple[Any, ...]:
    """The items with Ellipsis expanded: an entry per axis, None for the new ones."""
    used = sum(item is not None and item is not Ellipsis for item in items)
    if used > len(shape):
        raise ShapeError(
            f"{name} got {used} indices for a tensor of shape {shape}; it has {len(shape)} axes"
        )
    if items.count(Ellipsis) > 1:
        raise ShapeError(f"{name} got '...' {items.count(Ellipsis)} times; write it once")
    dots = items.index(Ellipsis) if Ellipsis in items else len(items)
    return items[:dots] + (slice(None),) * (len(shape) - used) + items[dots + 1 :]


def _adjacent(items: tuple[Any, ...]) -> bool:
    """True if tensors and ints are adjacent: by NumPy's rule their common shape then stays there,
    else it comes first.

    A "..." between them separates them even where it covers no axis.
    """
    at = [i for i, item in enumerate(items) if _indexes(item)]
    return not at or at[-1] - at[0] + 1 == len(at)


def _indexes(item: Any) -> bool:
    return item == TENSOR or isinstance(item, int)


def _range(name: str, item: Any, extent: int, axis: int) -> range:
    if isinstance(item, slice):
        try:
            return range(extent)[item] or range(0)
        except ValueError:
            raise ShapeError(f"{name} got a slice with step 0; a step is not zero") from None
    if not isinstance(item, int):
        return range(extent)
    if not -extent <= item < extent:
        raise OutOfRangeError(
            f"{name} got index {item} for axis {axis} of extent {extent}; "
            + (f"indices run from {-extent} to {extent - 1}" if extent else "it has no elements")
        )
    return range(item % extent, item % extent + 1)
