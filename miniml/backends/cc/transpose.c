/* panel[q, c] = y[c, q] for q < depth and c < count. */
static void REAL_transpose(
    const REAL *y, long step, long depth, long count, REAL *panel, long line) {
  for (long c = 0; c < count; ++c)
    for (long q = 0; q < depth; ++q) panel[q * line + c] = y[c * step + q];
}
