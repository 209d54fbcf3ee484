/* atan, atan2, asin, acos: angles of points, of whose coordinates the smaller by the larger is a
   tangent. */
#include "bits.h"

/* atan(t) = t + t^3 p(t^2) for |t| <= tan(pi / 8), p to 2^-35 of it or, below, to 2^-63. */
static inline double miniml_rough_arc(double t) {
  const double z = t * t;
  double p = 0x1.84a24f0d4004cp-5;
  p = miniml_madd64(p, z, -0x1.5b30378e45997p-4);
  p = miniml_madd64(p, z, 0x1.c464004e417a6p-4);
  p = miniml_madd64(p, z, -0x1.247eda7ad13c7p-3);
  p = miniml_madd64(p, z, 0x1.999918a20b2b3p-3);
  p = miniml_madd64(p, z, -0x1.555554c6071eep-2);
  return miniml_madd64(t * z, p, t);
}
static inline double miniml_arc(double t) {
  const double z = t * t;
  double p = -0x1.26e05e938c0a8p-7;
  p = miniml_madd64(p, z, 0x1.9d78979cb89ebp-6);
  p = miniml_madd64(p, z, -0x1.3ac8a1ffee0ep-5);
  p = miniml_madd64(p, z, 0x1.7c8febeced6f6p-5);
  p = miniml_madd64(p, z, -0x1.ada3b26119a11p-5);
  p = miniml_madd64(p, z, 0x1.e1b673d6f2a92p-5);
  p = miniml_madd64(p, z, -0x1.110f5cdc0ead5p-4);
  p = miniml_madd64(p, z, 0x1.3b139978c4208p-4);
  p = miniml_madd64(p, z, -0x1.745d166607676p-4);
  p = miniml_madd64(p, z, 0x1.c71c71c1d0614p-4);
  p = miniml_madd64(p, z, -0x1.2492492488cd8p-3);
  p = miniml_madd64(p, z, 0x1.9999999999888p-3);
  p = miniml_madd64(p, z, -0x1.5555555555555p-2);
  return miniml_madd64(t * z, p, t);
}

/* The angle in [0, pi] of the point (x, |y|), as eighths of a turn, of which the next one to the
   ratio of the coordinates is taken, and the arc from there. Equal coordinates may be 0 or
   infinite; those near the end of the range are halved, so that their sum stays inside. */
static inline double miniml_angle(double y, double x, int rough) {
  const double b = __builtin_fabs(y), a = __builtin_fabs(x);
  const double scale = a > 0x1p1000 || b > 0x1p1000 ? 0x1p-60 : 1;
  const double large = (b < a ? a : b) * scale, small = (b < a ? b : a) * scale;
  const int near = large - small >= 0x1.2bec333018866p-1 * large;  /* 2 - sqrt(2) */
  const double far = near ? 0 : 1, above = near ? small : small - large;
  const double below = near ? large : small + large;
  const double t = (small == large ? 0 : above) / (small == large ? 1 : below);
  const double arc = rough ? miniml_rough_arc(t) : miniml_arc(t);
  const double flat = b > a ? -1 : 1, side = __builtin_copysign(1, x);
  const double turned = 1 - flat + flat * far, eighths = 2 - side * (2 - turned);
  const double high = eighths * 0x1.921fb54442d18p-1;
  const double lost = rough ? 0 : miniml_madd64(eighths, 0x1.921fb54442d18p-1, -high);
  return high + miniml_madd64(eighths, 0x1.1a62633145c07p-55, lost + flat * side * arc);
}

static inline float miniml_atan2_float32(float y, float x) {
  return (float)__builtin_copysign(miniml_angle(y, x, 1), y);
}
static inline double miniml_atan2_float64(double y, double x) {
  return __builtin_copysign(miniml_angle(y, x, 0), y);
}
static inline double miniml_atan_float64(double x) { return miniml_atan2_float64(x, 1); }

/* high + factor * asin(t): asin(t) = t + t^3 p(t^2) up to 1/2, to 2^-27 of itself. Of a larger t it is pi / 2 -
   2 asin(s), s^2 = (1 - t) / 2, which float32 holds exactly, and asin(s) is taken. high is 0, pi / 2 or pi. */
static inline float miniml_arc32(float t, float high, float factor) {
  const float rest = 0.5f - 0.5f * t, z = t > 0.5f ? rest : t * t, s = t > 0.5f ? __builtin_sqrtf(rest) : t;
  float p = 0x1.596cdep-5f;
  p = miniml_madd32(p, z, 0x1.8c2894p-6f);
  p = miniml_madd32(p, z, 0x1.747e42p-5f);
  p = miniml_madd32(p, z, 0x1.3301e4p-4f);
  p = miniml_madd32(p, z, 0x1.5555c8p-3f);
  const float turned = factor * s, sum = high + turned, lost = high - sum + turned;
  return sum + miniml_madd32(turned * z, p, miniml_madd32(high, -0x1.de12cap-26f, lost));
}
static inline uint32_t miniml_most(uint32_t x, uint32_t y) { return x < y ? y : x; }
static inline uint32_t miniml_least(uint32_t x, uint32_t y) { return x < y ? x : y; }
/* atan(t) = t + t^3 p(t^2) of t = |x| or 1 / |x|, up to 1, p to 2^-28 of it; the inverse with what rounding took from
   it. */
static inline float miniml_atan_float32(float x) {
  const float a = __builtin_fabsf(x);
  const float large = miniml_real32(miniml_most(miniml_bits32(a), 0x3f800000));
  const float small = miniml_real32(miniml_least(miniml_bits32(a), 0x3f800000)), t = small / large;
  const float held = miniml_real32(miniml_least(miniml_bits32(large), 0x5d800000));
  const float t_low = miniml_fused32(-t, held, small) * t, z = t * t;
  float p = -0x1.d81568p-10f;
  p = miniml_madd32(p, z, 0x1.66ffap-7f);
  p = miniml_madd32(p, z, -0x1.002346p-5f);
  p = miniml_madd32(p, z, 0x1.db92d6p-5f);
  p = miniml_madd32(p, z, -0x1.586e28p-4f);
  p = miniml_madd32(p, z, 0x1.c0aad8p-4f);
  p = miniml_madd32(p, z, -0x1.2422b8p-3f);
  p = miniml_madd32(p, z, 0x1.9991fep-3f);
  p = miniml_madd32(p, z, -0x1.55553ep-2f);
  const float rest = miniml_madd32(t * z, p, t_low + 0x1.777a5cp-25f), turned = 0x1.921fb6p+0f - t;
  return __builtin_copysignf(a > 1 ? turned - rest : miniml_madd32(t * z, p, t), x);
}
static inline float miniml_asin_float32(float x) {
  const float t = __builtin_fabsf(x);
  return __builtin_copysignf(miniml_arc32(t, t > 0.5f ? 0x1.921fb6p+0f : 0, t > 0.5f ? -2 : 1), x);
}
static inline float miniml_acos_float32(float x) {
  const float t = __builtin_fabsf(x), end = x < 0 ? 0x1.921fb6p+1f : 0;
  const float factor = __builtin_copysignf(t > 0.5f ? 2 : 1, x);
  return miniml_arc32(t, t > 0.5f ? end : 0x1.921fb6p+0f, t > 0.5f ? factor : -factor);
}

/* The same of float64: asin(t) = t + t^3 p(t^2) to 2^-59 of itself, with pi / 2 in two parts. */
static inline double miniml_arc64(double t, double *low) {
  const double rest = 0.5 - 0.5 * t, root = __builtin_sqrt(rest);
  const double guess = miniml_real64(0x7fde623822fc16e6u - miniml_bits64(root));
  const double over = miniml_madd64(guess, miniml_madd64(-guess, root, 1), guess);
  const double missing = miniml_madd64(-root, root, rest) * over * 0.5;
  const double s = t > 0.5 ? root : t, s_low = t > 0.5 ? missing : 0, z = s * s;
  double p = 0x1.099c60d5ce9bep-5;
  p = miniml_madd64(p, z, -0x1.534adbff26c2ap-6);
  p = miniml_madd64(p, z, 0x1.60c6acd4616cap-6);
  p = miniml_madd64(p, z, 0x1.ed8d2421679d8p-9);
  p = miniml_madd64(p, z, 0x1.60db7a53eadb2p-7);
  p = miniml_madd64(p, z, 0x1.7590dbdbb6892p-7);
  p = miniml_madd64(p, z, 0x1.ca1eef53920a3p-7);
  p = miniml_madd64(p, z, 0x1.1c49eeadfba44p-6);
  p = miniml_madd64(p, z, 0x1.6e8bdf68bbbd2p-6);
  p = miniml_madd64(p, z, 0x1.f1c71a8cc2d80p-6);
  p = miniml_madd64(p, z, 0x1.6db6db722d23fp-5);
  p = miniml_madd64(p, z, 0x1.333333332df44p-4);
  p = miniml_madd64(p, z, 0x1.5555555555577p-3);
  const double part = s * z * p, arc = s + part;
  *low = s - arc + part + s_low;
  return arc;
}
static inline double miniml_from64(double high, double factor, double arc, double low) {
  const double turned = factor * arc, sum = high + turned, lost = high - sum + turned;
  return sum + (lost + miniml_madd64(high, 0x1.678afae35cdd1p-55, factor * low));
}
static inline double miniml_asin_float64(double x) {
  const double t = __builtin_fabs(x), high = t > 0.5 ? 0x1.921fb54442d18p+0 : 0;
  double low;
  const double arc = miniml_arc64(t, &low);
  return __builtin_copysign(miniml_from64(high, t > 0.5 ? -2 : 1, arc, low), x);
}
static inline double miniml_acos_float64(double x) {
  const double t = __builtin_fabs(x), end = x < 0 ? 0x1.921fb54442d18p+1 : 0;
  double low;
  const double arc = miniml_arc64(t, &low), factor = __builtin_copysign(t > 0.5 ? 2 : 1, x);
  return miniml_from64(t > 0.5 ? end : 0x1.921fb54442d18p+0, t > 0.5 ? factor : -factor, arc, low);
}
