// A launch: block after block through the fibers, with the machine's signals turned into faults.
#include "runtime.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

extern "C" sim::Index sim_block_index, sim_block_extent, sim_grid_extent;
extern "C" char* sim_dynamic_shared;

namespace sim {

void (*entry)(void**);
void** entry_arguments;

namespace {

const int caught[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
struct sigaction before[4];
sigjmp_buf after_signal;
pthread_t launching_thread;
constexpr size_t signal_stack_bytes = 64 << 10;
char* signal_stack;

void on_signal(int number, siginfo_t* info, void* context) {
  if (!current || !pthread_equal(pthread_self(), launching_thread)) {
    // Not ours: restore the previous handlers and let the instruction fault again.
    for (int i = 0; i < 4; ++i)
      if (caught[i] == number) sigaction(number, &before[i], nullptr);
    return;
  }
  const Registers at = registers_of(context);
  const void* pc = (const char*)at.pc + 1;  // as if a return address
  if (number == SIGFPE)
    fault(division, pc, nullptr, "integer division by zero, or its overflow");
  else if (number == SIGILL)
    fault(sim::trap, pc, nullptr, "illegal instruction");
  else if (in_stacks(info->si_addr))
    fault(stack_overflow, pc, nullptr,
          "the thread's local variables do not fit its stack of 192 KiB");
  else
    fault(illegal_access, pc, nullptr,
          "access of the address %p, which is no memory of the kernel's", info->si_addr);
  note_callers(at);
  leave_by_jump();
}

void catch_signals(stack_t* old_stack) {
  if (!signal_stack) signal_stack = (char*)malloc(signal_stack_bytes);
  stack_t own = {};
  own.ss_sp = signal_stack, own.ss_size = signal_stack_bytes;
  sigaltstack(&own, old_stack);
  launching_thread = pthread_self();
  struct sigaction action = {};
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  for (int i = 0; i < 4; ++i) sigaction(caught[i], &action, &before[i]);
}

void release_signals(const stack_t* old_stack) {
  for (int i = 0; i < 4; ++i) sigaction(caught[i], &before[i], nullptr);
  sigaltstack(old_stack, nullptr);
}

// A number coprime to the count makes i -> start + i * stride a permutation of the blocks.
uint64_t coprime_stride(uint64_t count) {
  uint64_t stride = random_bits() % count + 1, a = stride, b = count;
  while (b) {
    uint64_t r = a % b;
    a = b, b = r;
  }
  return a == 1 ? stride : 1;
}

void run_grid(Index grid) {
  uint64_t blocks = (uint64_t)grid.x * grid.y * grid.z;
  uint64_t start = schedule == 2 ? random_bits() % blocks : 0;
  uint64_t stride = schedule == 2 ? coprime_stride(blocks) : 1;
  for (uint64_t i = 0; i < blocks && !aborted; ++i) {
    uint64_t b = schedule == 1 ? blocks - 1 - i : (start + i * stride) % blocks;
    block_number = (unsigned)b;
    sim_block_index = {(unsigned)(b % grid.x), (unsigned)(b / grid.x % grid.y),
                       (unsigned)(b / grid.x / grid.y)};
    if (checking) start_block_checking();
    if (run_block()) continue;
    report_deadlock();
    break;
  }
}

}  // namespace

void leave_by_jump() {
  aborted = true;
  siglongjmp(after_signal, 1);
}

}  // namespace sim

using namespace sim;

// Runs a kernel; returns how many faults it wrote to `faults`, -1 for want of memory, or
// -2 when it was interrupted.
// `shared` is dynamic shared memory; `buffers` say where the kernel may read and write, and are
// looked at in check mode only.
// *shared_bytes becomes the size of the static shared arrays that it used, in check mode.
SIM_API int sim_launch(void (*kernel)(void**), void** arguments, const unsigned* grid,
                       const unsigned* block, char* shared, const Buffer* buffers, int buffer_count,
                       const Options* options, Fault* faults, int capacity,
                       uint64_t* shared_bytes) {
  fault_list = faults, fault_count = 0, fault_capacity = capacity;
  entry = kernel, entry_arguments = arguments, aborted = out_of_memory = false;
  sim_grid_extent = {grid[0], grid[1], grid[2]};
  sim_block_extent = {block[0], block[1], block[2]};
  sim_dynamic_shared = shared;
  schedule = options->schedule;
  seed_random(options->seed);
  if (!prepare_stacks()) return -1;
  start_threads(sim_block_extent);
  if (options->check) start_checking(buffers, buffer_count, (const void*)kernel);
  stack_t old_stack;
  catch_signals(&old_stack);
  start_watching(*options);
  if (sigsetjmp(after_signal, 0) == 0) run_grid(sim_grid_extent);
  stop_watching();
  release_signals(&old_stack);
  forget_fibers();
  if (options->check) {
    *shared_bytes = touched_shared_bytes();
    stop_checking();
  }
  if (out_of_memory) return -1;
  return must_stop == interrupted ? -2 : fault_count;
}
