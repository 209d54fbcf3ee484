/* Philox 4x32, 10 rounds: w[0..3][l], the block of words of counter + l, for MINIML_DRAWN of them side
   by side, so that each round is a few vectors. */
enum { MINIML_DRAWN = 16 };
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
