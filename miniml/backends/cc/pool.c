/* The window in row r and column q reads the pixels in rows KERNEL_top(r) .. KERNEL_bottom(r) - 1 and
   columns KERNEL_left(q) .. KERNEL_right(q) - 1 of LANES images, those that lie in them. */
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
/* How many pixels a window averages. */
static inline REAL KERNEL_count(long r, long q) {
  if (KERNEL_PADDED) return KERNEL_KH * KERNEL_KW;
  return (KERNEL_bottom(r) - KERNEL_top(r)) * (KERNEL_right(q) - KERNEL_left(q));
}

PART
void KERNEL(char *const *at) { KERNEL_RUN(KERNEL_part, (void *)at, KERNEL_PARTS); }
