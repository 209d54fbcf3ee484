/* Native runs: the kernels of consecutive steps, called one after another without Python between;
   loops and branches of such calls; and calls back into Python, for what has no kernel in C.

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
  object *(*call)(object *, ...); /* with arguments up to a NULL */
  void (*keep)(object *);
  void (*release)(object *);
  int (*run_handlers)(void); /* of signals that have arrived; -1 if one of them raised */
  void (*fetch)(object **, object **, object **);
  void (*normalize)(object **, object **, object **);
  void (*restore)(object *, object *, object *);
  void (*clear)(void);
  object *(*tuple)(intptr_t);
  int (*put)(object *, intptr_t, object *); /* which takes over the reference */
  object *(*allocate)(object *, intptr_t); /* an object of a class */
  object *ndarray, *none;
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
enum { ROW_MAJOR = 0x1, ALIGNED = 0x100, WRITEABLE = 0x400 };

static const array *array_of(const object *it) {
  return (const array *)((const char *)it + python.head);
}

static object *type_of(const object *it) {
  return *(object *const *)((const char *)it + python.head - sizeof(object *));
}

/* unusable(*arrays) is 0 if kernels can read all of them where they are, else 1. Table: for each, its
   dtype object, the number of its axes, and their extents. */
static object *unusable(object *self, object *const *given, intptr_t count) {
  const int64_t *table = (const int64_t *)array_of(self)->data;
  for (intptr_t i = 0; i < count; ++i) {
    const array *it = array_of(given[i]);
    if (type_of(given[i]) != python.ndarray || it->dtype != (object *)(intptr_t)table[0] ||
        it->axes != table[1] || (it->flags & (ROW_MAJOR | ALIGNED)) != (ROW_MAJOR | ALIGNED))
      return python.from_long(1);
    table += 2;
    for (int axis = 0; axis < it->axes; ++axis)
      if (it->extents[axis] != *table++) return python.from_long(1);
  }
  return python.from_long(0);
}

/* Objects around arrays: behind the head an array and its kind. Table of both functions: the class, the
   number of objects, and the kind of each. */
static object **slots_of(const object *it) { return (object **)((char *)it + python.head); }

/* unwrapped(*objects) is a tuple of their arrays; None for another number of objects, and unless each
   has this class and its kind. */
static object *unwrapped(object *self, object *const *given, intptr_t count) {
  object *const *table = (object *const *)array_of(self)->data;
  int serves = count == (intptr_t)table[1];
  for (intptr_t i = 0; serves && i < count; ++i)
    serves = type_of(given[i]) == table[0] && slots_of(given[i])[1] == table[2 + i];
  if (!serves) {
    python.keep(python.none);
    return python.none;
  }
  object *arrays = python.tuple(count);
  for (intptr_t i = 0; arrays && i < count; ++i) {
    python.keep(slots_of(given[i])[0]);
    python.put(arrays, i, slots_of(given[i])[0]);
  }
  return arrays;
}

/* wrapped(*arrays) is a tuple of objects around them; from now on nobody may write to these. */
static object *wrapped(object *self, object *const *arrays, intptr_t count) {
  object *const *table = (object *const *)array_of(self)->data;
  object *made = python.tuple(count);
  for (intptr_t i = 0; made && i < count; ++i) {
    object *it = python.allocate(table[0], 0);
    if (!it) {
      python.release(made);
      return NULL;
    }
    python.keep(slots_of(it)[0] = arrays[i]);
    python.keep(slots_of(it)[1] = table[2 + i]);
    ((array *)array_of(arrays[i]))->flags &= ~WRITEABLE;
    python.put(made, i, it);
  }
  return made;
}

/* Of this thread: its state while a run lets others have the GIL, and 1 from when Python has an error
   set until the run returns: no call is made any more. */
static _Thread_local void *released;
static _Thread_local int stopped;

/* Calls the kernels of a table; 0, or 1 if one of them stopped the run. given: the memory of the
   arguments. Table: the numbers of kernels and of moving addresses, the number of words before the
   addresses, and 1 if a kernel may stop the run; for each kernel its address and where its addresses
   begin; for each moving address the argument it is in, the distance in bytes from its start, and
   which address it is; the addresses. stamps: where to note when each kernel was done, or NULL. */
static int run_calls(int64_t *table, char *const *given, int64_t *stamps) {
  const int64_t *row = table + 4, *moving = row + 2 * table[0];
  char **at = (char **)(table + table[2]);
  for (int64_t i = 0; i < table[1]; ++i, moving += 3)
    at[moving[2]] = given[moving[0]] + moving[1];
  for (int64_t i = 0; i < table[0]; ++i, row += 2) {
    ((void (*)(char *const *))(intptr_t)row[0])(at + row[1]);
    if (stamps) stamps[i] = now();
    if (table[3] && stopped) return 1;
  }
  return 0;
}

/* run(*arrays) calls the kernels. Table: how many threads a kernel may use; the
   address of stamps, or 0; the table of `run_calls`. The handler of a signal may run another
   one inside. */
static object *run(object *self, object *const *arrays, intptr_t count) {
  int64_t *table = (int64_t *)array_of(self)->data;
  char *given[count + 1];
  for (intptr_t i = 0; i < count; ++i) given[i] = array_of(arrays[i])->data;
  void *const around = released;
  const long fewer = fewer_threads;
  released = python.save_thread();
  fewer_threads = table[0];
  const int failed = run_calls(table + 2, given, (int64_t *)(intptr_t)table[1]);
  fewer_threads = fewer;
  python.restore_thread(released);
  released = around;
  if (!failed) return python.from_long(0);
  stopped = 0;
  return NULL;
}

/* Calls a function of Python on NumPy arrays that show the operands. Table: the function, the number
   of operands, and an array for each, which owns no memory. */
static void call_on(const int64_t *table, char *const *operands) {
  for (int64_t i = 0; i < table[1]; ++i)
    ((array *)array_of((object *)(intptr_t)table[2 + i]))->data = operands[i];
  python.restore_thread(released);
  object *returned = python.call((object *)(intptr_t)table[0], NULL);
  if (returned)
    python.release(returned);
  else
    stopped = 1;
  released = python.save_thread();
}

/* A kernel: a function of Python. at[0]: the table of `call_on`; then its operands. */
static void call_back(char *const *at) { call_on((const int64_t *)at[0], at + 1); }

/* A kernel: the bytes at[0] to at[1]. at[2]: their number. */
static void copy(char *const *at) { memcpy(at[1], at[0], *(const int64_t *)at[2]); }

/* A kernel: a copy of the integers at[1] to at[2]. If one of them is not in bounds, a function of
   Python, which raises an error or makes the copy itself, is called. at[0]: the number of integers,
   their bytes, negative for unsigned ones, the least of them and the end, the one that is taken
   besides, which may be one of those in bounds; the table of `call_on`, whose operands are at[3] and
   so on. */
#define COPY(T)                                                              \
  for (int64_t i = 0; i < count; ++i) {                                      \
    const T x = ((const T *)at[1])[i];                                       \
    outside |= (((int64_t)x < least) | ((int64_t)x >= end)) & ((int64_t)x != besides); \
    ((T *)at[2])[i] = x;                                                     \
  }                                                                          \
  break
static void copy_bounded(char *const *at) {
  const int64_t *table = (const int64_t *)at[0];
  const int64_t count = table[0], least = table[2], end = table[3], besides = table[4];
  int outside = 0;
  switch (table[1]) {
    case 1: COPY(int8_t);
    case 2: COPY(int16_t);
    case 4: COPY(int32_t);
    case -1: COPY(uint8_t);
    case -2: COPY(uint16_t);
    case -4: COPY(uint32_t);
    default: COPY(int64_t); /* unsigned ones of over 63 bits are negative, so Python decides */
  }
  if (outside) call_on(table + 5, at + 3);
}
#undef COPY

/* Tells a function of Python the error that is set, and in which step it was raised. */
static void note_step(object *note, int64_t step) {
  object *type, *error, *trace, *number, *noted;
  python.restore_thread(released);
  python.fetch(&type, &error, &trace);
  python.normalize(&type, &error, &trace);
  number = python.from_long(step);
  noted = python.call(note, error, number, NULL);
  if (noted)
    python.release(noted);
  else
    python.clear();
  python.release(number);
  python.restore(type, error, trace);
  released = python.save_thread();
}

/* When the handlers of signals were run last, after how many steps the clock is read again, which
   takes longer than a step may take, and how many of these are left. Handlers need the GIL, for which
   a thread may wait 5 ms, so they are run every 50. */
typedef struct {
  int64_t last, steps, left;
} watch;

static void run_handlers(watch *it) {
  const int64_t time = now(), passed = time - it->last;
  if (passed < 50000000) {
    if (it->steps < 256) it->steps *= 2;
    it->left = it->steps;
    return;
  }
  if (passed > 100000000 && it->steps > 1) it->steps /= 2;
  it->left = it->steps;
  it->last = time;
  python.restore_thread(released);
  stopped = python.run_handlers() < 0;
  released = python.save_thread();
}

/* A kernel: a loop. at[0]: its table; then its operands. Table: the numbers of steps at most, of
   carried values and of arguments; the argument that holds whether the loop goes on, or -1; the
   function that gets an error and its step; where the table of the condition is, if there is one;
   for each carried value, which are the first arguments, the argument that
   holds the next one, the operand that receives the last one, and its bytes; for each argument the
   operand it is in, its distance in bytes from the start of that, how much further it is at each
   step, and the bits of the step's number that count; the table of `run_calls` for a step. A loop with
   a condition, which may never end, hears signals. */
static void loop(char *const *at) {
  int64_t *table = (int64_t *)at[0];
  const int64_t steps = table[0], carried = table[1], arguments = table[2], flag = table[3];
  const int64_t(*carry)[3] = (const int64_t(*)[3])(table + 6);
  const int64_t(*argument)[4] = (const int64_t(*)[4])(carry + carried);
  int64_t *calls = (int64_t *)(argument + arguments), *condition = table + table[5];
  char *given[arguments + 1];
  watch signals = {flag < 0 ? 0 : now(), 1, 1};
  for (int64_t i = 0; i < arguments; ++i) given[i] = at[1 + argument[i][0]] + argument[i][1];
  for (int64_t step = 0; step < steps; ++step) {
    for (int64_t i = carried; i < arguments; ++i)
      if (argument[i][2])
        given[i] = at[1 + argument[i][0]] + argument[i][1] + argument[i][2] * (step & argument[i][3]);
    if (flag >= 0) {
      if (!--signals.left) run_handlers(&signals);
      if (stopped || run_calls(condition, given, NULL))
        return note_step((object *)(intptr_t)table[4], step);
      if (!*given[flag]) break;
    }
    if (run_calls(calls, given, NULL)) return note_step((object *)(intptr_t)table[4], step);
    for (int64_t i = 0; i < carried; ++i) given[i] = given[carry[i][0]];
  }
  for (int64_t i = 0; i < carried; ++i) memcpy(at[1 + carry[i][1]], given[i], carry[i][2]);
}

/* A kernel: one of two tables of calls. at[0]: its table; at[1]: a bool, which chooses; then its
   operands. Table: where the parts for true and for false begin; each has the number of its
   arguments, the operand that each is, and the table of `run_calls`. */
static void branch(char *const *at) {
  int64_t *table = (int64_t *)at[0], *taken = table + table[*at[1] ? 0 : 1];
  char *given[taken[0] + 1];
  for (int64_t i = 0; i < taken[0]; ++i) given[i] = at[1 + taken[1 + i]];
  run_calls(taken + 1 + taken[0], given, NULL);
}

/* Begins all of this. at[0]: the addresses of CPython's functions, of the class of arrays, and the
   size of an object's head; the number of threads. at[1]
   receives the services and the addresses of what Python uses: the methods and the kernels. */
void KERNEL(char *const *at) {
  static const method methods[] = {{"unusable", unusable, 0x80, NULL},
                                   {"run", run, 0x80, NULL},
                                   {"unwrapped", unwrapped, 0x80, NULL},
                                   {"wrapped", wrapped, 0x80, NULL}};
  const int64_t *given = (const int64_t *)at[0], *beyond = given + sizeof python / sizeof *given;
  struct {
    miniml_services services;
    const void *methods[4], *copy, *loop, *branch, *call_back, *copy_bounded;
  } made = {begin_services(*beyond),
            {methods, methods + 1, methods + 2, methods + 3},
            (void *)copy, (void *)loop, (void *)branch, (void *)call_back,
            (void *)copy_bounded};
  memcpy(&python, given, sizeof python);
  memcpy(at[1], &made, sizeof made);
}
