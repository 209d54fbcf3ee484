"""Exact values of the elementary functions: `python -m tools.tails`, with mpmath installed.

Writes tests/unit/ops/tails.txt: a line for each function and point, with the value
to 21 digits. Points are ordinary, in the tails, next to roots and ends, tiny and huge; those
that float32 can hold are float32. Values that float64 cannot hold are left out.
"""

from pathlib import Path

import numpy as np
from mpmath import mp

mp.dps = 60
PAGE = Path(__file__).parent.parent / "tests/unit/ops/tails.txt"
SIZES = (
    "1e-300 1e-30 1e-4 0.3 0.7 0.95 0.99999 1 1.00001 1.4616 1.97 2.5 3.3 5 8.6 "
    "11.9 13.1 17.4 20.8 26 37.2 88.3 104 300.3 709.5 1e4 1e10 1e30 1e300"
).split()


def points():
    sizes = [float(s) for s in SIZES]
    narrow = (float(np.float32(s)) if 1e-40 < s < 1e38 else s for s in sizes)
    for x in (*narrow, 1 + 2.0**-52, 1 - 2.0**-53):
        yield from (x, -x)


def normal(x):
    """The distribution function of the normal law."""
    return mp.erfc(-x / mp.sqrt(2)) / 2


def sigmoid(x):
    return 1 / (1 + mp.exp(-x))


def reflected(f, other):
    """f(x), below 0 other(pi x) - f(1 - x); None at the poles of gamma."""
    below = lambda x: None if x == mp.floor(x) else other(mp.pi * x) - f(1 - x)  # noqa: E731
    return lambda x: f(x) if x > 0 else below(x)


def above(f, least):
    return lambda x: f(x) if x >= least else None


def within(f):
    return lambda x: f(x) if abs(x) < 1 else None


FUNCTIONS = {
    "sqrt": above(mp.sqrt, 0), "rsqrt": above(lambda x: 1 / mp.sqrt(x), 0), "exp": mp.exp,
    "exp2": lambda x: mp.mpf(2) ** x, "expm1": mp.expm1, "log": above(mp.log, 0),
    "log1p": above(mp.log1p, -1 + 1e-9), "log2": above(lambda x: mp.log(x) / mp.log(2), 0),
    "log10": above(lambda x: mp.log(x) / mp.log(10), 0), "sin": mp.sin, "cos": mp.cos,
    "tan": mp.tan, "asin": within(mp.asin), "acos": within(mp.acos), "atan": mp.atan,
    "sinh": mp.sinh, "cosh": mp.cosh, "tanh": mp.tanh, "asinh": mp.asinh,
    "acosh": above(mp.acosh, 1), "atanh": within(mp.atanh), "erf": mp.erf, "erfc": mp.erfc,
    "erfinv": within(mp.erfinv), "digamma": mp.digamma,
    "lgamma": reflected(mp.loggamma, lambda turn: mp.log(mp.pi / abs(mp.sin(turn)))),
    "trigamma": reflected(lambda x: mp.psi(1, x), lambda turn: (mp.pi / mp.sin(turn)) ** 2),
    "sigmoid": sigmoid, "softplus": lambda x: mp.log1p(mp.exp(x)), "silu": lambda x: x * sigmoid(x),
    "elu": lambda x: x if x > 0 else mp.expm1(x), "gelu": lambda x: x * normal(x),
    "gelu_tanh": lambda x: x * sigmoid(2 * mp.sqrt(2 / mp.pi) * (x + mp.mpf("0.044715") * x**3)),
    "exp_neg_square": lambda x: mp.exp(-x * x), "normal_cdf": normal,
    "exp_neg_half_square": lambda x: mp.exp(-x * x / 2),
}  # fmt: skip


def representable(value):
    return value is not None and mp.mpf(2) ** -1022 < abs(value) < mp.mpf(2) ** 1023


def lines():
    for name, f in FUNCTIONS.items():
        for x in points():
            if (value := computed(f, mp.mpf(x))) is not None and representable(value):
                yield f"{name} {x!r} {mp.nstr(value, 21)}\n"


def computed(f, x):
    """f(x), None where it is not defined, or not by mpmath."""
    try:
        return f(x)
    except (ValueError, ZeroDivisionError, OverflowError):
        return None


if __name__ == "__main__":
    PAGE.write_text("".join(lines()), encoding="utf-8")
