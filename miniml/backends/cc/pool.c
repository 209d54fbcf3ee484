/* A line is RUN windows that lie side by side in memory: of all images where the batch is innermost
   (q, r are then the window's place), else of a row r of windows (q is 0). Tap (i, j) of window m
   reads the pixel (r * SH + i - TOP, column of m + j). */
static inline long KERNEL_column(long q, long m) {
  return (KERNEL_BATCH ? q : m) * KERNEL_SW - KERNEL_LEFT;
}
/* The windows of a line that meet the image with column j of their taps: from low to high. */
static inline long KERNEL_low(long q, long j) {
  if (KERNEL_BATCH) return KERNEL_column(q, 0) + j < 0 ? KERNEL_RUN : 0;
  return j < KERNEL_LEFT ? (KERNEL_LEFT - j + KERNEL_SW - 1) / KERNEL_SW : 0;
}
static inline long KERNEL_high(long q, long j) {
  if (KERNEL_BATCH) return KERNEL_column(q, 0) + j < KERNEL_W ? KERNEL_RUN : 0;
  const long last = KERNEL_W - 1 + KERNEL_LEFT - j;
  return last < 0 ? 0 : last / KERNEL_SW + 1 < KERNEL_RUN ? last / KERNEL_SW + 1 : KERNEL_RUN;
}
/* Where tap (i, j) of window 0 of a line reads; the next window STEP further. */
static inline long KERNEL_pixel(long r, long q, long i, long j) {
  const long row = r * KERNEL_SH + i - KERNEL_TOP;
  return (row * KERNEL_W + KERNEL_column(q, 0) + j) * KERNEL_LANES;
}
static inline long KERNEL_first(long r) {
  const long above = KERNEL_TOP - r * KERNEL_SH;
  return above > 0 ? above : 0;
}
static inline long KERNEL_last(long r) {
  const long below = KERNEL_H + KERNEL_TOP - r * KERNEL_SH;
  return below < KERNEL_KH ? below : KERNEL_KH;
}
/* How many pixels window m averages. */
static inline REAL KERNEL_count(long r, long q, long m) {
  if (KERNEL_PADDED) return KERNEL_KH * KERNEL_KW;
  const long column = KERNEL_column(q, m), first = column < 0 ? -column : 0;
  const long last = KERNEL_W - column < KERNEL_KW ? KERNEL_W - column : KERNEL_KW;
  return (KERNEL_last(r) - KERNEL_first(r)) * (last - first);
}

PART
void KERNEL(char *const *at) { KERNEL_ALL(KERNEL_part, (void *)at, KERNEL_PARTS); }
