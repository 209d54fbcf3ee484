/* Channels in blocks: a tile is PIXELS neighbours in a row of the output by VECTORS vectors of output
   channels; a unit is a row. */
#pragma STDC FP_CONTRACT ON
#pragma GCC push_options
#pragma GCC optimize("fp-contract=fast")
static __attribute__((noinline)) void KERNEL_tile(const REAL *restrict x, const KERNEL_tap *taps,
                                                  long count, const REAL *restrict filters,
                                                  REAL *restrict acc) {
  REAL_vector a[KERNEL_PIXELS][KERNEL_VECTORS] = {{{0}}};
  for (long c = 0; c < KERNEL_CHANNELS; ++c) {
    const REAL *lane = x + c / KERNEL_IN * KERNEL_CHANNEL + c % KERNEL_IN;
    const REAL *w = filters + c * KERNEL_TAPS * KERNEL_ROWS;
    for (long t = 0; t < count; ++t) {
      const REAL *at = lane + taps[t].offset;
      REAL_vector b[KERNEL_VECTORS];
#pragma GCC unroll 32
      for (int v = 0; v < KERNEL_VECTORS; ++v) b[v] = REAL_load(w + taps[t].filter + v * REAL_width);
#pragma GCC unroll 32
      for (int p = 0; p < KERNEL_PIXELS; ++p)
#pragma GCC unroll 32
        for (int v = 0; v < KERNEL_VECTORS; ++v) a[p][v] += at[p * KERNEL_COLUMN_STEP] * b[v];
    }
  }
#pragma GCC unroll 32
  for (int p = 0; p < KERNEL_PIXELS; ++p)
#pragma GCC unroll 32
    for (int v = 0; v < KERNEL_VECTORS; ++v)
      REAL_store(acc + p * KERNEL_ROWS + v * REAL_width, a[p][v]);
}
#pragma GCC pop_options
#pragma STDC FP_CONTRACT OFF

static inline long KERNEL_units(const KERNEL_phase *f) { return KERNEL_IMAGES * f->rows; }

/* The last tile of a row begins early, so that it is full; what others computed is not given again. */
static inline void KERNEL_unit(char *const *at, const KERNEL_phase *f, long u, const REAL *x,
                               const REAL *w, long output, long rows) {
  REAL acc[KERNEL_PIXELS * KERNEL_ROWS] __attribute__((aligned(64)));
  const long n = u / f->rows, r = u % f->rows, row = f->row + r * KERNEL_ROW_SPREAD;
  x += n * KERNEL_IMAGE + r * KERNEL_ROW_STEP;
  for (long q = 0; q < f->columns; q += KERNEL_PIXELS) {
    const long last = f->columns - KERNEL_PIXELS, from = q < last ? q : last;
    const long end = q + KERNEL_PIXELS < f->columns ? q + KERNEL_PIXELS : f->columns;
    KERNEL_tile(x + from * KERNEL_COLUMN_STEP, KERNEL_taps + f->tap, f->taps, w, acc);
    for (long i = q; i < end; ++i)
      for (long o = 0; o < KERNEL_ROWS; o += KERNEL_OUT) {
        const long plane = n * (KERNEL_BLOCKS * KERNEL_ROWS / KERNEL_PLANE) + (output + o) / KERNEL_PLANE;
        KERNEL_epilogue(at, 0,
                        (plane * KERNEL_HEIGHT + row) * KERNEL_WIDTH + f->column + i * KERNEL_COLUMN_SPREAD,
                        (output + o) % KERNEL_PLANE, KERNEL_OUT, acc + (i - from) * KERNEL_ROWS + o);
      }
  }
}
