/* exp2 and log2 in float64 for results of float32. */
#include "bits.h"

/* 2^t, |t| < 1022, to 2^-34 of itself. */
static inline double miniml_rough_exp2(double t) {
  const double shifted = t + MINIML_ROUND64, n = shifted - MINIML_ROUND64;
  const double r = (t - n) * 0x1.62e42fefa39efp-1;
  double q = 0x1.9f0656ed2c36p-13;
  q = miniml_madd64(q, r, 0x1.6d8da4ce7ab23p-10);
  q = miniml_madd64(q, r, 0x1.111273a9e4d48p-7);
  q = miniml_madd64(q, r, 0x1.55548d283a6fdp-5);
  q = miniml_madd64(q, r, 0x1.555554401821dp-3);
  q = miniml_madd64(q, r, 0x1.0000003a59cdap-1);
  return (1 + miniml_madd64(r * r, q, r)) * miniml_power64(shifted);
}

/* log2(x) to 2^-44 of itself, of no denormal: with s = (m - 1) / (m + 1), log(m) is 2 s + s^3 p(s^2). Of 0 and
   inf it is -inf and inf. */
static inline double miniml_rough_log2(double x) {
  double e;
  const double m = miniml_normal_mantissa64(miniml_bits64(x), &e), s = (m - 1) / (m + 1), z = s * s;
  double p = 0x1.913f807efdaa6p-3;
  p = miniml_madd64(p, z, 0x1.c6285ce0e5439p-3);
  p = miniml_madd64(p, z, 0x1.2494199ad7867p-2);
  p = miniml_madd64(p, z, 0x1.999996987b957p-2);
  p = miniml_madd64(p, z, 0x1.5555555623dafp-1);
  return miniml_log_end64(x, e + s * miniml_madd64(z, p, 2) * 0x1.71547652b82fep+0);
}
