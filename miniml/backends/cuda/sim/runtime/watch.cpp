// A launch that does not end: a timer looks at it, and ends it where its code can be left.
//
// A loop that touches no memory never comes to the runtime, so the timer's signal leaves it by a
// jump. It does so only from a kernel's own code: elsewhere a lock might be held, and there the
// runtime itself looks at `must_stop` as soon as it is called.
#include "runtime.h"

#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

namespace sim {

volatile int must_stop;

namespace {

constexpr long tick = 50'000'000, soon = 500'000;  // nanoseconds
const int tick_signal = SIGRTMIN + 5;

volatile sig_atomic_t asked_to_stop;  // a Ctrl-C that Python will answer with an exception
bool watching, interruptible, has_timer;
pthread_t watched;
timer_t timer;
double limit, started;
const char *code_low, *code_high;
struct sigaction tick_before, interrupt_before;
sigset_t mask_before;

double thread_seconds() {  // what others let the machine do does not count
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void ring_every(long nanoseconds) {
  itimerspec every = {{0, nanoseconds}, {0, nanoseconds}};
  if (has_timer) timer_settime(timer, 0, &every, nullptr);
}

bool in_code(const void* pc) { return pc >= code_low && pc < code_high; }

const void* word(const char* at) {  // of the stack, or null
  return readable_on_stack(*current, at) ? *(const void* const*)at : nullptr;
}

#define HUNG "the launch has not ended in %g seconds of the processor's time", limit

void report_hang(const void* pc) {
  if (must_stop == hung) fault(hang, pc, nullptr, HUNG);
}

void on_tick(int, siginfo_t*, void* context) {
  if (!watching || !pthread_equal(pthread_self(), watched)) return;
  if (thread_seconds() - started >= limit) must_stop = hung;
  else if (asked_to_stop) must_stop = interrupted;
  if (!must_stop) return;
  const Registers at = registers_of(context);
  if (!current || !in_code(at.pc)) return ring_every(soon);
  report_hang((const char*)at.pc + 1);
  if (must_stop == hung) note_callers(at);
  leave_by_jump();
}

void on_interrupt(int number, siginfo_t* info, void* context) {
  asked_to_stop = 1;
  if (interrupt_before.sa_flags & SA_SIGINFO)
    interrupt_before.sa_sigaction(number, info, context);
  else
    interrupt_before.sa_handler(number);
}

void catch_interrupts() {
  sigaction(SIGINT, nullptr, &interrupt_before);
  void (*handler)(int) = interrupt_before.sa_handler;
  interruptible = handler != SIG_DFL && handler != SIG_IGN;
  if (!interruptible) return;
  struct sigaction action = interrupt_before;
  action.sa_sigaction = on_interrupt;
  action.sa_flags |= SA_SIGINFO | SA_ONSTACK;
  sigaction(SIGINT, &action, nullptr);
}

}  // namespace

Registers registers_of(const void* context) {
  const mcontext_t& c = ((const ucontext_t*)context)->uc_mcontext;
#if defined(__x86_64__)
  return {(const void*)c.gregs[REG_RIP], nullptr, (const char*)c.gregs[REG_RBP],
          (const char*)c.gregs[REG_RSP]};
#else
  return {(const void*)c.pc, (const void*)c.regs[30], (const char*)c.regs[29], nullptr};
#endif
}

// The nearest call in the unit's code that led there: a function of the simulator's own has no line
// of the user's, its caller has. And a caller that is still on top of the stack: a function that
// has just been entered has not set its frame pointer yet.
void note_callers(const Registers& at) {
  if (!fault_count) return;
  uint64_t* callers = fault_list[fault_count - 1].callers;
  const void* top = at.stack ? word(at.stack) : at.link;
  if (in_code(top)) callers[0] = (uint64_t)top;
  const char* frame = at.frame;
  for (int i = 0; i < 4 && frame; ++i, frame = (const char*)word(frame)) {
    if (!in_code(word(frame + 8))) continue;
    callers[0] = (uint64_t)word(frame + 8);
    break;
  }
  if (!at.stack || !in_code(at.pc)) return;
  for (int i = 1; i >= 0; --i)
    if (in_code(word(at.stack + 8 * i))) callers[1] = (uint64_t)word(at.stack + 8 * i);
}

void start_watching(const Options& options) {
  limit = options.seconds, started = thread_seconds();
  code_low = options.code_low, code_high = options.code_high;
  must_stop = 0, asked_to_stop = 0, watched = pthread_self();
  struct sigaction action = {};
  action.sa_sigaction = on_tick;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
  sigaction(tick_signal, &action, &tick_before);
  sigset_t own;
  sigemptyset(&own), sigaddset(&own, tick_signal);
  pthread_sigmask(SIG_UNBLOCK, &own, &mask_before);
  interruptible = false;
  if (options.interruptible) catch_interrupts();
  sigevent event = {};
  event.sigev_notify = SIGEV_THREAD_ID, event.sigev_signo = tick_signal;
  event._sigev_un._tid = (int)syscall(SYS_gettid);
  has_timer = timer_create(CLOCK_MONOTONIC, &event, &timer) == 0;
  watching = true;
  ring_every(tick);
}

void stop_watching() {
  watching = false;
  if (has_timer) timer_delete(timer);
  if (interruptible) sigaction(SIGINT, &interrupt_before, nullptr);
  pthread_sigmask(SIG_SETMASK, &mask_before, nullptr);
  sigaction(tick_signal, &tick_before, nullptr);
}

void stop_here(const void* pc) {
  report_hang(pc);
  abandon();
}

void stop_at(const char* file, int line) {
  if (must_stop == hung) fault_at(hang, file, line, HUNG);
  abandon();
}

}  // namespace sim
