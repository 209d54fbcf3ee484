// The list of faults of a launch: one for each kind and place.
#include "runtime.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

SIM_API sim::Index sim_block_index;

namespace sim {

Fault* fault_list;
int fault_count, fault_capacity;

static Fault* new_fault(Kind kind, const void* pc, const char* file, int line) {
  for (int i = 0; i < fault_count; ++i) {
    const Fault& f = fault_list[i];
    if (f.kind == kind && f.pc == (uint64_t)pc && f.line == line) return nullptr;
  }
  if (fault_count == fault_capacity) return nullptr;
  Fault& f = fault_list[fault_count++];
  f.kind = kind, f.line = line, f.pc = (uint64_t)pc, f.other_pc = 0, f.buffer = -1;
  f.callers[0] = f.callers[1] = 0;
  f.block = sim_block_index;
  f.thread = current ? current->thread : Index{0, 0, 0};
  strncpy(f.file, file ? file : "", sizeof f.file - 1);
  f.file[sizeof f.file - 1] = 0;
  return &f;
}

// Frame pointers lead from here through the runtime to the function of `pc`, and on.
static void find_callers(Fault* f, const void* pc) {
  void** frame = (void**)__builtin_frame_address(0);
  int found = -1;  // -1: the function of `pc` is still to come
  while (found < 2 && current && readable_on_stack(*current, frame) &&
         readable_on_stack(*current, frame + 1)) {
    if (found >= 0) f->callers[found++] = (uint64_t)frame[1];
    else if (frame[1] == pc) found = 0;
    if ((void**)frame[0] <= frame) return;
    frame = (void**)frame[0];
  }
}

void fault_at(Kind kind, const char* file, int line, const char* format, ...) {
  Fault* f = new_fault(kind, nullptr, file, line);
  if (!f) return;
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(f->text, sizeof f->text, format, arguments);
  va_end(arguments);
}

static void write_fault(int buffer, Kind kind, const void* pc, const void* other_pc,
                        const char* format, va_list arguments) {
  Fault* f = new_fault(kind, pc, nullptr, 0);
  if (!f) return;
  f->other_pc = (uint64_t)other_pc, f->buffer = buffer;
  find_callers(f, pc);
  vsnprintf(f->text, sizeof f->text, format, arguments);
}

void fault(Kind kind, const void* pc, const void* other_pc, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  write_fault(-1, kind, pc, other_pc, format, arguments);
  va_end(arguments);
}

void fault_in(int buffer, Kind kind, const void* pc, const void* other_pc, const char* format,
              ...) {
  va_list arguments;
  va_start(arguments, format);
  write_fault(buffer, kind, pc, other_pc, format, arguments);
  va_end(arguments);
}

}  // namespace sim
