/* Copies to memory in row-major order from memory with any strides: of a broadcast, reversed or
   permuted view. The two axes that the innermost loops are over make a plane; how one is copied is
   chosen once, and planes are copied one by one, by several threads where there is much.

   from, to: the first elements. n[1], n[0]: the extents of the outer and the inner axis of a plane;
   s[1], s[0]: how far apart elements along them are that are read; t: how far apart rows are that
   are written, in bytes all. Elements along the inner axis are written side by side. */

typedef struct {
  int64_t n[2], s[2], t;
} plane;
typedef void plane_copy(char *restrict to, const char *from, const plane *p);

static void copy_rows(char *restrict to, const char *from, const plane *p) {
  for (int64_t i = 0; i < p->n[1]; ++i) memcpy(to + i * p->t, from + i * p->s[1], p->n[0]);
}

/* Of elements of one size, which may lie anywhere: rows of one element repeated, reversed rows, any
   other rows; a plane whose elements lie side by side along the outer axis, in squares; and one
   whose inner axis has two, three or four elements besides, as that many streams. */
#define SQUARE 16
#define STREAMS(T)                                                                          \
  static void weave2_##T(char *restrict to, const char *from, const plane *p) {             \
    T *restrict x = (T *)to;                                                                \
    const T *a = (const T *)from, *b = (const T *)(from + p->s[0]);                         \
    for (int64_t i = 0; i < p->n[1]; ++i) x[2 * i] = a[i], x[2 * i + 1] = b[i];             \
  }                                                                                         \
  static void weave3_##T(char *restrict to, const char *from, const plane *p) {             \
    T *restrict x = (T *)to;                                                                \
    const int64_t s = p->s[0];                                                              \
    const T *a = (const T *)from, *b = (const T *)(from + s), *c = (const T *)(from + 2 * s); \
    for (int64_t i = 0; i < p->n[1]; ++i)                                                   \
      x[3 * i] = a[i], x[3 * i + 1] = b[i], x[3 * i + 2] = c[i];                            \
  }                                                                                         \
  static void weave4_##T(char *restrict to, const char *from, const plane *p) {             \
    T *restrict x = (T *)to;                                                                \
    const int64_t s = p->s[0];                                                              \
    const T *a = (const T *)from, *b = (const T *)(from + s), *c = (const T *)(from + 2 * s), \
            *d = (const T *)(from + 3 * s);                                                 \
    for (int64_t i = 0; i < p->n[1]; ++i)                                                   \
      x[4 * i] = a[i], x[4 * i + 1] = b[i], x[4 * i + 2] = c[i], x[4 * i + 3] = d[i];       \
  }
#define COPIES(T)                                                                           \
  static void repeat_##T(char *restrict to, const char *from, const plane *p) {             \
    for (int64_t i = 0; i < p->n[1]; ++i) {                                                 \
      T *restrict x = (T *)(to + i * p->t), one = *(const T *)(from + i * p->s[1]);         \
      for (int64_t j = 0; j < p->n[0]; ++j) x[j] = one;                                     \
    }                                                                                       \
  }                                                                                         \
  static void reverse_##T(char *restrict to, const char *from, const plane *p) {            \
    for (int64_t i = 0; i < p->n[1]; ++i) {                                                 \
      T *restrict x = (T *)(to + i * p->t);                                                 \
      const T *y = (const T *)(from + i * p->s[1]);                                         \
      for (int64_t j = 0; j < p->n[0]; ++j) x[j] = y[-j];                                   \
    }                                                                                       \
  }                                                                                         \
  static void any_##T(char *restrict to, const char *from, const plane *p) {                \
    const int64_t s = p->s[0];                                                              \
    for (int64_t i = 0; i < p->n[1]; ++i) {                                                 \
      T *restrict x = (T *)(to + i * p->t);                                                 \
      for (int64_t j = 0; j < p->n[0]; ++j) x[j] = *(const T *)(from + i * p->s[1] + j * s);\
    }                                                                                       \
  }                                                                                         \
  static void turn_##T(char *restrict to, const char *from, const plane *p) {               \
    const int64_t s = p->s[0], t = p->t;                                                    \
    for (int64_t b = 0; b < p->n[1]; b += SQUARE) {                                         \
      const int64_t end = p->n[1] - b < SQUARE ? p->n[1] : b + SQUARE;                      \
      for (int64_t j = 0; j < p->n[0]; ++j)                                                 \
        for (int64_t i = b; i < end; ++i)                                                   \
          ((T *)(to + i * t))[j] = ((const T *)(from + j * s))[i];                          \
    }                                                                                       \
  }                                                                                         \
  STREAMS(T)                                                                                \
  static plane_copy *const kinds_##T[] = {repeat_##T, reverse_##T, any_##T, turn_##T,       \
                                          weave2_##T, weave3_##T, weave4_##T};
enum { REPEAT, REVERSE, ANY, TURN, WEAVE };

#define ANYWHERE __attribute__((aligned(1), may_alias))
typedef uint8_t of_1 ANYWHERE;
typedef uint16_t of_2 ANYWHERE;
typedef uint32_t of_4 ANYWHERE;
typedef uint64_t of_8 ANYWHERE;
typedef struct {
  uint64_t low, high;
} ANYWHERE of_16;
COPIES(of_1)
COPIES(of_2)
COPIES(of_4)
COPIES(of_8)
COPIES(of_16)
#undef STREAMS
#undef COPIES

/* A copy: the kind of its planes, the axes around them, from the innermost one on, with how far
   apart their elements are read and written, and the number of planes of each part. */
typedef struct {
  plane plane;
  plane_copy *each;
  int64_t axes, n[64], s[64], t[64], planes, of_part;
  const char *from;
  char *to;
} copying;

/* The axis that is the outer one of a plane: one along which the elements lie side by side, or the
   last but one. */
static int64_t outer_axis(int64_t bytes, int64_t axes, const int64_t *n, const int64_t *s) {
  if (s[axes - 1] != bytes && s[axes - 1] != -bytes && s[axes - 1])
    for (int64_t axis = axes - 2; axis >= 0; --axis)
      if (s[axis] == bytes && n[axis] > 1) return axis;
  return axes - 2;
}

static plane_copy *kind_of(int64_t bytes, const plane *p) {
  static plane_copy *const *const kinds[] = {kinds_of_1, kinds_of_2, kinds_of_4, kinds_of_8,
                                             kinds_of_16};
  plane_copy *const *own = kinds[__builtin_ctzll(bytes)];
  const int64_t few = p->n[0];
  if (p->s[0] == bytes) return copy_rows;
  if (p->s[1] == bytes && few >= 2 && few <= 4 && p->t == few * bytes) return own[WEAVE + few - 2];
  if (!p->s[0]) return own[REPEAT];
  if (p->s[0] == -bytes) return own[REVERSE];
  return own[p->s[1] == bytes ? TURN : ANY];
}

/* Arranges the loops of a copy. n, s: the extents and strides of all axes, of which there is at least
   one. Few elements side by side are one larger element. */
static void arrange(copying *it, int64_t bytes, int64_t axes, const int64_t *n, const int64_t *s) {
  plane *p = &it->plane;
  const int64_t row = n[axes - 1] * bytes, large = row == 2 || row == 4 || row == 8 || row == 16;
  if (axes > 1 && s[axes - 1] == bytes && large) bytes = row, --axes;
  const int64_t last = axes - 1, outer = outer_axis(bytes, axes, n, s);
  int64_t t = bytes * n[last];
  *p = (plane){{n[last], 1}, {s[last], 0}, t};
  it->axes = 0, it->planes = 1;
  for (int64_t axis = last - 1; axis >= 0; t *= n[axis--]) {
    if (axis == outer) {
      p->n[1] = n[axis], p->s[1] = s[axis], p->t = t;
      continue;
    }
    it->n[it->axes] = n[axis], it->s[it->axes] = s[axis], it->t[it->axes++] = t;
    it->planes *= n[axis];
  }
  it->each = kind_of(bytes, p);
  if (it->each == copy_rows) p->n[0] *= bytes;
}

/* The planes of one part. */
static void copy_part(void *data, long part) {
  const copying *it = data;
  const int64_t begin = part * it->of_part, rest = it->planes - begin;
  int64_t index[64], left = begin;
  const char *from = it->from;
  char *to = it->to;
  for (int64_t axis = 0; axis < it->axes; left /= it->n[axis++]) {
    index[axis] = left % it->n[axis];
    from += index[axis] * it->s[axis], to += index[axis] * it->t[axis];
  }
  for (int64_t k = rest < it->of_part ? rest : it->of_part; k > 0; --k) {
    it->each(to, from, &it->plane);
    for (int64_t axis = 0; axis < it->axes; ++axis) {
      from += it->s[axis], to += it->t[axis];
      if (++index[axis] < it->n[axis]) break;
      from -= it->s[axis] * it->n[axis], to -= it->t[axis] * it->n[axis];
      index[axis] = 0;
    }
  }
}

/* A kernel: at[0], whose strides are any, to at[1], which is in row-major order. at[2]: the bytes
   of an element, a power of two up to 16, the number of axes (at least one), the extents, the strides
   in bytes. */
static void copy_strided(char *const *at) {
  const int64_t *about = (const int64_t *)at[2], axes = about[1], *n = about + 2;
  int64_t bytes = about[0];
  for (int64_t axis = 0; axis < axes; ++axis)
    if (!n[axis]) return;
  if (axes == 1 && n[1] == bytes) {
    memcpy(at[1], at[0], n[0] * bytes);
    return;
  }
  copying it = {.from = at[0], .to = at[1]};
  arrange(&it, bytes, axes, n, n + axes);
  for (int64_t axis = 0; axis < axes; ++axis) bytes *= n[axis];
  const int64_t parts = bytes / 262144 < it.planes ? bytes / 262144 : it.planes;
  it.of_part = parts > 1 ? (it.planes + parts - 1) / parts : it.planes;
  parallel(copy_part, &it, (it.planes + it.of_part - 1) / it.of_part);
}
