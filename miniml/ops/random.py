"""Random draws: pure functions of a generator's state, and the functions that advance it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ..abstract import Shape
from ..dtype import FLOATS, DType, as_dtype, float32, float64, uint64
from ..errors import AttributeRefusedError, DTypeError, ShapeError
from ..primitive import Primitive
from ..trace import Stream, current_trace

if TYPE_CHECKING:
    from ..tensor import Tensor

__all__ = [
    "Bernoulli", "Gumbel", "Normal", "TruncatedNormal", "Uniform", "bernoulli", "gumbel", "normal",
    "truncated_normal", "uniform",
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


class Gumbel(FloatDraw):
    """Draws of loc - scale * log(-log(u)) with u uniform in (0, 1): Gumbel's distribution."""

    loc: float = 0.0
    scale: float = 1.0
    skip: int = 0

    def infer_shape(self, state: Shape) -> Shape:
        if not (math.isfinite(self.loc) and math.isfinite(self.scale) and self.scale >= 0):
            raise AttributeRefusedError(
                f"{self.name} got loc={self.loc} and scale={self.scale}; both are finite and scale "
                "is not negative"
            )
        return super().infer_shape(state)


class TruncatedNormal(FloatDraw):
    """Draws from the part of the normal distribution of `mean` and `std` in [low, high].

    They are mean + std * z with z = inverse(cdf(a) + u (cdf(b) - cdf(a))), where a and b are low
    and high in units of std, u is uniform in (0, 1), and cdf is that of the normal distribution.
    """

    mean: float = 0.0
    std: float = 1.0
    low: float = -2.0
    high: float = 2.0
    skip: int = 0

    def infer_shape(self, state: Shape) -> Shape:
        if not (math.isfinite(self.mean) and math.isfinite(self.std) and self.std > 0):
            raise AttributeRefusedError(
                f"{self.name} got mean={self.mean} and std={self.std}; both are finite and std is "
                "above 0"
            )
        nearest = min(max(self.mean, self.low), self.high)
        if not self.low < self.high or abs(nearest - self.mean) > 37 * self.std:
            raise AttributeRefusedError(
                f"{self.name} got low={self.low} and high={self.high} for mean={self.mean} and "
                f"std={self.std}; low is below high, and one of them within 37 std of the mean"
            )
        return super().infer_shape(state)


def uniform(
    shape: int | Shape,
    low: float = 0.0,
    high: float = 1.0,
    dtype: object = float32,
    generator: Stream | None = None,
) -> Tensor:
    """Independent draws from [low, high), of a float dtype.

    low, high: finite Python numbers, low <= high. generator: the ml.Generator whose stream they are
    taken from, here as in all draws; None for the default one.
    """
    return drawn(Uniform, shape, dtype, generator, low, high)


def normal(
    shape: int | Shape,
    mean: float = 0.0,
    std: float = 1.0,
    dtype: object = float32,
    generator: Stream | None = None,
) -> Tensor:
    """Independent draws mean + std * z, z from the standard normal distribution.

    mean, std: finite Python numbers, std >= 0. dtype: a float one.
    """
    return drawn(Normal, shape, dtype, generator, mean, std)


def bernoulli(
    shape: int | Shape, p: float = 0.5, dtype: object = bool, generator: Stream | None = None
) -> Tensor:
    """Independent draws that are True with probability p.

    p: a Python number in [0, 1], taken to 24 bits. dtype: bool, or any other for ones and zeros.
    """
    return drawn(Bernoulli, shape, dtype, generator, p)


def gumbel(
    shape: int | Shape,
    loc: float = 0.0,
    scale: float = 1.0,
    dtype: object = float32,
    generator: Stream | None = None,
) -> Tensor:
    """Independent draws loc - scale * log(-log(u)), u uniform in (0, 1) with 53 bits.

    loc, scale: finite Python numbers, scale >= 0. dtype: a float one; it is computed in float64.
    """
    return drawn(Gumbel, shape, dtype, generator, loc, scale)


def truncated_normal(
    shape: int | Shape,
    mean: float = 0.0,
    std: float = 1.0,
    low: float = -2.0,
    high: float = 2.0,
    dtype: object = float32,
    generator: Stream | None = None,
) -> Tensor:
    """Independent draws mean + std * z, z standard normal, given that they lie in [low, high].

    mean, std: finite Python numbers, std > 0. low, high: bounds of the draws themselves, not of z;
    one may be infinite, and one is at most 37 std from the mean. dtype: a float one; it is computed
    in float64, and the bounds are rounded to it.
    """
    return drawn(TruncatedNormal, shape, dtype, generator, mean, std, low, high)


def drawn(
    kind: Any,
    shape: int | Shape,
    dtype: object,
    generator: Stream | None,
    *numbers: float,
) -> Tensor:
    """A draw of this kind with these attributes, whose blocks are taken from the generator."""
    if generator is not None and not hasattr(generator, "reserve"):
        raise DTypeError(
            f"{kind.name} got generator={generator!r}; it takes an ml.Generator, or None for the "
            "default one"
        )
    extents, of = as_shape(shape), as_dtype(dtype)
    wide = float64 if kind in (Gumbel, TruncatedNormal) else of
    state, skip = current_trace().reserve(block_count(extents, wide), generator)
    return kind(extents, of, *numbers, skip=skip)(state)  # type: ignore[no-any-return]


def block_count(shape: Shape, dtype: DType) -> int:
    """Blocks of four words that a draw takes: two words an element for float64, else one.

    Gumbel and TruncatedNormal are drawn as float64 always.
    """
    return -(-math.prod(shape) // (2 if dtype == float64 else 4))


def as_shape(shape: int | Shape) -> Shape:
    """A tuple of ints >= 0; ShapeError for anything else."""
    extents = (shape,) if isinstance(shape, int) else tuple(shape)
    if any(not hasattr(n, "__index__") or n < 0 for n in extents):
        raise ShapeError(f"a random draw got shape {shape!r}; a shape is a tuple of ints >= 0")
    return tuple(n.__index__() for n in extents)
