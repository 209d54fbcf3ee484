// Barriers, and the functions that synchronise the lanes of a warp: votes, shuffles, reductions.
#pragma once

// In the order of the runtime's names for them (barriers.cpp).
enum sim_sync_point {
  SIM_SYNCTHREADS, SIM_SYNCTHREADS_COUNT, SIM_SYNCTHREADS_AND, SIM_SYNCTHREADS_OR,
  SIM_SYNCWARP, SIM_BALLOT, SIM_ANY, SIM_ALL, SIM_SHFL, SIM_SHFL_UP, SIM_SHFL_DOWN, SIM_SHFL_XOR,
  SIM_REDUCE, SIM_MATCH, SIM_ACTIVEMASK, SIM_MMA, SIM_LOAD_MATRIX, SIM_STORE_MATRIX
};

extern "C" {
int sim_barrier(int kind, int predicate, const char* file, int line, int column);
void sim_syncwarp(unsigned mask, const char* file, int line);
unsigned sim_activemask(const char* file, int line);
// The lanes of `mask` whose predicate holds.
unsigned sim_vote(unsigned mask, int predicate, int kind, const char* file, int line);
// out = the source lane's `in`, `size` bytes.
void sim_exchange(unsigned mask, const void* in, void* out, size_t size, int source, int kind,
                  const char* file, int line);
// out[0..31] = every lane's `in`; what lanes outside `mask` would give is left as it is.
void sim_gather(unsigned mask, const void* in, void* out, size_t size, int kind, const char* file,
                int line);
}

#define SIM_BARRIER(T, NAME, ARGUMENTS, KIND, PREDICATE)                \
  SIM_UNCHECKED SIM_INLINE T NAME ARGUMENTS {                           \
    return (T)sim_barrier(KIND, PREDICATE, SIM_HERE, SIM_ITS_COLUMN);   \
  }
SIM_BARRIER(void, __syncthreads, (SIM_WHERE, SIM_COLUMN), SIM_SYNCTHREADS, 0)
SIM_BARRIER(int, __syncthreads_count, (int p, SIM_WHERE, SIM_COLUMN), SIM_SYNCTHREADS_COUNT, p)
SIM_BARRIER(int, __syncthreads_and, (int p, SIM_WHERE, SIM_COLUMN), SIM_SYNCTHREADS_AND, p)
SIM_BARRIER(int, __syncthreads_or, (int p, SIM_WHERE, SIM_COLUMN), SIM_SYNCTHREADS_OR, p)
SIM_INLINE void __syncwarp(unsigned mask = 0xffffffffu, SIM_WHERE) { sim_syncwarp(mask, SIM_HERE); }
SIM_INLINE unsigned __activemask(SIM_WHERE) { return sim_activemask(SIM_HERE); }
SIM_INLINE unsigned __ballot_sync(unsigned mask, int p, SIM_WHERE) {
  return sim_vote(mask, p, SIM_BALLOT, SIM_HERE);
}
SIM_INLINE int __any_sync(unsigned mask, int p, SIM_WHERE) {
  return sim_vote(mask, p, SIM_ANY, SIM_HERE) != 0;
}
SIM_INLINE int __all_sync(unsigned mask, int p, SIM_WHERE) {
  return sim_vote(mask, !p, SIM_ALL, SIM_HERE) == 0;
}

template <typename T>
SIM_UNCHECKED static inline T sim_shuffle(unsigned mask, T value, int source, int kind,
                                          const char* file, int line) {
  static_assert(sizeof(T) <= 8, "shuffles move 4 or 8 bytes");
  T result;
  sim_exchange(mask, &value, &result, sizeof(T), source, kind, file, line);
  return result;
}
template <typename T>
SIM_INLINE T __shfl_sync(unsigned mask, T value, int source, int width = 32, SIM_WHERE) {
  int lane = (int)sim_lane;
  return sim_shuffle(mask, value, (lane & ~(width - 1)) | (source & (width - 1)), SIM_SHFL,
                     SIM_HERE);
}
template <typename T>
SIM_INLINE T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, SIM_WHERE) {
  int lane = (int)sim_lane, within = lane & (width - 1);
  return sim_shuffle(mask, value, within >= (int)delta ? lane - (int)delta : lane, SIM_SHFL_UP,
                     SIM_HERE);
}
template <typename T>
SIM_INLINE T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, SIM_WHERE) {
  int lane = (int)sim_lane, within = lane & (width - 1);
  return sim_shuffle(mask, value, within + (int)delta < width ? lane + (int)delta : lane,
                     SIM_SHFL_DOWN, SIM_HERE);
}
template <typename T>
SIM_INLINE T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32, SIM_WHERE) {
  int lane = (int)sim_lane, source = lane ^ bits;
  return sim_shuffle(mask, value, source <= (lane | (width - 1)) ? source : lane, SIM_SHFL_XOR,
                     SIM_HERE);
}

#define SIM_REDUCE_SYNC(NAME, T, NEXT)                                     \
  SIM_UNCHECKED static inline __attribute__((unused)) T __reduce_##NAME##_sync( \
      unsigned mask, T value, SIM_WHERE) {                                 \
    T all[32];                                                             \
    sim_gather(mask, &value, all, sizeof(T), SIM_REDUCE, SIM_HERE);        \
    T r = value;                                                           \
    bool first = true;                                                     \
    for (int i = 0; i < 32; ++i) {                                         \
      if (!(mask >> i & 1)) continue;                                      \
      T x = all[i];                                                        \
      r = first ? x : (T)(NEXT);                                           \
      first = false;                                                       \
    }                                                                      \
    return r;                                                              \
  }
SIM_REDUCE_SYNC(add, unsigned, r + x)
SIM_REDUCE_SYNC(add, int, (unsigned)r + (unsigned)x)
SIM_REDUCE_SYNC(min, unsigned, r < x ? r : x)
SIM_REDUCE_SYNC(min, int, r < x ? r : x)
SIM_REDUCE_SYNC(max, unsigned, r > x ? r : x)
SIM_REDUCE_SYNC(max, int, r > x ? r : x)
SIM_REDUCE_SYNC(and, unsigned, r & x)
SIM_REDUCE_SYNC(or, unsigned, r | x)
SIM_REDUCE_SYNC(xor, unsigned, r ^ x)

template <typename T>
SIM_UNCHECKED static inline unsigned __match_any_sync(unsigned mask, T value, SIM_WHERE) {
  T all[32];
  sim_gather(mask, &value, all, sizeof(T), SIM_MATCH, SIM_HERE);
  unsigned equal = 0;
  for (int i = 0; i < 32; ++i)
    if ((mask >> i & 1) && all[i] == value) equal |= 1u << i;
  return equal;
}
template <typename T>
SIM_UNCHECKED static inline unsigned __match_all_sync(unsigned mask, T value, int* all_equal,
                                                      SIM_WHERE) {
  *all_equal = __match_any_sync(mask, value, SIM_HERE) == mask;
  return *all_equal ? mask : 0;
}
