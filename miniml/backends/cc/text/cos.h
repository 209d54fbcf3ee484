/* cos. */
#include "circular.h"

#ifdef MINIML_RARELY
/* As the sine of a quarter turn more: n is the nearest of the numbers halfway between integers. */
static inline float miniml_near_cos32(float x) {
  const double n = __builtin_fma(x, 0x1.45f306dc9c883p-2, 0.5) + MINIML_ROUND64;
  return miniml_half_turns32(x, n - MINIML_ROUND64 - 0.5, miniml_bits64(n));
}
static inline double miniml_near_cos64(double x) {
  double r, low;
  const uint64_t quarter = miniml_near_quarters64(x, &r, &low);
  return miniml_wave64(r, low, quarter + 1);
}
#endif
MINIML_CIRCULAR(float, cos, 32)
MINIML_CIRCULAR(double, cos, 64)
