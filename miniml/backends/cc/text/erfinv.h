/* erfinv: a guess by elementary functions, and three steps of Halley's method. */
#include "erf.h"
#include "log.h"

/* y solves log(1 - erf(y)^2) = -y^2 (4/pi + c y^2) / (1 + c y^2), which holds to 2^-9 with
   c = 0.147. A step cubes the error, and erfc keeps the digits that erf has lost near 1. */
static inline double miniml_erfinv_float64(double x) {
  const double a = __builtin_fabs(x), rest = 1 - a, l = miniml_log_float64(rest * (1 + a));
  const double k = 2 / (M_PI * 0.147) + l / 2;
  double y = __builtin_sqrt(__builtin_sqrt(k * k - l / 0.147) - k);
  for (int i = 0; i < 3; ++i) {
    const double missing = a < 0.5 ? a - miniml_erf_float64(y) : miniml_erfc_float64(y) - rest;
    const double step = missing * (0.5 * __builtin_sqrt(M_PI)) * miniml_exp_float64(y * y);
    y += step / (1 - y * step);
  }
  return __builtin_copysign(a == 1 ? INFINITY : y, x);
}
static inline float miniml_erfinv_float32(float x) { return (float)miniml_erfinv_float64(x); }
