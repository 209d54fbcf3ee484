"""CUDA C that every kernel may use, and units: a prelude, parameters and a text."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ....dtype import DType, bfloat16, float16
from ...expressions import functions, types
from .groups import GROUPS
from .layout import LAYOUT

C_TYPES = types.C_TYPES | {float16: "__half", bfloat16: "__nv_bfloat16"}
# For types of 16 bits: the header, and the functions to and from float.
_HALVES = {
    float16: ("cuda_fp16.h", "__half2float", "__float2half"),
    bfloat16: ("cuda_bf16.h", "__bfloat162float", "__float2bfloat16"),
}


def unit(text: str, /, **names: DType | int | str) -> str:
    """The text below the prelude and its names: a dtype's is the C type, a record's the struct with
    its fields, any other value's a macro."""
    dtypes = (value for value in names.values() if isinstance(value, np.dtype))
    return prelude(dtypes) + "".join(map(_named, names, names.values())) + text


def _named(name: str, value: DType | int | str) -> str:
    if isinstance(value, np.dtype):
        return struct(name, value) if value.names else f"typedef {C_TYPES[value]} {name};\n"
    return f"#define {name} {value}\n"


def struct(name: str, record: DType) -> str:
    """The C struct of a record of numbers, and of arrays of them."""
    fields = {field: record[field] for field in record.names or ()}
    extents = {field: "".join(f"[{n}]" for n in d.shape) for field, d in fields.items()}
    rows = (f"{C_TYPES[d.base]} {field}{extents[field]};" for field, d in fields.items())
    return f"struct {name} {{ {' '.join(rows)} }};\n"


def prelude(dtypes: Iterable[DType]) -> str:
    """The text above a kernel that uses these dtypes."""
    known = set(dtypes)
    halves = [d for d in _HALVES if d in known]
    includes = "".join(f"#include <{_HALVES[d][0]}>\n" for d in halves)
    own = functions.definitions("template <typename A> __device__ __forceinline__ ")
    library = f"namespace miniml {{\n{own}{LAYOUT}{GROUPS}}}  // namespace miniml\n"
    return includes + PRELUDE + "".join(map(_of_16_bits, halves)) + library


def _of_16_bits(dtype: DType) -> str:
    """The definitions for a type of 16 bits, which is loaded as float and stored from float."""
    c, (_, to_float, from_float) = C_TYPES[dtype], _HALVES[dtype]
    return f"""namespace miniml {{
template <> struct Compute<{c}> {{ typedef float type; }};
__device__ __forceinline__ float load({c} x) {{ return {to_float}(x); }}
template <typename S> struct Convert<{c}, S> {{
  static __device__ __forceinline__ {c} from(S x) {{ return {from_float}((float)x); }}
}};
}}  // namespace miniml
"""


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
// A thread's share of the numbers from `first` (0) to n: those a whole grid apart.
#define MINIML_FOR_FROM(i, first, n)                                                            \
  for (long long i = (first) + (long long)blockIdx.x * blockDim.x + threadIdx.x,                \
                 i##_step = (long long)gridDim.x * blockDim.x;                                  \
       i < (n); i += i##_step)
#define MINIML_FOR(i, n) MINIML_FOR_FROM(i, 0, n)
namespace miniml {
template <typename A> struct Compute { typedef A type; };
template <typename A> __device__ __forceinline__ A load(A x) { return x; }
template <typename A> constexpr bool is_float = A(0.5f) != A(0) && A(0.5f) != A(1);
template <typename A> constexpr bool is_integer = A(0.5f) == A(0);
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
  static __device__ __forceinline__ D from(S x) {
    if constexpr (is_float<S> && is_integer<D>) return saturate<D>(x);
    else if constexpr (!is_float<D> && !is_integer<D>) return x != S(0);
    else return D(x);
  }
};
// A computed number as a stored one.
template <typename D, typename S> __device__ __forceinline__ D store(S x) {
  return Convert<D, S>::from(x);
}
}  // namespace miniml
"""
