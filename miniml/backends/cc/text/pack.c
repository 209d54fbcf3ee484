/* All panels of y, each of all its lines, one after the other. */
void KERNEL(char *const *at) {
  const REAL *y = (const REAL *)at[KERNEL_Y];
  const REAL *end = y + (KERNEL_K - 1) * KERNEL_Y_ROW + (KERNEL_N - 1) * KERNEL_Y_COLUMN + 1;
  REAL *out = (REAL *)at[KERNEL_OUT];
  for (long first = 0; first < KERNEL_FULL * KERNEL_COLUMNS; first += KERNEL_COLUMNS)
    KERNEL_pack(KERNEL_WIDEST, y + first * KERNEL_Y_COLUMN, KERNEL_Y_ROW, KERNEL_Y_COLUMN, end,
                KERNEL_K, KERNEL_COLUMNS, out + first * KERNEL_K);
  if (KERNEL_REST)
    KERNEL_pack(KERNEL_NARROW, y + KERNEL_FULL * KERNEL_COLUMNS * KERNEL_Y_COLUMN, KERNEL_Y_ROW,
                KERNEL_Y_COLUMN, end, KERNEL_K, KERNEL_REST, out + KERNEL_FULL * KERNEL_COLUMNS * KERNEL_K);
}
