// nvcuda::wmma, 16 x 16 x 16: every lane holds and computes the whole tile. Slow, and simple.
#pragma once
#include "cuda_bf16.h"
#include "cuda_fp16.h"

namespace nvcuda {
namespace wmma {
struct matrix_a;
struct matrix_b;
struct accumulator;
struct row_major;
struct col_major;
enum layout_t { mem_row_major, mem_col_major };

template <typename A, typename B> struct sim_same { static const bool value = false; };
template <typename A> struct sim_same<A, A> { static const bool value = true; };

template <typename Use, int M, int N, int K, typename T, typename Layout = void> struct fragment {
  static const int rows = sim_same<Use, matrix_b>::value ? K : M;
  static const int columns = sim_same<Use, matrix_a>::value ? K : N;
  enum { num_elements = rows * columns };
  T x[rows * columns];
};

template <typename F, typename T> static inline void fill_fragment(F& f, T value) {
  for (int i = 0; i < F::num_elements; ++i) f.x[i] = value;
}
template <typename Use, int M, int N, int K, typename T, typename L, typename P>
static inline void load_matrix_sync(fragment<Use, M, N, K, T, L>& f, const P* p, unsigned stride,
                                    SIM_WHERE) {
  typedef fragment<Use, M, N, K, T, L> F;
  for (int i = 0; i < F::rows; ++i)
    for (int j = 0; j < F::columns; ++j)
      f.x[i * F::columns + j] =
          sim_same<L, col_major>::value ? p[j * stride + i] : p[i * stride + j];
  __syncwarp(0xffffffffu, SIM_HERE);
}
template <int M, int N, int K, typename T, typename P>
static inline void load_matrix_sync(fragment<accumulator, M, N, K, T>& f, const P* p,
                                    unsigned stride, layout_t layout, SIM_WHERE) {
  for (int i = 0; i < M; ++i)
    for (int j = 0; j < N; ++j)
      f.x[i * N + j] = layout == mem_row_major ? p[i * stride + j] : p[j * stride + i];
  __syncwarp(0xffffffffu, SIM_HERE);
}
template <int M, int N, int K, typename T, typename A, typename LA, typename LB>
static inline void mma_sync(fragment<accumulator, M, N, K, T>& d,
                            const fragment<matrix_a, M, N, K, A, LA>& a,
                            const fragment<matrix_b, M, N, K, A, LB>& b,
                            const fragment<accumulator, M, N, K, T>& c) {
  for (int i = 0; i < M; ++i)
    for (int j = 0; j < N; ++j) {
      float sum = (float)c.x[i * N + j];
      for (int k = 0; k < K; ++k) sum += (float)a.x[i * K + k] * (float)b.x[k * N + j];
      d.x[i * N + j] = sum;
    }
}
// Each lane stores its share: together the lanes write every element once.
template <int M, int N, int K, typename T, typename P>
static inline void store_matrix_sync(P* p, const fragment<accumulator, M, N, K, T>& f,
                                     unsigned stride, layout_t layout, SIM_WHERE) {
  for (int e = (int)sim_lane; e < M * N; e += 32) {
    int i = e / N, j = e % N;
    p[layout == mem_row_major ? i * stride + j : j * stride + i] = f.x[e];
  }
  __syncwarp(0xffffffffu, SIM_HERE);
}
}  // namespace wmma
}  // namespace nvcuda
