"""C of operations that Python computes: plain loops, which serve an exported program alone.

First how loops are registered by the name of an operation, and what their texts are written with;
inputs are in row-major order. Then the families, those of collectives, which copy, among them; sums
of products and matrices have `linalg`. Random numbers are drawn one after the other, each from the
words of its own block, by the recipes of `backends.cpu.random`. Last the checks of inputs: each
copies them and returns 1 if it refuses, where Python raises an error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from math import prod
from typing import NamedTuple

import numpy as np

from ..backends.cc.scalars import (
    STORED,
    converted,
    in_c,
    literal,
    loaded,
    scalar_function,
    stored,
    value_type,
)
from ..backends.cc.units import Source, header
from ..backends.expressions import C_TYPES, STIRLING, computed, identity, truncation, unsigned
from ..backends.kernel import start_of
from ..core.abstract import DType, Shape, float32
from ..graph.ir import Node
from ..ops.checks import broadcast
from ..ops.index import TENSOR, analyse
from ..runtime.nest import scalar_of


class Loop(NamedTuple):
    """C of a node.

    text: `void KERNEL(char *const *at)` on the addresses of inputs, outputs and scratch memory; or
    `int`, which returns 1 for inputs that it refuses. shared: texts that it needs, each once in a
    file. scratch: bytes of memory that a call may use."""

    text: str
    shared: tuple[str, ...] = ()
    scratch: int = 0


Writer = Callable[[Node], Loop | str | None]
loops: dict[str, Writer] = {}


def loop(*names: str) -> Callable[[Writer], Writer]:
    """Register the function that writes the loop of operations, or its text if that is all; it
    returns None where it has none for a node."""

    def register(writer: Writer) -> Writer:
        loops.update(dict.fromkeys(names, writer))
        return writer

    return register


def loop_of(node: Node) -> Loop | None:
    """The C of a node; None where there is none for its dtypes."""
    writer = loops.get(node.primitive.name)
    made = None if writer is None else writer(node)
    return Loop(made) if isinstance(made, str) else made


# --- Loops over all elements of an array ----------------------------------------------------------


def nest(shape: Sequence[int]) -> str:
    """The heads of loops with the counters i0, i1 and so on."""
    return "\n".join(
        f"  for (long i{axis} = 0; i{axis} < {extent}L; ++i{axis})"
        for axis, extent in enumerate(shape)
    )


def strides(shape: Sequence[int], to: Sequence[int]) -> list[int]:
    """The elements from one index to the next of each axis of `to`, to which shape broadcasts."""
    steps = [prod(shape[i + 1 :]) if n > 1 else 0 for i, n in enumerate(shape)]
    return [0] * (len(to) - len(shape)) + steps


def offset(steps: Sequence[int]) -> str:
    """The offset of the element of the counters."""
    return " + ".join(f"i{i} * {s}L" for i, s in enumerate(steps) if s) or "0"


# --- Pointers and types ---------------------------------------------------------------------------


def pointers(node: Node, *names: str) -> str:
    """Definitions of pointers to the inputs, to const, and to the outputs of a node."""
    arrays = [v.abstract for v in (*node.inputs, *node.outputs)]
    lines = []
    for i, (name, abstract) in enumerate(zip(names, arrays, strict=True)):
        c = f"{'const ' * (i < len(node.inputs))}{STORED[abstract.dtype]}"
        lines.append(f"  {c} *const {name} = ({c} *)at[{i}];")
    return "\n".join(lines)


def sum_type(dtype: DType) -> str:
    """The type of C in which numbers are added and multiplied: of integers unsigned ones, which
    wrap around, of at least 32 bits, since C would promote narrower ones to int."""
    return C_TYPES[unsigned(dtype)]


# --- Elements made of their index -----------------------------------------------------------------


@loop("Full", "Eye", "Arange", "Linspace")
def _created(node: Node) -> Loop:
    """Numbers of their index, too many to stand in the file."""
    scalar, out = scalar_of(node), node.outputs[0].abstract
    element = scalar_function(
        scalar.expression, "KERNEL_element", (), out.dtype, dict(scalar.constants)
    )
    text = f"""\
{element.text}
void KERNEL(char *const *at) {{
{pointers(node, "out")}
  for (long i = 0; i < {out.size}L; ++i) out[i] = {stored(out.dtype, "KERNEL_element(i)")};
}}
"""
    return Loop(text, element.shared)


# --- Indices --------------------------------------------------------------------------------------


@loop("Index")
def _index(node: Node) -> str:
    shape, attrs = node.inputs[0].abstract.shape, node.attrs
    named = _named(node, shape, strides(shape, shape), attrs["axes"], attrs["at"], 1)
    return f"""\
int KERNEL(char *const *at) {{
{_arrays(node, 1, "x")}
  long o = 0;
{named}
    out[o++] = x[place];
  }}
  return 0;
}}
"""


@loop("IndexReduce")
def _index_reduce(node: Node) -> Loop:
    out, attrs = node.outputs[0].abstract, node.attrs
    c, mode = value_type(out.dtype), attrs["mode"]
    first = literal(np.asarray(identity(mode, out.dtype), computed(out.dtype))[()])
    sign = "<" if mode == "min" else ">"
    joined = f"old != old || !(new {sign} old || new != new) ? old : new"
    if mode == "mul":
        joined = f"({c})(({sum_type(out.dtype)})old * ({sum_type(out.dtype)})new)"
    shape = attrs["shape"]
    named = _named(node, shape, strides(shape, shape), attrs["axes"], attrs["at"], 1)
    text = f"""\
int KERNEL(char *const *at) {{
{_arrays(node, 1, "updates")}
  for (long i = 0; i < {out.size}L; ++i) out[i] = {stored(out.dtype, f"({c}){first}")};
  long o = 0;
{named}
    const {c} old = {loaded(out.dtype, "out[place]")}, new = {loaded(out.dtype, "updates[o++]")};
    out[place] = {stored(out.dtype, joined)};
  }}
  return 0;
}}
"""
    return Loop(text, header("convert"))


@loop("Scatter")
def _scatter(node: Node) -> str:
    """Values are assigned in row-major order, so that the last one for a position stays."""
    x, value = (v.abstract for v in node.inputs[:2])
    items = node.attrs["index"]
    parts = analyse("Scatter", items, x.shape)
    bytes_of = np.empty(x.shape, np.uint8)
    basic = bytes_of[tuple(slice(None) if item == TENSOR else item for item in items)]
    base = start_of(basic) - start_of(bytes_of)
    region = parts.region(tuple(v.abstract.shape for v in node.inputs[2:]))
    return f"""\
int KERNEL(char *const *at) {{
{_arrays(node, 2, "x", "value")}
  memcpy(out, x, {x.size * x.dtype.itemsize}L);
{_named(node, basic.shape, basic.strides, parts.axes, parts.at, 2, base)}
    out[place] = value[{offset(strides(value.shape, region))}];
  }}
  return 0;
}}
"""


def _arrays(node: Node, count: int, *names: str) -> str:
    """Pointers to inputs by these names, to indices n0, n1 and so on, and to out."""
    return pointers(node, *names, *(f"n{i}" for i in range(len(node.inputs) - count)), "out")


def _named(
    node: Node,
    shape: Shape,
    steps: Sequence[int],
    axes: Sequence[int],
    at: int,
    first: int,
    base: int = 0,
) -> str:
    """The heads of the loops over what the inputs from `first` on name, and the beginning of their
    body, which finds the `place` of an element or returns 1.

    shape, steps: of the array that is indexed along `axes`. at: the number of the other axes ahead
    of those of the indices."""
    indices = [v.abstract.shape for v in node.inputs[first:]]
    named = broadcast(node.primitive.name, *indices)
    rest = [i for i in range(len(shape)) if i not in axes]
    region = (*(shape[i] for i in rest[:at]), *named, *(shape[i] for i in rest[at:]))
    places = [*(steps[i] for i in rest[:at]), *[0] * len(named), *(steps[i] for i in rest[at:])]
    lines = [nest(region), "  {", f"    long place = {base}L + {offset(places)};"]
    for k, (own, axis) in enumerate(zip(indices, axes, strict=True)):
        index = offset([*[0] * at, *strides(own, named)])
        lines += [
            f"    const int64_t i_{k} = (int64_t)n{k}[{index}];",
            f"    if (i_{k} < -{shape[axis]}L || i_{k} >= {shape[axis]}L) return 1;",
            f"    place += (i_{k} < 0 ? i_{k} + {shape[axis]}L : i_{k}) * {steps[axis]}L;",
        ]
    return "\n".join(lines)


# --- Along an axis --------------------------------------------------------------------------------


@loop("SearchSorted")
def _search_sorted(node: Node) -> Loop:
    x, values = (v.abstract for v in node.inputs)
    n = x.shape[-1]
    rows = prod(x.shape[:-1])
    m = values.size // max(rows, 1)
    here, kind = loaded(x.dtype, f"x[r * {n}L + middle]"), value_type(x.dtype)
    before = "KERNEL_less(here, own)" if node.attrs["side"] == "left" else "!KERNEL_less(own, here)"
    text = f"""\
{_less(x.dtype)}
void KERNEL(char *const *at) {{
{pointers(node, "x", "values", "out")}
  for (long r = 0; r < {rows}L; ++r)
    for (long i = 0; i < {m}L; ++i) {{
      const {kind} own = {loaded(x.dtype, f"values[r * {m}L + i]")};
      long begin = 0, end = {n}L;
      while (begin < end) {{
        const long middle = begin + (end - begin) / 2;
        const {kind} here = {here};
        if ({before}) begin = middle + 1; else end = middle;
      }}
      out[r * {m}L + i] = begin;
    }}
}}
"""
    return Loop(text, header("convert"))


def _less(dtype: DType) -> str:
    """The order of elements, with NaN as the largest."""
    c = value_type(dtype)
    return f"""\
static int KERNEL_less({c} x, {c} y) {{ return x < y || (y != y && x == x); }}"""


# --- Collectives of one rank ----------------------------------------------------------------------


@loop("AllReduce", "Reduce", "Broadcast", "AllGather", "ReduceScatter", "AllToAll", "SendRecv")
def _copied(node: Node) -> str | None:
    """None for a larger group; nothing is received where the rank is in no pair."""
    out, attrs = node.outputs[0].abstract, node.attrs
    if attrs["size"] != 1:
        return None
    size = out.size * out.dtype.itemsize
    received = (0, 0) in attrs.get("pairs", ((0, 0),))
    statement = f"memcpy(at[1], at[0], {size}L);" if received else f"memset(at[1], 0, {size}L);"
    return f"void KERNEL(char *const *at) {{ {statement} }}\n"


# --- Random numbers, of their counters ------------------------------------------------------------


@loop("Uniform")
def _uniform(node: Node) -> Loop:
    """Of 16 bits: drawn in float32."""
    low, high = np.float64(node.attrs["low"]), np.float64(node.attrs["high"])
    dtype = node.outputs[0].abstract.dtype
    below = np.nextafter(np.asarray(high, dtype), np.asarray(low, dtype)).astype(np.float32)
    statements = f"""\
const float draw = {_float(low)} + {_float(high - low)} * ((float)(w[i] >> 8) * 0x1p-24f);
const float kept = {_rounded(dtype, "draw")};
out[e] = {stored(dtype, f"fminf(kept, {_float(below)})")};"""
    return _of_words(node, 4, statements)


@loop("Normal")
def _normal(node: Node) -> Loop:
    """Of 16 bits: drawn in float32, the sine of each pair after the cosine."""
    attrs, dtype = node.attrs, node.outputs[0].abstract.dtype
    radius = "sqrt(-2.0f * log((float)w[i & 2] * 0x1p-32f + 0x1p-33f))"
    turn = f"{_float(2 * math.pi)} * ((float)w[i | 1] * 0x1p-32f)"
    text, shared = in_c(f"{radius} * (i & 1 ? sin({turn}) : cos({turn}))", {})
    draw = f"({text}) * {_float(attrs['std'])} + {_float(attrs['mean'])}"
    return _of_words(node, 4, f"out[e] = {stored(dtype, draw)};", shared)


@loop("Gumbel")
def _gumbel(node: Node) -> Loop:
    attrs = node.attrs
    text, shared = in_c("-log(u)", {})
    again, more = in_c("log(v)", {})
    draw = f"{_double(attrs['loc'])} - {_double(attrs['scale'])} * {again}"
    statements = f"""\
const double u = {_unit("2 * i")}, v = {text};
out[e] = {_out(node, draw)};"""
    return _of_words(node, 2, statements, (*shared, *more))


@loop("TruncatedNormal")
def _truncated_normal(node: Node) -> Loop:
    attrs, dtype = node.attrs, node.outputs[0].abstract.dtype
    start, span, spread = truncation(*(attrs[name] for name in ("mean", "std", "low", "high")))
    low, high = (float(np.asarray(attrs[name], dtype)) for name in ("low", "high"))
    statements = f"""\
const double p = {_double(start)} + {_unit("2 * i")} * {_double(span)};
const double draw = {_double(attrs["mean"])} + {_double(spread)} * miniml_normal_quantile(p);
const double kept = {_rounded(dtype, "draw")};
out[e] = {_out(node, f"fmin(fmax(kept, {_double(low)}), {_double(high)})")};"""
    return _of_words(node, 2, statements, quantile())


def _of_words(node: Node, per: int, statements: str, shared: tuple[str, ...] = ()) -> Loop:
    """The loop over blocks of words, each of which gives elements e, the number i of its block."""
    n = node.outputs[0].abstract.size
    lines = "\n".join(f"      {line}" for line in statements.splitlines())
    text = f"""\
void KERNEL(char *const *at) {{
{pointers(node, "state", "out")}
  const uint64_t first = state[1] + {node.attrs["skip"]}ULL;
  for (long b = 0; b * {per} < {n}L; ++b) {{
    uint32_t w[4];
    miniml_block(state[0], first + (uint64_t)b, 0, w);
    for (int i = 0; i < {per} && b * {per} + i < {n}L; ++i) {{
      const long e = b * {per} + i;
{lines}
    }}
  }}
}}
"""
    return Loop(text, (_BLOCK, "#include <math.h>\n", *header("convert"), *shared))


def _rounded(dtype: DType, value: str) -> str:
    """A number as it is in an array of the dtype."""
    if dtype.itemsize > 2:
        return f"({'float' if dtype == float32 else 'double'})({value})"
    return f"miniml_load_{dtype.name}({stored(dtype, f'(float)({value})')})"


def _unit(word: str) -> str:
    """The odd multiple of 2^-53 that a word and the next one make, in (0, 1)."""
    return f"(double)(((uint64_t)w[{word} + 1] << 32 | w[{word}]) >> 11 | 1) * 0x1p-53"


def _out(node: Node, value: str) -> str:
    dtype = node.outputs[0].abstract.dtype
    return stored(dtype, f"(float)({value})") if dtype.itemsize == 2 else value


def _float(value: float) -> str:
    return literal(np.float32(value))


def _double(value: float) -> str:
    return literal(np.float64(value))


# The words of a block of Philox 4x32, 10 rounds.
_BLOCK = """\
static void miniml_block(uint64_t key, uint64_t low, uint64_t high, uint32_t w[4]) {
  uint32_t c0 = (uint32_t)low, c1 = (uint32_t)(low >> 32);
  uint32_t c2 = (uint32_t)high, c3 = (uint32_t)(high >> 32);
  uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
  for (int r = 0; r < 10; ++r, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
    const uint64_t p = 0xD2511F53ull * c0, q = 0xCD9E8D57ull * c2;
    c0 = (uint32_t)(q >> 32) ^ c1 ^ k0, c2 = (uint32_t)(p >> 32) ^ c3 ^ k1;
    c1 = (uint32_t)q, c3 = (uint32_t)p;
  }
  w[0] = c0, w[1] = c1, w[2] = c2, w[3] = c3;
}
"""


def quantile() -> tuple[str, ...]:
    """C of `miniml_normal_quantile(p)`, the inverse of the normal distribution function: a first
    value within 0.003 (Abramowitz, Stegun, 26.2.22) and steps of Halley, each of which triples its
    digits."""
    text, shared = in_c("normcdf(z) - q", {})
    density, more = in_c("exp(0.5 * z * z)", {})
    root, most = in_c("sqrt(-2.0 * log(q))", {})
    made = f"""\
static double miniml_normal_quantile(double p) {{
  const double q = p < 0.5 ? p : 1 - p;
  if (!(q > 0)) return p < 0.5 ? -INFINITY : INFINITY;
  const double t = {root};
  double z = (2.30753 + 0.27061 * t) / (1 + t * (0.99229 + 0.04481 * t)) - t;
  for (int step = 0; step < 3; ++step) {{
    const double error = ({text}) * 0x1.40d931ff62706p+1 * {density};
    z -= error / (1 + z * error / 2);
  }}
  return p < 0.5 ? z : -z;
}}
"""
    return tuple(dict.fromkeys(("#include <math.h>\n", *shared, *more, *most, made)))


# --- Draws by rejection ---------------------------------------------------------------------------


@loop("Gamma")
def _gamma(node: Node) -> Loop:
    boosted = "log(d) + 3.0 * part + boost" if node.attrs["log"] else "d * p * exp(boost)"
    names = {"D0": "-2.0 * log(f[0])", "PART": "log1p(t)", "THIRD": "log(f[2])"}
    pieces = {k: in_c(v, {}) for k, v in names.items()}
    turned, angle = in_c("cos(6.283185307179586 * f[1])", {})
    boost, last = in_c("log(f[3]) / alpha", {})
    draw, exps = in_c(boosted, {})
    statements = f"""\
const double alpha = given[e];
double made = alpha == INFINITY ? INFINITY : NAN;
for (uint64_t attempt = 0; alpha > 0 && alpha < INFINITY; ++attempt) {{
  double f[4];
  miniml_block(state[0], counter, attempt, w);
  for (int i = 0; i < 4; ++i) f[i] = (w[i] + 0.5) * 0x1p-32;
  const double d = (alpha < 1 ? alpha + 1 : alpha) - 1.0 / 3;
  const double t = sqrt({pieces["D0"][0]}) * {turned} / (3 * sqrt(d));
  if (!(t > -1)) continue;
  const double part = {pieces["PART"][0]}, p = (1 + t) * (1 + t) * (1 + t);
  if (!({pieces["THIRD"][0]} < d * (3 * (part - t) + 1.5 * t * t - t * t * t))) continue;
  const double boost = alpha < 1 ? {boost} : 0;
  made = {draw};
  break;
}}
out[e] = {_out(node, "made")};"""
    shared = (*(s for _, own in pieces.values() for s in own), *angle, *last, *exps)
    return _of_counters(node, statements, shared)


@loop("Poisson")
def _poisson(node: Node) -> Loop:
    dtype = node.outputs[0].abstract.dtype
    wrong = {"i": "-1", "u": "0"}.get(dtype.kind, "NAN")
    value = converted(dtype, "made") if dtype.kind in "iu" else _out(node, "made")
    statements = f"""\
const double lam = given[e];
double made = {wrong};
if (lam >= 0 && lam < INFINITY) made = miniml_poisson(state[0], counter, lam);
out[e] = {value};"""
    return _of_counters(node, statements, _poissons())


def _of_counters(node: Node, statements: str, shared: tuple[str, ...]) -> Loop:
    """The loop over elements e, whose blocks have counters of their own."""
    n, period = node.outputs[0].abstract.size, max(math.prod(node.attrs["shape"]), 1)
    lines = "\n".join(f"    {line}" for line in statements.splitlines())
    text = f"""\
void KERNEL(char *const *at) {{
{pointers(node, "state", "given", "out")}
  for (long e = 0; e < {n}L; ++e) {{
    const uint64_t counter = state[1] + {node.attrs["skip"]}ULL + (uint64_t)(e % {period}L);
    uint32_t w[4];
{lines}
  }}
}}
"""
    return Loop(text, (_BLOCK, "#include <math.h>\n", *header("convert"), *shared))


def _poissons() -> tuple[str, ...]:
    """Draws of one mean: by inversion below 10, else by transformed rejection (PTRS)."""
    mass, shared = in_c("(1.0 + e) * log1p(e) - e", {})
    half, more = in_c("0.5 * log(6.283185307179586 * least)", {})
    hat, logs = in_c("log(v) + log(1.1239 + 1.1328 / (b - 3.4)) - log(a / (edge * edge) + b)", {})
    first, exps = in_c("exp(-lam)", {})
    table = ", ".join(_double(x) for x in STIRLING)
    text = f"""\
/* k log lam - lam - log k!, by deviations from k = lam. */
static double miniml_log_mass(double k, double lam) {{
  static const double stirling[] = {{{table}}};
  if (k < 1) return -lam;
  const double least = k, e = (least - lam) / lam, square = 1 / (least * least);
  const double series = (1.0 / 12 - square * (1.0 / 360 - square * (1.0 / 1260 - square / 1680)));
  const double rest = least < 10 ? stirling[(int)least] : series / least;
  return -lam * ({mass}) - {half} - rest;
}}
static double miniml_poisson(uint64_t key, uint64_t counter, double lam) {{
  uint32_t w[4];
  if (lam < 10) {{
    miniml_block(key, counter, 0, w);
    const double u = {_unit("0")};
    double k = 0, term = {first}, total = term;
    for (int i = 1; i < 100 && u > total; ++i) term *= lam / i, k += 1, total += term;
    return k;
  }}
  for (uint64_t attempt = 0;; ++attempt) {{
    miniml_block(key, counter, attempt, w);
    const double u = {_unit("0")} - 0.5, v = {_unit("2")};
    const double b = 0.931 + 2.53 * sqrt(lam), a = -0.059 + 0.02483 * b, edge = 0.5 - fabs(u);
    const double k = floor((2 * a / edge + b) * u + lam + 0.43);
    if (edge >= 0.07 && v <= 0.9277 - 3.6224 / (b - 2)) return k;
    if (k < 0 || (edge < 0.013 && v > edge)) continue;
    if ({hat} <= miniml_log_mass(k, lam)) return k;
  }}
}}
"""
    return (_BLOCK, "#include <math.h>\n", *shared, *more, *logs, *exps, text)


# --- Checks ---------------------------------------------------------------------------------------


def check_of(node: Node) -> Source | None:
    """The C of a node that checks its input; None for any other. It defines
    `int KERNEL(char *const *at)`."""
    made = _CHECKS.get(node.primitive.name)
    if made is None:
        return None
    given = node.inputs[0].abstract
    if given.dtype != computed(given.dtype):  # floats of 16 bits are integers in C
        return None
    count, c = prod(given.shape), STORED[given.dtype]
    return Source(
        _TEXT.replace("TYPE", c).replace("COUNT", f"{count}L").replace("REFUSED", made(node))
    )


_TEXT = """\
int KERNEL(char *const *at) {
  const TYPE *given = (const TYPE *)at[0];
  TYPE *out = (TYPE *)at[1];
  int refused = 0;
  for (long i = 0; i < COUNT; ++i) {
    const TYPE x = given[i];
    refused |= REFUSED;
    out[i] = x;
  }
  return refused;
}
"""


def _labels(node: Node) -> str:
    attrs = node.attrs
    outside = _outside(node, 0, attrs["classes"])
    return outside if attrs["ignored"] is None else f"(x != {attrs['ignored']}) & ({outside})"


def _indices(node: Node) -> str:
    extent = node.attrs["extent"]
    return _outside(node, -extent, extent)


def _outside(node: Node, low: int, past: int) -> str:
    if node.inputs[0].abstract.dtype.kind == "u":
        return f"x >= {past}u"
    return f"(x < {low}) | (x >= {past})"


# The condition, of an element x, under which an operation refuses its input.
_CHECKS: dict[str, Callable[[Node], str]] = {
    "CheckedLabels": _labels,
    "CheckedIndices": _indices,
    "CheckedProbabilities": lambda node: "(x < 0) | (x > 1)",
}
