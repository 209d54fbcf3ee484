/* Functions for which GCC's loops call variants for vectors, by the names that the vector function ABI of
   x86-64 gives them. So what is rare is a branch for a vector, and not computed for each element. */
#include "apart.h"
#include "bits.h"

#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__ELF__) && \
    defined(__FP_FAST_FMA)
typedef float miniml_float_x4 __attribute__((vector_size(16)));
typedef float miniml_float_x8 __attribute__((vector_size(32), may_alias));
typedef double miniml_double_x2 __attribute__((vector_size(16)));
typedef double miniml_double_x4 __attribute__((vector_size(32), may_alias));

/* The widest vectors and their variants; 0 if all elements are below 2^20. */
#ifdef __AVX512F__
typedef float miniml_float_all __attribute__((vector_size(64), may_alias));
typedef double miniml_double_all __attribute__((vector_size(64), may_alias));
#define MINIML_ALL_float "_ZGVeN16v_"
#define MINIML_ALL_double "_ZGVeN8v_"
static inline int miniml_huge_float(miniml_float_all x) {
  return __builtin_ia32_cmpps512_mask(x * x, (miniml_float_all){0} + 0x1p40f, 5, -1, 4);
}
static inline int miniml_huge_double(miniml_double_all x) {
  return __builtin_ia32_cmppd512_mask(x * x, (miniml_double_all){0} + 0x1p40, 5, -1, 4);
}
#else
typedef miniml_float_x8 miniml_float_all;
typedef miniml_double_x4 miniml_double_all;
#define MINIML_ALL_float "miniml_all_"
#define MINIML_ALL_double "miniml_all_"
static inline int miniml_huge_float(miniml_float_all x) {
  return __builtin_ia32_movmskps256((miniml_float_all) ~(x * x < 0x1p40f));
}
static inline int miniml_huge_double(miniml_double_all x) {
  return __builtin_ia32_movmskpd256((miniml_double_all) ~(x * x < 0x1p40));
}
#endif

#define MINIML_WEAK(symbol) __asm__(symbol) __attribute__((weak, visibility("hidden")))
/* Fewer elements are computed with zeros beside them. */
#define MINIML_FEWER(few, type, name, symbol)                 \
  few symbol##name(few x) MINIML_WEAK(#symbol #name);         \
  few symbol##name(few x) {                                   \
    union {                                                   \
      type##_all all;                                         \
      few some;                                               \
    } held = {{0}};                                           \
    held.some = x;                                            \
    held.all = name##_all(held.all);                          \
    return held.some;                                         \
  }
#define MINIML_FEWER_float(name)                              \
  MINIML_FEWER(miniml_float_x4, miniml_float, name, _ZGVbN4v_) \
  MINIML_FEWER(miniml_float_x8, miniml_float, name, _ZGVcN8v_) \
  MINIML_FEWER(miniml_float_x8, miniml_float, name, _ZGVdN8v_)
#define MINIML_FEWER_double(name)                               \
  MINIML_FEWER(miniml_double_x2, miniml_double, name, _ZGVbN2v_) \
  MINIML_FEWER(miniml_double_x4, miniml_double, name, _ZGVcN4v_) \
  MINIML_FEWER(miniml_double_x4, miniml_double, name, _ZGVdN4v_)

/* name(x) is near(x) where |x| < 2^20, else any(x). */
#define MINIML_RARELY(type, name, near, any)                                                   \
  type name(type x) __attribute__((simd("notinbranch"), const, visibility("hidden")));         \
  static __attribute__((noinline, cold)) miniml_##type##_all name##_rare(                      \
      miniml_##type##_all x, miniml_##type##_all y) {                                          \
    MINIML_ROLLED                                                                              \
    for (int l = 0; l < (int)(sizeof x / sizeof(type)); ++l)                                   \
      if (!(x[l] * x[l] < (type)0x1p40)) y[l] = any(x[l]);                                     \
    return y;                                                                                  \
  }                                                                                            \
  miniml_##type##_all name##_all(miniml_##type##_all x) MINIML_WEAK(MINIML_ALL_##type #name);  \
  miniml_##type##_all name##_all(miniml_##type##_all x) {                                      \
    type a[sizeof x / sizeof(type)] __attribute__((aligned(sizeof x)));                        \
    type y[sizeof x / sizeof(type)] __attribute__((aligned(sizeof x)));                        \
    *(miniml_##type##_all *)a = x;                                                             \
    for (int l = 0; l < (int)(sizeof x / sizeof(type)); ++l) y[l] = near(a[l]);                \
    const miniml_##type##_all made = *(miniml_##type##_all *)y;                                \
    return __builtin_expect(miniml_huge_##type(x), 0) ? name##_rare(x, made) : made;           \
  }                                                                                            \
  type name##_alone(type x) MINIML_WEAK(#name);                                                \
  type name##_alone(type x) { return name##_all((miniml_##type##_all){x})[0]; }                \
  MINIML_FEWER_##type(name)
#endif
