"""Random draws: pure functions of a generator's state, and the functions that advance it."""

from __future__ import annotations

import math
from operator import index
from typing import TYPE_CHECKING, Any

import numpy as np

from ..abstract import Shape
from ..dtype import FLOATS, INTEGERS, DType, as_dtype, float32, float64, int64, is_float, uint64
from ..errors import AttributeRefusedError, DTypeError, OutOfRangeError, ShapeError
from ..primitive import Primitive
from ..trace import current_trace
from . import reduce
from .arithmetic import add, as_float, cast, floor, mul
from .compare import isfinite, select
from .create import arange
from .index import gather
from .inference.bodies import known_truth
from .inference.shapes import dtype_of, normal_axis, shape_of
from .sort import argsort

if TYPE_CHECKING:
    from ..random import Generator
    from ..tensor import Tensor

__all__ = [
    "Bernoulli", "Gumbel", "Normal", "TruncatedNormal", "Uniform", "bernoulli", "categorical",
    "dropout", "gumbel", "normal", "permutation", "randint", "truncated_normal", "uniform",
]  # fmt: skip
_EXACT = 1 << 53  # the numbers that a uniform draw of float64 may be, all equally likely


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
    generator: Generator | None = None,
) -> Tensor:
    """Independent draws from [low, high), of a float dtype.

    low, high: finite Python numbers, low <= high. generator: the ml.Generator whose stream they are
    taken from, here as in all draws; None for the default one.
    """
    return _drawn(Uniform, shape, dtype, generator, low, high)


def normal(
    shape: int | Shape,
    mean: float = 0.0,
    std: float = 1.0,
    dtype: object = float32,
    generator: Generator | None = None,
) -> Tensor:
    """Independent draws mean + std * z, z from the standard normal distribution.

    mean, std: finite Python numbers, std >= 0. dtype: a float one.
    """
    return _drawn(Normal, shape, dtype, generator, mean, std)


def bernoulli(
    shape: int | Shape, p: float = 0.5, dtype: object = bool, generator: Generator | None = None
) -> Tensor:
    """Independent draws that are True with probability p.

    p: a Python number in [0, 1], taken to 24 bits. dtype: bool, or any other for ones and zeros.
    """
    return _drawn(Bernoulli, shape, dtype, generator, p)


def gumbel(
    shape: int | Shape,
    loc: float = 0.0,
    scale: float = 1.0,
    dtype: object = float32,
    generator: Generator | None = None,
) -> Tensor:
    """Independent draws loc - scale * log(-log(u)), u uniform in (0, 1) with 53 bits.

    loc, scale: finite Python numbers, scale >= 0. dtype: a float one; it is computed in float64.
    """
    return _drawn(Gumbel, shape, dtype, generator, loc, scale)


def truncated_normal(
    shape: int | Shape,
    mean: float = 0.0,
    std: float = 1.0,
    low: float = -2.0,
    high: float = 2.0,
    dtype: object = float32,
    generator: Generator | None = None,
) -> Tensor:
    """Independent draws mean + std * z, z standard normal, of those that lie in [low, high].

    mean, std: finite Python numbers, std > 0. low, high: bounds of the draws themselves, not of z;
    one may be infinite, and one is at most 37 std from the mean. dtype: a float one; it is computed
    in float64, and the bounds are rounded to it.
    """
    return _drawn(TruncatedNormal, shape, dtype, generator, mean, std, low, high)


def randint(
    shape: int | Shape,
    low: int,
    high: int,
    dtype: object = int64,
    generator: Generator | None = None,
) -> Tensor:
    """Independent draws low + floor((high - low) * u), u uniform in [0, 1): integers below high.

    low, high: ints that an integer `dtype` holds (high less 1), low < high, at most 2^53 apart.
    Each is drawn with a probability that differs from 1 / (high - low) by less than 2^-53.

    >>> bool((randint((100,), -3, 4) < 4).all())
    True
    """
    kind = as_dtype(dtype)
    if kind not in INTEGERS:
        raise DTypeError(f"randint draws integers; got dtype {kind.name}; cast the draw")
    whole = all(hasattr(end, "__index__") for end in (low, high))
    if not (whole and 0 < high - low <= _EXACT):
        raise AttributeRefusedError(
            f"randint got low={low} and high={high}; they are ints, low below high by at most 2**53"
        )
    first, end = index(low), index(high)
    info = np.iinfo(kind)
    if first < info.min or end - 1 > info.max:
        raise DTypeError(f"randint got low={low} and high={high}, which {kind.name} cannot hold")
    unit = _drawn(Uniform, shape, float64, generator)
    steps = cast(floor(mul(unit, float(end - first))), int64)
    start = np.array(first % 2**64, np.uint64).astype(np.int64)  # wraps, as the cast does
    return cast(add(steps, start), kind)


def permutation(x: Any, axis: int = 0, generator: Generator | None = None) -> Tensor:
    """x with its slices along `axis` in random order; for an int n, 0 to n - 1 in random order.

    All orders are equally likely, up to n^2 / 2^54: the order is that of random numbers of 53
    bits, of which equal ones stay as they are. ShapeError for an n below 0, and where there is no
    such axis.
    """
    whole = isinstance(x, (int, np.integer)) and not isinstance(x, bool)
    count = index(x) if whole else shape_of(x)[normal_axis("permutation", axis, len(shape_of(x)))]
    order = argsort(_drawn(Uniform, count, float64, generator))
    return order if whole else gather(x, order, axis)


def categorical(logits: Any, shape: int | Shape = (), generator: Generator | None = None) -> Tensor:
    """Independent draws of i with probability softmax(logits)[i] along the last axis: int64.

    logits: floats of shape (..., n), log-probabilities up to a constant; -inf is never drawn. The
    output has `shape`, then that of logits without n. It is argmax(logits + gumbel noise).
    OutOfRangeError when a row has a NaN, inf or nothing but -inf; from a compiled function it
    speaks of the index n, as of gather: on a GPU that draws 0 instead.
    Source: Gumbel (1954); Maddison, Tarlow, Minka, "A* sampling" (2014).

    >>> categorical([0.0, -float("inf")], (3,)).tolist()
    [0, 0, 0]
    """
    logits = as_float(logits)
    rows, kind = shape_of(logits), dtype_of(logits)
    if not rows or not rows[-1]:
        raise ShapeError(
            f"categorical got logits of shape {rows}; the last axis has one logit or more for each "
            "draw"
        )
    kind = kind if kind == float64 else float32
    noise = _drawn(Gumbel, (*as_shape(shape), *rows), kind, generator)
    drawn = reduce.argmax(add(cast(logits, kind), noise), -1)
    sound = isfinite(reduce.max(logits, -1))
    if known_truth("categorical", reduce.all(sound)) is False:
        raise OutOfRangeError(
            "categorical got a row of logits with a NaN, with inf, or of nothing but -inf; they "
            "are log-probabilities up to a constant, one of them finite"
        )
    return gather(arange(rows[-1]), select(sound, drawn, rows[-1]))


def dropout(x: Any, p: float = 0.5, generator: Generator | None = None) -> Tensor:
    """x with each element set to 0 with probability p, the others divided by 1 - p.

    The expectation is x. p: a Python number in [0, 1].
    Source: Srivastava et al., "Dropout" (2014).
    """
    if not 0.0 <= p <= 1.0:
        raise AttributeRefusedError(f"dropout got p={p}; a probability is in [0, 1]")
    if p == 0.0:
        return x  # type: ignore[no-any-return]
    given = getattr(x, "dtype", None)
    kind = float32 if given is None or not is_float(as_dtype(given)) else as_dtype(given)
    kept = bernoulli(np.shape(x), 1.0 - p, kind, generator)
    return mul(x, mul(kept, 1.0 / (1.0 - p)) if p < 1.0 else kept)


def _drawn(
    kind: Any,
    shape: int | Shape,
    dtype: object,
    generator: Generator | None,
    *numbers: float,
) -> Tensor:
    """A draw of this kind with these attributes, whose blocks are taken from the generator."""
    if generator is not None and not hasattr(generator, "manual_seed"):
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
