/* Neighbours are computed side by side: the windows of a row, whose pixels lie SW apart (ROWWISE), or
   the images of a batch that is innermost, one window after the other. The window in row r and column q
   reads the pixels in rows KERNEL_top(r) .. KERNEL_bottom(r) - 1 and columns KERNEL_left(q) ..
   KERNEL_right(q) - 1, those that lie in the image. */
enum {
  KERNEL_SIDE = KERNEL_ROWWISE ? KERNEL_OW : KERNEL_LANES, /* neighbours, */
  KERNEL_STEP = KERNEL_ROWWISE ? KERNEL_SW : 1,            /* whose pixels lie that far apart, */
  KERNEL_APART = KERNEL_ROWWISE ? KERNEL_SW : 0,           /* and in the image that far */
  KERNEL_COLUMNS = KERNEL_ROWWISE ? 1 : KERNEL_OW,
};
static inline long KERNEL_top(long r) {
  const long row = r * KERNEL_SH - KERNEL_TOP;
  return row < 0 ? 0 : row;
}
static inline long KERNEL_bottom(long r) {
  const long row = r * KERNEL_SH - KERNEL_TOP + KERNEL_KH;
  return row > KERNEL_H ? KERNEL_H : row;
}
static inline long KERNEL_left(long q) {
  const long column = q * KERNEL_SW - KERNEL_LEFT;
  return column < 0 ? 0 : column;
}
static inline long KERNEL_right(long q) {
  const long column = q * KERNEL_SW - KERNEL_LEFT + KERNEL_KW;
  return column > KERNEL_W ? KERNEL_W : column;
}
/* The window of neighbour n among those that are computed with window q. */
static inline long KERNEL_window(long q, long n) { return KERNEL_ROWWISE ? n : q; }
/* The columns that the first neighbour reads, and the neighbours for which column j, seen from the
   first, lies in the image. */
static inline long KERNEL_begin(long q) { return KERNEL_ROWWISE ? -KERNEL_LEFT : KERNEL_left(q); }
static inline long KERNEL_end(long q) {
  return KERNEL_ROWWISE ? KERNEL_KW - KERNEL_LEFT : KERNEL_right(q);
}
static inline long KERNEL_from(long j) {
  return KERNEL_ROWWISE && j < 0 ? (KERNEL_SW - 1 - j) / KERNEL_SW : 0;
}
static inline long KERNEL_to(long j) {
  if (!KERNEL_ROWWISE || KERNEL_LEFT + KERNEL_W >= (KERNEL_OW - 1) * KERNEL_SW + KERNEL_KW)
    return KERNEL_SIDE; /* no window reaches beyond the last column */
  const long inside = (KERNEL_W - j + KERNEL_SW - 1) / KERNEL_SW;
  return inside < KERNEL_SIDE ? inside : KERNEL_SIDE;
}
/* How many pixels a window averages. */
static inline REAL KERNEL_count(long r, long q) {
  if (KERNEL_PADDED) return KERNEL_KH * KERNEL_KW;
  return (KERNEL_bottom(r) - KERNEL_top(r)) * (KERNEL_right(q) - KERNEL_left(q));
}

PART
void KERNEL(char *const *at) {
  KERNEL_NUMBERS(at)
  KERNEL_RUN(KERNEL_part, (void *)at, KERNEL_PARTS);
}
