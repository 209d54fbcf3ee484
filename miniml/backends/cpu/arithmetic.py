"""NumPy kernels of arithmetic, rounding, bounds and casts: NumPy's ufunc where there is one."""

from __future__ import annotations

import numpy as np

from ...dtype import float32, float64, from_type_code
from ..kernel import Array
from ..typecodes import ANY, FLOAT, INT, NUMBER, same
from .registering import in_float32, register, register_ufuncs

# ml_dtypes gives NumPy's ufuncs loops for bfloat16 that compute in float32 and round once, as
# NumPy's own loops for float16 do; so the ufunc serves every float.
_OF_NUMBERS = {"Neg": np.negative, "Square": np.square}
_ROUNDING = {"Floor": np.floor, "Ceil": np.ceil, "Round": np.rint, "Trunc": np.trunc}
_OF_ANY_TWO = {"Add": np.add, "Mul": np.multiply, "Maximum": np.maximum, "Minimum": np.minimum}
_OF_TWO_NUMBERS = {"Sub": np.subtract, "FloorDiv": np.floor_divide, "Mod": np.remainder}

register_ufuncs({"Reciprocal": np.reciprocal}, *same(1, FLOAT), inplace=(0,))
register_ufuncs(_OF_NUMBERS, *same(1, NUMBER), inplace=(0,))
register_ufuncs({"Sign": np.sign}, *same(1, INT + "efd"), inplace=(0,))
register("Sign", in_float32(np.sign), *same(1, "E"), inplace=(0,))  # ml_dtypes' keeps -0
register_ufuncs(_ROUNDING, *same(1, FLOAT), inplace=(0,))
register_ufuncs({"Abs": np.absolute}, *same(1, ANY), inplace=(0,))
register_ufuncs(_OF_ANY_TWO, *same(2, ANY), inplace=(0, 1))
register_ufuncs(_OF_TWO_NUMBERS, *same(2, NUMBER), inplace=(0, 1))
register_ufuncs({"Div": np.true_divide}, *same(2, FLOAT), inplace=(0, 1))


def copy(x: Array, *, out: Array) -> None:
    np.copyto(out, x)


def cast(x: Array, *, dtype: object, out: Array) -> None:
    np.copyto(out, x, casting="unsafe")


# The least integer of each dtype, and the first above all of them.
_ENDS = {
    d: (float(np.iinfo(d).min), 2.0 ** np.iinfo(d).max.bit_length())
    for d in map(from_type_code, INT)
}


def whole(x: Array, *, dtype: object, out: Array) -> None:
    """Floats as integers. NumPy leaves values out of the integers' range to the machine."""
    low, above = _ENDS[out.dtype]
    if x.itemsize == 2:
        x = x.astype(float32)
    least, most = (float(f.reduce(x, axis=None, initial=0)) for f in (np.minimum, np.maximum))
    if low <= least and most < above:  # neither holds for NaN
        np.copyto(out, x, casting="unsafe")
    else:
        saturate(x.astype(float64), low, above, out)


def saturate(x: Array, low: float, above: float, out: Array) -> None:
    held = np.clip(x, low, np.nextafter(above, 0))
    np.copyto(out, np.where(np.isnan(x), 0, held), casting="unsafe")
    np.copyto(out, np.iinfo(out.dtype).max, where=x >= above)


def clip(x: Array, *, min: float | None, max: float | None, out: Array) -> None:
    if min is not None:
        x = np.maximum(x, min, out=out)
    if max is not None:
        np.minimum(x, max, out=out)
    elif min is None:
        np.copyto(out, x)


for _name in _ROUNDING:  # whole numbers already
    register(_name, copy, *same(1, "?" + INT), inplace=(0,))
register("Cast", whole, *[f"{a}->{b}" for a in FLOAT for b in INT])
register("Cast", cast, *[f"{a}->{b}" for a in ANY for b in ANY if a not in FLOAT or b not in INT])
register("Clip", clip, *same(1, NUMBER), inplace=(0,))
