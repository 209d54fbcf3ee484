/* Batch innermost: a unit is PIXELS pixels of a phase by BLOCK images. */
static inline long KERNEL_units(char *const *at, const KERNEL_phase *f) {
  return (f->rows * f->columns + KERNEL_PIXELS - 1) / KERNEL_PIXELS * (KERNEL_LANES / KERNEL_BLOCK);
}

static inline long KERNEL_pixel(const KERNEL_phase *f, long p) {
  return (f->row + p / f->columns * KERNEL_ROW_SPREAD) * KERNEL_WIDTH + f->column +
         p % f->columns * KERNEL_COLUMN_SPREAD;
}

/* To a batch that is innermost in the output, too. */
static inline void KERNEL_along(char *const *at, const KERNEL_phase *f, long p, long count,
                                long lane, long output, long rows, const REAL *acc) {
  KERNEL_NUMBERS(at)
  const long images = KERNEL_IMAGES == KERNEL_LANES       ? KERNEL_BLOCK
                      : KERNEL_IMAGES - lane < KERNEL_BLOCK ? KERNEL_IMAGES - lane
                                                            : KERNEL_BLOCK;
  for (long k = 0; k < count; ++k)
    for (long o = 0; o < rows; ++o)
      KERNEL_epilogue(at, 0, output + o, KERNEL_pixel(f, p + k) * KERNEL_IMAGES + lane, images,
                      acc + (k * KERNEL_ROWS + o) * KERNEL_BLOCK);
}

/* To row-major images: squares of images by pixels are transposed back, and given in runs. */
static inline void KERNEL_across(char *const *at, const KERNEL_phase *f, long p, long count,
                                 long lane, long output, long rows, const REAL *acc) {
  KERNEL_NUMBERS(at)
  for (long o = 0; o < rows; ++o)
    for (long v = 0; v < KERNEL_BLOCK; v += REAL_width) {
      REAL_vector a[REAL_width];
      for (long k = 0; k < REAL_width; ++k)
        a[k] = REAL_load(acc + (k * KERNEL_ROWS + o) * KERNEL_BLOCK + v);
      REAL_transpose(a);
      for (long n = 0; n < REAL_width && lane + v + n < KERNEL_IMAGES; ++n) {
        const REAL *pixels = (const REAL *)(a + n);
        if (KERNEL_WHOLE && count == REAL_width)
          KERNEL_epilogue(at, lane + v + n, output + o, p, REAL_width, pixels);
        else
          for (long k = 0, run; k < count; k += run) {
            const long rest = KERNEL_WHOLE ? count - k : f->columns - (p + k) % f->columns;
            run = KERNEL_COLUMN_SPREAD > 1 ? 1 : rest < count - k ? rest : count - k;
            KERNEL_epilogue(at, lane + v + n, output + o, KERNEL_pixel(f, p + k), run, pixels + k);
          }
      }
    }
}

static inline void KERNEL_unit(char *const *at, const KERNEL_phase *f, long u, const REAL *x,
                               const REAL *w, long output, long rows) {
  REAL acc[KERNEL_PIXELS * KERNEL_ROWS * KERNEL_BLOCK] __attribute__((aligned(64)));
  const long lane = u % (KERNEL_LANES / KERNEL_BLOCK) * KERNEL_BLOCK;
  const long p = u / (KERNEL_LANES / KERNEL_BLOCK) * KERNEL_PIXELS, size = f->rows * f->columns;
  const long count = size - p < KERNEL_PIXELS ? size - p : KERNEL_PIXELS;
  long r = p / f->columns, q = p % f->columns;
  for (long k = 0; k < count; ++k) {
    KERNEL_tile(x + r * KERNEL_ROW_STEP + q * KERNEL_COLUMN_STEP + lane, KERNEL_taps + f->tap, f->taps,
                w, acc + k * KERNEL_ROWS * KERNEL_BLOCK);
    if (++q == f->columns) q = 0, ++r;
  }
  (KERNEL_ALONG ? KERNEL_along : KERNEL_across)(at, f, p, count, lane, output, rows, acc);
}
