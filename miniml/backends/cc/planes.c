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

/* A vector of the first `count` elements at an address, and back. */
static inline REAL_vector REAL_some(const REAL *at, long count) {
  if (count == REAL_width) return REAL_load(at);
  REAL_vector v = {0};
  memcpy(&v, at, count * sizeof(REAL));
  return v;
}
static inline void REAL_keep(REAL *at, REAL_vector v, long count) {
  if (count == REAL_width) REAL_store(at, v);
  else memcpy(at, &v, count * sizeof(REAL));
}

/* to[column][row] = x[row][column], square by square; both have rows `stride` apart. */
static void REAL_squares(const REAL *x, long x_stride, REAL *to, long to_stride, long rows,
                         long columns) {
  for (long r = 0; r < rows; r += REAL_width) {
    const long high = rows - r < REAL_width ? rows - r : REAL_width;
    for (long c = 0; c < columns; c += REAL_width) {
      const long wide = columns - c < REAL_width ? columns - c : REAL_width;
      REAL_vector a[REAL_width] = {{0}};
      for (long i = 0; i < high; ++i) a[i] = REAL_some(x + (r + i) * x_stride + c, wide);
      REAL_transpose(a);
      for (long i = 0; i < wide; ++i) REAL_keep(to + (c + i) * to_stride + r, a[i], high);
    }
  }
}

/* One channel, from row-major images. */
static void REAL_turn(const REAL_planes *g, const REAL *x, REAL *to, long channel) {
  const long pixels = g->height * g->width, stride = g->channels * pixels;
  x += channel * pixels;
  to += channel * g->channel;
  if (g->channel > pixels * g->images) memset(to, 0, g->channel * sizeof(REAL));
  to += (g->top * g->pitch + g->left) * g->lanes;
  const long rows = g->pitch == g->width ? 1 : g->height, run = pixels / rows;
  for (long r = 0; r < rows; ++r)
    REAL_squares(x + r * run, stride, to + r * g->pitch * g->lanes, g->lanes, g->images, run);
}

/* One channel, from images whose batch is innermost already. */
static void REAL_surround(const REAL_planes *g, const REAL *x, REAL *to, long channel) {
  const long row = g->pitch * g->lanes, filled = g->width * g->images;
  x += channel * g->height * filled;
  to += channel * g->channel;
  if (g->lanes > g->images) memset(to, 0, g->channel * sizeof(REAL));
  for (long r = 0; r < g->channel / row; ++r, to += row) {
    const long h = r - g->top;
    if (h < 0 || h >= g->height) {
      memset(to, 0, row * sizeof(REAL));
    } else if (g->lanes > g->images) {
      for (long q = 0; q < g->width; ++q)
        memcpy(to + (g->left + q) * g->lanes, x + h * filled + q * g->images,
               g->images * sizeof(REAL));
    } else {
      memset(to, 0, g->left * g->lanes * sizeof(REAL));
      memcpy(to + g->left * g->lanes, x + h * filled, filled * sizeof(REAL));
      memset(to + g->left * g->lanes + filled, 0, (row - filled - g->left * g->lanes) * sizeof(REAL));
    }
  }
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
      for (long q = g->left; q < g->left + g->column_stride && q < g->left + g->width; ++q) {
        REAL *pixels = row + q % g->column_stride * g->plane + q / g->column_stride;
        for (long w = q - g->left; w < g->width; w += g->column_stride) *pixels++ = x[h * g->width + w];
      }
  }
}
