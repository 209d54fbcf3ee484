"""Elementwise functions that are composed of elementwise primitives.

In order: functions of two numbers; activations; casts to floats.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from ..core.dtype import float16, float32, is_float, promote
from ..core.errors import ShapeError
from ..core.options import number
from .checks import broadcasts_to, dtype_of, on_one_device, shape_of, strong
from .elementwise import (
    abs,
    add,
    cast,
    clip,
    div,
    elu,
    equal,
    exp,
    greater,
    isinf,
    less_equal,
    log,
    log1p,
    logical_and,
    logical_or,
    maximum,
    minimum,
    mul,
    neg,
    relu,
    select,
    softplus,
    sqrt,
    square,
    stop_gradient,
    sub,
    tanh,
)  # fmt: skip

if TYPE_CHECKING:
    from ..core.tensor import Tensor

__all__ = [
    "hypot", "logaddexp", "xlogy",
    "celu", "hard_sigmoid", "hard_swish", "hard_tanh", "log_sigmoid", "mish", "prelu", "relu6",
    "selu", "softsign",
]  # fmt: skip


@on_one_device
def logaddexp(x: Any, y: Any) -> Tensor:
    """log(exp(x) + exp(y)) without overflow: x and y broadcast, integers are cast to float32.

    Two equal infinities give that infinity. The gradient is (exp(x - out), exp(y - out)); where
    x and y are the same infinity it is (0, 1).

    >>> logaddexp(1000.0, 1000.0)
    Tensor(1000.6932, shape=(), dtype=float32)
    """
    x, y = as_floats(x, y)
    first = greater(x, y)
    high, low = select(first, x, y), select(first, y, x)
    same = logical_and(equal(high, low), isinf(high))  # their difference would be NaN
    return add(high, log1p(exp(select(same, -inf, sub(low, high)))))


@on_one_device
def hypot(x: Any, y: Any) -> Tensor:
    """sqrt(x^2 + y^2), without overflow of the squares; infinite where x or y is infinite.

    x and y broadcast, integers are cast to float32. The gradient is (x / out, y / out), and 0 where
    x and y are both 0 and where one is infinite.

    >>> hypot(3e30, 4e30)
    Tensor(5.e+30, shape=(), dtype=float32)
    """
    x, y = as_floats(x, y)
    a, b = abs(x), abs(y)
    infinite = logical_or(equal(a, inf), equal(b, inf))
    size = select(infinite, inf, maximum(a, b))
    at_end = logical_or(infinite, equal(size, 0))
    # hypot(x / c, y / c) * c is the same for every c, so no gradient passes to c.
    scale, size = stop_gradient(select(at_end, 1.0, size)), stop_gradient(size)
    parts = (square(div(select(at_end, 1.0, v), scale)) for v in (x, y))
    return select(at_end, size, mul(sqrt(add(*parts)), scale))


@on_one_device
def xlogy(x: Any, y: Any) -> Tensor:
    """x * log(y), but 0 where x is 0, unless y is NaN: the limit of x log(x) at 0.

    x and y broadcast, integers are cast to float32. The gradient is (log(y), x / y); where x is 0
    and log(y) is not finite, it is 0.

    >>> xlogy([0.0, 2.0], [0.0, 1.0]).tolist()
    [0.0, 0.0]
    """
    x, y = as_floats(x, y)
    # Where x is 0, a y without a finite logarithm counts as 1; NaN compares False and stays.
    vanishes = logical_and(equal(x, 0), logical_or(less_equal(y, 0), equal(y, inf)))
    return add(mul(x, log(select(vanishes, 1.0, y))), 0.0)  # 0 beside a negative logarithm, not -0


def log_sigmoid(x: Any) -> Tensor:
    """log(sigmoid(x)) = -log(1 + exp(-x)), accurate at both ends.

    >>> log_sigmoid([-1000.0, 1000.0]).tolist()
    [-1000.0, -0.0]
    """
    return neg(softplus(neg(as_float(x))))


def relu6(x: Any) -> Tensor:
    """min(max(x, 0), 6); the gradient is 0 at 0 and 1/2 at 6. Integers stay integers."""
    return minimum(relu(x), 6)


def hard_tanh(x: Any, min: Any = -1.0, max: Any = 1.0) -> Tensor:
    """x kept within [min, max], floats; the gradient is 1 at both ends of that range."""
    return clip(as_float(x), min, max)


def hard_sigmoid(x: Any, slope: float = 1 / 6, offset: float = 0.5) -> Tensor:
    """min(max(slope * x + offset, 0), 1); where it bends the gradient is `slope`.

    The defaults bend at -3 and 3, as in PyTorch; the ONNX operator's default slope is 0.2.
    """
    return clip(add(mul(as_float(x), slope), offset), 0.0, 1.0)


def hard_swish(x: Any) -> Tensor:
    """x * hard_sigmoid(x): 0 up to -3, x from 3 on (Howard et al. 2019, "MobileNetV3").

    The gradient is -1/2 at -3 and 3/2 at 3.
    """
    v = as_float(x)
    return mul(clip(v, -3.0), hard_sigmoid(v))  # -inf * 0 would be NaN


def mish(x: Any) -> Tensor:
    """x * tanh(log(1 + exp(x))) (Misra 2019); 0 at -inf."""
    v = as_float(x)
    return mul(clip(v, -1000.0), tanh(softplus(v)))  # at -1000 exp(x) is 0 in all dtypes


def softsign(x: Any) -> Tensor:
    """x / (1 + |x|), between -1 and 1, which it reaches at the infinities.

    >>> softsign([-float("inf"), 3.0]).tolist()
    [-1.0, 0.75]
    """
    v = as_float(x)
    top = 2.0**15 if dtype_of(v) == float16 else 2.0**64  # beyond, the result rounds to 1
    v = clip(v, -top, top)
    return div(v, add(abs(v), 1.0))


def celu(x: Any, alpha: float = 1.0) -> Tensor:
    """max(x, 0) + min(0, alpha * (exp(x / alpha) - 1)) (Barron 2017), with the gradient 1 at 0.

    ValueRefusedError for an alpha that is not above 0.
    """
    alpha = number("celu", "alpha", alpha, above=0)
    v = as_float(x)
    return select(greater(v, 0), v, mul(elu(div(v, alpha)), alpha))


def selu(x: Any) -> Tensor:
    """s * elu(x, a) with s = 1.0507009873554805 and a = 1.6732632423543772.

    Mean 0 and variance 1 are a fixed point of it; the gradient at 0 is s a.
    Source: Klambauer, Unterthiner, Mayr, Hochreiter 2017, "Self-normalizing neural networks".
    """
    return mul(elu(x, 1.6732632423543772), 1.0507009873554805)


@on_one_device
def prelu(x: Any, slope: Any) -> Tensor:
    """x where x > 0, slope * x elsewhere, with a learnt `slope`, which is the gradient at 0.

    slope broadcasts to x's shape, ShapeError if not: for one number per channel of images
    (N, C, H, W) it has shape (C, 1, 1).
    """
    if not broadcasts_to(shape_of(slope), shape_of(x)):
        raise ShapeError(
            f"prelu got x of shape {shape_of(x)} and slope of {shape_of(slope)}, which does not "
            "broadcast to it; one slope per channel of images has shape (C, 1, 1)"
        )
    # Clipped, because a slope of 0 times inf would be NaN.
    return select(greater(x, 0), x, mul(slope, clip(x, None, 0)))


def as_floats(*xs: Any) -> list[Any]:
    """xs in the float dtype that a primitive with `promote = "float"` gives them together; for
    functions that call several primitives on some of them."""
    given = strong(*xs)
    joined = promote(*map(dtype_of, given))
    dtype = joined if is_float(joined) else float32
    return [x if dtype_of(x) == dtype else cast(x, dtype) for x in given]


def as_float(x: Any) -> Any:
    """x itself, integers and bools as float32."""
    return as_floats(x)[0]
