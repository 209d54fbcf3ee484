"""Statistics of samples: quantiles, reductions that leave NaN out, and draws of random numbers.

Quantiles are elements of the sorted rows, or points between two neighbours; `_POSITIONS` has the
place of each, by method. The parameters of the draws are tensors, through which gradients pass:
they are made of draws without parameters (`random.py`) and of `Gamma`, whose draws have a gradient
by implicit differentiation; `Poisson` has none. Noise is drawn and transformed in float64, then
rounded to the dtype. In order: exponential, laplace, cauchy; gamma and those made of it: beta,
dirichlet, student_t; poisson; the checks of parameters.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from math import inf, nan
from math import prod as product
from typing import Any, NamedTuple

import numpy as np

from ...core.abstract import (
    DType,
    Shape,
    as_dtype,
    bool_,
    float32,
    float64,
    int64,
    is_float,
    is_inexact,
    promote,
)
from ...core.errors import DTypeError, ShapeError, ValueRefusedError
from ...core.options import choice, flag, number
from ...core.primitive import freeze
from ...core.trace import Stream
from .. import reduce
from ..checks import (
    Axes,
    Tensor,
    as_array,
    broadcast,
    broadcasts_to,
    composition,
    dtype_of,
    normal_axes,
    reduced_shape,
    shape_of,
)
from ..control import checked_truth
from ..create import full
from ..elementwise import abs as magnitude
from ..elementwise import (
    add,
    cast,
    div,
    exp,
    log,
    log1p,
    maximum,
    mul,
    neg,
    sigmoid,
    sign,
    sub,
    tan,
)
from ..index import gather, getitem
from ..logic import greater, greater_equal, isfinite, isnan, less, logical_and, logical_not, select
from ..norm import softmax
from ..random import Gamma, Normal, Poisson, Uniform, drawn, drawn_of, extents_of
from ..reduce import all, max, mean, min, refuse_nothing, root_of, sort, sum, var
from ..shape import reshape, transpose
from .elementwise import as_float, lerp, narrowed, widened

__all__ = [
    "beta", "cauchy", "dirichlet", "exponential", "gamma", "laplace", "median", "nanmax",
    "nanmean", "nanmin", "nanstd", "nansum", "nanvar", "percentile", "poisson", "quantile",
    "student_t",
]  # fmt: skip


@composition
def median(x: Any, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The middle of the sorted elements of x over `axis`, or the mean of the two in the middle.

    NumPy's median; torch.median gives the lower of the two. NaN where there is one; integers give
    float32. The gradient goes to the elements in the middle, as a stable sort puts them there.
    ShapeError where there is no element.

    >>> median([3.0, 1.0, 10.0, 2.0]).item()
    2.5
    """
    ordered = _sorted_rows("median", x, axis)
    n = shape_of(ordered)[-1]
    middle = mean(getitem(ordered, (..., slice((n - 1) // 2, n // 2 + 1))), -1)
    out = select(isnan(getitem(ordered, (..., n - 1))), nan, middle)  # NaN is sorted last
    return reshape(out, _reduced("median", x, axis, keepdims))


@composition
def quantile(
    x: Any, q: Any, axis: Axes = None, keepdims: bool = False, method: str = "linear"
) -> Tensor:
    """The smallest values that a fraction q of the elements of x over `axis` does not exceed.

    q: a number from 0 to 1, or an array of them, whose axes come first in the result: its shape is
    q.shape + the reduced one. method: where the quantile stands among the n sorted elements. Those
    of NumPy are known: "linear", at (n - 1) q, between two neighbours in proportion; "lower",
    "higher", "nearest" and "midpoint" of these two; "inverted_cdf", "averaged_inverted_cdf",
    "closest_observation", "interpolated_inverted_cdf", "hazen", "weibull", "median_unbiased" and
    "normal_unbiased", which are definitions 1 to 9 of Hyndman and Fan 1996, "Sample quantiles in
    statistical packages", but for the 7th, which is "linear".

    NaN where there is one. Methods that select an element keep the dtype; for the others integers
    give float32. The gradient goes to the elements at both sides, as a stable sort puts them there,
    also among equal ones, in proportion to their weights. The values of q must be known, so they
    cannot be traced. ShapeError where there is no element, ValueRefusedError for a q out of range.

    >>> quantile([3.0, 1.0, 10.0, 2.0], [0.0, 0.5]).tolist()
    [1.0, 2.5]
    >>> quantile([3, 1, 10, 2], 0.5, method="lower").item()
    2
    """
    return _quantiles("quantile", x, _fractions("quantile", q, 1), axis, keepdims, method)


@composition
def percentile(
    x: Any, q: Any, axis: Axes = None, keepdims: bool = False, method: str = "linear"
) -> Tensor:
    """`quantile(x, q / 100, axis, keepdims, method)`, for q from 0 to 100.

    >>> percentile([3.0, 1.0, 10.0, 2.0], 75).item()
    4.75
    """
    share = _fractions("percentile", q, 100) / 100
    return _quantiles("percentile", x, share, axis, keepdims, method)


Position = Callable[[int, Any], Any]  # of n sorted elements and q: the index, whole or between two


def _at(alpha: float, beta: float) -> Position:
    """The index at which q (n + 1 - alpha - beta) + alpha elements are below or at the quantile."""
    return lambda n, q: q * (n + 1 - alpha - beta) + (alpha - 1)


def _averaged(n: int, q: Any) -> Any:
    last = n * q - 1
    return np.where(last == np.floor(last), last + 0.5, np.ceil(last))


def _closest(n: int, q: Any) -> Any:
    last = n * q - 1.5
    below = np.floor(last)
    return np.where((last == below) & (below % 2 == 1), below, below + 1)


_SELECTING: dict[str, Position] = {
    "lower": lambda n, q: np.floor((n - 1) * q),
    "higher": lambda n, q: np.ceil((n - 1) * q),
    "nearest": lambda n, q: np.rint((n - 1) * q),
    "inverted_cdf": lambda n, q: np.ceil(n * q - 1),
    "closest_observation": _closest,
}
_POSITIONS: dict[str, Position] = {
    "linear": _at(1, 1),
    "midpoint": lambda n, q: (np.floor((n - 1) * q) + np.ceil((n - 1) * q)) / 2,
    "averaged_inverted_cdf": _averaged,
    "interpolated_inverted_cdf": _at(0, 1),
    "hazen": _at(1 / 2, 1 / 2),
    "weibull": _at(0, 0),
    "median_unbiased": _at(1 / 3, 1 / 3),
    "normal_unbiased": _at(3 / 8, 3 / 8),
    **_SELECTING,
}


def _fractions(name: str, q: Any, top: float) -> Any:
    """The values of q as a NumPy array; ValueRefusedError for one that is not from 0 to `top`."""
    given = as_array(q)
    values = [number(name, "q", v, 0, top) for v in given.ravel().tolist()]
    return np.array(values, np.float64).reshape(given.shape)


def _quantiles(name: str, x: Any, q: Any, axis: Axes, keepdims: bool, method: str) -> Tensor:
    """The quantiles of fractions q, a NumPy array."""
    choice(name, "method", method, tuple(_POSITIONS))
    ordered = _sorted_rows(name, x, axis)
    *kept, n = shape_of(ordered)
    position = np.clip(_POSITIONS[method](n, q), 0, n - 1)
    below, above = (np.asarray(f(position), np.int64) for f in (np.floor, np.ceil))
    out: Any = gather(ordered, below, -1)
    if method not in _SELECTING:
        out = as_float(out)
        if (below < above).any():
            high = as_float(gather(ordered, above, -1))
            out = narrowed(out, _between(widened(out), widened(high), position - below))
    if is_float(dtype_of(x)):
        last = reshape(getitem(ordered, (..., n - 1)), (*kept, *[1] * q.ndim))
        out = select(isnan(last), nan, out)  # NaN is sorted last
    rank = len(kept)
    front = transpose(out, (*range(rank, rank + q.ndim), *range(rank)))
    return reshape(front, (*q.shape, *_reduced(name, x, axis, keepdims)))


def _between(low: Any, high: Any, weight: Any) -> Tensor:
    """lerp(low, high, weight), where high is low for a weight of 0; also of infinities, and where
    the difference overflows."""
    dtype = dtype_of(low)
    inside = np.where(weight == 0, 0.5, weight)
    parts = mul(low, np.asarray(1 - inside, dtype)), mul(high, np.asarray(inside, dtype))
    return select(isfinite(sub(high, low)), lerp(low, high, np.asarray(weight, dtype)), add(*parts))


def _sorted_rows(name: str, x: Any, axis: Axes) -> Tensor:
    """x with the axes that are reduced last, as one, along which it is sorted; ShapeError where
    there is nothing along them."""
    shape = shape_of(x)
    axes = normal_axes(name, freeze(axis, name, "axis"), len(shape))
    refuse_nothing(name, shape, axes)
    kept = tuple(a for a in range(len(shape)) if a not in axes)
    n = product(shape[a] for a in axes)
    return sort(reshape(transpose(x, kept + axes), (*(shape[a] for a in kept), n)))


def _reduced(name: str, x: Any, axis: Axes, keepdims: bool) -> Shape:
    """The shape of x without the axes that are reduced."""
    axes = freeze(axis, name, "axis")
    return reduced_shape(name, shape_of(x), axes, flag(name, "keepdims", keepdims))


# --- Reductions without NaN -----------------------------------------------------------------------


@composition
def nansum(x: Any, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The sum of the elements of x over `axis` that are not NaN; 0 where there is none.

    Integers and bools are summed in 64 bits. The gradient is 0 where x is NaN.

    >>> nansum([1.0, float("nan"), 2.0]).item()
    3.0
    """
    return sum(_without_nan(x, 0), axis, keepdims)


@composition
def nanmean(x: Any, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The mean of the elements of x over `axis` that are not NaN; NaN where there is none.

    Integers are cast to float32; float16 and bfloat16 are computed in float32. The gradient is 0
    where x is NaN.

    >>> nanmean([1.0, float("nan"), 2.0]).item()
    1.5
    """
    if not is_inexact(dtype_of(x)):
        return mean(x, axis, keepdims)
    wide = widened(x)
    return narrowed(x, div(nansum(wide, axis, keepdims), _count(wide, axis, keepdims)))


@composition
def nanvar(x: Any, axis: Axes = None, keepdims: bool = False, correction: float = 0) -> Tensor:
    """The variance of the elements of x over `axis` that are not NaN, as `var` has it.

    correction: subtracted from their number, which the sum of squares is divided by; 0 is the least
    divisor, which gives infinity or NaN. NaN where all are NaN.
    """
    return narrowed(x, _nanvar("nanvar", widened(x), axis, keepdims, correction))


@composition
def nanstd(x: Any, axis: Axes = None, keepdims: bool = False, correction: float = 0) -> Tensor:
    """The square root of `nanvar`; its gradient is 0 where all elements are equal."""
    return narrowed(x, root_of(_nanvar("nanstd", widened(x), axis, keepdims, correction), 2))


def _nanvar(name: str, x: Any, axis: Axes, keepdims: bool, correction: float) -> Tensor:
    if not is_inexact(dtype_of(x)):
        return var(x, axis, keepdims, correction)
    less = number(name, "correction", correction)
    centred = sub(x, nanmean(x, axis, True))
    # Not x's NaN alone: the mean of a row of NaN is NaN too.
    squares = sum(reduce.square_of_size(_without_nan(centred, 0)), axis, keepdims)
    count = cast(_count(x, axis, keepdims), dtype_of(squares))
    return div(squares, maximum(sub(count, less), 0.0))


@composition
def nanmax(x: Any, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The largest element of x over `axis` that is not NaN; NaN where all are.

    Equal maxima share the gradient equally. ShapeError where there is no element.

    >>> nanmax([1.0, float("nan"), 2.0]).item()
    2.0
    """
    return _nan_extremum("nanmax", x, axis, keepdims)


@composition
def nanmin(x: Any, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The smallest element of x over `axis` that is not NaN; NaN where all are.

    Equal minima share the gradient equally. ShapeError where there is no element.
    """
    return _nan_extremum("nanmin", x, axis, keepdims)


def _nan_extremum(name: str, x: Any, axis: Axes, keepdims: bool) -> Tensor:
    shape = shape_of(x)
    refuse_nothing(name, shape, normal_axes(name, freeze(axis, name, "axis"), len(shape)))
    reduce, end = (max, -inf) if name == "nanmax" else (min, inf)
    if not is_float(dtype_of(x)):
        return reduce(x, axis, keepdims)
    found = reduce(_without_nan(x, end), axis, keepdims)
    return select(all(isnan(x), axis, keepdims), nan, found)


def _without_nan(x: Any, value: float) -> Any:
    """x with `value` for NaN."""
    return select(isnan(x), value, x) if is_inexact(dtype_of(x)) else x


def _count(x: Any, axis: Axes, keepdims: bool) -> Tensor:
    """The number of elements that are not NaN."""
    return sum(logical_not(isnan(x)), axis, keepdims)


# --- Random draws whose parameters are tensors ----------------------------------------------------


@composition
def exponential(
    shape: int | Shape | None = None,
    scale: Any = 1.0,
    dtype: object = None,
    generator: Stream | None = None,
) -> Tensor:
    """Independent draws -scale * log(1 - u), u uniform in [0, 1): exponential, of mean `scale`.

    shape: that of the draws, to which parameters broadcast, here and in all draws below; None for
    the parameters' own. scale: >= 0, 1 over the rate, a number or a tensor, which gets a gradient.
    dtype: a float one; None for that of the parameters that are tensors, else float32. generator:
    an ml.Generator, None for the default one. ValueRefusedError for a parameter out of its range;
    in a graph, where it is not known, the draw is NaN.

    >>> draws = exponential((1000,), 2.0)
    >>> draws.shape, draws.min().item() >= 0.0
    ((1000,), True)
    """
    call = _call("exponential", shape, dtype, scale=scale)
    noise = cast(neg(log1p(neg(call.uniform(generator, 0.0)))), call.dtype)
    return mul(noise, *call.narrow("scale"))


@composition
def laplace(
    shape: int | Shape | None = None,
    loc: Any = 0.0,
    scale: Any = 1.0,
    dtype: object = None,
    generator: Stream | None = None,
) -> Tensor:
    """Independent draws loc - scale * sign(u) * log(1 - |u|), u uniform in (-1, 1).

    loc, scale: numbers or tensors, scale >= 0; both get gradients. The variance is 2 scale^2. The
    rest is as in `exponential`.
    """
    call = _call("laplace", shape, dtype, loc=loc, scale=scale)
    u = call.uniform(generator, 2.0**-53 - 1.0)
    return _spread(call, neg(mul(sign(u), log1p(neg(magnitude(u))))))


@composition
def cauchy(
    shape: int | Shape | None = None,
    loc: Any = 0.0,
    scale: Any = 1.0,
    dtype: object = None,
    generator: Stream | None = None,
) -> Tensor:
    """Independent draws loc + scale * tan(pi u / 2), u uniform in (-1, 1): Cauchy's distribution.

    loc, scale: numbers or tensors, scale >= 0; both get gradients. The rest is as in `exponential`.
    """
    call = _call("cauchy", shape, dtype, loc=loc, scale=scale)
    return _spread(call, tan(mul(call.uniform(generator, 2.0**-53 - 1.0), math.pi / 2.0)))


@composition
def gamma(
    shape: int | Shape | None = None,
    alpha: Any = 1.0,
    scale: Any = 1.0,
    dtype: object = None,
    generator: Stream | None = None,
) -> Tensor:
    """Independent draws of density x^(alpha - 1) exp(-x / scale) / (scale^alpha gamma(alpha)).

    alpha, scale: numbers or tensors, alpha > 0 and scale >= 0; both get gradients, that in alpha
    of the quantile at a fixed probability, by implicit differentiation. Draws of an alpha near 0
    may be smaller than any float of the dtype, and are 0. The rest is as in `exponential`.
    Source: Marsaglia, Tsang, "A simple method for generating gamma variables" (2000); Figurnov,
    Mohamed, Mnih, "Implicit reparameterization gradients" (2018).

    >>> gamma(None, np.array([0.5, 3.0])).shape
    (2,)
    """
    call = _call("gamma", shape, dtype, alpha=alpha, scale=scale)
    draw = drawn_of(Gamma, call.shape, call.dtype, generator, call.wide("alpha"), False)
    one = isinstance(scale, (int, float)) and scale == 1.0
    return draw if one else mul(draw, *call.narrow("scale"))


@composition
def beta(
    shape: int | Shape | None = None,
    alpha: Any = 1.0,
    beta: Any = 1.0,
    dtype: object = None,
    generator: Stream | None = None,
) -> Tensor:
    """Independent draws of density proportional to x^(alpha - 1) (1 - x)^(beta - 1), in [0, 1].

    They are a / (a + b), of gamma draws a and b whose logarithms are drawn, so that small ones
    keep their ratio. alpha, beta: numbers or tensors > 0; both get gradients through a and b. The
    rest is as in `exponential`.
    """
    call = _call("beta", shape, dtype, alpha=alpha, beta=beta)
    a, b = (call.log_gamma(generator, call.wide(name)) for name in ("alpha", "beta"))
    return cast(sigmoid(sub(a, b)), call.dtype)


@composition
def dirichlet(
    alpha: Any, shape: int | Shape = (), dtype: object = None, generator: Stream | None = None
) -> Tensor:
    """Independent draws of vectors along the last axis, of positive numbers whose sum is 1.

    The density is proportional to the product of x[i]^(alpha[i] - 1). alpha: > 0, of shape
    (..., n); it gets a gradient. The output has `shape`, then that of alpha. They are gamma draws
    of alpha, divided by their sum; their logarithms are drawn, so that small ones keep their
    ratios. dtype and generator are as in `exponential`, errors too; ShapeError for an alpha
    without an axis, or with none in it.

    >>> draws = dirichlet([0.5, 1.0, 2.0], (4,), "float64")
    >>> draws.shape, np.allclose(draws.sum(-1).asnumpy(), 1.0)
    ((4, 3), True)
    """
    rows = shape_of(alpha)
    if not rows or not rows[-1]:
        raise ShapeError(
            f"dirichlet got alpha of shape {rows}; its last axis has one number or more for each "
            "draw"
        )
    call = _call("dirichlet", (*extents_of("dirichlet", shape), *rows), dtype, alpha=alpha)
    return cast(softmax(call.log_gamma(generator, call.wide("alpha")), -1), call.dtype)


@composition
def student_t(
    shape: int | Shape | None = None,
    df: Any = 1.0,
    loc: Any = 0.0,
    scale: Any = 1.0,
    dtype: object = None,
    generator: Stream | None = None,
) -> Tensor:
    """Independent draws loc + scale * z / sqrt(2 g / df): Student's t of `df` degrees of freedom.

    z is standard normal and g a gamma draw of alpha = df / 2. df, loc, scale: numbers or tensors,
    df > 0 and scale >= 0; all get gradients, df through g. The rest is as in `exponential`.
    """
    call = _call("student_t", shape, dtype, df=df, loc=loc, scale=scale)
    half = mul(call.wide("df"), 0.5)
    z = drawn(Normal, call.shape, float64, generator, 0.0, 1.0)
    return _spread(call, mul(z, exp(mul(sub(log(half), call.log_gamma(generator, half)), 0.5))))


@composition
def poisson(
    shape: int | Shape | None = None,
    lam: Any = 1.0,
    dtype: object = int64,
    generator: Stream | None = None,
) -> Tensor:
    """Independent draws k = 0, 1, 2, ... of probability lam^k exp(-lam) / k!, of mean `lam`.

    lam: >= 0, a number or a tensor; no gradient passes. dtype: any but bool; an integer that does
    not fit is the largest of it. In a graph a lam out of its range gives NaN, -1 in integers, 0 in
    unsigned ones. The rest is as in `exponential`. DTypeError for bool.
    Source: Hormann, "The transformed rejection method for generating Poisson random variables"
    (1993), for lam >= 10.

    >>> poisson((3,), 0.0).tolist()
    [0, 0, 0]
    """
    kind = as_dtype(dtype)
    if kind == bool_:
        raise DTypeError("poisson draws numbers; got dtype bool; compare the draw with one")
    call = _call("poisson", shape, float32, lam=lam)
    return drawn_of(Poisson, call.shape, kind, generator, call.wide("lam"))


# --- Parameters -----------------------------------------------------------------------------------

# The lower bound of each, None where there is none, and whether the bound itself is excluded.
_RANGES: dict[str, tuple[float | None, bool]] = {
    "loc": (None, False), "scale": (0.0, False), "lam": (0.0, False),
    "alpha": (0.0, True), "beta": (0.0, True), "df": (0.0, True),
}  # fmt: skip


class _Call(NamedTuple):
    """The shape and the dtype of a draw, its parameters by name, and the noise that it is made of,
    in float64."""

    shape: Shape
    dtype: DType
    parameters: dict[str, Any]

    def wide(self, name: str) -> Tensor:
        """A parameter in float64, of the draw's shape."""
        return full(self.shape, self.parameters[name], float64)

    def uniform(self, generator: Stream | None, low: float) -> Tensor:
        """Noise, uniform in [low, 1)."""
        return drawn(Uniform, self.shape, float64, generator, low, 1.0)

    def log_gamma(self, generator: Stream | None, alpha: Tensor) -> Tensor:
        """Logarithms of gamma draws, in which small draws keep their ratios."""
        return drawn_of(Gamma, self.shape, float64, generator, alpha, True)

    def narrow(self, *names: str) -> list[Any]:
        """Parameters in the draw's dtype, as they broadcast."""
        values = [self.parameters[name] for name in names]
        return [v if isinstance(v, float) else cast(v, self.dtype) for v in values]


def _call(who: str, shape: int | Shape | None, dtype: object, **parameters: Any) -> _Call:
    """A call of a draw, its parameters checked by their ranges."""
    values = {name: _sound(who, name, given) for name, given in parameters.items()}
    tensors = [value for value in values.values() if not isinstance(value, float)]
    common = broadcast(who, *map(shape_of, tensors)) if tensors else ()
    whole = common if shape is None else extents_of(who, shape)
    if not broadcasts_to(common, whole):
        raise ShapeError(
            f"{who} got shape {whole} for parameters of shape {common}; they broadcast to it, or "
            "give None for their own"
        )
    if dtype is None:
        joined = promote(*map(dtype_of, tensors)) if tensors else float32
        dtype = joined if is_float(joined) else float32
    kind = as_dtype(dtype)
    if not is_float(kind):
        raise DTypeError(f"{who} draws floats; got dtype {kind.name}; cast the draw")
    return _Call(whole, kind, values)


def _sound(who: str, name: str, value: Any) -> Any:
    """A parameter, a float or a tensor; ValueRefusedError where it is known to be out of its range,
    NaN where it is not known."""
    low, excluded = _RANGES[name]
    if isinstance(value, (bool, int, float)) and not isinstance(value, np.generic):
        least = -math.inf if low is None else low
        return number(who, name, value, **{"above" if excluded else "low": least})
    if isinstance(value, np.generic) or not hasattr(value, "dtype"):
        value = np.asarray(as_array(value), dtype_of(value))
    if dtype_of(value) == bool_:
        raise DTypeError(f"{who} got {name} of bool; it is a number, so cast it")
    if low is None:
        return value
    above = greater(value, low) if excluded else greater_equal(value, low)
    inside = logical_and(above, less(value, math.inf))
    known = checked_truth(who, reduce.all(inside))
    if known is False:
        raise ValueRefusedError(
            f"{who} got {name} with an element that is not a finite number "
            f"{'above' if excluded else 'of at least'} {low:g}; clip it, or select others"
        )
    if known or not is_float(dtype_of(value)):
        return value
    return select(inside, value, math.nan)


def _spread(call: _Call, noise: Any) -> Tensor:
    """loc + scale * noise, in the draw's dtype."""
    loc, scale = call.narrow("loc", "scale")
    return add(mul(cast(noise, call.dtype), scale), loc)
