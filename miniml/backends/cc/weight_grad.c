/* dw[o, c, t] = sum over lanes and positions (i, j) of dout[o, i, j] * x[c, i, j + offset of t]: tiles
   of ROWS outputs by COUNT pairs of a channel and a tap, a vector of partial sums each. */
#pragma STDC FP_CONTRACT ON
#pragma GCC push_options
#pragma GCC optimize("fp-contract=fast")
static __attribute__((noinline)) void KERNEL_tile(const REAL *x, const long *offset,
                                                  const REAL *d, REAL *restrict sums) {
  REAL_vector a[KERNEL_ROWS][KERNEL_COUNT] = {{{0}}};
  const REAL *at[KERNEL_COUNT];
  for (int k = 0; k < KERNEL_COUNT; ++k) at[k] = x + offset[k];
  for (long i = 0; i < KERNEL_OUTER; ++i)
    for (long j = 0; j < KERNEL_INNER; ++j) {
      const long from = i * KERNEL_X_OUTER + j * KERNEL_X_INNER;
      const REAL *slope = d + i * KERNEL_D_OUTER + j * KERNEL_D_INNER;
#pragma GCC unroll 1
      for (long l = 0; l < KERNEL_LANES; l += REAL_width) {
        REAL_vector b[KERNEL_ROWS];
#pragma GCC unroll 32
        for (int o = 0; o < KERNEL_ROWS; ++o) b[o] = REAL_load(slope + o * KERNEL_D_CHANNEL + l);
#pragma GCC unroll 32
        for (int k = 0; k < KERNEL_COUNT; ++k) {
          REAL_vector pixels = REAL_load(at[k] + from + l);
          /* Behind the row lie other pixels, perhaps infinite: zero times them is no zero. */
          if (KERNEL_RAGGED && l + REAL_width > KERNEL_VALID)
            pixels = (REAL_vector)((REAL_mask)pixels & KERNEL_last);
#pragma GCC unroll 32
          for (int o = 0; o < KERNEL_ROWS; ++o) a[o][k] += b[o] * pixels;
        }
      }
    }
#pragma GCC unroll 32
  for (int o = 0; o < KERNEL_ROWS; ++o)
#pragma GCC unroll 32
    for (int k = 0; k < KERNEL_COUNT; ++k)
      REAL_store(sums + (o * KERNEL_COUNT + k) * REAL_width, a[o][k]);
}
#pragma GCC pop_options
#pragma STDC FP_CONTRACT OFF

/* Tiles at the end overlap the ones before; each sum is stored by the first that has it. */
static void KERNEL_part(void *data, long part) {
  char *const *at = data;
  const long column = part % KERNEL_COLUMNS * KERNEL_COUNT;
  const long row = part / KERNEL_COLUMNS % KERNEL_BLOCKS * KERNEL_ROWS;
  const long group = part / KERNEL_COLUMNS / KERNEL_BLOCKS;
  const long first = row < KERNEL_OUTPUTS - KERNEL_ROWS ? row : KERNEL_OUTPUTS - KERNEL_ROWS;
  const long begin = column < KERNEL_PAIRS - KERNEL_COUNT ? column : KERNEL_PAIRS - KERNEL_COUNT;
  long offset[KERNEL_COUNT];
  for (long k = 0; k < KERNEL_COUNT; ++k)
    offset[k] = (begin + k) / KERNEL_TAPS * KERNEL_CHANNEL + KERNEL_offset[(begin + k) % KERNEL_TAPS];
  REAL_vector sums[(KERNEL_ROWS * KERNEL_COUNT + REAL_width - 1) / REAL_width][REAL_width];
  KERNEL_tile(KERNEL_X + group * KERNEL_CHANNELS * KERNEL_CHANNEL, offset,
              KERNEL_D + (group * KERNEL_OUTPUTS + first) * KERNEL_D_CHANNEL, (REAL *)sums);
  REAL total[sizeof sums / sizeof *sums][REAL_width];
  for (long s = 0; s < sizeof sums / sizeof *sums; ++s) {
    REAL_transpose(sums[s]);
    for (long half = REAL_width / 2; half; half /= 2)
      for (long l = 0; l < half; ++l) sums[s][l] += sums[s][l + half];
    REAL_store(total[s], sums[s][0]);
  }
  for (long o = row - first; o < KERNEL_ROWS; ++o)
    for (long k = column - begin; k < KERNEL_COUNT; ++k)
      ((REAL *)at[2])[(group * KERNEL_OUTPUTS + first + o) * KERNEL_PAIRS + begin + k] =
          total[0][o * KERNEL_COUNT + k];
}

void KERNEL(char *const *at) {
  KERNEL_RUN(KERNEL_enter_X, (void *)at, KERNEL_X_ENTRIES);
  KERNEL_RUN(KERNEL_enter_D, (void *)at, KERNEL_D_ENTRIES);
  KERNEL_RUN(KERNEL_part, (void *)at, KERNEL_GROUPS * KERNEL_BLOCKS * KERNEL_COLUMNS);
}
