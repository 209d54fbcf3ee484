#pragma STDC FP_CONTRACT ON
#pragma GCC push_options
#pragma GCC optimize("fp-contract=fast")
static __attribute__((noinline)) void KERNEL_tile(const REAL *restrict x, const KERNEL_tap *taps,
                                                  long count, const REAL *restrict filters,
                                                  REAL *restrict acc) {
  REAL_vector a[KERNEL_ROWS][KERNEL_VECTORS] = {{{0}}};
  for (long c = 0; c < KERNEL_CHANNELS; ++c, x += KERNEL_CHANNEL)
    for (long t = 0; t < count; ++t) {
      const REAL *w = filters + taps[t].filter + c * KERNEL_TAPS * KERNEL_ROWS;
      REAL_vector b[KERNEL_VECTORS];
#pragma GCC unroll 32
      for (int v = 0; v < KERNEL_VECTORS; ++v) b[v] = REAL_load(x + taps[t].offset + v * REAL_width);
#pragma GCC unroll 32
      for (int o = 0; o < KERNEL_ROWS; ++o)
#pragma GCC unroll 32
        for (int v = 0; v < KERNEL_VECTORS; ++v) a[o][v] = REAL_plus(a[o][v], w[o], b[v]);
    }
#pragma GCC unroll 32
  for (int o = 0; o < KERNEL_ROWS; ++o)
#pragma GCC unroll 32
    for (int v = 0; v < KERNEL_VECTORS; ++v)
      REAL_store(acc + o * KERNEL_BLOCK + v * REAL_width, a[o][v]);
}
#pragma GCC pop_options
#pragma STDC FP_CONTRACT OFF
