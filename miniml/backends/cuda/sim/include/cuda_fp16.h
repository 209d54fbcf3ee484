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
  __half(short x) : bits(sim_to_half(x)) {}
  __half(unsigned short x) : bits(sim_to_half(x)) {}
  __half(int x) : bits(sim_to_half(x)) {}
  __half(unsigned x) : bits(sim_to_half(x)) {}
  __half(long long x) : bits(sim_to_half((double)x)) {}
  __half(unsigned long long x) : bits(sim_to_half((double)x)) {}
  operator float() const { return sim_half_to_float(bits); }
};
typedef __half half;
struct __attribute__((aligned(4))) __half2 {
  __half x, y;
  __half2() = default;
  __half2(__half x, __half y) : x(x), y(y) {}
};
typedef __half2 half2;

SIM_INLINE float __half2float(__half h) { return h; }
SIM_INLINE __half __float2half(float x) { return __half(x); }
SIM_INLINE __half __float2half_rn(float x) { return __half(x); }
SIM_INLINE __half __double2half(double x) { return __half(x); }
#define SIM_HALF_INTEGER(NAME, I)                                                        \
  SIM_INLINE __half __##NAME##2half_rn(I x) { return __half(x); }                        \
  SIM_INLINE I __half2##NAME##_rn(__half x) { return (I)sim_half_to_##NAME(rint((float)x)); }  \
  SIM_INLINE I __half2##NAME##_rz(__half x) { return (I)sim_half_to_##NAME(trunc((float)x)); } \
  SIM_INLINE I __half2##NAME##_rd(__half x) { return (I)sim_half_to_##NAME(floor((float)x)); } \
  SIM_INLINE I __half2##NAME##_ru(__half x) { return (I)sim_half_to_##NAME(ceil((float)x)); }
#define sim_half_to_int __float2int_rz
#define sim_half_to_uint __float2uint_rz
#define sim_half_to_ll __float2ll_rz
#define sim_half_to_ull __float2ull_rz
#define sim_half_to_short(X) sim_saturate<short>(X, -32768.0, 32768.0)
#define sim_half_to_ushort(X) sim_saturate<unsigned short>(X, 0.0, 65536.0)
SIM_HALF_INTEGER(int, int)
SIM_HALF_INTEGER(uint, unsigned)
SIM_HALF_INTEGER(ll, long long)
SIM_HALF_INTEGER(ull, unsigned long long)
SIM_HALF_INTEGER(short, short)
SIM_HALF_INTEGER(ushort, unsigned short)
SIM_INLINE __half __ushort_as_half(unsigned short x) { return sim_bits<__half>(x); }
SIM_INLINE unsigned short __half_as_ushort(__half x) { return x.bits; }
SIM_INLINE __half2 __halves2half2(__half x, __half y) { return {x, y}; }
SIM_INLINE __half2 make_half2(__half x, __half y) { return {x, y}; }
SIM_INLINE __half2 __float2half2_rn(float x) { return {__half(x), __half(x)}; }
SIM_INLINE __half2 __half2half2(__half x) { return {x, x}; }
SIM_INLINE __half2 __floats2half2_rn(float x, float y) { return {__half(x), __half(y)}; }
SIM_INLINE __half2 __float22half2_rn(float2 x) { return {__half(x.x), __half(x.y)}; }
SIM_INLINE float2 __half22float2(__half2 h) { return {(float)h.x, (float)h.y}; }
SIM_INLINE __half2 __low2half2(__half2 h) { return {h.x, h.x}; }
SIM_INLINE __half2 __high2half2(__half2 h) { return {h.y, h.y}; }
SIM_INLINE __half2 __lows2half2(__half2 g, __half2 h) { return {g.x, h.x}; }
SIM_INLINE __half2 __highs2half2(__half2 g, __half2 h) { return {g.y, h.y}; }
SIM_INLINE __half2 __lowhigh2highlow(__half2 h) { return {h.y, h.x}; }
SIM_INLINE __half __low2half(__half2 h) { return h.x; }
SIM_INLINE __half __high2half(__half2 h) { return h.y; }
SIM_INLINE float __low2float(__half2 h) { return h.x; }
SIM_INLINE float __high2float(__half2 h) { return h.y; }

#define SIM_HALF_OPERATION(T, T2, NAME, OP)                                              \
  SIM_INLINE T NAME(T x, T y) { return T((double)(float)x OP (double)(float)y); }        \
  SIM_INLINE T2 NAME##2(T2 x, T2 y) { return {NAME(x.x, y.x), NAME(x.y, y.y)}; }         \
  SIM_INLINE T operator OP(T x, T y) { return NAME(x, y); }                              \
  SIM_ALWAYS_INLINE T& operator OP##=(T& x, T y) { return x = NAME(x, y); }              \
  SIM_INLINE T2 operator OP(T2 x, T2 y) { return NAME##2(x, y); }                        \
  SIM_ALWAYS_INLINE T2& operator OP##=(T2& x, T2 y) { return x = NAME##2(x, y); }
#define SIM_HALF_COMPARISON(T, T2, NAME, SHORT, OP)                                                 \
  SIM_INLINE bool NAME(T x, T y) { return (float)x OP (float)y; }                        \
  SIM_INLINE bool operator OP(T x, T y) { return (float)x OP (float)y; }                 \
  SIM_INLINE T2 NAME##2(T2 x, T2 y) {                                                    \
    return {T(NAME(x.x, y.x) ? 1.0f : 0.0f), T(NAME(x.y, y.y) ? 1.0f : 0.0f)};           \
  }                                                                                      \
  SIM_INLINE bool __hb##SHORT##2(T2 x, T2 y) { return NAME(x.x, y.x) && NAME(x.y, y.y); } \
  SIM_INLINE bool operator OP(T2 x, T2 y) { return __hb##SHORT##2(x, y); }
// One function of a number, and the same for both of a pair.
#define SIM_HALF_FUNCTION(T, T2, NAME, PAIR, RESULT)                                     \
  SIM_INLINE T NAME(T h) {                                                               \
    double x = (double)(float)h;                                                         \
    return T(RESULT);                                                                    \
  }                                                                                      \
  SIM_INLINE T2 PAIR(T2 h) { return {NAME(h.x), NAME(h.y)}; }
#define SIM_HALF_ARITHMETIC(T, T2)                                                       \
  SIM_HALF_OPERATION(T, T2, __hadd, +)                                                   \
  SIM_HALF_OPERATION(T, T2, __hsub, -)                                                   \
  SIM_HALF_OPERATION(T, T2, __hmul, *)                                                   \
  SIM_INLINE T __hdiv(T x, T y) { return T((double)((float)x) / (double)(float)y); }     \
  SIM_INLINE T2 __h2div(T2 x, T2 y) { return {__hdiv(x.x, y.x), __hdiv(x.y, y.y)}; }     \
  SIM_INLINE T operator/(T x, T y) { return __hdiv(x, y); }                              \
  SIM_INLINE T2 operator/(T2 x, T2 y) { return __h2div(x, y); }                          \
  SIM_ALWAYS_INLINE T& operator/=(T& x, T y) { return x = __hdiv(x, y); }                \
  SIM_ALWAYS_INLINE T2& operator/=(T2& x, T2 y) { return x = __h2div(x, y); }            \
  SIM_HALF_COMPARISON(T, T2, __heq, eq, ==)                                              \
  SIM_HALF_COMPARISON(T, T2, __hne, ne, !=)                                              \
  SIM_HALF_COMPARISON(T, T2, __hlt, lt, <)                                               \
  SIM_HALF_COMPARISON(T, T2, __hle, le, <=)                                              \
  SIM_HALF_COMPARISON(T, T2, __hgt, gt, >)                                               \
  SIM_HALF_COMPARISON(T, T2, __hge, ge, >=)                                              \
  SIM_HALF_FUNCTION(T, T2, __hneg, __hneg2, -x)                                          \
  SIM_INLINE T operator-(T x) { return __hneg(x); }                                      \
  SIM_INLINE T2 operator-(T2 x) { return __hneg2(x); }                                   \
  SIM_HALF_FUNCTION(T, T2, __habs, __habs2, __builtin_fabs(x))                           \
  SIM_INLINE bool __hisnan(T x) { return (float)x != (float)x; }                         \
  SIM_INLINE bool __hisinf(T x) { return __builtin_isinf((float)x); }                    \
  SIM_INLINE T __hmax(T x, T y) { return T(__builtin_fmaxf((float)x, (float)y)); }       \
  SIM_INLINE T2 __hmax2(T2 x, T2 y) { return {__hmax(x.x, y.x), __hmax(x.y, y.y)}; }     \
  SIM_INLINE T __hmax_nan(T x, T y) { return __hisnan(x) ? x : __hisnan(y) ? y : __hmax(x, y); } \
  SIM_INLINE T __hmin(T x, T y) { return T(__builtin_fminf((float)x, (float)y)); }       \
  SIM_INLINE T2 __hmin2(T2 x, T2 y) { return {__hmin(x.x, y.x), __hmin(x.y, y.y)}; }     \
  SIM_INLINE T __hmin_nan(T x, T y) { return __hisnan(x) ? x : __hisnan(y) ? y : __hmin(x, y); } \
  SIM_INLINE T __hfma(T x, T y, T z) {                                                   \
    return T((double)(float)x * (double)(float)y + (double)(float)z);                    \
  }                                                                                      \
  SIM_INLINE T2 __hfma2(T2 x, T2 y, T2 z) {                                              \
    return {__hfma(x.x, y.x, z.x), __hfma(x.y, y.y, z.y)};                               \
  }                                                                                      \
  SIM_INLINE T __hfma_relu(T x, T y, T z) { return __hmax_nan(__hfma(x, y, z), T(0.0f)); } \
  SIM_HALF_FUNCTION(T, T2, hsqrt, h2sqrt, __builtin_sqrt(x))                             \
  SIM_HALF_FUNCTION(T, T2, hexp, h2exp, __builtin_exp(x))                                \
  SIM_HALF_FUNCTION(T, T2, hexp2, h2exp2, __builtin_exp2(x))                             \
  SIM_HALF_FUNCTION(T, T2, hexp10, h2exp10, __builtin_pow(10.0, x))                      \
  SIM_HALF_FUNCTION(T, T2, hlog, h2log, __builtin_log(x))                                \
  SIM_HALF_FUNCTION(T, T2, hlog2, h2log2, __builtin_log2(x))                             \
  SIM_HALF_FUNCTION(T, T2, hlog10, h2log10, __builtin_log10(x))                          \
  SIM_HALF_FUNCTION(T, T2, hsin, h2sin, __builtin_sin(x))                                \
  SIM_HALF_FUNCTION(T, T2, hcos, h2cos, __builtin_cos(x))                                \
  SIM_HALF_FUNCTION(T, T2, hrcp, h2rcp, 1.0 / x)                                         \
  SIM_HALF_FUNCTION(T, T2, hrsqrt, h2rsqrt, 1.0 / __builtin_sqrt(x))                     \
  SIM_HALF_FUNCTION(T, T2, hfloor, h2floor, __builtin_floor(x))                          \
  SIM_HALF_FUNCTION(T, T2, hceil, h2ceil, __builtin_ceil(x))                             \
  SIM_HALF_FUNCTION(T, T2, hrint, h2rint, __builtin_rint(x))                             \
  SIM_HALF_FUNCTION(T, T2, htrunc, h2trunc, __builtin_trunc(x))                          \
  SIM_ATOMIC_BODY T atomicAdd(T* address, T value) {                                     \
    sim_atomic(address, sizeof(T), 1, __builtin_return_address(0));                      \
    T old, sum;                                                                          \
    __builtin_memcpy(&old, address, sizeof old);                                         \
    sum = __hadd(old, value);                                                            \
    __builtin_memcpy(address, &sum, sizeof sum);                                         \
    return old;                                                                          \
  }                                                                                      \
  SIM_ATOMIC_BODY T2 atomicAdd(T2* address, T2 value) {                                  \
    sim_atomic(address, sizeof(T2), 1, __builtin_return_address(0));                     \
    T2 old, sum;                                                                         \
    __builtin_memcpy(&old, address, sizeof old);                                         \
    sum = __hadd2(old, value);                                                           \
    __builtin_memcpy(address, &sum, sizeof sum);                                         \
    return old;                                                                          \
  }
SIM_HALF_ARITHMETIC(__half, __half2)
