// cub::BlockStore: each thread writes neighbouring items of an array.
#pragma once
#include "../sim_cub.h"

namespace cub {
enum BlockStoreAlgorithm {
  BLOCK_STORE_DIRECT, BLOCK_STORE_STRIPED, BLOCK_STORE_VECTORIZE, BLOCK_STORE_TRANSPOSE,
  BLOCK_STORE_WARP_TRANSPOSE, BLOCK_STORE_WARP_TRANSPOSE_TIMESLICED
};
template <typename T, int X, int N, BlockStoreAlgorithm A = BLOCK_STORE_DIRECT, int Y = 1,
          int Z = 1>
class BlockStore {
 public:
  typedef typename sim_storage<T, X * Y * Z * N>::TempStorage TempStorage;
  SIM_MEMBER BlockStore(TempStorage&) {}

  SIM_MEMBER void Store(T* to, T (&items)[N], int valid = X * Y * Z * N) {
    int thread = (int)sim_thread_rank();
    for (int k = 0; k < N; ++k) {
      int at = A == BLOCK_STORE_STRIPED ? k * X * Y * Z + thread : thread * N + k;
      if (at < valid) to[at] = items[k];
    }
  }
};
}  // namespace cub
