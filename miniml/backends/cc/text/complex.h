/* Complex numbers as NumPy computes with them: products by the plain formula, of which one term is
   fused where the processor does that; quotients by Smith's (1962, "Algorithm 116"); absolute values
   that do not overflow on the way. */
#include "bits.h"

/* Products are fused here, since GCC 12 fuses what alternates between + and - even without
   contraction, but not at the end of a loop. A quotient divides by the larger part first, so that no
   square is formed; by 0 the parts are divided by |0|, so that they become infinite or NaN. */
#define MINIML_COMPLEX(type, name, s, bits)                                                      \
  static inline type miniml_creal_##name(type _Complex x) { return __real__ x; }                 \
  static inline type miniml_cimag_##name(type _Complex x) { return __imag__ x; }                 \
  static inline type _Complex miniml_conj_##name(type _Complex x) {                              \
    return __builtin_complex(__real__ x, -__imag__ x);                                           \
  }                                                                                              \
  static inline type _Complex miniml_cmul_##name(type _Complex x, type _Complex y) {             \
    const type a = __real__ x, b = __imag__ x, c = __real__ y, d = __imag__ y;                   \
    return __builtin_complex(miniml_madd##bits(a, c, -(b * d)), miniml_madd##bits(a, d, b * c)); \
  }                                                                                              \
  static inline type _Complex miniml_cdiv_##name(type _Complex x, type _Complex y) {             \
    const type a = __real__ x, b = __imag__ x, c = __real__ y, d = __imag__ y;                   \
    const bool first = __builtin_fabs##s(c) >= __builtin_fabs##s(d), none = (c == 0) & (d == 0); \
    const type large = first ? c : d, small = first ? d : c, ratio = small / large;              \
    const type scale = 1 / (large + small * ratio);                                              \
    const type re = ((first ? a : b) + (first ? b : a) * ratio) * scale;                         \
    const type im = (first ? b - a * ratio : b * ratio - a) * scale;                             \
    const type zero = __builtin_fabs##s(c);                                                      \
    return __builtin_complex(none ? a / zero : re, none ? b / zero : im);                        \
  }                                                                                              \
  static inline type _Complex miniml_crecip_##name(type _Complex x) {                            \
    const type c = __real__ x, d = __imag__ x;                                                   \
    const bool first = __builtin_fabs##s(d) <= __builtin_fabs##s(c);                             \
    const type large = first ? c : d, small = first ? d : c, ratio = small / large;              \
    const type whole = large + small * ratio;                                                    \
    return __builtin_complex((first ? 1 : ratio) / whole, -(first ? ratio : 1) / whole);         \
  }
MINIML_COMPLEX(float, complex64, f, 32)
MINIML_COMPLEX(double, complex128, , 64)

/* Of p >= q the root of p^2 + q^2, which is 2 p q + (p - q)^2: the term that is rounded by itself is
   at most a fifth of the sum, so the result is off by less than one unit in the last place (0.92 is
   the most that was found). A power of two keeps the squares in range. */
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
#define MINIML_CABS(type, name, s, large, small, scale)                                          \
  static inline type miniml_cabs_##name(type _Complex x) {                                       \
    const type a = __builtin_fabs##s(__real__ x), b = __builtin_fabs##s(__imag__ x);             \
    const type most = a > b ? a : b, least = a > b ? b : a;                                      \
    const type by = most > large ? 1 / scale : most < small ? scale : 1;                         \
    const type back = most > large ? scale : most < small ? 1 / scale : 1;                       \
    const type p = most * by, q = least * by;                                                    \
    const bool near = q + q >= p;                                                                \
    const type times = near ? q + q : p, rest = near ? p - q : q;                                \
    const type root = __builtin_sqrt##s(__builtin_fma##s(times, p, rest * rest));                \
    return ((a == INFINITY) | (b == INFINITY)) ? INFINITY : root * back;                         \
  }
MINIML_CABS(float, complex64, f, 0x1p60f, 0x1p-50f, 0x1p90f)
MINIML_CABS(double, complex128, , 0x1p500, 0x1p-400, 0x1p600)
#else
static inline float miniml_cabs_complex64(float _Complex x) {
  const double a = __real__ x, b = __imag__ x;
  const float root = __builtin_sqrt(a * a + b * b);
  return ((__builtin_fabs(a) == INFINITY) | (__builtin_fabs(b) == INFINITY)) ? INFINITY : root;
}
static inline double miniml_cabs_complex128(double _Complex x) {
  return __builtin_hypot(__real__ x, __imag__ x);
}
#endif
