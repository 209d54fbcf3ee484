/* What products of REAL are made of. */
enum { REAL_tile_lanes = MINIML_LANES_REAL };
typedef REAL REAL_tile_vector __attribute__((vector_size(MINIML_VECTOR)));
typedef REAL REAL_tile_loose
    __attribute__((vector_size(MINIML_VECTOR), aligned(sizeof(REAL)), may_alias));
#ifndef REAL_tile_plus
#define REAL_tile_plus(sum, x, y) ((x) * (y) + (sum))
#endif

/* One line of y, times each row of x, in the sums of a tile. */
static MINIML_INLINE MINIML_PLAIN_FMA void REAL_tile_line(
    const int rows, const int width, const REAL *x, long row, const REAL *y,
    REAL_tile_vector (*sum)[8]) {
  MINIML_CONTRACT
  REAL_tile_vector taken[8];
  MINIML_UNROLL for (int w = 0; w < width; ++w)
    taken[w] = *(const REAL_tile_loose *)(y + w * REAL_tile_lanes);
  MINIML_UNROLL for (int r = 0; r < rows; ++r)
    MINIML_UNROLL for (int w = 0; w < width; ++w)
      sum[r][w] = REAL_tile_plus(sum[r][w], x[r * row], taken[w]);
}

/* sums[r, c] = sum over q < depth of x[r, q] y[q, c], for a tile of `rows` rows and `width` vectors
   of columns, which stays in registers; continued: added to what the sums are, so that a long sum is
   one of short ones. The steps of x go from a row to the next and along q; lines of y lie `line`
   apart, those from `read` on in `rest`, without gaps; those of the sums lie `pitch` apart. Where
   there are few sums, lines are added to several of each, as a multiplication and addition takes
   four cycles, of which each may begin two. */
static MINIML_INLINE MINIML_PLAIN_FMA void REAL_tile(
    const int rows, const int width, long depth, const REAL *x, long row, long column,
    const REAL *y, long line, long read, const REAL *rest, REAL *sums, long pitch, int continued) {
  MINIML_CONTRACT
  const int chains = rows * width < 8 ? 8 / (rows * width) : 1;
  REAL_tile_vector sum[12][8];
  MINIML_UNROLL for (int r = 0; r < chains * rows; ++r)
    MINIML_UNROLL for (int w = 0; w < width; ++w) sum[r][w] = (REAL_tile_vector){0};
  for (long q = 0;;) {
    for (; chains > 1 && q + chains <= read; q += chains)
      MINIML_UNROLL for (int c = 0; c < chains; ++c, x += column, y += line)
        REAL_tile_line(rows, width, x, row, y, sum + c * rows);
    for (; q < read; ++q, x += column, y += line) REAL_tile_line(rows, width, x, row, y, sum);
    if (q == depth) break;
    read = depth, y = rest, line = width * REAL_tile_lanes;
  }
  MINIML_UNROLL for (int r = chains * rows; --r >= rows;)
    MINIML_UNROLL for (int w = 0; w < width; ++w) sum[r - rows][w] += sum[r][w];
  if (continued)
    MINIML_UNROLL for (int r = 0; r < rows; ++r)
      MINIML_UNROLL for (int w = 0; w < width; ++w)
        sum[r][w] += *(REAL_tile_loose *)(sums + r * pitch + w * REAL_tile_lanes);
  MINIML_UNROLL for (int r = 0; r < rows; ++r)
    MINIML_UNROLL for (int w = 0; w < width; ++w)
      *(REAL_tile_loose *)(sums + r * pitch + w * REAL_tile_lanes) = sum[r][w];
}

/* A function for each size of tile; REAL_TILE(rows, width) is the one for two constants, and those
   that no kernel of the unit names cost nothing. */
#define REAL_TILES(T) \
  T(1, 1) T(2, 1) T(3, 1) T(4, 1) T(5, 1) T(6, 1) T(7, 1) T(8, 1) T(9, 1) T(10, 1) T(11, 1) \
  T(12, 1) T(1, 2) T(2, 2) T(3, 2) T(4, 2) T(5, 2) T(6, 2) T(7, 2) T(8, 2) T(9, 2) T(10, 2) \
  T(11, 2) T(12, 2) \
  T(1, 3) T(2, 3) T(3, 3) T(4, 3) T(5, 3) T(6, 3) T(7, 3) T(8, 3) \
  T(1, 4) T(2, 4) T(3, 4) T(4, 4) T(5, 4) T(6, 4) T(1, 5) T(1, 6) T(1, 7) T(1, 8)
#define REAL_SIZE(R, W) \
  static MINIML_ONCE MINIML_PLAIN_FMA void REAL_tile_##R##_##W( \
      long depth, const REAL *x, long row, long column, const REAL *y, long line, long read, \
      const REAL *rest, REAL *sums, long pitch, int continued) { \
    REAL_tile(R, W, depth, x, row, column, y, line, read, rest, sums, pitch, continued); \
  }
REAL_TILES(REAL_SIZE)
typedef void REAL_tiler(
    long, const REAL *, long, long, const REAL *, long, long, const REAL *, REAL *, long, int);
#define REAL_CASE(R, W) , char(*)[R * 16 + W] : REAL_tile_##R##_##W
#define REAL_TILE(rows, width) _Generic((char(*)[(rows) * 16 + (width)])0 REAL_TILES(REAL_CASE))
#define REAL_PLACE(R, W) [W - 1][R - 1] = REAL_tile_##R##_##W,
static REAL_tiler *const REAL_tilers[8][12] __attribute__((unused)) = {REAL_TILES(REAL_PLACE)};

/* Transposes a square of vectors: each round turns the index (row, lane) left by one bit. */
static MINIML_INLINE void REAL_tile_turn(REAL_tile_vector *rows) {
  REAL_tile_vector other[REAL_tile_lanes];
  MINIML_UNROLL for (int round = 1; round < REAL_tile_lanes; round *= 2) {
    MINIML_UNROLL for (int i = 0; i < REAL_tile_lanes / 2; ++i) {
      REAL_tile_vector a = rows[i], b = rows[i + REAL_tile_lanes / 2];
      other[2 * i] = __builtin_shufflevector(a, b, MINIML_JOIN(MINIML_LOW_, MINIML_LANES_REAL));
      other[2 * i + 1] =
          __builtin_shufflevector(a, b, MINIML_JOIN(MINIML_HIGH_, MINIML_LANES_REAL));
    }
    MINIML_UNROLL for (int i = 0; i < REAL_tile_lanes; ++i) rows[i] = other[i];
  }
}

/* panel[q, c] = y[c, q] for q < depth and c < count, and 0 for the columns up to the next multiple
   of lanes. By squares of vectors, of which the last overlaps the one above. A square may read
   beyond its own lines, but not beyond `end`, where the memory of y ends. */
static MINIML_ONCE MINIML_PLAIN void REAL_pack_turned(
    const REAL *y, long row, long step, const REAL *end, long depth, long count, REAL *panel,
    long line) {
  const long full = depth < REAL_tile_lanes ? depth : REAL_tile_lanes;
  for (long c = 0; c < count; c += REAL_tile_lanes, y += REAL_tile_lanes * step) {
    const long rows = count - c < REAL_tile_lanes ? count - c : REAL_tile_lanes;
    if (y + (rows - 1) * step + REAL_tile_lanes > end && full < REAL_tile_lanes) {
      for (long q = 0; q < depth; ++q)
        for (long i = 0; i < REAL_tile_lanes; ++i)
          panel[q * line + c + i] = i < rows ? y[i * step + q] : 0;
      continue;
    }
    for (long next = 0; next < depth; next += REAL_tile_lanes) {
      const long q = next + full > depth ? depth - full : next;
      REAL_tile_vector square[REAL_tile_lanes];
      MINIML_UNROLL for (int i = 0; i < REAL_tile_lanes; ++i) {
        square[i] = (REAL_tile_vector){0};
        if (i < rows) square[i] = *(const REAL_tile_loose *)(y + i * step + q);
      }
      REAL_tile_turn(square);
      MINIML_UNROLL for (int i = 0; i < REAL_tile_lanes; ++i)
        if (i < full) *(REAL_tile_loose *)(panel + (q + i) * line + c) = square[i];
    }
  }
}

/* sums[c] = sum over q < depth of x[q] y[c, q] for `count` columns, at most as many as lanes. */
static MINIML_INLINE MINIML_FMA void REAL_dots_of_block(
    const int count, const REAL *x, const REAL *y, long step, long depth, REAL *sums) {
  MINIML_CONTRACT
  REAL_tile_vector sum[REAL_tile_lanes];
  for (int c = 0; c < REAL_tile_lanes; ++c) sum[c] = (REAL_tile_vector){0};
  long q = 0;
  for (; q + REAL_tile_lanes <= depth; q += REAL_tile_lanes) {
    REAL_tile_vector left = *(const REAL_tile_loose *)(x + q);
    for (int c = 0; c < count; ++c) sum[c] += left * *(const REAL_tile_loose *)(y + c * step + q);
  }
  REAL rest[REAL_tile_lanes];
  for (int c = 0; c < count; ++c) {
    rest[c] = 0;
    for (long p = q; p < depth; ++p) rest[c] = x[p] * y[c * step + p] + rest[c];
  }
  if (count > 1) {
    REAL_tile_turn(sum);
    for (int half = REAL_tile_lanes / 2; half; half /= 2)
      for (int c = 0; c < half; ++c) sum[c] += sum[c + half];
    for (int c = 0; c < count; ++c) sums[c] = sum[0][c] + rest[c];
  } else {
    for (int c = 0; c < REAL_tile_lanes; ++c) rest[0] += sum[0][c];
    sums[0] = rest[0];
  }
}
/* The same for any depth: sums of blocks are added in a wider type, as exactly as by pairs. */
static MINIML_INLINE MINIML_FMA void REAL_dots(
    const int count, const REAL *x, const REAL *y, long step, long depth, REAL *sums) {
  const long block = 64 * REAL_tile_lanes;
  MINIML_WIDER_REAL total[REAL_tile_lanes] = {0};
  for (long q = 0; q < depth; q += block) {
    REAL_dots_of_block(count, x + q, y + q, step, depth - q < block ? depth - q : block, sums);
    for (int c = 0; c < count; ++c) total[c] += sums[c];
  }
  for (int c = 0; c < count; ++c) sums[c] = total[c];
}
static MINIML_ONCE MINIML_FMA void REAL_dots_of_lanes(
    const REAL *x, const REAL *y, long step, long depth, REAL *sums) {
  REAL_dots(REAL_tile_lanes, x, y, step, depth, sums);
}
static MINIML_ONCE MINIML_FMA void REAL_dot(
    const REAL *x, const REAL *y, long depth, REAL *sum) {
  REAL_dots(1, x, y, 0, depth, sum);
}
