/* A product of matrices: out[b, i, j] = sum over q < K of x[b, i, q] y[b, q, j], taken by
   KERNEL_epilogue. A unit of work is a block of rows times a panel of columns; it packs its panel
   of y, LINES lines at a time, unless that has been done, and runs tiles of rows over it. Each sum
   is taken in the order of q, whatever the blocks and the threads are. */
#define KERNEL_GROUPS ((KERNEL_FULL + (KERNEL_REST != 0) + KERNEL_GROUP - 1) / KERNEL_GROUP)
/* The tiles that a panel is cut into: at most 12 rows, evenly. */
#define KERNEL_HIGHEST(width) (KERNEL_SUMS / (width) < 12 ? KERNEL_SUMS / (width) : 12)
#define KERNEL_TILES(width) ((KERNEL_M + KERNEL_HIGHEST(width) - 1) / KERNEL_HIGHEST(width))
#define KERNEL_LOW(width) (KERNEL_M / KERNEL_TILES(width))
/* Where M or N is a variable, which #if takes for 0, a run finds its tiles. */
#if KERNEL_M && KERNEL_N
#define KERNEL_TILE REAL_TILE
#else
#define KERNEL_TILE(rows, width) REAL_tilers[(width) - 1][(rows) - 1]
#endif
#define KERNEL_LOWER(width) KERNEL_TILE(KERNEL_LOW(width), width)
#define KERNEL_HIGHER(width) \
  KERNEL_TILE(KERNEL_LOW(width) + (KERNEL_M % KERNEL_TILES(width) != 0), width)
#define KERNEL_DEPTH (KERNEL_K < KERNEL_LINES ? KERNEL_K : KERNEL_LINES)
/* Rows of a block, of which those of an uneven cut have up to a tile more, and columns of a line of
   the widest panel: the room of a block on the stack. */
#define KERNEL_HEIGHT (KERNEL_BLOCKS > 1 ? KERNEL_M / KERNEL_BLOCKS + 13 : KERNEL_M)
#define KERNEL_ACROSS (KERNEL_FULL ? KERNEL_COLUMNS : KERNEL_NARROW * MINIML_LANES_REAL)
/* Lines at the end of y that are packed, of a panel of `width` vectors with `count` columns: all but
   where y is packed already or few rows read it in place, in whole vectors, which end in the next
   line or the one after it; those of the last lines would end beyond y. */
#define KERNEL_UNREAD(width, count) \
  (KERNEL_PACKED ? 0 \
   : KERNEL_M > KERNEL_UNPACKED || KERNEL_Y_COLUMN != 1 || KERNEL_Y_ROW < 1 \
       ? KERNEL_K \
       : ((width) * MINIML_LANES_REAL - (count) + KERNEL_Y_ROW - 1) / KERNEL_Y_ROW)
#define KERNEL_MOST_UNREAD KERNEL_UNREAD(KERNEL_NARROW, KERNEL_REST)
/* Elements of a packed panel, if any line is packed, and of the sums of a block. */
#define KERNEL_PANEL \
  (KERNEL_MOST_UNREAD < 1 ? 1 \
   : KERNEL_ACROSS * (KERNEL_MOST_UNREAD < KERNEL_DEPTH ? KERNEL_MOST_UNREAD : KERNEL_DEPTH))
#define KERNEL_BLOCK (KERNEL_GROUP * KERNEL_HEIGHT * KERNEL_ACROSS)

/* The panel of y that begins at column `first`, for the rows of a block and the lines from q on.
   The sums of these rows are kept between calls; after the last lines the epilogue takes them. */
static MINIML_INLINE void KERNEL_panel(
    char *const *at, long batch, long block, long first, long q, const REAL *copy, REAL *sums,
    const int width, const long count, REAL_tiler *lower, REAL_tiler *higher) {
  KERNEL_NUMBERS(at)
  const long tiles = KERNEL_TILES(width), low = KERNEL_LOW(width);
  const long begin = block * tiles / KERNEL_BLOCKS, end = (block + 1) * tiles / KERNEL_BLOCKS;
  const long top = begin * KERNEL_M / tiles;
  const long depth = KERNEL_K - q < KERNEL_LINES ? KERNEL_K - q : KERNEL_LINES;
  const REAL *x = (const REAL *)at[KERNEL_X] + KERNEL_X_START + q * KERNEL_X_COLUMN;
  const REAL *y = (const REAL *)at[KERNEL_Y] + KERNEL_Y_START;
  const REAL *y_end = y + (KERNEL_K - 1) * KERNEL_Y_ROW + (KERNEL_N - 1) * KERNEL_Y_COLUMN + 1;
  KERNEL_ROOM(packed, KERNEL_PANEL, KERNEL_BLOCK);
  const long line = KERNEL_PACKED ? width * REAL_tile_lanes : KERNEL_Y_ROW;
  y += KERNEL_PACKED ? first * KERNEL_K + q * line : first * KERNEL_Y_COLUMN + q * line;
  const long unread = KERNEL_UNREAD(width, count), readable = KERNEL_K - unread - q;
  const long read = !unread || readable > depth ? depth : readable < 0 ? 0 : readable;
  if (unread && read < depth)
    KERNEL_pack(width, y + read * line, KERNEL_Y_ROW, KERNEL_Y_COLUMN, y_end, depth - read, count,
                packed);
  for (long t = begin; t < end; ++t) {
    const long i = t * KERNEL_M / tiles, rows = (t + 1) * KERNEL_M / tiles - i;
    const REAL *left = copy ? copy + (i - top) : x + i * KERNEL_X_ROW;
    REAL *own = sums + (i - top) * KERNEL_ACROSS;
    (rows == low ? lower : higher)(
        depth, left, KERNEL_X_ROW, copy ? KERNEL_HEIGHT : KERNEL_X_COLUMN, y, line, read, packed,
        own, KERNEL_ACROSS, q > 0);
    if (q + KERNEL_LINES >= KERNEL_K)
      for (long r = 0; r < rows; ++r)
        KERNEL_emit(at, batch, i + r, first, count, own + r * KERNEL_ACROSS);
  }
}

/* A block of rows times a group of panels. */
static MINIML_INLINE void KERNEL_unit(char *const *at, long batch, long block, long group) {
  KERNEL_NUMBERS(at)
  KERNEL_ROOM(sums, KERNEL_BLOCK, 0);
  long q = 0;
  do {
#ifdef KERNEL_COPIES
    /* Columns of x lie far apart: gathered once for all panels of the group. */
    KERNEL_ROOM(x, KERNEL_DEPTH * KERNEL_HEIGHT, KERNEL_BLOCK + KERNEL_PANEL);
    const long tiles = KERNEL_TILES(KERNEL_WIDEST);
    const long top = block * tiles / KERNEL_BLOCKS * KERNEL_M / tiles;
    const long rows = (block + 1) * tiles / KERNEL_BLOCKS * KERNEL_M / tiles - top;
    const REAL *from = (const REAL *)at[KERNEL_X] + KERNEL_X_START + q * KERNEL_X_COLUMN + top;
    const long depth = KERNEL_K - q < KERNEL_LINES ? KERNEL_K - q : KERNEL_LINES;
    for (long line = 0; line < depth; ++line)
      memcpy(x + line * KERNEL_HEIGHT, from + line * KERNEL_X_COLUMN, rows * sizeof(REAL));
    const REAL *copy = x;
#else
    const REAL *copy = 0;
#endif
    for (long g = 0; g < KERNEL_GROUP; ++g) {
      const long panel = group * KERNEL_GROUP + g, first = panel * KERNEL_COLUMNS;
      REAL *own = sums + g * KERNEL_HEIGHT * KERNEL_ACROSS;
#if KERNEL_FULL || !KERNEL_N
      if (panel < KERNEL_FULL)
        KERNEL_panel(at, batch, block, first, q, copy, own, KERNEL_WIDEST, KERNEL_COLUMNS,
                     KERNEL_LOWER(KERNEL_WIDEST), KERNEL_HIGHER(KERNEL_WIDEST));
#endif
#if KERNEL_REST || !KERNEL_N
      if (KERNEL_REST && panel == KERNEL_FULL)
        KERNEL_panel(at, batch, block, first, q, 0, own, KERNEL_NARROW, KERNEL_REST,
                     KERNEL_LOWER(KERNEL_NARROW), KERNEL_HIGHER(KERNEL_NARROW));
#endif
    }
    q += KERNEL_LINES;
  } while (q < KERNEL_K);
}
