/* Quads of four neighbours along an axis of bytes, which KERNEL_FLIP makes signed or unsigned; the
   last one is filled up with zeros. */
void KERNEL(char *const *at) {
  const uint8_t *x = (const uint8_t *)at[0];
  uint32_t *out = (uint32_t *)at[1];
  for (long r = 0; r < KERNEL_OUTER; ++r, x += KERNEL_K * KERNEL_INNER) {
    for (long q = 0; q < KERNEL_FULL; ++q, out += KERNEL_INNER)
      for (long i = 0; i < KERNEL_INNER; ++i) {
        const uint8_t *const a = x + 4 * q * KERNEL_INNER + i;
        out[i] = (a[0] | (uint32_t)a[KERNEL_INNER] << 8 | (uint32_t)a[2 * KERNEL_INNER] << 16 |
                  (uint32_t)a[3 * KERNEL_INNER] << 24) ^ KERNEL_FLIP;
      }
    if (KERNEL_REST) {
      for (long i = 0; i < KERNEL_INNER; ++i) {
        uint32_t last = 0;
        for (long b = 0; b < KERNEL_REST; ++b)
          last |= (uint32_t)(uint8_t)(x[(4 * KERNEL_FULL + b) * KERNEL_INNER + i] ^ (KERNEL_FLIP & 255))
                  << 8 * b;
        out[i] = last;
      }
      out += KERNEL_INNER;
    }
  }
}
