"""NumPy kernels of powers, roots, exponentials and logarithms."""

from __future__ import annotations

import numpy as np

from ...errors import DTypeError
from ..kernel import Array
from ..typecodes import FLOAT, INT, LOW, WIDE, same
from .registering import in_float32, register, register_ufuncs

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


register("Pow", int_power, *same(2, INT), inplace=(0, 1))
register("Rsqrt", rsqrt, *same(1, WIDE), inplace=(0,))
register("Rsqrt", in_float32(rsqrt), *same(1, LOW))
