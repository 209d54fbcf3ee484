/* The weights of a block are computed again from lse. dq of a block is summed over its keys; dk and
   dv, of which a part has its own, over the part's blocks. */
enum { KERNEL_EP = KERNEL_PADDED(KERNEL_E), KERNEL_FP = KERNEL_PADDED(KERNEL_F) };

static void KERNEL_unit(KERNEL_block own, REAL *scratch, REAL *dk, REAL *dv) {
  const long batch = own.batch, n = KERNEL_LANES, seen = KERNEL_seen(own);
  REAL *q = scratch, *q_lines = q + KERNEL_E * n, *dout = q_lines + KERNEL_EP * n;
  REAL *dout_lines = dout + KERNEL_F * n, *weights = dout_lines + KERNEL_FP * n;
  REAL *slopes = weights + KERNEL_KEYS * n, *dq = slopes + KERNEL_KEYS * n;
  REAL *room = dq + KERNEL_E * n, lse[KERNEL_LANES], delta[KERNEL_LANES];
  KERNEL_queries(own, q);
  KERNEL_turn(q, n, 1, KERNEL_E, own.rows, q_lines, KERNEL_EP);
  const REAL *from = (const REAL *)own.at[7] + KERNEL_DOUT_START + own.query * KERNEL_DOUT_ROW;
  KERNEL_turn(from, KERNEL_DOUT_ROW, KERNEL_DOUT_COLUMN, own.rows, KERNEL_F, dout, n);
  KERNEL_turn(dout, n, 1, KERNEL_F, own.rows, dout_lines, KERNEL_FP);
  KERNEL_numbers(own, 5, KERNEL_LSE_START, KERNEL_LSE_ROW, lse);
  KERNEL_numbers(own, 6, KERNEL_DELTA_START, KERNEL_DELTA_ROW, delta);
  memset(dq, 0, KERNEL_E * n * sizeof(REAL));
  for (long key = 0, count; key < seen; key += count) {
    count = seen - key < KERNEL_KEYS ? seen - key : KERNEL_KEYS;
    KERNEL_slopes(own, key, count, q, dout, lse, delta, weights, slopes, room);
    const REAL *k = (const REAL *)own.at[1] + KERNEL_K_START + key * KERNEL_K_ROW;
    KERNEL_product(
        count, KERNEL_FP, own.rows, weights, n, 1, dout_lines, dv + key * KERNEL_FP, 1);
    KERNEL_product(count, KERNEL_EP, own.rows, slopes, n, 1, q_lines, dk + key * KERNEL_EP, 1);
    KERNEL_product(KERNEL_E, n, count, k, KERNEL_K_COLUMN, KERNEL_K_ROW, slopes, dq, 1);
  }
  for (long c = 0; c < KERNEL_E * n; ++c) dq[c] *= KERNEL_SCALE;
  REAL *out = (REAL *)own.at[8] + (batch * KERNEL_T + own.query) * KERNEL_E;
  KERNEL_store(dq, own.rows, KERNEL_E, room, out);
}

/* out[s, c] = the sum of what the parts of a batch have there, in lines of `line`. */
static void KERNEL_sum(const REAL *sums, long parts, long depth, long line, REAL *restrict out) {
  for (long s = 0; s < KERNEL_S; ++s, sums += line, out += depth) {
    memcpy(out, sums, depth * sizeof(REAL));
    for (long part = 1; part < parts; ++part)
      for (long c = 0; c < depth; ++c) out[c] += sums[part * KERNEL_SCRATCH + c];
  }
}
static void KERNEL_finish(char *const *at, long batch, const REAL *dk) {
  KERNEL_sum(dk, KERNEL_SPLITS, KERNEL_E, KERNEL_EP, (REAL *)at[9] + batch * KERNEL_S * KERNEL_E);
  KERNEL_sum(dk + KERNEL_S * KERNEL_EP, KERNEL_SPLITS, KERNEL_F, KERNEL_FP,
             (REAL *)at[10] + batch * KERNEL_S * KERNEL_F);
}

/* A part has some of the blocks of one batch, or whole batches. */
static void KERNEL_part(void *data, long part) {
  char *const *at = data;
  REAL *dk = (REAL *)at[11] + part * KERNEL_SCRATCH, *dv = dk + KERNEL_S * KERNEL_EP;
  REAL *scratch = dv + KERNEL_S * KERNEL_FP;
  for (long own = part; own < KERNEL_BATCHES * KERNEL_SPLITS; own += KERNEL_PARTS) {
    const long batch = own / KERNEL_SPLITS;
    memset(dk, 0, (scratch - dk) * sizeof(REAL));
    for (long block = own % KERNEL_SPLITS; block < KERNEL_BLOCKS; block += KERNEL_SPLITS)
      KERNEL_unit(KERNEL_at(at, batch * KERNEL_BLOCKS + block), scratch, dk, dv);
    if (KERNEL_SPLITS == 1) KERNEL_finish(at, batch, dk);
  }
}
static void KERNEL_end(void *data, long batch) {
  char *const *at = data;
  KERNEL_finish(at, batch, (REAL *)at[11] + batch * KERNEL_SPLITS * KERNEL_SCRATCH);
}

void KERNEL(char *const *at) {
  KERNEL_RUN(KERNEL_part, (void *)at, KERNEL_PARTS);
  if (KERNEL_SPLITS > 1) KERNEL_RUN(KERNEL_end, (void *)at, KERNEL_BATCHES);
}
