#include <math.h>

static int miniml_finite_REAL(const REAL *x, long count) {
  for (long i = 0; i < count; ++i)
    if (!(x[i] - x[i] == 0)) return 0;
  return 1;
}
static void miniml_fill_REAL(REAL *x, long count, REAL value) {
  for (long i = 0; i < count; ++i) x[i] = value;
}

/* Elimination with partial pivoting, in place: a (n, n) becomes upper triangular, and b (n, k), its
   right side, follows. Returns the sign of the exchanges of rows; 0 where a pivot is 0. */
static int miniml_eliminate_REAL(REAL *a, long n, REAL *b, long k) {
  int sign = 1;
  for (long p = 0; p < n; ++p) {
    long best = p;
    for (long i = p + 1; i < n; ++i)
      if (FABS(a[i * n + p]) > FABS(a[best * n + p])) best = i;
    if (a[best * n + p] == 0) return 0;
    if (best != p) {
      for (long j = p; j < n; ++j) {
        const REAL t = a[p * n + j];
        a[p * n + j] = a[best * n + j], a[best * n + j] = t;
      }
      for (long c = 0; c < k; ++c) {
        const REAL t = b[p * k + c];
        b[p * k + c] = b[best * k + c], b[best * k + c] = t;
      }
      sign = -sign;
    }
    for (long i = p + 1; i < n; ++i) {
      const REAL factor = a[i * n + p] / a[p * n + p];
      for (long j = p + 1; j < n; ++j) a[i * n + j] -= factor * a[p * n + j];
      for (long c = 0; c < k; ++c) b[i * k + c] -= factor * b[p * k + c];
    }
  }
  return sign;
}

/* Substitution: x (n, k) becomes the solution y of t y = x, where t is a triangle, read by the steps
   from a row and from a column to the next. Returns 0 where t has a pivot of 0, or is not finite. */
static int miniml_substitute_REAL(
    const REAL *t, long row, long column, long n, int upwards, int unit, REAL *x, long k) {
  for (long s = 0; s < n; ++s) {
    const long i = upwards ? n - 1 - s : s;
    const long begin = upwards ? i + 1 : 0, end = upwards ? n : i;
    const REAL pivot = unit ? 1 : t[i * row + i * column];
    if (pivot == 0 || !(pivot - pivot == 0)) return 0;
    for (long j = begin; j < end; ++j) {
      const REAL factor = t[i * row + j * column];
      if (!(factor - factor == 0)) return 0;
      for (long c = 0; c < k; ++c) x[i * k + c] -= factor * x[j * k + c];
    }
    for (long c = 0; c < k; ++c) x[i * k + c] /= pivot;
  }
  return 1;
}

/* The lower triangle l (n, n) with l l^T = (a + a^T) / 2; 0 where that is not positive definite. */
static int miniml_cholesky_REAL(const REAL *a, long n, REAL *l) {
  for (long i = 0; i < n; ++i)
    for (long j = 0; j < n; ++j) {
      REAL sum = 0;
      if (j <= i) {
        sum = a[i * n + j] / 2 + a[j * n + i] / 2;
        for (long p = 0; p < j; ++p) sum -= l[i * n + p] * l[j * n + p];
        if (j == i && !(sum > 0)) return 0;
        sum = j == i ? SQRT(sum) : sum / l[j * n + j];
      }
      l[i * n + j] = sum;
    }
  return 1;
}
