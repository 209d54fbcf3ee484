// Loads and stores with cache hints, bits as numbers, integer intrinsics, memcpy and memset.
#pragma once

// The hints say nothing here. They are macros so that an access stands on the user's line.
#define __ldg(p) (*(p))
#define __ldca(p) (*(p))
#define __ldcs(p) (*(p))
#define __ldlu(p) (*(p))
template <typename T> struct sim_unqualified { typedef T type; };
template <typename T> struct sim_unqualified<const T> { typedef T type; };
template <typename T> struct sim_unqualified<volatile T> { typedef T type; };
template <typename T> struct sim_unqualified<const volatile T> { typedef T type; };
// These two bypass the first-level cache, as volatile does: blocks may talk through them.
#define __ldcg(p) (*(const volatile __typeof__(*(p))*)(p))
#define __ldcv(p) (*(const volatile __typeof__(*(p))*)(p))
#define __stwb(p, v) ((void)(*(p) = (v)))
#define __stcg(p, v) ((void)(*(p) = (v)))
#define __stcs(p, v) ((void)(*(p) = (v)))
#define __stwt(p, v) ((void)(*(p) = (v)))

template <typename To, typename From> SIM_INLINE To sim_bits(From from) {
  static_assert(sizeof(To) == sizeof(From), "as many bits");
  To to;
  __builtin_memcpy(&to, &from, sizeof to);
  return to;
}
SIM_INLINE int __float_as_int(float x) { return sim_bits<int>(x); }
SIM_INLINE unsigned __float_as_uint(float x) { return sim_bits<unsigned>(x); }
SIM_INLINE float __int_as_float(int x) { return sim_bits<float>(x); }
SIM_INLINE float __uint_as_float(unsigned x) { return sim_bits<float>(x); }
SIM_INLINE long long __double_as_longlong(double x) { return sim_bits<long long>(x); }
SIM_INLINE double __longlong_as_double(long long x) { return sim_bits<double>(x); }
SIM_INLINE int __double2hiint(double x) { return (int)(sim_bits<unsigned long long>(x) >> 32); }
SIM_INLINE int __double2loint(double x) { return (int)sim_bits<unsigned long long>(x); }
SIM_INLINE double __hiloint2double(int high, int low) {
  return sim_bits<double>((unsigned long long)(unsigned)high << 32 | (unsigned)low);
}

SIM_INLINE int __popc(unsigned x) { return __builtin_popcount(x); }
SIM_INLINE int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
SIM_INLINE int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
SIM_INLINE int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
SIM_INLINE int __ffs(int x) { return __builtin_ffs(x); }
SIM_INLINE int __ffsll(long long x) { return __builtin_ffsll(x); }
SIM_INLINE unsigned __brev(unsigned x) {
  unsigned r = 0;
  for (int i = 0; i < 32; ++i) r |= (x >> i & 1u) << (31 - i);
  return r;
}
SIM_INLINE unsigned long long __brevll(unsigned long long x) {
  return (unsigned long long)__brev((unsigned)x) << 32 | __brev((unsigned)(x >> 32));
}
SIM_INLINE unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
  unsigned long long bytes = (unsigned long long)y << 32 | x;
  unsigned r = 0;
  for (int i = 0; i < 4; ++i) {
    unsigned byte = (unsigned)(bytes >> (8 * (selector >> (4 * i) & 7))) & 0xffu;
    r |= ((selector >> (4 * i) & 8) ? (byte & 0x80 ? 0xffu : 0u) : byte) << (8 * i);
  }
  return r;
}
SIM_INLINE unsigned __funnelshift_l(unsigned low, unsigned high, unsigned n) {
  return (unsigned)((((unsigned long long)high << 32 | low) << (n & 31)) >> 32);
}
SIM_INLINE unsigned __funnelshift_r(unsigned low, unsigned high, unsigned n) {
  return (unsigned)(((unsigned long long)high << 32 | low) >> (n & 31));
}
SIM_INLINE int __mul24(int x, int y) {
  return (int)((unsigned)(x << 8 >> 8) * (unsigned)(y << 8 >> 8));
}
SIM_INLINE unsigned __umul24(unsigned x, unsigned y) { return (x & 0xffffffu) * (y & 0xffffffu); }
SIM_INLINE int __mulhi(int x, int y) { return (int)(((long long)x * y) >> 32); }
SIM_INLINE unsigned __umulhi(unsigned x, unsigned y) {
  return (unsigned)(((unsigned long long)x * y) >> 32);
}
SIM_INLINE long long __mul64hi(long long x, long long y) {
  return (long long)(((__int128)x * y) >> 64);
}
SIM_INLINE unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
  return (unsigned long long)(((unsigned __int128)x * y) >> 64);
}
SIM_INLINE unsigned __sad(int x, int y, unsigned z) {
  return z + (unsigned)(x > y ? x - y : y - x);
}
SIM_INLINE int __dp4a(int x, int y, int c) {
  for (int i = 0; i < 4; ++i) c += (signed char)(x >> (8 * i)) * (signed char)(y >> (8 * i));
  return c;
}

// Bytes and halves of a word, each by itself. Comparisons give all ones or zero.
#define SIM_SIMD(NAME, LANES, T, RESULT)                                     \
  SIM_UNCHECKED SIM_INLINE unsigned NAME(unsigned a, unsigned b) {           \
    unsigned r = 0;                                                          \
    for (int i = 0; i < LANES; ++i) {                                        \
      const int bits = 32 / LANES, shift = i * bits;                         \
      const unsigned mask = (1u << bits) - 1;                                \
      int x = (T)(a >> shift & mask), y = (T)(b >> shift & mask);            \
      r |= ((unsigned)(RESULT) & mask) << shift;                             \
    }                                                                        \
    return r;                                                                \
  }
#define SIM_SIMDS(LANES, S, U)                                               \
  SIM_SIMD(__vadd##LANES, LANES, U, x + y)                                   \
  SIM_SIMD(__vsub##LANES, LANES, U, x - y)                                   \
  SIM_SIMD(__vmaxu##LANES, LANES, U, x > y ? x : y)                          \
  SIM_SIMD(__vminu##LANES, LANES, U, x < y ? x : y)                          \
  SIM_SIMD(__vmaxs##LANES, LANES, S, x > y ? x : y)                          \
  SIM_SIMD(__vmins##LANES, LANES, S, x < y ? x : y)                          \
  SIM_SIMD(__vabsdiffu##LANES, LANES, U, x > y ? x - y : y - x)              \
  SIM_SIMD(__vavgu##LANES, LANES, U, (x + y + 1) / 2)                        \
  SIM_SIMD(__vhaddu##LANES, LANES, U, (x + y) / 2)                           \
  SIM_SIMD(__vaddus##LANES, LANES, U, x + y > (U)-1 ? (U)-1 : x + y)         \
  SIM_SIMD(__vsubus##LANES, LANES, U, x > y ? x - y : 0)                     \
  SIM_SIMD(__vcmpeq##LANES, LANES, U, x == y ? -1 : 0)                       \
  SIM_SIMD(__vcmpne##LANES, LANES, U, x != y ? -1 : 0)                       \
  SIM_SIMD(__vcmpgtu##LANES, LANES, U, x > y ? -1 : 0)                       \
  SIM_SIMD(__vcmpltu##LANES, LANES, U, x < y ? -1 : 0)                       \
  SIM_SIMD(__vcmpgts##LANES, LANES, S, x > y ? -1 : 0)                       \
  SIM_SIMD(__vcmplts##LANES, LANES, S, x < y ? -1 : 0)                       \
  SIM_INLINE unsigned __vsadu##LANES(unsigned a, unsigned b) {               \
    unsigned each = __vabsdiffu##LANES(a, b), sum = 0;                       \
    for (int i = 0; i < LANES; ++i) sum += (U)(each >> (i * (32 / LANES)));  \
    return sum;                                                              \
  }
SIM_SIMDS(4, signed char, unsigned char)
SIM_SIMDS(2, short, unsigned short)

// Their bytes are checked like any others, which a compiler's own call would not be.
extern "C" {
void* sim_memcpy(void* to, const void* from, size_t n);
void* sim_memset(void* to, int value, size_t n);
}
#define memcpy sim_memcpy
#define memset sim_memset
