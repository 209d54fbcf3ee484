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

#ifdef __FP_FAST_FMA
/* The rounded quotient is at most one too large, and what remains has no more digits than y. `rare`
   is set where the quotient is too large for that. */
static inline double miniml_fmod_quick(double x, double y, int *rare) {
  const double a = __builtin_fabs(x), b = __builtin_fabs(y);
  const double r = __builtin_fma(-__builtin_trunc(a / b), b, a);
  *rare |= !((a < b * 0x1p51) & (b < __builtin_inf()));
  return __builtin_copysign(r < 0 ? r + b : r, x);
}
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__ELF__)
/* GCC's loops call variants of it for vectors, whose names the vector function ABI of x86-64 gives.
   So what is rare is a branch for a vector, and not for each element. */
double miniml_fmod_float64(double x, double y) __asm__("miniml_fmod")
    __attribute__((simd("notinbranch"), const, visibility("hidden")));
#define MINIML_FMOD(type, name, symbol, lanes)                                                 \
  type name(type x, type y) __asm__(symbol) __attribute__((weak, visibility("hidden")));       \
  type name(type x, type y) {                                                                  \
    double a[lanes], b[lanes], r[lanes];                                                       \
    int rare = 0;                                                                              \
    memcpy(a, &x, sizeof x), memcpy(b, &y, sizeof y);                                          \
    for (int l = 0; l < lanes; ++l) r[l] = miniml_fmod_quick(a[l], b[l], &rare);               \
    for (int l = 0; rare && l < lanes; ++l) r[l] = __builtin_fmod(a[l], b[l]);                 \
    memcpy(&x, r, sizeof x);                                                                   \
    return x;                                                                                  \
  }
typedef double miniml_fmod_2 __attribute__((vector_size(16)));
typedef double miniml_fmod_4 __attribute__((vector_size(32)));
typedef double miniml_fmod_8 __attribute__((vector_size(64)));
MINIML_FMOD(double, miniml_fmod_1, "miniml_fmod", 1)
MINIML_FMOD(miniml_fmod_2, miniml_fmod_sse, "_ZGVbN2vv_miniml_fmod", 2)
#ifdef __AVX__
MINIML_FMOD(miniml_fmod_4, miniml_fmod_avx, "_ZGVcN4vv_miniml_fmod", 4)
#endif
#ifdef __AVX2__
MINIML_FMOD(miniml_fmod_4, miniml_fmod_avx2, "_ZGVdN4vv_miniml_fmod", 4)
#endif
#ifdef __AVX512F__
MINIML_FMOD(miniml_fmod_8, miniml_fmod_avx512, "_ZGVeN8vv_miniml_fmod", 8)
#endif
#else
static inline double miniml_fmod_float64(double x, double y) {
  int rare = 0;
  const double r = miniml_fmod_quick(x, y, &rare);
  return rare ? __builtin_fmod(x, y) : r;
}
#endif
#else
static inline double miniml_fmod_float64(double x, double y) { return __builtin_fmod(x, y); }
#endif
