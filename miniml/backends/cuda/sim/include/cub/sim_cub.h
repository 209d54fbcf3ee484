// What cub's headers share here: the number of a thread in its block, and its scratch memory.
//
// The primitives compute in the order of threads, and give no more than cub promises: where only
// the first thread gets a result, the others get bytes of 0xff.
#pragma once
#include "../cuda/std/sim_core.h"

namespace cub {
template <typename T, int N> struct sim_storage {
  struct alignas(T) TempStorage {
    char raw[sizeof(T) * N];
    SIM_MEMBER T* values() { return (T*)raw; }
  };
};
template <typename T> SIM_UNCHECKED inline T sim_no_result() {
  union U {
    T value;
    U() {}
  } u;
  __builtin_memset(&u, 0xff, sizeof u);
  return u.value;
}
struct sim_plus {
  template <typename T> T operator()(const T& x, const T& y) const { return (T)(x + y); }
};
template <typename Op, typename T, int N> inline T sim_fold(Op op, T (&items)[N]) {
  T sum = items[0];
  for (int k = 1; k < N; ++k) sum = op(sum, items[k]);
  return sum;
}
}  // namespace cub
