"""Random draws: primitives that are pure functions of a generator's state, and their functions.

In order: the primitives; the functions that advance a generator; draws made of others, such as
integers, permutations and categories, and dropout.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from operator import index
from typing import Any, ClassVar

import numpy as np

from ..core.abstract import DType, Shape, as_dtype, float32, float64, int64, is_float, uint64
from ..core.errors import (
    AttributeRefusedError,
    DTypeError,
    OutOfRangeError,
    ShapeError,
    TracedValueError,
    ValueRefusedError,
)
from ..core.options import flag, number, probability
from ..core.primitive import Primitive
from ..core.trace import Stream, current_trace
from . import reduce
from .checks import (
    Tensor,
    as_shape,
    composition,
    dtype_of,
    extents,
    needs_number,
    normal_axis,
    shape_of,
)
from .composed.elementwise import as_float
from .control import checked_truth, known_truth
from .create import arange
from .elementwise import add, cast, log, mul
from .index import gather, getitem
from .logic import greater_equal, isfinite, logical_and, select
from .reduce import argsort
from .shape import reshape

__all__ = [
    "Bernoulli", "Gamma", "Gumbel", "Normal", "Poisson", "TruncatedNormal", "Uniform",
    "bernoulli", "gumbel", "normal", "truncated_normal", "uniform",
    "categorical", "choice", "dropout", "permutation", "randint", "shuffle",
]  # fmt: skip


Checks = dict[str, Callable[[str, str, Any], float]]  # by the name of the attribute


class Draw(Primitive, abstract=True):
    """Independent draws of `shape` and `dtype` from the counter-based stream of `state`.

    state: (key, offset), uint64[2]; the draw starts `skip` blocks after the offset and uses
    `block_count(shape, dtype)` of them. Equal inputs and attributes give equal bits. of_tensors:
    how draws with tensors as parameters are made of others, for the error. checked: the checks of
    attributes.
    """

    of_tensors: ClassVar[str]
    checked: ClassVar[Checks] = {}
    differentiable = False
    shape: Shape
    dtype: DType

    def infer_shape(self, state: Shape) -> Shape:
        for name, check in self.checked.items():
            check(self.name, name, getattr(self, name))
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
        if not is_float(self.dtype):
            raise DTypeError(
                f"{self.name} draws floats; got dtype {self.dtype.name}; cast the draw"
            )
        return super().infer_dtype(state)


class Uniform(FloatDraw):
    """Draws from [low, high), spaced by (high - low) / 2**24, or 2**53 for float64.

    ValueRefusedError where low is above high or one of them is not finite.
    """

    of_tensors: ClassVar[str] = "low + (high - low) * ops.uniform(shape)"
    low: float = 0.0
    high: float = 1.0
    skip: int = 0

    def infer_shape(self, state: Shape) -> Shape:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low <= self.high):
            raise ValueRefusedError(
                f"{self.name} got low={self.low} and high={self.high}; both are finite and low is "
                "not above high"
            )
        return super().infer_shape(state)


class Normal(FloatDraw):
    """Draws from the normal distribution of `mean` and standard deviation `std`."""

    of_tensors: ClassVar[str] = "mean + std * ops.normal(shape)"
    checked: ClassVar[Checks] = {"mean": number, "std": partial(number, low=0)}
    mean: float = 0.0
    std: float = 1.0
    skip: int = 0


class Bernoulli(Draw):
    """Draws that are 1 with probability `p` (to 24 bits, rounded up), else 0, in any dtype."""

    of_tensors: ClassVar[str] = "ops.uniform(shape) < p"
    checked: ClassVar[Checks] = {"p": probability}
    p: float = 0.5
    skip: int = 0


class Gumbel(FloatDraw):
    """Draws of loc - scale * log(-log(u)) with u uniform in (0, 1): Gumbel's distribution."""

    of_tensors: ClassVar[str] = "loc + scale * ops.gumbel(shape)"
    checked: ClassVar[Checks] = {"loc": number, "scale": partial(number, low=0)}
    loc: float = 0.0
    scale: float = 1.0
    skip: int = 0


class TruncatedNormal(FloatDraw):
    """Draws from the part of the normal distribution of `mean` and `std` in [low, high].

    They are mean + std * z with z = inverse(cdf(a) + u (cdf(b) - cdf(a))), where a and b are low
    and high in units of std, u is uniform in (0, 1), and cdf is that of the normal distribution.
    ValueRefusedError where low is not below high, or both are 37 std from the mean or more.
    """

    of_tensors: ClassVar[str] = "mean + std * ops.truncated_normal(shape, 0.0, 1.0, low, high)"
    checked: ClassVar[Checks] = {"mean": number, "std": partial(number, above=0)}
    mean: float = 0.0
    std: float = 1.0
    low: float = -2.0
    high: float = 2.0
    skip: int = 0

    def infer_shape(self, state: Shape) -> Shape:
        found = super().infer_shape(state)
        nearest = min(max(self.mean, self.low), self.high)
        if not self.low < self.high or abs(nearest - self.mean) > 37 * self.std:
            raise ValueRefusedError(
                f"{self.name} got low={self.low} and high={self.high} for mean={self.mean} and "
                f"std={self.std}; low is below high, and one of them within 37 std of the mean"
            )
        return found


class Gamma(FloatDraw):
    """Draws from the gamma distributions of shape parameters `alpha` and scale 1; with `log`, their
    logarithms, which are finite where small draws are not told from 0.

    alpha: float64, whose shape is that of the output and ends in `shape`; what stands in front of
    it shares the stream. NaN where alpha is not above 0. Each element takes a block, and further
    blocks with the same low half of the counter while its draws are rejected. The gradient is that
    of the quantile at a fixed probability.
    """

    differentiable = True
    implicit = True
    log: bool = False
    skip: int = 0

    def infer_shape(self, state: Shape, alpha: Shape) -> Shape:  # type: ignore[override]
        return _of_parameter(self, "alpha", super().infer_shape(state), alpha)

    def infer_dtype(self, state: DType, alpha: DType) -> DType:  # type: ignore[override]
        return _of_float64(self, "alpha", super().infer_dtype(state), alpha)


class Poisson(Draw):
    """Draws from the Poisson distributions of means `lam`, in any dtype but bool.

    lam: float64, whose shape is that of the output and ends in `shape`, as for `Gamma`. Where lam
    is not a finite number >= 0, NaN; -1 in integers, 0 in unsigned ones. Integers that do not fit
    are the largest of the dtype. No gradient passes.
    """

    skip: int = 0

    def infer_shape(self, state: Shape, lam: Shape) -> Shape:  # type: ignore[override]
        return _of_parameter(self, "lam", super().infer_shape(state), lam)

    def infer_dtype(self, state: DType, lam: DType) -> DType:  # type: ignore[override]
        needs_number(self.name, self.dtype)
        return _of_float64(self, "lam", super().infer_dtype(state), lam)


def _of_parameter(draw: Draw, name: str, shape: Shape, given: Shape) -> Shape:
    """The shape of a draw's parameter; ShapeError unless it ends in that of the draw."""
    if given[len(given) - len(shape) :] != shape or len(given) < len(shape):
        raise ShapeError(f"{draw.name} of shape {shape} got {name} of shape {given}; broadcast it")
    return given


def _of_float64(draw: Draw, name: str, dtype: DType, given: DType) -> DType:
    """The dtype of a draw; DTypeError unless its parameter is float64."""
    if given != float64:
        raise DTypeError(f"{draw.name} needs {name} of float64; got {given.name}; cast it")
    return dtype


# --- Draws from a generator -----------------------------------------------------------------------


@composition
def uniform(
    shape: int | Shape,
    low: float = 0.0,
    high: float = 1.0,
    dtype: object = float32,
    generator: Stream | None = None,
) -> Tensor:
    """Independent draws from [low, high), of a float dtype.

    low, high: finite Python numbers, low <= high. generator: the ml.Generator from whose stream
    they are taken, here as in all draws; None for the default one.
    """
    return drawn(Uniform, shape, dtype, generator, low, high)


@composition
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


@composition
def bernoulli(
    shape: int | Shape, p: float = 0.5, dtype: object = bool, generator: Stream | None = None
) -> Tensor:
    """Independent draws that are True with probability p.

    p: a Python number in [0, 1], taken to 24 bits. dtype: bool, or any other for ones and zeros.
    """
    return drawn(Bernoulli, shape, dtype, generator, p)


@composition
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


@composition
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
    kind: Any, shape: int | Shape, dtype: object, generator: Stream | None, *numbers: float
) -> Tensor:
    """A draw of this kind with these attributes, whose blocks are taken from the generator."""
    _check_stream(kind, generator)
    given: list[Any] = [shape, *numbers]
    swapped = [number for number in given[1:] if isinstance(number, (tuple, list))]
    if swapped or isinstance(given[0], float):
        first = swapped[0] if swapped else (3,)
        raise ShapeError(
            f"{kind.name} got {', '.join(map(str, (shape, *numbers)))}; the shape comes first, as "
            f"in ops.uniform({first}, 0.0, 1.0)"
        )
    if any(hasattr(number, "asnumpy") for number in numbers):
        raise AttributeRefusedError(
            f"{kind.name} got a tensor as a parameter, which is a Python number; make the draws of "
            f"others: {kind.of_tensors}"
        )
    size, of = extents(kind.name, as_shape(shape, kind.name)), as_dtype(dtype)
    wide = float64 if kind in (Gumbel, TruncatedNormal) else of
    state, skip = current_trace().reserve(block_count(size, wide), generator)
    return kind(size, of, *numbers, skip=skip)(state)  # type: ignore[no-any-return]


def drawn_of(
    kind: Any, shape: Shape, dtype: DType, generator: Stream | None, parameter: Any, *attrs: Any
) -> Tensor:
    """A draw of this kind whose parameter has its shape, and a block for each element."""
    _check_stream(kind, generator)
    state, skip = current_trace().reserve(math.prod(shape), generator)
    return kind(shape, dtype, *attrs, skip=skip)(state, parameter)  # type: ignore[no-any-return]


def _check_stream(kind: Any, generator: object) -> None:
    if generator is not None and not hasattr(generator, "reserve"):
        raise DTypeError(
            f"{kind.name} got generator={generator!r}; it takes an ml.Generator, or None for the "
            "default one"
        )


def extents_of(name: str, shape: Any) -> Shape:
    """A shape given as an int, a tuple or a list, as extents >= 0; ShapeError otherwise."""
    if not isinstance(shape, (int, tuple, list, np.integer)) or isinstance(shape, bool):
        raise ShapeError(f"{name} got shape {shape!r}; the shape comes first, a tuple of ints")
    return extents(name, as_shape(shape, name))


def block_count(shape: Shape, dtype: DType) -> int:
    """Blocks of four words that a draw takes: two words an element for float64, else one.

    Gumbel and TruncatedNormal are drawn as float64 always.
    """
    return -(-math.prod(shape) // (2 if dtype == float64 else 4))


# --- Draws made of others -------------------------------------------------------------------------


_EXACT = 1 << 53  # the number of values of a uniform draw of float64, all equally likely


@composition
def randint(
    shape: int | Shape, low: int, high: int, dtype: object = int64, generator: Stream | None = None
) -> Tensor:
    """Independent draws low + floor((high - low) * u), u uniform in [0, 1): integers below high.

    low, high: ints that an integer `dtype` holds (high less 1), low < high, at most 2^53 apart.
    The probability of each differs from 1 / (high - low) by less than 2^-53. DTypeError for a dtype
    that is no integer or cannot hold them, AttributeRefusedError for other ends.

    >>> draws = randint((100,), -3, 4)
    >>> -3 <= draws.min().item() <= draws.max().item() < 4
    True
    """
    kind = as_dtype(dtype)
    if kind.kind not in "iu":
        raise DTypeError(f"randint draws integers; got dtype {kind.name}; cast the draw")
    ends: tuple[Any, Any] = low, high
    try:
        first, end = map(index, ends)
        whole = bool not in map(type, ends)
    except TypeError as error:
        if isinstance(error, TracedValueError):
            raise
        first, end, whole = 0, 0, False
    if not (whole and 0 < end - first <= _EXACT):
        hint = f"; the shape comes first, as in ops.randint({high}, {shape}, {low})"
        raise AttributeRefusedError(
            f"randint got low={low} and high={high}; they are ints, low below high by at most 2**53"
            + (hint if isinstance(ends[1], (tuple, list)) else "")
        )
    info = np.iinfo(kind)
    if first < info.min or end - 1 > info.max:
        raise DTypeError(f"randint got low={low} and high={high}, which {kind.name} cannot hold")
    unit = drawn(Uniform, as_shape(shape, "randint"), float64, generator)
    steps = cast(mul(unit, float(end - first)), int64)
    if first:
        steps = add(steps, np.array(first % 2**64, np.uint64).astype(np.int64))  # wraps, as a cast
    return steps if kind == int64 else cast(steps, kind)


@composition
def permutation(x: Any, axis: int = 0, generator: Stream | None = None) -> Tensor:
    """x with its slices along `axis` in random order; for an int n, 0 to n - 1 in random order.

    All orders are equally likely, up to n^2 / 2^54: the slices are sorted by random numbers of 53
    bits, equal ones stably. ShapeError for an n below 0, and where there is no such axis.
    """
    whole = isinstance(x, (int, np.integer)) and not isinstance(x, bool)
    count = index(x) if whole else shape_of(x)[normal_axis("permutation", axis, len(shape_of(x)))]
    order = argsort(drawn(Uniform, count, float64, generator))
    return order if whole else gather(x, order, axis)


def shuffle(x: Any, axis: int = 0, generator: Stream | None = None) -> Tensor:
    """x with its slices along `axis` in random order, as `permutation(x)`; x itself stays.

    ShapeError where there is no such axis; for an int use `permutation`.
    """
    normal_axis("shuffle", axis, len(shape_of(x)))
    return permutation(x, axis, generator)


@composition
def choice(
    x: Any,
    shape: int | Shape = (),
    replace: bool = True,
    p: Any = None,
    axis: int = 0,
    generator: Stream | None = None,
) -> Tensor:
    """Slices of x along `axis`, drawn at random; for an int n, of 0 to n - 1.

    The output has `shape` in place of that axis. replace: whether a slice may be drawn again; if
    not, the draws are the first of a random order. p: a probability for each slice, up to a common
    factor, none below 0; equal ones for None. Without replacement each draw has the probabilities
    of those that are left, by the largest of log p + gumbel noise. The gradient passes to the
    slices drawn. ShapeError for more draws than slices, ValueRefusedError for fewer slices of
    probability above 0 than draws; in a graph, where that is not known, others are drawn too.
    Source: Vieira, "Gumbel-max trick and weighted reservoir sampling" (2014).

    >>> choice(np.array([10, 20, 30]), (2,), p=[0.0, 1.0, 0.0]).tolist()
    [20, 20]
    """
    whole = isinstance(x, (int, np.integer)) and not isinstance(x, bool)
    rank = 0 if whole else len(shape_of(x))
    at = 0 if whole else normal_axis("choice", axis, rank)
    count = index(x) if whole else shape_of(x)[at]
    size = extents_of("choice", shape)
    draws = math.prod(size)
    if draws and count < 1:
        raise ShapeError(f"choice got {count} slices to draw {draws} from; give one or more")
    if not flag("choice", "replace", replace) and draws > count:
        raise ShapeError(
            f"choice got shape {size}, {draws} draws without replacement of {count} slices; draw "
            "fewer, or with replace=True"
        )
    if draws and p is not None:
        chosen = _weighted(count, size, replace, p, generator)
    elif draws and replace:
        chosen = randint(size, 0, count, generator=generator)
    else:
        chosen = reshape(getitem(permutation(count, generator=generator), slice(draws)), size)
    return chosen if whole else gather(x, chosen, at)


def _weighted(count: int, size: Shape, replace: bool, p: Any, generator: Stream | None) -> Tensor:
    """Indices of slices, of probabilities proportional to p."""
    p = as_float(p)
    if shape_of(p) != (count,):
        raise ShapeError(
            f"choice got p of shape {shape_of(p)} for {count} slices; give a number for each"
        )
    draws = math.prod(size)
    needed = 1 if replace else draws
    sound = logical_and(
        reduce.all(logical_and(greater_equal(p, 0), isfinite(p))),
        greater_equal(reduce.count_nonzero(p), needed),
    )
    if checked_truth("choice", sound) is False:
        raise ValueRefusedError(
            f"choice got p with a number below 0 or not finite, or with fewer than {needed} above "
            "0; give probabilities, up to a factor"
        )
    logits = log(cast(p, float64))
    if replace:
        return categorical(logits, size, generator)
    noisy = add(logits, drawn(Gumbel, count, float64, generator))
    return reshape(getitem(argsort(noisy, descending=True), slice(draws)), size)


@composition
def categorical(logits: Any, shape: int | Shape = (), generator: Stream | None = None) -> Tensor:
    """Independent draws of i with probability softmax(logits)[i] along the last axis: int64.

    logits: floats of shape (..., n), log-probabilities up to a constant; -inf is never drawn. The
    output has `shape`, then that of logits without n. It is argmax(logits + gumbel noise).
    OutOfRangeError when a row has a NaN, inf or nothing but -inf; in a compiled
    function the message is that of gather, with the index n; on a GPU the draw is 0 instead.
    ShapeError for logits without an axis, or with none in it.
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
    noise = drawn(Gumbel, (*as_shape(shape, "categorical"), *rows), kind, generator)
    winner = reduce.argmax(add(cast(logits, kind), noise), -1)
    sound = isfinite(reduce.max(logits, -1))
    if not current_trace().plans and known_truth("categorical", reduce.all(sound)) is False:
        raise OutOfRangeError(
            "categorical got a row of logits with a NaN, with inf, or of nothing but -inf; they "
            "are log-probabilities up to a constant, one of them finite"
        )
    return gather(arange(rows[-1]), select(sound, winner, rows[-1]))


@composition
def dropout(x: Any, p: float = 0.5, generator: Stream | None = None) -> Tensor:
    """x with each element set to 0 with probability p, the others divided by 1 - p.

    The expectation is x. p: a Python number in [0, 1]; the draws are made on x's device.
    Source: Srivastava et al., "Dropout" (2014).
    """
    if probability("dropout", "p", p) == 0.0:
        return x  # type: ignore[no-any-return]
    given = getattr(x, "dtype", None)
    kind = float32 if given is None or not is_float(as_dtype(given)) else as_dtype(given)
    kept = bernoulli(shape_of(x), 1.0 - p, kind, generator)
    return mul(x, mul(kept, 1.0 / (1.0 - p)) if p < 1.0 else kept)
