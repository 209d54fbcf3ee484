// cub::BlockScan: running sums over a block's values, in the order of its threads.
#pragma once
#include "../sim_cub.h"

namespace cub {
enum BlockScanAlgorithm { BLOCK_SCAN_RAKING, BLOCK_SCAN_RAKING_MEMOIZE, BLOCK_SCAN_WARP_SCANS };

template <typename T, int X, BlockScanAlgorithm = BLOCK_SCAN_RAKING, int Y = 1, int Z = 1>
class BlockScan {
 public:
  typedef typename sim_storage<T, X * Y * Z>::TempStorage TempStorage;
  SIM_MEMBER BlockScan(TempStorage& temp) : values(temp.values()) {}

  template <typename Op>
  SIM_MEMBER void InclusiveScan(T input, T& output, Op op, T& all, SIM_WHERE) {
    T before;
    bool first = scan(input, op, before, all, SIM_HERE);
    output = first ? input : op(before, input);
  }
  template <typename Op> SIM_MEMBER void InclusiveScan(T input, T& output, Op op, SIM_WHERE) {
    T all;
    InclusiveScan(input, output, op, all, SIM_HERE);
  }
  template <typename Op>
  SIM_MEMBER void ExclusiveScan(T input, T& output, T initial, Op op, T& all, SIM_WHERE) {
    T before;
    bool first = scan(input, op, before, all, SIM_HERE);
    output = first ? initial : op(initial, before);
  }
  template <typename Op>
  SIM_MEMBER void ExclusiveScan(T input, T& output, T initial, Op op, SIM_WHERE) {
    T all;
    ExclusiveScan(input, output, initial, op, all, SIM_HERE);
  }
  SIM_MEMBER void InclusiveSum(T input, T& output, SIM_WHERE) {
    InclusiveScan(input, output, sim_plus(), SIM_HERE);
  }
  SIM_MEMBER void InclusiveSum(T input, T& output, T& all, SIM_WHERE) {
    InclusiveScan(input, output, sim_plus(), all, SIM_HERE);
  }
  SIM_MEMBER void ExclusiveSum(T input, T& output, SIM_WHERE) {
    ExclusiveScan(input, output, T(), sim_plus(), SIM_HERE);
  }
  SIM_MEMBER void ExclusiveSum(T input, T& output, T& all, SIM_WHERE) {
    ExclusiveScan(input, output, T(), sim_plus(), all, SIM_HERE);
  }
  template <int N> SIM_MEMBER void InclusiveSum(T (&inputs)[N], T (&outputs)[N], SIM_WHERE) {
    T before;
    ExclusiveSum(sim_fold(sim_plus(), inputs), before, SIM_HERE);
    for (int k = 0; k < N; ++k) outputs[k] = before = before + inputs[k];
  }
  template <int N> SIM_MEMBER void ExclusiveSum(T (&inputs)[N], T (&outputs)[N], SIM_WHERE) {
    T before;
    ExclusiveSum(sim_fold(sim_plus(), inputs), before, SIM_HERE);
    for (int k = 0; k < N; ++k) {
      T own = inputs[k];  // the two may be one array
      outputs[k] = before, before = before + own;
    }
  }

 private:
  T* values;

  // before: the sum of the threads before this one, if it is not the first; all: of the block.
  template <typename Op>
  SIM_MEMBER bool scan(T input, Op op, T& before, T& all, const char* file, int line) {
    int thread = (int)sim_thread_rank();
    values[thread] = input;
    sim_barrier(SIM_SYNCTHREADS, 0, file, line, 0);
    T sum = values[0];
    for (int k = 1; k <= X * Y * Z; ++k) {
      if (k == thread) before = sum;
      if (k < X * Y * Z) sum = op(sum, values[k]);
    }
    all = sum;
    return thread == 0;
  }
};
}  // namespace cub
