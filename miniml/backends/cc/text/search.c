/* The number of elements of a sorted row that come before each value, for KERNEL_LANES values side by
   side: each step halves what is left of all their rows, without branches. NaN is the largest. */
static inline int KERNEL_before(KERNEL_T x, KERNEL_T v) { return KERNEL_COMES; }
static void KERNEL_part(void *data, long part) {
  char *const *at = (char *const *)data;
  const KERNEL_T *restrict x = (const KERNEL_T *)at[0];
  const KERNEL_T *restrict values = (const KERNEL_T *)at[1];
  int64_t *restrict out = (int64_t *)at[2];
  const long end = KERNEL_COUNT * (part + 1) / KERNEL_PARTS;
  for (long b = KERNEL_COUNT * part / KERNEL_PARTS; b < end; b += KERNEL_LANES) {
    const long lanes = end - b < KERNEL_LANES ? end - b : KERNEL_LANES;
    KERNEL_T v[KERNEL_LANES];
    KERNEL_I row[KERNEL_LANES], found[KERNEL_LANES];
    for (long l = 0; l < KERNEL_LANES; ++l) {  /* past the end the last one again */
      const long e = b + (l < lanes ? l : lanes - 1);
      v[l] = values[e];
      found[l] = row[l] = (KERNEL_I)(KERNEL_ROWS > 1 ? e / KERNEL_EACH * KERNEL_N : 0);
    }
    for (long n = KERNEL_N; n > 0; n -= (n + 1) / 2) {
      const KERNEL_I half = (KERNEL_I)((n + 1) / 2);
      for (long l = 0; l < KERNEL_LANES; ++l)
        found[l] += KERNEL_before(x[found[l] + half - 1], v[l]) ? half : 0;
    }
    for (long l = 0; l < lanes; ++l) out[b + l] = found[l] - row[l];
  }
}
void KERNEL(char *const *at) { miniml.parallel(KERNEL_part, (void *)at, KERNEL_PARTS); }
