// What instrumented kernels call: the entry points of -fsanitize=thread and of
// -fsanitize=undefined, with the checker behind them instead of those tools' own libraries.
#include "runtime.h"

#include <string.h>

using namespace sim;

#define SIM_PC __builtin_return_address(0)
#define SIM_TOUCH(NAME, BYTES, HOW) \
  SIM_API void __tsan_##NAME(void* p) { touch(p, BYTES, Touch::HOW, SIM_PC, true); }
// Parts of a structure whose members need less: -fsanitize=alignment looks at the structure.
#define SIM_TOUCH_PARTS(NAME, BYTES, HOW) \
  SIM_API void __tsan_unaligned_##NAME(void* p) { touch(p, BYTES, Touch::HOW, SIM_PC); }
#define SIM_TOUCHES(BYTES)                                     \
  SIM_TOUCH(read##BYTES, BYTES, read)                          \
  SIM_TOUCH(write##BYTES, BYTES, write)                        \
  SIM_TOUCH_PARTS(read##BYTES, BYTES, read)                    \
  SIM_TOUCH_PARTS(write##BYTES, BYTES, write)                  \
  SIM_TOUCH(volatile_read##BYTES, BYTES, volatile_read)        \
  SIM_TOUCH(volatile_write##BYTES, BYTES, volatile_write)      \
  SIM_TOUCH_PARTS(volatile_read##BYTES, BYTES, volatile_read)  \
  SIM_TOUCH_PARTS(volatile_write##BYTES, BYTES, volatile_write)
SIM_TOUCHES(1)
SIM_TOUCHES(2)
SIM_TOUCHES(4)
SIM_TOUCHES(8)
SIM_TOUCHES(16)
SIM_API void __tsan_read_range(void* p, size_t n) { touch(p, n, Touch::read, SIM_PC); }
SIM_API void __tsan_write_range(void* p, size_t n) { touch(p, n, Touch::write, SIM_PC); }
SIM_API void __tsan_func_entry(void*) {}
SIM_API void __tsan_func_exit() {}
SIM_API void __tsan_init() {}
SIM_API void __tsan_vptr_update(void*, void*) {}
SIM_API void __tsan_vptr_read(void*) {}

static void copied(void* to, const void* from, size_t n, const void* pc) {
  touch(from, n, Touch::read, pc);
  touch(to, n, Touch::write, pc);
}

// Whole functions, not calls of one: SIM_PC is then the kernel's own line.
#define SIM_COPIES(PREFIX)                                              \
  SIM_API void* PREFIX##memcpy(void* to, const void* from, size_t n) {  \
    copied(to, from, n, SIM_PC);                                        \
    return memmove(to, from, n);                                        \
  }                                                                     \
  SIM_API void* PREFIX##memmove(void* to, const void* from, size_t n) { \
    copied(to, from, n, SIM_PC);                                        \
    return memmove(to, from, n);                                        \
  }                                                                     \
  SIM_API void* PREFIX##memset(void* to, int value, size_t n) {         \
    touch(to, n, Touch::write, SIM_PC);                                 \
    return memset(to, value, n);                                        \
  }
SIM_COPIES(sim_)     // in the text of a kernel
SIM_COPIES(__tsan_)  // for copies of structures, where clang calls these
SIM_COPIES(__wrap_)  // or the plain functions, which the linker turns into these (unit.py)

SIM_API void sim_trap(int is_assert, const char* text, const char* file, int line) {
  fault_at(is_assert ? assertion : sim::trap, file, line, "%s%s", text,
           is_assert ? " does not hold" : "");
  abandon();
}

SIM_API long long sim_clock() {
  static long long calls;
  return ++calls;
}

// ---- undefined behaviour: the first member of every description is the place
namespace {
struct Place {
  const char* file;
  uint32_t line, column;
};
struct TypeMismatch {
  Place place;
  const void* type;
  unsigned char log_alignment, kind;
};

void undefined(Kind kind, void* description, const char* text, bool fatal) {
  if (!current) return;
  const Place* place = (const Place*)description;
  fault_at(kind, place->file, (int)place->line, "%s", text);
  if (fatal) abandon();
}
}  // namespace

#define SIM_UNDEFINED(NAME, KIND, TEXT, FATAL, ...)                         \
  SIM_API void __ubsan_handle_##NAME(void* description, ##__VA_ARGS__) {    \
    undefined(KIND, description, TEXT, FATAL);                              \
  }
SIM_UNDEFINED(add_overflow, overflow, "signed integer overflow in +", false, size_t, size_t)
SIM_UNDEFINED(sub_overflow, overflow, "signed integer overflow in -", false, size_t, size_t)
SIM_UNDEFINED(mul_overflow, overflow, "signed integer overflow in *", false, size_t, size_t)
SIM_UNDEFINED(negate_overflow, overflow, "signed integer overflow in unary -", false, size_t)
SIM_UNDEFINED(divrem_overflow, division, "integer division by zero, or its overflow", true, size_t,
              size_t)
SIM_UNDEFINED(shift_out_of_bounds, shift,
              "shift by a negative number, or by the width of the type or more", false, size_t,
              size_t)
SIM_UNDEFINED(float_cast_overflow, conversion,
              "the number does not fit the integer type it becomes", false, size_t)

SIM_API void __ubsan_handle_out_of_bounds(void* description, size_t index) {
  if (!current) return;
  const Place* place = (const Place*)description;
  fault_at(out_of_bounds, place->file, (int)place->line, "index %lld is outside the array",
           (long long)index);
  abandon();
}
SIM_API void __ubsan_handle_type_mismatch_v1(void* description, size_t address) {
  if (!current) return;
  const TypeMismatch* t = (const TypeMismatch*)description;
  if (address)
    fault_at(misaligned, t->place.file, (int)t->place.line,
             "the address %#zx is not a multiple of %u, as its type needs", address,
             1u << t->log_alignment);
  else
    fault_at(out_of_bounds, t->place.file, (int)t->place.line, "access through a null pointer");
  abandon();
}
