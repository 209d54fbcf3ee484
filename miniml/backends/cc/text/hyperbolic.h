/* sinh, cosh, asinh, acosh, atanh: of float32 in float64, by rough logarithms and powers. */
#include "rough.h"
#include "exp.h"
#include "log.h"

/* sinh(x) = x + x^3 p(x^2) up to 1, p to 2^-34 of it or, below, to 2^-61. */
static inline double miniml_rough_sinh(double x) {
  const double z = x * x;
  double p = 0x1.7a15b2ea5e359p-19;
  p = miniml_madd64(p, z, 0x1.9ffe9276489e9p-13);
  p = miniml_madd64(p, z, 0x1.111134fb89ad4p-7);
  p = miniml_madd64(p, z, 0x1.5555551b3ae04p-3);
  return miniml_madd64(x * z, p, x);
}
static inline double miniml_near_sinh(double x) {
  const double z = x * x;
  double p = 0x1.fd20439723fap-48;
  p = miniml_madd64(p, z, 0x1.a55794e22c922p-41);
  p = miniml_madd64(p, z, 0x1.6132914b484e5p-33);
  p = miniml_madd64(p, z, 0x1.ae643fb84f68bp-26);
  p = miniml_madd64(p, z, 0x1.71de3a6987ff8p-19);
  p = miniml_madd64(p, z, 0x1.a01a01a006f5p-13);
  p = miniml_madd64(p, z, 0x1.111111111119bp-7);
  p = miniml_madd64(p, z, 0x1.5555555555555p-3);
  return miniml_madd64(x * z, p, x);
}

/* exp(|x|), beyond the range of float32 held within that of float64. */
static inline double miniml_growth(float x) {
  const double a = __builtin_fabsf(x), held = a > 100 ? 100 : a;
  return miniml_rough_exp2(held * 0x1.71547652b82fep+0);
}
static inline float miniml_sinh_float32(float x) {
  const double e = miniml_growth(x), far = __builtin_copysign(0.5 * (e - 1 / e), x);
  return (float)(__builtin_fabsf(x) < 1 ? miniml_rough_sinh(x) : far);
}
static inline float miniml_cosh_float32(float x) {
  const double e = miniml_growth(x);
  return (float)(0.5 * (e + 1 / e));
}

/* Half of exp(|x|), which may be in range where exp(|x|) is not; *small is half of exp(-|x|). */
static inline double miniml_halves(double x, double *small) {
  const double a = __builtin_fabs(x), held = a > 711 ? 711 : a;
  const double n = miniml_madd64(held, 0x1.71547652b82fep+0, MINIML_ROUND64) - MINIML_ROUND64;
  const double p = miniml_expm1_rest64(miniml_exp_reduced64(held, n));
  *small = miniml_scaled64(0, 1 / (1 + p), MINIML_ROUND64 + 2045 - n);
  return miniml_scaled64(1, p, MINIML_ROUND64 + 2045 + n);
}
static inline double miniml_sinh_float64(double x) {
  double small;
  const double large = miniml_halves(x, &small), far = __builtin_copysign(large - small, x);
  return __builtin_fabs(x) < 1 ? miniml_near_sinh(x) : far;
}
static inline double miniml_cosh_float64(double x) {
  double small;
  const double large = miniml_halves(x, &small);
  return large + small;
}

/* log(y) of a positive y whose logarithm is not near 0. */
static inline double miniml_rough_log(double y) {
  return miniml_rough_log2(y) * 0x1.62e42fefa39efp-1;
}
static inline float miniml_asinh_float32(float x) {
  const double a = __builtin_fabsf(x), far = miniml_rough_log(a + __builtin_sqrt(a * a + 1));
  const double near = a - a * a * a * (1.0 / 6);
  return (float)__builtin_copysign(a < 0x1p-10 ? near : far, x);
}
static inline float miniml_acosh_float32(float x) {
  const double t = (double)x - 1;
  return (float)miniml_rough_log(1 + (t + __builtin_sqrt(t * __builtin_fabs(t + 2))));
}
static inline float miniml_atanh_float32(float x) {
  const double a = __builtin_fabsf(x), far = 0.5 * miniml_rough_log((1 + a) / (1 - a));
  const double near = a + a * a * a * (1.0 / 3);
  return (float)__builtin_copysign(a < 0x1p-10 ? near : far, x);
}

/* From 2^60 on asinh and acosh are log(2 x); below they are log(1 + u), where u has no square of a
   large number. */
static inline double miniml_asinh_float64(double x) {
  const double a = __builtin_fabs(x), held = a > 0x1p60 ? 1 : a, square = held * held;
  const double u = held + square / (1 + __builtin_sqrt(1 + square));
  const double y = miniml_log1p_float64(a > 0x1p60 ? a : u);
  return __builtin_copysign(a > 0x1p60 ? y + 0x1.62e42fefa39efp-1 : y, x);
}
static inline double miniml_acosh_float64(double x) {
  const double t = (x > 0x1p60 ? 1 : x) - 1;
  const double u = t + __builtin_sqrt(t * __builtin_fabs(t + 2));
  const double y = miniml_log1p_float64(x > 0x1p60 ? x : u);
  return x > 0x1p60 ? y + 0x1.62e42fefa39efp-1 : y;
}
static inline double miniml_atanh_float64(double x) {
  const double a = __builtin_fabs(x);
  return __builtin_copysign(0.5 * miniml_log1p_float64(2 * a / (1 - a)), x);
}
