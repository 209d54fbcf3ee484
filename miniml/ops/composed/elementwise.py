"""Elementwise functions that are composed of elementwise primitives.

In order: functions of two numbers; closeness, fractions and what takes the place of NaN;
activations; casts to floats.
"""

from __future__ import annotations

from math import factorial, inf, pi
from typing import Any

import ml_dtypes

from ...core.abstract import HALVES, DType, float16, float32, float64, is_complex, is_float, promote
from ...core.errors import ShapeError
from ...core.options import flag, number
from ..checks import Tensor, broadcasts_to, composition, dtype_of, shape_of, strong
from ..elementwise import (
    Complex,
    Imag,
    Real,
    abs,
    add,
    cast,
    clip,
    div,
    elu,
    floor_div,
    minimum,
    mod,
    mul,
    neg,
    relu,
    round,
    sin,
    softplus,
    square,
    stop_gradient,
    sub,
    tanh,
    trunc,
)
from ..logic import equal, greater, isfinite, isnan, less_equal, logical_and, logical_or, select

__all__ = [
    "divmod", "lerp",
    "frac", "isclose", "nan_to_num", "sinc",
    "celu", "hard_sigmoid", "hard_swish", "hard_tanh", "log_sigmoid", "mish", "prelu", "relu6",
    "selu", "softshrink", "softsign", "threshold",
]  # fmt: skip


@composition
def lerp(x: Any, y: Any, weight: Any) -> Tensor:
    """x + weight * (y - x), the point between x and y; exactly x for weight 0 and y for 1.

    The three broadcast, integers are cast to float32. The gradient is
    (1 - weight, weight, y - x). Numbers that are infinite or whose difference is, give NaN.

    >>> lerp(1.0, [3.0, 5.0], 0.25).tolist()
    [1.5, 2.0]
    """
    x, y, weight = as_floats(x, y, weight)
    step = sub(y, x)
    from_x, from_y = add(x, mul(weight, step)), sub(y, mul(sub(1.0, weight), step))
    return select(greater(0.5, abs(weight)), from_x, from_y)  # each is exact at its own end


@composition
def divmod(x: Any, y: Any) -> tuple[Tensor, Tensor]:
    """(floor_div(x, y), mod(x, y)), so that x = quotient * y + rest; the rest has the sign of y.

    >>> quotient, rest = divmod([7, -7], 3)
    >>> quotient.tolist(), rest.tolist()
    ([2, -3], [1, 2])
    """
    return floor_div(x, y), mod(x, y)


# --- Closeness, fractions, and what takes the place of NaN ----------------------------------------


@composition
def isclose(
    x: Any, y: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Tensor:
    """|x - y| <= atol + rtol * |y|, as in NumPy: y is what x is compared with. bool.

    Infinities are close to themselves alone, NaN to nothing, or with `equal_nan` to NaN. x and y
    broadcast; integers and bools are compared in float64, float16 and bfloat16 in float32.
    ValueRefusedError for a tolerance below 0.

    >>> isclose([1.0, float("inf")], [1.000001, float("inf")]).tolist()
    [True, True]
    """
    rtol, atol = (number("isclose", n, v, low=0) for n, v in (("rtol", rtol), ("atol", atol)))
    given = strong(x, y)
    joined = promote(*map(dtype_of, given))
    wide = float32 if joined in HALVES else joined if is_float(joined) else float64
    x, y = (cast(v, wide) for v in given)
    near = less_equal(abs(sub(x, y)), add(mul(abs(y), rtol), atol))
    close = logical_or(logical_and(near, isfinite(y)), equal(x, y))
    if flag("isclose", "equal_nan", equal_nan):
        close = logical_or(close, logical_and(isnan(x), isnan(y)))
    return close


@composition
def nan_to_num(x: Any, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> Tensor:
    """x with `nan` for NaN, `posinf` for inf and `neginf` for -inf.

    None: the largest and the least finite number of x's dtype. Integers and bools stay as they are.
    The gradient is 1 where x is finite and 0 elsewhere.

    >>> nan_to_num([float("nan"), float("inf"), 2.0], posinf=9.0).tolist()
    [0.0, 9.0, 2.0]
    """
    dtype = dtype_of(x)
    if is_complex(dtype):
        return Complex()(*[nan_to_num(p(x), nan, posinf, neginf) for p in (Real(), Imag())])
    if not is_float(dtype):
        return cast(x, dtype)
    most = float(ml_dtypes.finfo(dtype).max)  # type: ignore[no-untyped-call]
    if posinf is None and neginf is None:
        return select(isnan(x), nan, clip(x, -most, most))
    low = select(equal(x, -inf), -most if neginf is None else neginf, x)
    high = select(equal(x, inf), most if posinf is None else posinf, low)
    return select(isnan(x), nan, high)


@composition
def frac(x: Any) -> Tensor:
    """x - trunc(x), the fraction of x, with the sign of x; the gradient is 1.

    NaN for infinities; integers give 0. DTypeError for bool.

    >>> frac([2.75, -2.75]).tolist()
    [0.75, -0.75]
    """
    return sub(x, trunc(x))


@composition
def sinc(x: Any) -> Tensor:
    """sin(pi x) / (pi x), and 1 at 0; exactly 0 at the other integers, NaN at the infinities.

    Its derivatives of all orders are right near 0 too, where the quotient's would cancel. Integers
    are cast to float32; float16 and bfloat16 are computed in float32. As NumPy's sinc.

    >>> sinc([0.0, 0.5, 3.0]).tolist() == [1.0, sinc(0.5).item(), 0.0]
    True
    """
    v = widened(as_float(x))
    scaled = mul(v, pi)
    near = greater(1.0, abs(scaled))
    # Taylor's series of sin(s) / s to s^20, which is right to the last digit of float64 up to 1; to
    # s^14 for float32.
    squares, last = square(select(near, scaled, 0.0)), 10 if dtype_of(v) == float64 else 7
    series: Any = (-1) ** last / factorial(2 * last + 1)
    for k in range(last - 1, -1, -1):
        series = add(mul(squares, series), (-1) ** k / factorial(2 * k + 1))
    whole = stop_gradient(round(v))  # sin(pi x) is sin(pi (x - n)), negative for an odd n
    wave = mul(sin(mul(sub(v, whole), pi)), sub(1.0, mul(mod(whole, 2.0), 2.0)))
    return narrowed(x, select(near, series, div(wave, select(near, 1.0, scaled))))


# --- Activations ----------------------------------------------------------------------------------


@composition
def log_sigmoid(x: Any) -> Tensor:
    """log(sigmoid(x)) = -log(1 + exp(-x)), accurate at both ends (sigmoid: Verhulst 1845).

    >>> log_sigmoid([-1000.0, 1000.0]).tolist()
    [-1000.0, -0.0]
    """
    return neg(softplus(neg(as_float(x))))


@composition
def relu6(x: Any) -> Tensor:
    """min(max(x, 0), 6); the gradient is 0 at 0 and 1/2 at 6. Integers stay integers."""
    return minimum(relu(x), 6)


@composition
def hard_tanh(x: Any, min: Any = -1.0, max: Any = 1.0) -> Tensor:
    """x kept within [min, max], floats; the gradient is 1 at both ends of that range."""
    return clip(as_float(x), min, max)


@composition
def hard_sigmoid(x: Any, slope: float = 1 / 6, offset: float = 0.5) -> Tensor:
    """min(max(slope * x + offset, 0), 1); where it bends the gradient is `slope`.

    The defaults bend at -3 and 3, as in PyTorch; the ONNX operator's default slope is 0.2.
    """
    return clip(add(mul(as_float(x), slope), offset), 0.0, 1.0)


@composition
def hard_swish(x: Any) -> Tensor:
    """x * hard_sigmoid(x): 0 up to -3, x from 3 on (Howard et al. 2019, "MobileNetV3").

    The gradient is -1/2 at -3 and 3/2 at 3.
    """
    v = as_float(x)
    return mul(clip(v, -3.0), hard_sigmoid(v))  # -inf * 0 would be NaN


@composition
def mish(x: Any) -> Tensor:
    """x * tanh(log(1 + exp(x))) (Misra 2019); 0 at -inf."""
    v = as_float(x)
    return mul(clip(v, -1000.0), tanh(softplus(v)))  # at -1000 exp(x) is 0 in all dtypes


@composition
def softsign(x: Any) -> Tensor:
    """x / (1 + |x|), between -1 and 1, which it reaches at the infinities.

    Source: Bergstra et al. 2009, "Quadratic polynomials learn better image features".

    >>> softsign([-float("inf"), 3.0]).tolist()
    [-1.0, 0.75]
    """
    v = as_float(x)
    top = 2.0**15 if dtype_of(v) == float16 else 2.0**64  # beyond, the result rounds to 1
    v = clip(v, -top, top)
    return div(v, add(abs(v), 1.0))


@composition
def celu(x: Any, alpha: float = 1.0) -> Tensor:
    """max(x, 0) + min(0, alpha * (exp(x / alpha) - 1)) (Barron 2017), with the gradient 1 at 0.

    ValueRefusedError for an alpha that is not above 0.
    """
    alpha = number("celu", "alpha", alpha, above=0)
    v = as_float(x)
    if alpha == 1:
        return elu(v)
    return select(greater(v, 0), v, mul(elu(div(v, alpha)), alpha))


@composition
def selu(x: Any) -> Tensor:
    """s * elu(x, a) with s = 1.0507009873554805 and a = 1.6732632423543772.

    Mean 0 and variance 1 are a fixed point of it; the gradient at 0 is s a.
    Source: Klambauer, Unterthiner, Mayr, Hochreiter 2017, "Self-normalizing neural networks".
    """
    return mul(elu(x, 1.6732632423543772), 1.0507009873554805)


@composition
def softshrink(x: Any, lambd: float = 0.5) -> Tensor:
    """x - lambd where x > lambd, x + lambd where x < -lambd, 0 between; floats.

    The gradient at both ends of that range is 0. ValueRefusedError for a lambd below 0. Source:
    Donoho 1995, "De-noising by soft-thresholding".

    >>> softshrink([-2.0, 0.3, 2.0]).tolist()
    [-1.5, 0.0, 1.5]
    """
    bound = number("softshrink", "lambd", lambd, low=0)
    v = as_float(x)
    return sub(v, clip(v, -bound, bound))


@composition
def threshold(x: Any, threshold: Any, value: Any) -> Tensor:
    """x where x > threshold, `value` elsewhere; NaN stays NaN. The gradient is 0 at the threshold.

    x, threshold and value broadcast; the result has the common dtype of x and value.

    >>> threshold([0.1, 0.7], 0.5, -1.0).tolist()
    [-1.0, 0.699999988079071]
    """
    return select(less_equal(x, threshold), value, x)


@composition
def prelu(x: Any, slope: Any) -> Tensor:
    """x where x > 0, slope * x elsewhere, with a learnt `slope`, which is the gradient at 0.

    slope broadcasts to x's shape, ShapeError if not: for one number per channel of images
    (N, C, H, W) it has shape (C, 1, 1). Source: He et al. 2015, "Delving deep into rectifiers".
    """
    if not broadcasts_to(shape_of(slope), shape_of(x)):
        raise ShapeError(
            f"prelu got x of shape {shape_of(x)} and slope of {shape_of(slope)}, which does not "
            "broadcast to it; one slope per channel of images has shape (C, 1, 1)"
        )
    # Clipped, because a slope of 0 times inf would be NaN.
    return select(greater(x, 0), x, mul(slope, clip(x, None, 0)))


# --- Casts to floats ------------------------------------------------------------------------------


def as_floats(*xs: Any) -> list[Any]:
    """xs in the float dtype that a primitive with `promote = "float"` gives them together; for
    functions that call several primitives on some of them."""
    given = strong(*xs)
    joined = promote(*map(dtype_of, given))
    dtype = joined if is_float(joined) else float32
    return [in_dtype(x, dtype) for x in given]


def in_dtype(x: Tensor, dtype: DType) -> Tensor:
    """x itself, or cast to another dtype."""
    return x if dtype_of(x) == dtype else cast(x, dtype)


def as_float(x: Any) -> Any:
    """x itself, integers and bools as float32."""
    return as_floats(x)[0]


def widened(x: Any) -> Any:
    """x, in float32 if it has floats of 16 bits."""
    return cast(x, float32) if dtype_of(x) in HALVES else x


def narrowed(x: Any, out: Tensor) -> Tensor:
    """A result that was computed from `widened(x)`, in x's own dtype."""
    return cast(out, dtype_of(x)) if dtype_of(x) in HALVES else out
