/* Multiplies x by a power of 2, so that its largest number is from 1/2 to 1; returns its exponent. */
static int miniml_scale_REAL(REAL *x, long count) {
  REAL most = 0;
  int exponent = 0;
  for (long i = 0; i < count; ++i) most = FABS(x[i]) > most ? FABS(x[i]) : most;
  FREXP(most, &exponent);
  for (long i = 0; i < count; ++i) x[i] = LDEXP(x[i], -exponent);
  return exponent;
}

/* x, y = c x - s y, s x + c y, elements that lie `step` apart. */
static void miniml_rotate_REAL(REAL *x, REAL *y, long step, long count, REAL c, REAL s) {
  for (long i = 0; i < count; ++i) {
    const REAL a = x[i * step], b = y[i * step];
    x[i * step] = c * a - s * b, y[i * step] = s * a + c * b;
  }
}

/* The tangent of the rotation that makes the off-diagonal number `off` of a symmetric matrix 0. */
static REAL miniml_tangent_REAL(REAL first, REAL last, REAL off) {
  const REAL turn = (last - first) / (2 * off);
  return (turn < 0 ? -1 : 1) / (FABS(turn) + SQRT(turn * turn + 1));
}

/* 1 or -1, the sign of the first of the largest numbers, those from 9/10 of the largest on. */
static REAL miniml_sign_REAL(const REAL *x, long step, long count) {
  REAL most = 0;
  for (long i = 0; i < count; ++i) most = FABS(x[i * step]) > most ? FABS(x[i * step]) : most;
  for (long i = 0; i < count; ++i)
    if (FABS(x[i * step]) >= (REAL)0.9 * most) return x[i * step] < 0 ? -1 : 1;
  return 1;
}

/* Eigenvalues w (n,), ascending, and vectors, the columns of v (n, n), of a symmetric matrix a, which
   is overwritten, by Jacobi's rotations. */
static void miniml_eigh_REAL(REAL *a, long n, REAL *w, REAL *v) {
  const int exponent = miniml_scale_REAL(a, n * n);
  for (long i = 0; i < n; ++i)
    for (long j = 0; j < n; ++j) v[i * n + j] = i == j;
  for (int sweep = 0, turned = 1; turned && sweep < 60; ++sweep) {
    turned = 0;
    for (long p = 0; p < n; ++p)
      for (long q = p + 1; q < n; ++q) {
        const REAL off = a[p * n + q], first = a[p * n + p], last = a[q * n + q];
        const REAL least = FABS(first) < FABS(last) ? FABS(first) : FABS(last);
        if (FABS(off) <= EPS / 4 * least) continue;
        const REAL t = miniml_tangent_REAL(first, last, off), c = 1 / SQRT(t * t + 1);
        miniml_rotate_REAL(a + p, a + q, n, n, c, c * t);
        miniml_rotate_REAL(a + p * n, a + q * n, 1, n, c, c * t);
        miniml_rotate_REAL(v + p, v + q, n, n, c, c * t);
        a[p * n + p] = first - t * off, a[q * n + q] = last + t * off;
        a[p * n + q] = a[q * n + p] = 0;
        turned = 1;
      }
  }
  for (long i = 0; i < n; ++i) w[i] = a[i * n + i];
  for (long i = 0; i < n; ++i) {
    long least = i;
    for (long j = i + 1; j < n; ++j) least = w[j] < w[least] ? j : least;
    const REAL t = w[i];
    w[i] = LDEXP(w[least], exponent);
    if (least != i) w[least] = t;
    const REAL sign = miniml_sign_REAL(v + least, n, n);
    for (long j = 0; j < n; ++j) {
      const REAL own = sign * v[j * n + least];
      v[j * n + least] = v[j * n + i], v[j * n + i] = own;
    }
  }
}

static REAL miniml_inner_REAL(const REAL *x, const REAL *y, long count) {
  REAL sum = 0;
  for (long i = 0; i < count; ++i) sum += x[i] * y[i];
  return sum;
}

/* x (m,) of 0 becomes a vector of length 1 that is orthogonal to the `count` vectors u (count, m): of
   the unit vectors the one that is farthest from them, less what it has of each. */
static void miniml_complete_REAL(REAL *x, const REAL *u, long count, long m) {
  long far = 0;
  REAL least = 2;
  for (long i = 0; i < m; ++i) {
    REAL near = 0;
    for (long j = 0; j < count; ++j) near += u[j * m + i] * u[j * m + i];
    if (near < least) least = near, far = i;
  }
  for (long i = 0; i < m; ++i) x[i] = i == far;
  for (int again = 0; again < 2; ++again) {
    for (long j = 0; j < count; ++j) {
      const REAL part = miniml_inner_REAL(u + j * m, x, m);
      for (long i = 0; i < m; ++i) x[i] -= part * u[j * m + i];
    }
    const REAL length = SQRT(miniml_inner_REAL(x, x, m));
    for (long i = 0; i < m; ++i) x[i] /= length;
  }
}

/* Singular values s (n,), descending, and vectors of a matrix of n columns of m >= n numbers, which
   are given as the rows of u (n, m), by rotations of pairs of columns (Hestenes): the rows of u
   become the left ones, those of v (n, n) the right ones. */
static void miniml_svd_REAL(REAL *u, long m, long n, REAL *s, REAL *v) {
  const int exponent = miniml_scale_REAL(u, m * n);
  const REAL equal = SQRT((REAL)m) * EPS;
  for (long i = 0; i < n; ++i)
    for (long j = 0; j < n; ++j) v[i * n + j] = i == j;
  for (int sweep = 0, turned = 1; turned && sweep < 30; ++sweep) {
    turned = 0;
    for (long p = 0; p < n; ++p)
      for (long q = p + 1; q < n; ++q) {
        REAL *const x = u + p * m, *const y = u + q * m;
        const REAL first = miniml_inner_REAL(x, x, m), last = miniml_inner_REAL(y, y, m);
        const REAL off = miniml_inner_REAL(x, y, m);
        if (FABS(off) <= equal * SQRT(first) * SQRT(last)) continue;
        const REAL t = miniml_tangent_REAL(first, last, off), c = 1 / SQRT(t * t + 1);
        miniml_rotate_REAL(x, y, 1, m, c, c * t);
        miniml_rotate_REAL(v + p * n, v + q * n, 1, n, c, c * t);
        turned = 1;
      }
  }
  for (long i = 0; i < n; ++i) s[i] = SQRT(miniml_inner_REAL(u + i * m, u + i * m, m));
  for (long i = 0; i < n; ++i) {
    long most = i;
    for (long j = i + 1; j < n; ++j) most = s[j] > s[most] ? j : most;
    const REAL own = s[most];
    if (most != i) { /* a quarter of a turn and the other's sign: an exchange */
      s[most] = s[i];
      miniml_rotate_REAL(u + i * m, u + most * m, 1, m, 0, -1);
      miniml_rotate_REAL(v + i * n, v + most * n, 1, n, 0, -1);
    }
    s[i] = LDEXP(own, exponent);
    if (own > 0)
      for (long j = 0; j < m; ++j) u[i * m + j] /= own;
    else
      miniml_complete_REAL(u + i * m, u, i, m);
  }
}
