"""Elementwise primitives, each a function of one element at a time, and compositions of them.

In order: casts, arithmetic, rounding and clipping; powers, exponentials and logarithms, with the
gamma functions; trigonometric functions; activations and the error function; comparisons, logic
and selection.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.dtype import INTEGERS, DType, as_dtype, bool_, float16, float32, is_float, promote
from ..core.errors import AttributeRefusedError, DTypeError, ShapeError
from ..core.options import integer, number
from ..core.primitive import Primitive
from . import rules
from .bases import (
    Binary,
    Comparison,
    FloatBinary,
    FloatUnary,
    NumberBinary,
    NumberUnary,
    Unary,
    moves,
)
from .checks import (
    broadcasts_to,
    dtype_of,
    needs_number,
    on_one_device,
    shape_of,
    strong,
)

if TYPE_CHECKING:
    from ..core.tensor import Tensor

__all__ = [
    "Cast", "Add", "Sub", "Mul", "Div", "FloorDiv", "Mod", "Reciprocal", "Maximum", "Minimum",
    "Neg", "Abs", "Sign", "Square", "Floor", "Ceil", "Round", "Trunc", "Clip", "StopGradient",
    "cast", "add", "sub", "mul", "div", "floor_div", "mod", "reciprocal", "maximum", "minimum",
    "neg", "abs", "sign", "square", "floor", "ceil", "round", "trunc", "clip", "stop_gradient",
    "Pow", "Sqrt", "Rsqrt", "Exp", "Expm1", "Exp2", "Log", "Log1p", "Log2", "Log10", "LGamma",
    "Polygamma",
    "pow", "sqrt", "rsqrt", "exp", "expm1", "exp2", "log", "log1p", "log2", "log10", "lgamma",
    "digamma", "hypot", "logaddexp", "polygamma", "xlogy",
    "Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Atan2",
    "Sinh", "Cosh", "Tanh", "Asinh", "Acosh", "Atanh",
    "sin", "cos", "tan", "asin", "acos", "atan", "atan2",
    "sinh", "cosh", "tanh", "asinh", "acosh", "atanh",
    "Erf", "Erfc", "ErfInv", "Sigmoid", "Softplus", "SiLU", "ReLU", "ReLUGrad", "LeakyReLU",
    "LeakyReLUGrad", "ELU", "GELU", "ExpNegSquare", "NormalCDF",
    "erf", "erfc", "erfinv", "sigmoid", "softplus", "silu", "relu", "relu_grad", "leaky_relu",
    "elu", "gelu", "celu", "hard_sigmoid", "hard_swish", "hard_tanh", "log_sigmoid", "mish",
    "prelu", "relu6", "selu", "softsign",
    "Equal", "NotEqual", "Less", "LessEqual", "Greater", "GreaterEqual",
    "LogicalAnd", "LogicalOr", "LogicalXor", "LogicalNot", "IsNan", "IsInf", "IsFinite", "Select",
    "equal", "not_equal", "less", "less_equal", "greater", "greater_equal",
    "logical_and", "logical_or", "logical_xor", "logical_not", "isnan", "isinf", "isfinite",
    "select", "where",
]  # fmt: skip


class Cast(Primitive):
    """x in another dtype; anything non-zero is True.

    Floats become integers by truncation towards zero, the nearest end of the range outside it and
    0 for NaN, on every device. Integers that do not fit wrap.
    """

    flops = moves
    elementwise = True
    dtype: DType
    infer_shape = rules.same
    infer_dtype = rules.attribute("dtype")


def cast(x: Any, dtype: object) -> Tensor:
    """x in another dtype, given as a dtype, a name or a Python type (float means float32).

    >>> cast([2.7, -2.7, 300.0, float("nan")], "int8").tolist()
    [2, -2, 127, 0]
    """
    return Cast(as_dtype(dtype))(x)


class StopGradient(Unary):
    """x itself, through which no gradient passes."""

    view = "same"
    differentiable = False


stop_gradient = StopGradient()


class Add(Binary):
    """x + y; `or` for bools."""

    rounds = True
    linear = ("x y",)
    commutative = True


class Sub(NumberBinary):
    """x - y; bools are refused."""

    rounds = True
    linear = ("x y",)


class Mul(Binary):
    """x * y; `and` for bools."""

    linear = ("x", "y")
    commutative = True


class Div(FloatBinary):
    """x / y, true division: integers are cast to float32 first."""

    linear = ("x",)


class Reciprocal(FloatUnary):
    """1 / x."""

    autocast = "wide"


class FloorDiv(NumberBinary):
    """floor(x / y), NumPy's and Python's; an integer divided by 0 gives 0 on the CPU.

    Piecewise constant, so no gradient passes.
    """

    differentiable = False


class Mod(NumberBinary):
    """x - floor(x / y) * y, which has the sign of y, as in NumPy and Python.

    An integer modulo 0 is 0 on the CPU, a float modulo 0 is NaN.
    """


class Maximum(Binary):
    """The larger of x and y; NaN where either is. At ties each gets half of the gradient."""

    commutative = True


class Minimum(Binary):
    """The smaller of x and y; NaN where either is. At ties each gets half of the gradient."""

    commutative = True


class Neg(NumberUnary):
    """-x; bools are refused."""

    linear = ("x",)


class Abs(Unary):
    """|x|; its gradient at 0 is 0."""


class Sign(NumberUnary):
    """-1, 0 or 1, as x is negative, zero or positive; NaN stays. No gradient passes."""

    differentiable = False


class Square(NumberUnary):
    """x * x."""

    autocast = "wide"


class Floor(Unary):
    """The largest integer <= x, in x's dtype. No gradient passes."""

    differentiable = False


class Ceil(Unary):
    """The smallest integer >= x, in x's dtype. No gradient passes."""

    differentiable = False


class Round(Unary):
    """The nearest integer, in x's dtype; halves go to the even one. No gradient passes."""

    differentiable = False


class Trunc(Unary):
    """x without its fraction, towards zero, in x's dtype. No gradient passes."""

    differentiable = False


class Clip(Unary):
    """min(max(x, min), max): x kept within [min, max]; a bound of None does not bind.

    The gradient passes where min <= x <= max, bounds included. DTypeError for a bound that x's
    dtype cannot hold, ShapeError for a bound that is not a number.
    """

    min: Any = None
    max: Any = None

    def infer_dtype(self, x: DType) -> DType:
        needs_number(self.name, x)
        for name in ("min", "max"):
            bound = getattr(self, name)
            if bound is None:
                continue
            if not isinstance(bound, (int, float)):
                raise ShapeError(f"Clip got {name}={bound!r}; give a number, or use ops.maximum")
            _check_bound(x, name, bound)
        return x


def _check_bound(x: DType, name: str, bound: Any) -> None:
    if x not in INTEGERS:
        return
    info = np.iinfo(x)
    if isinstance(bound, float) or not info.min <= bound <= info.max:
        raise DTypeError(
            f"Clip got {name}={bound} for {x.name}, which cannot hold it; cast x to a wider dtype"
        )


# fmt: off
add, sub, mul, div, floor_div, mod = Add(), Sub(), Mul(), Div(), FloorDiv(), Mod()
reciprocal, maximum, minimum = Reciprocal(), Maximum(), Minimum()
neg, abs, sign, square = Neg(), Abs(), Sign(), Square()
floor, ceil, round, trunc = Floor(), Ceil(), Round(), Trunc()
# fmt: on


def clip(x: Any, min: Any = None, max: Any = None) -> Tensor:
    """x kept within [min, max]; bounds are numbers, tensors that broadcast with x, or None."""
    bounds = (min, max)
    if all(b is None or isinstance(b, (int, float, np.generic)) for b in bounds):
        return Clip(min, max)(x)
    low = x if min is None else maximum(x, min)
    return low if max is None else minimum(low, max)


# --- Powers, exponentials and logarithms ----------------------------------------------------------


class Pow(NumberBinary):
    """x to the power y, in the common dtype: integers give integers.

    A negative x to the power of a y that is not a whole number is NaN. Integers to negative integer
    powers are refused when it runs: cast x to a float first. The gradient with respect to y is 0
    where x <= 0, where the logarithm does not exist.
    """

    autocast = "wide"


class Sqrt(FloatUnary):
    """The square root; NaN below 0."""


class Rsqrt(FloatUnary):
    """1 / sqrt(x)."""

    autocast = "wide"


class Exp(FloatUnary):
    """e to the x."""

    autocast = "wide"


class Expm1(FloatUnary):
    """exp(x) - 1, accurate near 0."""

    autocast = "wide"


class Exp2(FloatUnary):
    """2 to the x."""

    autocast = "wide"


class Log(FloatUnary):
    """The natural logarithm; -inf at 0, NaN below."""

    autocast = "wide"


class Log1p(FloatUnary):
    """log(1 + x), accurate near 0."""

    autocast = "wide"


class Log2(FloatUnary):
    """The logarithm to base 2."""

    autocast = "wide"


class Log10(FloatUnary):
    """The logarithm to base 10, exact at integer powers of ten."""

    autocast = "wide"


class LGamma(FloatUnary):
    """log |gamma(x)|; inf at 0, at the negative integers and at both infinities.

    The error is below 5 units in the last digit for x > 0, and below 3 of the result or of 1,
    whichever is more, for x < 0, where it has zeros; on a GPU it is that of CUDA's lgamma. The
    gradient is digamma(x).
    """

    autocast = "wide"


class Polygamma(FloatUnary):
    """digamma(x), the derivative of log |gamma(x)|, or the derivative of order n of that.

    n: an int from 0 to 20. The gradient is polygamma(n + 1, x).
    """

    autocast = "wide"
    n: int

    def infer_dtype(self, x: DType) -> DType:
        integer("Polygamma", "n", self.n, 0, 20)
        return x


sqrt, rsqrt = Sqrt(), Rsqrt()
exp, expm1, exp2 = Exp(), Expm1(), Exp2()
log, log1p, log2, log10 = Log(), Log1p(), Log2(), Log10()
lgamma, digamma = LGamma(), Polygamma(0)
_pow = Pow()


def pow(x: Any, y: Any) -> Tensor:
    """x to the power y, in the common dtype; the Python exponent 2 makes it `square(x)`.

    (-2.0)^y is a number for whole y only, NaN for others. Integers give integers and refuse
    negative powers. The gradient with respect to y is 0 where x <= 0.
    """
    return square(x) if type(y) is int and y == 2 else _pow(x, y)


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


def polygamma(n: int, x: Any) -> Tensor:
    """(-1)^(n + 1) n! sum of 1 / (x + k)^(n + 1) over k >= 0, the derivative of order n of digamma.

    n: an int from 0 to 20; 0 is digamma, the derivative of lgamma. Integers are cast to float32. At
    0 and the negative integers it is infinite, with the sign (-1)^(n + 1), and digamma NaN; at -0.0
    digamma is inf and at 0.0 -inf. In float32 the error is below one unit in the last digit, in
    float64 below 16 of the result or of 1, whichever is more; for even n > 0 and x < 0, where it
    has zeros, of the terms that cancel there. ValueRefusedError for other n.
    Source: Abramowitz and Stegun, 6.4.

    >>> polygamma(1, 1.0), digamma(1.0)
    (Tensor(1.644934, shape=(), dtype=float32), Tensor(-0.5772157, shape=(), dtype=float32))
    """
    return Polygamma(n)(x)


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


# --- Trigonometric functions ----------------------------------------------------------------------


class Sin(FloatUnary):
    """sin x, x in radians."""


class Cos(FloatUnary):
    """cos x, x in radians."""


class Tan(FloatUnary):
    """tan x, x in radians."""

    autocast = "wide"


class Asin(FloatUnary):
    """The angle in [-pi/2, pi/2] whose sine is x; NaN outside [-1, 1]."""

    autocast = "wide"


class Acos(FloatUnary):
    """The angle in [0, pi] whose cosine is x; NaN outside [-1, 1]."""

    autocast = "wide"


class Atan(FloatUnary):
    """The angle in [-pi/2, pi/2] whose tangent is x."""


class Atan2(FloatBinary):
    """The angle of the point (y, x) in (-pi, pi]: the arctangent of x / y in its quadrant."""


class Sinh(FloatUnary):
    """(exp(x) - exp(-x)) / 2."""

    autocast = "wide"


class Cosh(FloatUnary):
    """(exp(x) + exp(-x)) / 2."""

    autocast = "wide"


class Tanh(FloatUnary):
    """sinh(x) / cosh(x), in [-1, 1]."""


class Asinh(FloatUnary):
    """The inverse of sinh."""


class Acosh(FloatUnary):
    """The inverse of cosh, >= 0; NaN below 1."""


class Atanh(FloatUnary):
    """The inverse of tanh; NaN outside [-1, 1]."""


sin, cos, tan, asin, acos, atan, atan2 = Sin(), Cos(), Tan(), Asin(), Acos(), Atan(), Atan2()
sinh, cosh, tanh, asinh, acosh, atanh = Sinh(), Cosh(), Tanh(), Asinh(), Acosh(), Atanh()


# --- Activations ----------------------------------------------------------------------------------


class Erf(FloatUnary):
    """The error function, 2 / sqrt(pi) times the integral of exp(-t^2) over [0, x]."""

    autocast = "wide"


class Erfc(FloatUnary):
    """1 - erf(x), accurate where erf(x) is near 1."""

    autocast = "wide"


class ErfInv(FloatUnary):
    """The y with erf(y) = x: infinite at -1 and 1, NaN beyond."""

    autocast = "wide"


class ExpNegSquare(FloatUnary):
    """exp(-x^2), with `halved` exp(-x^2 / 2); accurate, as the square is not rounded first."""

    autocast = "wide"
    halved: bool = False


class NormalCDF(FloatUnary):
    """Phi(x) = erfc(-x / sqrt(2)) / 2, the normal distribution function, accurate near 0."""

    autocast = "wide"


class Sigmoid(FloatUnary):
    """1 / (1 + exp(-x)), accurate at both ends."""


class Softplus(FloatUnary):
    """log(1 + exp(x)), without overflow."""

    autocast = "wide"


class SiLU(FloatUnary):
    """x * sigmoid(x), also called swish (Elfwing, Uchibe, Doya 2017)."""


class ReLU(NumberUnary):
    """max(x, 0); NaN stays NaN. Its gradient at 0 is 0."""


class ReLUGrad(FloatBinary):
    """dout where x > 0 and 0 elsewhere, also where dout is infinite or NaN.

    The gradient of ReLU, as a primitive because training spends much of its time in it. x may be
    ReLU's input or its output. It is linear in dout; no gradient passes to x.
    """

    inputs = ("x", "dout")


class LeakyReLU(FloatUnary):
    """x where x > 0, slope * x elsewhere."""

    slope: float = 0.01


class LeakyReLUGrad(FloatBinary):
    """dout where x > 0, slope * dout elsewhere: the gradient of LeakyReLU, linear in dout."""

    slope: float = 0.01
    inputs = ("x", "dout")


class ELU(FloatUnary):
    """x where x > 0, alpha * (exp(x) - 1) elsewhere (Clevert, Unterthiner, Hochreiter 2015)."""

    alpha: float = 1.0


class GELU(FloatUnary):
    """x * Phi(x) with the normal distribution's Phi (Hendrycks, Gimpel 2016).

    approximate=True: x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))).
    """

    approximate: bool = False

    def infer_dtype(self, x: DType) -> DType:
        if not isinstance(self.approximate, bool):
            raise AttributeRefusedError(
                f"GELU got approximate={self.approximate!r}; the class takes True or False, "
                "ops.gelu also 'tanh' or 'none'"
            )
        return x


# fmt: off
erf, erfc, erfinv = Erf(), Erfc(), ErfInv()
sigmoid, softplus, silu = Sigmoid(), Softplus(), SiLU()
relu, relu_grad = ReLU(), ReLUGrad()
# fmt: on


def leaky_relu(x: Any, slope: float = 0.01) -> Tensor:
    """x where x > 0, slope * x elsewhere."""
    return LeakyReLU(slope)(x)


def elu(x: Any, alpha: float = 1.0) -> Tensor:
    """x where x > 0, alpha * (exp(x) - 1) elsewhere."""
    return ELU(alpha)(x)


def gelu(x: Any, approximate: bool | str = False) -> Tensor:
    """x * Phi(x) by the error function, or by its tanh approximation with "tanh" or True.

    AttributeRefusedError for any other word than "tanh" and "none".
    """
    known = {"none": False, "tanh": True}
    word: Any = known.get(approximate, approximate) if isinstance(approximate, str) else approximate
    return GELU(word)(x)


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


# --- Comparisons and selection --------------------------------------------------------------------


class Equal(Comparison):
    """x == y; NaN equals nothing."""

    commutative = True


class NotEqual(Comparison):
    """x != y; NaN differs from everything."""

    commutative = True


class Less(Comparison):
    """x < y."""


class LessEqual(Comparison):
    """x <= y."""


class Greater(Comparison):
    """x > y."""


class GreaterEqual(Comparison):
    """x >= y."""


class Logical(Binary, abstract=True):
    """Two bool tensors, broadcast; other dtypes are refused."""

    commutative = True
    promote = False
    differentiable = False
    infer_dtype = rules.bools


class LogicalAnd(Logical):
    """True where both are."""


class LogicalOr(Logical):
    """True where at least one is."""


class LogicalXor(Logical):
    """True where exactly one is."""


class LogicalNot(Unary):
    """True where x is False; other dtypes than bool are refused."""

    differentiable = False
    infer_dtype = rules.bools


class FloatKind(Unary, abstract=True):
    """A test of the kind of float that each element is; integers and bools are finite."""

    differentiable = False
    infer_dtype = rules.always(bool_)


class IsNan(FloatKind):
    """True where x is not a number."""


class IsInf(FloatKind):
    """True where x is an infinity of either sign."""


class IsFinite(FloatKind):
    """True where x is neither NaN nor an infinity."""


class Select(Primitive):
    """x where cond is True, y where it is False; the three broadcast.

    cond: bool. x and y are promoted to their common dtype, which is the output's. The gradient of
    elements that were not selected is 0, even where they are NaN or infinite.
    """

    elementwise = True
    linear = ("x y",)
    promote = ("x", "y")
    if TYPE_CHECKING:

        def __call__(self, cond: Any, x: Any, y: Any) -> Tensor: ...

    inputs = ("cond", "x", "y")
    infer_shape = rules.broadcast

    def infer_dtype(self, cond: DType, x: DType, y: DType) -> DType:
        if cond != bool_:
            raise DTypeError(
                f"Select needs a bool condition; got {cond.name}; compare first, as in cond != 0"
            )
        return x


# fmt: off
equal, not_equal, less, less_equal = Equal(), NotEqual(), Less(), LessEqual()
greater, greater_equal = Greater(), GreaterEqual()
logical_and, logical_or, logical_xor = LogicalAnd(), LogicalOr(), LogicalXor()
logical_not, isnan, isinf, isfinite = LogicalNot(), IsNan(), IsInf(), IsFinite()
select = where = Select()
# fmt: on
