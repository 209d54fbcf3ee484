// Where threads wait for each other: barriers of a block, and functions of a warp.
#include "runtime.h"

#include <string.h>

namespace sim {

unsigned barrier_number;

namespace {

// As in sim_warp.h.
enum SyncPoint {
  syncthreads, syncthreads_count, syncthreads_and, syncthreads_or, syncwarp, ballot, any, all,
  shfl, shfl_up, shfl_down, shfl_xor, reduce, match, activemask, mma, load_matrix, store_matrix
};
const char* const names[] = {
    "__syncthreads", "__syncthreads_count", "__syncthreads_and", "__syncthreads_or", "__syncwarp",
    "__ballot_sync", "__any_sync", "__all_sync", "__shfl_sync", "__shfl_up_sync",
    "__shfl_down_sync", "__shfl_xor_sync", "__reduce_sync", "__match_sync",
    "__activemask", "mma_sync",
    "load_matrix_sync", "store_matrix_sync"};

unsigned waiting_count;  // at the block's barrier
int votes;               // predicates that hold, of those waiting
int outcome;             // of the last barrier of the kinds that vote
struct Warp {
  unsigned exist, ended, waiting;  // lanes; waiting: in a function of the warp
} warps[max_warps];

bool at_one_barrier(const Fiber& a, const Fiber& b) {
  return a.line == b.line && a.column == b.column && a.kind == b.kind;
}

unsigned count_at_barrier(const Fiber& one) {
  unsigned count = 0;
  for (unsigned i = 0; i < thread_count; ++i)
    count += fibers[i].at_barrier && at_one_barrier(fibers[i], one);
  return count;
}

// Threads wait at two barriers, of which the one that fewer have reached is in a branch, or the
// first in the text.
void report_two_barriers(const Fiber& a, const Fiber& b) {
  unsigned of_a = count_at_barrier(a), of_b = count_at_barrier(b);
  bool a_is_odd = of_a < of_b || (of_a == of_b && a.line <= b.line);
  const Fiber &odd = a_is_odd ? a : b, &even = a_is_odd ? b : a;
  Fiber* held = current;
  current = const_cast<Fiber*>(&odd);
  fault_at(divergent_barrier, odd.file, odd.line,
           "%u threads wait at %s, while %u wait at %s in line %d%s", count_at_barrier(odd),
           names[odd.kind], count_at_barrier(even), names[even.kind], even.line,
           odd.line == even.line ? ", another one" : "");
  current = held;
}

void release_barrier() {
  const Fiber* first = nullptr;
  for (unsigned i = 0; i < thread_count; ++i) {
    Fiber& f = fibers[i];
    if (!f.at_barrier) continue;
    if (!first) first = &f;
    else if (!at_one_barrier(f, *first)) {
      report_two_barriers(*first, f);
      break;
    }
  }
  if (live_threads != thread_count)
    fault_at(divergent_barrier, first->file, first->line,
             "%s is reached when %u of the %u threads of the block have ended", names[first->kind],
             thread_count - live_threads, thread_count);
  int kind = first->kind;
  outcome = kind == syncthreads_and ? votes == (int)waiting_count
            : kind == syncthreads_or ? votes != 0 : votes;
  for (unsigned i = 0; i < thread_count; ++i) {
    Fiber& f = fibers[i];
    if (f.at_barrier) f.at_barrier = false, f.state = State::ready;
  }
  waiting_count = 0, votes = 0;
  ++barrier_number;
}

// Steps are counted up to max_step. What came before counts as ordered then, as by a barrier.
void begin_steps_anew() {
  ++barrier_number;
  for (unsigned i = 0; i < thread_count; ++i) memset(fibers[i].seen, 0, sizeof fibers[i].seen);
}

// Each lane begins a new step, and learns which steps of the others have ended.
void join_steps(Fiber* first, unsigned lanes) {
  uint32_t joined[32] = {}, last = 0;
  for (unsigned left = lanes; left; left &= left - 1) {
    int l = __builtin_ctz(left);
    ++first[l].seen[l];  // its own entry is the step it is in
    for (int k = 0; k < 32; ++k)
      if (first[l].seen[k] > joined[k]) joined[k] = first[l].seen[k];
    if (first[l].seen[l] > last) last = first[l].seen[l];
  }
  for (unsigned left = lanes; left; left &= left - 1)
    memcpy(first[__builtin_ctz(left)].seen, joined, sizeof joined);
  if (last == max_step) begin_steps_anew();
}

// A fault that is found when a synchronisation ends, of a lane that took part in it.
void fault_of(Fiber& lane, const char* format, unsigned number) {
  Fiber* held = current;
  current = &lane;
  fault_at(warp_mask, lane.call.file, lane.call.line, format, names[lane.call.kind], number);
  current = held;
}

void exchange(Fiber* first, unsigned lanes) {
  unsigned ballots = 0;
  Fiber& one = first[__builtin_ctz(lanes)];
  if (one.call.kind >= mma && ~lanes)
    fault_of(one, "%s takes the 32 lanes of a warp; there are %u", __builtin_popcount(lanes));
  for (unsigned l = 0; l < 32; ++l)
    if ((lanes >> l & 1) && first[l].call.predicate) ballots |= 1u << l;
  for (unsigned l = 0; l < 32; ++l) {
    if (!(lanes >> l & 1)) continue;
    WarpCall& call = first[l].call;
    if (call.kind >= ballot && call.kind <= all) {
      *(unsigned*)call.out = ballots;
    } else if (call.kind >= shfl && call.kind <= shfl_xor) {
      unsigned source = (unsigned)call.source & 31;
      if (lanes >> source & 1) {
        memcpy(call.out, first[source].call.in, call.size);
        continue;
      }
      fault_of(first[l], "%s reads lane %u, which does not take part", source);
      memset(call.out, 0xff, call.size);
    } else if (call.kind >= reduce && call.size) {
      for (unsigned k = 0; k < 32; ++k)
        if (lanes >> k & 1) memcpy((char*)call.out + k * call.size, first[k].call.in, call.size);
    }
  }
  if (checking && one.call.kind == syncwarp) join_steps(first, lanes);
}

// The lanes of a warp that wait with this mask; `first` is the fiber of its lane 0.
unsigned arrived_with(const Fiber* first, const Warp& warp, unsigned mask) {
  unsigned lanes = 0;
  for (unsigned left = warp.waiting; left; left &= left - 1) {
    int l = __builtin_ctz(left);
    if (first[l].call.mask == mask) lanes |= 1u << l;
  }
  return lanes;
}

void release_if_complete(unsigned number, unsigned mask) {
  Warp& warp = warps[number];
  Fiber* first = &fibers[number * 32];
  unsigned needed = mask & warp.exist & ~warp.ended;
  unsigned lanes = arrived_with(first, warp, mask);
  if (!needed || (lanes & needed) != needed) return;
  exchange(first, lanes);
  warp.waiting &= ~lanes;
  for (unsigned left = lanes; left; left &= left - 1)
    first[__builtin_ctz(left)].state = State::ready;
}

// Lets those go on that ask from one line which lanes are active; true if there are any.
bool release_active_of(unsigned number) {
  Warp& warp = warps[number];
  Fiber* first = &fibers[number * 32];
  unsigned lanes = 0;
  int line = 0;
  for (unsigned left = warp.waiting; left; left &= left - 1) {
    unsigned l = (unsigned)__builtin_ctz(left);
    const WarpCall& call = first[l].call;
    if (call.kind != activemask || (lanes && call.line != line)) continue;
    lanes |= 1u << l, line = call.line;
  }
  warp.waiting &= ~lanes;
  for (unsigned left = lanes; left; left &= left - 1) {
    Fiber& lane = first[__builtin_ctz(left)];
    *(unsigned*)lane.call.out = lanes, lane.state = State::ready;
  }
  return lanes;
}

void sync_warp(const WarpCall& call) {
  if (must_stop) stop_at(call.file, call.line);
  Fiber& me = *current;
  Warp& warp = warps[me.warp];
  Fiber* first = &fibers[me.warp * 32];
  me.call = call;
  if (!(call.mask >> me.lane & 1)) {
    fault_at(warp_mask, call.file, call.line,
             "%s with mask 0x%08x, which leaves out the caller's lane %u", names[call.kind],
             call.mask, me.lane);
    abandon();
  }
  // Lanes that wait for each other in different calls would wait for ever. One that waits without
  // us, or that we do not wait for, may come later.
  for (unsigned left = warp.waiting & call.mask; left; left &= left - 1) {
    unsigned l = (unsigned)__builtin_ctz(left);
    const WarpCall& other = first[l].call;
    if (!(other.mask >> me.lane & 1)) continue;
    if (other.mask == call.mask && other.kind == call.kind && other.line == call.line) continue;
    fault_at(warp_mask, call.file, call.line,
             "%s with mask 0x%08x meets lane %u in %s with mask 0x%08x, line %d", names[call.kind],
             call.mask, l, names[other.kind], other.mask, other.line);
    abandon();
  }
  me.state = State::waiting;
  warp.waiting |= 1u << me.lane;
  if (((warp.waiting ^ call.mask) & call.mask & warp.exist & ~warp.ended) == 0)
    release_if_complete(me.warp, call.mask);
  wait();
}

}  // namespace

bool release_active() {
  bool released = false;
  for (unsigned w = 0; w * 32 < thread_count; ++w) released |= release_active_of(w);
  return released;
}

void start_barriers() {
  waiting_count = 0, votes = 0, barrier_number = 0;
  for (unsigned w = 0; w * 32 < thread_count; ++w) {
    unsigned lanes = thread_count - w * 32;
    warps[w] = {lanes >= 32 ? ~0u : (1u << lanes) - 1, 0, 0};
  }
}

void thread_ended(const Fiber& fiber) {
  Warp& warp = warps[fiber.warp];
  warp.ended |= 1u << fiber.lane;
  if (waiting_count && waiting_count == live_threads) release_barrier();
  const Fiber* first = &fibers[fiber.warp * 32];
  for (unsigned left = warp.waiting; left; left = left & (left - 1) & warp.waiting)
    release_if_complete(fiber.warp, first[__builtin_ctz(left)].call.mask);
}

// One of the lanes at a barrier of the block, if these are fewer than the lanes of their warp that
// wait elsewhere for them: they are where the others do not come.
static const Fiber* strayed_to_a_barrier(const Fiber& lane) {
  const Fiber* strayed = nullptr;
  int more = 0;
  for (unsigned i = lane.warp * 32; i < thread_count && fibers[i].warp == lane.warp; ++i) {
    if (fibers[i].state != State::waiting) continue;
    more += fibers[i].at_barrier ? -1 : 1;
    if (fibers[i].at_barrier && !strayed) strayed = &fibers[i];
  }
  return more > 0 ? strayed : nullptr;
}

void report_deadlock() {
  const Fiber *barrier = nullptr, *lane = nullptr;
  unsigned at_barrier = 0, in_warp = 0;
  for (unsigned i = 0; i < thread_count; ++i) {
    if (fibers[i].state != State::waiting) continue;
    if (fibers[i].at_barrier) barrier = &fibers[i], ++at_barrier;
    else lane = &fibers[i], ++in_warp;
  }
  current = const_cast<Fiber*>(lane ? lane : barrier);
  if (!current) return;
  const Fiber* strayed = lane ? strayed_to_a_barrier(*lane) : nullptr;
  if (strayed) {
    current = const_cast<Fiber*>(strayed);
    fault_at(divergent_barrier, strayed->file, strayed->line,
             "%s is reached by lanes for which others wait in %s (mask 0x%08x), line %d",
             names[strayed->kind], names[lane->call.kind], lane->call.mask, lane->call.line);
  } else if (lane)
    fault_at(warp_mask, lane->call.file, lane->call.line,
             "%u lanes wait in %s (mask 0x%08x) for lanes that never come; %u threads wait at %s",
             in_warp, names[lane->call.kind], lane->call.mask, at_barrier,
             barrier ? names[barrier->kind] : "no barrier");
  else
    fault_at(divergent_barrier, barrier->file, barrier->line, "%u threads wait at %s for ever",
             at_barrier, names[barrier->kind]);
  current = nullptr;
}

}  // namespace sim

using namespace sim;

SIM_API int sim_barrier(int kind, int predicate, const char* file, int line, int column) {
  if (must_stop) stop_at(file, line);
  Fiber& me = *current;
  me.at_barrier = true, me.state = State::waiting;
  me.kind = kind, me.line = line, me.column = column, me.file = file;
  ++waiting_count;
  votes += predicate != 0;
  if (waiting_count == live_threads) release_barrier();
  wait();
  return outcome;
}

// The lanes that come here before they or others can go on in any other way: those that a warp which
// keeps together would bring. A warp whose lanes are all here goes on at once, others when nothing
// else in the block can run (release_active).
SIM_API unsigned sim_activemask(const char* file, int line) {
  if (must_stop) stop_at(file, line);
  Fiber& me = *current;
  Warp& warp = warps[me.warp];
  unsigned lanes = 0;
  me.call = {0, activemask, line, 0, 0, file, nullptr, &lanes, 0};
  me.state = State::waiting;
  warp.waiting |= 1u << me.lane;
  if (warp.waiting == (warp.exist & ~warp.ended)) release_active_of(me.warp);
  wait();
  return lanes;
}

SIM_API void sim_syncwarp(unsigned mask, const char* file, int line) {
  sync_warp({mask, syncwarp, line, 0, 0, file, nullptr, nullptr, 0});
}

SIM_API unsigned sim_vote(unsigned mask, int predicate, int kind, const char* file, int line) {
  unsigned lanes = 0;
  sync_warp({mask, kind, line, 0, predicate, file, nullptr, &lanes, 0});
  return lanes;
}

SIM_API void sim_exchange(unsigned mask, const void* in, void* out, size_t size, int source,
                          int kind, const char* file, int line) {
  sync_warp({mask, kind, line, source, 0, file, in, out, size});
}

SIM_API void sim_gather(unsigned mask, const void* in, void* out, size_t size, int kind,
                        const char* file, int line) {
  sync_warp({mask, kind, line, 0, 0, file, in, out, size});
}

SIM_API void sim_matrix(const void* p, size_t row_bytes, int kind, const char* file, int line) {
  if ((size_t)p % 32 == 0 && row_bytes % 16 == 0)
    return sync_warp({~0u, kind, line, 0, 0, file, nullptr, nullptr, 0});
  fault_at(misaligned, file, line,
           "%s takes a multiple of 32 as its address and rows of a multiple of 16 bytes; these are "
           "%p and %zu",
           names[kind], p, row_bytes);
  abandon();
}
