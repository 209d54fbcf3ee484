/* One part of the images, (N, groups * of_group, H, W) bytes, as `REAL_spread` makes it of numbers:
   a quad has four neighbouring channels of a group. The bytes are exclusive-ored with those of
   `flip`, and what surrounds the images is `zero`. Channels that a group lacks are any: their
   weights are zero. */
#define QUAD(i) \
  (a[i] | (uint32_t)b[i] << 8 | (uint32_t)c[i] << 16 | (uint32_t)d[i] << 24)
static void quad_spread_bytes(const quad_planes *g, const void *from, quad *to, long part,
                              long of_group, uint32_t flip, uint32_t zero) {
  const long quads = (of_group + 3) / 4, group = part / quads, first = part % quads * 4;
  const long pixels = g->height * g->width, left = of_group - first;
  const uint8_t *x[4];
  for (long c = 0; c < 4; ++c)
    x[c] = (const uint8_t *)from + (group * of_group + first + (c < left ? c : 0)) * pixels;
  const quad around = (quad)(zero * 0x01010101u);
  to += part / g->channels * g->image + part % g->channels * g->channel;
  for (long i = 0; i < g->channel; ++i) to[i] = around;
  for (long h = 0; h < g->height; ++h) {
    const long r = h + g->top;
    quad *row = to + r % g->row_stride * g->column_stride * g->plane + r / g->row_stride * g->pitch;
    const uint8_t *const a = x[0] + h * g->width, *const b = x[1] + h * g->width;
    const uint8_t *const c = x[2] + h * g->width, *const d = x[3] + h * g->width;
    for (long q = g->left; q < g->left + g->column_stride && q < g->left + g->width; ++q) {
      quad *restrict to_row = row + q % g->column_stride * g->plane + q / g->column_stride;
      const long step = g->column_stride, count = (g->left + g->width - q + step - 1) / step;
      if (step == 1)
        for (long i = 0; i < count; ++i) to_row[i] = (quad)(QUAD(i) ^ flip);
      else
        for (long i = 0, w = q - g->left; i < count; ++i, w += step)
          to_row[i] = (quad)(QUAD(w) ^ flip);
    }
  }
}
#undef QUAD
