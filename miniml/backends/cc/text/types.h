/* Words that expressions may use. */
#include <stdbool.h>
#ifndef INFINITY
#define INFINITY __builtin_inff()
#endif
#ifndef NAN
#define NAN __builtin_nanf("")
#endif
#ifndef M_PI
#define M_PI 3.14159265358979323846
#define M_SQRT1_2 0.70710678118654752440
#endif
