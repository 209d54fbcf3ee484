// cooperative_groups::inclusive_scan and exclusive_scan over the members of a warp's group.
#pragma once
#include "reduce.h"

namespace cooperative_groups {
template <typename Group, typename T, typename Op>
T sim_scan(const Group& group, T value, Op op, bool own, const char* file, int line) {
  T all[32];
  sim_gathered(group, value, all, file, line);
  unsigned count = group.thread_rank() + own;
  T sum = count ? all[0] : T();
  for (unsigned k = 1; k < count; ++k) sum = op(sum, all[k]);
  return sum;
}
template <typename Group, typename T, typename Op>
T inclusive_scan(const Group& group, T value, Op op, SIM_WHERE) {
  return sim_scan(group, value, op, true, SIM_HERE);
}
template <typename Group, typename T> T inclusive_scan(const Group& group, T value, SIM_WHERE) {
  return sim_scan(group, value, plus<T>(), true, SIM_HERE);
}
template <typename Group, typename T, typename Op>
T exclusive_scan(const Group& group, T value, Op op, SIM_WHERE) {
  return sim_scan(group, value, op, false, SIM_HERE);
}
template <typename Group, typename T> T exclusive_scan(const Group& group, T value, SIM_WHERE) {
  return sim_scan(group, value, plus<T>(), false, SIM_HERE);
}
}  // namespace cooperative_groups
