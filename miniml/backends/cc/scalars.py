"""Code generation in C for scalar expressions, as functions of one element, and vector types.

First the C function of an expression, and values of each dtype; then the overloads that it may
call: `miniml_NAME(x, ...)` is a macro that picks `miniml_NAME_DTYPE` by the type of its arguments,
for C's mathematics and the functions of `expressions`; then vectors of one scalar type, as wide as
the registers of this machine; and reductions: how two partial results and whole blocks of elements
are combined.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from ...core.abstract import COMPLEX as _COMPLEX
from ...core.abstract import HALVES, INTEGERS, DType, bool_, float32, float64, int64, uint8, uint64
from ...core.signature import CPU
from ..expressions import C_TYPES, FUNCTIONS, ROWS, Expression, computed, ends, unsigned
from .units import header, template

# The C types of arrays' elements. GCC 12 vectorises loops that load bytes, but not bools.
STORED = C_TYPES | dict.fromkeys(HALVES, "uint16_t") | {bool_: C_TYPES[uint8]}


class ScalarFunction(NamedTuple):
    """A C function that is always inlined; its unit needs the texts of `shared` before it."""

    name: str
    text: str
    shared: tuple[str, ...]


def scalar_function(
    expression: Expression,
    name: str,
    inputs: Sequence[tuple[str, DType]],
    out: DType,
    scalars: Mapping[str, Any],
    rounded: bool = True,
) -> ScalarFunction:
    """An expression as the C function `name(inputs..., long long index)`.

    inputs: their names and dtypes; each is passed as a value of its dtype. The result is the value
    of dtype `out` that Cast makes of the expression's: of 16 bits, rounded to them, or, if not
    `rounded`, a float that rounds to the same 16 bits. scalars: NumPy scalars by the names of the
    scalar arguments; they become constants.
    """
    first = inputs[0][1] if inputs else out
    text, shared = in_c(expression.text, {"T": computed(first), "U": unsigned(first)})
    takes = [*(f"{value_type(dtype)} {x}" for x, dtype in inputs), "long long index"]
    constants = "".join(
        f"  const {C_TYPES[value.dtype]} {x} = {literal(value)};\n" for x, value in scalars.items()
    )
    kept = not scalars and all(d in (out, bool_) for _, d in inputs) and _picks(expression.text)
    late = out in HALVES and (kept or not rounded)
    value = f"MINIML_TO({text}, miniml_late_{out.name})" if late else converted(out, text)
    value = f"MINIML_PRODUCT({value})" if out in _REAL and "*" in text else value
    body = f"{constants}  return {value};\n"
    head = f"static MINIML_INLINE {value_type(out)} {name}({', '.join(takes)})"
    shared = (*header("convert"), *shared)
    return ScalarFunction(name, f"{head} {{\n{body}}}\n", tuple(dict.fromkeys(shared)))


# What gives one of its arguments, perhaps with another sign, or an integer that is no greater.
_PICKED = re.compile(r"\b(nan_max|nan_min|fabs|copysign|sign|floor|ceil|rint|trunc|is_nan|T)\(")
_COMPUTED = re.compile(r"[+*/%&|^~]|\w\(|[\w)] ?-|\d{2,}|\.")


@cache
def _picks(text: str) -> bool:
    """True for an expression whose result is an input, 0 or a small integer, up to its sign: floats
    of 16 bits hold it, so that it need not be rounded."""
    return _COMPUTED.search(_PICKED.sub("(", text.replace("&&", ",").replace("||", ","))) is None


def converted(dtype: DType, text: str) -> str:
    """A C expression of any type as a value of a dtype, as by Cast."""
    if dtype in INTEGERS or dtype in HALVES:
        return f"MINIML_TO({text}, miniml_{dtype.name})"
    return f"({value_type(dtype)})({text})"


def literal(value: Any) -> str:
    """A NumPy scalar in C, exactly."""
    if value.dtype.kind in "iub":
        number = int(value)
        if number == -(2**63):
            return f"({number + 1}LL - 1)"
        return f"{number}{'ULL' if number >= 2**63 else 'LL'}"
    if value.dtype.kind == "c":
        re, im = (f"({C_TYPES[x.dtype]}){literal(x)}" for x in (value.real, value.imag))
        return f"__builtin_complex({re}, {im})"
    if not np.isfinite(value):
        return "NAN" if np.isnan(value) else "-INFINITY" if value < 0 else "INFINITY"
    return f"{float(value).hex()}{'f' if value.dtype == float32 else ''}"


def value_type(dtype: DType) -> str:
    """The C type that holds a value of a dtype outside arrays: float for floats of 16 bits."""
    return C_TYPES[computed(dtype)]


def loaded(dtype: DType, element: str) -> str:
    """The value of an array's element, in C with the header "convert"."""
    if dtype == bool_:
        return f"({element} != 0)"
    return f"miniml_load_{dtype.name}({element})" if dtype in HALVES else element


def stored(dtype: DType, value: str) -> str:
    """The number to store in an array's element, from a value of its dtype."""
    return f"miniml_store_{dtype.name}({value})" if dtype in HALVES else value


# --- Overloads: functions chosen by type, as in C++ -----------------------------------------------


_CALL = re.compile(r"(?<![\w.])([A-Za-z_]\w*)(?=\s*\()")
_CAST = re.compile(r"(?<![\w.])(float|double|bool|char|short|int|long|unsigned|signed)(?=\s*\()")


def in_c(text: str, types: Mapping[str, DType]) -> tuple[str, tuple[str, ...]]:
    """An expression in C, and the texts that it needs before it.

    types: the names of types that occur in it. A type before parentheses becomes a cast, a function
    the macro that chooses it by type.
    """
    called = [name for name in _CALL.findall(text) if name in _texts()]
    text = _CALL.sub(lambda found: f"{'miniml_' * (found[1] in _texts())}{found[1]}", text)
    text = _CAST.sub(r"(\1)", text)
    for name, dtype in types.items():
        text = re.sub(rf"(?<![\w.]){name}(?=\s*\()", f"({C_TYPES[dtype]})", text)
        text = re.sub(rf"(?<![\w.]){name}\b", C_TYPES[dtype], text)
    needed = (part for name in called for part in definition(name))
    return text, tuple(dict.fromkeys((*header("types"), *needed)))


def elementary(text: str) -> bool:
    """True for an expression that calls elementary functions: of many operations for an element."""
    called = (_texts()[name] for name in _CALL.findall(text) if name in _texts())
    return any(elementary(body) if body else where != "complex" for where, _, body in called)


_REAL = (float32, float64)
_ANY = (bool_, *INTEGERS, *_REAL)
# The types of A for which a function of `expressions` means something, if not all.
_TYPES = {
    "polygamma": _REAL, "polygamma_above": (float64,), "digamma": _REAL,
    "float_mod": _REAL, "float_floor_div": _REAL, "gaussian": _REAL, "scaled_sum": _REAL,
    "log_add": _REAL, "shifted_left": INTEGERS, "shifted_right": INTEGERS, "int_pow": INTEGERS,
    "wrapped_quotient": INTEGERS, "hypotenuse": _REAL,
}  # fmt: skip
_LOOPS = re.compile(r"\b(for|while)\b")
_NAME = "\0"  # stands for the name of a function that is being defined


@cache
def definition(name: str) -> tuple[str, ...]:
    """The texts that define `miniml_NAME`."""
    where, parameters, body = _texts()[name]
    if not body:  # all reals decide: of a float and a double both are doubles
        types = {"quotient": INTEGERS, "complex": _COMPLEX, "cexp": _COMPLEX}.get(where, _REAL)
        by = "x" if where == "quotient" else " + ".join(f"({x})" for x in parameters if x != "n")
        return (*header(where), _choice(name, parameters, by, types))
    given, types = re.findall(r"A (\w+)", parameters), _TYPES.get(name, _ANY)
    made = [in_c(f"{where} {_NAME}({parameters}) {body}\n", {"A": dtype}) for dtype in types]
    # Those with loops are no vector code, and long.
    inline = "inline" if _LOOPS.search(body) else "MINIML_INLINE"
    texts = (
        f"static {inline} {text.replace(_NAME, f'miniml_{name}_{dtype.name}')}"
        for (text, _), dtype in zip(made, types, strict=True)
    )
    by = " + ".join(f"({x})" for x in given) if f" {name}(" in _NUMBERS else given[0]
    needed = (part for _, shared in made for part in shared)
    return (*dict.fromkeys(needed), "".join(texts) + _choice(name, given, by, types))


def _choice(name: str, parameters: Sequence[str], by: str, types: Sequence[DType]) -> str:
    """The macro that dispatches a function on the type of an expression of its arguments."""
    rows = {C_TYPES[dtype]: dtype.name for dtype in types}
    if int64 in types:  # C has two names for these
        rows |= {"long": "int64", "unsigned long": "uint64"}
    elif float32 in types:  # as in C++, of an integer it is that of a double
        rows["default"] = rows.pop("double")
    given = ", ".join(parameters)
    picks = ", ".join(f"{c}: miniml_{name}_{dtype}" for c, dtype in rows.items())
    return f"#define miniml_{name}({given}) _Generic({by}, {picks})({given})\n"


# Functions of float32 and float64 by header and parameters, of which n is an int.
_REALS = (
    ("exp", "x", "exp exp2 expm1"), ("log", "x", "log log2 log10 log1p"), ("tanh", "x", "tanh"),
    ("erf", "x", "erf erfc normcdf"), ("erfinv", "x", "erfinv"), ("sin", "x", "sin"),
    ("cos", "x", "cos"), ("tan", "x", "tan"), ("arc", "x", "atan asin acos"),
    ("arc", "xy", "atan2"), ("fmod", "xy", "fmod"), ("library", "x", "tgamma"),
    ("hyperbolic", "x", "sinh cosh asinh acosh atanh"), ("pow", "xy", "pow"), ("pow", "x", "cbrt"),
    ("hardware", "x", "sqrt rsqrt fabs floor ceil rint round trunc"), ("gamma", "x", "lgamma"),
    ("hardware", "x", "isnan isinf isfinite signbit"), ("hardware", "xy", "copysign fmin fmax"),
    ("hardware", "xyz", "fma"), ("library", "xn", "ldexp"), ("library", "xy", "hypot nextafter"),
    ("complex", "x", "creal cimag conj cabs crecip"), ("complex", "xy", "cmul cdiv"),
    ("hardware", "xy", "CMPLX"), ("cexp", "x", "cexp"),
)  # fmt: skip
# Those of `expressions` that have a text of their own in C, for each type of integers.
_QUOTIENTS = dict.fromkeys(("int_floor_div", "int_mod"), ("quotient", "xy", ""))
# C++'s functions of numbers of any type, as those of `expressions` are written.
_NUMBERS = """
A abs(A x) { return x <= A(0) ? A(0) - x : x; }
A min(A x, A y) { return x < y || y != y ? x : y; }
A max(A x, A y) { return x > y || y != y ? x : y; }
"""
_DEFINITIONS = re.compile(r"(?ms)^(\w+) (\w+)\((A [^)]*)\) (\{[^\n]*\}$|\{\n.*?^\}$)")


@cache
def _texts() -> dict[str, tuple[str, str, str]]:
    """The functions that C text may call, by name: header, parameters and ""; or the type of the
    result, parameters and body."""
    reals = {name: (where, takes, "") for where, takes, names in _REALS for name in names.split()}
    found = _DEFINITIONS.findall(FUNCTIONS + _NUMBERS)
    own = {name: (result, takes, body) for result, name, takes, body in found}
    return reals | own | _QUOTIENTS


def names() -> frozenset[str]:
    """The functions that C text may call."""
    return frozenset(_texts())


# --- Vector types ---------------------------------------------------------------------------------


SCALARS = {"f": "float", "d": "double"}  # type codes that native kernels compute in


class Vectors(NamedTuple):
    """Vectors of `size` bytes of a scalar type of C."""

    scalar: str
    size: int

    @property
    def width(self) -> int:
        """Elements of a vector."""
        return self.size // (8 if self.scalar == "double" else 4)

    @property
    def registers(self) -> int:
        """Vector registers: 32 with AVX-512 and on ARM, 16 with SSE and AVX."""
        return 32 if self.size == 64 or CPU.get("neon") else 16

    def text(self, file: str) -> str:
        """A C file beside this one, written for these vectors."""
        return self.written(template(file))

    def written(self, text: str) -> str:
        """C for the type REAL, the INTEGER of its size, and registers of BYTES bytes."""
        integer = "int64_t" if self.scalar == "double" else "int32_t"
        words = {"REAL": self.scalar, "INTEGER": integer, "BYTES": str(self.size)}
        return re.sub("|".join(words), lambda found: words[found[0]], text)

    @property
    def prelude(self) -> str:
        """The vector types, and the transposition of a square of registers."""
        return self.text("vectors.c").replace("    SWAPS;\n", "".join(self._swaps()))

    def _swaps(self) -> list[str]:
        """A transposition in log2(width) rounds, which exchange blocks off the diagonal."""
        lines, n = [], self.width
        for half in (n >> k for k in range(1, n.bit_length())):
            low = ", ".join(str(n + i - half if i & half else i) for i in range(n))
            high = ", ".join(str(n + i if i & half else i + half) for i in range(n))
            pairs = [(i, i + half) for i in range(n) if not i & half]
            lines += [f"    SWAP({i}, {j}, ({low}), ({high}))\n" for i, j in pairs]
        return lines


def vectors(dtype: DType, masked: tuple[str, ...] = ()) -> Vectors:
    """The vectors of float32 or float64 on this machine without the masked features."""
    return Vectors(SCALARS[dtype.char], register_bytes(masked))


def register_bytes(masked: tuple[str, ...] = ()) -> int:
    """Bytes of a vector register, without the masked features of the CPU."""
    wide = (b for f, b in (("avx512f", 64), ("avx", 32)) if CPU.get(f) and f not in masked)
    return next(wide, 16)


# --- Reductions -----------------------------------------------------------------------------------


class Reducer(NamedTuple):
    """A reduction in C, of which x is the element; LOWEST and HIGHEST are the ends of its dtype.

    counts: an element that is taken twice changes the result.
    """

    identity: str
    element: str
    combination: str
    counts: bool = False

    def once(self, before: str, differs: bool = False) -> str:
        """The text before an element that counts for nothing if taken before, or if it differs."""
        return f"{before} ? {self.identity} : " * (self.counts or differs)

    def combine(self, a: str, b: str) -> str:
        """The combination of two partial results."""
        return self.combination.format(a=a, b=b)


# One choice by two comparisons, joined by `&`: of `||` GCC makes branches. a stays where it is NaN,
# and b is taken where that is.
REDUCERS = {
    "Sum": Reducer("0", "x", "{a} + {b}"),
    "Prod": Reducer("1", "x", "{a} * {b}"),
    "Max": Reducer("LOWEST", "x", "(({a} == {a}) & !({b} <= {a})) ? {b} : {a}"),
    "Min": Reducer("HIGHEST", "x", "(({a} == {a}) & !({b} >= {a})) ? {b} : {a}"),
    "Any": Reducer("0", "x != 0", "{a} | {b}"),
    "All": Reducer("1", "x != 0", "{a} & {b}"),
}


def reducer(row: str, dtype: DType) -> Reducer:
    """The reduction of a row program, of elements of a dtype."""
    low, high = ends(dtype)
    found = REDUCERS[row]
    identity = found.identity.replace("LOWEST", low).replace("HIGHEST", high)
    return found._replace(identity=identity, counts=ROWS[row].adds)


def accumulator(row: str, dtype: DType, single: bool = False) -> DType:
    """The dtype in which a reduction is taken: of unsigned integers; float64 for products of
    float32, which else may overflow on the way; loops over bools would be no vector code. single:
    to a single number, for which a wider one costs nothing."""
    wider = dict([_REAL, _COMPLEX]) if single or row == "Prod" else {}
    kept = {bool_: uint8, **wider}.get(dtype, dtype)
    return uint64 if ROWS[row].adds and dtype.kind in "iu" else kept


# In lanes, so that compilers use vectors: they keep the order of a sum that is written plainly.
_BLOCK_TEXT = """\
static MINIML_INLINE RESULT NAME(const STORED *z, long m) {
  const NUMBER *x = (const NUMBER *)z;
  const long n = PARTS * m;
  TYPE KEPT;
  long i = 0;
  for (int l = 0; l < LANES; ++l) BEGIN;
PAIRS  for (; i + LANES <= n; i += LANES)
MINIML_ROLLED
    for (int l = 0; l < LANES; ++l) ONE;
  if (i < n && n > LANES) {
    const long last = n - LANES;
MINIML_ROLLED
    for (int l = 0; l < LANES; ++l) {
      const TYPE rest = ONCEx[last + l];
      REST;
    }
    i = n;
  }
  for (int l = 0; i + l < n; ++l) ONE;
TREE  return WHOLE;
}
"""
# Two floats at once: a product waits once for both, and an extremum takes one comparison a number,
# which passes over NaN, and one for both, whether there is a NaN.
_PAIRS = """\
  for (; i + 2 * LANES <= n; i += 2 * LANES)
MINIML_ROLLED
    for (int l = 0; l < LANES; ++l) {
      const TYPE y = x[i + l], z = x[i + LANES + l];
      BOTH;
    }
"""


def block(row: str, dtype: DType, size: int, of: str) -> tuple[str, str]:
    """The function that reduces at most `size` elements of the type `of`: its name and its text.
    Of complex numbers it adds twice as many real ones, in lanes of either part."""
    result, found, parts = value_type(dtype), reducer(row, dtype), 1 + (dtype in _COMPLEX)
    c, size = result.removesuffix(" _Complex"), size * parts
    pairs = row != "Sum" and c in ("float", "double")
    lanes = min(16 if row == "Sum" or pairs else 32, 1 << max(size - 1, 0).bit_length())
    kept, begin, whole = "lane[LANES]", "lane[l] = IDENTITY", "lane[0]"
    one = step = f"lane[l] = {found.combine('lane[l]', '{0}')}"
    both = one.format("(y * z)")
    if pairs and row != "Prod":  # to add -0 changes nothing
        kept, begin, whole = f"{kept}, nan[LANES]", f"{begin}, nan[l] = -0.0f", f"{whole} + nan[0]"
        choose = f"lane[l] = {{0}} {'>' if row == 'Max' else '<'} lane[l] ? {{0}} : lane[l]"
        step, nan = f"{choose}, nan[l] += nan[l + HALF]", "nan[l] = {} ? NAN : nan[l]"
        one = f"{choose}, {nan.format('{0} != {0}')}"
        both = f"{choose.format('y')}, {choose.format('z')}, "
        both += nan.format("__builtin_isunordered(y, z)")
    # Written out: of a loop over its steps GCC makes no vectors.
    step = step.format("lane[l + HALF]")
    loop = f"MINIML_ROLLED\n  for (int l = 0; l < HALF; ++l) {step};\n"
    halves = [str(lanes >> k) for k in range(1, (lanes // parts).bit_length())]
    tree = "".join(loop.replace("HALF", half) for half in halves)
    name = f"miniml_block{lanes}_{row.lower()}_{dtype.name}_of_{of.replace(' ', '_')}"
    whole = "__builtin_complex(lane[0], lane[1])" if parts == 2 else whole
    words = {
        "PAIRS": _PAIRS * pairs, "BOTH": both, "ONE": one.format("x[i + l]"), "TREE": tree,
        "REST": one.format("rest"), "ONCE": found.once("last + l < i"),
        "KEPT": kept, "BEGIN": begin, "WHOLE": whole, "LANES": str(lanes), "NAME": name,
        "IDENTITY": found.identity, "TYPE": c, "STORED": of, "RESULT": result,
        "NUMBER": c if parts == 2 else of, "PARTS": str(parts),
    }  # fmt: skip
    text = _BLOCK_TEXT
    for word, meaning in words.items():
        text = text.replace(word, meaning)
    return name, text
