/* A product of matrices: out[b, i, j] = sum over q < K of x[b, i, q] y[b, q, j].

   KERNEL_epilogue takes the sums. A unit of work is a block of rows times a panel of columns. It
   packs its panel of y, DEPTH lines at a time, and runs tiles of rows over it, whose sums stay in
   registers. Each sum is taken in the order of q, whatever the blocks and the threads are. */

enum {
  KERNEL_LANES = MINIML_VECTOR / sizeof(REAL),
  /* Sums of a tile, in vectors: what registers hold beside a line of the panel and one of x. */
  KERNEL_SUMS = MINIML_REGISTERS == 32 ? 24 : 12,
  KERNEL_WIDEST = KERNEL_M == 1 ? 8 : KERNEL_SUMS / 6, /* vectors of a panel */
  KERNEL_COLUMNS = KERNEL_WIDEST * KERNEL_LANES,
  KERNEL_FULL = KERNEL_N / KERNEL_COLUMNS, /* panels; one may remain, which is narrower */
  KERNEL_REST = KERNEL_N % KERNEL_COLUMNS,
  KERNEL_NARROW = (KERNEL_REST + KERNEL_LANES - 1) / KERNEL_LANES,
  KERNEL_PANELS = KERNEL_FULL + (KERNEL_REST != 0),
  KERNEL_DEPTH = KERNEL_K < DEPTH ? KERNEL_K : DEPTH,
  KERNEL_HIGHEST = 12, /* rows of a tile: more would not fit the instruction cache */
  KERNEL_HEIGHT = (KERNEL_M + KERNEL_BLOCKS - 1) / KERNEL_BLOCKS + KERNEL_HIGHEST /* of a block */
};
typedef REAL KERNEL_vector __attribute__((vector_size(MINIML_VECTOR)));
typedef REAL KERNEL_loose
    __attribute__((vector_size(MINIML_VECTOR), aligned(sizeof(REAL)), may_alias));

/* rows x width vectors of sums, over `depth` lines of y that lie `line` apart, begin at 0 or are
   continued. */
static inline MINIML_INLINE MINIML_FMA void KERNEL_tile(
    const int rows, const int width, long depth, const REAL *x, const REAL *y, long line,
    REAL *sums, int continued) {
  MINIML_CONTRACT
  KERNEL_vector sum[KERNEL_HIGHEST][KERNEL_WIDEST];
  for (int r = 0; r < rows; ++r)
    for (int w = 0; w < width; ++w) {
      KERNEL_vector zero = {0};
      sum[r][w] = zero;
    }
  if (continued)
    for (int r = 0; r < rows; ++r)
      for (int w = 0; w < width; ++w)
        sum[r][w] = *(KERNEL_loose *)(sums + r * KERNEL_COLUMNS + w * KERNEL_LANES);
  for (long q = 0; q < depth; ++q) {
    KERNEL_vector taken[KERNEL_WIDEST];
    for (int w = 0; w < width; ++w)
      taken[w] = *(const KERNEL_loose *)(y + q * line + w * KERNEL_LANES);
    for (int r = 0; r < rows; ++r)
      for (int w = 0; w < width; ++w)
        sum[r][w] = x[r * KERNEL_X_ROW + q * KERNEL_X_COLUMN] * taken[w] + sum[r][w];
  }
  for (int r = 0; r < rows; ++r)
    for (int w = 0; w < width; ++w)
      *(KERNEL_loose *)(sums + r * KERNEL_COLUMNS + w * KERNEL_LANES) = sum[r][w];
}

/* `depth` lines of `count` columns of y, packed as lines of `width` vectors; the rest is 0. */
static inline MINIML_INLINE void KERNEL_pack(
    const int width, const REAL *y, long depth, long count, REAL *panel) {
  const long line = width * KERNEL_LANES;
  if (KERNEL_Y_ROW == 1 && KERNEL_Y_COLUMN != 1) {
    REAL_transpose(y, KERNEL_Y_COLUMN, depth, count, panel, line);
  } else {
    for (long q = 0; q < depth; ++q)
      for (long c = 0; c < count; ++c)
        panel[q * line + c] = y[q * KERNEL_Y_ROW + c * KERNEL_Y_COLUMN];
  }
  for (long q = 0; q < depth; ++q)
    for (long c = count; c < line; ++c) panel[q * line + c] = 0;
}

static inline MINIML_INLINE void KERNEL_unit(
    char *const *at, long batch, long block, long first, const int width, const long count) {
  enum { most = KERNEL_HIGHEST };
  const int highest = KERNEL_SUMS / width < most ? KERNEL_SUMS / width : most;
  const long tiles = (KERNEL_M + highest - 1) / highest, low = tiles ? KERNEL_M / tiles : 0;
  const long begin = block * tiles / KERNEL_BLOCKS, end = (block + 1) * tiles / KERNEL_BLOCKS;
  const long top = tiles ? begin * KERNEL_M / tiles : 0;
  const REAL *x = (const REAL *)at[KERNEL_X] + KERNEL_X_START;
  const REAL *y = (const REAL *)at[KERNEL_Y] + KERNEL_Y_START + first * KERNEL_Y_COLUMN;
  REAL panel[KERNEL_DEPTH * KERNEL_COLUMNS + 1] __attribute__((aligned(64)));
  REAL sums[KERNEL_HEIGHT * KERNEL_COLUMNS] __attribute__((aligned(64)));
  const int direct = KERNEL_DIRECT && KERNEL_Y_COLUMN == 1 && count == width * KERNEL_LANES;
  const long line = direct ? KERNEL_Y_ROW : width * KERNEL_LANES;
  long q = 0;
  do {
    const long depth = KERNEL_K - q < DEPTH ? KERNEL_K - q : DEPTH;
    const REAL *lines = direct ? y + q * KERNEL_Y_ROW : panel;
    if (!direct) KERNEL_pack(width, y + q * KERNEL_Y_ROW, depth, count, panel);
    for (long t = begin; t < end; ++t) {
      const long i = t * KERNEL_M / tiles, rows = (t + 1) * KERNEL_M / tiles - i;
      REAL *own = sums + (i - top) * KERNEL_COLUMNS;
      const REAL *left = x + i * KERNEL_X_ROW + q * KERNEL_X_COLUMN;
      if (rows == low)
        KERNEL_tile(low, width, depth, left, lines, line, own, q > 0);
      else
        KERNEL_tile(low + 1, width, depth, left, lines, line, own, q > 0);
      if (q + DEPTH >= KERNEL_K)
        for (long r = 0; r < rows; ++r)
          KERNEL_epilogue(at, batch, i + r, first, count, own + r * KERNEL_COLUMNS);
    }
    q += DEPTH;
  } while (q < KERNEL_K);
}

static void KERNEL_part(void *data, long part) {
  char *const *at = data;
  const long units = KERNEL_BATCHES * KERNEL_BLOCKS * KERNEL_PANELS;
  for (long u = part * units / KERNEL_PARTS; u < (part + 1) * units / KERNEL_PARTS; ++u) {
    const long panel = u % KERNEL_PANELS, block = u / KERNEL_PANELS % KERNEL_BLOCKS;
    const long batch = u / KERNEL_PANELS / KERNEL_BLOCKS, first = panel * KERNEL_COLUMNS;
    if (panel < KERNEL_FULL)
      KERNEL_unit(at, batch, block, first, KERNEL_WIDEST, KERNEL_COLUMNS);
    else
      KERNEL_unit(at, batch, block, first, KERNEL_NARROW, KERNEL_REST);
  }
}

void KERNEL(char *const *at) {
  if (KERNEL_PARTS > 1)
    miniml.parallel(KERNEL_part, (void *)at, KERNEL_PARTS);
  else
    KERNEL_part((void *)at, 0);
}
