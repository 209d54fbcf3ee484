/* erf, erfc, and normcdf, the distribution function of the normal law. */
#include "rough.h"
#include "exp.h"

/* x + x p(x^2) near 0, p to 2^-27.8 of erf(x) / x; 1 - q(|x| - 2.5) beyond, where erfc is small: q to
   2^-28.3 of erf. |x| > 4 gives 1. */
static inline float miniml_erf_float32(float x) {
  const float a = __builtin_fabsf(x), held = a > 4 ? 4 : a, z = x * x, t = held - 2.5f;
  float p = 0x1.496a3p-14f;
  p = miniml_madd32(p, z, -0x1.a3f6fep-11f);
  p = miniml_madd32(p, z, 0x1.5405bp-8f);
  p = miniml_madd32(p, z, -0x1.b7f90cp-6f);
  p = miniml_madd32(p, z, 0x1.ce2cf8p-4f);
  p = miniml_madd32(p, z, -0x1.81273ep-2f);
  p = miniml_madd32(p, z, 0x1.06eba8p-3f);
  float q = 0x1.79743p-22f;
  q = miniml_madd32(q, t, -0x1.dbfd9cp-21f);
  q = miniml_madd32(q, t, -0x1.d0f742p-19f);
  q = miniml_madd32(q, t, 0x1.07471ep-16f);
  q = miniml_madd32(q, t, -0x1.041ee8p-17f);
  q = miniml_madd32(q, t, -0x1.53d44cp-14f);
  q = miniml_madd32(q, t, 0x1.09baa4p-12f);
  q = miniml_madd32(q, t, -0x1.0f6b34p-12f);
  q = miniml_madd32(q, t, -0x1.1d7db6p-11f);
  q = miniml_madd32(q, t, 0x1.6eb13cp-9f);
  q = miniml_madd32(q, t, -0x1.90db52p-8f);
  q = miniml_madd32(q, t, 0x1.1a8b64p-7f);
  q = miniml_madd32(q, t, -0x1.119ea8p-7f);
  q = miniml_madd32(q, t, 0x1.64e39p-8f);
  q = miniml_madd32(q, t, -0x1.1d82e6p-9f);
  q = miniml_madd32(q, t, 0x1.aab86cp-12f);
  return a < 1 ? miniml_madd32(x, p, x) : __builtin_copysignf(1 - q, x);
}

/* erfc(a) = exp(-a^2) f(t) / (1 + 2 a) with t = (a - 2) / (a + 2), a = |x| <= 11; f to 2^-31. */
static inline double miniml_rough_erfc(double x) {
  const double wide = __builtin_fabs(x), a = wide > 11 ? 11 : wide, t = (a - 2) / (a + 2);
  double f = 0x1.0365601456dc1p-16;
  f = miniml_madd64(f, t, 0x1.d3587c1b85ec5p-14);
  f = miniml_madd64(f, t, 0x1.5e7a7e3ba4978p-13);
  f = miniml_madd64(f, t, -0x1.cd30d5608470dp-12);
  f = miniml_madd64(f, t, -0x1.77768f3b535dap-10);
  f = miniml_madd64(f, t, 0x1.4cf8aa093215dp-10);
  f = miniml_madd64(f, t, 0x1.1d9995dabc6ap-7);
  f = miniml_madd64(f, t, -0x1.0745130d5d2cep-7);
  f = miniml_madd64(f, t, -0x1.bc29c35b737b6p-5);
  f = miniml_madd64(f, t, 0x1.4ffa2590b174cp-3);
  f = miniml_madd64(f, t, -0x1.5407c44710455p-3);
  f = miniml_madd64(f, t, -0x1.7bf5ec84b256ap-4);
  f = miniml_madd64(f, t, 0x1.46e80e23dc92ap+0);
  const double y = miniml_rough_exp2(a * a * -0x1.71547652b82fep+0) * f / (1 + 2 * a);
  return x < 0 ? 2 - y : y;
}
static inline float miniml_erfc_float32(float x) { return (float)miniml_rough_erfc(x); }

/* 2^64 exp(-a^2 / 2) f(t) w with w = 2 c / (a + c), c = 3.25, t = w - 1, a = |x|, f to 2^-25; 0 where
   a > 16. What rounding has taken from w is `off` / (a + c); f w is too small by 0.27 `off` of itself,
   nearly, which the exponential makes up for. */
static inline float miniml_normcdf_float32(float x) {
  const float c = 3.25f, most = 16.27f;
  const float wide = __builtin_fabsf(x), a = most < wide ? most : wide;
  const float s = a + c, w = 2 * c / s, t = w - 1;
  float f = -0x1.5b54bap-80f;
  f = miniml_madd32(f, t, 0x1.95296p-80f);
  f = miniml_madd32(f, t, 0x1.5311a4p-77f);
  f = miniml_madd32(f, t, -0x1.7af01cp-77f);
  f = miniml_madd32(f, t, -0x1.4ecaa8p-74f);
  f = miniml_madd32(f, t, 0x1.62e292p-77f);
  f = miniml_madd32(f, t, 0x1.97f484p-71f);
  f = miniml_madd32(f, t, 0x1.59e566p-69f);
  f = miniml_madd32(f, t, 0x1.53f5acp-68f);
  f = miniml_madd32(f, t, 0x1.d0b31cp-68f);
  const float half = -0.5f * a, power = a * half;
  const float shifted = miniml_madd32(power, 0x1.715476p+0f, MINIML_ROUND32 + 191);
  const float n = shifted - (MINIML_ROUND32 + 191);
  const float high = miniml_fused32(a, half, n * -0x1.62e4p-1f);  /* whose product is exact */
  const float off = miniml_madd32(w, (s - c) - a, miniml_fused32(-w, s, 2 * c));
  const float r = miniml_madd32(off, 0x1.12d773p-2f, miniml_madd32(n, -0x1.7f7d1cp-20f, high));
  const float scale = miniml_real32(miniml_bits32(shifted) << 23);  /* 2^(n + 64); 0 where n is -191 */
  const float q = f * w, q_low = miniml_madd32(f, w, -q);
  const float y = (q + miniml_madd32(q, miniml_exp_rest32(r), q_low)) * scale;
  return x > 0 ? 1 - y : y;
}

/* erfc(x + low) for a = x >= 0.4 and what rounding has left of it, t = (a - 4) / (a + 4), f to
   2^-54. The quotient q of f and 1 + 2 a, the square and the exponential are each kept with the
   error of their rounding, because the three add up; d log(erfc(a)) / da is -slope, nearly. The even and the odd
   powers are two polynomials, since one would wait for itself. */
static inline double miniml_far_erfc(double x, double low) {
  const double a = x > 28 ? 28 : x, t = (a - 4) / (a + 4);
  const double z = t * t;
  double even = 0x1.a6491db52bd5fp-30, odd = 0x1.48bd51e654695p-29;
  even = miniml_madd64(even, z, -0x1.fae62c3febdf2p-27);
  odd = miniml_madd64(odd, z, -0x1.5217dfa7b0d03p-26);
  even = miniml_madd64(even, z, 0x1.db24fe837ddd7p-24);
  odd = miniml_madd64(odd, z, 0x1.4afedee9bcde3p-24);
  even = miniml_madd64(even, z, -0x1.bb3c0a3a8a11bp-21);
  odd = miniml_madd64(odd, z, 0x1.396fae24a4e0cp-22);
  even = miniml_madd64(even, z, 0x1.7f2aff3708c6ap-18);
  odd = miniml_madd64(odd, z, -0x1.7884a0620b27cp-17);
  even = miniml_madd64(even, z, -0x1.9959711e474adp-16);
  odd = miniml_madd64(odd, z, 0x1.3be03ec1f3dd6p-13);
  even = miniml_madd64(even, z, -0x1.a1df243b5d9b6p-13);
  odd = miniml_madd64(odd, z, -0x1.8d4a9a0a2debfp-11);
  even = miniml_madd64(even, z, 0x1.49c67284cbc7bp-8);
  odd = miniml_madd64(odd, z, -0x1.09623884e5b37p-6);
  even = miniml_madd64(even, z, 0x1.3079edf686986p-5);
  odd = miniml_madd64(odd, z, -0x1.0fb06dfe4a34p-4);
  even = miniml_madd64(even, z, 0x1.7fee004e123b9p-4);
  odd = miniml_madd64(odd, z, -0x1.9ddb23c3e903fp-4);
  even = miniml_madd64(even, z, 0x1.16ecefcfa539ep-4);
  odd = miniml_madd64(odd, z, 0x1.f7f5df66fd7a9p-7);
  even = miniml_madd64(even, z, -0x1.1df1ad154a28ep-3);
  const double rest = miniml_madd64(miniml_madd64(odd, t, even), t, -0x1.a9e0eaeda961cp-55);
  const double f = 0x1.3ba5916e9fd7fp+0 + rest, f_low = (0x1.3ba5916e9fd7fp+0 - f) + rest;
  const double below = 1 + 2 * a, w = 1 / below, q = f * w;
  const double lost = (2 * a - (below - 1)) * q;
  const double q_low = (__builtin_fma(-q, below, f) - lost + f_low) * w;
  const double square = a * a, slope = 2 * a + 1.7 * q;
  const double square_low = __builtin_fma(a, a, -square) + slope * low;
  const double shifted = miniml_madd64(square, -0x1.71547652b82fep+0, MINIML_ROUND64 + 2046);
  const double r = miniml_exp_reduced64(-square, shifted - (MINIML_ROUND64 + 2046)) - square_low;
  const double p = miniml_expm1_rest64(r);
  return miniml_scaled64(q, miniml_madd64(q, p, q_low), shifted);
}

/* x + x p(x^2) near 0, p to 2^-56 of erf(x) / x. */
static inline double miniml_erf_near64(double x) {
  const double z = x * x;
  double p = 0x1.0579731a59191p-34;
  p = miniml_madd64(p, z, -0x1.386aaa717088cp-30);
  p = miniml_madd64(p, z, 0x1.f7a40a4a5e7a3p-27);
  p = miniml_madd64(p, z, -0x1.5f1d35f3c20bbp-23);
  p = miniml_madd64(p, z, 0x1.b9def182f1b09p-20);
  p = miniml_madd64(p, z, -0x1.f4d1df36f03c4p-17);
  p = miniml_madd64(p, z, 0x1.f9a321a0fa518p-14);
  p = miniml_madd64(p, z, -0x1.c02db3d8ebbfcp-11);
  p = miniml_madd64(p, z, 0x1.565bcd0db0254p-8);
  p = miniml_madd64(p, z, -0x1.b82ce31284998p-6);
  p = miniml_madd64(p, z, 0x1.ce2f21a042b20p-4);
  p = miniml_madd64(p, z, -0x1.812746b0379e6p-2);
  p = miniml_madd64(p, z, 0x1.06eba8214db69p-3);
  return miniml_madd64(x, p, x);
}
/* As of float32: r to 2^-56 of erf. */
static inline double miniml_erf_float64(double x) {
  const double a = __builtin_fabs(x), held = a > 5.93 ? 5.93 : a;
  double r = -0x1.045e6f2ec71f0p-39;
  r = miniml_madd64(r, held, 0x1.615a3f7a29b34p-34);
  r = miniml_madd64(r, held, -0x1.c16dd7255ac89p-30);
  r = miniml_madd64(r, held, 0x1.63d08f1c136adp-26);
  r = miniml_madd64(r, held, -0x1.886eddf65291fp-23);
  r = miniml_madd64(r, held, 0x1.3ef5ebd843925p-20);
  r = miniml_madd64(r, held, -0x1.889ad8221a3dcp-18);
  r = miniml_madd64(r, held, 0x1.6ee4ffc20e7eap-16);
  r = miniml_madd64(r, held, -0x1.f68bb0f91e160p-15);
  r = miniml_madd64(r, held, 0x1.b105193291ad9p-14);
  r = miniml_madd64(r, held, -0x1.b9db2af048c4dp-17);
  r = miniml_madd64(r, held, -0x1.2573f07e834b3p-11);
  r = miniml_madd64(r, held, 0x1.b805f8fbb4316p-10);
  r = miniml_madd64(r, held, -0x1.a7f623fe56169p-13);
  r = miniml_madd64(r, held, -0x1.396cac30bafdap-6);
  r = miniml_madd64(r, held, 0x1.a4f4b696b3503p-4);
  r = miniml_madd64(r, held, 0x1.45f30e0ad0d44p-1);
  r = miniml_madd64(r, held, 0x1.20dd74008a72bp+0);
  r = miniml_madd64(r, held, 0x1.b8304ff2abf49p-28);
  const double far = __builtin_copysign(1 - miniml_weight_float64(-r), x);
  return a < 1 ? miniml_erf_near64(x) : far;
}
/* erf(x) < 1/2 where it is taken from 1. */
static inline double miniml_erfc_float64(double x) {
  const double a = __builtin_fabs(x), y = miniml_far_erfc(a, 0);
  return a < 0.46875 ? 1 - miniml_erf_near64(x) : (x < 0 ? 2 - y : y);
}
static inline double miniml_normcdf_float64(double x) {
  const double a = __builtin_fabs(x), held = a > 40 ? 40 : a, turned = held * M_SQRT1_2;
  const double low = __builtin_fma(held, M_SQRT1_2, -turned) - held * 0x1.bdd3413b26456p-55;
  const double far = 0.5 * miniml_far_erfc(turned, low);
  return a < 0.6640625 ? 0.5 + 0.5 * miniml_erf_near64(x * M_SQRT1_2) : (x > 0 ? 1 - far : far);
}
