/* Pieces of the elementary functions, without branches, so that loops over them are vectorised. */
#include "hardware.h"

static inline uint32_t miniml_bits32(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}
static inline uint64_t miniml_bits64(double x) {
  uint64_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}
static inline float miniml_real32(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}
static inline double miniml_real64(uint64_t bits) {
  double x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

/* x * y + z, rounded once where the processor does that quickly. */
static inline float miniml_madd32(float x, float y, float z) {
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
  return __builtin_fmaf(x, y, z);
#else
  return x * y + z;
#endif
}
static inline double miniml_madd64(double x, double y, double z) {
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
  return __builtin_fma(x, y, z);
#else
  return x * y + z;
#endif
}

/* x * y + z, rounded once, where it is a float or nearly. */
static inline float miniml_fused32(float x, float y, float z) {
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
  return __builtin_fmaf(x, y, z);
#else
  return (float)((double)x * y + z);
#endif
}

/* Added to a number below 2^22 (2^51), these round it to an integer n, which then stands in the
   last bits of the sum. */
#define MINIML_ROUND32 0x1.8p23f
#define MINIML_ROUND64 0x1.8p52

/* 2^n of n in the last bits of MINIML_ROUND32 + n; n in [-126, 127]. */
static inline float miniml_power32(float shifted) {
  return miniml_real32((miniml_bits32(shifted) + 127) << 23);
}
/* 2^n of n in the last bits of MINIML_ROUND64 + n; n in [-1022, 1023]. */
static inline double miniml_power64(double shifted) {
  return miniml_real64((miniml_bits64(shifted) + 1023) << 52);
}
/* MINIML_ROUND32 + n, or at most that of a cap: of NaN it is one or NaN. By bits, in one instruction. */
static inline float miniml_capped32(float shifted, int cap) {
  const int32_t bits = (int32_t)miniml_bits32(shifted), most = 0x4b400000 + cap;
  return miniml_real32((uint32_t)(bits < most ? bits : most));
}
static inline double miniml_capped64(double shifted, int cap) {
  return shifted > MINIML_ROUND64 + cap ? MINIML_ROUND64 + cap : shifted;
}
/* (x + y) * 2^n of n + 254 (2046) in the last bits, in two steps, because 2^n may be out of range where the
   product is not. The exponents, made positive, are the halves of that, rounded down and up. */
static inline float miniml_scaled32(float x, float y, float shifted) {
  const uint32_t sum = miniml_bits32(shifted), half = sum >> 1 << 23;
  const float first = miniml_real32(half);
  return miniml_madd32(first, y, first * x) * miniml_real32((sum << 23) - half);
}
static inline double miniml_scaled64(double x, double y, double shifted) {
  const uint64_t sum = miniml_bits64(shifted), half = sum >> 1 << 52;
  const double first = miniml_real64(half);
  return miniml_madd64(first, y, first * x) * miniml_real64((sum << 52) - half);
}

/* m of x = m * 2^e, and e, of the bits of a positive normal number, and of any positive number: m in [2/3, 4/3). */
static inline float miniml_normal_mantissa32(uint32_t x, float *e) {
  const uint32_t low = 0x3f2aaaab, bits = x - low;
  *e = (float)((int32_t)bits >> 23);
  return miniml_real32((bits & 0x7fffff) + low);
}
static inline float miniml_mantissa32(float x, float *e) {
  const int small = x < 0x1p-126f;
  const uint32_t less = small ? 23 << 23 : 0;
  return miniml_normal_mantissa32(miniml_bits32(x * (small ? 0x1p23f : 1)) - less, e);
}
/* The same: m in [sqrt(1/2), sqrt(2)). The exponent, made positive, becomes a number as
   the last bits of 2^52: not every processor converts vectors of 64-bit integers. */
static inline double miniml_normal_mantissa64(uint64_t x, double *e) {
  const uint64_t low = 0x3fe6a09e667f3bcd, bits = x - low, positive = (bits + (1100ULL << 52)) >> 52;
  *e = miniml_real64(0x4330000000000000 | positive) - (0x1p52 + 1100);
  return miniml_real64((bits & 0xfffffffffffff) + low);
}
static inline double miniml_mantissa64(double x, double *e) {
  const int small = x < 0x1p-1022;
  const uint64_t less = small ? 54ULL << 52 : 0;
  return miniml_normal_mantissa64(miniml_bits64(x * (small ? 0x1p54 : 1)) - less, e);
}

/* A logarithm y of x where x is no positive number: NaN (whose next bit is set) below 0, -inf at 0.
   Made of bits: of a choice of constants GCC makes branches where another choice follows; and it would
   join the two choices, with more comparisons. */
static inline float miniml_log_end32(float x, float y) {
  const float none = miniml_real32(0xff800000u | (uint32_t)(x < 0) << 22);
  const float up = MINIML_PRODUCT(x < INFINITY ? y : x);
  return x <= 0 ? none : up;
}
static inline double miniml_log_end64(double x, double y) {
  const double none = miniml_real64(0xfff0000000000000u | (uint64_t)(x < 0) << 51);
  const double up = MINIML_PRODUCT(x < INFINITY ? y : x);
  return x <= 0 ? none : up;
}
