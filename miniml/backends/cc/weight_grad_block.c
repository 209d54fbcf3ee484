/* dw[o, c, t] = sum over pixels p of dout[o, p] * x[c, p + offset of t], channels in blocks: tiles of
   VECTORS vectors of outputs by COUNT pairs of a channel and a tap. A part is a few tiles of the same
   outputs; it goes through the rows of the output, so that what tiles share stays in the cache. */
#define KERNEL_D_AT(v) ((v)*REAL_width / KERNEL_LANES * KERNEL_D_CHANNEL + (v)*REAL_width % KERNEL_LANES)

#pragma STDC FP_CONTRACT ON
#pragma GCC push_options
#pragma GCC optimize("fp-contract=fast")
/* One row of pixels. */
static __attribute__((noinline)) void KERNEL_tile(const REAL *x, const long *offset,
                                                  const REAL *restrict d, REAL *restrict sums) {
  REAL_vector a[KERNEL_COUNT][KERNEL_VECTORS];
  const REAL *at[KERNEL_COUNT];
#pragma GCC unroll 32
  for (int k = 0; k < KERNEL_COUNT; ++k) {
    at[k] = x + offset[k];
#pragma GCC unroll 32
    for (int v = 0; v < KERNEL_VECTORS; ++v)
      a[k][v] = REAL_load(sums + (k * KERNEL_VECTORS + v) * REAL_width);
  }
#pragma GCC unroll 1
  for (long j = 0; j < KERNEL_COLUMNS; ++j) {
    REAL_vector b[KERNEL_VECTORS];
#pragma GCC unroll 32
    for (int v = 0; v < KERNEL_VECTORS; ++v) b[v] = REAL_load(d + KERNEL_D_AT(v) + j * KERNEL_LANES);
#pragma GCC unroll 32
    for (int k = 0; k < KERNEL_COUNT; ++k)
#pragma GCC unroll 32
      for (int v = 0; v < KERNEL_VECTORS; ++v) 
          a[k][v] += KERNEL_READ(at[k] + j * KERNEL_COLUMN_STEP, v) * b[v];
  }
#pragma GCC unroll 32
  for (int k = 0; k < KERNEL_COUNT; ++k)
#pragma GCC unroll 32
    for (int v = 0; v < KERNEL_VECTORS; ++v)
      REAL_store(sums + (k * KERNEL_VECTORS + v) * REAL_width, a[k][v]);
}
#pragma GCC pop_options
#pragma STDC FP_CONTRACT OFF

/* The first pair of a tile; the last one begins early, so that it is full. */
static inline long KERNEL_pair(long tile) {
  const long last = KERNEL_PAIRS - KERNEL_COUNT;
  return tile * KERNEL_COUNT < last ? tile * KERNEL_COUNT : last;
}

static void KERNEL_part(void *data, long part) {
  char *const *at = data;
  KERNEL_NUMBERS(at)
  const long first = part % KERNEL_CHUNKS * KERNEL_TILES, output = part / KERNEL_CHUNKS * KERNEL_ROWS;
  const long rest = (KERNEL_PAIRS + KERNEL_COUNT - 1) / KERNEL_COUNT - first;
  const long tiles = rest < KERNEL_TILES ? rest : KERNEL_TILES;
  REAL sums[KERNEL_TILES][KERNEL_COUNT][KERNEL_ROWS] __attribute__((aligned(64)));
  long offset[KERNEL_TILES][KERNEL_COUNT];
  memset(sums, 0, sizeof sums);
  for (long i = 0; i < tiles; ++i)
    for (long k = 0; k < KERNEL_COUNT; ++k) {
      const long pair = KERNEL_pair(first + i) + k, c = pair / KERNEL_TAPS;
      offset[i][k] =
          KERNEL_offset[pair % KERNEL_TAPS] + c / KERNEL_IN * KERNEL_CHANNEL + c % KERNEL_IN;
    }
  for (long n = 0; n < KERNEL_IMAGES; ++n)
    for (long r = 0; r < KERNEL_HEIGHT; ++r) {
      const REAL *x = KERNEL_X + n * KERNEL_IMAGE + r * KERNEL_ROW_STEP +
                      KERNEL_EACH * (output / KERNEL_LANES * KERNEL_CHANNEL + output % KERNEL_LANES);
      const REAL *d = (const REAL *)at[1] + n * KERNEL_D_IMAGE + output / KERNEL_LANES * KERNEL_D_CHANNEL +
                      output % KERNEL_LANES + r * KERNEL_COLUMNS * KERNEL_LANES;
      for (long i = 0; i < tiles; ++i) KERNEL_tile(x, offset[i], d, &sums[i][0][0]);
    }
  const long outputs = KERNEL_OUTPUTS - output < KERNEL_ROWS ? KERNEL_OUTPUTS - output : KERNEL_ROWS;
  for (long o = 0; o < outputs; ++o)
    for (long i = 0; i < tiles; ++i) {
      const long pair = KERNEL_pair(first + i);
      REAL *dw = (REAL *)at[2] + (output + o) * KERNEL_PAIRS + pair;
      for (long k = (first + i) * KERNEL_COUNT - pair; k < KERNEL_COUNT; ++k) dw[k] = sums[i][k][o];
    }
}

void KERNEL(char *const *at) {
  KERNEL_NUMBERS(at)
  KERNEL_RUN(KERNEL_enter_X, (void *)at, KERNEL_ENTRIES);
  KERNEL_RUN(KERNEL_part, (void *)at, KERNEL_BLOCKS * KERNEL_CHUNKS);
}
