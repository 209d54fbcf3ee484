/* dS, summed to the shape of the mask. A unit of work is all batches of a group, of one block or of
   all: what others do not add to. */
static void KERNEL_add(KERNEL_block own, REAL *scratch) {
  KERNEL_NUMBERS(own.at)
  const long batch = own.batch, n = KERNEL_LANES, seen = KERNEL_seen(own);
  REAL *q = scratch, *dout = q + KERNEL_E * n, *weights = dout + KERNEL_F * n;
  REAL *slopes = weights + KERNEL_KEYS * n, *room = slopes + KERNEL_KEYS * n;
  REAL lse[KERNEL_LANES], delta[KERNEL_LANES];
  const long line = KERNEL_PADDED(KERNEL_KEYS);
  KERNEL_queries(own, q);
  const REAL *from = (const REAL *)own.at[7] + KERNEL_DOUT_START + own.query * KERNEL_DOUT_ROW;
  KERNEL_turn(from, KERNEL_DOUT_ROW, KERNEL_DOUT_COLUMN, own.rows, KERNEL_F, dout, n);
  KERNEL_numbers(own, 5, KERNEL_LSE_START, KERNEL_LSE_ROW, lse);
  KERNEL_numbers(own, 6, KERNEL_DELTA_START, KERNEL_DELTA_ROW, delta);
  REAL *out = (REAL *)own.at[8] + KERNEL_OUT_START + own.query * KERNEL_OUT_ROW;
  for (long key = 0, count; key < seen; key += count) {
    count = seen - key < KERNEL_KEYS ? seen - key : KERNEL_KEYS;
    KERNEL_slopes(own, key, count, q, dout, lse, delta, weights, slopes, room);
    KERNEL_turn(slopes, n, 1, count, own.rows, room, line);
    if (!KERNEL_OUT_ROW)
      for (long i = 1; i < own.rows; ++i)
        for (long c = 0; c < count; ++c) room[c] += room[i * line + c];
    for (long i = 0; i < (KERNEL_OUT_ROW ? own.rows : 1); ++i) {
      REAL *to = out + i * KERNEL_OUT_ROW + key * KERNEL_OUT_COLUMN, *slope = room + i * line;
      if (!KERNEL_OUT_COLUMN)
        for (long c = 1; c < count; ++c) slope[0] += slope[c];
      for (long c = 0; c < (KERNEL_OUT_COLUMN ? count : 1); ++c) to[c] += slope[c];
    }
  }
}

static void KERNEL_part(void *data, long part) {
  char *const *at = data;
  KERNEL_NUMBERS(at)
  REAL *scratch = (REAL *)at[9] + part * KERNEL_SCRATCH;
  const long each = KERNEL_BATCHES / KERNEL_GROUPS;
  for (long unit = part; unit < KERNEL_GROUPS * KERNEL_SPLITS; unit += KERNEL_PARTS)
    for (long batch = unit / KERNEL_SPLITS * each, i = 0; i < each; ++i, ++batch)
      for (long block = unit % KERNEL_SPLITS; block < KERNEL_BLOCKS; block += KERNEL_SPLITS)
        KERNEL_add(KERNEL_at(at, batch * KERNEL_BLOCKS + block), scratch);
}

void KERNEL(char *const *at) {
  KERNEL_NUMBERS(at)
  memset(at[8], 0, KERNEL_SIZE * sizeof(REAL));
  KERNEL_RUN(KERNEL_part, (void *)at, KERNEL_PARTS);
}
