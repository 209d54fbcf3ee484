/* How y is cut into panels of columns. */
/* Memory that a kernel has while it runs: on the stack, or from element `begin` on of what the
   caller gives as at[KERNEL_ROOM_AT], if that is for vectors as wide as these. */
#if defined(KERNEL_ROOM_AT) && MINIML_VECTOR <= MINIML_ROOM_VECTOR
#define KERNEL_ROOM(name, count, begin) \
  _Static_assert(((begin) + (count)) * sizeof(REAL) <= KERNEL_ROOM_BYTES, "a room is too small"); \
  REAL *const name = (REAL *)at[KERNEL_ROOM_AT] + (begin)
#else
#define KERNEL_ROOM(name, count, begin) REAL name[count] __attribute__((aligned(64)))
#endif
#if defined(__aarch64__)
#define KERNEL_SUMS 18 /* vectors of a tile, beside those of y, and a register for each row of x */
#elif MINIML_REGISTERS == 32
#define KERNEL_SUMS 24 /* vectors of a tile, beside those of y: x is read from memory */
#else
#define KERNEL_SUMS 12
#endif
#if KERNEL_M == 1
#define KERNEL_WIDEST 8 /* vectors of a panel */
#else
#define KERNEL_WIDEST (KERNEL_SUMS / 6)
#endif
#define KERNEL_COLUMNS (KERNEL_WIDEST * MINIML_LANES_REAL)
#define KERNEL_FULL (KERNEL_N / KERNEL_COLUMNS) /* panels; one may remain, which is narrower */
#define KERNEL_REST (KERNEL_N % KERNEL_COLUMNS)
#define KERNEL_NARROW ((KERNEL_REST + MINIML_LANES_REAL - 1) / MINIML_LANES_REAL)
#define KERNEL_PACK (KERNEL_Y_ROW == 1 && KERNEL_Y_COLUMN > 1 ? REAL_pack_turned : REAL_pack)
