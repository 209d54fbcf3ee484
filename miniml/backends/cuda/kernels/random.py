"""Random draws: Philox 4x32-10 and the draws made from its words, bit for bit as on the CPU.

Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011). A
thread computes a block of four words, number offset + skip + i of the stream, and the elements that
take their words from it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ....core.signature import ANY, FLOAT
from ...expressions import STIRLING, computed, truncation
from ...kernel import KernelNode, Launch
from ...registry import raw_kernel
from ..text.source import spread

PHILOX = r"""
using namespace miniml;
typedef Compute<T_OUT0>::type REAL;
#define PER (16 / (int)sizeof(REAL))  // elements that the four words of a block make
struct Words { unsigned int w[4]; };
__device__ __forceinline__ Words philox(
    unsigned long long key, unsigned long long counter, unsigned int attempt = 0) {
  unsigned int c0 = (unsigned int)counter, c1 = (unsigned int)(counter >> 32), c2 = attempt, c3 = 0;
  unsigned int k0 = (unsigned int)key, k1 = (unsigned int)(key >> 32);
  for (int i = 0; i < 10; ++i) {
    const unsigned long long p = 0xD2511F53ULL * c0, q = 0xCD9E8D57ULL * c2;
    c0 = (unsigned int)(q >> 32) ^ c1 ^ k0;
    c1 = (unsigned int)q;
    c2 = (unsigned int)(p >> 32) ^ c3 ^ k1;
    c3 = (unsigned int)p;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  Words r = {{c0, c1, c2, c3}};
  return r;
}
__device__ __forceinline__ Words block_of(
    const unsigned long long* state, unsigned long long skip, long long i) {
  return philox(state[0], state[1] + skip + (unsigned long long)i);
}
// The upper bits of words as numbers in [0, 1).
__device__ __forceinline__ float unit(const Words& w, int i, float) {
  return (float)(w.w[i] >> 8) * 5.9604644775390625e-8f;
}
__device__ __forceinline__ double unit(const Words& w, int i, double) {
  const unsigned long long wide = (unsigned long long)w.w[2 * i + 1] << 32 | w.w[2 * i];
  return (double)(wide >> 11) * 1.1102230246251565e-16;
}
// Odd multiples of 2^-53, in (0, 1).
__device__ __forceinline__ double inner(const Words& w, int i) {
  const unsigned long long wide = (unsigned long long)w.w[2 * i + 1] << 32 | w.w[2 * i];
  return (double)(wide >> 11 | 1) * 1.1102230246251565e-16;
}
// Neither the product nor the sum may be fused.
__device__ __forceinline__ float spread(float u, float span, float low) {
  return __fadd_rn(__fmul_rn(u, span), low);
}
__device__ __forceinline__ double spread(double u, double span, double low) {
  return __dadd_rn(__dmul_rn(u, span), low);
}
__device__ __forceinline__ void pair(const Words& w, int j, float* z) {
  const float a = (float)w.w[2 * j] * 2.3283064365386963e-10f + 1.1641532182693481e-10f;
  const float b = (float)w.w[2 * j + 1] * 2.3283064365386963e-10f;
  const float radius = sqrtf(-2.0f * logf(a)), angle = 6.2831853071795865f * b;
  z[0] = radius * cosf(angle);
  z[1] = radius * sinf(angle);
}
__device__ __forceinline__ void pair(const Words& w, int, double* z) {
  const double a = unit(w, 0, 0.0) + 1.1102230246251565e-16, b = unit(w, 1, 0.0);
  const double radius = sqrt(-2.0 * log(a)), angle = 6.283185307179586477 * b;
  z[0] = radius * cos(angle);
  z[1] = radius * sin(angle);
}
"""

UNIFORM = r"""
extern "C" __global__ void uniform(
    const unsigned long long* state, T_OUT0* out, unsigned long long skip, REAL low, REAL span,
    REAL ceiling, long long n) {
  MINIML_FOR(i, (n + PER - 1) / PER) {
    const Words words = block_of(state, skip, i);
    for (int e = 0; e < PER && i * PER + e < n; ++e) {
      const T_OUT0 rounded = store<T_OUT0>(spread(unit(words, e, REAL(0)), span, low));
      out[i * PER + e] = load(rounded) < ceiling ? rounded : store<T_OUT0>(ceiling);
    }
  }
}
"""

NORMAL = r"""
extern "C" __global__ void normal(
    const unsigned long long* state, T_OUT0* out, unsigned long long skip, REAL mean, REAL std,
    long long n) {
  MINIML_FOR(i, (n + PER - 1) / PER) {
    const Words words = block_of(state, skip, i);
    REAL z[PER];
    for (int j = 0; j < PER / 2; ++j) pair(words, j, z + 2 * j);
    for (int e = 0; e < PER && i * PER + e < n; ++e)
      out[i * PER + e] = store<T_OUT0>(z[e] * std + mean);
  }
}
"""

# Of two doubles for each block, whatever the dtype; VALUE is the draw that u gives.
INVERSE = r"""
extern "C" __global__ void inverse(
    const unsigned long long* state, T_OUT0* out, unsigned long long skip, double a, double b,
    double c, double d, double low, double high, long long n) {
  MINIML_FOR(i, (n + 1) / 2) {
    const Words words = block_of(state, skip, i);
    for (int e = 0; e < 2 && i * 2 + e < n; ++e) {
      const double u = inner(words, e), draw = load(store<T_OUT0>(VALUE));
      out[i * 2 + e] = store<T_OUT0>(draw < low ? low : draw > high ? high : draw);
    }
  }
}
"""
GUMBEL = "spread(log(-log(u)), -b, a)"
TRUNCATED = "spread(normcdfinv(spread(u, b, a)), c, d)"

BERNOULLI = r"""
extern "C" __global__ void bernoulli(
    const unsigned long long* state, T_OUT0* out, unsigned long long skip, unsigned int threshold,
    long long n) {
  MINIML_FOR(i, (n + 3) / 4) {
    const Words words = block_of(state, skip, i);
    for (int e = 0; e < 4 && i * 4 + e < n; ++e)
      out[i * 4 + e] = store<T_OUT0>(int((words.w[e] >> 8) < threshold));
  }
}
"""

# A thread repeats the attempts of an element until one is accepted.
GAMMA = r"""
extern "C" __global__ void gamma(
    const unsigned long long* state, const double* alpha, T_OUT0* out, unsigned long long skip,
    long long period, int in_log, long long n) {
  MINIML_FOR(i, n) {
    const double given = alpha[i], d = (given < 1.0 ? given + 1.0 : given) - 1.0 / 3.0;
    double draw = given == INFINITY ? given : NAN;
    bool left = given > 0.0 && given < INFINITY;
    for (unsigned int attempt = 0; left; ++attempt) {
      const Words words = philox(state[0], state[1] + skip + i % period, attempt);
      double f[4];
      for (int j = 0; j < 4; ++j) f[j] = (words.w[j] + 0.5) * 2.3283064365386962890625e-10;
      const double z = sqrt(-2.0 * log(f[0])) * cos(6.283185307179586477 * f[1]);
      const double t = z / (3.0 * sqrt(d)), part = log1p(t);
      if (!(t > -1.0 && log(f[2]) < d * (3.0 * (part - t) + 1.5 * t * t - t * t * t))) continue;
      const double boost = given < 1.0 ? log(f[3]) / given : 0.0, one = 1.0 + t;
      draw = in_log ? log(d) + 3.0 * part + boost : d * (one * one * one) * exp(boost);
      left = false;
    }
    out[i] = store<T_OUT0>(draw);
  }
}
"""

POISSON = r"""
__device__ __forceinline__ double log_mass(double k, double lam) {
  const double rests[10] = {RESTS};
  if (k < 1.0) return -lam;
  const double e = (k - lam) / lam, square = 1.0 / (k * k);
  const double series =
      (1.0 / 12 - square * (1.0 / 360 - square * (1.0 / 1260 - square / 1680))) / k;
  const double rest = k < 10.0 ? rests[(int)k] : series;
  return -lam * ((1.0 + e) * log1p(e) - e) - 0.5 * log(6.283185307179586477 * k) - rest;
}
__device__ __forceinline__ double inverted(double u, double lam) {
  double k = 0.0, term = exp(-lam), total = term;
  for (int i = 1; i < 100 && u > total; ++i) {
    term *= lam / i;
    total += term;
    k += 1.0;
  }
  return k;
}
extern "C" __global__ void poisson(
    const unsigned long long* state, const double* lam, T_OUT0* out, unsigned long long skip,
    long long period, long long n) {
  MINIML_FOR(i, n) {
    const double mean = lam[i];
    const double b = 0.931 + 2.53 * sqrt(mean), a = -0.059 + 0.02483 * b;
    double draw = is_integer<REAL> ? -1.0 : NAN;
    bool left = mean >= 0.0 && mean < INFINITY;
    for (unsigned int attempt = 0; left; ++attempt) {
      const Words words = philox(state[0], state[1] + skip + i % period, attempt);
      const double u = inner(words, 0) - 0.5, v = inner(words, 1), edge = 0.5 - fabs(u);
      if (mean < 10.0) {
        draw = inverted(inner(words, 0), mean);
        break;
      }
      draw = floor((2.0 * a / edge + b) * u + mean + 0.43);
      if (edge >= 0.07 && v <= 0.9277 - 3.6224 / (b - 2.0)) break;
      if (draw < 0.0 || (edge < 0.013 && v > edge)) continue;
      const double hat = log(v) + log(1.1239 + 1.1328 / (b - 3.4)) - log(a / (edge * edge) + b);
      left = !(hat <= log_mass(draw, mean));
    }
    out[i] = store<T_OUT0>(draw);
  }
}
"""


def draws(node: KernelNode, words: int, *numbers: Any) -> Launch:
    """A thread for a few blocks of four words, of which an element takes `words`."""
    n = math.prod(node.outputs[0].shape)
    args = (np.uint64(node.attrs["skip"]), *numbers, np.int64(n))
    return Launch(*spread(-(-n * words // 4)), args)


def uniform(node: KernelNode) -> Launch:
    dtype = node.outputs[0].dtype
    of = computed(dtype)
    low, high = float(node.attrs["low"]), float(node.attrs["high"])
    ceiling = np.nextafter(np.asarray(high, dtype), np.asarray(low, dtype))
    return draws(node, of.itemsize // 4, *map(of.type, (low, high - low, ceiling)))


def normal(node: KernelNode) -> Launch:
    of = computed(node.outputs[0].dtype)
    return draws(node, of.itemsize // 4, of.type(node.attrs["mean"]), of.type(node.attrs["std"]))


def bernoulli(node: KernelNode) -> Launch:
    return draws(node, 1, np.uint32(math.ceil(float(node.attrs["p"]) * 2.0**24)))


def gumbel(node: KernelNode) -> Launch:
    loc, scale = float(node.attrs["loc"]), float(node.attrs["scale"])
    return draws(node, 2, *map(np.float64, (loc, scale, 0, 0, -np.inf, np.inf)))


def truncated_normal(node: KernelNode) -> Launch:
    mean, std, *ends = (float(node.attrs[name]) for name in ("mean", "std", "low", "high"))
    numbers = *truncation(mean, std, *ends), mean
    rounded = np.array(ends).astype(node.outputs[0].dtype).astype(np.float64)
    return draws(node, 2, *map(np.float64, (*numbers, *rounded)))


def rejecting(node: KernelNode, *numbers: Any) -> Launch:
    """A thread for each element; those that are as many apart as `shape` has share their words."""
    n = math.prod(node.outputs[0].shape)
    args = np.uint64(node.attrs["skip"]), np.int64(max(math.prod(node.attrs["shape"]), 1))
    return Launch(*spread(n), (*args, *numbers, np.int64(n)))


def gamma(node: KernelNode) -> Launch:
    return rejecting(node, np.int32(node.attrs["log"]))


_FLOATS, _ANY = ([f"L->{c}" for c in codes] for codes in (FLOAT, ANY))
_REAL, _NUMBER = ([f"Ld->{c}" for c in codes] for codes in (FLOAT, ANY.replace("?", "")))
_RESTS = ", ".join(float(rest).hex() for rest in STIRLING)
for _name, _signatures, _entry, _text, _launch, _value in (
    ("Uniform", _FLOATS, "uniform", UNIFORM, uniform, ""),
    ("Normal", _FLOATS, "normal", NORMAL, normal, ""),
    ("Gumbel", _FLOATS, "inverse", INVERSE, gumbel, GUMBEL),
    ("TruncatedNormal", _FLOATS, "inverse", INVERSE, truncated_normal, TRUNCATED),
    ("Bernoulli", _ANY, "bernoulli", BERNOULLI, bernoulli, ""),
    ("Gamma", _REAL, "gamma", GAMMA, gamma, ""),
    ("Poisson", _NUMBER, "poisson", POISSON.replace("RESTS", _RESTS), rejecting, ""),
):
    raw_kernel(
        _name, *_signatures, entry=_entry, source=PHILOX + _text, launch=_launch,
        defines={"VALUE": _value} if _value else {},
    )  # fmt: skip
