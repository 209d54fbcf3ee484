/* A product of matrices: out[b, i, j] = sum over q < K of x[b, i, q] y[b, q, j], taken by
   KERNEL_epilogue. */
#define KERNEL_PANELS (KERNEL_FULL + (KERNEL_REST != 0))
#define KERNEL_GROUPS ((KERNEL_PANELS + KERNEL_GROUP - 1) / KERNEL_GROUP)
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
#define KERNEL_CUT(width, count) \
  {width, count, KERNEL_UNREAD(width, count), KERNEL_TILES(width), KERNEL_LOW(width)}
#define KERNEL_TILERS(width) \
  {KERNEL_TILE(KERNEL_LOW(width), width), \
   KERNEL_TILE(KERNEL_LOW(width) + (KERNEL_M % KERNEL_TILES(width) != 0), width)}
#define KERNEL_DEPTH (KERNEL_K < KERNEL_LINES ? KERNEL_K : KERNEL_LINES)
/* Rows of a block, of which those of an uneven cut have up to a tile more, and columns of a line of
   the widest panel: the room of a block on the stack. */
#define KERNEL_HEIGHT (KERNEL_BLOCKS > 1 ? KERNEL_M / KERNEL_BLOCKS + 13 : KERNEL_M)
#define KERNEL_ACROSS (KERNEL_FULL ? KERNEL_COLUMNS : KERNEL_NARROW * MINIML_LANES_REAL)
/* Lines at the end of y that are packed, of a panel of `width` vectors with `count` columns: all but
   where few rows read y in place, in whole vectors, which end in the next line or the one after it;
   those of the last lines would end beyond y. */
#define KERNEL_UNREAD(width, count) \
  (KERNEL_M > KERNEL_UNPACKED || KERNEL_Y_COLUMN != 1 || KERNEL_Y_ROW < 1 \
       ? KERNEL_K \
       : ((width) * MINIML_LANES_REAL - (count) + KERNEL_Y_ROW - 1) / KERNEL_Y_ROW)
#define KERNEL_MOST_UNREAD KERNEL_UNREAD(KERNEL_NARROW, KERNEL_REST)
/* Elements of a packed panel, if any line is packed, of the sums of a block, and of a copied one. */
#define KERNEL_PANEL \
  (KERNEL_MOST_UNREAD < 1 ? 1 \
   : KERNEL_ACROSS * (KERNEL_MOST_UNREAD < KERNEL_DEPTH ? KERNEL_MOST_UNREAD : KERNEL_DEPTH))
#define KERNEL_BLOCK (KERNEL_GROUP * KERNEL_HEIGHT * KERNEL_ACROSS)
#ifdef KERNEL_COPIES
#define KERNEL_COPY (KERNEL_DEPTH * KERNEL_HEIGHT)
#else
#define KERNEL_COPY 0
#endif

static MINIML_ONCE void KERNEL_take(
    char *const *at, long batch, long i, long rows, long j, long count, const REAL *sums,
    long pitch) {
  KERNEL_NUMBERS(at)
  for (const long end = i + rows; i < end; ++i, sums += pitch)
    if (KERNEL_FULL && (!KERNEL_REST || count == KERNEL_COLUMNS))
      KERNEL_emit(at, batch, i, j, KERNEL_COLUMNS, sums);
    else
      KERNEL_emit(at, batch, i, j, KERNEL_REST, sums);
}

static MINIML_INLINE void KERNEL_unit(char *const *at, long batch, long block, long group) {
  KERNEL_NUMBERS(at)
  KERNEL_ROOM(room, KERNEL_BLOCK + KERNEL_PANEL + KERNEL_COPY, 0);
#ifndef KERNEL_VARIES
  static
#endif
  const REAL_product product = {
    .m = KERNEL_M, .n = KERNEL_N, .k = KERNEL_K, .x_row = KERNEL_X_ROW, .x_column = KERNEL_X_COLUMN,
    .y_row = KERNEL_Y_ROW, .y_column = KERNEL_Y_COLUMN, .blocks = KERNEL_BLOCKS,
    .group = KERNEL_GROUP, .full = KERNEL_FULL, .panels = KERNEL_PANELS, .lines = KERNEL_LINES,
    .height = KERNEL_HEIGHT, .across = KERNEL_ACROSS, .block = KERNEL_BLOCK, .panel = KERNEL_PANEL,
    .copies = KERNEL_COPY > 0,
    .wide = KERNEL_CUT(KERNEL_WIDEST, KERNEL_COLUMNS),
    .narrow = KERNEL_CUT(KERNEL_NARROW + !KERNEL_REST, KERNEL_REST),
  };
  const REAL_functions functions = {
#if KERNEL_FULL || !KERNEL_N
    .wide = KERNEL_TILERS(KERNEL_WIDEST),
#endif
#if KERNEL_REST || !KERNEL_N
    .narrow = KERNEL_TILERS(KERNEL_NARROW + !KERNEL_REST),
#endif
    .pack = KERNEL_PACK, .take = KERNEL_take,
  };
  REAL_unit(&product, &functions, at, batch, block, group,
            (const REAL *)at[KERNEL_X] + KERNEL_X_START, KERNEL_Y_AT, KERNEL_PACKED, room);
}
