"""Powers, roots, exponentials and logarithms, those of gamma too, element by element."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from ..dtype import DType
from ..errors import AttributeRefusedError
from .arithmetic import abs, add, as_floats, div, maximum, mul, square, sub
from .compare import equal, greater, isinf, less_equal, logical_and, logical_or, select
from .control import stop_gradient
from .inference.bases import FloatUnary, NumberBinary
from .inference.devices import on_one_device

if TYPE_CHECKING:
    from ..tensor import Tensor

__all__ = [
    "Pow", "Sqrt", "Rsqrt", "Exp", "Expm1", "Exp2", "Log", "Log1p", "Log2", "Log10", "LGamma",
    "Polygamma",
    "pow", "sqrt", "rsqrt", "exp", "expm1", "exp2", "log", "log1p", "log2", "log10", "lgamma",
    "digamma", "hypot", "logaddexp", "polygamma", "xlogy",
]  # fmt: skip


class Pow(NumberBinary):
    """x to the power y, in the common dtype: integers give integers.

    A negative x to the power of a y that is not a whole number is NaN. Integers to negative integer
    powers are refused when it runs: cast x to a float first. The gradient with respect to y is 0
    where x <= 0, where the logarithm does not exist.
    """


class Sqrt(FloatUnary):
    """The square root; NaN below 0."""


class Rsqrt(FloatUnary):
    """1 / sqrt(x)."""


class Exp(FloatUnary):
    """e to the x."""


class Expm1(FloatUnary):
    """exp(x) - 1, accurate near 0."""


class Exp2(FloatUnary):
    """2 to the x."""


class Log(FloatUnary):
    """The natural logarithm; -inf at 0, NaN below."""


class Log1p(FloatUnary):
    """log(1 + x), accurate near 0."""


class Log2(FloatUnary):
    """The logarithm to base 2."""


class Log10(FloatUnary):
    """The logarithm to base 10, exact at integer powers of ten."""


class LGamma(FloatUnary):
    """log |gamma(x)|; inf at 0, at the negative integers and at both infinities.

    The error is below 3 units in the last digit of the result or of 1, whichever is more; on a GPU
    it is that of CUDA's lgamma. The gradient is digamma(x).
    """


class Polygamma(FloatUnary):
    """digamma(x), the derivative of log |gamma(x)|, or the derivative of order n of that.

    n: an int from 0 to 20. The gradient is polygamma(n + 1, x).
    """

    n: int

    def infer_dtype(self, x: DType) -> DType:
        if not 0 <= self.n <= 20:
            raise AttributeRefusedError(f"Polygamma got n={self.n!r}; it takes an int from 0 to 20")
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
    same = logical_and(equal(high, low), isinf(high))  # whose difference would be NaN
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
    end = logical_or(infinite, equal(size, 0))
    # hypot(x / c, y / c) * c is the same for every c, so no gradient passes to c.
    scale, size = stop_gradient(select(end, 1.0, size)), stop_gradient(size)
    parts = (square(div(select(end, 1.0, v), scale)) for v in (x, y))
    return select(end, size, mul(sqrt(add(*parts)), scale))


@on_one_device
def xlogy(x: Any, y: Any) -> Tensor:
    """x * log(y), but 0 where x is 0, unless y is NaN: the limit of x log(x) at 0.

    x and y broadcast, integers are cast to float32. The gradient is (log(y), x / y); where x is 0
    and log(y) is not finite, it is 0.

    >>> xlogy([0.0, 2.0], [0.0, 1.0]).tolist()
    [0.0, 0.0]
    """
    x, y = as_floats(x, y)
    # Beside a 0, what has no finite logarithm counts as 1; NaN compares False and stays.
    vanishes = logical_and(equal(x, 0), logical_or(less_equal(y, 0), equal(y, inf)))
    return mul(x, log(select(vanishes, 1.0, y)))


def polygamma(n: int, x: Any) -> Tensor:
    """(-1)^(n + 1) n! sum of 1 / (x + k)^(n + 1) over k >= 0, the derivative of order n of digamma.

    n: an int from 0 to 20; 0 is digamma, the derivative of lgamma. Integers are cast to float32. At
    0 and the negative integers it is infinite, with the sign (-1)^(n + 1), and digamma NaN; at -0.0
    digamma is inf and at 0.0 -inf. In float32 the error is below one unit in the last digit, in
    float64 below 12 of the result or of 1, whichever is more; for even n > 0 and x < 0, where it
    has zeros, of the terms that cancel there. AttributeRefusedError for other n.
    Source: Abramowitz and Stegun, 6.4.

    >>> polygamma(1, 1.0), digamma(1.0)
    (Tensor(1.644934, shape=(), dtype=float32), Tensor(-0.5772157, shape=(), dtype=float32))
    """
    return Polygamma(n)(x)
