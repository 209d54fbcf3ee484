// The runtime of the simulator: fibers, barriers, the checker, launches.
//
// One launch at a time runs in a process (the Python side holds a lock), so the state is global.
#pragma once
#include <stddef.h>
#include <stdint.h>

#define SIM_API extern "C" __attribute__((visibility("default")))

namespace sim {

struct Index {
  unsigned x, y, z;
};

// What went wrong. The Python side names them in the same order (faults.py).
enum Kind : int {
  race, out_of_bounds, misaligned, uninitialised, const_write, divergent_barrier, warp_mask,
  overflow, shift, conversion, division, shared_limit, illegal_access, stack_overflow,
  assertion, trap, hang
};

// A place is an address in the module (`pc`, a return address), or a file and a line.
struct Fault {
  int kind, line;
  Index block, thread;
  int buffer, unused;     // buffer: the number of that in which it is, or -1
  uint64_t pc, other_pc;  // other_pc: of the other access of a race
  uint64_t callers[2];    // who called the function of `pc`, which may be one of our headers
  char file[120], text[240];
};

struct Options {
  int check, schedule;  // schedule: 0 forward, 1 reverse, 2 shuffled
  uint64_t seed;
  double seconds;  // of the machine's work, after which a launch counts as hung
  int interruptible, unused;          // interruptible: Ctrl-C ends the launch
  const char *code_low, *code_high;   // the code of the kernel's unit
};

// ---- fibers.cpp
constexpr unsigned max_threads = 1024, max_warps = 32;
enum class State : uint8_t { fresh, ready, waiting, done };

// What a lane passes to a function that synchronises its warp; the pointers are into its own stack.
struct WarpCall {
  unsigned mask;
  int kind, line, source, predicate;
  const char* file;
  const void* in;
  void* out;
  size_t size;
};

struct Fiber {
  void* stack_pointer;
  char* stack;  // its lowest byte, or null
  Index thread;
  unsigned number, warp, lane;
  State state;
  bool at_barrier, fenced;  // fenced: a __threadfence() was called
  int line, column, kind;   // of the barrier it waits at
  const char* file;
  WarpCall call;
  uint32_t seen[32];  // the steps of each lane of its warp before this one have ended
};

extern Fiber fibers[max_threads];
extern Fiber* current;  // null outside of kernels
extern unsigned thread_count, live_threads;
extern bool aborted;

bool prepare_stacks();  // false when there is no memory for them
bool on_stack(const Fiber& fiber, const void* address);
bool readable_on_stack(const Fiber& fiber, const void* address);  // 8 bytes outside of the guard
bool in_stacks(const void* address);
void start_threads(Index extent);
// Runs every thread of a block to its end; false when all that are left wait for each other.
bool run_block();
void wait();                       // hands over until the current fiber is ready again
void maybe_yield();                // hands over by chance, for the shuffled schedule
[[noreturn]] void abandon();       // ends the launch from inside a kernel
void forget_fibers();
uint32_t random_bits();
void seed_random(uint64_t seed);
extern int schedule;

// ---- barriers.cpp
void start_barriers();
void thread_ended(const Fiber& fiber);
bool release_active();  // lanes that ask who is active; false when none does
void report_deadlock();

// ---- faults.cpp
extern Fault* fault_list;
extern int fault_count, fault_capacity;
void fault_at(Kind kind, const char* file, int line, const char* format, ...)
    __attribute__((format(printf, 4, 5)));
void fault(Kind kind, const void* pc, const void* other_pc, const char* format, ...)
    __attribute__((format(printf, 4, 5)));
// The same of a buffer, by its number.
void fault_in(int buffer, Kind kind, const void* pc, const void* other_pc, const char* format, ...)
    __attribute__((format(printf, 5, 6)));

// ---- watch.cpp
enum Stop : int { hung = 1, interrupted = 2 };
extern volatile int must_stop;  // a Stop once the launch has to end
void start_watching(const Options& options);
void stop_watching();
[[noreturn]] void stop_here(const void* pc);  // for must_stop, from inside a kernel
[[noreturn]] void stop_at(const char* file, int line);
struct Registers {  // where a signal came
  const void *pc, *link;  // link: the return address of a function without a frame, or null
  const char *frame, *stack;
};
Registers registers_of(const void* context);
void note_callers(const Registers& at);  // with the last fault
[[noreturn]] void leave_by_jump();  // the same from a signal handler (launch.cpp)

// ---- checker.cpp
constexpr unsigned max_step = (1u << 22) - 1;
enum class Touch { read, write, atomic, atomic_write, volatile_read, volatile_write };

struct Buffer {  // an argument, a shared array or a variable, as the Python side describes it
  char* start;
  uint64_t bytes;
  uint8_t* initialised;  // one byte for each byte, or null: all of it is, or it is shared
  const char* name;      // "argument 2"
  int granule;           // the size of its elements, as far as known: 1, 2 or 4
  int is_const, is_shared, unused;
};

extern bool checking;
extern bool out_of_memory;  // the checker's, during this launch
extern unsigned block_number;    // of the running block in the grid
extern unsigned barrier_number;  // barriers passed by this block
void start_checking(const Buffer* buffers, int count, const void* module);
void stop_checking();
void start_block_checking();  // before each block
void touch(const void* address, size_t bytes, Touch how, const void* pc, bool aligned = false);
uint64_t touched_shared_bytes();  // of the kernel's shared arrays: those it used

}  // namespace sim
