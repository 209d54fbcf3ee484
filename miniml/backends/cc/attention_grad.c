/* The weights of a block are computed again from lse. dq of a block is summed over its keys; dk and
   dv, of which a part has its own, over the part's blocks. */
#define KERNEL_EP KERNEL_PADDED(KERNEL_E)
#define KERNEL_FP KERNEL_PADDED(KERNEL_F)

static void KERNEL_unit(KERNEL_block own, REAL *scratch, REAL *dk, REAL *dv) {
  KERNEL_NUMBERS(own.at)
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
  KERNEL_store(own, dq, KERNEL_E, room, out);
}

/* Output number `to` of a batch: the sums of its parts, in lines of `line`. */
static void KERNEL_sum(
    char *const *at, int to, long batch, const REAL *sums, long depth, long line) {
  KERNEL_NUMBERS(at)
  REAL *restrict out = (REAL *)at[to] + batch * KERNEL_S * depth;
  for (long s = 0; s < KERNEL_S; ++s, sums += line, out += depth) {
    memcpy(out, sums, depth * sizeof(REAL));
    for (long part = 1; part < KERNEL_SPLITS; ++part)
      for (long c = 0; c < depth; ++c) out[c] += sums[part * KERNEL_SCRATCH + c];
  }
}
static void KERNEL_finish(char *const *at, long batch, const REAL *dk) {
  KERNEL_NUMBERS(at)
  KERNEL_sum(at, 9, batch, dk, KERNEL_E, KERNEL_EP);
  KERNEL_sum(at, 10, batch, dk + KERNEL_S * KERNEL_EP, KERNEL_F, KERNEL_FP);
}

/* A part has some of the blocks of one batch, or whole batches. */
static void KERNEL_part(void *data, long part) {
  char *const *at = data;
  KERNEL_NUMBERS(at)
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
  KERNEL_NUMBERS(at)
  KERNEL_finish(at, batch, (REAL *)at[11] + batch * KERNEL_SPLITS * KERNEL_SCRATCH);
}

void KERNEL(char *const *at) {
  KERNEL_NUMBERS(at)
  KERNEL_RUN(KERNEL_part, (void *)at, KERNEL_PARTS);
  if (KERNEL_SPLITS > 1) KERNEL_RUN(KERNEL_end, (void *)at, KERNEL_BATCHES);
}
