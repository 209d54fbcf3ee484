/* Native runs: the kernels of consecutive steps, called one after another without Python between.

   A run is a function of Python that takes NumPy arrays by position. Its table is the memory of a
   NumPy array of 64-bit words, which the function object owns. CPython's stable ABI is declared
   here, since its headers need not be installed; the address of each function of it is given by the
   process. */

typedef struct object object;
typedef struct {
  const char *name;
  object *(*function)(object *, object *const *, intptr_t);
  int flags; /* 0x80: METH_FASTCALL */
  const char *doc;
} method;

static struct {
  void *(*save_thread)(void);
  void (*restore_thread)(void *);
  object *(*from_long)(long);
  object *ndarray;
  intptr_t head; /* the size of the head of every object; its type is the last word of it */
} python;

/* PyArrayObject_fields of NumPy, behind the head of the object. */
typedef struct {
  char *data;
  int axes;
  intptr_t *extents, *strides;
  object *base, *dtype;
  int flags;
} array;
enum { ROW_MAJOR = 0x1, ALIGNED = 0x100 };

static const array *array_of(const object *it) {
  return (const array *)((const char *)it + python.head);
}

/* unusable(*arrays) is 0 if kernels can read all of them where they are, else 1. Table: for each, its
   dtype object, the number of its axes, and their extents. */
static object *unusable(object *self, object *const *given, intptr_t count) {
  const int64_t *table = (const int64_t *)array_of(self)->data;
  for (intptr_t i = 0; i < count; ++i) {
    const object *type = *(object *const *)((const char *)given[i] + python.head - sizeof type);
    const array *it = array_of(given[i]);
    if (type != python.ndarray || it->dtype != (object *)(intptr_t)table[0] ||
        it->axes != table[1] || (it->flags & (ROW_MAJOR | ALIGNED)) != (ROW_MAJOR | ALIGNED))
      return python.from_long(1);
    table += 2;
    for (int axis = 0; axis < it->axes; ++axis)
      if (it->extents[axis] != *table++) return python.from_long(1);
  }
  return python.from_long(0);
}

/* Calls the kernels of a table. given: the memory of the arguments. Table: the numbers of kernels
   and of moving addresses, and the number of words before the addresses; for each kernel its
   address and where its addresses begin; for each moving address the argument it is in, the
   distance in bytes from its start, and which address it is; the addresses. stamps: where to note
   when each kernel was done, or NULL. */
static void play(int64_t *table, char *const *given, int64_t *stamps) {
  const int64_t *row = table + 3, *moving = row + 2 * table[0];
  char **at = (char **)(table + table[2]);
  for (int64_t i = 0; i < table[1]; ++i, moving += 3)
    at[moving[2]] = given[moving[0]] + moving[1];
  for (int64_t i = 0; i < table[0]; ++i, row += 2) {
    ((void (*)(char *const *))(intptr_t)row[0])(at + row[1]);
    if (stamps) stamps[i] = now();
  }
}

/* run(*arrays) calls the kernels. Table: how many threads a kernel may use; the
   address of stamps, or 0; the table of `play`. */
static object *run(object *self, object *const *arrays, intptr_t count) {
  int64_t *table = (int64_t *)array_of(self)->data;
  char *given[count + 1];
  for (intptr_t i = 0; i < count; ++i) given[i] = array_of(arrays[i])->data;
  void *state = python.save_thread();
  fewer_threads = table[0];
  play(table + 2, given, (int64_t *)(intptr_t)table[1]);
  fewer_threads = 0;
  python.restore_thread(state);
  return python.from_long(0);
}

/* A kernel: a loop. at[0]: its table; then its operands. Table: the numbers of steps, of carried
   values and of arguments; for each carried value, which are the first arguments, the argument that
   holds the next one, the operand that receives the last one, and its bytes; for each argument the
   operand it is in, its distance in bytes from the start of that, how much further it is at each
   step, and the bits of the step's number that count; the table of `play`. */
static void loop(char *const *at) {
  int64_t *table = (int64_t *)at[0];
  const int64_t steps = table[0], carried = table[1], arguments = table[2];
  const int64_t(*carry)[3] = (const int64_t(*)[3])(table + 3);
  const int64_t(*argument)[4] = (const int64_t(*)[4])(carry + carried);
  int64_t *calls = (int64_t *)(argument + arguments);
  char *given[arguments + 1];
  for (int64_t i = 0; i < carried; ++i) given[i] = at[1 + argument[i][0]];
  for (int64_t step = 0; step < steps; ++step) {
    for (int64_t i = carried; i < arguments; ++i)
      given[i] = at[1 + argument[i][0]] + argument[i][1] + argument[i][2] * (step & argument[i][3]);
    play(calls, given, NULL);
    for (int64_t i = 0; i < carried; ++i) given[i] = given[carry[i][0]];
  }
  for (int64_t i = 0; i < carried; ++i) memcpy(at[1 + carry[i][1]], given[i], carry[i][2]);
}

/* A kernel: at[0], whose strides are any, to at[1], which is in row-major order. at[2]: the bytes
   of an element, the number of axes (at least one), the extents, the strides in bytes. */
static void copy_strided(char *const *at) {
  const int64_t *about = (const int64_t *)at[2], bytes = about[0], axes = about[1];
  const int64_t *extents = about + 2, *strides = extents + axes, last = axes - 1;
  int64_t index[64] = {0}, count = extents[last], step = strides[last];
  const char *from = at[0];
  char *to = at[1];
  for (int64_t axis = 0; axis < axes; ++axis)
    if (!extents[axis]) return;
  for (;;) {
    if (step == bytes)
      memcpy(to, from, count * bytes);
    else if (bytes == 4)
      for (int64_t i = 0; i < count; ++i) memcpy(to + 4 * i, from + step * i, 4);
    else if (bytes == 8)
      for (int64_t i = 0; i < count; ++i) memcpy(to + 8 * i, from + step * i, 8);
    else
      for (int64_t i = 0; i < count; ++i) memcpy(to + bytes * i, from + step * i, bytes);
    to += count * bytes;
    int64_t axis = last - 1;
    for (; axis >= 0 && ++index[axis] == extents[axis]; --axis) {
      from -= strides[axis] * (extents[axis] - 1);
      index[axis] = 0;
    }
    if (axis < 0) return;
    from += strides[axis];
  }
}

/* Begins all of this. at[0]: the addresses of CPython's and OpenBLAS's functions, the size of an
   object's head, and the number of threads. at[1] receives the services and the addresses of what
   Python uses: the two methods and the kernels that copy and loop. */
void KERNEL(char *const *at) {
  static const method methods[] = {{"unusable", unusable, 0x80, NULL}, {"run", run, 0x80, NULL}};
  const int64_t *given = (const int64_t *)at[0];
  struct {
    miniml_services services;
    const void *unusable, *run, *copy, *loop;
  } made = {begin_services(given + 5, given[9]), methods, methods + 1, (void *)copy_strided,
            (void *)loop};
  memcpy(&python, given, sizeof python);
  memcpy(at[1], &made, sizeof made);
}
