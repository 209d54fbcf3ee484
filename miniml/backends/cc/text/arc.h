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
static inline float miniml_atan_float32(float x) { return miniml_atan2_float32(x, 1); }
static inline double miniml_atan_float64(double x) { return miniml_atan2_float64(x, 1); }

/* The other coordinate of a point of the unit circle; NaN outside of it. */
static inline double miniml_beside(double x) { return __builtin_sqrt((1 - x) * (1 + x)); }

/* asin(t) of a float t in [0, 1/2] is t + t^3 p(t^2), to 2^-35 of itself. Of a larger one it is
   pi / 2 - 2 asin(s), s^2 = (1 - t) / 2, which float32 holds exactly, and asin(s) is returned: s is the
   root of float32, which takes a third as long as that of float64, and one step of Newton's method. */
static inline double miniml_rough_asin(float t) {
  const float rest = 0.5f - 0.5f * t, root = __builtin_sqrtf(rest);
  const double lost = (double)rest - (double)root * root;
  const double s = (double)root + lost * (double)(0.5f / (root + 0x1p-126f));
  const double r = t > 0.5f ? s : t, z = t > 0.5f ? (double)rest : (double)t * t;
  double p = 0x1.1bd26720930d3p-5;
  p = miniml_madd64(p, z, 0x1.ec258b2904465p-8);
  p = miniml_madd64(p, z, 0x1.931f8321e6f73p-6);
  p = miniml_madd64(p, z, 0x1.ed5d1bd60676fp-6);
  p = miniml_madd64(p, z, 0x1.6ddabfb637a4fp-5);
  p = miniml_madd64(p, z, 0x1.3332aa0765ce4p-4);
  p = miniml_madd64(p, z, 0x1.55555605cac65p-3);
  return miniml_madd64(r * z, p, r);
}
static inline float miniml_asin_float32(float x) {
  const float t = __builtin_fabsf(x);
  const double v = miniml_rough_asin(t), y = t > 0.5f ? 0x1.921fb54442d18p+0 - 2 * v : v;
  return (float)__builtin_copysign(y, x);
}
static inline float miniml_acos_float32(float x) {
  const float t = __builtin_fabsf(x);
  const double v = miniml_rough_asin(t), y = t > 0.5f ? 2 * v : 0x1.921fb54442d18p+0 - v;
  return (float)(x < 0 ? 0x1.921fb54442d18p+1 - y : y);
}
static inline double miniml_asin_float64(double x) {
  return __builtin_copysign(miniml_angle(x, miniml_beside(x), 0), x);
}
static inline double miniml_acos_float64(double x) {
  return miniml_angle(miniml_beside(x), x, 0);
}
