/* Quotients of integers towards minus infinity, and what remains, without branches: by 0 both are 0,
   and the least integer by -1 wraps. Of up to 16 bits they are exact in float32, of 32 in float64;
   by a constant compilers multiply. */
#include "hardware.h"

#define MINIML_QUOTIENT(type, name, unsigned_, least, real, exact)                             \
  static inline type miniml_int_floor_div_##name(type x, type y) {                             \
    if (__builtin_constant_p(y) && y != 0 && y != (type)-1) {                                  \
      const type q = (type)(x / y);                                                            \
      return (type)(q - ((x - q * y != 0) & ((x < 0) != (y < 0))));                            \
    }                                                                                          \
    const real q = miniml_floor_##exact((real)x / (real)y);                                    \
    return (type)(y == 0 ? 0 : least < 0 && q == -least ? least : q);                          \
  }                                                                                            \
  static inline type miniml_int_mod_##name(type x, type y) {                                   \
    const type q = miniml_int_floor_div_##name(x, y);                                          \
    return (type)(y == 0 ? 0 : (unsigned_)x - (unsigned_)q * (unsigned_)y);                    \
  }
MINIML_QUOTIENT(int8_t, int8, uint32_t, -0x1p7f, float, float32)
MINIML_QUOTIENT(int16_t, int16, uint32_t, -0x1p15f, float, float32)
MINIML_QUOTIENT(int32_t, int32, uint32_t, -0x1p31, double, float64)
MINIML_QUOTIENT(uint8_t, uint8, uint32_t, 0.f, float, float32)
MINIML_QUOTIENT(uint16_t, uint16, uint32_t, 0.f, float, float32)
MINIML_QUOTIENT(uint32_t, uint32, uint32_t, 0., double, float64)

#ifdef __AVX512DQ__
/* The quotient in float64 is at most 2^11 off, and so is what it leaves of x in multiples of y; its
   quotient is at most one off. */
static inline int64_t miniml_divided(int64_t x, int64_t given, int64_t *left) {
  const int64_t y = given == 0 ? 1 : given;
  const double inverse = (double)x / (double)y, most = 0x1.fffffffffffffp62;
  const int64_t first = (int64_t)(inverse > most ? most : inverse);
  const int64_t rest = (int64_t)((uint64_t)x - (uint64_t)first * (uint64_t)y);
  const int64_t second = (int64_t)miniml_floor_float64((double)rest / (double)y);
  const int64_t r = (int64_t)((uint64_t)rest - (uint64_t)second * (uint64_t)y);
  const int64_t above = y > 0 ? r >= y : r <= y, below = y > 0 ? r < 0 : r > 0;
  const int64_t more = above - below;
  *left = given == 0 ? 0 : (int64_t)((uint64_t)r - (uint64_t)more * (uint64_t)y);
  return given == 0 ? 0 : (int64_t)((uint64_t)first + (uint64_t)second + (uint64_t)more);
}
static inline int64_t miniml_int_floor_div_int64(int64_t x, int64_t y) {
  int64_t left;
  return miniml_divided(x, y, &left);
}
static inline int64_t miniml_int_mod_int64(int64_t x, int64_t y) {
  int64_t left;
  miniml_divided(x, y, &left);
  return left;
}
#else
static inline int64_t miniml_int_floor_div_int64(int64_t x, int64_t y) {
  if (y == 0 || y == -1) return (int64_t)(0 - (uint64_t)x * (y != 0));
  return x / y - (x % y != 0 && (x < 0) != (y < 0));
}
static inline int64_t miniml_int_mod_int64(int64_t x, int64_t y) {
  if (y == 0 || y == -1) return 0;
  const int64_t r = x % y;
  return r + (r != 0 && (r < 0) != (y < 0) ? y : 0);
}
#endif
static inline uint64_t miniml_int_floor_div_uint64(uint64_t x, uint64_t y) {
  return y == 0 ? 0 : x / y;
}
static inline uint64_t miniml_int_mod_uint64(uint64_t x, uint64_t y) { return y == 0 ? 0 : x % y; }
