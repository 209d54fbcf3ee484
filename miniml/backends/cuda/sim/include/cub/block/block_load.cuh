// cub::BlockLoad: each thread reads neighbouring items of an array.
#pragma once
#include "../sim_cub.h"

namespace cub {
enum BlockLoadAlgorithm {
  BLOCK_LOAD_DIRECT, BLOCK_LOAD_STRIPED, BLOCK_LOAD_VECTORIZE, BLOCK_LOAD_TRANSPOSE,
  BLOCK_LOAD_WARP_TRANSPOSE, BLOCK_LOAD_WARP_TRANSPOSE_TIMESLICED
};
template <typename T, int X, int N, BlockLoadAlgorithm A = BLOCK_LOAD_DIRECT, int Y = 1, int Z = 1>
class BlockLoad {
 public:
  typedef typename sim_storage<T, X * Y * Z * N>::TempStorage TempStorage;
  SIM_MEMBER BlockLoad(TempStorage&) {}

  SIM_MEMBER void Load(const T* from, T (&items)[N], int valid = X * Y * Z * N) {
    for (int k = 0; k < N; ++k)
      if (place(k) < valid) items[k] = from[place(k)];
  }
  SIM_MEMBER void Load(const T* from, T (&items)[N], int valid, T other) {
    for (int k = 0; k < N; ++k) items[k] = place(k) < valid ? from[place(k)] : other;
  }

 private:
  SIM_MEMBER int place(int k) {
    int thread = (int)sim_thread_rank();
    return A == BLOCK_LOAD_STRIPED ? k * X * Y * Z + thread : thread * N + k;
  }
};
}  // namespace cub
