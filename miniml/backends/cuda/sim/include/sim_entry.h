// SIM_KERNEL(name, bounds...) gives the launcher a kernel's entry, its first bound and the table of
// its parameters.
#pragma once

// kind: p pointer, b bool, i signed, u unsigned, f floating point, s structure, v void.
struct sim_parameter { int kind, size, pointee_kind, pointee_size, pointee_const; };

template <typename T> struct sim_kind { static const char value = 's'; };
#define SIM_KIND(T, K) template <> struct sim_kind<T> { static const char value = K; };
SIM_KIND(void, 'v') SIM_KIND(bool, 'b') SIM_KIND(float, 'f') SIM_KIND(double, 'f')
SIM_KIND(char, 'i') SIM_KIND(signed char, 'i') SIM_KIND(short, 'i') SIM_KIND(int, 'i')
SIM_KIND(long, 'i') SIM_KIND(long long, 'i') SIM_KIND(unsigned char, 'u')
SIM_KIND(unsigned short, 'u') SIM_KIND(unsigned, 'u') SIM_KIND(unsigned long, 'u')
SIM_KIND(unsigned long long, 'u')

template <typename T> struct sim_size { static const int value = (int)sizeof(T); };
template <> struct sim_size<void> { static const int value = 1; };
template <typename T> struct sim_is_const { static const int value = 0; };
template <typename T> struct sim_is_const<const T> { static const int value = 1; };
template <typename T> struct sim_is_const<const volatile T> { static const int value = 1; };

template <typename T> struct sim_describe {
  typedef typename sim_unqualified<T>::type bare;
  static constexpr sim_parameter value = {sim_kind<bare>::value, (int)sizeof(T), 0, 0, 0};
};
template <typename T> struct sim_describe<T*> {
  typedef typename sim_unqualified<T>::type bare;
  static constexpr sim_parameter value = {
      'p', (int)sizeof(T*), sim_kind<bare>::value, sim_size<bare>::value, sim_is_const<T>::value};
};
template <typename T> struct sim_describe<T* const> : sim_describe<T*> {};

template <int... I> struct sim_sequence {};
template <int N, int... I> struct sim_count : sim_count<N - 1, N - 1, I...> {};
template <int... I> struct sim_count<0, I...> { typedef sim_sequence<I...> type; };

// An argument's value, from memory that is none of the kernel's.
template <typename T> SIM_UNCHECKED static inline T sim_argument(const void* from) {
  union U {
    T value;
    U() {}
  } u;
  __builtin_memcpy(&u, from, sizeof(T));
  return u.value;
}
template <typename... A> struct sim_call {
  template <int... I>
  SIM_UNCHECKED static void spread(void (*kernel)(A...), void** arguments, sim_sequence<I...>) {
    kernel(sim_argument<typename sim_unqualified<A>::type>(arguments[I])...);
  }
};
template <typename... A>
SIM_UNCHECKED static void sim_enter(void (*kernel)(A...), void** arguments) {
  sim_call<A...>::spread(kernel, arguments, typename sim_count<(int)sizeof...(A)>::type());
}
template <typename... A> static int sim_parameters(void (*)(A...), sim_parameter* table) {
  const sim_parameter all[] = {sim_describe<A>::value..., {0, 0, 0, 0, 0}};
  for (int i = 0; i < (int)sizeof...(A); ++i) table[i] = all[i];
  return (int)sizeof...(A);
}
// Only a compiler knows which commas separate bounds, and which the arguments of a template.
template <typename First, typename... Others>
static constexpr int sim_first(First first, Others...) { return (int)first; }

#define SIM_EXPORT extern "C" __attribute__((visibility("default")))
// Two steps, so that a kernel named by a macro is exported under the name the macro stands for.
#define SIM_KERNEL(NAME, ...) SIM_KERNEL_NAMED(NAME, __VA_ARGS__)
#define SIM_KERNEL_NAMED(NAME, ...)                                                         \
  SIM_EXPORT SIM_UNCHECKED void sim_enter_##NAME(void** arguments) { sim_enter(NAME, arguments); } \
  SIM_EXPORT int sim_parameters_##NAME(sim_parameter* table, int* bound) {                  \
    *bound = sim_first(__VA_ARGS__);                                                        \
    return sim_parameters(NAME, table);                                                     \
  }
// The loader finds the addresses of shared arrays from this symbol's.
SIM_EXPORT char sim_anchor;
char sim_anchor = 1;
