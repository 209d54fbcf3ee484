/* sin. */
#include "circular.h"

#ifdef MINIML_RARELY
static inline float miniml_near_sin32(float x) {
  const double n = __builtin_fma(x, 0x1.45f306dc9c883p-2, MINIML_ROUND64);
  return miniml_half_turns32(x, n - MINIML_ROUND64, miniml_bits64(n));
}
static inline double miniml_near_sin64(double x) {
  double r, low;
  const uint64_t quarter = miniml_near_quarters64(__builtin_fabs(x), &r, &low);
  return miniml_turned64(miniml_wave64(r, low, quarter), miniml_bits64(x));
}
#endif
MINIML_CIRCULAR(float, sin, 32)
MINIML_CIRCULAR(double, sin, 64)
