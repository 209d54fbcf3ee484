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
  REAL sums[KERNEL_COLUMNS];
  for (long i = 0; i < KERNEL_M; ++i) {
    const REAL *left = x + i * KERNEL_X_ROW, *right = y + first * KERNEL_Y_COLUMN;
    long c = 0;
    for (; c + REAL_tile_lanes <= count; c += REAL_tile_lanes)
      REAL_dots_of_lanes(left, right + c * KERNEL_Y_COLUMN, KERNEL_Y_COLUMN, KERNEL_K, sums + c);
    for (; c < count; ++c) REAL_dot(left, right + c * KERNEL_Y_COLUMN, KERNEL_K, sums + c);
    KERNEL_emit(at, batch, i, first, count, sums);
  }
}
