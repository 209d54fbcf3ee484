/* Channels in blocks: a tile is PIXELS neighbours in a row of the output by VECTORS vectors of output
   channels. Filters that are many are packed CHUNK channels at a time, and the sums so far are kept. */
#pragma STDC FP_CONTRACT ON
#pragma GCC push_options
#pragma GCC optimize("fp-contract=fast")
static __attribute__((noinline)) void KERNEL_tile(const REAL *restrict x, const KERNEL_tap *taps,
                                                  long count, const REAL *restrict filters,
                                                  long channels, int more, REAL *restrict acc) {
  REAL_vector a[KERNEL_PIXELS][KERNEL_VECTORS] = {{{0}}};
  if (more)
#pragma GCC unroll 32
    for (int p = 0; p < KERNEL_PIXELS; ++p)
#pragma GCC unroll 32
      for (int v = 0; v < KERNEL_VECTORS; ++v)
        a[p][v] = REAL_load(acc + p * KERNEL_ROWS + v * REAL_width);
  for (long c = 0; c < channels; ++c) {
    const REAL *lane = x + c / KERNEL_IN * KERNEL_CHANNEL + c % KERNEL_IN;
    const REAL *w = filters + c * KERNEL_TAPS * KERNEL_ROWS;
    for (long t = 0; t < count; ++t) {
      const REAL *at = lane + taps[t].offset;
      REAL_vector b[KERNEL_VECTORS];
#pragma GCC unroll 32
      for (int v = 0; v < KERNEL_VECTORS; ++v) b[v] = REAL_load(w + taps[t].filter + v * REAL_width);
#pragma GCC unroll 32
      for (int p = 0; p < KERNEL_PIXELS; ++p)
#pragma GCC unroll 32
        for (int v = 0; v < KERNEL_VECTORS; ++v) 
          a[p][v] += KERNEL_READ(at + p * KERNEL_COLUMN_STEP, v) * b[v];
    }
  }
#pragma GCC unroll 32
  for (int p = 0; p < KERNEL_PIXELS; ++p)
#pragma GCC unroll 32
    for (int v = 0; v < KERNEL_VECTORS; ++v)
      REAL_store(acc + p * KERNEL_ROWS + v * REAL_width, a[p][v]);
}
#pragma GCC pop_options
#pragma STDC FP_CONTRACT OFF
