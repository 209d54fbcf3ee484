"""Functions that expressions may call: C's mathematics, and functions on a generic type A.

In C++ they become templates, in C one function for each type.
"""

from __future__ import annotations

import re
from functools import cache

FUNCTIONS = r"""
bool is_nan(A x) { return !(x == x); }

bool is_inf(A x) { return (x == x) & (x - x != x - x); }

// Choices by one comparison each: of "x > y or x is NaN" GCC makes branches in chains of them.
A nan_max(A x, A y) { A top = y >= x ? y : x; return is_nan(y) ? y : top; }

A nan_min(A x, A y) { A low = y <= x ? y : x; return is_nan(y) ? y : low; }

A sign(A x) { return is_nan(x) ? x : A(A(0) < x) - A(x < A(0)); }

A wrapped_quotient(A x, A y) {
  return A(-1) < A(1) && y == A(-1) ? A(0ULL - (unsigned long long)x) : A(x / y);
}

// Integers towards minus infinity; by 0 they give 0.
A int_floor_div(A x, A y) {
  if (y == A(0)) return A(0);
  A q = wrapped_quotient(x, y);
  bool inexact = !(A(-1) < A(1) && y == A(-1)) && x % y != A(0);
  return inexact && ((x < A(1)) != (y < A(1))) ? A(q - A(1)) : q;
}

A int_mod(A x, A y) {
  if (y == A(0) || (A(-1) < A(1) && y == A(-1))) return A(0);
  A r = A(x % y);
  return r != A(0) && ((r < A(1)) != (y < A(1))) ? A(r + y) : r;
}

// Of floats: the remainder, or what is left of y, has the sign of y.
A float_mod(A x, A y) {
  A r = fmod(x, y), turned = copysign(r, y) == r ? r : r + y;
  return copysign(turned, y);
}

A float_floor_div(A x, A y) {
  A r = fmod(x, y), q = (x - r) / y, lower = copysign(r, y) == r ? q : q - A(1);
  A whole = floor(lower), near = lower - whole > A(0.5) ? whole + A(1) : whole;
  A made = lower == A(0) ? copysign(A(0), x / y) : near;
  return y == A(0) ? x / y : made;
}

// Integers to integer powers, modulo 2^bits; 0 where the power is negative, but for 1 and -1.
A int_pow(A x, A y) {
  if (y < A(1) && y != A(0))
    return x == A(1) ? A(1) : x == A(-1) ? (y % A(2) ? A(-1) : A(1)) : A(0);
  unsigned long long base = (unsigned long long)x, result = 1ULL;
  for (unsigned long long n = (unsigned long long)y; n; n >>= 1) {
    if (n & 1ULL) result *= base;
    base *= base;
  }
  return A(result);
}

// The bits that are pushed out are lost: all of them by a shift that is negative or too wide.
A shifted_left(A x, A y) {
  return (unsigned long long)y < 8 * sizeof(A) ? A((unsigned long long)x << y) : A(0);
}

A shifted_right(A x, A y) {
  if ((unsigned long long)y < 8 * sizeof(A)) return A(x >> y);
  return x < A(1) && x != A(0) ? A(-1) : A(0);
}

// digamma at d from its positive root, |d| <= 1/4: Taylor's series, as there the terms cancel.
A digamma_near_root(A d) {
  const A c[23] = {
      A(0.00011063372768747411), A(-0.00016170622091974803), A(0.00023635601564027053),
      A(-0.0003454680251063077), A(0.00050495326583460204), A(-0.00073807093899600513),
      A(0.0010788252019162966), A(-0.0015769367714301973), A(0.0023051263267349278),
      A(-0.0033698016554393281), A(0.0049267813957298534), A(-0.0072045343863568682),
      A(0.010538791616612175), A(-0.015424765904948959), A(0.022597648232218105),
      A(-0.033161126474847359), A(0.048804288164143107), A(-0.072199561256454711),
      A(0.10782405069126237), A(-0.16394270544240653), A(0.25849976095565101),
      A(-0.44276316898359211), A(0.96767224544762117)};
  A sum = c[0];
  for (int k = 1; k < 23; ++k) sum = sum * d + c[k];
  return sum * d;
}

// The derivative of order n of digamma at x > 0: 1 / (x + k)^(n + 1) while x + k is small, then the
// formula of Euler and Maclaurin, b being the Bernoulli numbers over factorials (A & S, 6.4.11).
A polygamma_above(A x, A n) {
  const A from_root = (x - A(1.4616321449683622)) - A(9.549995429965697e-17);
  if (n == A(0) && fabs(from_root) <= A(0.25)) return digamma_near_root(from_root);
  const A b[8] = {A(1) / A(12), A(-1) / A(720), A(1) / A(30240), A(-1) / A(1209600),
                  A(1) / A(47900160), A(-691) / A(1307674368000), A(1) / A(74724249600),
                  A(-3617) / A(10670622842880000)};
  A sum = A(0), sign = A(-1), factorial = A(1);
  for (; x < A(10) + A(2) * n; x += A(1)) {
    A power = x;
    for (A i = A(0); i < n; i += A(1)) power *= x;
    sum += A(1) / power;
  }
  A power = A(1);
  for (A i = A(1); i <= n; i += A(1)) {
    power *= x;
    factorial *= i;
    sign = -sign;
  }
  const A over = A(1) / x;
  A term = over / power, tail = term / A(2);
  A rising = A(1);
  for (int k = 0; k < 8; ++k) {
    rising *= k ? (n + A(2 * k)) * (n + A(2 * k + 1)) * over * over : (n + A(1)) * over;
    tail += b[k] * rising * term;
  }
  return sign * factorial * (sum + tail + (n == A(0) ? -log(x) : A(1) / power / n));
}

// By periodicity below 0: with the fractions f and g of x, f + g = 1,
// p(x) = p(f) + (-1)^(n + 1) (p(g) - p(1 - x)).
A polygamma(A x, A n) {
  const double v = double(x), m = double(n), down = floor(v);
  const double odd = fmod(m, 2.0) == 0.0 ? -1.0 : 1.0;
  if (v > 0.0) return A(v - v == 0.0 ? polygamma_above(v, m) : m == 0.0 ? v : 0.0);
  if (v == 0.0) return A(m == 0.0 ? copysign(INFINITY, -x) : odd * INFINITY);
  if (!(v - v == 0.0)) return A(NAN);
  if (v == down) return A(m == 0.0 ? NAN : odd * INFINITY);
  return A(polygamma_above(v - down, m) +
           odd * (polygamma_above(down + 1.0 - v, m) - polygamma_above(1.0 - v, m)));
}

// exp(-rate x^2), rate a power of 2 from 1/2 on, with what the square loses by rounding.
A gaussian(A x, A rate) {
  const A a = nan_min(fabs(x), A(40)), square = a * a;
  return exp(-rate * square) * (A(1) - rate * fma(a, a, -square));
}

// log(exp(x) + exp(y)); of equal infinities that infinity.
A log_add(A x, A y) {
  const A top = nan_max(x, y), low = nan_min(x, y);
  return top + log1p(exp(low == top ? A(0) : low - top));
}

// The sum of two sums of exponentials, s of exp(x - m) and t of exp(x - k), from the larger top.
A scaled_sum(A m, A s, A k, A t) {
  const A top = nan_max(m, k);
  return (m == top || s == A(0) ? s : s * exp(m - top)) +
         (k == top || t == A(0) ? t : t * exp(k - top));
}
"""
OWN = tuple(re.findall(r"^\w+ (\w+)\(A", FUNCTIONS, re.MULTILINE))
# The functions that an expression may call, and the names that it may use besides its primitive's.
C_FUNCTIONS = frozenset(
    """sin cos tan asin acos atan atan2 sinh cosh tanh asinh acosh atanh exp exp2 expm1 log log2
    log10 log1p sqrt rsqrt cbrt pow hypot fabs abs fmod floor ceil rint round trunc fmin fmax min
    max erf erfc erfinv normcdf lgamma tgamma copysign isnan isinf isfinite signbit fma ldexp
    nextafter
    """.split()
) | {*OWN}
_TYPE_WORDS = frozenset("T U float double int bool char short long unsigned signed".split())
C_WORDS = C_FUNCTIONS | _TYPE_WORDS | {"true", "false", "NAN", "INFINITY", "M_PI"}
_CALLED = re.compile(r"(?<![\w.])([A-Za-z_]\w*)\s*\(")


@cache
def unknown_calls(text: str) -> list[str]:
    """The unknown functions that an expression calls, in order."""
    return [name for name in dict.fromkeys(_CALLED.findall(text)) if name not in C_WORDS]


def definitions(before: str) -> str:
    """The functions, each with `before` (as "template ...") in front of it."""
    return re.sub(r"^(?=\w+ \w+\(A)", before, FUNCTIONS, flags=re.MULTILINE)
