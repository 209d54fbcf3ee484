/* Image by image: a unit is BLOCK neighbours of a plane whose rows are PITCH apart, as in x. */
static inline long KERNEL_plane_units(const KERNEL_phase *f) {
  return ((f->rows - 1) * KERNEL_PITCH + f->columns + KERNEL_BLOCK - 1) / KERNEL_BLOCK;
}
static inline long KERNEL_units(char *const *at, const KERNEL_phase *f) {
  KERNEL_NUMBERS(at)
  return KERNEL_IMAGES * KERNEL_plane_units(f);
}

/* Neighbouring pixels, of the same row of the output, from column `pixel` on. */
static inline void KERNEL_give(char *const *at, long image, long output, long pixel, long count,
                               const REAL *acc) {
  if (KERNEL_COLUMN_SPREAD == 1)
    KERNEL_epilogue(at, image, output, pixel, count, acc);
  else
    for (long i = 0; i < count; ++i)
      KERNEL_epilogue(at, image, output, pixel + i * KERNEL_COLUMN_SPREAD, 1, acc + i);
}

static inline void KERNEL_unit(char *const *at, const KERNEL_phase *f, long u, const REAL *x,
                               const REAL *w, long output, long rows) {
  REAL acc[KERNEL_ROWS * KERNEL_BLOCK] __attribute__((aligned(64)));
  const long n = u / KERNEL_plane_units(f), start = u % KERNEL_plane_units(f) * KERNEL_BLOCK;
  KERNEL_tile(x + n * KERNEL_IMAGE + start, KERNEL_taps + f->tap, f->taps, w, acc);
  for (long o = 0; o < rows; ++o) {
    long r = start / KERNEL_PITCH, q = start % KERNEL_PITCH;
    for (long i = 0; i < KERNEL_BLOCK && r < f->rows; i += KERNEL_PITCH - q, q = 0, ++r) {
      const long end = f->columns - q < KERNEL_BLOCK - i ? f->columns - q : KERNEL_BLOCK - i;
      const long row = f->row + r * KERNEL_ROW_SPREAD;
      const long column = f->column + q * KERNEL_COLUMN_SPREAD;
      if (end > 0)
        KERNEL_give(at, n, output + o, row * KERNEL_WIDTH + column, end,
                    acc + o * KERNEL_BLOCK + i);
    }
  }
}
