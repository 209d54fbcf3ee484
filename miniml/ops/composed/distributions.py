"""Random draws whose parameters are tensors, through which gradients pass.

They are made of draws without parameters (`random.py`) and of `Gamma`, whose draws have a gradient
by implicit differentiation; `Poisson` has none. Noise is drawn and transformed in float64, then
rounded to the dtype. In order: exponential, laplace, cauchy; gamma and those made of it: beta,
dirichlet, student_t; poisson; the checks of parameters.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...core.abstract import Shape
from ...core.dtype import DType, as_dtype, bool_, float32, float64, int64, is_float, promote
from ...core.errors import DTypeError, ShapeError, ValueRefusedError
from ...core.options import number
from ...core.trace import Stream
from .. import reduce
from ..checks import as_array, broadcast, broadcasts_to, composition, dtype_of, shape_of
from ..control import known_truth
from ..create import full
from ..elementwise import abs as magnitude
from ..elementwise import add, cast, exp, log, log1p, mul, neg, sigmoid, sign, sub, tan
from ..logic import greater, greater_equal, less, logical_and, select
from ..norm import softmax
from ..random import Gamma, Normal, Poisson, Uniform, drawn, drawn_of, extents_of

if TYPE_CHECKING:
    from ...core.tensor import Tensor

__all__ = [
    "beta", "cauchy", "dirichlet", "exponential", "gamma", "laplace", "poisson", "student_t",
]  # fmt: skip


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
    noise = neg(log1p(neg(call.uniform(generator, 0.0))))
    return mul(cast(noise, call.dtype), *call.narrow("scale"))


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
    noise = neg(mul(sign(u), log1p(neg(magnitude(u)))))
    return _spread(call, noise)


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
    u = call.uniform(generator, 2.0**-53 - 1.0)
    return _spread(call, tan(mul(u, math.pi / 2.0)))


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
    return draw if _is_one(scale) else mul(draw, *call.narrow("scale"))


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
    whole = (*extents_of("dirichlet", shape), *rows)
    call = _call("dirichlet", whole, dtype, alpha=alpha)
    logs = call.log_gamma(generator, call.wide("alpha"))
    return cast(softmax(logs, -1), call.dtype)


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
    logs = call.log_gamma(generator, half)
    return _spread(call, mul(z, exp(mul(sub(log(half), logs), 0.5))))


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
        return [
            value if isinstance(value, float) else cast(value, self.dtype)
            for value in (self.parameters[name] for name in names)
        ]


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
        return (
            number(who, name, value, above=least) if excluded else number(who, name, value, least)
        )
    if isinstance(value, np.generic) or not hasattr(value, "dtype"):
        value = np.asarray(as_array(value), dtype_of(value))
    if dtype_of(value) == bool_:
        raise DTypeError(f"{who} got {name} of bool; it is a number, so cast it")
    if low is None:
        return value
    above = greater(value, low) if excluded else greater_equal(value, low)
    inside = logical_and(above, less(value, math.inf))
    known = known_truth(who, reduce.all(inside))
    if known is False:
        raise ValueRefusedError(
            f"{who} got {name} with an element that is not a finite number "
            f"{'above' if excluded else 'of at least'} {low:g}; clip it, or select others"
        )
    if known or not is_float(dtype_of(value)):
        return value
    return select(inside, value, math.nan)


def _is_one(value: Any) -> bool:
    return isinstance(value, (int, float)) and value == 1.0


def _spread(call: _Call, noise: Any) -> Tensor:
    """loc + scale * noise, in the draw's dtype."""
    loc, scale = call.narrow("loc", "scale")
    return add(mul(cast(noise, call.dtype), scale), loc)
