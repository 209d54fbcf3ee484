/* All panels of y, each of all its lines, one after the other, if the words of a Keeping say so. */
void KERNEL(char *const *at) {
  if (((const int64_t *)at[KERNEL_OUT])[0] != 1) return;
  const REAL *y = (const REAL *)at[KERNEL_Y];
  const REAL *end = y + (KERNEL_K - 1) * KERNEL_Y_ROW + (KERNEL_N - 1) * KERNEL_Y_COLUMN + 1;
  REAL *out = (REAL *)(intptr_t)((const int64_t *)at[KERNEL_OUT])[1];
  for (long j = 0; j < KERNEL_FULL * KERNEL_COLUMNS; j += KERNEL_COLUMNS)
    KERNEL_PACK(y + j * KERNEL_Y_COLUMN, KERNEL_Y_ROW, KERNEL_Y_COLUMN, end, KERNEL_K,
                KERNEL_COLUMNS, out + j * KERNEL_K, KERNEL_COLUMNS);
  if (KERNEL_REST)
    KERNEL_PACK(y + (KERNEL_N - KERNEL_REST) * KERNEL_Y_COLUMN, KERNEL_Y_ROW, KERNEL_Y_COLUMN, end,
                KERNEL_K, KERNEL_REST, out + (KERNEL_N - KERNEL_REST) * KERNEL_K,
                KERNEL_NARROW * MINIML_LANES_REAL);
}
