// CUDA C as a C++ compiler for the CPU sees it: included before the text of every kernel.
//
// One thread of the machine runs a grid block by block; each CUDA thread is a fiber, and only the
// functions that wait (barriers, warp functions) hand over to another. So atomics are plain, and
// __shared__ is a static local. Like NVRTC this includes no header of the host.
#pragma once

#define CUDA_SIM 1
#define __CUDACC__ 1
#define __CUDACC_RTC__ 1
#define __CUDACC_VER_MAJOR__ 13
#define __CUDA_ARCH__ 900

// The launcher finds kernels as sim_enter_<name>, made by SIM_KERNEL (sim_entry.h).
#define __global__
#define __device__
#define __host__
#ifdef SIM_CHECK  // where it takes most of the time that compiling takes
#define __forceinline__ inline
#else
#define __forceinline__ inline __attribute__((always_inline))
#endif
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __maxnreg__(...)
#define __grid_constant__
#define __restrict__ __restrict
#define __align__(n) __attribute__((aligned(n)))
// The loader knows these by their visibility: the host may set them, a kernel may not.
#define __constant__ __attribute__((visibility("protected")))
#define __builtin_assume(condition) ((void)0)
// The loader knows these again by their symbols: static locals that are not constant. In check mode
// no two of them touch: an array of at most 48 KiB leaves a gap before the next multiple of 64 KiB.
#ifdef SIM_CHECK
#define __shared__ static __attribute__((aligned(65536)))
#else
#define __shared__ static __attribute__((aligned(64)))
#endif

typedef __SIZE_TYPE__ size_t;
typedef __PTRDIFF_TYPE__ ptrdiff_t;
typedef unsigned int uint;
typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned long ulong;

// Code of the simulator's own that stands in a kernel's unit is not checked.
#define SIM_UNCHECKED __attribute__((no_sanitize("thread", "undefined")))
#define SIM_INLINE static inline __attribute__((unused))
// Code that touches a kernel's memory for it: what is wrong there is on the kernel's line.
#define SIM_ALWAYS_INLINE static inline __attribute__((always_inline))
#define SIM_MEMBER __attribute__((always_inline)) inline
// Where a kernel calls one of the functions that report a place.
#define SIM_WHERE const char* file = __builtin_FILE(), int line = __builtin_LINE()
#define SIM_HERE file, line
// And the column, which tells two calls on one line apart.
#ifdef __clang__
#define SIM_COLUMN int column = __builtin_COLUMN()
#define SIM_ITS_COLUMN column
#else
namespace std {
struct source_location {
  struct __impl {
    const char *_M_file_name, *_M_function_name;
    unsigned _M_line, _M_column;
  };
};
}  // namespace std
#define SIM_COLUMN const void* place = __builtin_source_location()
#define SIM_ITS_COLUMN sim_column(place)
#endif

#ifndef __clang__
SIM_UNCHECKED SIM_INLINE int sim_column(const void* place) {
  return (int)((const std::source_location::__impl*)place)->_M_column;
}
#endif

#include "sim_std.h"
#include "sim_vectors.h"

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
  constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
};

extern "C" {
// Constant for as long as one fiber runs, and that is all that a kernel can see of them.
extern const uint3 sim_thread_index, sim_block_index, sim_block_extent, sim_grid_extent;
extern const unsigned sim_lane;
extern char* const sim_dynamic_shared;
void sim_fence();
void sim_trap(int is_assert, const char* text, const char* file, int line);
int printf(const char*, ...);
}
#define threadIdx sim_thread_index
#define blockIdx sim_block_index
#define blockDim sim_block_extent
#define gridDim sim_grid_extent
#define warpSize 32
SIM_INLINE unsigned sim_block_extent_count() { return blockDim.x * blockDim.y * blockDim.z; }
SIM_INLINE unsigned sim_thread_rank() {
  return (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
}

#define assert(condition) \
  ((condition) ? (void)0 : sim_trap(1, #condition, __builtin_FILE(), __builtin_LINE()))
SIM_INLINE void __trap(SIM_WHERE) { sim_trap(0, "__trap()", SIM_HERE); }
SIM_INLINE void __threadfence() { sim_fence(); }
SIM_INLINE void __threadfence_system() { sim_fence(); }
SIM_INLINE void __threadfence_block() { __asm__ volatile("" ::: "memory"); }
SIM_INLINE void __nanosleep(unsigned) {}

// clock() counts calls: the simulator has no time of its own.
extern "C" long long sim_clock();
SIM_INLINE long long clock64() { return sim_clock(); }
SIM_INLINE int clock() { return (int)sim_clock(); }

#include "sim_bits.h"
#include "sim_math.h"
#include "sim_warp.h"
#include "sim_atomics.h"
#include "sim_entry.h"
