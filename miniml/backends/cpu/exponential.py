"""NumPy and SciPy kernels of powers, roots, exponentials and logarithms."""

from __future__ import annotations

import math

import numpy as np

from ...errors import DTypeError
from ..kernel import Array
from ..typecodes import FLOAT, INT, LOW, WIDE, same
from .registering import in_float32, register, register_floats, register_ufuncs

_OF_FLOATS = {
    "Sqrt": np.sqrt, "Exp": np.exp, "Expm1": np.expm1, "Exp2": np.exp2, "Log": np.log,
    "Log1p": np.log1p, "Log2": np.log2, "Log10": np.log10,
}  # fmt: skip

register_ufuncs(_OF_FLOATS, *same(1, FLOAT), inplace=(0,))
register_ufuncs({"Pow": np.power}, *same(2, FLOAT), inplace=(0, 1))


def int_power(x: Array, y: Array, *, out: Array) -> None:
    try:
        np.power(x, y, out=out)
    except ValueError:
        raise DTypeError(
            f"Pow got a negative exponent for {x.dtype.name}, which has no fractions; cast x to a "
            "float first"
        ) from None


def rsqrt(x: Array, *, out: Array) -> None:
    np.sqrt(x, out=out)
    np.reciprocal(out, out=out)


def lgamma(x: Array, *, out: Array) -> None:
    from scipy import special

    special.gammaln(x, out=out)
    np.copyto(out, np.inf, where=np.isinf(x))
    near = np.abs(x) < np.finfo(np.float64).tiny  # SciPy gives inf; gamma(x) is 1 / x to rounding
    if near.any():
        np.negative(np.log(np.abs(x), where=near, out=np.ones_like(out)), out=out, where=near)


def polygamma(x: Array, *, n: int, out: Array) -> None:
    """By periodicity below 0: p(x) = p(f) + (-1)^(n + 1) (p(g) - p(1 - x)), where f is the fraction
    of x, and g = 1 - f."""
    wide = np.asarray(x, np.float64)
    low = wide <= 0
    out[...] = above_zero(np.where(low, 1, wide), n)  # SciPy adds up -x terms below 0
    x = wide[low]
    down = np.floor(x)
    f, g = (above_zero(fraction, n) for fraction in (x - down, down + 1 - x))
    made = f + (-1) ** (n + 1) * (g - above_zero(1 - x, n))
    if n == 0:
        made[x == down] = np.nan
        made[x == 0] = np.copysign(np.inf, -x[x == 0])
    out[low] = made


def above_zero(x: Array, n: int) -> Array:
    """The derivative of order n of digamma, x >= 0 and float64."""
    from scipy import special

    factor = (-1) ** (n + 1) * math.factorial(n)
    return np.asarray(special.psi(x) if n == 0 else special.zeta(n + 1, x) * factor)


register_floats("LGamma", lgamma)
register_floats("Polygamma", polygamma)
register("Pow", int_power, *same(2, INT), inplace=(0, 1))
register("Rsqrt", rsqrt, *same(1, WIDE), inplace=(0,))
register("Rsqrt", in_float32(rsqrt), *same(1, LOW))
