"""Scalar C expressions of primitives' outputs, and row programs, for every backend that makes C.

First the table of expressions, the library's and users', by primitive and signature; elementwise
classes say theirs themselves. Then the C types in which elements are stored, computed and summed;
bounds and casts; tensors made from numbers alone, by index; and the reductions. Then the functions
that expressions may call: C's mathematics, and functions on a generic type A, which in C++ become
templates, in C one function for each type; and numbers of distributions, as every device draws from
them: the normal one truncated to an interval, and the remainders of Stirling's series for the
Poisson one. Last row programs, a loop-nest IR as plain data.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from math import isinf, prod
from typing import Any, NamedTuple, Protocol

import numpy as np

from ..core.abstract import (
    FLOATS,
    INTEGERS,
    REAL,
    ArraySpec,
    DType,
    Signature,
    bool_,
    complex64,
    complex128,
    float32,
    float64,
    from_type_code,
    int8,
    int16,
    int32,
    int64,
    type_code,
    uint8,
    uint16,
    uint32,
    uint64,
)
from ..core.signature import ANY, COMPLEX, FLOAT, HELD, NUMBER

WORDS = re.compile(r"(?<![\w.])[A-Za-z_]\w*")


class TypedCall(Protocol):
    """The part of a KernelNode on which the scalar arguments of an expression depend."""

    @property
    def inputs(self) -> tuple[ArraySpec, ...]: ...
    @property
    def outputs(self) -> tuple[ArraySpec, ...]: ...
    @property
    def attrs(self) -> Mapping[str, Any]: ...


@dataclass(frozen=True, slots=True)
class Expression:
    """A scalar C expression in the names of a primitive's inputs and attributes.

    Besides these it may name `index`, the index of the element; T, the type in which the first
    input (or else the output) is computed; and U, the unsigned type in which T wraps around. The
    output is stored as by Cast.
    unit: expressions that name the same unit are compiled together; "" for a user's. types,
    scalars: the names and dtypes of its scalar arguments and their values for a node, if they are
    not simply the attributes it names.
    """

    text: str
    unit: str = ""
    types: tuple[tuple[str, DType], ...] | None = None
    scalars: Callable[[TypedCall], Mapping[str, Any]] | None = None

    @property
    def words(self) -> set[str]:
        """The names that occur in the text."""
        return _words(self.text)

    def scalar_types(self, signature: Signature, attributes: tuple[str, ...]) -> dict[str, DType]:
        """The scalar arguments and their dtypes: by default the attributes that the text names, in
        the dtype in which its first float input is computed, else float64."""
        if self.types is not None:
            return dict(self.types)
        first = next((d for d in signature.inputs if d is not None and d.kind in "fV"), float64)
        return {name: computed(first) for name in attributes if name in self.words}

    def scalar_values(self, node: TypedCall, types: Mapping[str, DType]) -> list[Any]:
        """The scalar arguments for a node."""
        given: Mapping[str, Any] = node.attrs if self.scalars is None else self.scalars(node)
        return [dtype.type(given[name]) for name, dtype in types.items()]


@cache
def _words(text: str) -> set[str]:
    return set(WORDS.findall(text))


table: dict[tuple[str, str], Expression] = {}


def express(
    name: str,
    text: str,
    *signatures: str,
    unit: str,
    types: tuple[tuple[str, DType], ...] | None = None,
    scalars: Callable[[TypedCall], Mapping[str, Any]] | None = None,
) -> None:
    """Register an expression of the library, compiled with those of its unit and signature."""
    for signature in signatures:
        table[name, signature] = Expression(text, f"{unit} {signature}", types, scalars)


def bounds(node: TypedCall) -> dict[str, Any]:
    """The bounds of Clip, with the end of the dtype in place of None."""
    dtype = node.inputs[0].dtype
    low, high = node.attrs["min"], node.attrs["max"]
    limits = np.iinfo(dtype) if dtype.kind in "iu" else None
    return {
        "low": low if low is not None else limits.min if limits else -np.inf,
        "high": high if high is not None else limits.max if limits else np.inf,
    }


# --- C types --------------------------------------------------------------------------------------


# Without the floats of 16 bits, for which each compiler has its own names.
C_TYPES: dict[DType, str] = {
    bool_: "bool", int8: "signed char", int16: "short", int32: "int", int64: "long long",
    uint8: "unsigned char", uint16: "unsigned short", uint32: "unsigned int",
    uint64: "unsigned long long", float32: "float", float64: "double",
    complex64: "float _Complex", complex128: "double _Complex",
}  # fmt: skip


def computed(dtype: DType) -> DType:
    """The dtype in which single elements are computed: float32 for floats of 16 bits."""
    return float32 if dtype.itemsize == 2 and dtype.kind not in "iu" else dtype


def accumulation(dtype: DType) -> DType:
    """The dtype in which sums and products of many elements are taken; integers wrap around."""
    return uint64 if dtype.kind in "biu" else computed(dtype)


def identity(mode: str, dtype: DType) -> float | int:
    """The number of the dtype that changes no other one by mode "mul", "min" or "max"."""
    if mode == "mul":
        return 1
    if dtype.kind not in "iu":
        return np.inf if mode == "min" else -np.inf
    limits = np.iinfo(dtype)
    return int(limits.max if mode == "min" else limits.min)


def unsigned(dtype: DType) -> DType:
    """The dtype in which integers wrap around without undefined behaviour; else `computed`.

    At least 32 bits: C would promote narrower ones to int, which may overflow.
    """
    if dtype.kind not in "iub":
        return computed(dtype)
    return uint64 if dtype.itemsize == 8 else uint32


def ends(dtype: DType) -> tuple[str, str]:
    """The least and the greatest number of a dtype, as C expressions."""
    if dtype.kind == "b":
        return "false", "true"
    if dtype.kind not in "iu":
        return "-INFINITY", "INFINITY"
    c, bits = C_TYPES[dtype], 8 * dtype.itemsize
    if dtype.kind == "u":
        return f"({c})0", f"({c})~({c})0"
    top = f"({c})0x{2 ** (bits - 1) - 1:x}LL"
    return f"({c})(-{top} - 1)", top


# --- Expressions whose scalars, or unit, are not as in the rows of the classes --------------------


for _c in NUMBER:
    _types = tuple((name, computed(from_type_code(_c))) for name in ("low", "high"))
    _CLIP = "nan_min(nan_max(x, low), high)"
    express("Clip", _CLIP, f"{_c}->{_c}", unit="elementwise", types=_types, scalars=bounds)
for _from in HELD:  # all casts from a dtype are one unit
    for _to in HELD if _from in ANY else COMPLEX:
        # Of bools to floats: GCC 12 makes the choice run ten times as fast as the conversion.
        _text = "x ? 1.0f : 0.0f" if _from == "?" and _to in FLOAT + COMPLEX else "x"
        table["Cast", f"{_from}->{_to}"] = Expression(_text, f"cast {_from}", types=())


# --- Tensors made from numbers alone, by the index of the element ---------------------------------


def given(node: TypedCall) -> Mapping[str, Any]:
    return node.attrs


def filled(node: TypedCall) -> dict[str, Any]:
    """The value of Full, rounded to the output's dtype."""
    return {"value": np.asarray(node.attrs["value"]).astype(node.outputs[0].dtype)[()]}


def spaced(node: TypedCall) -> dict[str, Any]:
    """The start and step of Linspace, halved if the distance of the ends overflows float64."""
    start, stop, num = (node.attrs[name] for name in ("start", "stop", "num"))
    scale = 2.0 if isinf(float(stop) - float(start)) else 1.0
    step = (stop / scale - start / scale) / max(num - 1, 1)
    end = num - 1 if num > 1 else -1  # the index of the element that is `stop` itself
    return {"start": start / scale, "stop": stop, "step": step, "scale": scale, "end": end}


def whole_steps(node: TypedCall) -> dict[str, Any]:
    """The start and step of Linspace of integers."""
    start, stop, num = (int(node.attrs[name]) for name in ("start", "stop", "num"))
    return modular(start, (stop - start) // max(num - 1, 1))


def counted(node: TypedCall) -> dict[str, Any]:
    """The start and step of Arange of integers."""
    return modular(int(node.attrs["start"]), int(node.attrs["step"]))


def modular(start: int, step: int) -> dict[str, Any]:
    return {"start": start % 2**64, "step": step % 2**64}


_SPACED = (*((n, float64) for n in ("start", "stop", "step", "scale")), ("end", int64))
_COUNT, _COUNTED = (
    "T(start + (unsigned long long)index * step)",
    (("start", uint64), ("step", uint64)),
)
_STEPS, _STEPPED = "T(start + double(index) * step)", (("start", float64), ("step", float64))
_LINE = "T(index == end ? stop : (start + double(index) * step) * scale)"
_ROWS = (
    *(("Full", "value", d, (("value", computed(d)),), filled) for d in REAL),
    *(("Eye", "T(index / m == index % m)", d, (("m", int64),), given) for d in REAL),
    *(("Arange", _COUNT, d, _COUNTED, counted) for d in INTEGERS),
    *(("Arange", _STEPS, d, _STEPPED, given) for d in FLOATS),
    *(("Linspace", _COUNT, d, _COUNTED, whole_steps) for d in INTEGERS),
    *(("Linspace", _LINE, d, _SPACED, spaced) for d in FLOATS),
)
for _name, _text, _dtype, _types, _scalars in _ROWS:
    express(_name, _text, f"->{type_code(_dtype)}", unit="create", types=_types, scalars=_scalars)


# --- Reductions: their identity, element, combination and final step in C -------------------------


class Row(NamedTuple):
    """A reduction in C. x is an element, i its index among the n elements that are reduced; a and b
    are accumulators: `value`, and `other` where a reduction keeps two.

    identity, element, combine: value and other of an accumulator. finish: the result from a.
    value, other: their types; "C" is that in which an element is computed, "S" that of sums.
    LOWEST and HIGHEST are the ends of the elements' dtype.
    """

    identity: tuple[str, ...]
    element: tuple[str, ...]
    combine: tuple[str, ...]
    finish: str
    value: str = "C"
    other: str = "int"

    @property
    def adds(self) -> bool:
        """True for sums and products, whose accumulators need more than one element does."""
        return self.value == "S"

    def result(self, dtype: DType) -> DType:
        """The dtype of the result, of elements of `dtype`, before it is cast to the output's."""
        if not self.adds:
            return bool_ if self.value == "int" else dtype
        if dtype.kind in "iub":
            return uint64 if dtype.kind == "u" else int64
        return computed(dtype)


_ARG = "0x7fffffffffffffffLL"
_SUM = Row(("S(0)",), ("S(x)",), ("a.value + b.value",), "a.value", "S")
_MAX = Row(("LOWEST",), ("x",), ("nan_max(a.value, b.value)",), "a.value")
_MIN = Row(("HIGHEST",), ("x",), ("nan_min(a.value, b.value)",), "a.value")
_BETTER = (
    "(b.value {0} a.value || (is_nan(b.value) && !is_nan(a.value)) || (!(a.value {0} b.value) && "
    "(is_nan(a.value) == is_nan(b.value)) && b.other < a.other))"
)


def _arg(row: Row, relation: str) -> Row:
    wins = _BETTER.format(relation)
    combine = (f"{wins} ? b.value : a.value", f"{wins} ? b.other : a.other")
    return Row((*row.identity, _ARG), ("x", "i"), combine, "a.other", "C", "long long")


ROWS: dict[str, Row] = {
    "Sum": _SUM,
    "SumTo": _SUM,
    "Mean": _SUM._replace(finish="a.value / S(n)"),
    "Prod": Row(("S(1)",), ("S(x)",), ("a.value * b.value",), "a.value", "S"),
    "Max": _MAX,
    "Min": _MIN,
    "Any": Row(("0",), ("x != C(0)",), ("a.value | b.value",), "a.value != 0", "int"),
    "All": Row(("1",), ("x != C(0)",), ("a.value & b.value",), "a.value != 0", "int"),
    "ArgMax": _arg(_MAX, ">"),
    "ArgMin": _arg(_MIN, "<"),
    # value: the largest x; other: the sum of exp(x - value)
    "LogSumExp": Row(
        ("-INFINITY", "C(0)"),
        ("x", "C(1)"),
        ("nan_max(a.value, b.value)", "scaled_sum(a.value, a.other, b.value, b.other)"),
        "is_inf(a.value) ? a.value : a.value + log(a.other)",
        "C",
        "C",
    ),
}


# --- Functions that expressions may call ----------------------------------------------------------


FUNCTIONS = r"""
bool is_nan(A x) { return !(x == x); }

bool is_inf(A x) { return (x == x) & (x - x != x - x); }

// Choices by one comparison each: of "x > y or x is NaN" GCC makes branches in chains of them.
A nan_max(A x, A y) { A top = y >= x ? y : x; return is_nan(y) ? y : top; }

A nan_min(A x, A y) { A low = y <= x ? y : x; return is_nan(y) ? y : low; }

A sign(A x) { return is_nan(x) ? x : A(A(0) < x) - A(x < A(0)); }

A wrapped_quotient(A x, A y) {
  return A(-1) < A(1) && y == A(-1) ? A(0ULL - (unsigned long long)x) : A(x / y);
}

// Integers towards minus infinity; by 0 they give 0.
A int_floor_div(A x, A y) {
  if (y == A(0)) return A(0);
  A q = wrapped_quotient(x, y);
  bool inexact = !(A(-1) < A(1) && y == A(-1)) && x % y != A(0);
  return inexact && ((x < A(1)) != (y < A(1))) ? A(q - A(1)) : q;
}

A int_mod(A x, A y) {
  if (y == A(0) || (A(-1) < A(1) && y == A(-1))) return A(0);
  A r = A(x % y);
  return r != A(0) && ((r < A(1)) != (y < A(1))) ? A(r + y) : r;
}

// Of floats: the remainder, or what is left of y, has the sign of y.
A float_mod(A x, A y) {
  A r = fmod(x, y), turned = copysign(r, y) == r ? r : r + y;
  return copysign(turned, y);
}

A float_floor_div(A x, A y) {
  A r = fmod(x, y), q = (x - r) / y, lower = copysign(r, y) == r ? q : q - A(1);
  A whole = floor(lower), near = lower - whole > A(0.5) ? whole + A(1) : whole;
  A made = lower == A(0) ? copysign(A(0), x / y) : near;
  return y == A(0) ? x / y : made;
}

// Integers to integer powers, modulo 2^bits; 0 where the power is negative, but for 1 and -1.
A int_pow(A x, A y) {
  if (y < A(1) && y != A(0))
    return x == A(1) ? A(1) : x == A(-1) ? (y % A(2) ? A(-1) : A(1)) : A(0);
  unsigned long long base = (unsigned long long)x, result = 1ULL;
  for (unsigned long long n = (unsigned long long)y; n; n >>= 1) {
    if (n & 1ULL) result *= base;
    base *= base;
  }
  return A(result);
}

// The bits that are pushed out are lost: all of them by a shift that is negative or too wide.
A shifted_left(A x, A y) {
  return (unsigned long long)y < 8 * sizeof(A) ? A((unsigned long long)x << y) : A(0);
}

A shifted_right(A x, A y) {
  if ((unsigned long long)y < 8 * sizeof(A)) return A(x >> y);
  return x < A(1) && x != A(0) ? A(-1) : A(0);
}

// The derivative of log |gamma(x)|. From 10 on by Stirling's series (A & S, 6.3.18); below that
// from x + 10, less the sum of 1 / (x + k), the derivative of the logarithm of a product. Below 0
// by reflection. Next to the positive root, where the terms cancel, float64 is by Taylor's series.
A digamma(A x) {
  const double v = double(x), y = v < 0.0 ? 1.0 - v : v;
  const double z = y < 10.0 ? y + 10.0 : y, w = y < 10.0 ? y : 1.0;
  const double over = 1.0 / z, q = over * over;
  double tail = 1.0 / 12.0; tail = tail * q - 691.0 / 32760.0; tail = tail * q + 1.0 / 132.0;
  tail = tail * q - 1.0 / 240.0; tail = tail * q + 1.0 / 252.0; tail = tail * q - 1.0 / 120.0;
  tail = tail * q + 1.0 / 12.0;
  double product = 1.0; product = product * w + 45.0; product = product * w + 870.0;
  product = product * w + 9450.0; product = product * w + 63273.0;
  product = product * w + 269325.0; product = product * w + 723680.0;
  product = product * w + 1172700.0; product = product * w + 1026576.0;
  product = product * w + 362880.0;
  double slope = 10.0; slope = slope * w + 405.0; slope = slope * w + 6960.0;
  slope = slope * w + 66150.0; slope = slope * w + 379638.0; slope = slope * w + 1346625.0;
  slope = slope * w + 2894720.0; slope = slope * w + 3518100.0; slope = slope * w + 2053152.0;
  slope = slope * w + 362880.0;
  const double sum = log(z) - over * 0.5 - q * tail - (y < 10.0 ? slope / (product * w) : 0.0);
  const double r = v - rint(v), angle = M_PI * r, square = angle * angle;
  double cosine = 4.110317623312165e-19; cosine = cosine * square - 1.5619206968586225e-16;
  cosine = cosine * square + 4.779477332387385e-14;
  cosine = cosine * square - 1.1470745597729725e-11;
  cosine = cosine * square + 2.08767569878681e-09;
  cosine = cosine * square - 2.755731922398589e-07;
  cosine = cosine * square + 2.48015873015873e-05;
  cosine = cosine * square - 0.001388888888888889;
  cosine = cosine * square + 0.041666666666666664; cosine = cosine * square - 0.5;
  cosine = cosine * square + 1.0;
  double sine = 1.9572941063391263e-20; sine = sine * square - 8.22063524662433e-18;
  sine = sine * square + 2.8114572543455206e-15; sine = sine * square - 7.647163731819816e-13;
  sine = sine * square + 1.6059043836821613e-10; sine = sine * square - 2.505210838544172e-08;
  sine = sine * square + 2.7557319223985893e-06; sine = sine * square - 0.0001984126984126984;
  sine = sine * square + 0.008333333333333333; sine = sine * square - 0.16666666666666666;
  sine = sine * square + 1.0;
  const double turned = r == 0.0 ? NAN : M_PI * cosine / (angle * sine);
  const double d = (v - 1.4616321449683622) - 9.549995429965697e-17;
  double near = 0.00011063372768747411; near = near * d - 0.00016170622091974803;
  near = near * d + 0.00023635601564027053; near = near * d - 0.0003454680251063077;
  near = near * d + 0.00050495326583460204; near = near * d - 0.00073807093899600513;
  near = near * d + 0.0010788252019162966; near = near * d - 0.0015769367714301973;
  near = near * d + 0.0023051263267349278; near = near * d - 0.0033698016554393281;
  near = near * d + 0.0049267813957298534; near = near * d - 0.0072045343863568682;
  near = near * d + 0.010538791616612175; near = near * d - 0.015424765904948959;
  near = near * d + 0.022597648232218105; near = near * d - 0.033161126474847359;
  near = near * d + 0.048804288164143107; near = near * d - 0.072199561256454711;
  near = near * d + 0.10782405069126237; near = near * d - 0.16394270544240653;
  near = near * d + 0.25849976095565101; near = near * d - 0.44276316898359211;
  near = near * d + 0.96767224544762117;
  const double above = sizeof(A) == 8 && fabs(d) <= 0.25 ? near * d : sum;
  return A(v < 0.0 ? sum - turned : above);
}

// The derivative of order n > 0 of digamma at x > 0: 1 / (x + k)^(n + 1) while x + k is small,
// then the formula of Euler and Maclaurin, b the Bernoulli numbers over factorials (A & S, 6.4.11).
A polygamma_above(A x, A n) {
  const A b[8] = {A(1) / A(12), A(-1) / A(720), A(1) / A(30240), A(-1) / A(1209600),
                  A(1) / A(47900160), A(-691) / A(1307674368000), A(1) / A(74724249600),
                  A(-3617) / A(10670622842880000)};
  A sum = A(0), sign = A(-1), factorial = A(1);
  for (; x < A(10) + A(2) * n; x += A(1)) {
    A power = x;
    for (A i = A(0); i < n; i += A(1)) power *= x;
    sum += A(1) / power;
  }
  A power = A(1);
  for (A i = A(1); i <= n; i += A(1)) {
    power *= x;
    factorial *= i;
    sign = -sign;
  }
  const A over = A(1) / x;
  A term = over / power, tail = term / A(2);
  A rising = A(1);
  for (int k = 0; k < 8; ++k) {
    rising *= k ? (n + A(2 * k)) * (n + A(2 * k + 1)) * over * over : (n + A(1)) * over;
    tail += b[k] * rising * term;
  }
  return sign * factorial * (sum + tail + A(1) / power / n);
}

// By periodicity below 0: with the fractions f and g of x, f + g = 1,
// p(x) = p(f) + (-1)^(n + 1) (p(g) - p(1 - x)).
A polygamma(A x, A n) {
  if (n == A(0)) return digamma(x);
  const double v = double(x), m = double(n), down = floor(v);
  const double odd = fmod(m, 2.0) == 0.0 ? -1.0 : 1.0;
  if (v > 0.0) return A(v - v == 0.0 ? polygamma_above(v, m) : 0.0);
  if (v == 0.0) return A(odd * INFINITY);
  if (!(v - v == 0.0)) return A(NAN);
  if (v == down) return A(odd * INFINITY);
  return A(polygamma_above(v - down, m) +
           odd * (polygamma_above(down + 1.0 - v, m) - polygamma_above(1.0 - v, m)));
}

// exp(-rate x^2), rate a power of 2 from 1/2 on, with what the square loses by rounding.
A gaussian(A x, A rate) {
  const A a = nan_min(fabs(x), A(40)), square = a * a;
  return exp(-rate * square) * (A(1) - rate * fma(a, a, -square));
}

// log(exp(x) + exp(y)); of equal infinities that infinity.
A log_add(A x, A y) {
  const A top = nan_max(x, y), low = nan_min(x, y);
  return top + log1p(exp(low == top ? A(0) : low - top));
}

// sqrt(x^2 + y^2) by the ratio of the smaller to the larger, so that no square leaves the range.
A hypotenuse(A x, A y) {
  const A top = fmax(fabs(x), fabs(y)), low = nan_min(fabs(x), fabs(y));
  const A ratio = low / (top == A(0) ? A(1) : top);
  return top == A(INFINITY) ? top : top * sqrt(A(1) + ratio * ratio);
}

// The sum of two sums of exponentials, s of exp(x - m) and t of exp(x - k), from the larger top.
A scaled_sum(A m, A s, A k, A t) {
  const A top = nan_max(m, k);
  return (m == top || s == A(0) ? s : s * exp(m - top)) +
         (k == top || t == A(0) ? t : t * exp(k - top));
}
"""
OWN = tuple(re.findall(r"^\w+ (\w+)\(A", FUNCTIONS, re.MULTILINE))
# The functions that an expression may call, and the names that it may use besides its primitive's.
C_FUNCTIONS = frozenset(
    """sin cos tan asin acos atan atan2 sinh cosh tanh asinh acosh atanh exp exp2 expm1 log log2
    log10 log1p sqrt rsqrt cbrt pow hypot fabs abs fmod floor ceil rint round trunc fmin fmax min
    max erf erfc erfinv normcdf lgamma tgamma copysign isnan isinf isfinite signbit fma ldexp
    nextafter
    """.split()
) | {*OWN}
# Of complex numbers, in C alone: products, quotients and reciprocals are NumPy's.
_OF_COMPLEX = frozenset("CMPLX creal cimag conj cabs cmul cdiv crecip cexp".split())
_TYPE_WORDS = frozenset("T U float double int bool char short long unsigned signed".split())
C_WORDS = C_FUNCTIONS | _OF_COMPLEX | _TYPE_WORDS | {"true", "false", "NAN", "INFINITY", "M_PI"}
_CALLED = re.compile(r"(?<![\w.])([A-Za-z_]\w*)\s*\(")


@cache
def unknown_calls(text: str) -> list[str]:
    """The unknown functions that an expression calls, in order."""
    return [name for name in dict.fromkeys(_CALLED.findall(text)) if name not in C_WORDS]


def definitions(before: str) -> str:
    """The functions, each with `before` (as "template ...") in front of it."""
    return re.sub(r"^(?=\w+ \w+\(A)", before, FUNCTIONS, flags=re.MULTILINE)


# --- Numbers of distributions ---------------------------------------------------------------------


def truncation(mean: float, std: float, low: float, high: float) -> tuple[float, float, float]:
    """(cdf(a), cdf(b) - cdf(a), std) for the bounds a and b in units of std.

    Where both are above 0, where cdf has lost its digits, all three signs are changed.
    """
    a, b = (low - mean) / std, (high - mean) / std
    if a > 0:
        a, b, std = -b, -a, -std
    start, end = (math.erfc(-x * math.sqrt(0.5)) / 2 for x in (a, b))
    return start, end - start, std


# log k! less (k + 1/2) log k - k + log(2 pi) / 2, for k below 10, where its series is too short.
STIRLING = (
    0.0,
    *(
        math.lgamma(k + 1) - (k + 0.5) * math.log(k) + k - 0.5 * math.log(2 * math.pi)
        for k in range(1, 10)
    ),
)


# --- Row programs ---------------------------------------------------------------------------------

# A row program iterates over a box of indices. Its outer axes index the rows; the others are the
# row. Each row takes a few passes. A pass computes values of the row's elements; its sums and
# maxima are values of the row as a whole, which later passes read.


Value = int  # the index of a value in a program; each is computed once in a pass


class Array(NamedTuple):
    """An input or output: its dtype, and its strides in elements."""

    dtype: DType
    strides: tuple[int, ...]


class Scalar(NamedTuple):
    """A scalar function: an expression, the names and dtypes of its inputs, the dtype it gives and
    its constants, NumPy scalars by name."""

    name: str
    expression: Expression
    inputs: tuple[tuple[str, DType], ...]
    out: DType
    constants: tuple[tuple[str, Any], ...] = ()


class Load(NamedTuple):
    """value = the element of an array, or of a part of it with strides of its own and the offset of
    its first element. bounds: along each axis, the steps between which the part lies; others get
    0."""

    value: Value
    array: int
    strides: tuple[int, ...] | None = None
    offset: int = 0
    bounds: tuple[tuple[int, int], ...] = ()


class Call(NamedTuple):
    """value = function(args). strides: of the element's index, where the function uses it."""

    value: Value
    function: Scalar
    args: tuple[Value, ...]
    strides: tuple[int, ...] = ()


class Literal(NamedTuple):
    """value = a NumPy scalar."""

    value: Value
    number: Any


class Reduce(NamedTuple):
    """value = the reduction `row` of `of` over the row: "Sum", "Prod", "Max", "Min", "Any", "All".

    Its dtype is that of `value`; sums of float32 are taken as exactly as by pairs.
    """

    value: Value
    row: str
    of: Value


class Store(NamedTuple):
    """The element of an array, or of a part of it that begins at `offset`, is set to `of`."""

    array: int
    of: Value
    offset: int = 0


class Gather(NamedTuple):
    """The element of an array is the reduction `row` of all `of` that belong to it, taken in
    `dtype` and divided by `over`. Along the outer axes that it is over, its strides are 0."""

    array: int
    row: str
    of: Value
    dtype: DType
    over: int = 1


class Keep(NamedTuple):
    """The row's elements of `of` are kept for later passes."""

    of: Value


class Recall(NamedTuple):
    """value = the element that an earlier pass kept."""

    value: Value


Statement = Load | Call | Literal | Reduce | Store | Gather | Keep | Recall


class Pass(NamedTuple):
    """A pass over a row. elements: statements that run for each element, Reduce among them; row:
    statements that run once, after the elements."""

    elements: tuple[Statement, ...]
    row: tuple[Statement, ...]


class RowProgram(NamedTuple):
    """A loop nest over rows.

    extents: of all axes, the outer ones first. types: the dtype of each value. inputs: the number
    of arrays that are read; the others are written. passes: the first one has no elements where
    something is computed before the row.
    """

    extents: tuple[int, ...]
    outer: int
    arrays: tuple[Array, ...]
    inputs: int
    types: tuple[DType, ...]
    passes: tuple[Pass, ...]

    @property
    def row(self) -> tuple[int, ...]:
        """The extents of a row."""
        return self.extents[self.outer :]

    def along(self, s: Load | Store | Gather) -> tuple[int, ...]:
        """The strides with which a statement reads or writes its array."""
        own = s.strides if isinstance(s, Load) else None
        return self.arrays[s.array].strides if own is None else own

    def limits(self, s: Statement) -> list[tuple[int, int, int]]:
        """The axes of which a statement reads a part, with the steps between which that lies."""
        cuts = enumerate(zip(getattr(s, "bounds", ()), self.extents, strict=False))
        return [(axis, *cut) for axis, (cut, n) in cuts if cut != (0, n)]

    def limited(self, axis: int) -> bool:
        """True where a statement reads a part of this axis."""
        axes = {k for s in self.statements() for k, _, _ in self.limits(s)}
        return axis % max(len(self.extents), 1) in axes

    def size(self, gather: Gather) -> int:
        """The number of results of a gather."""
        strides = self.arrays[gather.array].strides
        return prod(n for n, s in zip(self.extents, strides, strict=True) if s)

    @property
    def gathers(self) -> list[Gather]:
        """Its gathers in order."""
        return [s for s in self.statements() if isinstance(s, Gather)]

    @property
    def reduces(self) -> bool:
        """True where rows are reduced."""
        return any(isinstance(s, Reduce) for s in self.statements())

    def statements(self) -> Iterator[Statement]:
        """All statements in order."""
        for part in self.passes:
            yield from part.elements
            yield from part.row

    def __str__(self) -> str:
        lines = [f"rows {list(self.extents[: self.outer])} of {list(self.row)}"]
        for i, array in enumerate(self.arrays):
            lines.append(f"  a{i}: {array.dtype.name} {list(array.strides)}")
        for part in self.passes:
            lines += ["  each:", *(f"    {shown(s)}" for s in part.elements)] * bool(part.elements)
            lines += ["  row:", *(f"    {shown(s)}" for s in part.row)] * bool(part.row)
        return "\n".join(lines)


def inplace(program: RowProgram) -> tuple[int, ...]:
    """The inputs that an output may overwrite: each element is read once, at the index at which it
    is then written."""
    if any(isinstance(s, (Reduce, Gather)) for s in program.statements()):
        return ()
    inputs, outputs = program.arrays[: program.inputs], program.arrays[program.inputs :]
    joined = {s.array for s in program.statements() if isinstance(s, Store) and s.offset}
    written = enumerate(outputs, program.inputs)
    whole = {o for i, o in written if all(o.strides) and i not in joined}
    loads = (s for s in program.statements() if isinstance(s, Load))
    parts = {s.array for s in loads if s.strides is not None}
    return tuple(i for i, array in enumerate(inputs) if array in whole and i not in parts)


def operands(statement: Statement) -> tuple[Value, ...]:
    """The values that a statement reads."""
    match statement:
        case Call():
            return statement.args
        case Reduce() | Store() | Gather() | Keep():
            return (statement.of,)
    return ()


def shown(s: Statement) -> str:
    """A statement as text."""
    match s:
        case Load(value, array, None):
            return f"v{value} = a{array}"
        case Load(value, array, _, offset):
            return f"v{value} = a{array} from {offset}"
        case Call(value, function, args, _):
            return f"v{value} = {function.name}({', '.join(f'v{a}' for a in args)})"
        case Literal(value, number):
            return f"v{value} = {number}"
        case Reduce(value, row, of):
            return f"v{value} = {row} v{of}"
        case Store(array, of, offset):
            return f"a{array}{f' from {offset}' * bool(offset)} = v{of}"
        case Gather(array, row, of, _, _):
            return f"a{array} {row}= v{of}"
        case Keep(of):
            return f"keep v{of}"
        case Recall(value):
            return f"recall v{value}"
