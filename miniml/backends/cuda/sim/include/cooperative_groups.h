// cooperative_groups: thread blocks, tiles of a warp, lanes that meet. A group is a mask of lanes, or
// the block; its members find each other as the functions of a warp do.
#pragma once

namespace cooperative_groups {

struct grid_group {
  SIM_MEMBER unsigned long long size() const { return num_blocks() * sim_block_extent_count(); }
  SIM_MEMBER unsigned long long num_threads() const { return size(); }
  SIM_MEMBER unsigned long long num_blocks() const {
    return (unsigned long long)gridDim.x * gridDim.y * gridDim.z;
  }
  SIM_MEMBER unsigned long long block_rank() const {
    return ((unsigned long long)blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  }
  SIM_MEMBER unsigned long long thread_rank() const {
    return block_rank() * sim_block_extent_count() + sim_thread_rank();
  }
  SIM_MEMBER dim3 dim_blocks() const { return dim3(gridDim); }
  SIM_MEMBER dim3 group_dim() const { return dim3(gridDim); }
  SIM_MEMBER dim3 block_index() const { return dim3(blockIdx); }
};
SIM_MEMBER grid_group this_grid() { return grid_group(); }

struct thread_block {
  SIM_MEMBER void sync(SIM_WHERE, SIM_COLUMN) const {
    sim_barrier(SIM_SYNCTHREADS, 0, SIM_HERE, SIM_ITS_COLUMN);
  }
  SIM_MEMBER unsigned thread_rank() const { return sim_thread_rank(); }
  SIM_MEMBER unsigned size() const { return sim_block_extent_count(); }
  SIM_MEMBER unsigned num_threads() const { return size(); }
  SIM_MEMBER dim3 group_index() const { return dim3(blockIdx); }
  SIM_MEMBER dim3 thread_index() const { return dim3(threadIdx); }
  SIM_MEMBER dim3 group_dim() const { return dim3(blockDim); }
  SIM_MEMBER dim3 dim_threads() const { return dim3(blockDim); }
};
SIM_MEMBER thread_block this_thread_block() { return thread_block(); }

// Lanes of one warp. Ranks count them from the lowest on.
struct sim_lanes {
  unsigned mask;
  SIM_MEMBER unsigned thread_rank() const {
    return (unsigned)__popc(mask & ((1u << sim_lane) - 1));
  }
  SIM_MEMBER unsigned size() const { return (unsigned)__popc(mask); }
  SIM_MEMBER unsigned num_threads() const { return size(); }
  SIM_MEMBER void sync(SIM_WHERE) const { sim_syncwarp(mask, SIM_HERE); }
  SIM_MEMBER int any(int p, SIM_WHERE) const { return __any_sync(mask, p, SIM_HERE); }
  SIM_MEMBER int all(int p, SIM_WHERE) const { return __all_sync(mask, p, SIM_HERE); }
  SIM_MEMBER unsigned ballot(int p, SIM_WHERE) const {
    return packed(__ballot_sync(mask, p, SIM_HERE));
  }
  template <typename T> SIM_MEMBER unsigned match_any(T value, SIM_WHERE) const {
    return packed(__match_any_sync(mask, value, SIM_HERE));
  }
  template <typename T> SIM_MEMBER unsigned match_all(T value, int& p, SIM_WHERE) const {
    return packed(__match_all_sync(mask, value, &p, SIM_HERE));
  }
  template <typename T> SIM_MEMBER T shfl(T value, unsigned rank, SIM_WHERE) const {
    return moved(value, lane_of(rank % size()), SIM_SHFL, SIM_HERE);
  }
  template <typename T> SIM_MEMBER T shfl_up(T value, unsigned delta, SIM_WHERE) const {
    unsigned rank = thread_rank();
    return moved(value, lane_of(rank >= delta ? rank - delta : rank), SIM_SHFL_UP, SIM_HERE);
  }
  template <typename T> SIM_MEMBER T shfl_down(T value, unsigned delta, SIM_WHERE) const {
    unsigned rank = thread_rank(), from = rank + delta;
    return moved(value, lane_of(from < size() ? from : rank), SIM_SHFL_DOWN, SIM_HERE);
  }
  template <typename T> SIM_MEMBER T shfl_xor(T value, unsigned bits, SIM_WHERE) const {
    unsigned rank = thread_rank(), from = rank ^ bits;
    return moved(value, lane_of(from < size() ? from : rank), SIM_SHFL_XOR, SIM_HERE);
  }

  // The bits of lanes of the group, one beside the other.
  unsigned packed(unsigned lanes) const {
    unsigned bits = 0, rank = 0;
    for (unsigned left = mask; left; left &= left - 1, ++rank)
      bits |= (lanes >> __builtin_ctz(left) & 1) << rank;
    return bits;
  }
  int lane_of(unsigned rank) const {
    unsigned left = mask;
    while (rank--) left &= left - 1;
    return __builtin_ctz(left);
  }
  template <typename T>
  SIM_UNCHECKED T moved(T value, int lane, int kind, const char* file, int line) const {
    T result;
    sim_exchange(mask, &value, &result, sizeof(T), lane, kind, file, line);
    return result;
  }
};

template <unsigned Size, typename Parent = void> struct thread_block_tile : sim_lanes {
  static_assert(Size && (Size & (Size - 1)) == 0 && Size <= 32,
                "the simulator's tiles have 1, 2, 4, 8, 16 or 32 threads");
  thread_block_tile() = default;
  template <typename Other>
  SIM_MEMBER thread_block_tile(const thread_block_tile<Size, Other>& tile) : sim_lanes(tile) {}
  SIM_MEMBER unsigned size() const { return Size; }
  static constexpr unsigned num_threads() { return Size; }
  SIM_MEMBER unsigned meta_group_rank() const { return sim_thread_rank() / Size; }
  SIM_MEMBER unsigned meta_group_size() const {
    return (sim_block_extent_count() + Size - 1) / Size;
  }
};
SIM_MEMBER unsigned sim_tile_mask(unsigned size) {
  return (size >= 32 ? ~0u : (1u << size) - 1) << (sim_lane & ~(size - 1));
}
template <unsigned Size, typename Parent>
SIM_MEMBER thread_block_tile<Size, Parent> tiled_partition(const Parent&) {
  thread_block_tile<Size, Parent> tile;
  tile.mask = sim_tile_mask(Size);
  return tile;
}
struct thread_group : sim_lanes {};
template <typename Parent>
SIM_MEMBER thread_group tiled_partition(const Parent&, unsigned size) {
  thread_group group;
  group.mask = sim_tile_mask(size);
  return group;
}

struct coalesced_group : sim_lanes {};
SIM_MEMBER coalesced_group coalesced_threads(SIM_WHERE) {
  coalesced_group group;
  group.mask = sim_activemask(SIM_HERE);
  return group;
}

template <typename Group> SIM_MEMBER void sync(const Group& group, SIM_WHERE) {
  group.sync(SIM_HERE);
}
SIM_MEMBER void sync(const thread_block&, SIM_WHERE, SIM_COLUMN) {
  sim_barrier(SIM_SYNCTHREADS, 0, SIM_HERE, SIM_ITS_COLUMN);
}
template <typename Group> SIM_MEMBER auto thread_rank(const Group& group) {
  return group.thread_rank();
}
template <typename Group> SIM_MEMBER auto group_size(const Group& group) { return group.size(); }
}  // namespace cooperative_groups
