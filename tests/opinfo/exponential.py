"""Rows of powers, roots, exponentials and logarithms."""

import numpy as np
from scipy import special

from miniml import ops
from miniml.dtype import is_float
from miniml.errors import DTypeError
from miniml.testing import OpInfo, Refusal, Sample

from .arithmetic import BOOLS, binary, fractions, no_bool, unary
from .draws import numbers


def powers(rng, dtype):
    """Positive bases with any exponent for floats; exponents from 0 for integers."""
    low = (0.3, 2.0) if is_float(dtype) else (-2.0, 2.0)
    exponents = (-2.0, 2.0) if is_float(dtype) else (0.0, 3.0)
    yield from binary(*low, exponents)(rng, dtype)


def polygammas(rng, dtype):
    """Off the poles at 0, -1, -2 ..."""
    calls = (0, (2, 3), 0.3), (0, (4,), -1.8), (1, (3,), 0.3), (1, (2,), -0.8), (2, (), 0.5)
    for n, shape, low in calls:
        x = numbers(rng, shape, dtype, low, low + (0.6 if low < 0 else 3.0))
        yield Sample((x,), {"n": n})


ROWS = (
    OpInfo(ops.Pow, powers, reference=np.power, domain="x > 0; y >= 0 for integers",
           refused=(
               *no_bool(BOOLS, BOOLS),
               Refusal((np.arange(3), np.array(-1)), "negative exponent for int64",
                       error=DTypeError),
           )),
    OpInfo(ops.Sqrt, unary(0.1, 4.0), reference=np.sqrt, domain=(0.0, np.inf)),
    OpInfo(ops.Rsqrt, unary(0.2, 4.0), reference=lambda x: 1 / np.sqrt(x), domain=(0.0, np.inf)),
    OpInfo(ops.Exp, unary(), reference=np.exp),
    OpInfo(ops.Expm1, unary(), reference=np.expm1),
    OpInfo(ops.Exp2, unary(), reference=np.exp2),
    OpInfo(ops.Log, unary(0.1, 4.0), reference=np.log, domain=(0.0, np.inf)),
    OpInfo(ops.Log1p, unary(-0.8, 4.0), reference=np.log1p, domain=(-1.0, np.inf)),
    OpInfo(ops.Log2, unary(0.1, 4.0), reference=np.log2, domain=(0.0, np.inf)),
    OpInfo(ops.Log10, unary(0.1, 4.0), reference=np.log10, domain=(0.0, np.inf)),
    OpInfo(ops.LGamma, fractions, domain="not 0, -1, -2, ...",
           reference=lambda x: np.where(np.isinf(x), np.inf, special.gammaln(x))),  # C's at -inf
    OpInfo(ops.Polygamma, polygammas,
           reference=lambda x, n: np.where(x == -np.inf, np.nan, special.polygamma(n, x)),
           domain="not 0, -1, -2, ...", refused=(
               Refusal((np.ones(3),), "n=-1; it takes an int from 0 to 20", {"n": -1}),
               Refusal((np.ones(3),), "n=1.0; it is declared n: int", {"n": 1.0}),
           )),
)  # fmt: skip
