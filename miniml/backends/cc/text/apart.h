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
/* GCC would compute beforehand what follows from a choice of constants, and jump from one choice past
   another that asks what it chose (relu in a loop with its gradient): in branches, for which a
   loop is not vectorised. Before version 12 the attribute resets other options. */
#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 12
#define MINIML_STRAIGHT __attribute__((optimize("no-tree-pre", "no-thread-jumps")))
#else
#define MINIML_STRAIGHT
#endif
