"""CUDA C that every kernel may use: the C types of dtypes, constants, loads and stores."""

from __future__ import annotations

from collections.abc import Iterable

from ....dtype import (
    DType,
    bfloat16,
    bool_,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)

C_TYPES: dict[DType, str] = {
    bool_: "bool", int8: "signed char", int16: "short", int32: "int", int64: "long long",
    uint8: "unsigned char", uint16: "unsigned short", uint32: "unsigned int",
    uint64: "unsigned long long", float16: "__half", bfloat16: "__nv_bfloat16",
    float32: "float", float64: "double",
}  # fmt: skip
# Of 16 bits: the header, and the functions to and from float.
_HALVES = {
    float16: ("cuda_fp16.h", "__half2float", "__float2half"),
    bfloat16: ("cuda_bf16.h", "__bfloat162float", "__float2bfloat16"),
}


def computed_in(dtype: DType) -> str:
    """The C type in which numbers of a dtype are computed: float for 16 bits, else its own."""
    return "float" if dtype in (float16, bfloat16) else C_TYPES[dtype]


def unsigned(dtype: DType) -> str:
    """The C type in which integers wrap around without undefined behaviour; else the type itself.

    32 bits at least: narrower ones would be promoted to int, which may overflow.
    """
    if dtype.kind not in "iub":
        return computed_in(dtype)
    return "unsigned long long" if dtype.itemsize == 8 else "unsigned int"


def prelude(dtypes: Iterable[DType]) -> str:
    """What stands above the text of a kernel that uses these dtypes."""
    known = set(dtypes)
    halves = [d for d in _HALVES if d in known]
    includes = "".join(f"#include <{_HALVES[d][0]}>\n" for d in halves)
    return includes + PRELUDE + "".join(map(_of_16_bits, halves))


def _of_16_bits(dtype: DType) -> str:
    _, to_float, from_float = _HALVES[dtype]
    named = HALF.replace("@HALF@", C_TYPES[dtype])
    return named.replace("@TO_FLOAT@", to_float).replace("@FROM_FLOAT@", from_float)


def type_names(inputs: Iterable[DType], outputs: Iterable[DType]) -> str:
    """The types T, T_IN0, T_IN1, ..., T_OUT0, ...; T is the first input's, or output's."""
    ins, outs = list(inputs), list(outputs)
    names = {f"T_IN{i}": d for i, d in enumerate(ins)} | {
        f"T_OUT{i}": d for i, d in enumerate(outs)
    }
    names["T"] = (ins or outs)[0]
    return "".join(f"typedef {C_TYPES[d]} {name};\n" for name, d in names.items())


# NVRTC has no host headers, so none of the names that come from them.
PRELUDE = r"""
#ifndef INFINITY
#define INFINITY __int_as_float(0x7f800000)
#endif
#ifndef NAN
#define NAN __int_as_float(0x7fffffff)
#endif
#ifndef M_PI
#define M_PI 3.14159265358979323846
#endif
namespace miniml {
typedef unsigned long long uint64;
template <typename A> struct Compute { typedef A type; };
template <typename A> __device__ __forceinline__ A load(A x) { return x; }
template <typename A> struct Is { static const bool integer = false; };
template <> struct Is<signed char> { static const bool integer = true; };
template <> struct Is<unsigned char> { static const bool integer = true; };
template <> struct Is<short> { static const bool integer = true; };
template <> struct Is<unsigned short> { static const bool integer = true; };
template <> struct Is<int> { static const bool integer = true; };
template <> struct Is<unsigned int> { static const bool integer = true; };
template <> struct Is<long long> { static const bool integer = true; };
template <> struct Is<unsigned long long> { static const bool integer = true; };
// The integers of a type as floating-point bounds: [low, past).
template <typename D> __device__ __forceinline__ double past() {
  double top = 1.0;
  for (int i = 0; i < 8 * (int)sizeof(D) - (D(-1) < D(1) ? 1 : 0); ++i) top *= 2.0;
  return top;
}
// From floating point to integers: towards zero, the nearest end of the range outside, 0 for NaN.
template <typename D> __device__ __forceinline__ D saturate(double x) {
  const bool is_signed = D(-1) < D(1);
  const double top = past<D>(), bottom = is_signed ? -top : 0.0;
  if (x != x) return D(0);
  if (x >= top) return D(is_signed ? ~(1ULL << (8 * sizeof(D) - 1)) : ~0ULL);
  if (x <= bottom) return D(is_signed ? 1ULL << (8 * sizeof(D) - 1) : 0ULL);
  return D(x);
}
template <typename D, typename S> struct Convert {
  static __device__ __forceinline__ D from(S x) { return D(x); }
};
template <typename S> struct Convert<bool, S> {
  static __device__ __forceinline__ bool from(S x) { return x != S(0); }
};
template <typename D, bool integer> struct FromFloat {
  static __device__ __forceinline__ D from(double x) { return D(x); }
};
template <typename D> struct FromFloat<D, true> {
  static __device__ __forceinline__ D from(double x) { return saturate<D>(x); }
};
template <typename D> struct Convert<D, float> {
  static __device__ __forceinline__ D from(float x) {
    return FromFloat<D, Is<D>::integer>::from(x);
  }
};
template <typename D> struct Convert<D, double> {
  static __device__ __forceinline__ D from(double x) {
    return FromFloat<D, Is<D>::integer>::from(x);
  }
};
template <> struct Convert<float, float> {
  static __device__ __forceinline__ float from(float x) { return x; }
};
template <> struct Convert<float, double> {
  static __device__ __forceinline__ float from(double x) { return (float)x; }
};
template <> struct Convert<bool, float> {
  static __device__ __forceinline__ bool from(float x) { return x != 0.0f; }
};
template <> struct Convert<bool, double> {
  static __device__ __forceinline__ bool from(double x) { return x != 0.0; }
};
// A computed number as a stored one.
template <typename D, typename S> __device__ __forceinline__ D store(S x) {
  return Convert<D, S>::from(x);
}
template <typename A> __device__ __forceinline__ bool is_nan(A x) { return !(x == x); }
template <typename A> __device__ __forceinline__ bool is_inf(A) { return false; }
__device__ __forceinline__ bool is_inf(float x) { return fabsf(x) == INFINITY; }
__device__ __forceinline__ bool is_inf(double x) { return fabs(x) == (double)INFINITY; }
template <typename A> __device__ __forceinline__ A nan_max(A x, A y) {
  return (x > y || is_nan(x)) ? x : y;
}
template <typename A> __device__ __forceinline__ A nan_min(A x, A y) {
  return (x < y || is_nan(x)) ? x : y;
}
template <typename A> __device__ __forceinline__ A sign(A x) {
  return is_nan(x) ? x : A(A(0) < x) - A(x < A(0));
}
template <typename A> __device__ __forceinline__ A wrapped_quotient(A x, A y) {
  return A(-1) < A(1) && y == A(-1) ? A(0ULL - (unsigned long long)x) : A(x / y);
}
// Integers towards minus infinity; by 0 they give 0.
template <typename A> __device__ __forceinline__ A int_floor_div(A x, A y) {
  if (y == A(0)) return A(0);
  A q = wrapped_quotient(x, y);
  bool inexact = !(A(-1) < A(1) && y == A(-1)) && x % y != A(0);
  return inexact && ((x < A(1)) != (y < A(1))) ? A(q - A(1)) : q;
}
template <typename A> __device__ __forceinline__ A int_mod(A x, A y) {
  if (y == A(0) || (A(-1) < A(1) && y == A(-1))) return A(0);
  A r = A(x % y);
  return r != A(0) && ((r < A(1)) != (y < A(1))) ? A(r + y) : r;
}
template <typename A> __device__ __forceinline__ A float_mod(A x, A y) {
  A r = fmod(x, y);
  if (r == A(0)) return copysign(A(0), y);
  return (r < A(0)) != (y < A(0)) ? r + y : r;
}
template <typename A> __device__ __forceinline__ A float_floor_div(A x, A y) {
  if (y == A(0)) return x / y;
  A r = fmod(x, y), q = (x - r) / y;
  if (r != A(0) && (r < A(0)) != (y < A(0))) q -= A(1);
  if (q == A(0)) return copysign(A(0), x / y);
  A whole = floor(q);
  return q - whole > A(0.5) ? whole + A(1) : whole;
}
// Integers to integer powers, modulo 2^bits; 0 where the power is negative, but for 1 and -1.
template <typename A> __device__ __forceinline__ A int_pow(A x, A y) {
  if (y < A(1) && y != A(0))
    return x == A(1) ? A(1) : x == A(-1) ? (y % A(2) ? A(-1) : A(1)) : A(0);
  unsigned long long base = (unsigned long long)x, result = 1ULL;
  for (unsigned long long n = (unsigned long long)y; n; n >>= 1) {
    if (n & 1ULL) result *= base;
    base *= base;
  }
  return A(result);
}
}  // namespace miniml
"""

# What a type of 16 bits adds: it is loaded as float, and stored from it.
HALF = r"""
namespace miniml {
template <> struct Compute<@HALF@> { typedef float type; };
__device__ __forceinline__ float load(@HALF@ x) { return @TO_FLOAT@(x); }
template <typename S> struct Convert<@HALF@, S> {
  static __device__ __forceinline__ @HALF@ from(S x) { return @FROM_FLOAT@((float)x); }
};
template <> struct Convert<@HALF@, float> {
  static __device__ __forceinline__ @HALF@ from(float x) { return @FROM_FLOAT@(x); }
};
template <> struct Convert<@HALF@, double> {
  static __device__ __forceinline__ @HALF@ from(double x) { return @FROM_FLOAT@((float)x); }
};
}  // namespace miniml
"""
