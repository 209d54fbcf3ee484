/* The length of x, whose elements lie `step` apart, without overflow. */
static REAL miniml_length_REAL(const REAL *x, long step, long count) {
  REAL most = 0, sum = 0;
  for (long i = 0; i < count; ++i) most = FABS(x[i * step]) > most ? FABS(x[i * step]) : most;
  if (most == 0) return 0;
  for (long i = 0; i < count; ++i) sum += x[i * step] / most * (x[i * step] / most);
  return most * SQRT(sum);
}

/* columns x (m, n), less 2 v (v^T x): reflected by the vector v (m,) of length 1. */
static void miniml_reflect_REAL(REAL *x, long step, long m, long n, const REAL *v) {
  for (long c = 0; c < n; ++c) {
    REAL sum = 0;
    for (long i = 0; i < m; ++i) sum += v[i] * x[i * step + c];
    for (long i = 0; i < m; ++i) x[i * step + c] -= 2 * v[i] * sum;
  }
}

/* a (m, n) = q (m, k) r (k, n) by Householder's reflections, with no negative number on the diagonal
   of r. a is overwritten; v has room for k vectors (m,). */
static void miniml_qr_REAL(REAL *a, long m, long n, REAL *q, REAL *r, REAL *v) {
  const long k = m < n ? m : n;
  for (long p = 0; p < k; ++p) {
    REAL *const own = v + p * m, *const corner = a + p * n + p;
    const REAL length = miniml_length_REAL(corner, n, m - p);
    for (long i = 0; i < m - p; ++i) own[i] = corner[i * n];
    own[0] += corner[0] < 0 ? -length : length;
    const REAL whole = miniml_length_REAL(own, 1, m - p);
    for (long i = 0; i < m - p; ++i) own[i] = whole > 0 ? own[i] / whole : 0;
    miniml_reflect_REAL(corner, n, m - p, n - p, own);
  }
  for (long i = 0; i < m; ++i)
    for (long j = 0; j < k; ++j) q[i * k + j] = i == j;
  for (long p = k - 1; p >= 0; --p) miniml_reflect_REAL(q + p * k, k, m - p, k, v + p * m);
  for (long i = 0; i < k; ++i) {
    const REAL sign = a[i * n + i] < 0 ? -1 : 1;
    for (long j = 0; j < n; ++j) r[i * n + j] = j < i ? 0 : sign * a[i * n + j];
    for (long j = 0; j < m; ++j) q[j * k + i] *= sign;
  }
}
