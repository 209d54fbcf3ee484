/* A copy to memory in row-major order from memory with any strides: of a broadcast, reversed or
   permuted view, whose elements are KERNEL_T, one for each size. The two axes that the innermost
   loops are over make a plane; how one is copied is chosen once, and planes are copied one by one, by
   several threads where there is much.

   from, to: the first elements. n[1], n[0]: the extents of the outer and the inner axis of a plane;
   s[1], s[0]: how far apart elements along them are that are read; t: how far apart rows are that
   are written, in bytes all. Elements along the inner axis are written side by side, and may lie
   anywhere. */

typedef KERNEL_T KERNEL_t __attribute__((aligned(1), may_alias));
typedef struct {
  int64_t n[2], s[2], t;
} KERNEL_plane;
typedef void KERNEL_plane_copy(char *restrict to, const char *from, const KERNEL_plane *p);
#define KERNEL_VECTORS __attribute__((optimize("O3"))) /* GCC makes them here only if told to */

/* Rows of neighbours, rows of one element repeated, reversed rows, any other rows; a plane whose
   elements lie side by side along the outer axis, in this order or the other, in squares, those of
   four by vectors; and one whose inner axis has two, three or four elements besides, as that many
   streams. */
static void KERNEL_rows(char *restrict to, const char *from, const KERNEL_plane *p) {
  const int64_t bytes = p->n[0] * sizeof(KERNEL_t);
  for (int64_t i = 0; i < p->n[1]; ++i) memcpy(to + i * p->t, from + i * p->s[1], bytes);
}
static void KERNEL_repeat(char *restrict to, const char *from, const KERNEL_plane *p) {
  for (int64_t i = 0; i < p->n[1]; ++i) {
    KERNEL_t *x = (KERNEL_t *)(to + i * p->t), one = *(const KERNEL_t *)(from + i * p->s[1]);
    int64_t j = 0, left = p->n[0];
    for (; j < 32 && left; --left) x[j++] = one;
    for (int64_t more; left; j += more, left -= more) {  /* of those that are there, in one cache */
      more = left < j ? left : j < 1024 ? j : 1024;
      memcpy(x + j, x, more * sizeof(KERNEL_t));
    }
  }
}
KERNEL_VECTORS static void KERNEL_reverse(char *restrict to, const char *from, const KERNEL_plane *p) {
  for (int64_t i = 0; i < p->n[1]; ++i) {
    KERNEL_t *restrict x = (KERNEL_t *)(to + i * p->t);
    const KERNEL_t *y = (const KERNEL_t *)(from + i * p->s[1]);
    for (int64_t j = 0; j < p->n[0]; ++j) x[j] = y[-j];
  }
}
static void KERNEL_any(char *restrict to, const char *from, const KERNEL_plane *p) {
  const int64_t s = p->s[0];
  for (int64_t i = 0; i < p->n[1]; ++i) {
    KERNEL_t *restrict x = (KERNEL_t *)(to + i * p->t);
    for (int64_t j = 0; j < p->n[0]; ++j) x[j] = *(const KERNEL_t *)(from + i * p->s[1] + j * s);
  }
}
#if KERNEL_BYTES < 16 && __has_builtin(__builtin_shufflevector)
typedef KERNEL_T KERNEL_four
    __attribute__((vector_size(4 * KERNEL_BYTES), aligned(1), may_alias));
static inline void KERNEL_square(char *restrict to, const char *from, int64_t s, int64_t t) {
  const KERNEL_four a = *(const KERNEL_four *)from, b = *(const KERNEL_four *)(from + s),
                    c = *(const KERNEL_four *)(from + 2 * s),
                    d = *(const KERNEL_four *)(from + 3 * s);
  const KERNEL_four ab = __builtin_shufflevector(a, b, 0, 4, 1, 5),
                    cd = __builtin_shufflevector(c, d, 0, 4, 1, 5),
                    rest_ab = __builtin_shufflevector(a, b, 2, 6, 3, 7),
                    rest_cd = __builtin_shufflevector(c, d, 2, 6, 3, 7);
  *(KERNEL_four *)to = __builtin_shufflevector(ab, cd, 0, 1, 4, 5);
  *(KERNEL_four *)(to + t) = __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
  *(KERNEL_four *)(to + 2 * t) = __builtin_shufflevector(rest_ab, rest_cd, 0, 1, 4, 5);
  *(KERNEL_four *)(to + 3 * t) = __builtin_shufflevector(rest_ab, rest_cd, 2, 3, 6, 7);
}
enum { KERNEL_READ = 128 }; /* rows, whose neighbours stay in the cache meanwhile */
static void KERNEL_turn(char *restrict to, const char *from, const KERNEL_plane *p) {
  const int64_t s = p->s[0], near = p->s[1], t = p->t, fours = p->n[1] / 4 * 4;
  const int64_t first = near < 0 ? 3 : 0, step = near < 0 ? -t : t;
  for (int64_t b = 0; b < p->n[0]; b += KERNEL_READ) {
    const int64_t end = p->n[0] - b < KERNEL_READ ? p->n[0] : b + KERNEL_READ;
    const int64_t whole = b + (end - b) / 4 * 4;
    for (int64_t i = first; i < fours; i += 4)
      for (int64_t j = b; j < whole; j += 4)
        KERNEL_square(to + i * t + j * KERNEL_BYTES, from + j * s + i * near, s, step);
    for (int64_t j = b; j < end; ++j)
      for (int64_t i = j < whole ? fours : 0; i < p->n[1]; ++i)
        ((KERNEL_t *)(to + i * t))[j] = *(const KERNEL_t *)(from + j * s + i * near);
  }
}
#else
enum { KERNEL_SQUARE = 16 };
static void KERNEL_turn(char *restrict to, const char *from, const KERNEL_plane *p) {
  const int64_t s = p->s[0], near = p->s[1], t = p->t;
  for (int64_t b = 0; b < p->n[1]; b += KERNEL_SQUARE) {
    const int64_t end = p->n[1] - b < KERNEL_SQUARE ? p->n[1] : b + KERNEL_SQUARE;
    for (int64_t j = 0; j < p->n[0]; ++j)
      for (int64_t i = b; i < end; ++i)
        ((KERNEL_t *)(to + i * t))[j] = *(const KERNEL_t *)(from + j * s + i * near);
  }
}
#endif
KERNEL_VECTORS static void KERNEL_weave2(char *restrict to, const char *from, const KERNEL_plane *p) {
  KERNEL_t *restrict x = (KERNEL_t *)to;
  const KERNEL_t *a = (const KERNEL_t *)from, *b = (const KERNEL_t *)(from + p->s[0]);
  for (int64_t i = 0; i < p->n[1]; ++i) x[2 * i] = a[i], x[2 * i + 1] = b[i];
}
KERNEL_VECTORS static void KERNEL_weave3(char *restrict to, const char *from, const KERNEL_plane *p) {
  KERNEL_t *restrict x = (KERNEL_t *)to;
  const int64_t s = p->s[0];
  const KERNEL_t *a = (const KERNEL_t *)from, *b = (const KERNEL_t *)(from + s),
                 *c = (const KERNEL_t *)(from + 2 * s);
  for (int64_t i = 0; i < p->n[1]; ++i) x[3 * i] = a[i], x[3 * i + 1] = b[i], x[3 * i + 2] = c[i];
}
KERNEL_VECTORS static void KERNEL_weave4(char *restrict to, const char *from, const KERNEL_plane *p) {
  KERNEL_t *restrict x = (KERNEL_t *)to;
  const int64_t s = p->s[0];
  const KERNEL_t *a = (const KERNEL_t *)from, *b = (const KERNEL_t *)(from + s),
                 *c = (const KERNEL_t *)(from + 2 * s), *d = (const KERNEL_t *)(from + 3 * s);
  for (int64_t i = 0; i < p->n[1]; ++i)
    x[4 * i] = a[i], x[4 * i + 1] = b[i], x[4 * i + 2] = c[i], x[4 * i + 3] = d[i];
}

/* A copy: the kind of its planes, the axes around them, from the innermost one on, with how far
   apart their elements are read and written, and the number of planes of each part. */
typedef struct {
  KERNEL_plane plane;
  KERNEL_plane_copy *each;
  int64_t axes, n[64], s[64], t[64], planes, of_part;
  const char *from;
  char *to;
} KERNEL_copying;

/* The axis that is the outer one of a plane: one along which the elements lie side by side, in this
   order or the other, or the last but one. */
static int64_t KERNEL_outer_axis(int64_t axes, const int64_t *n, const int64_t *s) {
  const int64_t bytes = sizeof(KERNEL_t);
  if (s[axes - 1] != bytes && s[axes - 1] != -bytes && s[axes - 1])
    for (int64_t axis = axes - 2; axis >= 0; --axis)
      if ((s[axis] == bytes || s[axis] == -bytes) && n[axis] > 1) return axis;
  return axes - 2;
}

static KERNEL_plane_copy *KERNEL_kind_of(const KERNEL_plane *p) {
  const int64_t bytes = sizeof(KERNEL_t), few = p->n[0];
  if (p->s[0] == bytes) return KERNEL_rows;
  if (p->s[1] == bytes && few >= 2 && few <= 4 && p->t == few * bytes)
    return few == 2 ? KERNEL_weave2 : few == 3 ? KERNEL_weave3 : KERNEL_weave4;
  if (!p->s[0]) return KERNEL_repeat;
  if (p->s[0] == -bytes) return KERNEL_reverse;
  return p->s[1] == bytes || p->s[1] == -bytes ? KERNEL_turn : KERNEL_any;
}

/* Arranges the loops of a copy. n, s: the extents and strides of all axes, of which there is at least
   one. */
static void KERNEL_arrange(KERNEL_copying *it, int64_t axes, const int64_t *n, const int64_t *s) {
  const int64_t last = axes - 1, outer = KERNEL_outer_axis(axes, n, s);
  int64_t t = sizeof(KERNEL_t) * n[last];
  KERNEL_plane *p = &it->plane;
  *p = (KERNEL_plane){{n[last], 1}, {s[last], 0}, t};
  it->axes = 0, it->planes = 1;
  for (int64_t axis = last - 1; axis >= 0; t *= n[axis--]) {
    if (axis == outer) {
      p->n[1] = n[axis], p->s[1] = s[axis], p->t = t;
      continue;
    }
    it->n[it->axes] = n[axis], it->s[it->axes] = s[axis], it->t[it->axes++] = t;
    it->planes *= n[axis];
  }
  it->each = KERNEL_kind_of(p);
}

/* The planes of one part. */
static void KERNEL_part(void *data, long part) {
  const KERNEL_copying *it = data;
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

/* at[0], whose strides are any, to at[1], which is in row-major order. at[2]: the bytes of an element,
   which are those of KERNEL_t, the number of axes (at least one), the extents, the strides in
   bytes. */
void KERNEL(char *const *at) {
  const int64_t *about = (const int64_t *)at[2], axes = about[1], *n = about + 2;
  int64_t bytes = sizeof(KERNEL_t);
  for (int64_t axis = 0; axis < axes; bytes *= n[axis++])
    if (!n[axis]) return;
  KERNEL_copying it = {.from = at[0], .to = at[1]};
  KERNEL_arrange(&it, axes, n, n + axes);
  const int64_t parts = bytes / 262144 < it.planes ? bytes / 262144 : it.planes;
  it.of_part = parts > 1 ? (it.planes + parts - 1) / parts : it.planes;
  miniml.parallel(KERNEL_part, &it, (it.planes + it.of_part - 1) / it.of_part);
}
