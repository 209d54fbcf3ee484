// Fibers: one stack for each CUDA thread that has begun, switched by a few instructions.
#include "runtime.h"

#include <string.h>
#include <sys/mman.h>

namespace sim {

// Saves what the C calling convention keeps across calls, stores the stack pointer at *save, and
// continues where `load` was saved.
extern "C" void sim_switch(void** save, void* load) __attribute__((visibility("hidden")));

#if defined(__x86_64__)
constexpr int saved_words = 6;  // rbp, rbx, r12 to r15
constexpr int return_word = 6;  // then the address to continue at
constexpr int frame_words = 8;  // the ABI wants rsp at 16n + 8 where a function begins
asm(R"(
.text
.globl sim_switch
.hidden sim_switch
.type sim_switch, @function
sim_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size sim_switch, . - sim_switch
)");
#elif defined(__aarch64__)
constexpr int saved_words = 20;  // d8 to d15, x19 to x28, x29 (frame), x30 (link)
constexpr int return_word = 19;  // x30
constexpr int frame_words = 20;  // sp is a multiple of 16 at all times
asm(R"(
.text
.globl sim_switch
.hidden sim_switch
.type sim_switch, %function
sim_switch:
  sub sp, sp, #160
  stp d8, d9, [sp, #0]
  stp d10, d11, [sp, #16]
  stp d12, d13, [sp, #32]
  stp d14, d15, [sp, #48]
  stp x19, x20, [sp, #64]
  stp x21, x22, [sp, #80]
  stp x23, x24, [sp, #96]
  stp x25, x26, [sp, #112]
  stp x27, x28, [sp, #128]
  stp x29, x30, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp d8, d9, [sp, #0]
  ldp d10, d11, [sp, #16]
  ldp d12, d13, [sp, #32]
  ldp d14, d15, [sp, #48]
  ldp x19, x20, [sp, #64]
  ldp x21, x22, [sp, #80]
  ldp x23, x24, [sp, #96]
  ldp x25, x26, [sp, #112]
  ldp x27, x28, [sp, #128]
  ldp x29, x30, [sp, #144]
  add sp, sp, #160
  ret
.size sim_switch, . - sim_switch
)");
#else
#error "the CUDA simulator switches fibers on x86-64 and aarch64 only"
#endif

Fiber fibers[max_threads];
Fiber* current;
unsigned thread_count, live_threads;
bool aborted;
int schedule;

namespace {

constexpr size_t stack_bytes = 256 << 10, guard_bytes = 64 << 10;  // guard: the largest page
char* stacks;                                                      // max_threads of them in a row
char* free_stacks[max_threads];
unsigned free_stack_count;
void* launcher;  // the stack pointer of the code that launched
unsigned order[max_threads], position;
bool progress;  // some thread ran since the order began anew
uint64_t random_state;

}  // namespace
}  // namespace sim

SIM_API sim::Index sim_thread_index, sim_block_index, sim_block_extent, sim_grid_extent;
SIM_API unsigned sim_lane;
SIM_API char* sim_dynamic_shared;
sim::Index sim_thread_index, sim_block_index, sim_block_extent, sim_grid_extent;
unsigned sim_lane;
char* sim_dynamic_shared;

namespace sim {

extern void (*entry)(void**);
extern void** entry_arguments;

void seed_random(uint64_t seed) { random_state = seed * 0x9E3779B97F4A7C15ull + 0x1234567; }

uint32_t random_bits() {  // xorshift64
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return (uint32_t)(random_state >> 16);
}

bool prepare_stacks() {
  if (!stacks) {
    void* memory = mmap(nullptr, max_threads * stack_bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return false;
    stacks = (char*)memory;
    for (unsigned i = 0; i < max_threads; ++i)
      mprotect(stacks + i * stack_bytes, guard_bytes, PROT_NONE);
  }
  if (free_stack_count == max_threads) return true;
  free_stack_count = 0;
  for (unsigned i = max_threads; i-- > 0;)
    free_stacks[free_stack_count++] = stacks + i * stack_bytes;
  return true;
}

bool on_stack(const Fiber& fiber, const void* address) {
  return (size_t)((const char*)address - fiber.stack) < stack_bytes;
}

bool readable_on_stack(const Fiber& fiber, const void* address) {
  const char* p = (const char*)address;
  return fiber.stack && p >= fiber.stack + guard_bytes && p + 8 <= fiber.stack + stack_bytes;
}

bool in_stacks(const void* address) {
  return stacks && (size_t)((const char*)address - stacks) < max_threads * stack_bytes;
}

void start_threads(Index extent) {
  thread_count = extent.x * extent.y * extent.z;
  for (unsigned i = 0; i < thread_count; ++i) {
    Fiber& f = fibers[i];
    f.stack = nullptr;
    f.thread = {i % extent.x, i / extent.x % extent.y, i / (extent.x * extent.y)};
    f.number = i, f.warp = i / 32, f.lane = i % 32;
    order[i] = schedule == 1 ? thread_count - 1 - i : i;
  }
}

void forget_fibers() {
  current = nullptr;
  prepare_stacks();
}

namespace {

void enter(Fiber* fiber) {
  current = fiber;
  sim_thread_index = fiber->thread;
  sim_lane = fiber->lane;
}

// The next thread that can run, in the order of the schedule; null when none can.
Fiber* next_fiber() {
  for (;;) {
    while (position < thread_count) {
      Fiber* fiber = &fibers[order[position++]];
      if (fiber->state > State::ready) continue;
      progress = true;
      return fiber;
    }
    if (!progress) return nullptr;
    progress = false, position = 0;
    if (schedule == 2)
      for (unsigned i = thread_count - 1; i > 0; --i) {
        unsigned j = random_bits() % (i + 1), held = order[i];
        order[i] = order[j], order[j] = held;
      }
  }
}

void fiber_main();

void give_stack(Fiber* fiber) {
  fiber->stack = free_stacks[--free_stack_count];
  void** frame = (void**)(fiber->stack + stack_bytes) - frame_words;
  memset(frame, 0, frame_words * sizeof(void*));
  static_assert(saved_words <= frame_words, "the frame holds what a switch restores");
  frame[return_word] = (void*)fiber_main;
  fiber->stack_pointer = frame;
}

void switch_from(void** save, Fiber* to) {
  if (!to) return sim_switch(save, launcher);
  if (!to->stack) give_stack(to);
  enter(to);
  to->state = State::ready;
  sim_switch(save, to->stack_pointer);
}

// A thread has ended. A fresh one goes on in its stack, which spares the switch: a kernel without
// barriers runs as a plain loop.
void retire() {
  Fiber* ended = current;
  ended->state = State::done;
  --live_threads;
  thread_ended(*ended);
  Fiber* next = next_fiber();
  char* stack = ended->stack;
  ended->stack = nullptr;
  if (next && next->state == State::fresh) {
    next->stack = stack;
    next->state = State::ready;
    enter(next);
    return;
  }
  free_stacks[free_stack_count++] = stack;
  void* never;
  switch_from(&never, next);
}

void fiber_main() {
  for (;;) {
    entry(entry_arguments);
    retire();
  }
}

}  // namespace

bool run_block() {
  for (unsigned i = 0; i < thread_count; ++i) {
    Fiber& f = fibers[i];
    f.state = State::fresh;
    f.at_barrier = f.fenced = false;
    if (checking) memset(f.seen, 0, sizeof f.seen);
  }
  live_threads = thread_count;
  start_barriers();
  do {  // the order begins anew, and is shuffled if need be
    position = thread_count, progress = true;
    switch_from(&launcher, next_fiber());
  } while (live_threads && !aborted && release_active());
  current = nullptr;
  return aborted || live_threads == 0;
}

void wait() {
  Fiber* me = current;
  if (me->state == State::ready) return;
  Fiber* next = next_fiber();
  if (next == me) return;
  switch_from(&me->stack_pointer, next);
}

void maybe_yield() {
  if (random_bits() % 32) return;
  Fiber* me = current;
  Fiber* next = next_fiber();
  if (next && next != me) switch_from(&me->stack_pointer, next);
}

void abandon() {
  aborted = true;
  void* never;
  sim_switch(&never, launcher);
  __builtin_unreachable();
}

}  // namespace sim
