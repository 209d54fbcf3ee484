typedef struct {
  int rows, columns; /* the pixels of a phase, */
  int row, column;   /* the first of which is this pixel of the output */
  int tap, taps;     /* its first tap, and how many it has */
} KERNEL_phase;
typedef struct {
  long offset, filter; /* of the pixel and the filter that it reads */
} KERNEL_tap;
TABLES
/* out[o, p] = sum over channels c and taps t of w[o, c, t] * x[c, p + offset of t], for every phase:
   a grid of output pixels with its own taps. Each tile is ROWS outputs by BLOCK neighbours. */

/* The filters of one block of outputs as tiles read them, [channel][tap][ROWS], from a channel on. */
static void KERNEL_packed(char *const *at, long block, long channel, long channels, REAL *to) {
  const long group = block / KERNEL_BLOCKS, first = block % KERNEL_BLOCKS * KERNEL_ROWS;
  const REAL *w = (const REAL *)at[KERNEL_FILTER] + group * KERNEL_W_GROUP +
                  first * KERNEL_W_OUTPUT + channel * KERNEL_W_CHANNEL;
  const long left = KERNEL_OUTPUTS - first, rows = left < KERNEL_ROWS ? left : KERNEL_ROWS;
  if (rows < KERNEL_ROWS) memset(to, 0, channels * KERNEL_TAPS * KERNEL_ROWS * sizeof(REAL));
  const long together = KERNEL_W_CHANNEL == KERNEL_TAPS ? channels : 1;
  for (long c = 0; c < channels; c += together)
    REAL_squares(w + c * KERNEL_W_CHANNEL, KERNEL_W_OUTPUT, to + c * KERNEL_TAPS * KERNEL_ROWS,
                 KERNEL_ROWS, rows, KERNEL_TAPS * together);
}
static inline REAL *KERNEL_filters(char *const *at) {
  KERNEL_NUMBERS(at)
  return KERNEL_KEPT(0) ? KERNEL_KEPT_AT : KERNEL_HELD;
}
static void KERNEL_pack(void *data, long block) {
  char *const *at = data;
  KERNEL_NUMBERS(at)
  KERNEL_packed(at, block, 0, KERNEL_CHANNELS,
                KERNEL_filters(at) + block * KERNEL_CHANNELS * KERNEL_TAPS * KERNEL_ROWS);
}

UNITS
static void KERNEL_part(void *data, long part) {
  char *const *at = data;
  KERNEL_NUMBERS(at)
  const long blocks = KERNEL_GROUPS * KERNEL_BLOCKS;
  const long slice = part / KERNEL_SLICES;
  for (const KERNEL_phase *f = KERNEL_phases; f < KERNEL_phases + KERNEL_PHASES; ++f) {
    /* Many phases are smaller than the number of slices: they go to different ones. */
    const long share = (part + (f - KERNEL_phases)) % KERNEL_SLICES;
    const long units = KERNEL_units(at, f);
    const long first = units * share / KERNEL_SLICES, last = units * (share + 1) / KERNEL_SLICES;
    for (long b = blocks * slice / KERNEL_CUTS; b < blocks * (slice + 1) / KERNEL_CUTS; ++b) {
      const long group = b / KERNEL_BLOCKS, o = b % KERNEL_BLOCKS * KERNEL_ROWS;
      const REAL *x =
          KERNEL_X + group * KERNEL_CHANNELS * KERNEL_CHANNEL +
          KERNEL_EACH * (o / KERNEL_IN * KERNEL_CHANNEL + o % KERNEL_IN);
      const REAL *w = KERNEL_filters(at) + b * KERNEL_CHANNELS * KERNEL_TAPS * KERNEL_ROWS;
      const long rows = KERNEL_OUTPUTS - o < KERNEL_ROWS ? KERNEL_OUTPUTS - o : KERNEL_ROWS;
      for (long u = first; u < last; ++u)
        KERNEL_unit(at, f, u, x, w, group * KERNEL_OUTPUTS + o, rows);
    }
  }
}

void KERNEL(char *const *at) {
  KERNEL_NUMBERS(at)
  KERNEL_RUN(KERNEL_enter_X, (void *)at, KERNEL_ENTRIES);
  if (KERNEL_CHUNK == KERNEL_CHANNELS && KERNEL_KEPT(0) < 2)
    KERNEL_RUN(KERNEL_pack, (void *)at, KERNEL_GROUPS * KERNEL_BLOCKS);
  KERNEL_RUN(WORK, (void *)at, KERNEL_CUTS * KERNEL_SLICES);
}
