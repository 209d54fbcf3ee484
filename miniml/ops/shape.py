"""Shapes: the same elements arranged, repeated or summed into another shape."""

from __future__ import annotations

from typing import Any

from ..abstract import Shape
from ..dtype import DType
from ..errors import ShapeError
from ..primitive import Primitive

__all__ = ["BroadcastTo", "SumTo", "broadcast_to", "sum_to"]  # fmt: skip


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

    def infer_dtype(self, x: DType) -> DType:
        return x


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
        return x


def broadcasts_to(small: Shape, large: Shape) -> bool:
    """True when an array of shape `small` broadcasts to exactly `large`."""
    tail = large[len(large) - len(small) :]
    return len(small) <= len(large) and all(s in (1, t) for s, t in zip(small, tail, strict=True))


def broadcast_to(x: Any, shape: Shape) -> Any:
    """x repeated to `shape`."""
    return BroadcastTo(shape)(x)


def sum_to(x: Any, shape: Shape) -> Any:
    """x summed down to `shape`; x itself where it has that shape."""
    return SumTo(shape)(x)
