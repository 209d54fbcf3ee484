/* Values of a dtype as those of another, as Cast. A float16 or bfloat16 is kept in memory as its
   bits (uint16_t) and computed with as a float that holds it exactly. */
#include "bits.h"

/* x of any type as a value of a dtype, by the dtype's functions. */
#define MINIML_TO(x, name)                                                                \
  _Generic((x), float: name##_of_float, double: name##_of_double, default: name##_of_int, \
           unsigned long: name##_of_uint, unsigned long long: name##_of_uint)(x)

/* From floating point towards zero, to the nearest end of the range from outside, to 0 from NaN.
   low: the least integer; past: the first above all, whose predecessor is most. */
#define MINIML_WHOLE(name, type, low, past, most)                                     \
  static inline type name##_of_float(float x) {                                       \
    return x >= past##f ? most : (type)(x < past##f ? (x > low##f ? x : low##f) : 0); \
  }                                                                                   \
  static inline type name##_of_double(double x) {                                     \
    return x >= past ? most : (type)(x < past ? (x > low ? x : low) : 0);             \
  }                                                                                   \
  static inline type name##_of_int(long long x) { return (type)x; }                   \
  static inline type name##_of_uint(unsigned long long x) { return (type)x; }
MINIML_WHOLE(miniml_int32, int, -0x1p31, 0x1p31, 0x7fffffff)
MINIML_WHOLE(miniml_int64, long long, -0x1p63, 0x1p63, 0x7fffffffffffffffLL)
MINIML_WHOLE(miniml_uint32, unsigned int, 0x0p0, 0x1p32, 0xffffffffu)
MINIML_WHOLE(miniml_uint64, unsigned long long, 0x0p0, 0x1p64, 0xffffffffffffffffULL)

/* The same to few bits, whose greatest integer is a float: by two comparisons, so that loops stay
   vector code, and by an int, since compilers have no vectors for what has fewer bits. */
#define MINIML_FEW(name, type, low, most)                                                   \
  static inline type name##_of_double(double x) {                                           \
    x = x == x ? x : 0;                                                                     \
    x = x > low ? x : low;                                                                  \
    return (type)(int)(x < most ? x : most);                                                \
  }                                                                                         \
  static inline type name##_of_float(float x) {                                             \
    x = x == x ? x : 0;                                                                     \
    x = x > low##f ? x : low##f;                                                            \
    return (type)(int)(x < most##f ? x : most##f);                                          \
  }                                                                                         \
  static inline type name##_of_int(long long x) { return (type)x; }                         \
  static inline type name##_of_uint(unsigned long long x) { return (type)x; }
MINIML_FEW(miniml_int8, signed char, -128.0, 127.0)
MINIML_FEW(miniml_int16, short, -32768.0, 32767.0)
MINIML_FEW(miniml_uint8, unsigned char, 0.0, 255.0)
MINIML_FEW(miniml_uint16, unsigned short, 0.0, 65535.0)

static inline float miniml_load_bfloat16(uint16_t x) { return miniml_real32((uint32_t)x << 16); }

static inline uint16_t miniml_store_bfloat16(float x) {
  const uint32_t bits = miniml_bits32(x), sign = bits >> 31 << 15;
  const uint32_t even = bits + 0x7fff + (bits >> 16 & 1);  /* to the nearest, ties to even */
  return (uint16_t)(x == x ? even >> 16 : 0x7fc0 | sign);
}

/* The float whose exponent has 8 bits holds 2^112 times a number whose exponent has 5, bit by bit;
   the product is exact, for denormals too. */
static inline float miniml_load_float16(uint16_t x) {
  const uint32_t rest = (uint32_t)(x & 0x7fff) << 13, sign = (uint32_t)(x & 0x8000) << 16;
  const uint32_t scaled = miniml_bits32(miniml_real32(rest) * 0x1p112f);
  return miniml_real32(sign | (rest >= 0x7c00u << 13 ? rest | 0x7f800000 : scaled));
}

/* To the nearest float16, ties to even. Below 2^-14 its neighbours are 2^-24 apart, as those of the
   wide type at `unit` are: adding rounds to them. Overflow gives inf, whose bits are 0x7c00. */
#define MINIML_STORE_FLOAT16(name, type, wide, bits_of, size_of, digits, bias, unit)           \
  static inline uint16_t name(type x) {                                                        \
    const wide bits = bits_of(x), rest = bits << 1 >> 1;                                       \
    const wide sign = bits >> (8 * sizeof(type) - 1) << 15;                                    \
    const wide small = bits_of(size_of(x) + unit) - bits_of(unit);                             \
    const wide half = ((wide)1 << (digits - 11)) - 1, odd = rest >> (digits - 10) & 1;         \
    const wide even = (rest - ((wide)(bias - 15) << digits) + half + odd) >> (digits - 10);    \
    const wide held = even < 0x7c00 ? even : 0x7c00;                                           \
    const wide made = rest >= (wide)(bias - 14) << digits ? held : small;                      \
    return (uint16_t)(sign | (x == x ? made : 0x7e00));                                        \
  }
MINIML_STORE_FLOAT16(miniml_store_float16, float, uint32_t, miniml_bits32, __builtin_fabsf, 23, 127,
                     0x1p-1f)
MINIML_STORE_FLOAT16(miniml_half_of_double, double, uint64_t, miniml_bits64, __builtin_fabs, 52, 1023,
                     0x1p28)

/* Runs of float16 as floats, and back, by the processor's instructions where it has them: as wide as
   its vectors, since a vector that is read soon cannot be put together from two that are still being
   written. Clang has _Float16 on every x86-64 from version 15 on, and the built-in functions in its
   earlier ones. */
#if defined(__F16C__)
#if defined(__AVX512F__)
#define MINIML_HALF_RUN 16
#define MINIML_WIDENED_BY_CALL(x) __builtin_ia32_vcvtph2ps512_mask(x, (miniml_float_run){0}, -1, 4)
#define MINIML_HALVED_BY_CALL(x) __builtin_ia32_vcvtps2ph512_mask(x, 0, (miniml_half_run){0}, -1)
#else
#define MINIML_HALF_RUN 8
#define MINIML_WIDENED_BY_CALL(x) __builtin_ia32_vcvtph2ps256(x)
#define MINIML_HALVED_BY_CALL(x) __builtin_ia32_vcvtps2ph256(x, 0)
#endif
typedef float miniml_float_run __attribute__((vector_size(4 * MINIML_HALF_RUN), aligned(4)));
#if defined(__clang__) && __clang_major__ >= 15
typedef _Float16 miniml_half_run
    __attribute__((vector_size(2 * MINIML_HALF_RUN), aligned(2), may_alias));
#define MINIML_WIDENED(x) __builtin_convertvector(x, miniml_float_run)
#define MINIML_HALVED(x) __builtin_convertvector(x, miniml_half_run)
#else
typedef short miniml_half_run
    __attribute__((vector_size(2 * MINIML_HALF_RUN), aligned(2), may_alias));
#define MINIML_WIDENED(x) MINIML_WIDENED_BY_CALL(x)
#define MINIML_HALVED(x) MINIML_HALVED_BY_CALL(x)
#endif
#endif
static inline void miniml_load_halves(float *to, const uint16_t *from, long n) {
  long i = 0;
#if defined(MINIML_HALF_RUN)
  for (; i + MINIML_HALF_RUN <= n; i += MINIML_HALF_RUN)
    *(miniml_float_run *)(to + i) = MINIML_WIDENED(*(const miniml_half_run *)(from + i));
#endif
  for (; i < n; ++i) to[i] = miniml_load_float16(from[i]);
}
static inline void miniml_store_halves(uint16_t *to, const float *from, long n) {
  long i = 0;
#if defined(MINIML_HALF_RUN)
  for (; i + MINIML_HALF_RUN <= n; i += MINIML_HALF_RUN)
    *(miniml_half_run *)(to + i) = MINIML_HALVED(*(const miniml_float_run *)(from + i));
#endif
  for (; i < n; ++i) to[i] = miniml_store_float16(from[i]);
}

/* A float rounded to those that a float16 holds: as miniml_store_float16, in place. Neighbours of x
   are as far apart as those of 1.5 * 2^13 times the power of 2 in it, or below 2^-14 in that: adding
   rounds to them. */
static inline float miniml_float16_of_float(float x) {
  const uint32_t bits = miniml_bits32(x), power = bits & 0x7f800000, least = 113u << 23;
  const float large = miniml_real32(power > least ? power : least) * 0x1.8p13f;
  const float near = x + large - large, size = miniml_real32(bits & 0x7fffffff);
  const float made = size < 65520 ? near : x * INFINITY;
  return miniml_real32(miniml_bits32(made) | (bits & 0x80000000));
}

/* Rounding to a float16 or bfloat16 that stays a float; late: where a store rounds floats. */
#define MINIML_ROUNDED(name, load, of_double)                                                \
  static inline float miniml_##name##_of_double(double x) { return load(of_double(x)); }     \
  static inline float miniml_late_##name##_of_double(double x) { return load(of_double(x)); } \
  static inline float miniml_late_##name##_of_float(float x) { return x; }                   \
  MINIML_ROUNDED_WHOLE(name, of_int, long long)                                              \
  MINIML_ROUNDED_WHOLE(name, of_uint, unsigned long long)
#define MINIML_ROUNDED_WHOLE(name, of, type)                                                 \
  static inline float miniml_##name##_##of(type x) {                                         \
    return miniml_##name##_of_float((float)x);                                               \
  }                                                                                          \
  static inline float miniml_late_##name##_##of(type x) { return (float)x; }
static inline float miniml_bfloat16_of_float(float x) {
  const uint32_t bits = miniml_bits32(x), even = bits + 0x7fff + (bits >> 16 & 1);
  return miniml_real32((x == x ? even : bits | 0x400000) & 0xffff0000);
}
MINIML_ROUNDED(float16, miniml_load_float16, miniml_half_of_double)
MINIML_ROUNDED(bfloat16, miniml_load_bfloat16, miniml_store_bfloat16)
