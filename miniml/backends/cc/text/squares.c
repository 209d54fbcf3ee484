/* A part is a matrix of LANES rows where images are row-major, and of LANES columns where they are
   not: the channels of an image, the images of a channel, or a block of the channels of an image, of
   which the last may have fewer. */
static void KERNEL_part(void *data, long part) {
  char *const *at = data;
  const REAL *x = (const REAL *)at[0];
  REAL *out = (REAL *)at[1];
  const long group = part / KERNEL_BLOCKS, block = part % KERNEL_BLOCKS;
  const long left = KERNEL_COUNT - block * KERNEL_LANES;
  const long lanes = left < KERNEL_LANES ? left : KERNEL_LANES;
  const long plain = group * KERNEL_GROUP + block * KERNEL_LANES * KERNEL_STEP;
  const long other = part * KERNEL_LANES * KERNEL_PIXELS;
  if (KERNEL_BACK) {
    REAL_squares(x + other, KERNEL_LANES, out + plain, KERNEL_STEP, KERNEL_PIXELS, lanes);
  } else {
    if (lanes < KERNEL_LANES) memset(out + other, 0, KERNEL_LANES * KERNEL_PIXELS * sizeof(REAL));
    REAL_squares(x + plain, KERNEL_STEP, out + other, KERNEL_LANES, lanes, KERNEL_PIXELS);
  }
}
void KERNEL(char *const *at) {
  KERNEL_NUMBERS(at)
  KERNEL_RUN(KERNEL_part, (void *)at, KERNEL_PARTS);
}
