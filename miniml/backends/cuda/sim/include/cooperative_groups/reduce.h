// cooperative_groups::reduce: every member gets the sum, in the order of a butterfly's leaves.
#pragma once
#include "../cooperative_groups.h"

namespace cooperative_groups {
#define SIM_GROUP_OPERATION(NAME, RESULT)                      \
  template <typename T> struct NAME {                          \
    T operator()(T x, T y) const { return (T)(RESULT); }       \
  };
SIM_GROUP_OPERATION(plus, x + y)
SIM_GROUP_OPERATION(less, y < x ? y : x)
SIM_GROUP_OPERATION(greater, x < y ? y : x)
SIM_GROUP_OPERATION(bit_and, x & y)
SIM_GROUP_OPERATION(bit_or, x | y)
SIM_GROUP_OPERATION(bit_xor, x ^ y)

// The values of all members by rank.
template <typename T>
SIM_UNCHECKED inline unsigned sim_gathered(const sim_lanes& group, T value, T* ranked,
                                           const char* file, int line) {
  T all[32];
  sim_gather(group.mask, &value, all, sizeof(T), SIM_REDUCE, file, line);
  unsigned count = 0;
  for (unsigned left = group.mask; left; left &= left - 1) ranked[count++] = all[__builtin_ctz(left)];
  return count;
}
template <typename Group, typename T, typename Op>
T reduce(const Group& group, T value, Op op, SIM_WHERE) {
  T all[32];
  unsigned count = sim_gathered(group, value, all, SIM_HERE);
  for (unsigned step = 1; step < count; step *= 2)
    for (unsigned k = 0; k + step < count; k += 2 * step) all[k] = op(all[k], all[k + step]);
  return all[0];
}
}  // namespace cooperative_groups
