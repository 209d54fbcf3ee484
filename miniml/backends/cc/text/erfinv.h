/* erfinv: of float32 by polynomials of log2(1 - x^2) in float64; of float64 by a guess from
   elementary functions, and three steps of Halley's method. */
#include "erf.h"
#include "log.h"
#include "rough.h"

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
/* w = -log2(1 - x^2): x p(w) up to w = 7 and x q(sqrt(w)) beyond, to 2^-31 and 2^-29 of itself. */
static inline float miniml_erfinv_float32(float x) {
  const double a = __builtin_fabsf(x), w = -miniml_rough_log2((1 - a) * (1 + a));
  const double s = __builtin_sqrt(w);
  double p = 0x1.76a1ad9be16cep-39;
  p = miniml_madd64(p, w, -0x1.9b204ba140f4p-34);
  p = miniml_madd64(p, w, 0x1.20f4811d721aep-30);
  p = miniml_madd64(p, w, 0x1.cef7982de78d3p-31);
  p = miniml_madd64(p, w, -0x1.b5f3ce18341a3p-24);
  p = miniml_madd64(p, w, 0x1.53a68845d3ca4p-22);
  p = miniml_madd64(p, w, 0x1.e6cf21583c943p-18);
  p = miniml_madd64(p, w, -0x1.eb6231e09e121p-16);
  p = miniml_madd64(p, w, -0x1.97d0d566ce22ap-11);
  p = miniml_madd64(p, w, 0x1.6ba8a19c33aebp-8);
  p = miniml_madd64(p, w, 0x1.495bca64056acp-3);
  p = miniml_madd64(p, w, 0x1.c5bf891d8312dp-1);
  double q = -0x1.3373b8e7b555cp-19;
  q = miniml_madd64(q, s, 0x1.79445403781d5p-14);
  q = miniml_madd64(q, s, -0x1.9b8bc9bf0c47cp-10);
  q = miniml_madd64(q, s, 0x1.05a12b373b74p-6);
  q = miniml_madd64(q, s, -0x1.aa5a3ef881216p-4);
  q = miniml_madd64(q, s, 0x1.cba4220b986e2p-2);
  q = miniml_madd64(q, s, -0x1.445fb877b66fdp+0);
  q = miniml_madd64(q, s, 0x1.189a7ff53f2e6p+1);
  q = miniml_madd64(q, s, -0x1.df23f6a60590ap+0);
  q = miniml_madd64(q, s, -0x1.a3a9202eb7067p-6);
  q = miniml_madd64(q, s, 0x1.bc907c0f85bep+0);
  q = miniml_madd64(q, s, -0x1.11f151d97987dp-3);
  const double y = a * (w < 7 ? p : q);
  return __builtin_copysignf(a == 1 ? INFINITY : (float)y, x);
}
