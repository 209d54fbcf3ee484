/* dw[o, c, t] = sum over lanes and positions (i, j) of dout[o, i, j] * x[c, i, j + offset of t]: tiles
   of ROWS outputs by COUNT pairs of a channel and a tap, a vector of partial sums each. A part is
   TILES tiles of each of NEAR bands of outputs; it takes STEP positions i at a time, which stay in
   the cache. */
enum { KERNEL_SQUARES = (KERNEL_ROWS * KERNEL_COUNT + REAL_width - 1) / REAL_width };

#pragma STDC FP_CONTRACT ON
#pragma GCC push_options
#pragma GCC optimize("fp-contract=fast")
static __attribute__((noinline)) void KERNEL_tile(const REAL *x, const long *offset,
                                                  const REAL *d, long first, long last,
                                                  REAL *restrict sums) {
  REAL_vector a[KERNEL_ROWS][KERNEL_COUNT];
#pragma GCC unroll 32
  for (int o = 0; o < KERNEL_ROWS; ++o)
#pragma GCC unroll 32
    for (int k = 0; k < KERNEL_COUNT; ++k)
      a[o][k] = REAL_load(sums + (o * KERNEL_COUNT + k) * REAL_width);
  const REAL *at[KERNEL_COUNT];
  for (int k = 0; k < KERNEL_COUNT; ++k) at[k] = x + offset[k];
  for (long i = first; i < last; ++i)
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

/* The vectors' sums. Tiles at the end overlap the ones before: those own the first `row` outputs
   and `column` pairs. */
static void KERNEL_store(REAL *dw, long row, long column, REAL_vector (*sums)[REAL_width]) {
  REAL total[KERNEL_SQUARES * REAL_width];
  for (long s = 0; s < KERNEL_SQUARES; ++s) {
    REAL_transpose(sums[s]);
    for (long half = REAL_width / 2; half; half /= 2)
      for (long l = 0; l < half; ++l) sums[s][l] += sums[s][l + half];
    REAL_store(total + s * REAL_width, sums[s][0]);
  }
  for (long o = row; o < KERNEL_ROWS; ++o)
    for (long k = column; k < KERNEL_COUNT; ++k)
      dw[o * KERNEL_PAIRS + k] = total[o * KERNEL_COUNT + k];
}

/* The last place where `size` of `total` begin, if not `at`. */
static inline long KERNEL_within(long at, long size, long total) {
  return at < total - size ? at : total - size;
}

/* The first output of a tile in a band. */
static inline long KERNEL_output(long group, long band) {
  return group * KERNEL_OUTPUTS + KERNEL_within(band * KERNEL_ROWS, KERNEL_ROWS, KERNEL_OUTPUTS);
}

static void KERNEL_part(void *data, long part) {
  char *const *at = data;
  KERNEL_NUMBERS(at)
  const long first = part % KERNEL_CHUNKS * KERNEL_TILES;
  const long last = KERNEL_COLUMNS - first < KERNEL_TILES ? KERNEL_COLUMNS : first + KERNEL_TILES;
  const long band = part / KERNEL_CHUNKS % KERNEL_BANDS * KERNEL_NEAR;
  const long end = KERNEL_BLOCKS - band < KERNEL_NEAR ? KERNEL_BLOCKS : band + KERNEL_NEAR;
  const long group = part / KERNEL_CHUNKS / KERNEL_BANDS;
  REAL_vector sums[KERNEL_NEAR][KERNEL_TILES][KERNEL_SQUARES][REAL_width];
  memset(sums, 0, sizeof sums);
  for (long i = 0; i < KERNEL_OUTER; i += KERNEL_STEP)
    for (long b = band; b < end; ++b)
      for (long tile = first; tile < last; ++tile) {
        const long pair = KERNEL_within(tile * KERNEL_COUNT, KERNEL_COUNT, KERNEL_PAIRS);
        long offset[KERNEL_COUNT];
        for (long k = 0; k < KERNEL_COUNT; ++k)
          offset[k] = (pair + k) / KERNEL_TAPS * KERNEL_CHANNEL +
                      KERNEL_offset[(pair + k) % KERNEL_TAPS];
        KERNEL_tile(KERNEL_X + group * KERNEL_CHANNELS * KERNEL_CHANNEL, offset,
                    KERNEL_D + KERNEL_output(group, b) * KERNEL_D_CHANNEL, i,
                    KERNEL_OUTER - i < KERNEL_STEP ? KERNEL_OUTER : i + KERNEL_STEP,
                    (REAL *)sums[b - band][tile - first]);
      }
  for (long b = band; b < end; ++b)
    for (long tile = first; tile < last; ++tile) {
      const long pair = KERNEL_within(tile * KERNEL_COUNT, KERNEL_COUNT, KERNEL_PAIRS);
      const long output = KERNEL_output(group, b);
      KERNEL_store((REAL *)at[2] + output * KERNEL_PAIRS + pair,
                   group * KERNEL_OUTPUTS + b * KERNEL_ROWS - output, tile * KERNEL_COUNT - pair,
                   sums[b - band][tile - first]);
    }
}

void KERNEL(char *const *at) {
  KERNEL_NUMBERS(at)
  KERNEL_RUN(KERNEL_enter_X, (void *)at, KERNEL_X_ENTRIES);
  KERNEL_RUN(KERNEL_enter_D, (void *)at, KERNEL_D_ENTRIES);
  KERNEL_RUN(KERNEL_part, (void *)at, KERNEL_GROUPS * KERNEL_BANDS * KERNEL_CHUNKS);
}
