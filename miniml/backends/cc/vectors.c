/* Vectors of this machine's width, and functions in which a product and a sum are one fma. */
#if defined(__AVX512F__)
#define MINIML_VECTOR 64
#elif defined(__AVX__)
#define MINIML_VECTOR 32
#else
#define MINIML_VECTOR 16
#endif
#if defined(__AVX512F__) || defined(__aarch64__)
#define MINIML_REGISTERS 32
#else
#define MINIML_REGISTERS 16
#endif
#define MINIML_INLINE __attribute__((always_inline))
#if defined(__clang__)
#define MINIML_FMA
#define MINIML_CONTRACT _Pragma("clang fp contract(fast)")
#else
#define MINIML_FMA __attribute__((optimize("fp-contract=fast")))
#define MINIML_CONTRACT
#endif
