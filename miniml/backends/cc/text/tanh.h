/* tanh: x + x^3 p(x^2) near 0, where the other formula cancels; 1 - 2 / (exp(2 |x|) + 1) beyond. */
#include "exp.h"

/* p to 2^-27 of tanh in float32, 2^-59 in float64; |x| > 10 (20) gives 1. */
static inline float miniml_tanh_float32(float x) {
  const float a = __builtin_fabsf(x), z = a * a;
  float p = -0x1.7512b6p-8f;
  p = miniml_madd32(p, z, 0x1.51f978p-6f);
  p = miniml_madd32(p, z, -0x1.b835aap-5f);
  p = miniml_madd32(p, z, 0x1.1106f6p-3f);
  p = miniml_madd32(p, z, -0x1.555532p-2f);
  const float near = miniml_madd32(a * z, p, a);
  const float raised = miniml_madd32(a, 0x1.715476p+1f, MINIML_ROUND32 + 127);
  const float shifted = miniml_capped32(raised, 127 + 60);
  const float r = miniml_exp_reduced32(2 * a, shifted - (MINIML_ROUND32 + 127));
  const float scale = miniml_real32(miniml_bits32(shifted) << 23);
  const float e = miniml_madd32(scale, miniml_exp_rest32(r), scale), far = 1 - 2 / (e + 1);
  return __builtin_copysignf(a < 0.625f ? near : far, x);
}
static inline double miniml_tanh_float64(double x) {
  const double a = __builtin_fabs(x), held = a > 20 ? 20 : a, z = a * a;
  double p = -0x1.3c6dc7eaf0973p-16;
  p = miniml_madd64(p, z, 0x1.59255ba490bap-14);
  p = miniml_madd64(p, z, -0x1.e7ef22a1cea2fp-13);
  p = miniml_madd64(p, z, 0x1.345dec3955e8bp-11);
  p = miniml_madd64(p, z, -0x1.7d8b3e9d90e5dp-10);
  p = miniml_madd64(p, z, 0x1.d6d240ad41148p-9);
  p = miniml_madd64(p, z, -0x1.226e2cd5e2d2ep-7);
  p = miniml_madd64(p, z, 0x1.664f4847f52ep-6);
  p = miniml_madd64(p, z, -0x1.ba1ba1b92fa0bp-5);
  p = miniml_madd64(p, z, 0x1.1111111110246p-3);
  p = miniml_madd64(p, z, -0x1.555555555554bp-2);
  const double near = miniml_madd64(a * z, p, a);
  const double shifted = miniml_madd64(held, 0x1.71547652b82fep+1, MINIML_ROUND64);
  const double r = miniml_exp_reduced64(2 * held, shifted - MINIML_ROUND64);
  const double e = (1 + miniml_expm1_rest64(r)) * miniml_power64(shifted), far = 1 - 2 / (e + 1);
  return __builtin_copysign(a < 0.5625 ? near : far, x);
}
