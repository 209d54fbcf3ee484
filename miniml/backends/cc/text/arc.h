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

/* asin(t) = t + t^3 (1/6 + t^2 q(t^2)) up to 1/2, to 2^-35 of itself, as a sum with *low. Of a larger t
   it is pi / 2 - 2 asin(s), s^2 = (1 - t) / 2, which float32 holds exactly, and asin(s) is returned: s is
   the root of that with a step of Newton's method, by a guess of 1 / s from its bits. */
static inline float miniml_arc32(float t, float *low) {
  const float rest = 0.5f - 0.5f * t, root = __builtin_sqrtf(rest);
  const float guess = miniml_real32(0x7ef311c3u - miniml_bits32(root));
  const float over = miniml_madd32(guess, miniml_madd32(-guess, root, 1), guess);
  const float missing = miniml_fused32(-root, root, rest) * over * 0.5f;
  const float s = t > 0.5f ? root : t, s_low = t > 0.5f ? missing : 0;
  const float z = s * s, z_low = miniml_madd32(2 * s, s_low, miniml_fused32(s, s, -z));
  const float cube = s * z, cube_low = miniml_madd32(s, z_low, miniml_fused32(s, z, -cube));
  const float sixth = 0x1.555556p-3f, part = cube * sixth;
  const float part_low = miniml_madd32(cube_low, sixth, miniml_fused32(cube, sixth, -part));
  float q = 0x1.1bd268p-5f;
  q = miniml_madd32(q, z, 0x1.ec258cp-8f);
  q = miniml_madd32(q, z, 0x1.931f84p-6f);
  q = miniml_madd32(q, z, 0x1.ed5d1cp-6f);
  q = miniml_madd32(q, z, 0x1.6ddabfp-5f);
  q = miniml_madd32(q, z, 0x1.3332aap-4f);
  const float arc = s + part, lost = s - arc + part;
  *low = lost + miniml_madd32(cube * z, q, part_low + s_low);
  return arc;
}
/* high + factor * (arc + low), where high is 0 or pi / 4, pi / 2 or pi, and what is rounded off. */
static inline float miniml_from32(float high, float factor, float arc, float low) {
  const float sum = miniml_fused32(factor, arc, high), lost = factor * arc + (high - sum);
  return sum + (lost + miniml_madd32(high, -0x1.de12cap-26f, factor * low));
}
/* All bits of a number, or none: choices of bits, of which GCC makes no branches. */
static inline uint32_t miniml_mask32(int all) { return -(uint32_t)all; }
static inline uint32_t miniml_most(uint32_t x, uint32_t y) { return x < y ? y : x; }
static inline uint32_t miniml_least(uint32_t x, uint32_t y) { return x < y ? x : y; }
/* atan(t) = t + t^3 p(t^2) up to 1/2, p to 2^-31 of it. Beyond, |x| or 1 / |x| is t in
   pi / 4 + atan((t - 1) / (t + 1)); the quotient has what rounding took from it, and from its divisor. */
static inline float miniml_atan_float32(float x) {
  const float a = __builtin_fabsf(x);
  const float large = miniml_real32(miniml_most(miniml_bits32(a), 0x3f800000));
  const float small = miniml_real32(miniml_least(miniml_bits32(a), 0x3f800000));
  const uint32_t near = miniml_mask32(small > 0.5f * large), turned = miniml_mask32(a > 1);
  const float above = small - miniml_real32(near & miniml_bits32(large));
  const float below = large + miniml_real32(near & miniml_bits32(small));
  const float t = above / below;
  const float held = miniml_real32(miniml_least(miniml_bits32(below), 0x5d800000));
  const float below_low = miniml_real32(near & miniml_bits32(small - (held - large)));
  const float guess = miniml_real32(0x7ef311c3u - miniml_bits32(held));
  const float over = miniml_madd32(guess, miniml_madd32(-guess, held, 1), guess);
  const float t_low = (miniml_fused32(-t, held, above) - t * below_low) * over;
  const float z = t * t;
  float p = 0x1.437006p-5f;
  p = miniml_madd32(p, z, -0x1.495feap-4f);
  p = miniml_madd32(p, z, 0x1.c0cc76p-4f);
  p = miniml_madd32(p, z, -0x1.245546p-3f);
  p = miniml_madd32(p, z, 0x1.999778p-3f);
  p = miniml_madd32(p, z, -0x1.555552p-2f);
  const float part = t * z * p, arc = t + part, lost = t - arc + part;
  const float high = miniml_real32((near & 0x3f490fdb) | (~near & turned & 0x3fc90fdb));
  const float factor = miniml_real32(0x3f800000 | (turned & 0x80000000));
  return __builtin_copysignf(miniml_from32(high, factor, arc, lost + t_low), x);
}
static inline float miniml_asin_float32(float x) {
  const float t = __builtin_fabsf(x), high = t > 0.5f ? 0x1.921fb6p+0f : 0;
  float low;
  const float arc = miniml_arc32(t, &low);
  return __builtin_copysignf(miniml_from32(high, t > 0.5f ? -2 : 1, arc, low), x);
}
static inline float miniml_acos_float32(float x) {
  const float t = __builtin_fabsf(x), end = x < 0 ? 0x1.921fb6p+1f : 0;
  float low;
  const float arc = miniml_arc32(t, &low), factor = __builtin_copysignf(t > 0.5f ? 2 : 1, x);
  return miniml_from32(t > 0.5f ? end : 0x1.921fb6p+0f, t > 0.5f ? factor : -factor, arc, low);
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
