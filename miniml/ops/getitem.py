"""x[index], and the copy of x in which x[index] is another value, for any index of NumPy's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import EllipsisType, NoneType
from typing import TYPE_CHECKING, Any

from ..abstract import Shape
from ..dtype import int64
from ..primitive import Primitive
from .arithmetic import cast
from .index import Scatter, as_indices, index_by, values_like
from .inference.shapes import shape_of
from .inference.subscript import Subscript, analyse, sort_out
from .join import Slice
from .shape import Reshape

if TYPE_CHECKING:
    from ..tensor import Tensor

__all__ = ["getitem", "scatter"]  # fmt: skip


def getitem(x: Any, index: Any) -> Tensor:
    """x[index] with NumPy's meaning: ints, slices, None, Ellipsis, integer tensors, masks.

    Integer tensors, arrays and lists broadcast together; their shape stands where they stood if
    they (and ints) stand in a row, and in front otherwise. A boolean mask must be known when the
    call is made: one computed in a traced graph is refused. Raises ShapeError, DTypeError,
    OutOfRangeError; for indices in tensors the last is raised when the index runs.
    """
    shape = getattr(x, "shape", ()) or shape_of(x)
    key = index if type(index) is int else _static_key(index)
    calls = _known.get((key, shape))
    if calls is None:
        items, tensors = sort_out("getitem", index, shape)
        basic = analyse("getitem", items, shape)
        calls = tuple([p.__call__ for p in _basic(basic, shape, bool(tensors))])
        if key is not None:
            if len(_known) >= _LIMIT:
                _known.clear()
            _known[key, shape] = calls
    for call in calls:
        x = call(x)
    if key is None and tensors:
        return index_by(x, alike("getitem", tensors), basic.axes, basic.at)
    return x  # type: ignore[no-any-return]


_LIMIT = 4096
_known: dict[object, tuple[Callable[[Any], Tensor], ...]] = {}  # by static index and shape
_SLICE = object()
_STATIC = {int, NoneType, EllipsisType, type(_SLICE)}


def _static_key(index: Any) -> object:
    """What tells an index of ints, slices, None and "..." from others; None for any other index."""
    found: list[Any] = []
    for item in index if type(index) is tuple else (index,):
        found += (_SLICE, item.start, item.stop, item.step) if type(item) is slice else (item,)
    return tuple(found) if _STATIC.issuperset(map(type, found)) else None


def _basic(basic: Subscript, shape: Shape, goes_on: bool) -> Iterator[Primitive]:
    """What takes the basic part of an index; at least one primitive, unless `goes_on`."""
    ranges, left = basic.ranges, shape
    if any(r != range(n) for r, n in zip(ranges, shape, strict=True)):
        left = tuple([len(r) for a, r in enumerate(ranges) if a not in basic.dropped])
        begin, end, strides = zip(*[(r.start, r.stop, r.step) for r in ranges], strict=True)
        yield Slice(begin, end, strides, basic.dropped)
        goes_on = True
    if left != basic.shape or not goes_on:
        yield Reshape(basic.shape)


def scatter(x: Any, index: Any, value: Any) -> Tensor:
    """A copy of x in which x[index] is value, for any index that `getitem` takes.

    value broadcasts to the shape of x[index] and is cast to x's dtype; DTypeError when that would
    lose something. Where the index names one place more than once, the last value stays.
    """
    items, tensors = sort_out("scatter", index, shape_of(x))
    named = alike("scatter", tensors)
    return Scatter(items)(x, values_like("scatter", x, value), *named)


def alike(name: str, tensors: tuple[Any, ...]) -> tuple[Any, ...]:
    """Index tensors in one dtype, int64 unless all are int32."""
    found = [as_indices(name, t) for t in tensors]
    if len({t.dtype for t in found}) > 1:
        found = [t if t.dtype == int64 else cast(t, int64) for t in found]
    return tuple(found)
