/* No iteration of the loop that follows reads what another one writes. */
#if defined(__clang__)
#define MINIML_APART _Pragma("clang loop vectorize(assume_safety)")
#else
#define MINIML_APART _Pragma("GCC ivdep")
#endif
