/* The sums of a tile, of images without zeros around them: a tile over an edge reads a copy of its
   pixels, with the zeros. */
static inline void KERNEL_sum(char *const *at, const KERNEL_phase *f, long u, long tile, const REAL *x,
                              const REAL *w, long channels, int more, REAL *acc) {
  const KERNEL_span *s = KERNEL_spans + (f - KERNEL_phases);
  const long last = f->columns - KERNEL_PIXELS, q = tile * KERNEL_PIXELS;
  const long top = u % f->rows * KERNEL_X_ROWS + s->row - KERNEL_TOP;
  const long left = (q < last ? q : last) * KERNEL_X_COLUMNS + s->column - KERNEL_LEFT;
  const long wide = (KERNEL_PIXELS - 1) * KERNEL_X_COLUMNS + s->columns;
  x += u / f->rows * KERNEL_IMAGE;
  if (top >= 0 && left >= 0 && top + s->rows <= KERNEL_X_HEIGHT && left + wide <= KERNEL_X_WIDTH) {
    x += (top * KERNEL_PITCH + left) * KERNEL_LANES;
    KERNEL_tile(x, KERNEL_taps + f->tap, f->taps, w, channels, more, acc);
    return;
  }
#ifdef KERNEL_ROOM_AT
  REAL *const copy = (REAL *)at[KERNEL_ROOM_AT];
#else
  REAL copy[KERNEL_COPIED] __attribute__((aligned(64)));
#endif
  for (long r = 0; r < s->rows; ++r)
    for (long c = 0; c < wide; ++c) {
      REAL *to = copy + (r * KERNEL_ACROSS + c) * KERNEL_LANES;
      const long row = top + r, column = left + c;
      const int inside = row >= 0 && row < KERNEL_X_HEIGHT && column >= 0 && column < KERNEL_X_WIDTH;
      const REAL *from = x + (inside ? row * KERNEL_PITCH + column : 0) * KERNEL_LANES;
      for (long v = 0; v < KERNEL_ROWS; v += REAL_width)
        REAL_store(to + v, inside ? REAL_load(from + v) : (REAL_vector){0});
    }
  KERNEL_tile(copy, KERNEL_copied + f->tap, f->taps, w, channels, more, acc);
}
