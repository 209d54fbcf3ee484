"""Random draws: pure functions of a generator's state, and the functions that advance it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ..abstract import Shape
from ..dtype import FLOATS, DType, as_dtype, float32, float64, is_float, uint64
from ..errors import AttributeRefusedError, DTypeError, ShapeError
from ..primitive import Primitive
from ..trace import current_trace
from .arithmetic import mul
from .create import on_device_of

if TYPE_CHECKING:
    from ..tensor import Tensor

__all__ = [
    "Bernoulli", "Normal", "Uniform", "bernoulli", "dropout", "normal", "uniform",
]  # fmt: skip


class Draw(Primitive, abstract=True):
    """Independent draws of `shape` and `dtype` from the stream that `state` stands for.

    state: (key, offset), uint64[2]; the draw starts `skip` blocks after the offset and uses
    `block_count(shape, dtype)` of them. Equal inputs and attributes give equal bits.
    """

    differentiable = False
    shape: Shape
    dtype: DType

    def infer_shape(self, state: Shape) -> Shape:
        if state != (2,):
            raise ShapeError(f"{self.name} needs state of shape (2,), (key, offset); got {state}")
        return self.shape

    def infer_dtype(self, state: DType) -> DType:
        if state != uint64:
            raise DTypeError(f"{self.name} needs state of uint64; got {state.name}")
        return self.dtype


class FloatDraw(Draw, abstract=True):
    """Draws of floats."""

    def infer_dtype(self, state: DType) -> DType:
        if self.dtype not in FLOATS:
            raise DTypeError(
                f"{self.name} draws floats; got dtype {self.dtype.name}; cast the draw"
            )
        return super().infer_dtype(state)


class Uniform(FloatDraw):
    """Draws from [low, high), spaced by (high - low) / 2**24, or 2**53 for float64."""

    low: float = 0.0
    high: float = 1.0
    skip: int = 0

    def infer_shape(self, state: Shape) -> Shape:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low <= self.high):
            raise AttributeRefusedError(
                f"{self.name} got low={self.low} and high={self.high}; both are finite and low is "
                "not above high"
            )
        return super().infer_shape(state)


class Normal(FloatDraw):
    """Draws from the normal distribution of `mean` and standard deviation `std`."""

    mean: float = 0.0
    std: float = 1.0
    skip: int = 0

    def infer_shape(self, state: Shape) -> Shape:
        if not (math.isfinite(self.mean) and math.isfinite(self.std) and self.std >= 0):
            raise AttributeRefusedError(
                f"{self.name} got mean={self.mean} and std={self.std}; both are finite and std is "
                "not negative"
            )
        return super().infer_shape(state)


class Bernoulli(Draw):
    """Draws that are 1 with probability `p` (to 24 bits, rounded up), else 0, in any dtype."""

    p: float = 0.5
    skip: int = 0

    def infer_shape(self, state: Shape) -> Shape:
        if not 0.0 <= self.p <= 1.0:
            raise AttributeRefusedError(f"{self.name} got p={self.p}; a probability is in [0, 1]")
        return super().infer_shape(state)


def uniform(
    shape: int | Shape, low: float = 0.0, high: float = 1.0, dtype: object = float32
) -> Tensor:
    """Independent draws from [low, high), from the default generator.

    low, high: finite Python numbers, low <= high. dtype: a float one.
    """
    extents, kind = as_shape(shape), as_dtype(dtype)
    state, skip = reserved(extents, kind)
    return Uniform(extents, kind, low, high, skip)(state)


def normal(
    shape: int | Shape, mean: float = 0.0, std: float = 1.0, dtype: object = float32
) -> Tensor:
    """Independent draws from the normal distribution, from the default generator.

    mean, std: finite Python numbers, std >= 0. dtype: a float one.
    """
    extents, kind = as_shape(shape), as_dtype(dtype)
    state, skip = reserved(extents, kind)
    return Normal(extents, kind, mean, std, skip)(state)


def bernoulli(shape: int | Shape, p: float = 0.5, dtype: object = bool) -> Tensor:
    """Independent draws that are True with probability p, from the default generator.

    p: a Python number in [0, 1], taken to 24 bits. dtype: bool, or any other for ones and zeros.
    """
    extents, kind = as_shape(shape), as_dtype(dtype)
    state, skip = reserved(extents, kind)
    return Bernoulli(extents, kind, p, skip)(state)


def dropout(x: Any, p: float = 0.5) -> Tensor:
    """x with each element set to 0 with probability p, the others divided by 1 - p.

    The expectation is x. p: a Python number in [0, 1]; the draws are the default generator's, made
    on x's device.
    Source: Srivastava et al., "Dropout" (2014).
    """
    if not 0.0 <= p <= 1.0:
        raise AttributeRefusedError(f"dropout got p={p}; a probability is in [0, 1]")
    if p == 0.0:
        return x  # type: ignore[no-any-return]
    given = getattr(x, "dtype", None)
    kind = float32 if given is None or not is_float(as_dtype(given)) else as_dtype(given)
    with on_device_of(x):
        kept = bernoulli(np.shape(x), 1.0 - p, kind)
    return mul(x, mul(kept, 1.0 / (1.0 - p)) if p < 1.0 else kept)


def reserved(shape: Shape, dtype: DType) -> tuple[Any, int]:
    """The state to draw from and the blocks to skip, which are taken from the generator."""
    return current_trace().reserve(block_count(shape, dtype))


def block_count(shape: Shape, dtype: DType) -> int:
    """Blocks of four words that a draw takes: two words an element for float64, else one."""
    return -(-math.prod(shape) // (2 if dtype == float64 else 4))


def as_shape(shape: int | Shape) -> Shape:
    """A tuple of ints >= 0; ShapeError for anything else."""
    extents = (shape,) if isinstance(shape, int) else tuple(shape)
    if any(not hasattr(n, "__index__") or n < 0 for n in extents):
        raise ShapeError(f"a random draw got shape {shape!r}; a shape is a tuple of ints >= 0")
    return tuple(n.__index__() for n in extents)
