// cub::WarpScan: running sums over the lanes of a warp, or of a part of it.
#pragma once
#include "../sim_cub.h"

namespace cub {
template <typename T, int Lanes = 32> class WarpScan {
 public:
  struct TempStorage {};
  SIM_MEMBER WarpScan(TempStorage&) {}

  template <typename Op>
  SIM_MEMBER void InclusiveScan(T input, T& output, Op op, SIM_WHERE) {
    T all[32];
    unsigned first = gather(input, all, SIM_HERE);
    T sum = all[first];
    for (unsigned k = first + 1; k <= sim_lane; ++k) sum = op(sum, all[k]);
    output = sum;
  }
  template <typename Op>
  SIM_MEMBER void ExclusiveScan(T input, T& output, T initial, Op op, SIM_WHERE) {
    T all[32], sum = initial;
    for (unsigned k = gather(input, all, SIM_HERE); k < sim_lane; ++k) sum = op(sum, all[k]);
    output = sum;
  }
  SIM_MEMBER void InclusiveSum(T input, T& output, SIM_WHERE) {
    InclusiveScan(input, output, sim_plus(), SIM_HERE);
  }
  SIM_MEMBER void ExclusiveSum(T input, T& output, SIM_WHERE) {
    ExclusiveScan(input, output, T(), sim_plus(), SIM_HERE);
  }

 private:
  SIM_MEMBER unsigned gather(T& input, T* all, const char* file, int line) {
    unsigned first = sim_lane / Lanes * Lanes;
    sim_gather((Lanes == 32 ? ~0u : (1u << Lanes % 32) - 1) << first, &input, all, sizeof(T),
               SIM_REDUCE, file, line);
    return first;
  }
};
}  // namespace cub
