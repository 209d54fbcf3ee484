// Of the standard library what NVRTC knows without a header (std), and a little of cuda::std, which
// its users get with CCCL's headers.
#pragma once

namespace std {
template <typename T> struct sim_bare { typedef T type; };
template <typename T> struct sim_bare<T&> { typedef T type; };
template <typename T> struct sim_bare<T&&> { typedef T type; };
template <typename T> constexpr typename sim_bare<T>::type&& move(T&& x) noexcept {
  return static_cast<typename sim_bare<T>::type&&>(x);
}
template <typename T> constexpr T&& forward(typename sim_bare<T>::type& x) noexcept {
  return static_cast<T&&>(x);
}
template <typename T> constexpr T&& forward(typename sim_bare<T>::type&& x) noexcept {
  return static_cast<T&&>(x);
}
}  // namespace std
