/* fmod, exactly: of float32 by multiples taken off in float64; of float64 by one multiple, where the
   quotient is below 2^51, else by the library. */
#include "hardware.h"

/* The quotient is below 2^278. Each of six steps takes it down by 2^51 at least, the last one to
   1/2; what remains after it has few digits, so that the fma is exact. */
static inline double miniml_without(double r, double b, double inverse) {
  return __builtin_fma(-__builtin_rint(r * inverse), b, r);
}
static inline float miniml_fmod_float32(float x, float y) {
  const double given = __builtin_fabsf(y), b = given > 0x1p128 ? 0x1p200 : given, inverse = 1 / b;
  double r = miniml_without(__builtin_fabsf(x), b, inverse);
  r = miniml_without(miniml_without(r, b, inverse), b, inverse);
  r = miniml_without(miniml_without(r, b, inverse), b, inverse);
  r = miniml_without(r, b, inverse);
  return __builtin_copysignf((float)(r < 0 ? r + b : r), x);
}

/* The rounded quotient is at most one too large, and what remains has no more digits than y. */
static inline double miniml_fmod_float64(double x, double y) {
#ifdef __FP_FAST_FMA
  const double a = __builtin_fabs(x), b = __builtin_fabs(y);
  if (a < b * 0x1p51 && b < __builtin_inf()) {
    const double r = __builtin_fma(-__builtin_trunc(a / b), b, a);
    return __builtin_copysign(r < 0 ? r + b : r, x);
  }
#endif
  return __builtin_fmod(x, y);
}
