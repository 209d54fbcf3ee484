/* Rows of the output in blocks of channels: a unit is a row, of tiles of neighbours. */
static inline long KERNEL_units(char *const *at, const KERNEL_phase *f) {
  KERNEL_NUMBERS(at)
  return KERNEL_IMAGES * f->rows;
}

/* Tiles of a row; the last one begins early, so that it is full. */
static inline long KERNEL_tiles(const KERNEL_phase *f) {
  return (f->columns + KERNEL_PIXELS - 1) / KERNEL_PIXELS;
}
/* The pixels that no tile before has given. */
static inline void KERNEL_give(char *const *at, const KERNEL_phase *f, long u, long tile, long output,
                               const REAL *acc) {
  const long n = u / f->rows, row = f->row + u % f->rows * KERNEL_ROW_SPREAD;
  const long q = tile * KERNEL_PIXELS, left = f->columns - q;
  const long count = left < KERNEL_PIXELS ? left : KERNEL_PIXELS;
  acc += (KERNEL_PIXELS - count) * KERNEL_ROWS;
  for (long i = 0; i < count; ++i)
    for (long o = 0; o < KERNEL_ROWS; o += KERNEL_OUT) {
      const long block = n * (KERNEL_BLOCKS * KERNEL_ROWS / KERNEL_PLANE) + (output + o) / KERNEL_PLANE;
      const long column = f->column + (q + i) * KERNEL_COLUMN_SPREAD;
      KERNEL_epilogue(at, 0, (block * KERNEL_HEIGHT + row) * KERNEL_WIDTH + column,
                      (output + o) % KERNEL_PLANE, KERNEL_OUT, acc + i * KERNEL_ROWS + o);
    }
}
static inline void KERNEL_unit(char *const *at, const KERNEL_phase *f, long u, const REAL *x,
                               const REAL *w, long output, long rows) {
  REAL acc[KERNEL_PIXELS * KERNEL_ROWS] __attribute__((aligned(64)));
  for (long tile = 0; tile < KERNEL_tiles(f); ++tile) {
    KERNEL_sum(at, f, u, tile, x, w, KERNEL_CHANNELS, 0, acc);
    KERNEL_give(at, f, u, tile, output, acc);
  }
}

/* One block of outputs, with filters packed on the way, unless they are kept. */
static void KERNEL_streamed(void *data, long block) {
  char *const *at = data;
  KERNEL_NUMBERS(at)
  REAL *held = KERNEL_HELD + block * (KERNEL_CHUNK * KERNEL_TAPS * KERNEL_ROWS + KERNEL_SUMS);
  for (long c = 0; c < KERNEL_CHANNELS; c += KERNEL_CHUNK) {
    const long left = KERNEL_CHANNELS - c, channels = left < KERNEL_CHUNK ? left : KERNEL_CHUNK;
    const REAL *x = KERNEL_X + c / KERNEL_IN * KERNEL_CHANNEL;
    REAL *acc = held + KERNEL_CHUNK * KERNEL_TAPS * KERNEL_ROWS, *filters = held;
    if (KERNEL_KEPT(0))
      filters = KERNEL_KEPT_AT + (block * KERNEL_CHANNELS + c) * KERNEL_TAPS * KERNEL_ROWS;
    if (KERNEL_KEPT(0) < 2) KERNEL_packed(at, block, c, channels, filters);
    for (const KERNEL_phase *f = KERNEL_phases; f < KERNEL_phases + KERNEL_PHASES; ++f)
      for (long u = 0; u < KERNEL_units(at, f); ++u)
        for (long tile = 0; tile < KERNEL_tiles(f); ++tile, acc += KERNEL_PIXELS * KERNEL_ROWS) {
          KERNEL_sum(at, f, u, tile, x, filters, channels, c > 0, acc);
          if (left <= KERNEL_CHUNK) KERNEL_give(at, f, u, tile, block * KERNEL_ROWS, acc);
        }
  }
}
