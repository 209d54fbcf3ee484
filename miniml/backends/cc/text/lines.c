/* A product of few rows with a y that is read once: a part is a run of y's lines, which lie together
   in memory, and so from one call to the next in the caches of one core; or, where y has been packed,
   of the lines of its panels. The sums of the parts are added in their order. */
enum {
  KERNEL_PITCH = KERNEL_FULL * KERNEL_COLUMNS + KERNEL_NARROW * REAL_tile_lanes,
  KERNEL_AT_ONCE = 32 /* lines that are read for all columns, so that memory is read in its order */
};
typedef struct {
  char *const *at;
  REAL (*sums)[KERNEL_M][KERNEL_PITCH];
} KERNEL_task;

static void KERNEL_part(void *data, long part) {
  const KERNEL_task *task = data;
  const long batch = 0, begin = part * KERNEL_K / KERNEL_PARTS;
  const long end = (part + 1) * KERNEL_K / KERNEL_PARTS;
  for (long q = begin, depth; q < end; q += depth) {
    const REAL *x = (const REAL *)task->at[KERNEL_X] + KERNEL_X_START + q * KERNEL_X_COLUMN;
    char *const *const at = task->at;
    const REAL *const y = KERNEL_Y_AT;
    REAL *sums = *task->sums[part];
    depth = end - q < KERNEL_AT_ONCE ? end - q : KERNEL_AT_ONCE;
    for (long c = 0; c < KERNEL_FULL * KERNEL_COLUMNS; c += KERNEL_COLUMNS)
      REAL_TILE(KERNEL_M, KERNEL_WIDEST)(
          depth, x, KERNEL_X_ROW, KERNEL_X_COLUMN,
          KERNEL_PACKED ? y + c * KERNEL_K + q * KERNEL_COLUMNS : y + c + q * KERNEL_Y_ROW,
          KERNEL_PACKED ? KERNEL_COLUMNS : KERNEL_Y_ROW, depth, 0, sums + c, KERNEL_PITCH, q > begin);
#if KERNEL_REST
    /* In place these columns begin before the first that remains, so that vectors are full. */
    const long rest = KERNEL_N - KERNEL_REST, width = KERNEL_NARROW * REAL_tile_lanes;
    REAL_TILE(KERNEL_M, KERNEL_NARROW)(
        depth, x, KERNEL_X_ROW, KERNEL_X_COLUMN,
        KERNEL_PACKED ? y + rest * KERNEL_K + q * width : y + KERNEL_N - width + q * KERNEL_Y_ROW,
        KERNEL_PACKED ? width : KERNEL_Y_ROW, depth, 0, sums + rest, KERNEL_PITCH, q > begin);
#endif
  }
}

void KERNEL(char *const *at) {
  KERNEL_ROOM(room, KERNEL_PARTS * KERNEL_M * KERNEL_PITCH, 0);
  REAL(*const sums)[KERNEL_M][KERNEL_PITCH] = (REAL(*)[KERNEL_M][KERNEL_PITCH])room;
  miniml.parallel(KERNEL_part, &(KERNEL_task){at, sums}, KERNEL_PARTS);
  for (long i = 0; i < KERNEL_M; ++i) {
    REAL *total = sums[0][i];
    for (long part = 1; part < KERNEL_PARTS; ++part)
      for (long c = 0; c < KERNEL_PITCH; ++c) total[c] += sums[part][i][c];
    const long full = KERNEL_N - KERNEL_REST;
    if (full) KERNEL_emit(at, 0, i, 0, full, total);
    const long rest = KERNEL_PACKED ? full : KERNEL_PITCH - KERNEL_REST;
    if (KERNEL_REST) KERNEL_emit(at, 0, i, full, KERNEL_REST, total + rest);
  }
}
