/* Running extrema of rows in vectors: each element is combined with the one 1 before it, the one 2
   before that, 4, and so on. Where none of several vectors has a better one, that is known at once. */
typedef KERNEL_T KERNEL_v __attribute__((vector_size(KERNEL_BYTES)));
typedef KERNEL_I KERNEL_m __attribute__((vector_size(KERNEL_BYTES)));
typedef KERNEL_T KERNEL_loose
    __attribute__((vector_size(KERNEL_BYTES), aligned(sizeof(KERNEL_T)), may_alias));
static inline KERNEL_v KERNEL_all(KERNEL_T x) { return (KERNEL_v){0} + x; }
static inline int KERNEL_any(KERNEL_m m) {
  KERNEL_I lanes[KERNEL_WIDTH], any = 0;
  memcpy(lanes, &m, sizeof m);
  for (int l = 0; l < KERNEL_WIDTH; ++l) any |= lanes[l];
  return any != 0;
}
static inline KERNEL_v KERNEL_of(KERNEL_v a, KERNEL_v b) {
  const KERNEL_m better = (KERNEL_m)KERNEL_BETTER;
  return (KERNEL_v)(((KERNEL_m)b & better) | ((KERNEL_m)a & ~better));
}
static void KERNEL_part(void *data, long part) {
  char *const *at = (char *const *)data;
  KERNEL_NUMBERS(at)
  const long end = KERNEL_OUTER * (part + 1) / KERNEL_PARTS;
  for (long r = KERNEL_OUTER * part / KERNEL_PARTS; r < end; ++r) {
    const KERNEL_T *restrict in = (const KERNEL_T *)at[0] + r * KERNEL_N;
    KERNEL_T *restrict out = (KERNEL_T *)at[1] + r * KERNEL_N;
    const KERNEL_v none = KERNEL_all(KERNEL_FIRST);
    KERNEL_v so_far = none;
    long i = 0;
    for (; i + KERNEL_WIDTH <= KERNEL_N; i += KERNEL_WIDTH) {
      if (i + KERNEL_LANES <= KERNEL_N && i % KERNEL_LANES == 0) {
        KERNEL_m any = {0};
        for (long l = i; l < i + KERNEL_LANES; l += KERNEL_WIDTH) {
          const KERNEL_v a = so_far, b = *(const KERNEL_loose *)(in + l);
          any |= (KERNEL_m)KERNEL_BETTER;
        }
        if (!KERNEL_any(any)) {
          for (long l = i; l < i + KERNEL_LANES; l += KERNEL_WIDTH)
            *(KERNEL_loose *)(out + l) = so_far;
          i += KERNEL_LANES - KERNEL_WIDTH;
          continue;
        }
      }
      KERNEL_v w = *(const KERNEL_loose *)(in + i);
      KERNEL_ROUNDS
      *(KERNEL_loose *)(out + i) = w = KERNEL_of(so_far, w);
      so_far = __builtin_shufflevector(w, w, KERNEL_LAST);
    }
    for (KERNEL_T a = so_far[0]; i < KERNEL_N; ++i) {
      const KERNEL_T b = in[i];
      out[i] = a = KERNEL_COMBINED;
    }
  }
}
void KERNEL(char *const *at) {
  KERNEL_NUMBERS(at)
  miniml.parallel(KERNEL_part, (void *)at, KERNEL_PARTS);
}
