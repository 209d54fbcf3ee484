"""Derivatives in closed form, computed in NumPy's long double: what gradient rules are held to."""

import numpy as np
from scipy import special

PI = np.longdouble("3.14159265358979323846264338327950288")
LOG_2 = np.log(np.longdouble(2))


def sigmoid(x):
    small = np.exp(-np.abs(x))
    return np.where(x < 0, small, 1) / (1 + small)


def bell(x):
    """2 / sqrt(pi) * exp(-x^2)."""
    return 2 / np.sqrt(PI) * np.exp(-x * x)


def silu(x):
    s = sigmoid(x)
    return s + x * s * sigmoid(-x), s * (1 + np.abs(x))


def gelu(x):
    """Phi(x) + x phi(x), which cancel at a root."""
    below = -np.abs(x)
    density = np.exp(-x * x / 2) / np.sqrt(2 * PI)
    scaled = special.erfcx((-below / np.sqrt(2)).astype(np.float64))  # erfc(a) exp(a^2)
    tail = scaled * np.exp(-x * x / 2) / 2
    cumulative = np.where(x > 0, 1 - tail, tail)
    return cumulative + x * density, cumulative + np.abs(x) * density


def gelu_tanh(x):
    """As gelu, and with no value at infinity; the same beyond 1000 as there."""
    x = np.where(np.isinf(x), np.nan, np.clip(x, -1000, 1000))
    scale, cube = 2 * np.sqrt(2 / PI), np.longdouble("0.044715")
    v, dv = scale * (x + cube * x**3), scale * (1 + 3 * cube * x * x)
    s = sigmoid(v)
    return s + x * dv * s * sigmoid(-v), s * (1 + np.abs(x) * dv) * (1 + np.abs(v))


def erfinv(x):
    y = special.erfinv(x.astype(np.float64)).astype(x.dtype)
    slope = np.sqrt(PI) / 2 * np.exp(y * y)
    return slope, slope * (1 + 2 * y * y)


def reflected(x, above, other, sign):
    """`above` of x; below 0 `other` of pi times the fraction of x, and `above` of 1 - x. What is
    rounded is 2 there at least, which are the terms of the fraction."""
    high = above(np.where(x > 0, x, 1 - x).astype(np.float64)).astype(x.dtype)
    rest = x - np.rint(x)
    low = np.where(rest == 0, np.nan, other(np.where(rest == 0, 1, PI * rest)))
    size = np.abs(high) + np.where(x > 0, 0, 2 + np.abs(low))
    return np.where(x > 0, high, low + sign * high), size


def digamma(x):
    return reflected(x, special.psi, lambda turn: -PI / np.tan(turn), 1)


def trigamma(x):
    return reflected(x, lambda x: special.zeta(2, x), lambda turn: (PI / np.sin(turn)) ** 2, -1)


# d/dx of the functions of one float, by name; NaN outside their domains. Where the rule adds terms
# that may cancel at a point, or rounds an exponent, also the size of what is rounded.
UNARY = {
    "sqrt": lambda x: 0.5 / np.sqrt(x),
    "rsqrt": lambda x: -0.5 / (x * np.sqrt(x)),
    "reciprocal": lambda x: -1 / (x * x),
    "exp": np.exp,
    "expm1": np.exp,
    "exp2": lambda x: np.exp2(x) * LOG_2,
    "log": lambda x: np.where(x < 0, np.nan, 1 / x),
    "log1p": lambda x: np.where(x < -1, np.nan, 1 / (1 + x)),
    "log2": lambda x: np.where(x < 0, np.nan, 1 / (x * LOG_2)),
    "log10": lambda x: np.where(x < 0, np.nan, 1 / (x * np.log(x.dtype.type(10)))),
    "sin": np.cos,
    "cos": lambda x: -np.sin(x),
    "tan": lambda x: 1 / np.cos(x) ** 2,
    "asin": lambda x: 1 / np.sqrt((1 - x) * (1 + x)),
    "acos": lambda x: -1 / np.sqrt((1 - x) * (1 + x)),
    "atan": lambda x: 1 / (1 + x * x),
    "sinh": np.cosh,
    "cosh": np.sinh,
    "tanh": lambda x: 1 / np.cosh(x) ** 2,
    "asinh": lambda x: 1 / np.sqrt(1 + x * x),
    "acosh": lambda x: np.where(x < 1, np.nan, 1 / np.sqrt((x - 1) * (x + 1))),
    "atanh": lambda x: np.where(np.abs(x) > 1, np.nan, 1 / ((1 - x) * (1 + x))),
    "neg": lambda x: np.full_like(x, -1),
    "abs": np.sign,
    "square": lambda x: 2 * x,
    "relu": lambda x: np.where(x > 0, 1, np.zeros_like(x)),
    "leaky_relu": lambda x: np.where(x > 0, 1, np.full_like(x, 0.01)),
    "elu": lambda x: np.where(x > 0, 1, np.exp(np.minimum(x, 0))),
    "erf": bell,
    "erfc": lambda x: -bell(x),
    "erfinv": erfinv,
    "normal_cdf": lambda x: np.exp(-x * x / 2) / np.sqrt(2 * PI),
    "exp_neg_square": lambda x: -2 * x * np.exp(-x * x),
    "lgamma": digamma,
    "polygamma": trigamma,
    "sigmoid": lambda x: sigmoid(x) * sigmoid(-x),
    "softplus": sigmoid,
    "silu": silu,
    "gelu": gelu,
    "gelu_tanh": gelu_tanh,
}


def power(x, y):
    """y x^(y - 1), whose exponent is rounded, and x^y log x."""
    off = (x < 0) & (y != np.rint(y))
    dx = np.where(off, np.nan, np.where(y == 0, 0, y * np.power(x, y - 1)))
    log = np.log(np.where(x > 0, x, 1))
    dy = np.where(off, np.nan, np.where(x > 0, np.power(x, y) * log, 0))
    return (dx, np.abs(dx) * (1 + np.abs((y - 1) * log))), dy


def atan2(x, y):
    return y / (x * x + y * y), -x / (x * x + y * y)


def halves(first, second):
    return np.where(first, 1, np.where(second, 0, 0.5)), np.where(
        second, 1, np.where(first, 0, 0.5)
    )


# (d/dx, d/dy) of the functions of two floats.
BINARY = {
    "add": lambda x, y: (np.ones_like(x), np.ones_like(x)),
    "sub": lambda x, y: (np.ones_like(x), -np.ones_like(x)),
    "mul": lambda x, y: (y, x),
    "div": lambda x, y: (1 / y, -x / (y * y)),
    "mod": lambda x, y: (np.ones_like(x), -np.floor_divide(x, y)),
    "pow": power,
    "atan2": atan2,
    "maximum": lambda x, y: halves(x > y, x < y),
    "minimum": lambda x, y: halves(x < y, x > y),
}
