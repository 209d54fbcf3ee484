/* What processors compute themselves, correctly rounded, on vectors too. */
#include "types.h"

#define MINIML_LIBRARY1(name)                                                                  \
  static inline float miniml_##name##_float32(float x) { return __builtin_##name##f(x); }      \
  static inline double miniml_##name##_float64(double x) { return __builtin_##name(x); }
#define MINIML_LIBRARY2(name)                                                     \
  static inline float miniml_##name##_float32(float x, float y) {                 \
    return __builtin_##name##f(x, y);                                             \
  }                                                                               \
  static inline double miniml_##name##_float64(double x, double y) {              \
    return __builtin_##name(x, y);                                                \
  }
MINIML_LIBRARY1(sqrt)
MINIML_LIBRARY1(fabs)
MINIML_LIBRARY1(floor)
MINIML_LIBRARY1(ceil)
MINIML_LIBRARY1(rint)
MINIML_LIBRARY1(round)
MINIML_LIBRARY1(trunc)
MINIML_LIBRARY2(copysign)
MINIML_LIBRARY2(fmin)
MINIML_LIBRARY2(fmax)

static inline float miniml_rsqrt_float32(float x) { return 1 / __builtin_sqrtf(x); }
static inline double miniml_rsqrt_float64(double x) { return 1 / __builtin_sqrt(x); }
static inline float miniml_fma_float32(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
static inline double miniml_fma_float64(double x, double y, double z) {
  return __builtin_fma(x, y, z);
}
