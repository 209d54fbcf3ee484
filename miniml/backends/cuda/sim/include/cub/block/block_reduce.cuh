// cub::BlockReduce: the sum of a block's values, for its first thread.
#pragma once
#include "../sim_cub.h"

namespace cub {
enum BlockReduceAlgorithm {
  BLOCK_REDUCE_RAKING_COMMUTATIVE_ONLY, BLOCK_REDUCE_RAKING, BLOCK_REDUCE_WARP_REDUCTIONS
};

template <typename T, int X, BlockReduceAlgorithm = BLOCK_REDUCE_WARP_REDUCTIONS, int Y = 1,
          int Z = 1>
class BlockReduce {
 public:
  typedef typename sim_storage<T, X * Y * Z>::TempStorage TempStorage;
  SIM_MEMBER BlockReduce(TempStorage& temp) : values(temp.values()) {}

  template <typename Op> SIM_MEMBER T Reduce(T input, Op op, int valid, SIM_WHERE) {
    int thread = (int)sim_thread_rank();
    values[thread] = input;
    sim_barrier(SIM_SYNCTHREADS, 0, SIM_HERE, 0);
    if (thread) return sim_no_result<T>();
    T sum = values[0];
    for (int k = 1; k < valid; ++k) sum = op(sum, values[k]);
    return sum;
  }
  template <typename Op> SIM_MEMBER T Reduce(T input, Op op, SIM_WHERE) {
    return Reduce(input, op, X * Y * Z, SIM_HERE);
  }
  template <int N, typename Op> SIM_MEMBER T Reduce(T (&inputs)[N], Op op, SIM_WHERE) {
    return Reduce(sim_fold(op, inputs), op, X * Y * Z, SIM_HERE);
  }
  SIM_MEMBER T Sum(T input, SIM_WHERE) { return Reduce(input, sim_plus(), X * Y * Z, SIM_HERE); }
  SIM_MEMBER T Sum(T input, int valid, SIM_WHERE) {
    return Reduce(input, sim_plus(), valid, SIM_HERE);
  }
  template <int N> SIM_MEMBER T Sum(T (&inputs)[N], SIM_WHERE) {
    return Reduce(sim_fold(sim_plus(), inputs), sim_plus(), X * Y * Z, SIM_HERE);
  }

 private:
  T* values;
};
}  // namespace cub
