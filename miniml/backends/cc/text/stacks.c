/* The matrices of all stacks: as many side by side as a vector has elements, and what is left one by
   one. */
static void KERNEL_part(void *data, long part) {
  char *const *at = (char *const *)data;
  double *const work = (double *)at[KERNEL_WORK] + part * KERNEL_ROOM;
  const long tiles = (KERNEL_COUNT + KERNEL_SIDE - 1) / KERNEL_SIDE;
  const long begin = tiles * part / KERNEL_PARTS * KERNEL_SIDE;
  const long past = tiles * (part + 1) / KERNEL_PARTS * KERNEL_SIDE;
  const long end = past < KERNEL_COUNT ? past : KERNEL_COUNT;
  long first = begin;
#if KERNEL_FEWEST <= KERNEL_COUNT
  for (long lanes; first < end; first += lanes) {
    lanes = end - first < KERNEL_SIDE ? end - first : KERNEL_SIDE;
    if (lanes < KERNEL_FEWEST) break;
    KERNEL_wide(at, first, lanes, (KERNEL_wide_value *)work);
  }
#endif
  for (; first < end; ++first) KERNEL_one(at, first, 1, work);
}
void KERNEL(char *const *at) { miniml.parallel(KERNEL_part, (void *)at, KERNEL_PARTS); }
