/* A product of few rows with columns that are contiguous: out[b, i, j] = x[b, i, :] . y[b, :, j]. A
   unit of work is a panel of columns. */
enum { KERNEL_COLUMNS = 4 * REAL_tile_lanes };
#define KERNEL_GROUPS ((KERNEL_N + KERNEL_COLUMNS - 1) / KERNEL_COLUMNS)

static MINIML_INLINE void KERNEL_unit(char *const *at, long batch, long block, long panel) {
  KERNEL_NUMBERS(at)
  const REAL *x = (const REAL *)at[KERNEL_X] + KERNEL_X_START;
  const REAL *y = (const REAL *)at[KERNEL_Y] + KERNEL_Y_START;
  const long first = panel * KERNEL_COLUMNS;
  const long count = KERNEL_N - first < KERNEL_COLUMNS ? KERNEL_N - first : KERNEL_COLUMNS;
  REAL sums[KERNEL_M][KERNEL_COLUMNS];
  /* All rows by the columns of a vector of sums, which stay in the first cache if they are short. */
  for (long c = 0, whole; c < count; c += whole ? REAL_tile_lanes : 1) {
    const REAL *right = y + (first + c) * KERNEL_Y_COLUMN;
    whole = c + REAL_tile_lanes <= count;
    for (long i = 0; i < KERNEL_M; ++i)
      if (whole)
        REAL_dots_of_lanes(x + i * KERNEL_X_ROW, right, KERNEL_Y_COLUMN, KERNEL_K, sums[i] + c);
      else
        REAL_dot(x + i * KERNEL_X_ROW, right, KERNEL_K, sums[i] + c);
  }
  for (long i = 0; i < KERNEL_M; ++i) KERNEL_emit(at, batch, i, first, count, sums[i]);
}
