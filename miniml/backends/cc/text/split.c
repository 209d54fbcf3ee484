
static void KERNEL_part(void *data, long part) {
  char *const *at = data;
  KERNEL_NUMBERS(at)
  const long units = KERNEL_BATCHES * KERNEL_BLOCKS * KERNEL_GROUPS;
  for (long u = part * units / KERNEL_PARTS; u < (part + 1) * units / KERNEL_PARTS; ++u)
    KERNEL_unit(
        at, u / KERNEL_GROUPS / KERNEL_BLOCKS, u / KERNEL_GROUPS % KERNEL_BLOCKS,
        u % KERNEL_GROUPS);
}

void KERNEL(char *const *at) {
  KERNEL_NUMBERS(at)
  if (KERNEL_PARTS > 1)
    miniml.parallel(KERNEL_part, (void *)at, KERNEL_PARTS);
  else
    KERNEL_part((void *)at, 0);
}
