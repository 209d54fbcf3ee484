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

/* A product that others add to as it is: of neighbours that are added and subtracted in turn GCC
   makes one instruction with their products, even without contraction. */
#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 12
#define MINIML_PRODUCT(x) __builtin_assoc_barrier(x)
#else
#define MINIML_PRODUCT(x) (x)
#endif

MINIML_LIBRARY1(sqrt)
MINIML_LIBRARY1(fabs)
MINIML_LIBRARY1(floor)
MINIML_LIBRARY1(ceil)
#if defined(__SSE2__) && !defined(__SSE4_1__)
/* To the nearest integer, which lies even where there are two: without an instruction, as a sum
   whose unit in the last place is 1. A library's function would keep loops from being vector code. */
#define MINIML_NEAREST(type, name, s, large)                                                   \
  static inline type miniml_rint_##name(type x) {                                              \
    const type size = __builtin_fabs##s(x), whole = size + large - large;                      \
    return __builtin_copysign##s(size < large ? whole : size, x);                              \
  }
MINIML_NEAREST(float, float32, f, 0x1p23f)
MINIML_NEAREST(double, float64, , 0x1p52)
#else
MINIML_LIBRARY1(rint)
#endif
MINIML_LIBRARY1(round)
MINIML_LIBRARY1(trunc)
MINIML_LIBRARY2(copysign)

/* What else is a few operations of the processor, on either type. */
#define MINIML_SIMPLE(type, name, s)                                                           \
  static inline type miniml_rsqrt_##name(type x) { return 1 / __builtin_sqrt##s(x); }          \
  static inline type miniml_fmin_##name(type x, type y) { return x < y || y != y ? x : y; }    \
  static inline type miniml_fmax_##name(type x, type y) { return x > y || y != y ? x : y; }    \
  static inline type _Complex miniml_CMPLX_##name(type x, type y) {                            \
    return __builtin_complex(x, y);                                                            \
  }                                                                                            \
  static inline bool miniml_isnan_##name(type x) { return x != x; }                            \
  static inline bool miniml_isinf_##name(type x) { return x == x && x - x != x - x; }          \
  static inline bool miniml_isfinite_##name(type x) { return x - x == x - x; }                 \
  static inline bool miniml_signbit_##name(type x) { return __builtin_signbit(x) != 0; }       \
  static inline type miniml_fma_##name(type x, type y, type z) {                               \
    return __builtin_fma##s(x, y, z);                                                          \
  }
MINIML_SIMPLE(float, float32, f)
MINIML_SIMPLE(double, float64, )
