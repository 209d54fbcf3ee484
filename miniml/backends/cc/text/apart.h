/* No iteration of the loop that follows reads what another one writes. */
#if defined(__clang__)
#define MINIML_APART _Pragma("clang loop vectorize(assume_safety)")
#else
#define MINIML_APART _Pragma("GCC ivdep")
#endif
/* GCC unrolls a loop of at most 16 iterations inside of another before it looks for vectors, and
   then finds none where there are choices; of stores it makes vectors again, which takes long. */
#if defined(__clang__)
#define MINIML_ROLLED
#else
#define MINIML_ROLLED _Pragma("GCC unroll 1")
#endif
