"""Shapes: the same elements arranged, repeated or summed into another shape."""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any

from ..abstract import Shape
from ..attributes import freeze
from ..dtype import DType, bool_
from ..errors import AttributeRefusedError, DTypeError, ShapeError
from ..formats import known, unknown
from ..primitive import Primitive
from . import rules
from .inference.shapes import Axes, as_shape, normal_axes, normal_axis, shape_of

if TYPE_CHECKING:
    from ..tensor import Tensor

__all__ = [
    "BroadcastTo", "Convert", "ExpandDims", "Flip", "Reshape", "Squeeze", "SumTo", "Transpose",
    "broadcast_to", "expand_dims", "flip", "moveaxis", "reshape", "squeeze", "sum_to", "swapaxes",
    "tile", "transpose",
]  # fmt: skip


class Reshape(Primitive):
    """The elements of x, in row-major order, in another `shape`, of which one extent may be -1."""

    shape: Shape

    def infer_shape(self, x: Shape) -> Shape:
        return filled_shape(self.name, x, self.shape)


class Transpose(Primitive):
    """The axes in another order: axis i of the result is axis `axes[i]` of x."""

    axes: tuple[int, ...]

    def infer_shape(self, x: Shape) -> Shape:
        return tuple(x[a] for a in permutation(self.name, self.axes, len(x)))


class BroadcastTo(Primitive):
    """x repeated to `shape` by NumPy's broadcasting rule."""

    shape: Shape

    def infer_shape(self, x: Shape) -> Shape:
        if not broadcasts_to(x, self.shape):
            raise ShapeError(
                f"BroadcastTo cannot bring shape {x} to {self.shape}; axes are matched from the "
                "last, and an extent must be equal or 1"
            )
        return self.shape


class SumTo(Primitive):
    """x summed down to `shape`, which broadcasts to x's: the transpose of BroadcastTo."""

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
    """Images x (N, C, H, W), in memory from here on in `format`: "NCHW", "NHWC", "CHWN" or
    "NC16HW". Their value and shape stay the same.

    Compiled programs insert it where kernels need it. Tensors are always in row-major order, so an
    eager call is a copy.
    """

    format: str

    def infer_shape(self, x: Shape) -> Shape:
        if not known(self.format):
            raise AttributeRefusedError(f"Convert: {unknown(self.format)}")
        if len(x) != 4:
            raise ShapeError(f"Convert needs images (N, C, H, W); got x of shape {x}")
        return x


class ExpandDims(Primitive):
    """x with axes of extent 1 inserted; `axis` counts in the result's axes."""

    axis: int | tuple[int, ...]

    def infer_shape(self, x: Shape) -> Shape:
        count = len(self.axis) if isinstance(self.axis, tuple) else 1
        axes = normal_axes(self.name, self.axis, len(x) + count, of="a result")
        rest = iter(x)
        return tuple(1 if i in axes else next(rest) for i in range(len(x) + count))


class Squeeze(Primitive):
    """x without the axes `axis`, each of extent 1, or without all such axes for None."""

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


class Flip(Primitive):
    """x with the order of its elements reversed along `axis`, along all axes for None."""

    axis: Axes = None
    infer_shape = rules.along("axis")


def broadcasts_to(small: Shape, large: Shape) -> bool:
    """True when an array of shape `small` broadcasts to exactly `large`."""
    tail = large[len(large) - len(small) :]
    return len(small) <= len(large) and all(s in (1, t) for s, t in zip(small, tail, strict=True))


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


def permutation(name: str, axes: tuple[int, ...], ndim: int) -> tuple[int, ...]:
    """`axes` as numbers >= 0; ShapeError unless each of the ndim axes is there once."""
    if len(axes) != ndim:
        raise ShapeError(
            f"{name} got axes {axes} for a tensor of rank {ndim}; name each of its axes once"
            + ", or swap two with ops.swapaxes(x, axis1, axis2)" * (len(axes) == 2)
        )
    normal_axes(name, axes, ndim)
    return tuple(normal_axis(name, a, ndim) for a in axes)


def reshape(x: Any, shape: int | Shape) -> Tensor:
    """The elements of x, in row-major order, in another shape; one extent may be -1."""
    return Reshape(as_shape(shape, "Reshape"))(x)


def transpose(x: Any, axes: tuple[int, ...] | None = None) -> Tensor:
    """x with its axes in the order `axes`, reversed for None; negative axes count from the end."""
    order = range(len(shape_of(x)))[::-1] if axes is None else axes
    return Transpose(freeze(order, "Transpose", "axes"))(x)


def swapaxes(x: Any, axis1: int, axis2: int) -> Tensor:
    """x with two of its axes exchanged."""
    ndim = len(shape_of(x))
    order = list(range(ndim))
    a, b = normal_axis("swapaxes", axis1, ndim), normal_axis("swapaxes", axis2, ndim)
    order[a], order[b] = b, a
    return Transpose(tuple(order))(x)


def moveaxis(x: Any, source: int | tuple[int, ...], destination: int | tuple[int, ...]) -> Tensor:
    """x with the axes `source` moved to the places `destination`; the others keep their order."""
    ndim = len(shape_of(x))
    sources, places = _ordered_axes(source, ndim), _ordered_axes(destination, ndim)
    if len(sources) != len(places):
        raise ShapeError(
            f"moveaxis got {len(sources)} axes to move to {len(places)} places; name one for each"
        )
    moved = dict(zip(places, sources, strict=True))
    rest = iter(a for a in range(ndim) if a not in sources)
    return Transpose(tuple(moved[i] if i in moved else next(rest) for i in range(ndim)))(x)


def _ordered_axes(axis: int | tuple[int, ...], ndim: int) -> tuple[int, ...]:
    frozen = freeze(axis, "moveaxis", "axis")
    normal_axes("moveaxis", frozen, ndim)
    given = frozen if isinstance(frozen, tuple) else (frozen,)
    return tuple(normal_axis("moveaxis", a, ndim) for a in given)


_broadcasting = lru_cache(1024)(BroadcastTo)  # found sooner than made: every sum's gradient is one


def broadcast_to(x: Any, shape: int | Shape) -> Tensor:
    """x repeated to `shape`."""
    return _broadcasting(as_shape(shape, "BroadcastTo"))(x)


def sum_to(x: Any, shape: int | Shape) -> Tensor:
    """x summed down to `shape`, over no axes where it has that shape."""
    return SumTo(as_shape(shape, "SumTo"))(x)


def expand_dims(x: Any, axis: int | tuple[int, ...]) -> Tensor:
    """x with axes of extent 1 at the places `axis` of the result."""
    return ExpandDims(freeze(axis, "ExpandDims", "axis"))(x)


def squeeze(x: Any, axis: Axes = None) -> Tensor:
    """x without the axes `axis`, each of extent 1; without all such axes for None."""
    return Squeeze(freeze(axis, "Squeeze", "axis"))(x)


def flip(x: Any, axis: Axes = None) -> Tensor:
    """x with the order of its elements reversed along `axis`, along all axes for None."""
    return Flip(freeze(axis, "Flip", "axis"))(x)


def tile(x: Any, reps: int | tuple[int, ...]) -> Tensor:
    """x repeated `reps[i]` times along axis i, as np.tile does.

    The shorter of shape and reps gets ones in front.
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
