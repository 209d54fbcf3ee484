/* Vectors as wide as this machine's registers, and functions in which a product and a sum are one
   fma: those with MINIML_FMA, which begin with MINIML_CONTRACT. */
#if defined(__AVX512F__)
#define MINIML_VECTOR 64
#define MINIML_LANES_float 16
#define MINIML_LANES_double 8
#elif defined(__AVX__)
#define MINIML_VECTOR 32
#define MINIML_LANES_float 8
#define MINIML_LANES_double 4
#else
#define MINIML_VECTOR 16
#define MINIML_LANES_float 4
#define MINIML_LANES_double 2
#endif
#if defined(__AVX512F__) || defined(__aarch64__)
#define MINIML_REGISTERS 32
#else
#define MINIML_REGISTERS 16
#endif
#define MINIML_WIDER_float double
#define MINIML_WIDER_double long double
#if defined(__clang__)
#define MINIML_UNROLL _Pragma("clang loop unroll(full)")
#else
#define MINIML_UNROLL _Pragma("GCC unroll 16")
#endif
/* One function for all callers: no copies for their constants, which take long to compile. */
#if defined(__clang__)
#define MINIML_ONCE __attribute__((noinline))
#else
#define MINIML_ONCE __attribute__((noinline, noclone))
#endif
/* For what is unrolled by its text: gcc then has nothing to look for, which takes as long again. */
#if defined(__clang__)
#define MINIML_PLAIN
#else
#define MINIML_PLAIN __attribute__((optimize("O2")))
#endif
#if defined(__clang__)
#define MINIML_FMA __attribute__((min_vector_width(MINIML_VECTOR * 8)))
#define MINIML_PLAIN_FMA MINIML_FMA
#define MINIML_CONTRACT _Pragma("clang fp contract(fast)")
#else
#define MINIML_FMA __attribute__((optimize("fp-contract=fast")))
#define MINIML_PLAIN_FMA __attribute__((optimize("O2", "fp-contract=fast"))) /* not both: one counts */
#define MINIML_CONTRACT
#endif

/* The lanes of two vectors in turn: of their lower halves, and of their upper ones. */
#define MINIML_LOW_2 0, 2
#define MINIML_HIGH_2 1, 3
#define MINIML_LOW_4 0, 4, 1, 5
#define MINIML_HIGH_4 2, 6, 3, 7
#define MINIML_LOW_8 0, 8, 1, 9, 2, 10, 3, 11
#define MINIML_HIGH_8 4, 12, 5, 13, 6, 14, 7, 15
#define MINIML_LOW_16 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define MINIML_HIGH_16 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#define MINIML_PASTE(a, b) a##b
#define MINIML_JOIN(a, b) MINIML_PASTE(a, b)
