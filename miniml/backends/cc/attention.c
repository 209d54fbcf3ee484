/* Attention by blocks of queries and of keys. Queries lie along vectors, scores[key][query], so that
   softmax runs along vectors, and k and v are read where they are. */
#define KERNEL_WIDEST (MINIML_REGISTERS / 8) /* vectors of a tile of 6 rows */
/* Tiles of 1 to 6 rows, of those heights and widths that products of these sizes have: each takes
   long to compile. Where sizes are variables, of all. */
#define KERNEL_ENDS(columns, width) ((columns) / REAL_tile_lanes % KERNEL_WIDEST == (width))
#ifdef KERNEL_VARIES
#define KERNEL_OR_WIDEST(width) ((width) < KERNEL_WIDEST ? (width) : KERNEL_WIDEST)
#else
#define KERNEL_OR_WIDEST(width) \
  (KERNEL_ENDS(KERNEL_LANES, width) || KERNEL_ENDS(KERNEL_PADDED(KERNEL_E), width) || \
           KERNEL_ENDS(KERNEL_PADDED(KERNEL_F), width) \
       ? (width) \
       : KERNEL_WIDEST)
#endif
#ifdef KERNEL_VARIES
#define KERNEL_OF(rows, width) REAL_TILE(rows, width)
#else
#define KERNEL_OF(rows, width) \
  REAL_TILE(KERNEL_HEIGHTS >> (rows) & 1 ? (rows) : KERNEL_TALLEST, width)
#endif
#define KERNEL_TILERS(width) \
  {KERNEL_OF(1, width), KERNEL_OF(2, width), KERNEL_OF(3, width), \
   KERNEL_OF(4, width), KERNEL_OF(5, width), KERNEL_OF(6, width)}
static REAL_tiler *const KERNEL_tilers[4][6] = {
    KERNEL_TILERS(KERNEL_OR_WIDEST(1)), KERNEL_TILERS(KERNEL_OR_WIDEST(2)),
    KERNEL_TILERS(KERNEL_OR_WIDEST(3)), KERNEL_TILERS(KERNEL_OR_WIDEST(4))};
typedef struct {
  char *const *at;
  long batch, query, rows; /* the block of queries: its first one, and how many */
} KERNEL_block;

/* sums[r, c], or what is added to them, = sum over q < depth of x[r, q] y[q, c] for whole vectors of
   columns; row and column: the steps of x. */
static void KERNEL_product(
    long rows, long columns, long depth, const REAL *x, long row, long column, const REAL *y,
    REAL *sums, int added) {
  const long tiles = (rows + 5) / 6;
  for (long c = 0, width; c < columns; c += width * REAL_tile_lanes) {
    width = (columns - c) / REAL_tile_lanes;
    if (width > KERNEL_WIDEST) width = KERNEL_WIDEST;
    for (long t = 0, i = 0, end; t < tiles; ++t, i = end) {
      end = (t + 1) * rows / tiles;
      KERNEL_tilers[width - 1][end - i - 1](
          depth, x + i * row, row, column, y + c, columns, depth, 0, sums + i * columns + c, columns,
          added);
    }
  }
}

/* to[c][i] = from[i, c] for i < count and c < depth, and 0 for the other lanes. */
static void KERNEL_turn(
    const REAL *from, long row, long column, long count, long depth, REAL *to, long lanes) {
  if (count < lanes) memset(to, 0, depth * lanes * sizeof(REAL));
  if (column == 1 && row >= depth)
    REAL_pack_turned(from, 1, row, from + (count - 1) * row + depth, depth, count, to, lanes);
  else
    for (long c = 0; c < depth; ++c)
      for (long i = 0; i < count; ++i) to[c * lanes + i] = from[i * row + c * column];
}

/* to[i, c] = from[c][i] for the block's rows and c < depth. */
static void KERNEL_store(KERNEL_block own, const REAL *from, long depth, REAL *room, REAL *to) {
  KERNEL_NUMBERS(own.at)
  const long line = KERNEL_PADDED(depth);
  REAL_pack_turned(from, 1, KERNEL_LANES, from + depth * KERNEL_LANES, own.rows, depth, room, line);
  for (long i = 0; i < own.rows; ++i) memcpy(to + i * depth, room + i * line, depth * sizeof(REAL));
}

/* The scores of `count` keys from `key` on, by q[c][i] = scale q[i, c]; -inf for what is not seen. */
static void KERNEL_scores(
    KERNEL_block own, long key, long count, const REAL *q, REAL *restrict scores,
    REAL *restrict room) {
  KERNEL_NUMBERS(own.at)
  const long batch = own.batch;
  const REAL *k = (const REAL *)own.at[1] + KERNEL_K_START + key * KERNEL_K_ROW;
  KERNEL_product(count, KERNEL_LANES, KERNEL_E, k, KERNEL_K_ROW, KERNEL_K_COLUMN, q, scores, 0);
#ifdef KERNEL_MASK
  const KERNEL_MASK *mask = (const KERNEL_MASK *)own.at[3] + KERNEL_M_START;
  REAL *restrict bias = room + KERNEL_LANES * KERNEL_KEYS;
  mask += own.query * KERNEL_M_ROW + key * KERNEL_M_COLUMN;
  if (KERNEL_M_ROW) {
    for (long i = 0; i < own.rows; ++i)
      for (long c = 0; c < count; ++c)
        room[i * KERNEL_KEYS + c] = mask[i * KERNEL_M_ROW + c * KERNEL_M_COLUMN];
    KERNEL_turn(room, KERNEL_KEYS, 1, own.rows, count, bias, KERNEL_LANES);
  }
  for (long c = 0; c < count; ++c) {
    const REAL all = mask[c * KERNEL_M_COLUMN];
    for (long i = 0; i < KERNEL_LANES; ++i) {
      const REAL score = scores[c * KERNEL_LANES + i];
      scores[c * KERNEL_LANES + i] =
          KERNEL_MASKED(score, KERNEL_M_ROW ? bias[c * KERNEL_LANES + i] : all);
    }
  }
#endif
#if KERNEL_CAUSAL
  if (key + count - 1 > own.query)
    for (long c = 0; c < count; ++c)
      for (long i = 0; i < KERNEL_LANES; ++i)
        scores[c * KERNEL_LANES + i] =
            key + c > own.query + i ? -INFINITY : scores[c * KERNEL_LANES + i];
#endif
}

#if KERNEL_DROPS
/* kept[c][i] = Z, 1 / (1 - dropout) for the weights that stay, else 0, of `count` keys from `key` on:
   the draw of Bernoulli of the shape of all scores, of which a block of words has four in a line. */
static void KERNEL_draw(KERNEL_block own, long key, long count, REAL *kept, REAL *room) {
  KERNEL_NUMBERS(own.at)
  const uint64_t *state = (const uint64_t *)own.at[4];
  const uint64_t begin = state[KERNEL_STATE_STEP] + *(const uint64_t *)own.at[KERNEL_SKIP];
  for (long i = 0; i < own.rows; ++i) {
    const long first = (own.batch * KERNEL_T + own.query + i) * KERNEL_S + key, skip = first % 4;
    REAL line[KERNEL_KEYS + 4 * MINIML_DRAWN + 4];
    for (long c = 0; c < skip + count; c += 4 * MINIML_DRAWN) {
      uint32_t words[4][MINIML_DRAWN];
      miniml_philox(state[0], begin + (uint64_t)((first + c) / 4), words);
      for (int l = 0; l < MINIML_DRAWN; ++l)
        for (int n = 0; n < 4; ++n)
          line[c + 4 * l + n] = (words[n][l] >> 8) < KERNEL_THRESHOLD ? KERNEL_KEPT : 0;
    }
    memcpy(room + i * KERNEL_KEYS, line + skip, count * sizeof(REAL));
  }
  KERNEL_turn(room, KERNEL_KEYS, 1, own.rows, count, kept, KERNEL_LANES);
}
#endif

/* weights = P Z and slopes = dS of `count` keys from `key` on; dout[c][i] as q. */
static void KERNEL_slopes(
    KERNEL_block own, long key, long count, const REAL *q, const REAL *dout,
    const REAL *restrict lse, const REAL *restrict delta, REAL *restrict weights,
    REAL *restrict slopes, REAL *restrict room) {
  KERNEL_NUMBERS(own.at)
  const long batch = own.batch, n = KERNEL_LANES;
  const REAL *v = (const REAL *)own.at[2] + KERNEL_V_START + key * KERNEL_V_ROW;
  KERNEL_scores(own, key, count, q, weights, room);
  KERNEL_product(count, n, KERNEL_F, v, KERNEL_V_ROW, KERNEL_V_COLUMN, dout, slopes, 0);
#if KERNEL_DROPS
  const REAL *kept = room + KERNEL_LANES * KERNEL_KEYS;
  KERNEL_draw(own, key, count, room + KERNEL_LANES * KERNEL_KEYS, room);
#endif
  for (long c = 0; c < count; ++c)
    for (long i = 0; i < n; ++i) {
      const REAL weight = KERNEL_EXP(weights[c * n + i] - lse[i]);
#if KERNEL_DROPS
      const REAL stays = kept[c * n + i];
      weights[c * n + i] = weight * stays;
      slopes[c * n + i] = weight * (slopes[c * n + i] * stays - delta[i]);
#else
      weights[c * n + i] = weight;
      slopes[c * n + i] = weight * (slopes[c * n + i] - delta[i]);
#endif
    }
}

/* How many keys a block of queries may see: none where there are no queries. */
static long KERNEL_seen(KERNEL_block own) {
  KERNEL_NUMBERS(own.at)
  if (!own.rows) return 0;
  const long last = own.query + own.rows;
  return KERNEL_CAUSAL && last < KERNEL_S ? last : KERNEL_S;
}

/* q[c][i] = scale times what query i of the block has. */
static void KERNEL_queries(KERNEL_block own, REAL *q) {
  KERNEL_NUMBERS(own.at)
  const long batch = own.batch;
  const REAL *from = (const REAL *)own.at[0] + KERNEL_Q_START + own.query * KERNEL_Q_ROW;
  KERNEL_turn(from, KERNEL_Q_ROW, KERNEL_Q_COLUMN, own.rows, KERNEL_E, q, KERNEL_LANES);
  for (long n = 0; n < KERNEL_E * KERNEL_LANES; ++n) q[n] *= KERNEL_SCALE;
}

/* to[i] = the number of query i of the block, and 0 for the other lanes. */
static void KERNEL_numbers(KERNEL_block own, int input, long start, long step, REAL *to) {
  KERNEL_NUMBERS(own.at)
  const REAL *from = (const REAL *)own.at[input] + start + own.query * step;
  for (long i = 0; i < KERNEL_LANES; ++i) to[i] = i < own.rows ? from[i * step] : 0;
}

static KERNEL_block KERNEL_at(char *const *at, long unit) {
  KERNEL_NUMBERS(at)
  const long block = unit % KERNEL_BLOCKS, query = block * KERNEL_T / KERNEL_BLOCKS;
  const long rows = (block + 1) * KERNEL_T / KERNEL_BLOCKS - query;
  return (KERNEL_block){at, unit / KERNEL_BLOCKS, query, rows};
}
