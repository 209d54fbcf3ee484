"""Tensors put together and taken apart: concat, stack, split, slice, pad."""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, Any

from ..abstract import Shape
from ..attributes import freeze
from ..dtype import DType
from ..errors import ArityError, ShapeError
from ..primitive import Primitive
from .create import fitting
from .inference.devices import on_one_device
from .inference.shapes import normal_axis, shape_of
from .shape import expand_dims

if TYPE_CHECKING:
    from ..tensor import Tensor

__all__ = [
    "Concat", "Pad", "Slice", "SliceGrad", "Split",
    "concat", "pad", "slice", "split", "stack",
]  # fmt: skip

Ends = tuple[int | None, ...]


class Concat(Primitive):
    """Any number of tensors one after the other along `axis`; their other extents are equal."""

    axis: int = 0
    promote = True

    def infer_shape(self, *xs: Shape) -> Shape:
        if not xs:
            raise ArityError("Concat got no tensor; give at least one")
        axis = normal_axis(self.name, self.axis, len(xs[0]))
        first = xs[0][:axis] + xs[0][axis + 1 :]
        for i, x in enumerate(xs):
            if len(x) != len(xs[0]) or x[:axis] + x[axis + 1 :] != first:
                raise ShapeError(
                    f"Concat along axis {axis} cannot put input {i} of shape {x} after input 0 of "
                    f"shape {xs[0]}; all other extents must be equal"
                )
        return (*xs[0][:axis], sum(x[axis] for x in xs), *xs[0][axis + 1 :])


class Split(Primitive):
    """x cut along `axis` into `sections` equal parts, or into parts of the extents `sections`."""

    axis: int
    sections: int | tuple[int, ...]
    outputs = "*parts"

    def infer_shape(self, x: Shape) -> tuple[Shape, ...]:
        axis = normal_axis(self.name, self.axis, len(x))
        return tuple((*x[:axis], n, *x[axis + 1 :]) for n in self.sizes(x[axis]))

    def sizes(self, extent: int) -> tuple[int, ...]:
        """The parts' extents along the axis; ShapeError where they do not make up `extent`."""
        if not isinstance(self.sections, int):
            if sum(self.sections) == extent and all(n >= 0 for n in self.sections):
                return self.sections
            raise ShapeError(
                f"Split cannot cut extent {extent} into parts of {self.sections}; they must be "
                f"at least 0 and sum to {extent}"
            )
        if self.sections < 1 or extent % self.sections:
            raise ShapeError(
                f"Split cannot cut extent {extent} into {self.sections} equal parts; give a number "
                "that divides it, or a tuple of extents"
            )
        return (extent // self.sections,) * self.sections


class Slice(Primitive):
    """The elements of x whose index along axis i is in range(begin[i], end[i], strides[i]).

    One entry per axis; all indices are >= 0 and inside x, so a slice that runs backwards to
    element 0 has end -1. Python's `slice(...).indices(extent)` gives such triples. dropped: axes of
    which one element is taken, and which the output lacks.
    """

    begin: tuple[int, ...]
    end: tuple[int, ...]
    strides: tuple[int, ...]
    dropped: tuple[int, ...] = ()

    def infer_shape(self, x: Shape) -> Shape:
        taken = sliced_shape(self.name, x, self.begin, self.end, self.strides)
        if any(a not in range(len(x)) or taken[a] != 1 for a in self.dropped):
            raise ShapeError(
                f"Slice cannot drop axes {self.dropped} of shape {taken}; only axes of extent 1 go"
            )
        return tuple([n for a, n in enumerate(taken) if a not in self.dropped])


class SliceGrad(Primitive):
    """Zeros of `shape` with x in the place that Slice would take: the transpose of Slice."""

    shape: Shape
    begin: tuple[int, ...]
    end: tuple[int, ...]
    strides: tuple[int, ...]

    def infer_shape(self, x: Shape) -> Shape:
        place = sliced_shape(self.name, self.shape, self.begin, self.end, self.strides)
        if x != place:
            raise ShapeError(f"SliceGrad got shape {x} for a slice of shape {place}; give that one")
        return self.shape


class Pad(Primitive):
    """x with padding[i] = (before, after) elements of `value` around it along axis i."""

    padding: tuple[tuple[int, int], ...]
    value: bool | int | float = 0

    def infer_shape(self, x: Shape) -> Shape:
        if len(self.padding) != len(x) or any(n < 0 for pair in self.padding for n in pair):
            raise ShapeError(
                f"Pad got padding {self.padding} for shape {x}; give one pair (before, after) "
                "of numbers >= 0 per axis"
            )
        return tuple(a + n + b for n, (a, b) in zip(x, self.padding, strict=True))

    def infer_dtype(self, x: DType) -> DType:
        fitting(self.name, self.value, x)
        return x


def sliced_shape(name: str, x: Shape, begin: Shape, end: Shape, strides: Shape) -> Shape:
    """The shape of a slice of x in Slice's terms; ShapeError where it leaves x."""
    if not len(begin) == len(end) == len(strides) == len(x):
        raise ShapeError(
            f"{name} got begin {begin}, end {end}, strides {strides} for shape {x}; each has one "
            "entry per axis"
        )
    if 0 in strides:
        raise ShapeError(f"{name} got strides {strides}; a stride is not 0")
    ranges = [range(*triple) for triple in zip(begin, end, strides, strict=True)]
    for axis, (r, n) in enumerate(zip(ranges, x, strict=True)):
        if r and not (0 <= r[0] < n and 0 <= r[-1] < n):
            raise ShapeError(
                f"{name} takes elements {r[0]} to {r[-1]} of axis {axis} of shape {x}, which has "
                f"elements 0 to {n - 1}; ops.slice clips to what is there"
            )
    return tuple(map(len, ranges))


def concat(xs: Any, axis: int = 0) -> Tensor:
    """The tensors `xs` one after the other along `axis`, promoted to one dtype."""
    if hasattr(axis, "shape"):
        raise ArityError("Concat takes its tensors in one list; write ops.concat([x, y], axis=0)")
    return Concat(freeze(axis, "Concat", "axis"))(*xs)


@on_one_device
def stack(xs: Any, axis: int = 0) -> Tensor:
    """Tensors of one shape put together along a new axis, which is `axis` of the result."""
    parts = list(xs)
    shapes = {shape_of(x) for x in parts}
    if len(shapes) > 1:
        got = ", ".join(map(str, sorted(shapes)))
        raise ShapeError(f"stack got tensors of shapes {got}; all shapes must be equal")
    return concat([expand_dims(x, axis) for x in parts], axis)


def split(x: Any, sections: int | tuple[int, ...], axis: int = 0) -> tuple[Tensor, ...]:
    """x cut along `axis` into `sections` equal parts, or, of a tuple, parts of these extents.

    The extents are the parts' own, as in PyTorch, not the positions of the cuts, as in NumPy.
    """
    parts = Split(freeze(axis, "Split", "axis"), freeze(sections, "Split", "sections"))(x)
    return tuple(parts)


def slice(
    x: Any, begin: int | Ends, end: int | Ends | None = None, strides: int | Ends | None = None
) -> Tensor:
    """x[begin[0]:end[0]:strides[0], begin[1]:..., ...], with Python's meaning of None, negative
    numbers and ends that lie outside; axes that are not named are taken whole."""
    shape = shape_of(x)
    given = [_per_axis(ends, len(shape)) for ends in (begin, end, strides)]
    triples = []
    for b, e, s, n in zip(*given, shape, strict=True):
        if s == 0:
            raise ShapeError(f"Slice got strides {strides!r}; a stride is not 0")
        triples.append(builtins.slice(b, e, s).indices(n))
    begins, ends, steps = zip(*triples, strict=True) if triples else ((), (), ())
    return Slice(begins, ends, steps)(x)


def _per_axis(ends: int | Ends | None, ndim: int) -> Ends:
    """One entry per axis, None for those that are not given."""
    frozen = freeze(ends, "Slice", "begin, end and strides")
    entries = frozen if isinstance(frozen, tuple) else (frozen,)
    if len(entries) > ndim and entries != (None,):
        raise ShapeError(f"Slice got {len(entries)} entries {entries} for a tensor of rank {ndim}")
    return (entries + (None,) * ndim)[:ndim]


def pad(x: Any, padding: Any, value: bool | int | float = 0) -> Tensor:
    """x with `value` around it.

    padding: a pair (before, after) per axis, one such pair for all axes, or one number for both
    sides of all axes.
    """
    frozen = freeze(padding, "Pad", "padding")
    ndim = len(shape_of(x))
    if isinstance(frozen, int):
        frozen = ((frozen, frozen),) * ndim
    elif len(frozen) == 2 and all(isinstance(n, int) for n in frozen):
        frozen = (frozen,) * ndim
    if not all(isinstance(p, tuple) and len(p) == 2 for p in frozen):
        raise ShapeError(f"Pad got padding {padding!r}; give pairs (before, after), one per axis")
    return Pad(frozen, value)(x)
