"""NumPy kernels of circular and hyperbolic functions and their inverses: NumPy's ufuncs."""

from __future__ import annotations

import numpy as np

from ..typecodes import FLOAT, same
from .registering import register_ufuncs

_OF_FLOATS = {
    "Sin": np.sin, "Cos": np.cos, "Tan": np.tan, "Asin": np.arcsin, "Acos": np.arccos,
    "Atan": np.arctan, "Sinh": np.sinh, "Cosh": np.cosh, "Tanh": np.tanh, "Asinh": np.arcsinh,
    "Acosh": np.arccosh, "Atanh": np.arctanh,
}  # fmt: skip

register_ufuncs(_OF_FLOATS, *same(1, FLOAT), inplace=(0,))
register_ufuncs({"Atan2": np.arctan2}, *same(2, FLOAT), inplace=(0, 1))
