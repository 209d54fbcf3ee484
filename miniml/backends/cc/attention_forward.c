/* The keys of a block come after one another: weights are relative to the greatest score so far, and
   what was summed before is scaled where a greater one comes. */
static void KERNEL_unit(KERNEL_block own, REAL *scratch) {
  KERNEL_NUMBERS(own.at)
  const long batch = own.batch, seen = KERNEL_seen(own), n = KERNEL_LANES;
  REAL *q = scratch, *restrict scores = q + KERNEL_E * n;
  REAL *restrict values = scores + KERNEL_KEYS * n, *room = values + KERNEL_F * n;
  REAL top[KERNEL_LANES], total[KERNEL_LANES];
  for (long i = 0; i < n; ++i) top[i] = -INFINITY, total[i] = 0;
  KERNEL_queries(own, q);
  memset(values, 0, KERNEL_F * n * sizeof(REAL));
  for (long key = 0, count; key < seen; key += count) {
    count = seen - key < KERNEL_KEYS ? seen - key : KERNEL_KEYS;
    KERNEL_scores(own, key, count, q, scores, room);
    REAL held[KERNEL_LANES], less[KERNEL_LANES], sum[KERNEL_LANES];
    for (long i = 0; i < n; ++i) held[i] = top[i], sum[i] = 0;
    for (long c = 0; c < count; ++c)
      for (long i = 0; i < n; ++i) held[i] = scores[c * n + i] > held[i] ? scores[c * n + i] : held[i];
    for (long i = 0; i < n; ++i) {
      const REAL before = top[i];
      top[i] = held[i];
      held[i] = held[i] == -INFINITY ? 0 : held[i];
      less[i] = KERNEL_EXP(before - held[i]);
    }
    for (long c = 0; c < count; ++c)
      for (long i = 0; i < n; ++i) {
        const REAL weight = KERNEL_WEIGHT(scores[c * n + i] - held[i]);
        scores[c * n + i] = weight;
        sum[i] += weight;
      }
    for (long i = 0; i < n; ++i) total[i] = total[i] * less[i] + sum[i];
    for (long c = 0; c < KERNEL_F; ++c)
      for (long i = 0; i < n; ++i) values[c * n + i] *= less[i];
#if KERNEL_DROPS
    REAL *restrict kept = room + KERNEL_LANES * KERNEL_KEYS;
    KERNEL_draw(own, key, count, kept, room);
    for (long c = 0; c < count * n; ++c) scores[c] *= kept[c];
#endif
    const REAL *v = (const REAL *)own.at[2] + KERNEL_V_START + key * KERNEL_V_ROW;
    KERNEL_product(KERNEL_F, n, count, v, KERNEL_V_COLUMN, KERNEL_V_ROW, scores, values, 1);
  }
  REAL *lse = (REAL *)own.at[6] + batch * KERNEL_T + own.query;
  for (long i = 0; i < n; ++i) {
    const REAL sum = total[i], peak = top[i] == -INFINITY ? 0 : top[i];
    top[i] = sum == 0 ? INFINITY : KERNEL_LOG(sum) + peak;
    total[i] = sum == 0 ? 1 : 1 / sum;
  }
  memcpy(lse, top, own.rows * sizeof(REAL));
  for (long c = 0; c < KERNEL_F; ++c)
    for (long i = 0; i < n; ++i) values[c * n + i] *= total[i];
  REAL *out = (REAL *)own.at[5] + (batch * KERNEL_T + own.query) * KERNEL_F;
  KERNEL_store(own, values, KERNEL_F, room, out);
}

static void KERNEL_part(void *data, long part) {
  char *const *at = data;
  KERNEL_NUMBERS(at)
  REAL *scratch = (REAL *)at[7] + part * KERNEL_SCRATCH;
  for (long unit = part; unit < KERNEL_BATCHES * KERNEL_BLOCKS; unit += KERNEL_PARTS)
    KERNEL_unit(KERNEL_at(at, unit), scratch);
}

void KERNEL(char *const *at) {
  KERNEL_NUMBERS(at)
  KERNEL_RUN(KERNEL_part, (void *)at, KERNEL_PARTS);
}
