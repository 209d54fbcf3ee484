"""Elementwise primitives: a row each, whole, with what it is, its kernels and its gradient.

A row has its formula; `numpy`, the ufunc that is its kernel on the CPU (longer ones stand in
`backends/cpu/elementwise.py`); `expression`, the C of one element, for CUDA and fused loops;
`onnx`; and `bprop`. `ops/composed` has the functions that are made of several of them.

In order: casts, arithmetic, rounding and clipping; powers, exponentials and logarithms, with the
gamma functions; trigonometric functions; activations and the error function; complex numbers. The
rows of comparisons, logic, bits and selection stand in `ops/logic.py`.
"""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np

from ..core.abstract import INTEGERS, DType, as_dtype, bool_, complex_dtype, is_complex, real_dtype
from ..core.errors import AttributeRefusedError, DTypeError, ShapeError
from ..core.options import brief, integer
from ..core.primitive import Primitive
from ..core.signature import ANY, COMPLEX, CPU, FLOAT, INT, LOW, NUMBER, SIGNED, UNSIGNED
from . import rules
from .checks import Tensor, composition, needs_complex, needs_number
from .logic import isfinite, isinf, logical_and, logical_not, logical_or, select
from .rules import Binary, FloatBinary, FloatUnary, NumberBinary, NumberUnary, Unary, WideUnary

# A row is a paragraph.
# fmt: off
__all__ = [
    "Cast", "Add", "Sub", "Mul", "Div", "FloorDiv", "Mod", "Reciprocal", "Maximum", "Minimum",
    "Neg", "Abs", "Sign", "Copysign", "Square", "Floor", "Ceil", "Round", "Trunc", "Clip",
    "StopGradient",
    "cast", "add", "sub", "mul", "div", "floor_div", "mod", "reciprocal", "maximum", "minimum",
    "neg", "abs", "sign", "copysign", "square", "floor", "ceil", "round", "trunc", "clip",
    "stop_gradient",
    "Pow", "Sqrt", "Rsqrt", "Exp", "Expm1", "Exp2", "Log", "Log1p", "Log2", "Log10", "LGamma",
    "Polygamma", "LogAddExp", "Hypot", "XLogY", "XLog1pY",
    "pow", "sqrt", "rsqrt", "exp", "expm1", "exp2", "log", "log1p", "log2", "log10", "lgamma",
    "digamma", "polygamma", "logaddexp", "hypot", "xlogy", "xlog1py",
    "Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Atan2",
    "Sinh", "Cosh", "Tanh", "Asinh", "Acosh", "Atanh",
    "sin", "cos", "tan", "asin", "acos", "atan", "atan2",
    "sinh", "cosh", "tanh", "asinh", "acosh", "atanh",
    "Erf", "Erfc", "ErfInv", "Sigmoid", "Softplus", "SiLU", "ReLU", "ReLUGrad", "LeakyReLU",
    "LeakyReLUGrad", "ELU", "GELU", "ExpNegSquare", "NormalCDF",
    "erf", "erfc", "erfinv", "sigmoid", "softplus", "silu", "relu", "relu_grad", "leaky_relu",
    "elu", "gelu",
    "Complex", "Real", "Imag", "Conj",
]


_PARTS = "F->f", "D->d"  # a float of each complex number

class Cast(Primitive):
    """x in another dtype; anything non-zero is True.

    Floats become integers by truncation towards zero, the nearest end of the range outside it and
    0 for NaN, on every device. Integers that do not fit wrap. A complex number does not become a
    real one: DTypeError.
    """
    elementwise = takes_complex = True
    flops, by_element = rules.moves, "e"
    dtype: DType
    infer_shape = rules.same

    def infer_dtype(self, x: DType) -> DType:
        if is_complex(x) and not is_complex(self.dtype):
            raise DTypeError(
                f"Cast refuses {x.name} to {self.dtype.name}, as the imaginary part would be lost; "
                "use ops.real(x), ops.abs(x) or, for bool, x != 0"
            )
        return self.dtype

    def bprop(self, x: Any, out: Any, dout: Any) -> Any:
        if dout is None:
            return (None,)
        whole = is_complex(dout.dtype) and not is_complex(x.dtype)
        return (cast(_real(dout) if whole else dout, x.dtype),)


def cast(x: Any, dtype: object) -> Tensor:
    """x in another dtype, given as a dtype, a name or a Python type (float means float32).

    >>> cast([2.7, -2.7, 300.0, float("nan")], "int8").tolist()
    [2, -2, 127, 0]
    """
    return Cast(as_dtype(dtype))(x)

class StopGradient(Unary):
    """x itself, through which no gradient passes."""
    takes_complex = True
    view = "same"
    differentiable = False


stop_gradient = StopGradient()

class Add(Binary):
    """x + y; `or` for bools."""
    rounds, linear, takes_complex = True, ("x y",), True
    commutative = True
    numpy = {ANY + COMPLEX: "add"}
    expression = {FLOAT + COMPLEX: "x + y", INT: "T(U(x) + U(y))", "?": "x || y"}
    def bprop(self, x: Any, y: Any, out: Any, dout: Any) -> Any: return dout, dout

class Sub(NumberBinary):
    """x - y; bools are refused."""
    rounds, linear, takes_complex = True, ("x y",), True
    numpy = {NUMBER + COMPLEX: "subtract"}
    expression = {FLOAT + COMPLEX: "x - y", INT: "T(U(x) - U(y))"}
    def bprop(self, x: Any, y: Any, out: Any, dout: Any) -> Any: return dout, -dout

class Mul(Binary):
    """x * y; `and` for bools."""
    linear, takes_complex = ("x", "y"), True
    commutative = True
    numpy = {ANY + COMPLEX: "multiply"}
    expression = {FLOAT: "x * y", COMPLEX: "cmul(x, y)", INT: "T(U(x) * U(y))", "?": "x && y"}
    def bprop(self, x: Any, y: Any, out: Any, dout: Any) -> Any: return dout * y, dout * x

class Div(FloatBinary):
    """x / y, true division: integers are cast to float32 first."""
    linear, takes_complex = ("x",), True
    numpy = {FLOAT + COMPLEX: "true_divide"}
    expression = {FLOAT: "x / y", COMPLEX: "cdiv(x, y)"}
    def bprop(self, x: Any, y: Any, out: Any, dout: Any) -> Any:
        dx = dout / y
        # 1 / y may overflow where x / y^2 does not, such as at x = 0.
        return dx, -select(isfinite(dx), dx * out, dout * out / y)

class Reciprocal(WideUnary):
    """1 / x."""
    takes_complex = True
    numpy, onnx = {FLOAT + COMPLEX: "reciprocal"}, ("Reciprocal", 6)
    expression = {FLOAT: "T(1) / x", COMPLEX: "crecip(x)"}
    def bprop(self, x: Any, out: Any, dout: Any) -> Any: return (-(dout * out * out),)

class FloorDiv(NumberBinary):
    """floor(x / y), NumPy's and Python's; an integer divided by 0 gives 0 on the CPU.

    Piecewise constant, so no gradient passes.
    """
    differentiable = False
    numpy, by_element = "floor_divide", "fd"
    expression = {FLOAT: "float_floor_div(x, y)", INT: "int_floor_div(x, y)"}

class Mod(NumberBinary):
    """x - floor(x / y) * y, which has the sign of y, as in NumPy and Python.

    An integer modulo 0 is 0 on the CPU, a float modulo 0 is NaN.
    """
    numpy, by_element = "remainder", "fd"
    expression = {FLOAT: "float_mod(x, y)", INT: "int_mod(x, y)"}
    def bprop(self, x: Any, y: Any, out: Any, dout: Any) -> Any:
        return dout, -(dout * floor_div(x, y))

class Maximum(Binary):
    """The larger of x and y; NaN where either is. At ties each gets half of the gradient."""
    commutative = True
    numpy = {"?" + INT + LOW: "maximum"}
    expression = {FLOAT: "nan_max(x, y)", INT: "x > y ? x : y", "?": "x || y"}
    def bprop(self, x: Any, y: Any, out: Any, dout: Any) -> Any: return _shared(x > y, x < y, dout)

class Minimum(Binary):
    """The smaller of x and y; NaN where either is. At ties each gets half of the gradient."""
    commutative = True
    numpy = {"?" + INT + LOW: "minimum"}
    expression = {FLOAT: "nan_min(x, y)", INT: "x < y ? x : y", "?": "x && y"}
    def bprop(self, x: Any, y: Any, out: Any, dout: Any) -> Any: return _shared(x < y, x > y, dout)

class Neg(NumberUnary):
    """-x; bools are refused."""
    linear, takes_complex = ("x",), True
    numpy = {NUMBER + COMPLEX: "negative"}
    expression, onnx = {FLOAT + COMPLEX: "-x", INT: "T(U(0) - U(x))"}, ("Neg", 6)
    def bprop(self, x: Any, out: Any, dout: Any) -> Any: return (-dout,)

class Abs(Unary):
    """|x|, of complex numbers the float sqrt(real^2 + imag^2); its gradient at 0 is 0."""
    takes_complex = True
    numpy = {(*ANY, *_PARTS): "absolute"}
    expression = {FLOAT: "fabs(x)", SIGNED: "x < 0 ? T(U(0) - U(x)) : x", UNSIGNED + "?": "x",
                  _PARTS: "cabs(x)"}
    onnx = "Abs", 6
    def infer_dtype(self, x: DType) -> DType: return real_dtype(x)
    def bprop(self, x: Any, out: Any, dout: Any) -> Any:
        if is_complex(x.dtype):
            return (dout * (_conj(x) / select(out == 0, 1, out)),)
        return (dout * sign(x),)

class Sign(NumberUnary):
    """-1, 0 or 1, as x is negative, zero or positive; NaN stays. No gradient passes."""
    differentiable = False
    by_element = "fd"
    numpy = {INT + "efd": "sign"}  # for bfloat16 ml_dtypes' keeps -0
    expression = {FLOAT: "sign(x)", SIGNED: "T(int(x > 0) - int(x < 0))", UNSIGNED: "T(x != 0)"}
    onnx = "Sign", 9

class Copysign(FloatBinary):
    """|x| with the sign of y, also of -0.0 and NaN; the gradient is 0 at x = 0, and 0 for y."""
    numpy, expression = "copysign", "copysign(x, y)"
    def bprop(self, x: Any, y: Any, out: Any, dout: Any) -> Any:
        return dout * (sign(x) * self(1.0, y)), None

class Square(NumberUnary):
    """x * x."""
    autocast, takes_complex = "wide", True
    numpy = {NUMBER + COMPLEX: "square"}
    expression = {FLOAT: "x * x", COMPLEX: "cmul(x, x)", INT: "T(U(x) * U(x))"}
    def bprop(self, x: Any, out: Any, dout: Any) -> Any: return (dout * x * 2,)

class Floor(Unary):
    """The largest integer <= x, in x's dtype. No gradient passes."""
    differentiable = False
    numpy, expression, onnx = {FLOAT: "floor"}, {FLOAT: "floor(x)", INT + "?": "x"}, ("Floor", 6)

class Ceil(Unary):
    """The smallest integer >= x, in x's dtype. No gradient passes."""
    differentiable = False
    numpy, expression, onnx = {FLOAT: "ceil"}, {FLOAT: "ceil(x)", INT + "?": "x"}, ("Ceil", 6)

class Round(Unary):
    """The nearest integer, in x's dtype; halves go to the even one. No gradient passes."""
    differentiable = False
    numpy, expression, onnx = {FLOAT: "rint"}, {FLOAT: "rint(x)", INT + "?": "x"}, ("Round", 11)

class Trunc(Unary):
    """x without its fraction, towards zero, in x's dtype. No gradient passes."""
    differentiable = False
    numpy, expression = {FLOAT: "trunc"}, {FLOAT: "trunc(x)", INT + "?": "x"}

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

    def bprop(self, x: Any, out: Any, dout: Any) -> Any:
        # Inside, bounds included, clip returned x itself; it never does so outside or for NaN.
        return (select(x == out, dout, 0),)


_LARGEST = sys.float_info.max


def _check_bound(x: DType, name: str, bound: Any) -> None:
    if x in INTEGERS:
        held = isinstance(bound, int) and np.iinfo(x).min <= bound <= np.iinfo(x).max
        advice = "cast x to a wider dtype"
    else:
        held = isinstance(bound, float) or -_LARGEST <= bound <= _LARGEST
        advice = f"leave {name} out, or give an infinity"
    if not held:
        got = f"Clip got {name}={brief(bound)} for {x.name}"
        raise DTypeError(f"{got}, which cannot hold it; {advice}")


def _shared(first: Any, second: Any, dout: Any) -> tuple[Any, Any]:
    """dout to the input that was selected, half of it to each at ties."""
    half = dout * 0.5
    dx = select(first, dout, select(second, 0, half))
    return dx, select(second, dout, select(first, 0, half))


add, sub, mul, div, floor_div, mod = Add(), Sub(), Mul(), Div(), FloorDiv(), Mod()
reciprocal, maximum, minimum = Reciprocal(), Maximum(), Minimum()
neg, abs, sign, square, copysign = Neg(), Abs(), Sign(), Square(), Copysign()
floor, ceil, round, trunc = Floor(), Ceil(), Round(), Trunc()


@composition
def clip(x: Any, min: Any = None, max: Any = None) -> Tensor:
    """x kept within [min, max]; bounds are numbers, tensors that broadcast with x, or None."""
    bounds = (min, max)
    if all(b is None or isinstance(b, (int, float, np.generic)) for b in bounds):
        return Clip(min, max)(x)
    low = x if min is None else maximum(x, min)
    return low if max is None else minimum(low, max)


# --- Powers, exponentials and logarithms ----------------------------------------------------------

# NumPy has vectors of most by AVX-512 and on Linux alone; elsewhere each element is a call.
_CALLED = "" if CPU.get("avx512_skx") and sys.platform == "linux" else "fd"

class Pow(NumberBinary):
    """x to the power y, in the common dtype: integers give integers.

    A negative x to the power of a y that is not a whole number is NaN. Integers to negative integer
    powers are refused when it runs: cast x to a float first. The gradient with respect to y is 0
    where x <= 0, where the logarithm does not exist.
    """
    autocast, by_element = "wide", _CALLED
    numpy, expression = {FLOAT: "power"}, {FLOAT: "pow(x, y)", INT: "int_pow(x, y)"}
    def bprop(self, x: Any, y: Any, out: Any, dout: Any) -> Any:
        # x to the 0 is constant in x, but y * x^(y - 1) is 0 * inf where 1 / x is not finite.
        constant = logical_and(y == 0, logical_not(isfinite(1 / x)))
        dx = dout * (y * pow(select(constant, 1, x), y - 1))
        return dx, select(x <= 0, 0, dout * log(select(x <= 0, 1, x)) * out)

class Sqrt(FloatUnary):
    """The square root; NaN below 0."""
    numpy, expression, onnx = "sqrt", "sqrt(x)", ("Sqrt", 6)
    def bprop(self, x: Any, out: Any, dout: Any) -> Any: return (dout / (out * 2),)

class Rsqrt(WideUnary):
    """1 / sqrt(x)."""
    expression = "T(1) / sqrt(x)"
    def bprop(self, x: Any, out: Any, dout: Any) -> Any: return (dout * (out * -0.5) / x,)

class Exp(WideUnary):
    """e to the x."""
    takes_complex = True
    numpy, onnx = {FLOAT + "D": "exp"}, ("Exp", 6)
    expression = {FLOAT: "exp(x)", COMPLEX: "cexp(x)"}
    def bprop(self, x: Any, out: Any, dout: Any) -> Any: return (dout * out,)

class Expm1(WideUnary):
    """exp(x) - 1, accurate near 0."""
    numpy, expression, by_element = "expm1", "expm1(x)", _CALLED
    def bprop(self, x: Any, out: Any, dout: Any) -> Any: return (dout * exp(x),)

class Exp2(WideUnary):
    """2 to the x."""
    numpy, expression, by_element = "exp2", "exp2(x)", _CALLED
    def bprop(self, x: Any, out: Any, dout: Any) -> Any: return (dout * math.log(2) * out,)

class Log(WideUnary):
    """The natural logarithm; -inf at 0, NaN below."""
    numpy, expression, onnx = "log", "log(x)", ("Log", 6)
    def bprop(self, x: Any, out: Any, dout: Any) -> Any: return (dout / x,)

class Log1p(WideUnary):
    """log(1 + x), accurate near 0."""
    numpy, expression, by_element = "log1p", "log1p(x)", _CALLED
    def bprop(self, x: Any, out: Any, dout: Any) -> Any: return (dout / (x + 1),)

class Log2(WideUnary):
    """The logarithm to base 2."""
    numpy, expression, by_element = "log2", "log2(x)", _CALLED
    def bprop(self, x: Any, out: Any, dout: Any) -> Any: return (dout / x * (1 / math.log(2)),)

class Log10(WideUnary):
    """The logarithm to base 10, exact at integer powers of ten."""
    numpy, expression, by_element = "log10", "log10(x)", _CALLED
    def bprop(self, x: Any, out: Any, dout: Any) -> Any: return (dout * (1 / math.log(10)) / x,)

class LGamma(WideUnary):
    """log |gamma(x)|; inf at 0, at the negative integers and at both infinities.

    The error is below 5 units in the last digit for x > 0, and below 3 of the result or of 1,
    whichever is more, for x < 0, where it has zeros; on a GPU it is that of CUDA's lgamma. The
    gradient is digamma(x).
    """
    expression, by_element = "lgamma(x)", "fd"
    def bprop(self, x: Any, out: Any, dout: Any) -> Any: return (dout * digamma(x),)

class Polygamma(WideUnary):
    """digamma(x), the derivative of log |gamma(x)|, or the derivative of order n of that.

    n: an int from 0 to 20. The gradient is polygamma(n + 1, x).
    """
    n: int
    expression, by_element = "polygamma(x, T(n))", "fd"

    def infer_dtype(self, x: DType) -> DType:
        integer("Polygamma", "n", self.n, 0, 20)
        return x

    def bprop(self, x: Any, out: Any, dout: Any) -> Any: return (dout * polygamma(self.n + 1, x),)


sqrt, rsqrt = Sqrt(), Rsqrt()
exp, expm1, exp2 = Exp(), Expm1(), Exp2()
log, log1p, log2, log10 = Log(), Log1p(), Log2(), Log10()
class LogAddExp(FloatBinary):
    """log(exp(x) + exp(y)) without overflow; two equal infinities give it, and slopes (0, 1)."""
    autocast, expression = "wide", "log_add(x, y)"
    def bprop(self, x: Any, y: Any, out: Any, dout: Any) -> Any:
        above = select(logical_and(x == y, isinf(x)), -math.inf, x - y)
        return dout * sigmoid(above), dout * sigmoid(-above)

class Hypot(FloatBinary):
    """sqrt(x^2 + y^2), without overflow of the squares; infinite where x or y is infinite.

    The gradient is (x / out, y / out), and 0 where x and y are both 0 and where one is infinite.
    """
    numpy, expression, by_element = "hypot", "hypotenuse(x, y)", "fd"
    def bprop(self, x: Any, y: Any, out: Any, dout: Any) -> Any:
        # That of x / c and y / c is the same for every c, so no gradient passes to c.
        size = stop_gradient(maximum(abs(x), abs(y)))
        at_end = logical_or(logical_or(isinf(x), isinf(y)), size == 0)
        u, v = (select(at_end, 1.0, w) / select(at_end, 1.0, size) for w in (x, y))
        whole = select(at_end, 0.0, dout / sqrt(square(u) + square(v)))
        return whole * u, whole * v

class XLogY(FloatBinary):
    """x * log(y), but 0 where x is 0, unless y is NaN: the limit of x log(x) at 0.

    The gradient is (log(y), x / y); where x is 0 and log(y) is not finite, it is 0.
    """
    autocast, expression = "wide", "(x == T(0)) & (y == y) ? T(0) : x * log(y) + T(0)"
    def bprop(self, x: Any, y: Any, out: Any, dout: Any) -> Any:
        v = select(logical_and(x == 0, logical_or(y <= 0, y == math.inf)), 1.0, y)
        return dout * log(v), dout * (x / v)

class XLog1pY(FloatBinary):
    """x * log(1 + y), accurate near y = 0, but 0 where x is 0, unless y is NaN; as is its gradient,
    else (log(1 + y), x / (1 + y)), where log(1 + y) is not finite."""
    autocast, expression = "wide", "(x == T(0)) & (y == y) ? T(0) : x * log1p(y) + T(0)"
    def bprop(self, x: Any, y: Any, out: Any, dout: Any) -> Any:
        v = select(logical_and(x == 0, logical_or(y <= -1, y == math.inf)), 0.0, y)
        return dout * log1p(v), dout * (x / (v + 1))

lgamma, digamma, logaddexp, hypot = LGamma(), Polygamma(0), LogAddExp(), Hypot()
xlogy, xlog1py = XLogY(), XLog1pY()
_pow = Pow()


def pow(x: Any, y: Any) -> Tensor:
    """x to the power y, in the common dtype; the Python exponents 2, 3 and 4 make it products.

    (-2.0)^y is a number for whole y only, NaN for others. Integers give integers and refuse
    negative powers. The gradient with respect to y is 0 where x <= 0. A product of three or four is
    within two units in the last digit; without them, say `pow(x, 3.0)`.
    """
    if type(y) is int and y == 2:
        return square(x)
    if type(y) is not int or y not in (3, 4) or getattr(x, "dtype", None) == bool_:
        return _pow(x, y)
    squared = square(x)
    return squared * x if y == 3 else square(squared)


@composition
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


# --- Trigonometric functions ----------------------------------------------------------------------

class Sin(FloatUnary):
    """sin x, x in radians."""
    numpy, expression, onnx, by_element = "sin", "sin(x)", ("Sin", 7), "d"
    def bprop(self, x: Any, out: Any, dout: Any) -> Any: return (dout * cos(x),)

class Cos(FloatUnary):
    """cos x, x in radians."""
    numpy, expression, onnx, by_element = "cos", "cos(x)", ("Cos", 7), "d"
    def bprop(self, x: Any, out: Any, dout: Any) -> Any: return (-dout * sin(x),)

class Tan(WideUnary):
    """tan x, x in radians."""
    numpy, expression, onnx, by_element = "tan", "tan(x)", ("Tan", 7), _CALLED
    def bprop(self, x: Any, out: Any, dout: Any) -> Any: return (dout * out * out + dout,)

class Asin(WideUnary):
    """The angle in [-pi/2, pi/2] whose sine is x; NaN outside [-1, 1]."""
    numpy, expression, onnx, by_element = "arcsin", "asin(x)", ("Asin", 7), _CALLED
    def bprop(self, x: Any, out: Any, dout: Any) -> Any: return (dout * rsqrt((1 - x) * (1 + x)),)

class Acos(WideUnary):
    """The angle in [0, pi] whose cosine is x; NaN outside [-1, 1]."""
    numpy, expression, onnx, by_element = "arccos", "acos(x)", ("Acos", 7), _CALLED
    def bprop(self, x: Any, out: Any, dout: Any) -> Any: return (-dout * rsqrt((1 - x) * (1 + x)),)

class Atan(FloatUnary):
    """The angle in [-pi/2, pi/2] whose tangent is x."""
    numpy, expression, onnx, by_element = "arctan", "atan(x)", ("Atan", 7), _CALLED
    def bprop(self, x: Any, out: Any, dout: Any) -> Any:
        near, far = _near_and_far(x)
        return (dout * far / (square(near) + square(far)) * far,)

class Atan2(FloatBinary):
    """The angle of the point (y, x) in (-pi, pi]: the arctangent of x / y in its quadrant."""
    numpy, expression, by_element = "arctan2", "atan2(x, y)", _CALLED
    def bprop(self, x: Any, y: Any, out: Any, dout: Any) -> Any:
        # By the ratio of the smaller to the larger: the squares of x and y may leave the range.
        steep = abs(x) > abs(y)
        larger = select(steep, x, y)
        ratio = select(steep, y, x) / larger
        whole = dout / (square(ratio) + 1)
        part = whole * ratio
        dx, dy = select(steep, part, whole), select(steep, whole, part)
        return dx / larger, -(dy / larger)

class Sinh(WideUnary):
    """(exp(x) - exp(-x)) / 2."""
    numpy, expression, onnx, by_element = "sinh", "sinh(x)", ("Sinh", 9), _CALLED
    def bprop(self, x: Any, out: Any, dout: Any) -> Any: return (dout * cosh(x),)

class Cosh(WideUnary):
    """(exp(x) + exp(-x)) / 2."""
    numpy, expression, onnx, by_element = "cosh", "cosh(x)", ("Cosh", 9), _CALLED
    def bprop(self, x: Any, out: Any, dout: Any) -> Any: return (dout * sinh(x),)

class Tanh(FloatUnary):
    """sinh(x) / cosh(x), in [-1, 1]."""
    numpy, expression, onnx, by_element = "tanh", "tanh(x)", ("Tanh", 6), _CALLED[1:]
    def bprop(self, x: Any, out: Any, dout: Any) -> Any: return (dout * (1 - square(out)),)

class Asinh(FloatUnary):
    """The inverse of sinh."""
    numpy, expression, onnx, by_element = "arcsinh", "asinh(x)", ("Asinh", 9), _CALLED
    def bprop(self, x: Any, out: Any, dout: Any) -> Any:
        near, far = _near_and_far(x)
        return (dout * (far * rsqrt(square(near) + square(far))),)

class Acosh(FloatUnary):
    """The inverse of cosh, >= 0; NaN below 1."""
    numpy, expression, onnx, by_element = "arccosh", "acosh(x)", ("Acosh", 9), "fd"
    def bprop(self, x: Any, out: Any, dout: Any) -> Any:
        return (dout * rsqrt(x + 1) * rsqrt(x - 1),)

class Atanh(FloatUnary):
    """The inverse of tanh; NaN outside [-1, 1]."""
    numpy, expression, onnx, by_element = "arctanh", "atanh(x)", ("Atanh", 9), _CALLED
    def bprop(self, x: Any, out: Any, dout: Any) -> Any: return (dout / ((1 - x) * (1 + x)),)


def _near_and_far(x: Any) -> tuple[Any, Any]:
    """(|x|, 1) up to 1 and (1, 1 / |x|) above: 1 / (1 + x^2) is far^2 / (near^2 + far^2)."""
    size = abs(x)
    return minimum(size, 1), 1 / maximum(size, 1)


sin, cos, tan, asin, acos, atan, atan2 = Sin(), Cos(), Tan(), Asin(), Acos(), Atan(), Atan2()
sinh, cosh, tanh, asinh, acosh, atanh = Sinh(), Cosh(), Tanh(), Asinh(), Acosh(), Atanh()


# --- Activations ----------------------------------------------------------------------------------

# The least finite float32: x * P(x) has the limit -0 at -inf, where -inf * 0 would give NaN.
_FINITE = "nan_max(x, T(-3.4028234663852886e38))"
# Rounded as NumPy's kernel rounds it, since the exponential multiplies its rounding error.
_TANH_ARGUMENT = f"(x * x * T(0.044715) + T(1)) * {_FINITE} * T(-1.5957691216057308)"

class Erf(WideUnary):
    """The error function, 2 / sqrt(pi) times the integral of exp(-t^2) over [0, x] (DLMF 7.2.1)."""
    expression, onnx, by_element = "erf(x)", ("Erf", 9), "fd"
    def bprop(self, x: Any, out: Any, dout: Any) -> Any: return (dout * _bell(x),)

class Erfc(WideUnary):
    """1 - erf(x), accurate where erf(x) is near 1 (DLMF 7.2.2)."""
    expression, by_element = "erfc(x)", "fd"
    def bprop(self, x: Any, out: Any, dout: Any) -> Any: return (-dout * _bell(x),)

class ErfInv(WideUnary):
    """The y with erf(y) = x: infinite at -1 and 1, NaN beyond (DLMF 7.17.1)."""
    expression, by_element = "erfinv(x)", "fd"
    def bprop(self, x: Any, out: Any, dout: Any) -> Any: return (dout / _bell(out),)

class ExpNegSquare(WideUnary):
    """exp(-x^2), with `halved` exp(-x^2 / 2); accurate, as the square is not rounded first."""
    halved: bool = False
    expression, by_element = "gaussian(x, halved != 0 ? T(0.5) : T(1))", "fd"
    def bprop(self, x: Any, out: Any, dout: Any) -> Any:
        return (dout * out * x * (-1.0 if self.halved else -2.0),)

class NormalCDF(WideUnary):
    """Phi(x) = erfc(-x / sqrt(2)) / 2, the normal distribution function, accurate near 0."""
    expression, by_element = "normcdf(x)", "fd"
    def bprop(self, x: Any, out: Any, dout: Any) -> Any: return (dout * _normal_density(x),)

class Sigmoid(FloatUnary):
    """1 / (1 + exp(-x)), accurate at both ends: the logistic function (Verhulst 1845)."""
    expression, onnx = "T(1) / (T(1) + exp(-x))", ("Sigmoid", 6)
    def bprop(self, x: Any, out: Any, dout: Any) -> Any: return (dout * (out * (1 - out)),)

class Softplus(WideUnary):
    """log(1 + exp(x)), without overflow (Dugas et al. 2001)."""
    expression, onnx = "nan_max(x, T(0)) + log1p(exp(-fabs(x)))", ("Softplus", 1)
    def bprop(self, x: Any, out: Any, dout: Any) -> Any: return (dout * sigmoid(x),)

class SiLU(FloatUnary):
    """x * sigmoid(x), also called swish (Elfwing, Uchibe, Doya 2017)."""
    expression = f"{_FINITE} / (T(1) + exp(-x))"
    def bprop(self, x: Any, out: Any, dout: Any) -> Any:
        s = sigmoid(x)
        return (dout * (s + out * (1 - s)),)

class ReLU(NumberUnary):
    """max(x, 0); NaN stays NaN. Its gradient at 0 is 0."""
    expression, onnx = {FLOAT: "nan_max(x, T(0))", INT: "x > T(0) ? x : T(0)"}, ("Relu", 6)
    def bprop(self, x: Any, out: Any, dout: Any) -> Any: return (relu_grad(out, dout),)

class ReLUGrad(FloatBinary):
    """dout where x > 0 and 0 elsewhere, also where dout is infinite or NaN.

    The gradient of ReLU, as a primitive because training spends much of its time in it. x may be
    ReLU's input or its output. It is linear in dout; no gradient passes to x.
    """
    inputs = ("x", "dout")
    expression = "x > T(0) ? dout : T(0)"
    def bprop(self, x: Any, dout: Any, out: Any, ddout: Any) -> Any:
        return None, relu_grad(x, ddout)

class LeakyReLU(FloatUnary):
    """x where x > 0, slope * x elsewhere (Maas, Hannun, Ng 2013)."""
    slope: float = 0.01
    expression = "x > T(0) ? x : slope == 0 && !is_nan(x) ? T(0) : T(slope) * x"
    def bprop(self, x: Any, out: Any, dout: Any) -> Any:
        return (LeakyReLUGrad(self.slope)(x, dout),)

class LeakyReLUGrad(FloatBinary):
    """dout where x > 0, slope * dout elsewhere: the gradient of LeakyReLU, linear in dout."""
    slope: float = 0.01
    inputs = ("x", "dout")
    expression = "x > T(0) ? dout : T(slope) * dout"
    def bprop(self, x: Any, dout: Any, out: Any, ddout: Any) -> Any: return None, self(x, ddout)

class ELU(FloatUnary):
    """x where x > 0, alpha * (exp(x) - 1) elsewhere (Clevert, Unterthiner, Hochreiter 2015)."""
    alpha: float = 1.0
    expression, onnx = "x > T(0) ? x : T(alpha) * expm1(x)", ("Elu", 6)
    def bprop(self, x: Any, out: Any, dout: Any) -> Any:
        # Not out + alpha, which cancels. Clipped, as the exponential must not overflow above 0.
        return (select(x > 0, dout, dout * (exp(clip(x, None, 0.0)) * self.alpha)),)

class GELU(FloatUnary):
    """x * Phi(x) with the normal distribution's Phi (Hendrycks, Gimpel 2016).

    approximate=True: x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))). AttributeRefusedError
    where `approximate` is no bool.
    """
    approximate: bool = False
    by_element = "fd"
    expression = (
        f"approximate != 0 ? {_FINITE} / (T(1) + exp({_TANH_ARGUMENT})) : {_FINITE} * normcdf(x)"
    )

    def infer_dtype(self, x: DType) -> DType:
        if not isinstance(self.approximate, bool):
            raise AttributeRefusedError(
                f"GELU got approximate={self.approximate!r}; the class takes True or False, "
                "ops.gelu also 'tanh' or 'none'"
            )
        return x

    def bprop(self, x: Any, out: Any, dout: Any) -> Any:
        return (dout * (_gelu_tanh_slope if self.approximate else _gelu_slope)(x),)


def _bell(x: Any) -> Any:
    """2 / sqrt(pi) * exp(-x^2), the derivative of erf."""
    return ExpNegSquare()(x) * (2 / math.sqrt(math.pi))


def _gelu_slope(x: Any) -> Any:
    """Phi(x) + x phi(x), with density phi and distribution function Phi of the normal law."""
    return NormalCDF()(x) + x * _normal_density(x)


def _normal_density(x: Any) -> Any:
    return ExpNegSquare(halved=True)(x) * (1 / math.sqrt(2 * math.pi))


def _gelu_tanh_slope(x: Any) -> Any:
    """The derivative of x * s(v(x)), s the sigmoid and v(x) = 2 sqrt(2 / pi) (x + 0.044715 x^3)."""
    # From |x| = 30 on it is 0 or 1 in every dtype, where an infinite square would make it NaN.
    scale, squares = 2 * math.sqrt(2 / math.pi), clip(square(x), None, 900.0)
    s = sigmoid(x * (squares * 0.044715 + 1) * scale)
    dv = (squares * (3 * 0.044715) + 1) * scale
    return s + x * (s * (1 - s)) * dv


erf, erfc, erfinv = Erf(), Erfc(), ErfInv()
sigmoid, softplus, silu = Sigmoid(), Softplus(), SiLU()
relu, relu_grad = ReLU(), ReLUGrad()


@composition
def leaky_relu(x: Any, slope: float = 0.01) -> Tensor:
    """x where x > 0, slope * x elsewhere (Maas, Hannun, Ng 2013)."""
    return LeakyReLU(slope)(x)


@composition
def elu(x: Any, alpha: float = 1.0) -> Tensor:
    """x where x > 0, alpha * (exp(x) - 1) elsewhere."""
    return ELU(alpha)(x)


@composition
def gelu(x: Any, approximate: bool | str = False) -> Tensor:
    """x * Phi(x) by the error function, or by its tanh approximation with "tanh" or True.

    AttributeRefusedError for any other word than "tanh" and "none".
    """
    known = {"none": False, "tanh": True}
    word: Any = known.get(approximate, approximate) if isinstance(approximate, str) else approximate
    return GELU(word)(x)


# --- Complex numbers ------------------------------------------------------------------------------

class Complex(Binary):
    """re + i im, of two real tensors: the complex numbers with these parts.

    float64 gives complex128, other dtypes complex64.
    """
    linear, promote = ("x y",), "float"
    dtypes = (*(f"{c}{c}->F" for c in LOW + "f"), "dd->D")
    expression = "CMPLX(x, y)"

    def infer_dtype(self, x: DType, y: DType) -> DType: return complex_dtype(x)

    @staticmethod
    def compute(x: Any, y: Any, *, out: Any) -> None:
        out.real, out.imag = x, y

    def bprop(self, x: Any, y: Any, out: Any, dout: Any) -> Any: return _real(dout), -_imag(dout)

class Part(Unary, abstract=True):
    """One of the two real tensors that complex numbers are made of."""
    linear, takes_complex = ("x",), True
    flops = rules.moves
    dtypes = _PARTS
    infer_dtype = rules.part

class Real(Part):
    """The real parts of complex numbers."""
    expression = "creal(x)"

    @staticmethod
    def compute(x: Any, *, out: Any) -> None:
        out[...] = x.real

    def bprop(self, x: Any, out: Any, dout: Any) -> Any: return (cast(dout, x.dtype),)

class Imag(Part):
    """The imaginary parts of complex numbers."""
    expression = "cimag(x)"

    @staticmethod
    def compute(x: Any, *, out: Any) -> None:
        out[...] = x.imag

    # The pairing is Re(dout x), and Im(x) = Re(-i x).
    def bprop(self, x: Any, out: Any, dout: Any) -> Any: return (dout * -1j,)

class Conj(Unary):
    """The complex conjugates, re - i im."""
    linear, takes_complex = ("x",), True
    dtypes = "FD"
    numpy, expression = "conjugate", "conj(x)"

    def infer_dtype(self, x: DType) -> DType: return needs_complex(self.name, x)
    def bprop(self, x: Any, out: Any, dout: Any) -> Any: return (_conj(dout),)


_real, _imag, _conj = Real(), Imag(), Conj()
