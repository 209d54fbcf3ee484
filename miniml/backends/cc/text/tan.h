/* tan. */
#include "circular.h"

#ifdef MINIML_RARELY
/* tan(r) = r + r^3 t(r^2) to 2^-33 up to pi / 4, and -1 / tan(r) a quarter turn further: the inverse is that
   of float32 and one step of Newton's method. */
static inline float miniml_near_tan32(float x) {
  const double shifted = __builtin_fma(x, 0x1.45f306dc9c883p-1, MINIML_ROUND64);
  const double n = shifted - MINIML_ROUND64, rest = __builtin_fma(n, -0x1.921fb54442d18p+0, x);
  const double r = __builtin_fma(n, -0x1.1a62633145c07p-54, rest), z = r * r;
  double t = 0x1.0b5dbf10d75b3p-9;
  t = __builtin_fma(t, z, -0x1.36da68f6c59f2p-11);
  t = __builtin_fma(t, z, 0x1.470856a3775e4p-8);
  t = __builtin_fma(t, z, 0x1.110ab32151edfp-7);
  t = __builtin_fma(t, z, 0x1.68312f2c99763p-6);
  t = __builtin_fma(t, z, 0x1.b9ff238e5271bp-5);
  t = __builtin_fma(t, z, 0x1.11117873b1c5ep-3);
  t = __builtin_fma(t, z, 0x1.555554568ea6fp-2);
  const double y = __builtin_fma(r * z, t, r), w = -1 / (float)y;
  return (float)(miniml_bits64(shifted) & 1 ? __builtin_fma(w, __builtin_fma(w, y, 1), w) : y);
}
static inline double miniml_near_tan64(double x) {
  double r, low;
  const uint64_t odd = miniml_near_quarters64(__builtin_fabs(x), &r, &low) & 1;
  return miniml_turned64(miniml_slope64(r, low, odd), miniml_bits64(x));
}
#endif
MINIML_CIRCULAR(float, tan, 32)
MINIML_CIRCULAR(double, tan, 64)
