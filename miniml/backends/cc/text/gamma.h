/* log |gamma(x)| of float32, in float64. */
#include "library.h"
#include "rough.h"

/* With t in [1, 2] and y in [0, 4] a whole number apart, lgamma(t) = (t - 1) (t - 2) p(t - 3/2), to
   2^-31 of itself, and the logarithm of what is between; above 4 by Stirling's series, whose first
   term that is left out is 2^-31 of the sum. Below 0 by reflection: its logarithm of
   pi / (y sin(pi y)) is beside the sum within 2^-30 of 1, so next to a root the error is that of 1. */
static inline float miniml_lgamma_float32(float given) {
  const double x = given, y = __builtin_fabs(x), log_2 = 0x1.62e42fefa39efp-1;
  const double t = y < 1 ? y + 1 : y < 2 ? y : y < 3 ? y - 1 : y - 2, u = t - 1.5;
  double p = 0x1.f747a3b319f2ep-11;
  p = miniml_madd64(p, u, -0x1.8fe793efcc8f7p-10);
  p = miniml_madd64(p, u, 0x1.e4858dcd1c3afp-10);
  p = miniml_madd64(p, u, -0x1.98792dda47dbbp-9);
  p = miniml_madd64(p, u, 0x1.65987f6b73c5ap-8);
  p = miniml_madd64(p, u, -0x1.35363aada87c2p-7);
  p = miniml_madd64(p, u, 0x1.13319da6ea00ap-6);
  p = miniml_madd64(p, u, -0x1.0079a1609e6efp-5);
  p = miniml_madd64(p, u, 0x1.01af662974511p-4);
  p = miniml_madd64(p, u, -0x1.2aed0670b5e48p-3);
  p = miniml_madd64(p, u, 0x1.eeb95b087f56fp-2);
  const double between = y < 1 ? y : y < 2 ? 1 : y < 3 ? t : t * (t + 1);
  const double log_y = miniml_rough_log2(y < 4 ? between : y) * log_2;
  const double near = miniml_madd64(u, u, -0.25) * p + (y < 1 ? -log_y : log_y);
  const double over = 1 / y, z = over * over;
  double s = 0x1.b951e2b18ff23p-11;
  s = miniml_madd64(s, z, -0x1.3813813813814p-11);
  s = miniml_madd64(s, z, 0x1.a01a01a01a01ap-11);
  s = miniml_madd64(s, z, -0x1.6c16c16c16c17p-9);
  s = miniml_madd64(s, z, 0x1.5555555555555p-4);
  const double far = (y - 0.5) * (log_y - 1) + (0x1.acfe390c97d68p-2 + over * s);
  const double above = y < 4 ? near : far;

  const double r = y - miniml_rint_float64(y), w = r * r;
  double q = -0x1.cc3455afb486bp-8;
  q = miniml_madd64(q, w, 0x1.500ff7be16045p-4);
  q = miniml_madd64(q, w, -0x1.32d112002dc46p-1);
  q = miniml_madd64(q, w, 0x1.466bbfc246e1bp+1);
  q = miniml_madd64(q, w, -0x1.4abbce4f1a0dep+2);
  q = miniml_madd64(q, w, 0x1.921fb5441e48fp+1);
  const double turned = __builtin_fabs(q * r) * y * 0x1.45f306dc9c883p-2;
  const double below = -miniml_rough_log2(turned) * log_2 - above;
  const double made = x < 0 ? below : above;
  return (float)(y < INFINITY ? made : y * y);
}
static inline double miniml_lgamma_float64(double x) { return __builtin_lgamma(x); }
