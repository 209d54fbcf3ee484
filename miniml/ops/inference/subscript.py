"""What stands in the brackets of x[...]: a NumPy index taken apart before any data are touched."""

from __future__ import annotations

from operator import index as as_int
from typing import Any, NamedTuple

import numpy as np

from ...abstract import Shape, typed
from ...errors import DTypeError, OutOfRangeError, ShapeError, TracedValueError
from .shapes import broadcast

TENSOR = "tensor"


class Subscript(NamedTuple):
    """An index as a basic part, slices and new axes, and then tensors along `axes`.

    ranges: the positions that are taken along each axis of x. shape: what the basic part gives.
    dropped: the axes of x that ints index. axes: the axes of `shape` which tensors index. at: in
    front of which of the other axes their common shape stands, as in the primitive Index.
    """

    ranges: tuple[range, ...]
    dropped: tuple[int, ...]
    shape: Shape
    axes: tuple[int, ...]
    at: int

    def region(self, indices: tuple[Shape, ...]) -> Shape:
        """The shape of x[index] when the tensors have the shapes `indices`."""
        others = [n for i, n in enumerate(self.shape) if i not in self.axes]
        return (*others[: self.at], *broadcast("indexing", *indices), *others[self.at :])


def analyse(name: str, items: tuple[Any, ...], shape: Shape) -> Subscript:
    """Take apart an index of slices, ints, None, Ellipsis and TENSOR for a tensor of `shape`.

    Raises ShapeError for too many indices and OutOfRangeError for an int outside its axis.
    """
    in_a_row, items = _in_a_row(items), _complete(name, items, shape)
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
    at = next(i for i, item in enumerate(items) if _names(item)) if axes and in_a_row else 0
    return Subscript(tuple(ranges), tuple(dropped), tuple(kept), tuple(axes), at)


def _complete(name: str, items: tuple[Any, ...], shape: Shape) -> tuple[Any, ...]:
    """The items with Ellipsis spelt out: an entry per axis, None for the new ones."""
    used = sum(item is not None and item is not Ellipsis for item in items)
    if used > len(shape):
        raise ShapeError(
            f"{name} got {used} indices for a tensor of shape {shape}; it has {len(shape)} axes"
        )
    if items.count(Ellipsis) > 1:
        raise ShapeError(f"{name} got '...' {items.count(Ellipsis)} times; write it once")
    dots = items.index(Ellipsis) if Ellipsis in items else len(items)
    rest = (slice(None),) * (len(shape) - used)
    return items[:dots] + rest + items[dots + 1 :]


def _names(item: Any) -> bool:
    return item == TENSOR or isinstance(item, int)


def _in_a_row(items: tuple[Any, ...]) -> bool:
    """NumPy's rule: tensors and ints in one row leave their shape there, else it comes first.

    A "..." between them separates them even where it stands for no axis.
    """
    places = [i for i, item in enumerate(items) if _names(item)]
    return not places or places[-1] - places[0] + 1 == len(places)


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


def sort_out(name: str, index: Any, shape: Shape) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """An index as the user wrote it: (items for `analyse`, the tensors of its TENSOR items).

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
            found = _arrays(name, item, shape, axis)
            items += [TENSOR] * len(found)
            tensors += found
            axis += len(found)
    return tuple(items), tuple(tensors)


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


def _is_bool(item: Any) -> bool:
    return isinstance(item, (bool, np.bool_))


def _covers(item: Any) -> int:
    """How many axes an item of an index covers; none for None and Ellipsis."""
    if item is None or item is Ellipsis:
        return 0
    array = item if hasattr(item, "dtype") or isinstance(item, slice) else np.asarray(item)
    return len(array.shape) if getattr(array, "dtype", None) == np.bool_ else 1


def _arrays(name: str, item: Any, shape: Shape, axis: int) -> list[Any]:
    """The integer tensors of one item that is a tensor, an array or a list."""
    if isinstance(item, (str, bytes, float)) or _is_bool(item):
        raise DTypeError(
            f"{name} got {item!r} as an index; an index is made of ints, slices, None, '...', "
            "integer tensors and boolean masks"
        )
    array = item if hasattr(item, "dtype") else np.asarray(item)
    if array.dtype != np.bool_:
        return [array if array is item or array.size else array.astype(np.int64)]
    covered = tuple(shape[axis : axis + len(array.shape)])
    if not array.shape or tuple(array.shape) != covered:
        raise ShapeError(
            f"{name} got a mask of shape {tuple(array.shape)} for axes of shape {covered}; a mask "
            "has the shape of the axes it covers"
        )
    return list(np.nonzero(_known(name, array)))


def _known(name: str, mask: Any) -> Any:
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
