/* fmod: of float32 exactly, by multiples taken off in float64; of float64 the library's. */
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
static inline double miniml_fmod_float64(double x, double y) { return __builtin_fmod(x, y); }
