/* exp, exp2, expm1: x = n log(2) + r with |r| <= log(2) / 2, and a polynomial of r. */
#include "bits.h"

/* exp(r) - 1 = r + r^2 q(r); the error is at most 2^-28 of exp(r). */
static inline float miniml_exp_rest32(float r) {
  float q = 0x1.6b14fp-10f;
  q = miniml_madd32(q, r, 0x1.12454cp-7f);
  q = miniml_madd32(q, r, 0x1.555822p-5f);
  q = miniml_madd32(q, r, 0x1.555482p-3f);
  q = miniml_madd32(q, r, 0x1.fffffcp-2f);
  return miniml_madd32(r * r, q, r);
}

/* The same with an error of at most 2^-26 of itself; in float64, 2^-59. */
static inline float miniml_expm1_rest32(float r) {
  float q = 0x1.6add2cp-10f;
  q = miniml_madd32(q, r, 0x1.12317ap-7f);
  q = miniml_madd32(q, r, 0x1.555784p-5f);
  q = miniml_madd32(q, r, 0x1.5554a4p-3f);
  q = miniml_madd32(q, r, 0x1.fffffep-2f);
  return miniml_madd32(r * r, q, r);
}
static inline double miniml_expm1_rest64(double r) {
  double q = 0x1.1ee8d9715107ap-29;
  q = miniml_madd64(q, r, 0x1.af5ee65fa54f3p-26);
  q = miniml_madd64(q, r, 0x1.27e536251ce95p-22);
  q = miniml_madd64(q, r, 0x1.71ddf8430ec9ep-19);
  q = miniml_madd64(q, r, 0x1.a01a017bb508dp-16);
  q = miniml_madd64(q, r, 0x1.a01a01afe9453p-13);
  q = miniml_madd64(q, r, 0x1.6c16c16c1f0eep-10);
  q = miniml_madd64(q, r, 0x1.111111110f6aap-7);
  q = miniml_madd64(q, r, 0x1.555555555553ep-5);
  q = miniml_madd64(q, r, 0x1.5555555555559p-3);
  q = miniml_madd64(q, r, 0x1p-1);
  return miniml_madd64(r * r, q, r);
}

/* x - n log(2), whose first part has so few bits that its product with n is exact. */
static inline float miniml_exp_reduced32(float x, float n) {
  return miniml_madd32(n, -0x1.7f7d1cp-20f, miniml_madd32(n, -0x1.62e4p-1f, x));
}
static inline double miniml_exp_reduced64(double x, double n) {
  return miniml_madd64(n, -0x1.cf79abc9e3b3ap-40,
                             miniml_madd64(n, -0x1.62e42fefap-1, x));
}

/* Beyond the bounds all is inf or 0; NaN passes them. What is too small becomes 2^-254 (2^-2046),
   both of whose factors are 0: a product that underflows takes a hundred times as long. A large
   x has a large r, and inf, beside 2^250 (2^2000). */
static inline float miniml_exp_float32(float x) {
  const float held = x < -104 ? -176 : x;
  const float raised = miniml_madd32(held, 0x1.715476p+0f, MINIML_ROUND32 + 254);
  const float shifted = miniml_capped32(raised, 254 + 250);
  const float r = miniml_exp_reduced32(held, shifted - (MINIML_ROUND32 + 254));
  return miniml_scaled32(1, miniml_exp_rest32(r), shifted);
}
static inline double miniml_exp_float64(double x) {
  const double held = x < -746 ? -1418 : x;
  const double raised = miniml_madd64(held, 0x1.71547652b82fep+0, MINIML_ROUND64 + 2046);
  const double shifted = miniml_capped64(raised, 2046 + 2000);
  const double r = miniml_exp_reduced64(held, shifted - (MINIML_ROUND64 + 2046));
  return miniml_scaled64(1, miniml_expm1_rest64(r), shifted);
}

/* exp(x) of x that is not positive, or NaN; 0 below x = -86 (-707), so that 2^n is in range, or 0. */
static inline float miniml_weight_float32(float x) {
  const float held = x < -86 ? -88 : x;
  const float shifted = miniml_madd32(held, 0x1.715476p+0f, MINIML_ROUND32 + 127);
  const float r = miniml_exp_reduced32(held, shifted - (MINIML_ROUND32 + 127));
  const float scale = miniml_real32(miniml_bits32(shifted) << 23);
  return miniml_madd32(scale, miniml_exp_rest32(r), scale);
}
static inline double miniml_weight_float64(double x) {
  const double held = x < -707 ? -709 : x;
  const double shifted = miniml_madd64(held, 0x1.71547652b82fep+0, MINIML_ROUND64 + 1023);
  const double r = miniml_exp_reduced64(held, shifted - (MINIML_ROUND64 + 1023));
  const double scale = miniml_real64(miniml_bits64(shifted) << 52);
  return miniml_madd64(scale, miniml_expm1_rest64(r), scale);
}

static inline float miniml_exp2_float32(float x) {
  const float held = x < -151 ? -254 : x;
  const float shifted = miniml_capped32(held + (MINIML_ROUND32 + 254), 254 + 250);
  const float r = (held - (shifted - (MINIML_ROUND32 + 254))) * 0x1.62e43p-1f;
  return miniml_scaled32(1, miniml_exp_rest32(r), shifted);
}
static inline double miniml_exp2_float64(double x) {
  const double held = x < -1076 ? -2046 : x;
  const double shifted = miniml_capped64(held + (MINIML_ROUND64 + 2046), 2046 + 2000);
  const double r = (held - (shifted - (MINIML_ROUND64 + 2046))) * 0x1.62e42fefa39efp-1;
  return miniml_scaled64(1, miniml_expm1_rest64(r), shifted);
}

/* Half of exp(x) - 1 is 2^(n-1) (exp(r) - 1) + (2^(n-1) - 1/2), with n <= 128 (1024). Tiny numbers
   are their own results. */
static inline float miniml_expm1_float32(float x) {
  const float held = x < -30 ? -30 : x;
  const float shifted = miniml_capped32(miniml_madd32(held, 0x1.715476p+0f, MINIML_ROUND32), 128);
  const float p = miniml_expm1_rest32(miniml_exp_reduced32(held, shifted - MINIML_ROUND32));
  const float scale = miniml_power32(shifted - 1);
  const float y = 2 * miniml_madd32(scale, p, scale - 0.5f);
  return __builtin_fabsf(x) < 0x1p-26f ? x : y;
}
static inline double miniml_expm1_float64(double x) {
  const double held = x < -50 ? -50 : x;
  const double raised = miniml_madd64(held, 0x1.71547652b82fep+0, MINIML_ROUND64);
  const double shifted = miniml_capped64(raised, 1024);
  const double p = miniml_expm1_rest64(miniml_exp_reduced64(held, shifted - MINIML_ROUND64));
  const double scale = miniml_power64(shifted - 1);
  const double y = 2 * miniml_madd64(scale, p, scale - 0.5);
  return __builtin_fabs(x) < 0x1p-55 ? x : y;
}
