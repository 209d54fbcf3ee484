/* Products of bytes. A quad is four bytes in 32 bits, the first in the lowest: where a product of
   numbers multiplies and adds, one of quads adds four products of bytes, modulo 2^32. The bytes of
   `u` are unsigned, those of `s` signed. */
typedef int32_t quad;
#define MINIML_LANES_quad MINIML_LANES_float
#define MINIML_WIDER_quad int32_t

/* One instruction, where processors have it for all four products. */
#if defined(__AVX512VNNI__) && defined(__AVX512VL__)
#define MINIML_FOUR(SIZE) \
  __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(u), "v"(s)); \
  return sum;
#elif defined(__AVXVNNI__)
#define MINIML_FOUR(SIZE) \
  __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(u), "x"(s)); \
  return sum;
#endif
/* Two, for the bytes of even and for those of odd index, which are widened to 16 bits. */
#define MINIML_TWO(SIZE, PAIRS) \
  const miniml_quads##SIZE low = (miniml_quads##SIZE)s << 8 & 0xff00ff00; \
  const miniml_quads##SIZE even = (miniml_quads##SIZE)u & 0x00ff00ff; \
  const miniml_quads##SIZE odd = (miniml_quads##SIZE)u >> 8 & 0x00ff00ff; \
  const miniml_quads##SIZE of_even = (miniml_quads##SIZE)PAIRS( \
      (miniml_shorts##SIZE)even, (miniml_shorts##SIZE)low >> 8); \
  const miniml_quads##SIZE of_odd = (miniml_quads##SIZE)PAIRS( \
      (miniml_shorts##SIZE)odd, (miniml_shorts##SIZE)s >> 8); \
  return (miniml_ints##SIZE)((miniml_quads##SIZE)sum + of_even + of_odd);
/* Four, on any processor. */
#define MINIML_EACH(SIZE) \
  miniml_quads##SIZE total = (miniml_quads##SIZE)sum; \
  for (int i = 0; i < 32; i += 8) \
    total += ((miniml_quads##SIZE)u >> i & 255) * \
             (miniml_quads##SIZE)((miniml_ints##SIZE)((miniml_quads##SIZE)s << (24 - i)) >> 24); \
  return (miniml_ints##SIZE)total;

#define MINIML_DOT(SIZE) \
  typedef uint32_t miniml_quads##SIZE __attribute__((vector_size(SIZE))); \
  typedef int32_t miniml_ints##SIZE __attribute__((vector_size(SIZE))); \
  typedef int16_t miniml_shorts##SIZE __attribute__((vector_size(SIZE))); \
  static MINIML_INLINE miniml_ints##SIZE miniml_dot##SIZE( \
      miniml_ints##SIZE sum, miniml_ints##SIZE u, miniml_ints##SIZE s)
MINIML_DOT(16) {
#if defined(MINIML_FOUR)
  MINIML_FOUR(16)
#elif defined(__SSE2__) && __has_builtin(__builtin_ia32_pmaddwd128)
  MINIML_TWO(16, __builtin_ia32_pmaddwd128)
#else
  MINIML_EACH(16)
#endif
}
#if defined(__AVX__)
MINIML_DOT(32) {
#if defined(MINIML_FOUR)
  MINIML_FOUR(32)
#elif defined(__AVX2__) && __has_builtin(__builtin_ia32_pmaddwd256)
  MINIML_TWO(32, __builtin_ia32_pmaddwd256)
#else
  MINIML_EACH(32)
#endif
}
#endif
#if defined(__AVX512F__)
#if __has_builtin(__builtin_ia32_pmaddwd512)
#define MINIML_PAIRS __builtin_ia32_pmaddwd512
#else
#define MINIML_PAIRS(a, b) __builtin_ia32_pmaddwd512_mask(a, b, (miniml_ints64){0}, -1)
#endif
MINIML_DOT(64) {
#if defined(__AVX512VNNI__)
  MINIML_FOUR(64)
#elif defined(__AVX512BW__)
  MINIML_TWO(64, MINIML_PAIRS)
#else
  MINIML_EACH(64)
#endif
}
#endif

/* Of tiles of products of matrices: x is unsigned. */
#define quad_tile_plus(sum, x, y) \
  MINIML_JOIN(miniml_dot, MINIML_VECTOR)(sum, (quad_tile_vector){0} + (x), y)
