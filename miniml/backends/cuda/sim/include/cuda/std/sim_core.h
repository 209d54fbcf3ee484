// What <cuda/std/...> and cub's headers share here: integers, limits, traits, functions as objects.
#pragma once

namespace cuda {
namespace std {
using ::std::forward;
using ::std::move;
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long uint64_t;
using ::ptrdiff_t;
using ::size_t;

template <typename T> constexpr const T& max(const T& x, const T& y) { return x < y ? y : x; }
template <typename T> constexpr const T& min(const T& x, const T& y) { return y < x ? y : x; }
template <typename T> constexpr const T& clamp(const T& x, const T& low, const T& high) {
  return x < low ? low : high < x ? high : x;
}
template <typename T> SIM_ALWAYS_INLINE void swap(T& x, T& y) {
  T held = x;
  x = y, y = held;
}

template <typename T, T V> struct integral_constant {
  static constexpr T value = V;
  typedef T value_type;
  constexpr operator T() const { return V; }
};
typedef integral_constant<bool, true> true_type;
typedef integral_constant<bool, false> false_type;
template <typename A, typename B> struct is_same : false_type {};
template <typename A> struct is_same<A, A> : true_type {};
template <typename A, typename B> constexpr bool is_same_v = is_same<A, B>::value;
template <bool C, typename A, typename B> struct conditional { typedef A type; };
template <typename A, typename B> struct conditional<false, A, B> { typedef B type; };
template <bool C, typename A, typename B>
using conditional_t = typename conditional<C, A, B>::type;
template <bool C, typename T = void> struct enable_if {};
template <typename T> struct enable_if<true, T> { typedef T type; };
template <bool C, typename T = void> using enable_if_t = typename enable_if<C, T>::type;
template <typename T> struct remove_cv : ::sim_unqualified<T> {};
template <typename T> using remove_cv_t = typename remove_cv<T>::type;
template <typename T> struct remove_reference : ::std::sim_bare<T> {};
template <typename T> using remove_reference_t = typename remove_reference<T>::type;
template <typename T> constexpr bool sim_is_number = ::sim_kind<remove_cv_t<T>>::value != 's';
template <typename T> struct is_floating_point
    : integral_constant<bool, ::sim_kind<remove_cv_t<T>>::value == 'f'> {};
template <typename T> struct is_integral
    : integral_constant<bool, sim_is_number<T> && ::sim_kind<remove_cv_t<T>>::value != 'f' &&
                                  ::sim_kind<remove_cv_t<T>>::value != 'v'> {};
template <typename T> constexpr bool is_floating_point_v = is_floating_point<T>::value;
template <typename T> constexpr bool is_integral_v = is_integral<T>::value;

template <typename T> struct numeric_limits { static constexpr bool is_specialized = false; };
#define SIM_LIMITS(T, LOW, HIGH, SMALLEST, EPSILON, INFINITE)             \
  template <> struct numeric_limits<T> {                                  \
    static constexpr bool is_specialized = true;                          \
    static constexpr bool is_integer = is_integral_v<T>;                  \
    static constexpr bool is_signed = (T)-1 < (T)1;                       \
    static constexpr bool has_infinity = !is_integer;                     \
    static constexpr T lowest() { return LOW; }                           \
    static constexpr T min() { return SMALLEST; }                         \
    static constexpr T max() { return HIGH; }                             \
    static constexpr T epsilon() { return EPSILON; }                      \
    static constexpr T infinity() { return INFINITE; }                    \
    static constexpr T quiet_NaN() {                                      \
      return has_infinity ? (T)__builtin_nanf("") : (T)0;                 \
    }                                                                     \
  };
#define SIM_LIMITS_SIGNED(T, HIGH) SIM_LIMITS(T, (T)(-HIGH - 1), HIGH, (T)(-HIGH - 1), 0, 0)
#define SIM_LIMITS_UNSIGNED(T) SIM_LIMITS(T, 0, (T)~(T)0, 0, 0, 0)
SIM_LIMITS_SIGNED(signed char, __SCHAR_MAX__)
SIM_LIMITS_SIGNED(char, __SCHAR_MAX__)
SIM_LIMITS_SIGNED(short, __SHRT_MAX__)
SIM_LIMITS_SIGNED(int, __INT_MAX__)
SIM_LIMITS_SIGNED(long, __LONG_MAX__)
SIM_LIMITS_SIGNED(long long, __LONG_LONG_MAX__)
SIM_LIMITS_UNSIGNED(unsigned char)
SIM_LIMITS_UNSIGNED(unsigned short)
SIM_LIMITS_UNSIGNED(unsigned)
SIM_LIMITS_UNSIGNED(unsigned long)
SIM_LIMITS_UNSIGNED(unsigned long long)
SIM_LIMITS(bool, false, true, false, false, false)
SIM_LIMITS(float, -__FLT_MAX__, __FLT_MAX__, __FLT_MIN__, __FLT_EPSILON__, __builtin_inff())
SIM_LIMITS(double, -__DBL_MAX__, __DBL_MAX__, __DBL_MIN__, __DBL_EPSILON__, __builtin_inf())

#define SIM_OPERATION(NAME, RESULT)                                        \
  template <typename T = void> struct NAME {                               \
    constexpr T operator()(const T& x, const T& y) const { return RESULT; } \
  };                                                                       \
  template <> struct NAME<void> {                                          \
    template <typename A, typename B>                                      \
    constexpr auto operator()(const A& x, const B& y) const { return RESULT; } \
  };
SIM_OPERATION(plus, x + y)
SIM_OPERATION(minus, x - y)
SIM_OPERATION(multiplies, x * y)
SIM_OPERATION(bit_and, x & y)
SIM_OPERATION(bit_or, x | y)
SIM_OPERATION(bit_xor, x ^ y)
#undef SIM_OPERATION
}  // namespace std
#define SIM_EXTREME(NAME, OP)                                              \
  template <typename T = void> struct NAME {                               \
    constexpr T operator()(const T& x, const T& y) const { return y OP x ? y : x; } \
  };                                                                       \
  template <> struct NAME<void> {                                          \
    template <typename A> constexpr A operator()(const A& x, const A& y) const { \
      return y OP x ? y : x;                                               \
    }                                                                      \
  };
SIM_EXTREME(maximum, >)
SIM_EXTREME(minimum, <)
}  // namespace cuda
