/* The sums of a tile, of images that lie among their zeros. */
static inline void KERNEL_sum(char *const *at, const KERNEL_phase *f, long u, long tile, const REAL *x,
                              const REAL *w, long channels, int more, REAL *acc) {
  const long last = f->columns - KERNEL_PIXELS, q = tile * KERNEL_PIXELS;
  x += u / f->rows * KERNEL_IMAGE + u % f->rows * KERNEL_ROW_STEP;
  x += (q < last ? q : last) * KERNEL_COLUMN_STEP;
  KERNEL_tile(x, KERNEL_taps + f->tap, f->taps, w, channels, more, acc);
}
