/* The C library's functions: one call for each element. */
#include "hardware.h"

MINIML_LIBRARY1(tan)
MINIML_LIBRARY1(asin)
MINIML_LIBRARY1(acos)
MINIML_LIBRARY1(atan)
MINIML_LIBRARY1(sinh)
MINIML_LIBRARY1(cosh)
MINIML_LIBRARY1(asinh)
MINIML_LIBRARY1(acosh)
MINIML_LIBRARY1(atanh)
MINIML_LIBRARY1(log10)
MINIML_LIBRARY1(cbrt)
MINIML_LIBRARY1(lgamma)
MINIML_LIBRARY1(tgamma)
MINIML_LIBRARY2(atan2)
MINIML_LIBRARY2(hypot)
MINIML_LIBRARY2(fmod)
MINIML_LIBRARY2(nextafter)

static inline float miniml_ldexp_float32(float x, int n) { return __builtin_ldexpf(x, n); }
static inline double miniml_ldexp_float64(double x, int n) { return __builtin_ldexp(x, n); }
