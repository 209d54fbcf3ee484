/* Sorted and greatest elements of a row. KERNEL_T: elements, by their bits; KERNEL_K: keys, unsigned
   numbers in the order of the elements, NaN last; KERNEL_W: a key and an index of 32 bits. */
typedef KERNEL_T KERNEL_K;
static inline KERNEL_K KERNEL_key(const KERNEL_T *x) { KERNEL_KEY }
#define KERNEL_ABOVE(w) ((w) >> 32)
#if KERNEL_BITS == 64
typedef struct { KERNEL_K key; uint32_t index; } KERNEL_W;
#define KERNEL_WORD(key, index) (KERNEL_W){key, (uint32_t)(index)}
#define KERNEL_KEY_OF(w) (w).key
#define KERNEL_INDEX_OF(w) (w).index
#else
typedef uint64_t KERNEL_W;
#define KERNEL_WORD(key, index) ((KERNEL_W)(key) << 32 | (uint32_t)(index))
#define KERNEL_KEY_OF(w) KERNEL_ABOVE(w)
#define KERNEL_INDEX_OF(w) (uint32_t)(w)
#endif

enum { KERNEL_VALUES = 1 << KERNEL_DIGIT };  /* of a digit */

/* Words sorted by the digits of their keys, all but the `skipped` lowest. Equal keys keep the order
   of their indices: w has them ascending, and each pass is stable. The result may lie in `spare`.
   counts: room for those of each digit. */
#define KERNEL_SORTED(name, word, key_of, digits)                                              \
  static void name##_count(                                                                    \
      const word *w, long m, uint32_t (*counts)[KERNEL_VALUES]) {                              \
    memset(counts, 0, digits * sizeof *counts);                                                \
    for (long i = 0; i < m; ++i)                                                               \
      for (int d = 0; d < digits; ++d)                                                         \
        ++counts[d][(key_of(w[i]) >> (KERNEL_DIGIT * d)) & (KERNEL_VALUES - 1)];               \
  }                                                                                            \
  static word *name(                                                                           \
      word *w, word *spare, long m, uint32_t (*counts)[KERNEL_VALUES], int skipped) {          \
    for (int d = skipped; d < digits; ++d) {                                                   \
      const int shift = KERNEL_DIGIT * d;                                                      \
      if (counts[d][(key_of(w[0]) >> shift) & (KERNEL_VALUES - 1)] == m) continue;             \
      uint32_t begin = 0;                                                                      \
      for (int c = 0; c < KERNEL_VALUES; ++c) {                                                \
        const uint32_t count = counts[d][c];                                                   \
        counts[d][c] = begin, begin += count;                                                  \
      }                                                                                        \
      for (long i = 0; i < m; ++i)                                                             \
        spare[counts[d][(key_of(w[i]) >> shift) & (KERNEL_VALUES - 1)]++] = w[i];              \
      word *const other = w;                                                                   \
      w = spare, spare = other;                                                                \
    }                                                                                          \
    return w;                                                                                  \
  }
enum { KERNEL_DIGITS = (KERNEL_BITS + KERNEL_DIGIT - 1) / KERNEL_DIGIT };
KERNEL_SORTED(KERNEL_by_digits, KERNEL_W, KERNEL_KEY_OF, KERNEL_DIGITS)

static KERNEL_W *KERNEL_sorted(
    KERNEL_W *w, KERNEL_W *spare, long m, uint32_t (*counts)[KERNEL_VALUES]) {
  if (m > KERNEL_FEW) {
    KERNEL_by_digits_count(w, m, counts);
    return KERNEL_by_digits(w, spare, m, counts, 0);
  }
  for (long i = 1; i < m; ++i) {
    const KERNEL_W v = w[i];
    long j = i;
    for (; j && KERNEL_KEY_OF(w[j - 1]) > KERNEL_KEY_OF(v); --j) w[j] = w[j - 1];
    w[j] = v;
  }
  return w;
}

#if KERNEL_BITS == 64
enum { KERNEL_HALF = (32 + KERNEL_DIGIT - 1) / KERNEL_DIGIT };  /* digits of 32 bits */
KERNEL_SORTED(KERNEL_by_32, uint64_t, KERNEL_ABOVE, KERNEL_HALF)

/* How many of the lowest digits can be left out, if the keys with one highest digit are spread
   evenly, so that hardly any two are equal without them. */
static int KERNEL_needless(char *const *at, const uint32_t *highest) {
  KERNEL_NUMBERS(at)
  double pairs = 0;
  for (int c = 0; c < KERNEL_VALUES; ++c) pairs += 0.5 * highest[c] * highest[c];
  int skipped = KERNEL_HALF - 1;
  for (; skipped && pairs > KERNEL_N / 32; --skipped) pairs /= KERNEL_VALUES;
  return skipped;
}

/* Neighbours that are equal in their bits from `below` on change places; how many moved. It ends
   where these are many. */
static long KERNEL_exchanged(char *const *at, const KERNEL_T *x, uint64_t *w, int below) {
  KERNEL_NUMBERS(at)
  long moves = 0;
  for (long b = 1; b < KERNEL_N && moves <= KERNEL_N / 8; b += 64) {
    const long end = b + 64 < KERNEL_N ? b + 64 : KERNEL_N;
    uint64_t any = 0;
    for (long i = b; i < end; ++i) any |= w[i] >> below == w[i - 1] >> below;
    for (long i = b; any && moves <= KERNEL_N / 8 && i < end; ++i) {
      if (w[i] >> below != w[i - 1] >> below) continue;
      const uint64_t v = w[i];
      const KERNEL_K key = KERNEL_key(x + (uint32_t)v * KERNEL_STEP);
      long j = i;
      for (; j && w[j - 1] >> below == v >> below; --j, ++moves) {
        if (KERNEL_key(x + (uint32_t)w[j - 1] * KERNEL_STEP) <= key) break;
        w[j] = w[j - 1];
      }
      w[j] = v;
    }
  }
  return moves;
}

/* Keys of 64 bits by the first 32 in which they differ, or fewer; where these are equal, neighbours
   change places. Nothing where that takes long, since many are nearly equal. */
static const uint64_t *KERNEL_by_first(
    char *const *at, const KERNEL_T *x, uint64_t *room, uint32_t (*counts)[KERNEL_VALUES]) {
  KERNEL_NUMBERS(at)
  KERNEL_K least = (KERNEL_K)-1, most = 0;
  for (long i = 0; i < KERNEL_N; ++i) room[i] = KERNEL_key(x + i * KERNEL_STEP);
  for (long i = 0; i < KERNEL_N; ++i) least = room[i] < least ? room[i] : least;
  for (long i = 0; i < KERNEL_N; ++i) most = room[i] > most ? room[i] : most;
  int shift = 0, left = 0, skips = 1;
  while ((most - least) >> shift >> 32) ++shift;
  while (left < 31 && !((most - least) << left >> 31)) ++left;
  for (;;) {
    uint64_t *w = room;
    for (long i = 0; i < KERNEL_N; ++i)
      w[i] = (KERNEL_key(x + i * KERNEL_STEP) - least) >> shift << left << 32 | (uint32_t)i;
    KERNEL_by_32_count(w, KERNEL_N, counts);
    const int skipped = skips ? KERNEL_needless(at, counts[KERNEL_HALF - 1]) : 0;
    w = KERNEL_by_32(w, w + KERNEL_N + 1, KERNEL_N, counts, skipped);
    int lost = shift;
    for (int d = 0; d < skipped; ++d) lost |= counts[d][0] != KERNEL_N;
    const long moves = lost ? KERNEL_exchanged(at, x, w, 32 + KERNEL_DIGIT * skipped) : 0;
    if (moves <= KERNEL_N / 8) return w;
    if (!skipped) return 0;
    skips = 0;
  }
}
#endif

/* The k smallest, in order: those so far are kept sorted, and blocks without a smaller one are
   skipped. */
static void KERNEL_few(char *const *at, const KERNEL_T *x, KERNEL_W *w) {
  KERNEL_NUMBERS(at)
  long kept = 0;
  KERNEL_K worst = (KERNEL_K)-1;
  for (long b = 0; b < KERNEL_N; b += 64) {
    const long count = KERNEL_N - b < 64 ? KERNEL_N - b : 64;
    KERNEL_K keys[64];
    int any = kept < KERNEL_TAKEN;
    for (long i = 0; i < count; ++i) keys[i] = KERNEL_key(x + (b + i) * KERNEL_STEP);
    for (long i = 0; i < count; ++i) any |= keys[i] < worst;
    for (long i = 0; any && i < count; ++i) {
      if (kept == KERNEL_TAKEN && keys[i] >= worst) continue;
      const KERNEL_W v = KERNEL_WORD(keys[i], b + i);
      long j = kept < KERNEL_TAKEN ? kept++ : kept - 1;
      for (; j && KERNEL_KEY_OF(w[j - 1]) > keys[i]; --j) w[j] = w[j - 1];
      w[j] = v;
      worst = kept == KERNEL_TAKEN ? (KERNEL_K)KERNEL_KEY_OF(w[kept - 1]) : (KERNEL_K)-1;
    }
  }
}

/* Those elements that may be among the k smallest, by the first 11 bits of their keys, which are
   counted. */
static long KERNEL_candidates(
    char *const *at, const KERNEL_T *x, KERNEL_W *w, uint32_t *counts) {
  KERNEL_NUMBERS(at)
  enum { SHIFT = KERNEL_BITS > 11 ? KERNEL_BITS - 11 : 0 };
  memset(counts, 0, 2048 * sizeof *counts);
  for (long i = 0; i < KERNEL_N; ++i) ++counts[KERNEL_key(x + i * KERNEL_STEP) >> SHIFT];
  long digit = 0, below = counts[0], found = 0;
  while (below < KERNEL_TAKEN) below += counts[++digit];
  for (long i = 0; i < KERNEL_N; ++i) {
    const KERNEL_K key = KERNEL_key(x + i * KERNEL_STEP);
    w[found] = KERNEL_WORD(key, i);
    found += (long)(key >> SHIFT) <= digit;
  }
  return found;
}

static void KERNEL_part(void *data, long part) {
  char *const *at = (char *const *)data;
  KERNEL_NUMBERS(at)
  uint64_t *const own = (uint64_t *)at[3] + part * KERNEL_PART;
  KERNEL_W *const w = (KERNEL_W *)own;
  uint32_t(*const counts)[KERNEL_VALUES] = (uint32_t(*)[KERNEL_VALUES])(w + 2 * (KERNEL_N + 1));
  const long last = KERNEL_ROWS * (part + 1) / KERNEL_PARTS;
  for (long row = KERNEL_ROWS * part / KERNEL_PARTS; row < last; ++row) {
    const long outer = row / KERNEL_STEP, inner = row % KERNEL_STEP;
    const KERNEL_T *x = (const KERNEL_T *)at[0] + outer * KERNEL_N * KERNEL_STEP + inner;
    KERNEL_T *values = (KERNEL_T *)at[1] + outer * KERNEL_TAKEN * KERNEL_STEP + inner;
    int64_t *indices = (int64_t *)at[2] + outer * KERNEL_TAKEN * KERNEL_STEP + inner;
    const KERNEL_W *found = w;
    if (KERNEL_TAKEN <= 32 && KERNEL_TAKEN * 8 <= KERNEL_N) {
      KERNEL_few(at, x, w);
    } else {
      long m = KERNEL_N;
#if KERNEL_BITS == 64
      const int many = KERNEL_N > KERNEL_FEW && KERNEL_TAKEN * 4 > KERNEL_N;
      const uint64_t *const quick = many ? KERNEL_by_first(at, x, own, counts) : 0;
      for (long i = 0; quick && i < KERNEL_TAKEN; ++i) {
        const long index = (uint32_t)quick[i];
        values[i * KERNEL_STEP] = x[index * KERNEL_STEP];
        indices[i * KERNEL_STEP] = index;
      }
      if (quick) continue;
#endif
      if (KERNEL_TAKEN * 4 <= KERNEL_N && KERNEL_N >= 4096)
        m = KERNEL_candidates(at, x, w, (uint32_t *)counts);
      else
        for (long i = 0; i < m; ++i)
          w[i] = KERNEL_WORD(KERNEL_key(x + i * KERNEL_STEP), i);
      found = KERNEL_sorted(w, w + KERNEL_N + 1, m, counts);
    }
    for (long i = 0; i < KERNEL_TAKEN; ++i) {
      const long index = KERNEL_INDEX_OF(found[i]);
      values[i * KERNEL_STEP] = x[index * KERNEL_STEP];
      indices[i * KERNEL_STEP] = index;
    }
  }
}
void KERNEL(char *const *at) {
  KERNEL_NUMBERS(at)
  miniml.parallel(KERNEL_part, (void *)at, KERNEL_PARTS);
}
