/* Products of matrices, out[i, j] = sum over q < k of x[i, q] y[q, j], for all kernels of a unit. A
   unit of work is a block of rows times a group of panels of columns; it packs its panels of y, some
   lines at a time, unless that has been done, and runs tiles of rows over them. Each sum is taken in
   the order of q, whatever the blocks and the threads are, and whether or not y was packed. */

/* `depth` lines of `count` columns of y, packed as lines of `line` elements, of which the last ones
   are 0 or what follows in y, before its end. */
static MINIML_ONCE MINIML_PLAIN void REAL_pack(
    const REAL *y, long row, long column, const REAL *end, long depth, long count, REAL *panel,
    long line) {
  for (long q = 0; q < depth; ++q, y += row, panel += line) {
    if (column == 1 && y + line <= end) {
      for (long w = 0; w < line; w += REAL_tile_lanes)
        *(REAL_tile_loose *)(panel + w) = *(const REAL_tile_loose *)(y + w);
      continue;
    }
    for (long c = 0; c < count; ++c) panel[c] = y[c * column];
    for (long c = count; c < line; ++c) panel[c] = 0;
  }
}

/* The panels of some width: their vectors and columns; the lines at the end of y that are packed;
   the tiles into which the rows are cut, evenly, and the rows of the lower ones. */
typedef struct {
  long width, count, unread, tiles, low;
} REAL_cut;
/* What a kernel gives: sizes and steps; the blocks of rows, the panels of a group, how many panels
   are wide, of all, and the lines that are taken at a time; the rows of a block and the columns of
   its lines, for which there is room, and the elements of its sums and of a packed panel. */
typedef struct {
  long m, n, k, x_row, x_column, y_row, y_column;
  long blocks, group, full, panels, lines, height, across, block, panel;
  int copies;
  REAL_cut wide, narrow;
} REAL_product;
/* And its functions, apart, as their addresses are no constants of a file: the lower and the higher
   tiles of wide and narrow panels; what packs y; and what takes `rows` rows of sums, `pitch` apart,
   from row i and column j on. */
typedef struct {
  REAL_tiler *wide[2], *narrow[2];
  void (*pack)(
      const REAL *y, long row, long column, const REAL *end, long depth, long count, REAL *panel,
      long line);
  void (*take)(
      char *const *at, long batch, long i, long rows, long j, long count, const REAL *sums,
      long pitch);
} REAL_functions;

/* The panel of y that begins at column `first`, for the rows of a block, of which there may be a
   copy, and the lines from q on. The sums of these rows are kept between calls; after the last lines
   the kernel takes them. */
static MINIML_ONCE MINIML_PLAIN void REAL_panel(
    const REAL_product *p, const REAL_functions *f, const REAL_cut *cut, REAL_tiler *const *tilers,
    char *const *at, long batch, long block, long first, long q, const REAL *x, const REAL *copy,
    const REAL *y, int packed, REAL *sums, REAL *rest) {
  const long begin = block * cut->tiles / p->blocks, end = (block + 1) * cut->tiles / p->blocks;
  long i = begin * p->m / cut->tiles;
  const long row = p->x_row, column = copy ? p->height : p->x_column;
  x = copy ? copy : x + i * row + q * column;
  const long depth = p->k - q < p->lines ? p->k - q : p->lines;
  const REAL *y_end = y + (p->k - 1) * p->y_row + (p->n - 1) * p->y_column + 1;
  const long line = packed ? cut->width * REAL_tile_lanes : p->y_row;
  y += packed ? first * p->k + q * line : first * p->y_column + q * line;
  const long readable = p->k - cut->unread - q;
  const long read = !cut->unread || readable > depth ? depth : readable < 0 ? 0 : readable;
  const REAL *const after = packed ? y + read * line : rest;
  if (read < depth && !packed)
    f->pack(y + read * line, p->y_row, p->y_column, y_end, depth - read, cut->count, rest,
            cut->width * REAL_tile_lanes);
  for (long t = begin, rows; t < end; ++t, i += rows, x += rows * row, sums += rows * p->across) {
    rows = (t + 1) * p->m / cut->tiles - i;
    tilers[rows > cut->low](
        depth, x, row, column, y, line, read, after, sums, p->across, q > 0);
    if (q + p->lines >= p->k) f->take(at, batch, i, rows, first, cut->count, sums, p->across);
  }
}

/* A block of rows times a group of panels. */
static MINIML_ONCE MINIML_PLAIN void REAL_unit(
    const REAL_product *p, const REAL_functions *f, char *const *at, long batch, long block,
    long group, const REAL *x, const REAL *y, int packed, REAL *room) {
  const long last = (group + 1) * p->group < p->panels ? (group + 1) * p->group : p->panels;
  REAL *const rest = room + p->block, *const copy = rest + p->panel;
  for (long q = 0; !q || q < p->k; q += p->lines) {
    if (p->copies) {
      /* Columns of x lie far apart: gathered once for all wide panels of the group. */
      const long tiles = p->wide.tiles, top = block * tiles / p->blocks * p->m / tiles;
      const long rows = (block + 1) * tiles / p->blocks * p->m / tiles - top;
      for (long line = 0; line < p->lines && q + line < p->k; ++line)
        memcpy(copy + line * p->height, x + (q + line) * p->x_column + top, rows * sizeof(REAL));
    }
    REAL *sums = room;
    for (long panel = group * p->group; panel < last; ++panel, sums += p->height * p->across) {
      const int wide = panel < p->full;
      REAL_panel(p, f, wide ? &p->wide : &p->narrow, wide ? f->wide : f->narrow, at, batch, block,
                 panel * p->wide.count, q, x, wide && p->copies ? copy : 0, y, packed, sums, rest);
    }
  }
}
