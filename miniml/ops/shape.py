"""Shape operations: reshape, transpose, broadcast, flip; and concat, split, slice, pad."""

from __future__ import annotations

import builtins
from functools import lru_cache
from math import prod
from typing import Any

from ..core.abstract import DType, Shape, bool_, known, unknown
from ..core.errors import ArityError, AttributeRefusedError, DTypeError, ShapeError
from ..core.options import count
from ..core.primitive import Primitive, freeze
from . import rules
from .checks import (
    Axes,
    Tensor,
    as_shape,
    broadcast,
    broadcasts_to,
    composition,
    fitting,
    normal_axes,
    normal_axis,
    ordered_axes,
    shape_of,
)
from .rules import Move, moves

__all__ = [
    "BroadcastTo", "Convert", "ExpandDims", "Flip", "Reshape", "Squeeze", "SumTo", "Transpose",
    "broadcast_arrays", "broadcast_to", "expand_dims", "flatten", "flip", "moveaxis", "reshape",
    "squeeze", "sum_to", "swap_axes", "swapaxes", "tile", "transpose",
    "Concat", "Pad", "SlidingWindow", "Slice", "SliceGrad", "Split",
    "concat", "slice", "sliding_window", "split", "stack", "unstack",
]  # fmt: skip


class Reshape(Primitive):
    """The elements of x, in row-major order, in another `shape`, of which one extent may be -1."""

    takes_complex = True
    view = "reshape"
    shape: Shape

    def infer_shape(self, x: Shape) -> Shape:
        return filled_shape(self.name, x, self.shape)


class Transpose(Primitive):
    """The axes in another order: axis i of the result is axis `axes[i]` of x."""

    takes_complex = True
    view = "transpose"
    axes: tuple[int, ...]

    def infer_shape(self, x: Shape) -> Shape:
        return tuple(x[a] for a in permutation(self.name, self.axes, len(x)))


class BroadcastTo(Primitive):
    """x repeated to `shape` by NumPy's broadcasting rule.

    ShapeError where an extent of x is neither 1 nor that of `shape`.
    """

    takes_complex = True
    view = "broadcast"
    elementwise = True
    shape: Shape

    def infer_shape(self, x: Shape) -> Shape:
        if not broadcasts_to(x, self.shape):
            raise ShapeError(
                f"BroadcastTo cannot bring shape {x} to {self.shape}; axes are matched from the "
                "last, and an extent must be equal or 1"
            )
        return self.shape


class SumTo(Primitive):
    """x summed down to `shape`, which broadcasts to x's: the transpose of BroadcastTo.

    ShapeError where `shape` does not broadcast so, DTypeError for bool.
    """

    takes_complex = True
    reduces = "sum"
    linear = ("x",)
    images = ("x",)
    rounds = True
    shape: Shape

    def infer_shape(self, x: Shape) -> Shape:
        if not broadcasts_to(self.shape, x):
            raise ShapeError(
                f"SumTo cannot sum shape {x} down to {self.shape}; the target must broadcast to x"
            )
        return self.shape

    def infer_dtype(self, x: DType) -> DType:
        if x == bool_:
            raise DTypeError("SumTo cannot sum bool in bool; cast the tensor first")
        return x


class Convert(Primitive):
    """Images x (N, C, H, W) in the memory format `format`: "NCHW", "NHWC", "CHWN" or "NC16HW".
    Their value and shape stay the same.

    Compiled programs insert it where kernels need it. Tensors are always in row-major order, so an
    eager call is a copy. AttributeRefusedError for another format, ShapeError for an x without four
    axes.
    """

    flops = moves
    elementwise = True
    any_format = True
    format: str

    def infer_shape(self, x: Shape) -> Shape:
        if not known(self.format):
            raise AttributeRefusedError(f"Convert: {unknown(self.format)}")
        if len(x) != 4:
            raise ShapeError(f"Convert needs images (N, C, H, W); got x of shape {x}")
        return x


class ExpandDims(Primitive):
    """x with axes of extent 1 inserted; `axis` counts in the result's axes."""

    takes_complex = True
    view = "reshape"
    axis: int | tuple[int, ...]

    def infer_shape(self, x: Shape) -> Shape:
        given = self.axis if isinstance(self.axis, tuple) else (self.axis,)
        count = len(given)
        axes = normal_axes(self.name, given, len(x) + count, of="a result")
        rest = iter(x)
        return tuple(1 if i in axes else next(rest) for i in range(len(x) + count))


class Squeeze(Primitive):
    """x without the axes `axis`, each of extent 1, or without all such axes for None.

    ShapeError for an axis of another extent.
    """

    takes_complex = True
    view = "reshape"
    axis: Axes = None

    def infer_shape(self, x: Shape) -> Shape:
        if self.axis is None:
            return tuple(n for n in x if n != 1)
        axes = normal_axes(self.name, self.axis, len(x))
        for a in axes:
            if x[a] != 1:
                raise ShapeError(
                    f"Squeeze cannot drop axis {a} of shape {x}, whose extent is {x[a]}; only axes "
                    "of extent 1 can go"
                )
        return tuple(n for i, n in enumerate(x) if i not in axes)


class Flip(Move):
    """x with the order of its elements reversed along `axis`, along all axes for None."""

    linear = ("x",)
    axis: Axes = None
    infer_shape = rules.along("axis")


def filled_shape(name: str, x: Shape, shape: Shape) -> Shape:
    """The target of a reshape with its -1 replaced; ShapeError where the elements do not fit."""
    known = prod(n for n in shape if n != -1)
    size = prod(x)
    unknown = shape.count(-1)
    if unknown > 1 or any(n < -1 for n in shape):
        raise ShapeError(f"{name} got shape {shape}; extents are >= 0, and one of them may be -1")
    if unknown and known and size % known == 0:
        return tuple(size // known if n == -1 else n for n in shape)
    if unknown or known != size:
        raise ShapeError(
            f"{name} cannot arrange the {size} elements of shape {x} as {shape}; "
            + (f"no extent fits -1 beside {known}" if unknown else f"{shape} holds {known}")
        )
    return shape


def permutation(name: str, axes: int | tuple[int, ...], ndim: int) -> tuple[int, ...]:
    """`axes` as numbers >= 0; ShapeError unless each of the ndim axes occurs once."""
    given = axes if isinstance(axes, tuple) else (axes,)
    if len(given) != ndim:
        raise ShapeError(
            f"{name} got axes {axes} for a tensor of rank {ndim}; name each of its axes once"
            + ", or swap two with ops.swapaxes(x, axis1, axis2)" * (len(given) == 2)
        )
    return ordered_axes(name, given, ndim)


@composition
def reshape(x: Any, shape: int | Shape) -> Tensor:
    """The elements of x, in row-major order, in another shape; one extent may be -1."""
    return Reshape(as_shape(shape, "Reshape"))(x)


@composition
def flatten(x: Any, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """x with the axes start_dim to end_dim, both included, as one; by default all of them.

    ShapeError where start_dim is behind end_dim.

    >>> flatten([[[1, 2], [3, 4]]], 1).tolist()
    [[1, 2, 3, 4]]
    """
    shape = shape_of(x) or (1,)
    start, end = (normal_axis("flatten", axis, len(shape)) for axis in (start_dim, end_dim))
    if start > end:
        raise ShapeError(
            f"flatten got start_dim {start_dim} behind end_dim {end_dim} of shape {shape}; "
            "exchange them"
        )
    return reshape(x, (*shape[:start], prod(shape[start : end + 1]), *shape[end + 1 :]))


@composition
def transpose(x: Any, axes: tuple[int, ...] | None = None) -> Tensor:
    """x with its axes in the order `axes`, reversed for None; negative axes count from the end."""
    order = range(len(shape_of(x)))[::-1] if axes is None else axes
    return Transpose(freeze(order, "Transpose", "axes"))(x)


@composition
def swapaxes(x: Any, axis1: int, axis2: int) -> Tensor:
    """x with two of its axes exchanged."""
    ndim = len(shape_of(x))
    order = list(range(ndim))
    a, b = normal_axis("swapaxes", axis1, ndim), normal_axis("swapaxes", axis2, ndim)
    order[a], order[b] = b, a
    return Transpose(tuple(order))(x)


swap_axes = swapaxes


@composition
def moveaxis(x: Any, source: int | tuple[int, ...], destination: int | tuple[int, ...]) -> Tensor:
    """x with the axes `source` moved to the positions `destination`; the others keep order.

    ShapeError unless there is a position for each."""
    ndim = len(shape_of(x))
    given = (freeze(axis, "moveaxis", "axis") for axis in (source, destination))
    sources, targets = (ordered_axes("moveaxis", axes, ndim) for axes in given)
    if len(sources) != len(targets):
        raise ShapeError(
            f"moveaxis got {len(sources)} axes to move to {len(targets)} places; name one for each"
        )
    moved = dict(zip(targets, sources, strict=True))
    rest = iter(a for a in range(ndim) if a not in sources)
    return Transpose(tuple(moved[i] if i in moved else next(rest) for i in range(ndim)))(x)


_broadcasting = lru_cache(1024)(BroadcastTo)  # cached, because every sum's gradient is one


@composition
def broadcast_to(x: Any, shape: int | Shape) -> Tensor:
    """x repeated to `shape`."""
    return _broadcasting(as_shape(shape, "BroadcastTo"))(x)


@composition
def broadcast_arrays(*xs: Any) -> tuple[Tensor, ...]:
    """Each of xs repeated to the shape that they broadcast to together, in its own dtype.

    >>> [x.tolist() for x in broadcast_arrays([1, 2], [[3], [4]])]
    [[[1, 2], [1, 2]], [[3, 3], [4, 4]]]
    """
    common = broadcast("broadcast_arrays", *map(shape_of, xs))
    return tuple(broadcast_to(x, common) for x in xs)


def sum_to(x: Any, shape: int | Shape) -> Tensor:
    """x summed down to `shape`, over no axes where it has that shape."""
    return SumTo(as_shape(shape, "SumTo"))(x)


@composition
def expand_dims(x: Any, axis: int | tuple[int, ...]) -> Tensor:
    """x with axes of extent 1 at the positions `axis` of the result."""
    return ExpandDims(freeze(axis, "ExpandDims", "axis"))(x)


@composition
def squeeze(x: Any, axis: Axes = None) -> Tensor:
    """x without the axes `axis`, each of extent 1; without all such axes for None."""
    return Squeeze(freeze(axis, "Squeeze", "axis"))(x)


@composition
def flip(x: Any, axis: Axes = None) -> Tensor:
    """x with the order of its elements reversed along `axis`, along all axes for None."""
    return Flip(freeze(axis, "Flip", "axis"))(x)


def tile(x: Any, reps: int | tuple[int, ...]) -> Tensor:
    """x repeated `reps[i]` times along axis i, as np.tile does.

    The shorter of shape and reps gets ones in front. ShapeError for a number below 0.
    """
    counts = as_shape(reps, "tile")
    if any(n < 0 for n in counts):
        raise ShapeError(f"tile got reps {counts}; an axis is repeated 0 times or more")
    shape = shape_of(x)
    ndim = max(len(shape), len(counts))
    counts = (1,) * (ndim - len(counts)) + counts
    shape = (1,) * (ndim - len(shape)) + shape
    apart = tuple(m for n in shape for m in (1, n))
    spread = tuple(m for c, n in zip(counts, shape, strict=True) for m in (c, n))
    repeated = broadcast_to(reshape(x, apart), spread)
    return reshape(repeated, tuple(c * n for c, n in zip(counts, shape, strict=True)))


# --- Concat, split, slice and pad -----------------------------------------------------------------


Ends = tuple[int | None, ...]


class Concat(Move):
    """Any number of tensors one after the other along `axis`; their other extents are equal.

    ShapeError where they differ, ArityError without a tensor.
    """

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


class Split(Move):
    """x cut along `axis` into `sections` equal parts, or into parts of the extents `sections`."""

    linear = ("x",)
    axis: int
    sections: int | tuple[int, ...]
    outputs = "*parts"

    def infer_shape(self, x: Shape) -> tuple[Shape, ...]:
        axis = normal_axis(self.name, self.axis, len(x))
        return tuple((*x[:axis], n, *x[axis + 1 :]) for n in self.sizes(x[axis]))

    def sizes(self, extent: int) -> tuple[int, ...]:
        """The parts' extents along the axis; ShapeError where they do not make up `extent`."""
        if not isinstance(self.sections, int):
            given: Any = self.sections
            known = isinstance(given, tuple) and all(isinstance(n, int) and n >= 0 for n in given)
            if known and sum(self.sections) == extent:
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


class Slice(Move):
    """The elements of x whose index along axis i is in range(begin[i], end[i], strides[i]).

    One entry per axis; all indices are >= 0 and inside x, so a slice that runs backwards to element
    0 has end -1. Python's `slice(...).indices(extent)` gives such triples. dropped: axes with one
    element taken, which the output lacks. ShapeError where one of them has another extent.
    """

    linear = ("x",)
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


class SliceGrad(Move):
    """Zeros of `shape` with x at the elements that Slice takes: the transpose of Slice.

    ShapeError where x has not the shape of that slice.
    """

    linear = ("x",)
    shape: Shape
    begin: tuple[int, ...]
    end: tuple[int, ...]
    strides: tuple[int, ...]

    def infer_shape(self, x: Shape) -> Shape:
        expected = sliced_shape(self.name, self.shape, self.begin, self.end, self.strides)
        if x != expected:
            raise ShapeError(
                f"SliceGrad got shape {x} for a slice of shape {expected}; give that one"
            )
        return self.shape


class SlidingWindow(Primitive):
    """All windows of `size` neighbours along `axis`, `step` apart, without a copy.

    out[..., i, ..., j] = x[..., i * step + j, ...] with i at position `axis` and j along a new last
    axis. Elements that no window reaches are left out. ShapeError where the axis is shorter than a
    window.
    """

    linear = ("x",)
    flops = moves
    axis: int
    size: int
    step: int = 1

    def infer_shape(self, x: Shape) -> Shape:
        axis = normal_axis(self.name, self.axis, len(x))
        count(self.name, "size", self.size)
        count(self.name, "step", self.step)
        if self.size > x[axis]:
            raise ShapeError(
                f"SlidingWindow got size {self.size} for axis {axis} of shape {x}, whose extent is "
                f"{x[axis]}; a window has at most as many elements"
            )
        return (*x[:axis], (x[axis] - self.size) // self.step + 1, *x[axis + 1 :], self.size)


class Pad(Move):
    """x with padding[i] = (before, after) elements of `value` around it along axis i.

    ShapeError where `padding` has not one pair of numbers >= 0 for each axis.
    """

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


@composition
def concat(xs: Any, axis: int = 0) -> Tensor:
    """The tensors `xs` one after the other along `axis`, promoted to one dtype.

    ArityError for tensors that are not in a list or tuple."""
    if hasattr(axis, "shape") or not hasattr(xs, "__iter__") or isinstance(xs, type):
        raise ArityError("Concat takes its tensors in one list; write ops.concat([x, y], axis=0)")
    return Concat(freeze(axis, "Concat", "axis"))(*xs)


@composition
def stack(xs: Any, axis: int = 0) -> Tensor:
    """Tensors of one shape joined along a new axis, which is `axis` of the result.

    ShapeError for several shapes; ArityError for tensors that are not in a list or tuple."""
    if not hasattr(xs, "__iter__") or isinstance(xs, type):
        raise ArityError("stack takes its tensors in one list; write ops.stack([x, y], axis=0)")
    parts = list(xs)
    shapes = {shape_of(x) for x in parts}
    if len(shapes) > 1:
        got = ", ".join(map(str, sorted(shapes)))
        raise ShapeError(f"stack got tensors of shapes {got}; all shapes must be equal")
    shape = next(iter(shapes), ())
    if not shape or normal_axis("stack", axis, len(shape) + 1):
        return concat([expand_dims(x, axis) for x in parts], axis)
    return reshape(concat(parts), (len(parts), *shape))


@composition
def unstack(x: Any, axis: int = 0) -> tuple[Tensor, ...]:
    """The slices of x along `axis`, without that axis: the inverse of `stack`."""
    shape = shape_of(x)
    at = normal_axis("unstack", axis, len(shape))
    if not shape[at]:
        return ()
    if at or len(shape) == 1:
        return tuple(squeeze(part, at) for part in split(x, shape[at], at))
    count, extent, *rest = shape
    return split(reshape(x, (count * extent, *rest)), (extent,) * count)


@composition
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
    numbers and ends that lie outside; axes that are not named are taken whole. ShapeError for a
    stride of 0, DTypeError for bounds that are no ints."""
    shape = shape_of(x)
    given = [_per_axis(ends, len(shape)) for ends in (begin, end, strides)]
    triples = []
    for b, e, s, n in zip(*given, shape, strict=True):
        if s == 0:
            raise ShapeError(f"Slice got strides {strides!r}; a stride is not 0")
        try:
            triples.append(builtins.slice(b, e, s).indices(n))
        except TypeError:
            raise DTypeError(
                f"Slice got begin {begin!r}, end {end!r} and strides {strides!r}; these are ints "
                "or None, one or one for each axis"
            ) from None
    begins, ends, steps = zip(*triples, strict=True) if triples else ((), (), ())
    return Slice(begins, ends, steps)(x)


def _per_axis(ends: int | Ends | None, ndim: int) -> Ends:
    """Slice bounds with one entry per axis, None for those that are not given."""
    frozen = freeze(ends, "Slice", "begin, end and strides")
    entries = frozen if isinstance(frozen, tuple) else (frozen,)
    if len(entries) > ndim and entries != (None,):
        raise ShapeError(f"Slice got {len(entries)} entries {entries} for a tensor of rank {ndim}")
    return (entries + (None,) * ndim)[:ndim]


@composition
def sliding_window(
    x: Any, size: int | Shape, axis: int | tuple[int, ...] = -1, step: int | Shape = 1
) -> Tensor:
    """All windows of `size` neighbours along `axis`, `step` apart, as a view of x.

    out[..., i, ..., j] = x[..., i * step + j, ...] with i at position `axis`, whose extent is
    (n - size) // step + 1, and j along a new last axis. Tuples of axes and sizes make windows of
    several axes, whose new axes come last in that order. NumPy's sliding_window_view (its axis=None
    is a tuple of all axes), PyTorch's Tensor.unfold. The gradient adds up, for each element, that
    of the windows it is in. ShapeError where no window fits.

    >>> sliding_window([1, 2, 3, 4, 5], 3, step=2).tolist()
    [[1, 2, 3], [3, 4, 5]]
    """
    axes, sizes, steps = (
        v if isinstance(v := freeze(given, "sliding_window", name), tuple) else (v,)
        for given, name in ((axis, "axis"), (size, "size"), (step, "step"))
    )
    ndim = len(shape_of(x))
    at = [normal_axis("SlidingWindow", a, ndim) for a in axes]
    steps = steps * len(at) if len(steps) == 1 else steps
    if not len(at) == len(sizes) == len(steps):
        raise ShapeError(
            f"sliding_window got size={size!r} and step={step!r} for axis={axis!r}; give one for "
            "each axis"
        )
    normal_axes("sliding_window", axes, ndim)  # refuses one named twice
    for a, n, by in zip(at, sizes, steps, strict=True):
        x = SlidingWindow(a, n, by)(x)
    return x  # type: ignore[no-any-return]
