// cub::WarpReduce: the sum of a warp's values, or of a part of it, for its first lane.
#pragma once
#include "../sim_cub.h"

namespace cub {
template <typename T, int Lanes = 32> class WarpReduce {
 public:
  struct TempStorage {};
  SIM_MEMBER WarpReduce(TempStorage&) {}

  template <typename Op> SIM_MEMBER T Reduce(T input, Op op, int valid, SIM_WHERE) {
    T all[32];
    unsigned first = sim_lane / Lanes * Lanes;
    sim_gather((Lanes == 32 ? ~0u : (1u << Lanes % 32) - 1) << first, &input, all, sizeof(T),
               SIM_REDUCE, SIM_HERE);
    if (sim_lane != first) return sim_no_result<T>();
    T sum = all[first];
    for (int k = 1; k < valid; ++k) sum = op(sum, all[first + k]);
    return sum;
  }
  template <typename Op> SIM_MEMBER T Reduce(T input, Op op, SIM_WHERE) {
    return Reduce(input, op, Lanes, SIM_HERE);
  }
  SIM_MEMBER T Sum(T input, SIM_WHERE) { return Reduce(input, sim_plus(), Lanes, SIM_HERE); }
  SIM_MEMBER T Sum(T input, int valid, SIM_WHERE) {
    return Reduce(input, sim_plus(), valid, SIM_HERE);
  }
};
}  // namespace cub
