// The mathematical functions that NVRTC knows without a header, for float and double.
#pragma once

// libm's own, so that the numbers are those of any C program on this machine.
#define SIM_LIBM1(NAME)                                        \
  extern "C" double NAME(double) noexcept;                     \
  extern "C" float NAME##f(float) noexcept;                    \
  SIM_INLINE float NAME(float x) { return NAME##f(x); }
#define SIM_LIBM2(NAME)                                        \
  extern "C" double NAME(double, double) noexcept;             \
  extern "C" float NAME##f(float, float) noexcept;             \
  SIM_INLINE float NAME(float x, float y) { return NAME##f(x, y); }
SIM_LIBM1(acos) SIM_LIBM1(acosh) SIM_LIBM1(asin) SIM_LIBM1(asinh) SIM_LIBM1(atan) SIM_LIBM1(atanh)
SIM_LIBM1(cbrt) SIM_LIBM1(ceil) SIM_LIBM1(cos) SIM_LIBM1(cosh) SIM_LIBM1(erf) SIM_LIBM1(erfc)
SIM_LIBM1(exp) SIM_LIBM1(exp2) SIM_LIBM1(expm1) SIM_LIBM1(fabs) SIM_LIBM1(floor)
SIM_LIBM1(lgamma) SIM_LIBM1(log) SIM_LIBM1(log10) SIM_LIBM1(log1p) SIM_LIBM1(log2) SIM_LIBM1(logb)
SIM_LIBM1(nearbyint) SIM_LIBM1(rint) SIM_LIBM1(round) SIM_LIBM1(sin) SIM_LIBM1(sinh)
SIM_LIBM1(sqrt) SIM_LIBM1(tan) SIM_LIBM1(tanh) SIM_LIBM1(tgamma) SIM_LIBM1(trunc)
SIM_LIBM1(j0) SIM_LIBM1(j1) SIM_LIBM1(y0) SIM_LIBM1(y1)
SIM_LIBM2(atan2) SIM_LIBM2(copysign) SIM_LIBM2(fdim) SIM_LIBM2(fmax) SIM_LIBM2(fmin)
SIM_LIBM2(fmod) SIM_LIBM2(hypot) SIM_LIBM2(nextafter) SIM_LIBM2(pow) SIM_LIBM2(remainder)
extern "C" {
double fma(double, double, double) noexcept;
float fmaf(float, float, float) noexcept;
double ldexp(double, int) noexcept;
float ldexpf(float, int) noexcept;
double frexp(double, int*) noexcept;
float frexpf(float, int*) noexcept;
double modf(double, double*) noexcept;
float modff(float, float*) noexcept;
int ilogb(double) noexcept;
int ilogbf(float) noexcept;
long lrint(double) noexcept;
long lrintf(float) noexcept;
long lround(double) noexcept;
long lroundf(float) noexcept;
long long llrint(double) noexcept;
long long llrintf(float) noexcept;
long long llround(double) noexcept;
long long llroundf(float) noexcept;
int abs(int) noexcept;
long labs(long) noexcept;
long long llabs(long long) noexcept;
}
SIM_INLINE float fma(float x, float y, float z) { return fmaf(x, y, z); }
SIM_INLINE float ldexp(float x, int n) { return ldexpf(x, n); }
SIM_ALWAYS_INLINE float frexp(float x, int* n) { return frexpf(x, n); }
SIM_ALWAYS_INLINE float modf(float x, float* whole) { return modff(x, whole); }
SIM_INLINE long long llrint(float x) { return llrintf(x); }
SIM_INLINE long abs(long x) { return labs(x); }
SIM_INLINE long long abs(long long x) { return llabs(x); }
SIM_INLINE float abs(float x) { return fabsf(x); }
SIM_INLINE double abs(double x) { return fabs(x); }
SIM_INLINE float scalbnf(float x, int n) { return ldexpf(x, n); }
SIM_INLINE double scalbn(double x, int n) { return ldexp(x, n); }

#define SIM_CLASSIFY(T)                                                  \
  SIM_INLINE bool isnan(T x) { return x != x; }                          \
  SIM_INLINE bool isinf(T x) { return __builtin_isinf(x) != 0; }         \
  SIM_INLINE bool isfinite(T x) { return __builtin_isfinite(x) != 0; }   \
  SIM_INLINE bool signbit(T x) { return __builtin_signbit(x) != 0; }
SIM_CLASSIFY(float)
SIM_CLASSIFY(double)

// What CUDA adds. Through double where float would lose digits on the way.
constexpr double sim_pi = 3.14159265358979323846, sim_sqrt_half = 0.70710678118654752440;
SIM_INLINE double rsqrt(double x) { return 1.0 / sqrt(x); }
SIM_INLINE float rsqrtf(float x) { return (float)rsqrt((double)x); }
SIM_INLINE float rsqrt(float x) { return rsqrtf(x); }
SIM_INLINE double rcbrt(double x) { return 1.0 / cbrt(x); }
SIM_INLINE float rcbrtf(float x) { return (float)rcbrt((double)x); }
SIM_INLINE double exp10(double x) { return pow(10.0, x); }
SIM_INLINE float exp10f(float x) { return (float)exp10((double)x); }
SIM_INLINE double sinpi(double x) { return sin(sim_pi * fmod(x, 2.0)); }
SIM_INLINE double cospi(double x) { return cos(sim_pi * fmod(x, 2.0)); }
SIM_INLINE float sinpif(float x) { return (float)sinpi((double)x); }
SIM_INLINE float cospif(float x) { return (float)cospi((double)x); }
SIM_INLINE double rhypot(double x, double y) { return 1.0 / hypot(x, y); }
SIM_INLINE float rhypotf(float x, float y) { return (float)rhypot((double)x, (double)y); }
// The largest number goes out of the root, so that no square overflows.
SIM_INLINE double norm4d(double x, double y, double z, double w) {
  return hypot(hypot(x, y), hypot(z, w));
}
SIM_INLINE double norm3d(double x, double y, double z) { return hypot(hypot(x, y), z); }
SIM_INLINE double rnorm3d(double x, double y, double z) { return 1.0 / norm3d(x, y, z); }
SIM_INLINE double rnorm4d(double x, double y, double z, double w) {
  return 1.0 / norm4d(x, y, z, w);
}
SIM_INLINE float norm3df(float x, float y, float z) { return (float)norm3d(x, y, z); }
SIM_INLINE float norm4df(float x, float y, float z, float w) { return (float)norm4d(x, y, z, w); }
SIM_INLINE float rnorm3df(float x, float y, float z) { return (float)rnorm3d(x, y, z); }
SIM_INLINE float rnorm4df(float x, float y, float z, float w) {
  return (float)rnorm4d(x, y, z, w);
}
SIM_INLINE double normcdf(double x) { return 0.5 * erfc(-x * sim_sqrt_half); }
SIM_INLINE float normcdff(float x) { return (float)normcdf((double)x); }
SIM_ALWAYS_INLINE void sincos(double x, double* s, double* c) { *s = sin(x), *c = cos(x); }
SIM_ALWAYS_INLINE void sincosf(float x, float* s, float* c) { *s = sinf(x), *c = cosf(x); }
SIM_ALWAYS_INLINE void sincospi(double x, double* s, double* c) { *s = sinpi(x), *c = cospi(x); }
SIM_ALWAYS_INLINE void sincospif(float x, float* s, float* c) { *s = sinpif(x), *c = cospif(x); }
// Winitzki's approximation (2008), and Halley's steps on erf, or on erfc where z = 1 - y is small:
// for y and z in (0, 1), the one of them that is small being exact.
SIM_INLINE double sim_erfinv(double y, double z) {
  double w = log(z * (1.0 + y)), a = 2.0 / (sim_pi * 0.147) + w / 2.0;
  double x = sqrt(sqrt(a * a - w / 0.147) - a);
  for (int i = 0; i < 3; ++i) {
    double error = y > 0.5 ? z - erfc(x) : erf(x) - y;
    double step = error / (1.12837916709551257390 * exp(-x * x));
    x -= step / (1.0 + x * step);
  }
  return x;
}
SIM_INLINE double erfinv(double y) {
  double z = fabs(y);
  if (!(z < 1.0)) return z == 1.0 ? copysign(__builtin_inf(), y) : __builtin_nan("");
  return z == 0.0 ? y : copysign(sim_erfinv(z, 1.0 - z), y);
}
SIM_INLINE double erfcinv(double y) {
  if (!(y > 0.0 && y < 1.0)) return y > 0.0 && y < 2.0 ? -erfinv(y - 1.0) :
      y == 0.0 ? __builtin_inf() : y == 2.0 ? -__builtin_inf() : __builtin_nan("");
  return sim_erfinv(1.0 - y, y);
}
SIM_INLINE double normcdfinv(double p) { return -erfcinv(2.0 * p) / sim_sqrt_half; }
SIM_INLINE float erfinvf(float y) { return (float)erfinv((double)y); }
SIM_INLINE float erfcinvf(float y) { return (float)erfcinv((double)y); }
SIM_INLINE float normcdfinvf(float p) { return (float)normcdfinv((double)p); }
SIM_INLINE float saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }
SIM_INLINE float __saturatef(float x) { return saturatef(x); }

// min and max, with NVRTC's overloads: those of two unlike classes are ambiguous there too.
#define SIM_MINMAX(T, A, B)                                             \
  SIM_INLINE T max(A x, B y) { return (T)x > (T)y ? (T)x : (T)y; }      \
  SIM_INLINE T min(A x, B y) { return (T)x < (T)y ? (T)x : (T)y; }
SIM_MINMAX(int, int, int)
SIM_MINMAX(unsigned, unsigned, unsigned)
SIM_MINMAX(unsigned, int, unsigned)
SIM_MINMAX(unsigned, unsigned, int)
SIM_MINMAX(long, long, long)
SIM_MINMAX(unsigned long, unsigned long, unsigned long)
SIM_MINMAX(unsigned long, long, unsigned long)
SIM_MINMAX(unsigned long, unsigned long, long)
SIM_MINMAX(long long, long long, long long)
SIM_MINMAX(unsigned long long, unsigned long long, unsigned long long)
SIM_MINMAX(unsigned long long, long long, unsigned long long)
SIM_MINMAX(unsigned long long, unsigned long long, long long)
SIM_INLINE float max(float x, float y) { return fmaxf(x, y); }
SIM_INLINE float min(float x, float y) { return fminf(x, y); }
SIM_INLINE double max(double x, double y) { return fmax(x, y); }
SIM_INLINE double min(double x, double y) { return fmin(x, y); }
SIM_INLINE double max(float x, double y) { return fmax((double)x, y); }
SIM_INLINE double max(double x, float y) { return fmax(x, (double)y); }
SIM_INLINE double min(float x, double y) { return fmin((double)x, y); }
SIM_INLINE double min(double x, float y) { return fmin(x, (double)y); }
#define SIM_MINMAX_NAMED(PREFIX, T)                                     \
  SIM_INLINE T PREFIX##max(T x, T y) { return x > y ? x : y; }          \
  SIM_INLINE T PREFIX##min(T x, T y) { return x < y ? x : y; }
SIM_MINMAX_NAMED(u, unsigned)
SIM_MINMAX_NAMED(ll, long long)
SIM_MINMAX_NAMED(ull, unsigned long long)

// Fast and rounded intrinsics: the accurate functions, since only an error bound is promised.
#define SIM_FAST1(NAME, EXACT) SIM_INLINE float NAME(float x) { return EXACT(x); }
SIM_FAST1(__expf, expf) SIM_FAST1(__exp10f, exp10f) SIM_FAST1(__logf, logf)
SIM_FAST1(__log2f, log2f) SIM_FAST1(__log10f, log10f) SIM_FAST1(__sinf, sinf)
SIM_FAST1(__cosf, cosf) SIM_FAST1(__tanf, tanf) SIM_FAST1(__fsqrt_rn, sqrtf)
SIM_FAST1(__frsqrt_rn, rsqrtf) SIM_FAST1(__tanhf, tanhf)
SIM_ALWAYS_INLINE void __sincosf(float x, float* s, float* c) { sincosf(x, s, c); }
SIM_INLINE float __powf(float x, float y) { return powf(x, y); }
SIM_INLINE float fdividef(float x, float y) { return x / y; }
SIM_INLINE float __fdividef(float x, float y) { return x / y; }
SIM_INLINE float __frcp_rn(float x) { return 1.0f / x; }
SIM_INLINE double __drcp_rn(double x) { return 1.0 / x; }
SIM_INLINE double __dsqrt_rn(double x) { return sqrt(x); }
#define SIM_ROUNDED(P, T)                                               \
  SIM_INLINE T __##P##add_rn(T x, T y) { return x + y; }                \
  SIM_INLINE T __##P##sub_rn(T x, T y) { return x - y; }                \
  SIM_INLINE T __##P##mul_rn(T x, T y) { return x * y; }                \
  SIM_INLINE T __##P##div_rn(T x, T y) { return x / y; }
SIM_ROUNDED(f, float)
SIM_ROUNDED(d, double)
SIM_INLINE float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
SIM_INLINE double __fma_rn(double x, double y, double z) { return fma(x, y, z); }

// Conversions to integers end at the nearest integer of the type, as the hardware's do; NaN is 0.
template <typename D>
SIM_UNCHECKED static inline D sim_saturate(double x, double low, double past) {
  if (x != x) return 0;
  if (x >= past) return (D)-1 < (D)1 ? (D)~((D)1 << (8 * sizeof(D) - 1)) : (D)~(D)0;
  if (x <= low) return (D)-1 < (D)1 ? (D)((unsigned long long)1 << (8 * sizeof(D) - 1)) : (D)0;
  return (D)x;
}
#define SIM_TO_INTEGER(FROM, T, NAME, D, LOW, PAST)                                            \
  SIM_INLINE D __##FROM##2##NAME##_rn(T x) { return sim_saturate<D>(rint(x), LOW, PAST); }     \
  SIM_INLINE D __##FROM##2##NAME##_rz(T x) { return sim_saturate<D>(trunc(x), LOW, PAST); }    \
  SIM_INLINE D __##FROM##2##NAME##_rd(T x) { return sim_saturate<D>(floor(x), LOW, PAST); }    \
  SIM_INLINE D __##FROM##2##NAME##_ru(T x) { return sim_saturate<D>(ceil(x), LOW, PAST); }
#define SIM_TO_INTEGERS(FROM, T)                                         \
  SIM_TO_INTEGER(FROM, T, int, int, -0x1p31, 0x1p31)                     \
  SIM_TO_INTEGER(FROM, T, uint, unsigned, 0.0, 0x1p32)                   \
  SIM_TO_INTEGER(FROM, T, ll, long long, -0x1p63, 0x1p63)                \
  SIM_TO_INTEGER(FROM, T, ull, unsigned long long, 0.0, 0x1p64)
SIM_TO_INTEGERS(float, float)
SIM_TO_INTEGERS(double, double)
SIM_INLINE float __double2float_rn(double x) { return (float)x; }
SIM_INLINE float __int2float_rn(int x) { return (float)x; }
SIM_INLINE float __uint2float_rn(unsigned x) { return (float)x; }
SIM_INLINE float __ll2float_rn(long long x) { return (float)x; }
SIM_INLINE float __ull2float_rn(unsigned long long x) { return (float)x; }
SIM_INLINE double __int2double_rn(int x) { return x; }
SIM_INLINE double __ll2double_rn(long long x) { return (double)x; }
