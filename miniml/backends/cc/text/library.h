/* The C library's functions: one call for each element. */
#include "hardware.h"

MINIML_LIBRARY1(tgamma)
MINIML_LIBRARY2(hypot)
MINIML_LIBRARY2(nextafter)

static inline float miniml_ldexp_float32(float x, int n) { return __builtin_ldexpf(x, n); }
static inline double miniml_ldexp_float64(double x, int n) { return __builtin_ldexp(x, n); }
