// __nv_bfloat16: the upper half of a float, rounded once after every operation.
#pragma once
#include "cuda_fp16.h"

SIM_UNCHECKED SIM_INLINE unsigned short sim_to_bfloat16(double x) {
  if (x != x) return 0x7fff;
  // A double on the way: to odd first, so that rounding to the 8 bits kept happens once.
  float f = (float)x;
  unsigned bits = __float_as_uint(f);
  if ((double)f != x && !__builtin_isinf(f)) {
    if (__builtin_fabs((double)f) > __builtin_fabs(x)) --bits;
    bits |= 1u;
  }
  return (unsigned short)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

struct __attribute__((aligned(2))) __nv_bfloat16 {
  unsigned short bits;
  __nv_bfloat16() = default;
  __nv_bfloat16(float x) : bits(sim_to_bfloat16(x)) {}
  __nv_bfloat16(double x) : bits(sim_to_bfloat16(x)) {}
  __nv_bfloat16(int x) : bits(sim_to_bfloat16(x)) {}
  __nv_bfloat16(unsigned x) : bits(sim_to_bfloat16(x)) {}
  __nv_bfloat16(long long x) : bits(sim_to_bfloat16((double)x)) {}
  __nv_bfloat16(unsigned long long x) : bits(sim_to_bfloat16((double)x)) {}
  operator float() const { return __uint_as_float((unsigned)bits << 16); }
};
typedef __nv_bfloat16 nv_bfloat16;
struct __attribute__((aligned(4))) __nv_bfloat162 {
  __nv_bfloat16 x, y;
  __nv_bfloat162() = default;
  __nv_bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) : x(x), y(y) {}
};
typedef __nv_bfloat162 nv_bfloat162;

SIM_INLINE float __bfloat162float(__nv_bfloat16 x) { return x; }
SIM_INLINE __nv_bfloat16 __float2bfloat16(float x) { return __nv_bfloat16(x); }
SIM_INLINE __nv_bfloat16 __float2bfloat16_rn(float x) { return __nv_bfloat16(x); }
SIM_INLINE __nv_bfloat16 __double2bfloat16(double x) { return __nv_bfloat16(x); }
SIM_INLINE __nv_bfloat16 __ushort_as_bfloat16(unsigned short x) {
  return sim_bits<__nv_bfloat16>(x);
}
SIM_INLINE unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) { return x.bits; }
SIM_INLINE __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return {x, y}; }
SIM_INLINE __nv_bfloat162 __floats2bfloat162_rn(float x, float y) {
  return {__nv_bfloat16(x), __nv_bfloat16(y)};
}
SIM_INLINE __nv_bfloat162 __float2bfloat162_rn(float x) {
  return {__nv_bfloat16(x), __nv_bfloat16(x)};
}
SIM_INLINE __nv_bfloat162 __float22bfloat162_rn(float2 x) {
  return {__nv_bfloat16(x.x), __nv_bfloat16(x.y)};
}
SIM_INLINE __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 x) { return {x, x}; }
SIM_INLINE __nv_bfloat16 __low2bfloat16(__nv_bfloat162 h) { return h.x; }
SIM_INLINE __nv_bfloat16 __high2bfloat16(__nv_bfloat162 h) { return h.y; }
SIM_INLINE float __low2float(__nv_bfloat162 h) { return h.x; }
SIM_INLINE float __high2float(__nv_bfloat162 h) { return h.y; }
SIM_INLINE float2 __bfloat1622float2(__nv_bfloat162 x) { return {(float)x.x, (float)x.y}; }
SIM_HALF_ARITHMETIC(__nv_bfloat16, __nv_bfloat162)
