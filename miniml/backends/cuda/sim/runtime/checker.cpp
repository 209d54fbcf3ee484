// The checker: every load and store of a kernel comes here before it happens.
//
// Two accesses of one place, one of them a write, race unless something orders them: a barrier of
// the block, a __syncwarp() in which both lanes met, or, between blocks, an atomic after a
// __threadfence() that an atomic of the other block has read. For each place the last write and
// two reads since are kept: of two warps if several read it, so that whoever writes meets a read
// of another warp, else of two lanes.
#include "runtime.h"

#include <link.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <unordered_map>
#include <vector>

extern "C" sim::Index sim_thread_index, sim_block_index, sim_grid_extent, sim_block_extent;
extern "C" unsigned sim_lane;
extern "C" char* sim_dynamic_shared;

namespace sim {

bool checking, out_of_memory;
unsigned block_number;

namespace {

struct Access {
  unsigned block, barrier;          // barrier: those passed before it
  unsigned thread : 10, step : 22;  // step: of its lane, see join_steps
  uint32_t pc;                      // as an offset in the module
};
struct Cell {
  Access write, reads[2];
  unsigned owner;  // the block, plus one, that the contents of shared memory belong to
  bool written : 1, written_tolerantly : 1, written_atomically : 1;
  bool read[2];
};
struct Region {
  Buffer buffer;
  int number;   // of the buffer, as the Python side counts
  Cell* cells;  // one for each 1 << shift bytes
  unsigned shift;
  size_t cell_count() const { return ((buffer.bytes - 1) >> shift) + 1; }
};
struct Range {
  const char *low, *high;
};

constexpr int max_ranges = 16;
std::vector<Region> regions;  // by address
Region* recent[2];
Range readable[max_ranges];  // threadIdx and its like, and the module's constants
int readable_count;
const char* module_low;

// Blocks between which an atomic has carried an order: who published at an address, and for each
// block the last block (plus one) that has seen it publish.
std::unordered_map<const void*, std::vector<unsigned>> published;
std::vector<unsigned> seen_by;

template <typename T> void allow_reading(const T& value) {
  readable[readable_count++] = {(const char*)&value, (const char*)(&value + 1)};
}

// g++ does not check reads of what is declared constant, clang does.
void allow_reading_indices() {
  allow_reading(sim_thread_index), allow_reading(sim_block_index);
  allow_reading(sim_block_extent), allow_reading(sim_grid_extent);
  allow_reading(sim_lane), allow_reading(sim_dynamic_shared);
}

int find_module(dl_phdr_info* info, size_t, void* inside) {
  uintptr_t at = (uintptr_t)inside, low = ~(uintptr_t)0, high = 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& part = info->dlpi_phdr[i];
    if (part.p_type != PT_LOAD) continue;
    uintptr_t start = info->dlpi_addr + part.p_vaddr, end = start + part.p_memsz;
    if (start < low) low = start;
    if (end > high) high = end;
  }
  if (at < low || at >= high) return 0;
  module_low = (const char*)low;
  for (int i = 0; i < info->dlpi_phnum && readable_count < max_ranges; ++i) {
    const auto& part = info->dlpi_phdr[i];
    bool constant =
        (part.p_type == PT_LOAD && !(part.p_flags & PF_W)) || part.p_type == PT_GNU_RELRO;
    const char* start = (const char*)(info->dlpi_addr + part.p_vaddr);
    if (constant) readable[readable_count++] = {start, start + part.p_memsz};
  }
  return 1;
}

// No memory for the checker's own notes: not the kernel's fault.
void* notes(size_t count, size_t size) {
  void* memory = calloc(count, size);
  if (memory) return memory;
  out_of_memory = true;
  abandon();
}

bool is_write(Touch how) { return how != Touch::read && how != Touch::volatile_read; }
bool is_atomic(Touch how) { return how == Touch::atomic || how == Touch::atomic_write; }
const char* verb(Touch how) { return is_atomic(how) ? "atomic" : is_write(how) ? "write" : "read"; }

// Atomics do not race among themselves. Nor do volatile accesses of global memory, where blocks
// wait for flags; in shared memory they order nothing between the lanes of a warp.
bool tolerates(Touch how, bool is_shared) {
  bool is_volatile = how == Touch::volatile_read || how == Touch::volatile_write;
  return is_atomic(how) || (is_volatile && !is_shared);
}

bool ordered(const Access& before) {
  if (before.block != block_number)
    return before.block < seen_by.size() && seen_by[before.block] == block_number + 1;
  if (before.thread == current->number || before.barrier != barrier_number) return true;
  // The lane's step had ended where a __syncwarp() told this thread of it.
  return before.thread / 32u == current->warp && current->seen[before.thread % 32] > before.step;
}

void report_race(const Region& region, size_t offset, const char* now_does, const char* then_did,
                 const Access& then, const void* pc) {
  unsigned block = then.block, thread = then.thread;
  Index grid = sim_grid_extent, extent = sim_block_extent;
  fault_in(region.number, race, pc, module_low + then.pc,
        "%s of %s, byte %zu, races with the %s by block (%u,%u,%u) thread (%u,%u,%u)", now_does,
        region.buffer.name, offset, then_did, block % grid.x, block / grid.x % grid.y,
        block / grid.x / grid.y, thread % extent.x, thread / extent.x % extent.y,
        thread / extent.x / extent.y);
}

bool of_one_warp(const Access& a, const Access& b) {
  return a.block == b.block && a.thread / 32u == b.thread / 32u;
}

void keep_read(Cell& cell, const Access& me) {
  int slot = 0;
  for (; slot < 2; ++slot)
    if (!cell.read[slot] || ordered(cell.reads[slot])) break;
  if (slot == 2) {
    if (!of_one_warp(cell.reads[0], cell.reads[1]) || of_one_warp(cell.reads[0], me)) return;
    slot = 1;
  }
  cell.reads[slot] = me, cell.read[slot] = true;
}

void check_races(const Region& region, Cell& cell, size_t offset, Touch how, const void* pc) {
  Access me = {block_number, barrier_number, current->number, current->seen[current->lane],
               (uint32_t)((const char*)pc - module_low)};
  bool tolerant = tolerates(how, region.buffer.is_shared);
  if (cell.written && !(tolerant && cell.written_tolerantly) && !ordered(cell.write)) {
    report_race(region, offset, verb(how), cell.written_atomically ? "atomic" : "write", cell.write,
                pc);
    cell.written = cell.read[0] = cell.read[1] = false;
  }
  if (!is_write(how)) {
    if (!tolerant) keep_read(cell, me);
    return;
  }
  for (int i = 0; i < 2; ++i) {
    if (!cell.read[i] || ordered(cell.reads[i])) continue;
    report_race(region, offset, verb(how), "read", cell.reads[i], pc);
    cell.read[0] = cell.read[1] = false;
  }
  cell.write = me, cell.written = true;
  cell.written_tolerantly = tolerant, cell.written_atomically = is_atomic(how);
  if (!tolerant) cell.read[0] = cell.read[1] = false;
}

// Cells half as large, where an access does not fill the present ones.
void refine(Region& region) {
  size_t count = region.cell_count();
  Cell* halves = (Cell*)notes(2 * count, sizeof(Cell));
  for (size_t i = 0; i < count; ++i) halves[2 * i] = halves[2 * i + 1] = region.cells[i];
  free(region.cells);
  region.cells = halves, --region.shift;
}

void poison(Region& region) { memset(region.buffer.start, 0xff, region.buffer.bytes); }

void begin_using(Region& region) {
  region.cells = (Cell*)notes(region.cell_count(), sizeof(Cell));
  if (region.buffer.is_shared) poison(region);
}

void check_initialised(Region& region, size_t offset, size_t bytes, Touch how, const void* pc) {
  bool reads = !is_write(how) || how == Touch::atomic;
  if (region.buffer.is_shared) {
    for (size_t c = offset >> region.shift; c <= (offset + bytes - 1) >> region.shift; ++c) {
      Cell& cell = region.cells[c];
      if (cell.owner == block_number + 1) continue;
      cell = Cell();
      cell.owner = block_number + 1;  // reported once, then taken for written
      if (reads)
        fault_in(region.number, uninitialised, pc, nullptr,
                 "%s of %s, byte %zu, which the block has not written", verb(how),
                 region.buffer.name, offset);
    }
  } else if (region.buffer.initialised) {
    uint8_t* known = region.buffer.initialised + offset;
    if (reads && memchr(known, 0, bytes))
      fault_in(region.number, uninitialised, pc, nullptr,
               "%s of %s, byte %zu, which nothing has written", verb(how), region.buffer.name,
               offset);
    memset(known, 1, bytes);
  }
}

Region* find_region(const char* p) {
  for (Region* region : recent)
    if (region && (size_t)(p - region->buffer.start) < region->buffer.bytes) return region;
  auto past = std::upper_bound(regions.begin(), regions.end(), p,
                               [](const char* at, const Region& r) { return at < r.buffer.start; });
  if (past == regions.begin()) return nullptr;
  Region* region = &*(past - 1);
  if ((size_t)(p - region->buffer.start) >= region->buffer.bytes) return nullptr;
  recent[1] = recent[0], recent[0] = region;
  return region;
}

// An access outside of everything the kernel was given.
void check_stray(const char* p, size_t bytes, Touch how, const void* pc) {
  for (int i = 0; i < readable_count; ++i) {
    if (p < readable[i].low || p >= readable[i].high) continue;
    if (!is_write(how)) return;
    fault(const_write, pc, nullptr, "%s of %zu bytes of constant data", verb(how), bytes);
    abandon();
  }
  if (in_stacks(p)) {
    fault(out_of_bounds, pc, nullptr, "%s of %zu bytes of another thread's local variables",
          verb(how), bytes);
    abandon();
  }
  const Region* nearest = nullptr;
  size_t distance = ~(size_t)0;
  for (const Region& region : regions) {
    const Buffer& b = region.buffer;
    size_t d = p < b.start ? (size_t)(b.start - p) : (size_t)(p - b.start) - b.bytes;
    if (d < distance) distance = d, nearest = &region;
  }
  if (p < (const char*)4096)
    fault(out_of_bounds, pc, nullptr, "%s of %zu bytes through a null pointer", verb(how), bytes);
  else if (nearest)
    fault_in(nearest->number, out_of_bounds, pc, nullptr,
             "%s of %zu bytes, %zu bytes %s %s (%llu bytes)", verb(how), bytes, distance,
             p < nearest->buffer.start ? "before the start of" : "past the end of",
             nearest->buffer.name, (unsigned long long)nearest->buffer.bytes);
  else
    fault(out_of_bounds, pc, nullptr, "%s of %zu bytes at %p", verb(how), bytes, (const void*)p);
  abandon();
}

}  // namespace

void start_checking(const Buffer* buffers, int count, const void* module) {
  checking = true;
  regions.clear(), readable_count = 0, recent[0] = recent[1] = nullptr;
  for (int i = 0; i < count; ++i) {
    unsigned shift = (unsigned)__builtin_ctz((unsigned)buffers[i].granule);
    if (buffers[i].bytes) regions.push_back({buffers[i], i, nullptr, shift});
  }
  std::sort(regions.begin(), regions.end(),
            [](const Region& a, const Region& b) { return a.buffer.start < b.buffer.start; });
  allow_reading_indices();
  dl_iterate_phdr(find_module, const_cast<void*>(module));
  published.clear(), seen_by.clear();
}

void stop_checking() {
  for (Region& region : regions) free(region.cells);
  regions.clear(), checking = false;
}

// What a block left in shared memory is not there for the next. Arrays that no block of this
// launch has used are left alone: a unit may hold those of many kernels.
void start_block_checking() {
  for (Region& region : regions)
    if (region.buffer.is_shared && region.cells) poison(region);
}

uint64_t touched_shared_bytes() {
  uint64_t sum = 0;
  for (const Region& region : regions)
    if (region.buffer.is_shared && region.cells && region.buffer.start != sim_dynamic_shared)
      sum += region.buffer.bytes;
  return sum;
}

// aligned: the address must be a multiple of the size, as of numbers and CUDA's vectors.
void touch(const void* address, size_t bytes, Touch how, const void* pc, bool aligned) {
  if (!checking || !current || !bytes) return;
  const char* p = (const char*)address;
  if (on_stack(*current, p)) return;
  if (must_stop) stop_here(pc);
  Region* region = find_region(p);
  if (!region) return check_stray(p, bytes, how, pc);
  size_t offset = (size_t)(p - region->buffer.start);
  if (bytes > region->buffer.bytes - offset) {
    fault_in(region->number, out_of_bounds, pc, nullptr,
             "%s of %zu bytes, of which %zu lie past the end of %s (%llu bytes)", verb(how), bytes,
             bytes - (size_t)(region->buffer.bytes - offset), region->buffer.name,
             (unsigned long long)region->buffer.bytes);
    abandon();
  }
  if (aligned && ((uintptr_t)p & (bytes - 1))) {
    fault(misaligned, pc, nullptr, "%s of %zu bytes at byte %zu of %s", verb(how), bytes, offset,
          region->buffer.name);
    abandon();
  }
  if (is_write(how) && region->buffer.is_const) {
    fault(const_write, pc, nullptr, "%s of %s, which a kernel may only read", verb(how),
          region->buffer.name);
    abandon();
  }
  if (!region->cells) begin_using(*region);
  while ((offset | bytes) & (((size_t)1 << region->shift) - 1)) refine(*region);
  check_initialised(*region, offset, bytes, how, pc);
  size_t last = (offset + bytes - 1) >> region->shift;
  for (size_t c = offset >> region->shift; c <= last; ++c)
    check_races(*region, region->cells[c], offset, how, pc);
  if (schedule == 2) maybe_yield();
}

// Between blocks: acquire what was published at this address, and publish what a fence precedes.
static void carry_order(const void* address) {
  auto found = published.find(address);
  if (found != published.end()) {
    size_t blocks = (size_t)sim_grid_extent.x * sim_grid_extent.y * sim_grid_extent.z;
    if (seen_by.size() < blocks) seen_by.resize(blocks);
    for (unsigned block : found->second) seen_by[block] = block_number + 1;
  }
  if (!current->fenced) return;
  auto& list = published[address];
  if (list.empty() || list.back() != block_number) list.push_back(block_number);
}

}  // namespace sim

using namespace sim;

SIM_API void sim_fence() {
  if (current) current->fenced = true;
}

SIM_API void sim_atomic(const void* address, size_t bytes, int reads, const void* caller) {
  if (!checking || !current) return;
  touch(address, bytes, reads ? Touch::atomic : Touch::atomic_write, caller, true);
  carry_order(address);
}
