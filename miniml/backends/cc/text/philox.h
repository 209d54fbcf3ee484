/* Philox 4x32, 10 rounds: w[0..3][l], the block of words of counter + l, for MINIML_DRAWN of them side
   by side, so that each round is a few vectors. */
enum { MINIML_DRAWN = 16 };
#if defined(__GNUC__) && !defined(__clang__) && defined(__AVX2__)
/* Words in 64 bits, of which a product reads the lower half: what the upper one holds need not be
   cleared. GCC's own vectors take three times as long, since they pack the words in each round. */
typedef uint64_t miniml_words __attribute__((vector_size(32)));
typedef int miniml_word_pairs __attribute__((vector_size(32)));
#define MINIML_TIMES(x, by) \
  (miniml_words) __builtin_ia32_pmuludq256((miniml_word_pairs)(x), (miniml_word_pairs)((miniml_words){0} + by))
static inline __attribute__((always_inline)) void miniml_philox(
    uint64_t key, uint64_t counter, uint32_t w[4][MINIML_DRAWN]) {
  enum { VECTORS = MINIML_DRAWN / 4 };
  miniml_words c[4][VECTORS];
  for (int v = 0; v < VECTORS; ++v) {
    c[0][v] = (miniml_words){0, 1, 2, 3} + (counter + 4 * (uint64_t)v);
    c[1][v] = c[0][v] >> 32, c[2][v] = c[3][v] = (miniml_words){0};
  }
  uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
#pragma GCC unroll 10
  for (int r = 0; r < 10; ++r, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u)
#pragma GCC unroll 4
    for (int v = 0; v < VECTORS; ++v) {
      const miniml_words p = MINIML_TIMES(c[0][v], 0xD2511F53u), q = MINIML_TIMES(c[2][v], 0xCD9E8D57u);
      c[0][v] = (q >> 32) ^ c[1][v] ^ k0, c[2][v] = (p >> 32) ^ c[3][v] ^ k1;
      c[1][v] = q, c[3][v] = p;
    }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i)
#pragma GCC unroll 4
    for (int v = 0; v < VECTORS; ++v) {
      const miniml_word_pairs x = (miniml_word_pairs)c[i][v];
      const miniml_word_pairs words = __builtin_shuffle(x, (miniml_word_pairs){0, 2, 4, 6, 0, 2, 4, 6});
      memcpy(w[i] + 4 * v, &words, sizeof words / 2);
    }
}
#else
static inline __attribute__((always_inline)) void miniml_philox(
    uint64_t key, uint64_t counter, uint32_t w[4][MINIML_DRAWN]) {
  for (int l = 0; l < MINIML_DRAWN; ++l) {
    const uint64_t own = counter + (uint64_t)l;
    uint32_t c0 = (uint32_t)own, c1 = (uint32_t)(own >> 32), c2 = 0, c3 = 0;
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
#pragma GCC unroll 10
    for (int r = 0; r < 10; ++r, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
      const uint64_t p = 0xD2511F53ull * c0, q = 0xCD9E8D57ull * c2;
      c0 = (uint32_t)(q >> 32) ^ c1 ^ k0, c2 = (uint32_t)(p >> 32) ^ c3 ^ k1;
      c1 = (uint32_t)q, c3 = (uint32_t)p;
    }
    w[0][l] = c0, w[1][l] = c1, w[2][l] = c2, w[3][l] = c3;
  }
}
#endif
