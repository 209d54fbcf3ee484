/* exp of complex numbers. */
#include "exp.h"
#include "sin.h"
#include "cos.h"

/* exp(a) (cos(b) + i sin(b)). Where exp(a) overflows, though the product may not, it is taken as
   exp(a / 2)^2. 0 and inf have no direction where b has none, and the part of b = 0 is 0 at any
   size. All that is chosen are factors and the angle: of a choice between products GCC makes branches
   around the calls of sin and cos. */
#define MINIML_CEXP(name, type, real, s, most)                                                   \
  static inline type _Complex miniml_cexp_##name(type _Complex x) {                              \
    const type a = __real__ x, b = __imag__ x;                                                   \
    const bool large = a > most, lost = !(b - b == 0) & (__builtin_fabs##s(a) == INFINITY);      \
    const type size = miniml_exp_##real(large ? a / 2 : a), again = large ? size : 1;            \
    const type angle = lost ? __builtin_copysign##s(0, b) : b;                                   \
    const type of_im = b == 0 ? 1 : size, again_im = b == 0 ? 1 : again;                         \
    return __builtin_complex(size * miniml_cos_##real(angle) * again,                            \
                             of_im * miniml_sin_##real(angle) * again_im);                       \
  }
MINIML_CEXP(complex64, float, float32, f, 88)
MINIML_CEXP(complex128, double, float64, , 709)
