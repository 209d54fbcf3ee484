/* Factors of small matrices and what they solve, in float64, for NAME_LANES matrices at once: a value
   has an element of each, so that loops are as quick for any extent. With one lane compilers make
   vectors of the rows instead, and every matrix gets the same bits. */
enum { NAME_TERMS = 4 };
#if NAME_LANES > 1
typedef double NAME_value __attribute__((vector_size(8 * NAME_LANES)));
typedef int64_t NAME_mask __attribute__((vector_size(8 * NAME_LANES)));
#define NAME_are(compared) ((NAME_mask)(compared))
static inline NAME_value NAME_pick(NAME_mask m, NAME_value a, NAME_value b) {
  return (NAME_value)(((NAME_mask)a & m) | ((NAME_mask)b & ~m));
}
#else
typedef double NAME_value;
typedef int64_t NAME_mask;
#define NAME_are(compared) (-(NAME_mask)(compared))
static inline NAME_value NAME_pick(NAME_mask m, NAME_value a, NAME_value b) { return m ? a : b; }
#endif
static inline int NAME_any(NAME_mask m) {
  int64_t lanes[NAME_LANES], any = 0;
  memcpy(lanes, &m, sizeof m);
  for (int l = 0; l < NAME_LANES; ++l) any |= lanes[l];
  return any != 0;
}
static inline NAME_value NAME_size(NAME_value x) { return NAME_pick(NAME_are(x < 0), -x, x); }
static inline NAME_value NAME_nan(void) { return (NAME_value){0} + (double)NAN; }

/* Rows of elements into values, from where each lane has its matrix. */
static void NAME_load(
    const KERNEL_T *const *from, long row, long column, long rows, long columns, NAME_value *to) {
  double *tile = (double *)to;
  for (long i = 0; i < rows; ++i)
    for (long j = 0; j < columns; ++j, tile += NAME_LANES)
      for (long l = 0; l < NAME_LANES; ++l) tile[l] = (double)from[l][i * row + j * column];
}
/* And back, of the first `lanes`, with NaN for all of a matrix that is bad. */
static void NAME_store(
    NAME_value *at, NAME_mask bad, long lanes, long rows, long columns, KERNEL_T *to, long row,
    long step) {
  for (long e = 0; e < rows * columns; ++e) at[e] = NAME_pick(bad, NAME_nan(), at[e]);
  const double *tile = (const double *)at;
  for (long l = 0; l < lanes; ++l)
    for (long i = 0; i < rows; ++i)
      for (long j = 0; j < columns; ++j)
        to[l * step + i * row + j] = (KERNEL_T)tile[(i * columns + j) * NAME_LANES + l];
}
/* Where a matrix, or its triangle, has a number that is not finite. */
static NAME_mask NAME_unfinite(const NAME_value *a, int lower, int upper) {
  NAME_value left = {0};
  for (long i = 0; i < KERNEL_N; ++i)
    for (long j = lower ? 0 : i; j < (upper ? KERNEL_N : i + 1); ++j)
      left += a[i * KERNEL_N + j] - a[i * KERNEL_N + j];
  return NAME_are(left != 0);
}

/* x - f y, term by term, so that the bits do not depend on how many are taken at once. No pointer is
   `restrict`: gcc takes that as said across the calls in a loop that it unrolls. */
static inline void NAME_subtract(
    NAME_value *x, const NAME_value *f, long step, const NAME_value *y,
    long row, long terms, long count) {
  if (terms == NAME_TERMS) {
    const NAME_value f0 = f[0], f1 = f[step], f2 = f[2 * step], f3 = f[3 * step];
    MINIML_APART
    for (long c = 0; c < count; ++c) {
      NAME_value sum = x[c] - f0 * y[c];
      sum -= f1 * y[row + c], sum -= f2 * y[2 * row + c], sum -= f3 * y[3 * row + c];
      x[c] = sum;
    }
  } else {
    for (long t = 0; t < terms; ++t)
      MINIML_APART
      for (long c = 0; c < count; ++c) x[c] -= f[t * step] * y[t * row + c];
  }
}
static inline void NAME_exchange(
    NAME_mask moved, NAME_value *x, NAME_value *y, long count) {
  MINIML_APART
  for (long c = 0; c < count; ++c) {
    const NAME_value a = x[c], b = y[c];
    x[c] = NAME_pick(moved, b, a), y[c] = NAME_pick(moved, a, b);
  }
}
/* The row of the greatest element in column p from row p on goes to row p, whole; that is noted in
   `pivots`, and turns the sign. */
static void NAME_choose(NAME_value *a, long p, NAME_mask *pivots, NAME_value *sign) {
  NAME_value most = NAME_size(a[p * (KERNEL_N + 1)]);
  NAME_mask best = (NAME_mask){0} + p;
  for (long i = p + 1; i < KERNEL_N; ++i) {
    const NAME_value size = NAME_size(a[i * KERNEL_N + p]);
    const NAME_mask more = NAME_are(size > most), here = (NAME_mask){0} + i;
    most = NAME_pick(more, size, most), best = (more & here) | (~more & best);
  }
  pivots[p] = best;
  for (long i = p + 1; i < KERNEL_N; ++i) {
    const NAME_mask moved = NAME_are(best == i);
    if (!NAME_any(moved)) continue;
    NAME_exchange(moved, a + p * KERNEL_N, a + i * KERNEL_N, KERNEL_N);
    *sign = NAME_pick(moved, -*sign, *sign);
  }
  *sign = NAME_pick(NAME_are(most == 0), (NAME_value){0}, *sign);
}
/* Elimination with partial pivoting, in place: above and on the diagonal the upper triangle, below
   it the factors of the rows. Returns the sign of the exchanges, 0 where a pivot is 0. */
static NAME_value NAME_eliminate(NAME_value *a, NAME_mask *pivots) {
  NAME_value sign = (NAME_value){0} + 1;
  for (long p = 0; p < KERNEL_N; p += NAME_TERMS) {
    const long end = p + NAME_TERMS < KERNEL_N ? p + NAME_TERMS : KERNEL_N;
    for (long q = p; q < end; ++q) {
      NAME_value *const top = a + q * KERNEL_N;
      NAME_choose(a, q, pivots, &sign);
      for (long i = q + 1; i < KERNEL_N; ++i) {
        NAME_value *const row = a + i * KERNEL_N;
        row[q] /= top[q];
        for (long j = q + 1; j < end; ++j) row[j] -= row[q] * top[j];
      }
    }
    for (long i = p + 1; i < KERNEL_N; ++i)
      NAME_subtract(a + i * KERNEL_N + end, a + i * KERNEL_N + p, 1, a + p * KERNEL_N + end,
                    KERNEL_N, i < end ? i - p : end - p, KERNEL_N - end);
  }
  return sign;
}
/* Solves t y = x for a triangle t, in place of x, which has `count` columns. */
static void NAME_substitute(
    const NAME_value *t, int upwards, int unit, NAME_value *x, long count) {
  const long way = upwards ? -1 : 1;
  for (long s = 0; s < KERNEL_N; s += NAME_TERMS) {
    const long terms = s + NAME_TERMS < KERNEL_N ? NAME_TERMS : KERNEL_N - s;
    const long first = upwards ? KERNEL_N - 1 - s : s;
    for (long r = 0; s + r < KERNEL_N; ++r) {
      const long i = first + way * r, solved = r < terms ? r : terms;
      NAME_subtract(x + i * count, t + i * KERNEL_N + first, way, x + first * count, way * count,
                    solved, count);
      if (!unit && r < terms)
        for (long c = 0; c < count; ++c) x[i * count + c] /= t[i * (KERNEL_N + 1)];
    }
  }
}
/* The upper triangle r with r^T r = (a + a^T) / 2, transposed into the lower one; above it 0.
   Returns where that is not positive definite. */
static NAME_mask NAME_cholesky(NAME_value *a) {
  NAME_mask bad = {0};
  for (long i = 0; i < KERNEL_N; ++i)
    for (long j = i; j < KERNEL_N; ++j)
      a[i * KERNEL_N + j] = a[i * KERNEL_N + j] / 2 + a[j * KERNEL_N + i] / 2;
  for (long p = 0; p < KERNEL_N; p += NAME_TERMS) {
    const long terms = p + NAME_TERMS < KERNEL_N ? NAME_TERMS : KERNEL_N - p;
    for (long i = p; i < KERNEL_N; ++i) {
      NAME_value *const row = a + i * KERNEL_N;
      double root[NAME_LANES];
      NAME_subtract(row + i, a + p * KERNEL_N + i, KERNEL_N, a + p * KERNEL_N + i, KERNEL_N,
                    i - p < terms ? i - p : terms, KERNEL_N - i);
      if (i >= p + terms) continue;
      bad |= ~NAME_are(row[i] > 0);
      memcpy(root, row + i, sizeof root);
      for (int l = 0; l < NAME_LANES; ++l) root[l] = __builtin_sqrt(root[l]);
      memcpy(row + i, root, sizeof root);
      for (long j = i + 1; j < KERNEL_N; ++j) row[j] /= row[i];
    }
  }
  for (long i = 0; i < KERNEL_N; ++i)
    for (long j = i + 1; j < KERNEL_N; ++j)
      a[j * KERNEL_N + i] = a[i * KERNEL_N + j], a[i * KERNEL_N + j] = (NAME_value){0};
  return bad;
}
#if defined(KERNEL_Det) || defined(KERNEL_SlogDet)
/* The product of the diagonal and a sign is m 2^e: exponents that would leave a float64 are apart. */
static double NAME_product(const NAME_value *a, double sign, long lane, long *e) {
  double m = sign;
  int part;
  *e = 0;
  for (long i = 0; i < KERNEL_N; ++i) {
    double pivot = ((const double *)(a + i * (KERNEL_N + 1)))[lane];
    if (!(__builtin_fabs(pivot) > 0x1p-400 && __builtin_fabs(pivot) < 0x1p400))
      pivot = __builtin_frexp(pivot, &part), *e += part;
    m *= pivot;
    if (!(__builtin_fabs(m) > 0x1p-400 && __builtin_fabs(m) < 0x1p400))
      m = __builtin_frexp(m, &part), *e += part;
  }
  return m;
}
#endif

/* What the kernel computes of `lanes` matrices from `first` on, in the memory at `a`. */
static void NAME(char *const *at, long first, long lanes, NAME_value *a) {
  const KERNEL_T *from[NAME_LANES];
  for (long l = 0; l < NAME_LANES; ++l) {
    const long batch = first + (l < lanes ? l : lanes - 1);
    from[l] = (const KERNEL_T *)at[0] + KERNEL_START0;
  }
  NAME_load(from, KERNEL_ROW0, KERNEL_COLUMN0, KERNEL_N, KERNEL_N, a);
#ifdef KERNEL_TriangularSolve
  for (long i = 0; KERNEL_UNIT && i < KERNEL_N; ++i) a[i * (KERNEL_N + 1)] = (NAME_value){0} + 1;
  NAME_mask bad = NAME_unfinite(a, !KERNEL_UPWARDS, KERNEL_UPWARDS);
  for (long i = 0; i < KERNEL_N; ++i) bad |= NAME_are(a[i * (KERNEL_N + 1)] == 0);
#else
  NAME_mask bad = NAME_unfinite(a, 1, 1);
#endif
#ifdef KERNEL_Cholesky
  bad |= NAME_cholesky(a);
  NAME_store(a, bad, lanes, KERNEL_N, KERNEL_N, (KERNEL_T *)at[1] + first * KERNEL_N * KERNEL_N,
             KERNEL_N, KERNEL_N * KERNEL_N);
#endif
#if defined(KERNEL_Solve) || defined(KERNEL_Det) || defined(KERNEL_SlogDet)
  NAME_mask pivots[KERNEL_N];
  const NAME_value sign = NAME_eliminate(a, pivots);
#endif
#if defined(KERNEL_Det) || defined(KERNEL_SlogDet)
  const NAME_value signs = NAME_pick(bad, NAME_nan(), sign);
  for (long l = 0; l < lanes; ++l) {
    const double s = ((const double *)&signs)[l];
    long e = 0;
    const double m = s * s == 1 ? NAME_product(a, s, l, &e) : s;
#ifdef KERNEL_Det
    ((KERNEL_T *)at[1])[first + l] = (KERNEL_T)(e ? __builtin_ldexp(m, (int)e) : m);
#else
    const double log = __builtin_log(__builtin_fabs(m)) + (double)e * 0.69314718055994530942;
    ((KERNEL_T *)at[1])[first + l] = (KERNEL_T)(m < 0 ? -1 : m > 0 ? 1 : m);
    ((KERNEL_T *)at[2])[first + l] = (KERNEL_T)log;
#endif
  }
#endif
#if defined(KERNEL_Solve) || defined(KERNEL_TriangularSolve)
  NAME_value *const x = a + KERNEL_N * KERNEL_N;
#ifdef KERNEL_Solve
  bad |= NAME_are(sign == 0);
#endif
  for (long c = 0; c < KERNEL_K; c += NAME_BLOCK) {
    const long count = KERNEL_K - c < NAME_BLOCK ? KERNEL_K - c : NAME_BLOCK;
    for (long l = 0; l < NAME_LANES; ++l) {
      const long batch = first + (l < lanes ? l : lanes - 1);
      from[l] = (const KERNEL_T *)at[1] + KERNEL_START1 + c * KERNEL_COLUMN1;
    }
    NAME_load(from, KERNEL_ROW1, KERNEL_COLUMN1, KERNEL_N, count, x);
#ifdef KERNEL_Solve
    for (long p = 0; p < KERNEL_N; ++p)
      for (long i = p + 1; i < KERNEL_N; ++i) {
        const NAME_mask moved = NAME_are(pivots[p] == i);
        if (NAME_any(moved)) NAME_exchange(moved, x + p * count, x + i * count, count);
      }
    NAME_substitute(a, 0, 1, x, count);
    NAME_substitute(a, 1, 0, x, count);
#else
    NAME_substitute(a, KERNEL_UPWARDS, KERNEL_UNIT, x, count);
#endif
    NAME_store(x, bad, lanes, KERNEL_N, count, (KERNEL_T *)at[2] + first * KERNEL_N * KERNEL_K + c,
               KERNEL_K, KERNEL_N * KERNEL_K);
  }
#endif
}
