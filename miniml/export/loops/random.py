"""C of random draws whose kernel is NumPy's: the words and recipes of `backends.cpu.random`.

Elements are drawn one after the other, each from the words of its own block.
"""

from __future__ import annotations

import math

import numpy as np

from ...backends.cc.scalars import converted, in_c, literal, stored
from ...backends.cc.units import header
from ...backends.distributions import STIRLING, truncation
from ...core.dtype import DType, float32
from ...graph.ir import Node
from .elements import Loop, loop, pointers


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
