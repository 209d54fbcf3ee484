/* pow, by exp2(y log2|x|) and the rules of C for signs, zeros and infinities; cbrt. */
#include "rough.h"
#include "exp.h"

/* The rules for negative x, given |x|^y: odd powers are negative, those that are not whole NaN, but
   for zeros and infinities. */
#define MINIML_POW_END(name, type, trunc, fabs, copysign)                  \
  static inline type name(type x, type y, type power) {                    \
    const type parity = y - 2 * trunc(y / 2);                              \
    const type made = fabs(parity) == 1 ? copysign(power, x) : power;      \
    const type broken = x < 0 ? (x > -INFINITY ? (type)NAN : made) : made; \
    return trunc(y) == y ? made : broken;                                  \
  }
MINIML_POW_END(miniml_pow_end32, float, __builtin_truncf, __builtin_fabsf, __builtin_copysignf)
MINIML_POW_END(miniml_pow_end64, double, __builtin_trunc, __builtin_fabs, __builtin_copysign)

/* 0 if the other factor is 0, be this one infinite or NaN: 1^y and x^0 are 1. */
static inline double miniml_factor(double x, double other) { return other == 0 ? 0 : x; }

static inline float miniml_pow_float32(float x, float y) {
  const double log2 = miniml_rough_log2(__builtin_fabs((double)x));
  const double t = miniml_factor(y, log2) * miniml_factor(log2, y);
  const double held = t > 300 ? 300 : t < -300 ? -300 : t;
  return miniml_pow_end32(x, y, (float)miniml_rough_exp2(held));
}

/* log2(x) is needed to 2^-65 of itself, because y multiplies its error: s = f / (2 + f), 2 s and
   2 s^3 / 3 are pairs of a number and the error of its rounding, the rest s^5 p(s^2) is not. */
static inline double miniml_pow_float64(double x, double y) {
  double e;
  const double a = __builtin_fabs(x), f = miniml_mantissa64(a, &e) - 1, below = 2 + f;
  const double s = f / below;
  const double s_low = (__builtin_fma(-s, below, f) - s * (f - (below - 2))) / below;
  const double z = s * s, z_low = miniml_madd64(2 * s, s_low, __builtin_fma(s, s, -z));
  double p = 0x1.eabd931aa8d55p-4;
  p = miniml_madd64(p, z, 0x1.de4023328e155p-4);
  p = miniml_madd64(p, z, 0x1.1120521951f96p-3);
  p = miniml_madd64(p, z, 0x1.3b1365dcad097p-3);
  p = miniml_madd64(p, z, 0x1.745d1824532b5p-3);
  p = miniml_madd64(p, z, 0x1.c71c71c5a17afp-3);
  p = miniml_madd64(p, z, 0x1.2492492492f0fp-2);
  p = miniml_madd64(p, z, 0x1.9999999999996p-2);
  /* c = 2/3 + z p, then log(1 + f) / s = 2 + z c */
  const double zp = z * p, c = 0x1.5555555555555p-1 + zp;
  const double c_low = (0x1.5555555555555p-1 - c) + zp + 0x1.5555555555555p-55;
  const double zc = z * c;
  const double zc_low = miniml_madd64(z, c_low, miniml_madd64(z_low, c, __builtin_fma(z, c, -zc)));
  const double g = 2 + zc, g_low = (2 - g) + zc + zc_low;
  const double h = g * 0x1.71547652b82fep+0;  /* by 1 / log(2) */
  const double h_lost = __builtin_fma(g, 0x1.71547652b82fep+0, -h);
  const double h_low =
      miniml_madd64(g, 0x1.777d0ffda0d24p-56, h_lost) + g_low * 0x1.71547652b82fep+0;
  const double u = s * h;
  const double u_low = miniml_madd64(s, h_low, miniml_madd64(s_low, h, __builtin_fma(s, h, -u)));
  const double l = e + u, l_low = (e == 0 ? 0 : u - (l - e)) + u_low;
  const double log2 = miniml_log_end64(a, l), log2_low = log2 - log2 == 0 ? l_low : 0;
  const double factor = miniml_factor(y, log2), held_log2 = miniml_factor(log2, y);
  const double t = factor * held_log2, held = t > 1100 ? 1100 : t < -1100 ? -1100 : t;
  const double lost = miniml_madd64(factor, log2_low, __builtin_fma(factor, held_log2, -t));
  const double t_low = held == t ? lost : 0;
  const double shifted = held + (MINIML_ROUND64 + 2046), n = shifted - (MINIML_ROUND64 + 2046);
  const double r = miniml_madd64(t_low, 0x1.62e42fefa39efp-1, (held - n) * 0x1.62e42fefa39efp-1);
  return miniml_pow_end64(x, y, miniml_scaled64(1, miniml_expm1_rest64(r), shifted));
}

/* 0, infinities and NaN are their own roots. */
static inline double miniml_cbrt_end(double x, double root) {
  const double a = __builtin_fabs(x);
  return ((a > 0) & (a < INFINITY)) ? __builtin_copysign(root, x) : x;
}
static inline float miniml_cbrt_float32(float x) {
  const double log2 = miniml_rough_log2(__builtin_fabsf(x));
  return (float)miniml_cbrt_end(x, miniml_rough_exp2(log2 * 0x1.5555555555555p-2));
}
/* A step of Newton's method from there, of a number whose cube has all its digits. */
static inline double miniml_cbrt_float64(double x) {
  const double wide = __builtin_fabs(x), a = wide < 0x1p-900 ? wide * 0x1p150 : wide;
  const double y = miniml_rough_exp2(miniml_rough_log2(a) * 0x1.5555555555555p-2), square = y * y;
  const double low = __builtin_fma(y, y, -square);
  const double over = __builtin_fma(square, y, -a) + low * y, root = y - over / (3 * square);
  return miniml_cbrt_end(x, wide < 0x1p-900 ? root * 0x1p-50 : root);
}
