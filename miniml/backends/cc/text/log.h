/* log, log2, log1p of x = m 2^e: e log(2) and a polynomial of f = m - 1. */
#include "bits.h"

/* (log(1 + f) - f) / f^2 = -1/2 + f q(f), f in [-1/3, 1/3], to 2^-27 of the logarithm. */
static inline float miniml_log_bend32(float f) {
  float q = -0x1.05b4e6p-3f;
  q = miniml_madd32(q, f, 0x1.1e0d92p-3f);
  q = miniml_madd32(q, f, -0x1.f45638p-4f);
  q = miniml_madd32(q, f, 0x1.1ee72ep-3f);
  q = miniml_madd32(q, f, -0x1.558f32p-3f);
  q = miniml_madd32(q, f, 0x1.99cf8p-3f);
  q = miniml_madd32(q, f, -0x1.ffff5ep-3f);
  q = miniml_madd32(q, f, 0x1.555506p-2f);
  return miniml_madd32(f, q, -0.5f);
}
/* log(1 + f) + e log(2). */
static inline float miniml_log_sum32(float f, float e) {
  const float low = miniml_madd32(f * f, miniml_log_bend32(f), e * 0x1.7f7d1cp-20f);
  return miniml_madd32(e, 0x1.62e4p-1f, f + low);
}

/* log(1 + f) = f - f^2 / 2 + s (f^2 / 2 + z r(z)) with s = f / (2 + f) and z = s^2, because it is
   2 s + s z r(z); r to 2^-59 of log(1 + f) / s. Returned: what is added to f - f^2 / 2. */
static inline double miniml_log_tail64(double f) {
  const double s = f / (2 + f), z = s * s;
  double r = 0x1.2f11b9e7ac144p-3;
  r = miniml_madd64(r, z, 0x1.39a090854cf1cp-3);
  r = miniml_madd64(r, z, 0x1.746649d95130dp-3);
  r = miniml_madd64(r, z, 0x1.c71c51d72cfe5p-3);
  r = miniml_madd64(r, z, 0x1.249249422ad5ep-2);
  r = miniml_madd64(r, z, 0x1.999999997f9f2p-2);
  r = miniml_madd64(r, z, 0x1.5555555555593p-1);
  return s * miniml_madd64(z, r, 0.5 * f * f);
}
static inline double miniml_log_sum64(double f, double e) {
  const double low = miniml_madd64(e, 0x1.cf79abc9e3b3ap-40, miniml_log_tail64(f));
  return miniml_madd64(e, 0x1.62e42fefap-1, f - (0.5 * f * f - low));
}

static inline float miniml_log_float32(float x) {
  float e;
  const float m = miniml_mantissa32(x, &e);
  return miniml_log_end32(x, miniml_log_sum32(m - 1, e));
}
static inline double miniml_log_float64(double x) {
  double e;
  const double m = miniml_mantissa64(x, &e);
  return miniml_log_end64(x, miniml_log_sum64(m - 1, e));
}

/* 1 + x is rounded; what is lost, c, belongs to f. Tiny numbers are their own results. */
static inline float miniml_log1p_float32(float x) {
  float e;
  const float sum = 1 + x, c = x > 1 ? 1 - (sum - x) : x - (sum - 1);
  const float m = miniml_mantissa32(sum, &e);
  const float f = miniml_madd32(c, miniml_power32(MINIML_ROUND32 - (e < 126 ? e : 126)), m - 1);
  const float y = miniml_log_end32(sum, miniml_log_sum32(f, e));
  return __builtin_fabsf(x) < 0x1p-26f ? x : y;
}
static inline double miniml_log1p_float64(double x) {
  double e;
  const double sum = 1 + x, c = x > 1 ? 1 - (sum - x) : x - (sum - 1);
  const double m = miniml_mantissa64(sum, &e);
  const double f =
      miniml_madd64(c, miniml_power64(MINIML_ROUND64 - (e < 1022 ? e : 1022)), m - 1);
  const double y = miniml_log_end64(sum, miniml_log_sum64(f, e));
  return __builtin_fabs(x) < 0x1p-55 ? x : y;
}

/* log2(1 + f) = f / log(2) + f^2 q(f), to 2^-27 of itself; 1 / log(2) in two parts. */
static inline float miniml_log2_float32(float x) {
  float e;
  const float f = miniml_mantissa32(x, &e) - 1;
  float q = -0x1.690c06p-3f;
  q = miniml_madd32(q, f, 0x1.a0a972p-3f);
  q = miniml_madd32(q, f, -0x1.6c5e9ap-3f);
  q = miniml_madd32(q, f, 0x1.9d1fcap-3f);
  q = miniml_madd32(q, f, -0x1.ec8b8ep-3f);
  q = miniml_madd32(q, f, 0x1.27a38cp-2f);
  q = miniml_madd32(q, f, -0x1.715492p-2f);
  q = miniml_madd32(q, f, 0x1.ec7014p-2f);
  q = miniml_madd32(q, f, -0x1.715476p-1f);
  const float low = miniml_madd32(f * f, q, f * 0x1.4ae0cp-26f);
  return miniml_log_end32(x, e + miniml_madd32(f, 0x1.715476p+0f, low));
}
/* log(1 + f) = high + low, times 1 / log(2) in two parts. */
static inline double miniml_log2_float64(double x) {
  double e;
  const double f = miniml_mantissa64(x, &e) - 1, bend = 0.5 * f * f;
  const double high = miniml_real64(miniml_bits64(f - bend) & ~0xffffffffULL);
  const double low = (f - high) - bend + miniml_log_tail64(f);
  const double exact = high * 0x1.7154765p+0;  /* 21 bits times 29 */
  const double rest = low * 0x1.71547652b82fep+0 + high * 0x1.5c17f0bbbe88p-31;
  const double sum = e + exact, lost = exact - (sum - e);
  return miniml_log_end64(x, sum + (lost + rest));
}

/* The same logarithm of 1 + f as log's, times log10(e); this and log10(2) in two parts. */
static inline float miniml_log10_float32(float x) {
  float e;
  const float f = miniml_mantissa32(x, &e) - 1, high = 0x1.bcb7b2p-2f, bend = f * f * high;
  const float low = miniml_madd32(f, -0x1.5b235ep-27f, e * 0x1.a84fbcp-21f);
  const float y = miniml_madd32(f, high, miniml_madd32(bend, miniml_log_bend32(f), low));
  return miniml_log_end32(x, miniml_madd32(e, 0x1.3441p-2f, y));
}
/* e log10(2) and log(m) log10(e), each factor in two parts, so that integers come out exactly. */
static inline double miniml_log10_float64(double x) {
  double e;
  const double f = miniml_mantissa64(x, &e) - 1, bend = 0.5 * f * f;
  const double high = miniml_real64(miniml_bits64(f - bend) & ~0xffffffffULL);
  const double low = (f - high) - bend + miniml_log_tail64(f);
  const double whole = e * 0x1.34413509f78p-2, part = high * 0x1.bcb7b15p-2;
  const double rest = low * 0x1.bcb7b1526e50ep-2 +
                      (high * 0x1.37287195355bbp-33 + e * 0x1.fef311f12b358p-46);
  const double sum = whole + part, lost = part - (sum - whole);
  return miniml_log_end64(x, sum + (lost + rest));
}
