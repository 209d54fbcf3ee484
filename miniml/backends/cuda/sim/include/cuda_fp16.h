// __half: IEEE binary16, rounded once after every operation, as the hardware does.
#pragma once

SIM_UNCHECKED SIM_INLINE float sim_half_to_float(unsigned short h) {
  unsigned sign = (unsigned)(h & 0x8000u) << 16, exponent = h >> 10 & 31u, mantissa = h & 0x3ffu;
  if (exponent == 31) return __uint_as_float(sign | 0x7f800000u | mantissa << 13);
  if (exponent) return __uint_as_float(sign | (exponent + 112) << 23 | mantissa << 13);
  float subnormal = (float)mantissa * 0x1p-24f;
  return sign ? -subnormal : subnormal;
}
// Any double is rounded once: through float it would be rounded twice.
SIM_UNCHECKED SIM_INLINE unsigned short sim_to_half(double x) {
  unsigned short sign = __builtin_signbit(x) ? 0x8000 : 0;
  double magnitude = __builtin_fabs(x);
  if (x != x) return 0x7fff;
  if (magnitude >= 65520.0) return sign | 0x7c00;
  if (magnitude < 0x1p-14) return sign | (unsigned short)__builtin_rint(magnitude * 0x1p24);
  unsigned long long bits = sim_bits<unsigned long long>(magnitude);
  bits += (1ULL << 41) - 1 + (bits >> 42 & 1);  // to nearest, ties to even
  return sign | (unsigned short)((bits >> 42) - ((1023ULL - 15) << 10));
}

struct __attribute__((aligned(2))) __half {
  unsigned short bits;
  __half() = default;
  __half(float x) : bits(sim_to_half(x)) {}
  __half(double x) : bits(sim_to_half(x)) {}
  __half(int x) : bits(sim_to_half(x)) {}
  __half(unsigned x) : bits(sim_to_half(x)) {}
  __half(long long x) : bits(sim_to_half((double)x)) {}
  __half(unsigned long long x) : bits(sim_to_half((double)x)) {}
  operator float() const { return sim_half_to_float(bits); }
};
typedef __half half;
struct __attribute__((aligned(4))) __half2 {
  __half x, y;
};
typedef __half2 half2;

SIM_INLINE float __half2float(__half h) { return h; }
SIM_INLINE __half __float2half(float x) { return __half(x); }
SIM_INLINE __half __float2half_rn(float x) { return __half(x); }
SIM_INLINE __half __double2half(double x) { return __half(x); }
SIM_INLINE __half __int2half_rn(int x) { return __half(x); }
SIM_INLINE __half __ushort_as_half(unsigned short x) { return sim_bits<__half>(x); }
SIM_INLINE unsigned short __half_as_ushort(__half x) { return x.bits; }
SIM_INLINE __half2 __halves2half2(__half x, __half y) { return {x, y}; }
SIM_INLINE __half2 make_half2(__half x, __half y) { return {x, y}; }
SIM_INLINE __half2 __float2half2_rn(float x) { return {__half(x), __half(x)}; }
SIM_INLINE __half2 __half2half2(__half x) { return {x, x}; }
SIM_INLINE __half2 __floats2half2_rn(float x, float y) { return {__half(x), __half(y)}; }
SIM_INLINE __half2 __float22half2_rn(float2 x) { return {__half(x.x), __half(x.y)}; }
SIM_INLINE float2 __half22float2(__half2 h) { return {(float)h.x, (float)h.y}; }
SIM_INLINE __half __low2half(__half2 h) { return h.x; }
SIM_INLINE __half __high2half(__half2 h) { return h.y; }
SIM_INLINE float __low2float(__half2 h) { return h.x; }
SIM_INLINE float __high2float(__half2 h) { return h.y; }

#define SIM_HALF_OPERATION(T, T2, NAME, OP)                                              \
  SIM_INLINE T NAME(T x, T y) { return T((double)(float)x OP (double)(float)y); }        \
  SIM_INLINE T2 NAME##2(T2 x, T2 y) { return {NAME(x.x, y.x), NAME(x.y, y.y)}; }         \
  SIM_INLINE T operator OP(T x, T y) { return NAME(x, y); }                              \
  SIM_INLINE T& operator OP##=(T& x, T y) { return x = NAME(x, y); }
#define SIM_HALF_COMPARISON(T, NAME, OP)                                                 \
  SIM_INLINE bool NAME(T x, T y) { return (float)x OP (float)y; }                        \
  SIM_INLINE bool operator OP(T x, T y) { return (float)x OP (float)y; }
#define SIM_HALF_ARITHMETIC(T, T2)                                                       \
  SIM_HALF_OPERATION(T, T2, __hadd, +)                                                   \
  SIM_HALF_OPERATION(T, T2, __hsub, -)                                                   \
  SIM_HALF_OPERATION(T, T2, __hmul, *)                                                   \
  SIM_INLINE T __hdiv(T x, T y) { return T((double)((float)x) / (double)(float)y); }     \
  SIM_INLINE T operator/(T x, T y) { return __hdiv(x, y); }                              \
  SIM_INLINE T& operator/=(T& x, T y) { return x = __hdiv(x, y); }                       \
  SIM_HALF_COMPARISON(T, __heq, ==)                                                      \
  SIM_HALF_COMPARISON(T, __hne, !=)                                                      \
  SIM_HALF_COMPARISON(T, __hlt, <)                                                       \
  SIM_HALF_COMPARISON(T, __hle, <=)                                                      \
  SIM_HALF_COMPARISON(T, __hgt, >)                                                       \
  SIM_HALF_COMPARISON(T, __hge, >=)                                                      \
  SIM_INLINE T __hneg(T x) { return T(-(float)x); }                                      \
  SIM_INLINE T operator-(T x) { return __hneg(x); }                                      \
  SIM_INLINE T __habs(T x) { return T(__builtin_fabsf((float)x)); }                      \
  SIM_INLINE bool __hisnan(T x) { return (float)x != (float)x; }                         \
  SIM_INLINE bool __hisinf(T x) { return __builtin_isinf((float)x); }                    \
  SIM_INLINE T __hmax(T x, T y) { return T(__builtin_fmaxf((float)x, (float)y)); }       \
  SIM_INLINE T __hmin(T x, T y) { return T(__builtin_fminf((float)x, (float)y)); }       \
  SIM_INLINE T __hfma(T x, T y, T z) {                                                   \
    return T((double)(float)x * (double)(float)y + (double)(float)z);                    \
  }                                                                                      \
  SIM_INLINE T2 __hfma2(T2 x, T2 y, T2 z) {                                              \
    return {__hfma(x.x, y.x, z.x), __hfma(x.y, y.y, z.y)};                               \
  }                                                                                      \
  SIM_INLINE T hsqrt(T x) { return T(__builtin_sqrt((double)(float)x)); }                \
  SIM_INLINE T hexp(T x) { return T(__builtin_exp((double)(float)x)); }                  \
  SIM_INLINE T hlog(T x) { return T(__builtin_log((double)(float)x)); }                  \
  SIM_INLINE T hrcp(T x) { return T(1.0 / (double)(float)x); }                           \
  SIM_INLINE T hrsqrt(T x) { return T(1.0 / __builtin_sqrt((double)(float)x)); }         \
  SIM_INLINE T hfloor(T x) { return T(__builtin_floorf((float)x)); }                     \
  SIM_INLINE T hceil(T x) { return T(__builtin_ceilf((float)x)); }                       \
  SIM_INLINE T hrint(T x) { return T(__builtin_rintf((float)x)); }                       \
  SIM_ATOMIC_BODY T atomicAdd(T* address, T value) {                                     \
    sim_atomic(address, sizeof(T), 1, __builtin_return_address(0));                      \
    T old = *address;                                                                    \
    *address = __hadd(old, value);                                                       \
    return old;                                                                          \
  }                                                                                      \
  SIM_ATOMIC_BODY T2 atomicAdd(T2* address, T2 value) {                                  \
    sim_atomic(address, sizeof(T2), 1, __builtin_return_address(0));                     \
    T2 old = *address;                                                                   \
    *address = __hadd2(old, value);                                                      \
    return old;                                                                          \
  }
SIM_HALF_ARITHMETIC(__half, __half2)
