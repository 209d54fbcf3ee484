/* Rows, or lanes of a row's elements, side by side, since each result waits for the one before it. */
static void KERNEL_part(void *data, long part) {
  char *const *at = (char *const *)data;
  KERNEL_NUMBERS(at)
  const KERNEL_T *restrict in = (const KERNEL_T *)at[0];
  KERNEL_O *restrict out = (KERNEL_O *)at[1];
  const long begin = KERNEL_OUTER * part / KERNEL_PARTS;
  const long end = KERNEL_OUTER * (part + 1) / KERNEL_PARTS;
  for (long r = begin; r < end; r += KERNEL_SIDE) {
    long row[KERNEL_SIDE];  /* past the end the last one again */
    for (long k = 0; k < KERNEL_SIDE; ++k) row[k] = (r + k < end ? r + k : end - 1) * KERNEL_N;
    for (long c = 0; c < KERNEL_STEP; c += KERNEL_LANES) {
      const long lanes = KERNEL_STEP - c < KERNEL_LANES ? KERNEL_STEP - c : KERNEL_LANES;
      KERNEL_A s[KERNEL_SIDE * KERNEL_LANES];
      for (long k = 0; k < KERNEL_SIDE * KERNEL_LANES; ++k) s[k] = (KERNEL_A)KERNEL_FIRST;
      for (long j = 0; j < KERNEL_N; ++j) {
        const long i = KERNEL_REVERSE ? KERNEL_N - 1 - j : j;
        for (long k = 0; k < KERNEL_SIDE; ++k)
          for (long l = 0; l < lanes; ++l) {
            const long e = (row[k] + i) * KERNEL_STEP + c + l;
            const KERNEL_A a = s[k * KERNEL_LANES + l], b = (KERNEL_A)in[e], made = KERNEL_COMBINED;
            out[e] = (KERNEL_O)(KERNEL_EXCLUSIVE ? (j ? a : KERNEL_NOTHING) : made);
            s[k * KERNEL_LANES + l] = made;
          }
      }
    }
  }
}
void KERNEL(char *const *at) {
  KERNEL_NUMBERS(at)
  miniml.parallel(KERNEL_part, (void *)at, KERNEL_PARTS);
}
