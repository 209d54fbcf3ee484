#ifdef MINIML_SERVICES
/* The same by the BLAS, which sees each matrix as its transpose: out' = y' x'. A part is a block of
   rows of one matrix. */
typedef void KERNEL_blas(
    const char *, const char *, const int *, const int *, const int *, const REAL *, const REAL *,
    const int *, const REAL *, const int *, const REAL *, REAL *, const int *);

static void KERNEL_by_blas(void *data, long part) {
  char *const *at = data;
  KERNEL_NUMBERS(at)
  const long batch = part / KERNEL_SLICES, slice = part % KERNEL_SLICES;
  const long first = slice * KERNEL_M / KERNEL_SLICES;
  const int m = (slice + 1) * KERNEL_M / KERNEL_SLICES - first, n = KERNEL_N, k = KERNEL_K;
  const int y_turned = KERNEL_Y_COLUMN != 1, x_turned = KERNEL_X_COLUMN != 1;
  const int y_line = y_turned ? KERNEL_Y_COLUMN : KERNEL_Y_ROW;
  const int x_line = x_turned ? KERNEL_X_COLUMN : KERNEL_X_ROW, line = KERNEL_OUT_ROW;
  const REAL *x = (const REAL *)at[KERNEL_X] + KERNEL_X_START + first * KERNEL_X_ROW;
  const REAL *y = (const REAL *)at[KERNEL_Y] + KERNEL_Y_START, one = 1, zero = 0;
  REAL *out = (REAL *)at[2] + KERNEL_OUT_START + first * KERNEL_OUT_ROW;
  ((KERNEL_blas *)miniml.KERNEL_GEMM)(
      y_turned ? "T" : "N", x_turned ? "T" : "N", &n, &m, &k, &one, y, &y_line, x, &x_line, &zero,
      out, &line);
}
#define KERNEL_BLAS
#endif
