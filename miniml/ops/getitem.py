"""x[index], and the copy of x in which x[index] is another value, for any index of NumPy's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..dtype import int64
from .arithmetic import cast
from .index import Scatter, as_indices, index_by, values_like
from .inference.bases import shape_of
from .inference.subscript import analyse, sort_out
from .join import Slice
from .shape import reshape

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
    shape = shape_of(x)
    items, tensors = sort_out("getitem", index, shape)
    basic = analyse("getitem", items, shape)
    if any(r != range(n) for r, n in zip(basic.ranges, shape, strict=True)):
        x = Slice(*map(tuple, zip(*((r.start, r.stop, r.step) for r in basic.ranges))))(x)
    if tensors:
        x = x if shape_of(x) == basic.shape else reshape(x, basic.shape)
        named = alike("getitem", tensors)
        return index_by(x, named, basic.axes, basic.at)
    return reshape(x, basic.shape)


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
