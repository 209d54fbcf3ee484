/* Images (N, C, H, W) on their way into the workspace of a convolution, where zeros surround them.

   Batch innermost: channel c begins at c * channel; the pixel in row r and column q of a padded
   plane at (r * pitch + q) * lanes holds one REAL for each image, and zeros up to `lanes`.
   Image by image: channel c of image n begins at n * image + c * channel; there the pixels whose
   row and column leave the same remainder by the stride form a plane of their own, of `plane`
   elements with rows `pitch` apart. So windows `stride` apart read neighbours. */
typedef struct {
  long images, channels, height, width;
  long top, left, pitch, lanes;
  long image, channel, plane, row_stride, column_stride;
} REAL_planes;

/* One channel, from row-major images: squares of pixels by images are transposed. */
static void REAL_turn(const REAL_planes *g, const REAL *x, REAL *to, long channel) {
  const long pixels = g->height * g->width, stride = g->channels * pixels;
  x += channel * pixels;
  to += channel * g->channel;
  memset(to, 0, g->channel * sizeof(REAL));
  to += (g->top * g->pitch + g->left) * g->lanes;
  for (long n = 0; n < g->images; n += REAL_width) {
    long row = 0, column = 0;
    for (long p = 0; p < pixels; p += REAL_width) {
      const long high = g->images - n < REAL_width ? g->images - n : REAL_width;
      const long wide = pixels - p < REAL_width ? pixels - p : REAL_width;
      REAL_vector a[REAL_width] = {{0}};
      if (wide == REAL_width)
        for (long i = 0; i < high; ++i) a[i] = REAL_load(x + (n + i) * stride + p);
      else
        for (long i = 0; i < high; ++i) memcpy(a + i, x + (n + i) * stride + p, wide * sizeof(REAL));
      REAL_transpose(a);
      for (long i = 0; i < wide; ++i) {
        REAL_store(to + (row * g->pitch + column) * g->lanes + n, a[i]);
        if (++column == g->width) column = 0, ++row;
      }
    }
  }
}

/* One channel, from images whose batch is innermost already. */
static void REAL_surround(const REAL_planes *g, const REAL *x, REAL *to, long channel) {
  x += channel * g->height * g->width * g->images;
  to += channel * g->channel;
  memset(to, 0, g->channel * sizeof(REAL));
  to += (g->top * g->pitch + g->left) * g->lanes;
  for (long r = 0; r < g->height; ++r)
    for (long q = 0; q < g->width; ++q)
      memcpy(to + (r * g->pitch + q) * g->lanes, x + (r * g->width + q) * g->images,
             g->images * sizeof(REAL));
}

/* One channel of one image. */
static void REAL_spread(const REAL_planes *g, const REAL *x, REAL *to, long part) {
  x += part * g->height * g->width;
  to += part / g->channels * g->image + part % g->channels * g->channel;
  memset(to, 0, g->channel * sizeof(REAL));
  for (long h = 0; h < g->height; ++h) {
    const long r = h + g->top;
    REAL *row = to + r % g->row_stride * g->column_stride * g->plane + r / g->row_stride * g->pitch;
    if (g->column_stride == 1)
      memcpy(row + g->left, x + h * g->width, g->width * sizeof(REAL));
    else
      for (long w = 0; w < g->width; ++w) {
        const long q = w + g->left;
        row[q % g->column_stride * g->plane + q / g->column_stride] = x[h * g->width + w];
      }
  }
}
