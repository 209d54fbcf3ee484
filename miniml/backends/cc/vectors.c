/* Vectors of REAL as wide as a register; a loose one lies at any address. */
typedef REAL REAL_vector __attribute__((vector_size(BYTES)));
typedef REAL REAL_loose __attribute__((vector_size(BYTES), aligned(sizeof(REAL)), may_alias));
enum { REAL_width = BYTES / sizeof(REAL) };

typedef INTEGER REAL_mask __attribute__((vector_size(BYTES)));
static inline REAL_vector REAL_load(const REAL *at) { return *(const REAL_loose *)at; }
static inline void REAL_store(REAL *at, REAL_vector v) { *(REAL_loose *)at = v; }

#ifndef REAL_plus
#define REAL_plus(sum, w, x) ((sum) + (w) * (x))
#endif

#define UNWRAP(...) __VA_ARGS__
#define SWAP(i, j, low, high) {                                                \
      const REAL_vector x = a[i], y = a[j];                                    \
      a[i] = __builtin_shufflevector(x, y, UNWRAP low);                        \
      a[j] = __builtin_shufflevector(x, y, UNWRAP high);                       \
    }

/* Transposes the square of REAL_width vectors. */
static inline __attribute__((always_inline)) void REAL_transpose(REAL_vector *a) {
    SWAPS;
}
#undef SWAP
#undef UNWRAP
