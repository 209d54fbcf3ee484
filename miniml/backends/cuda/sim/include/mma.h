// nvcuda::wmma of __half and __nv_bfloat16. A fragment lies across the lanes of its warp: element
// e of the matrix, counted by rows, is number e / 32 of lane e % 32.
#pragma once
#include "cuda_bf16.h"
#include "cuda_fp16.h"

extern "C" {
// Where the lanes of a warp meet over a matrix in memory, rows of `row_bytes` apart.
void sim_matrix(const void* p, size_t row_bytes, int kind, const char* file, int line);
}

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
  static const int sim_rows = sim_same<Use, matrix_b>::value ? K : M;
  static const int sim_columns = sim_same<Use, matrix_a>::value ? K : N;
  enum { num_elements = sim_rows * sim_columns / 32 };
  T x[num_elements];
};

template <typename F, typename T> static inline void fill_fragment(F& f, T value) {
  for (int e = 0; e < F::num_elements; ++e) f.x[e] = value;
}

template <typename F>
static inline size_t sim_place(int e, unsigned stride, bool by_rows) {
  size_t at = e * 32 + sim_lane, i = at / F::sim_columns, j = at % F::sim_columns;
  return by_rows ? i * stride + j : j * stride + i;
}
template <typename F, typename P>
SIM_ALWAYS_INLINE void sim_load(F& f, const P* p, unsigned stride, bool by_rows, SIM_WHERE) {
  sim_matrix(p, stride * sizeof(P), SIM_LOAD_MATRIX, SIM_HERE);
  for (int e = 0; e < F::num_elements; ++e) f.x[e] = p[sim_place<F>(e, stride, by_rows)];
}
template <typename Use, int M, int N, int K, typename T, typename L, typename P>
SIM_ALWAYS_INLINE void load_matrix_sync(fragment<Use, M, N, K, T, L>& f, const P* p,
                                        unsigned stride, SIM_WHERE) {
  sim_load(f, p, stride, sim_same<L, row_major>::value, SIM_HERE);
}
template <int M, int N, int K, typename T, typename P>
SIM_ALWAYS_INLINE void load_matrix_sync(fragment<accumulator, M, N, K, T>& f, const P* p,
                                        unsigned stride, layout_t layout, SIM_WHERE) {
  sim_load(f, p, stride, layout == mem_row_major, SIM_HERE);
}
template <int M, int N, int K, typename T, typename P>
SIM_ALWAYS_INLINE void store_matrix_sync(P* p, const fragment<accumulator, M, N, K, T>& f,
                                         unsigned stride, layout_t layout, SIM_WHERE) {
  typedef fragment<accumulator, M, N, K, T> F;
  sim_matrix(p, stride * sizeof(P), SIM_STORE_MATRIX, SIM_HERE);
  for (int e = 0; e < F::num_elements; ++e)
    p[sim_place<F>(e, stride, layout == mem_row_major)] = f.x[e];
}

// all[l] = the elements of lane l, as floats.
template <typename F>
SIM_UNCHECKED static inline void sim_spread(const F& f, float (*all)[F::num_elements],
                                            const char* file, int line) {
  float own[F::num_elements];
  for (int e = 0; e < F::num_elements; ++e) own[e] = (float)f.x[e];
  sim_gather(0xffffffffu, own, all, sizeof own, SIM_MMA, SIM_HERE);
}
template <int M, int N, int K, typename T, typename A, typename LA, typename LB>
SIM_UNCHECKED static inline void mma_sync(fragment<accumulator, M, N, K, T>& d,
                                          const fragment<matrix_a, M, N, K, A, LA>& a,
                                          const fragment<matrix_b, M, N, K, A, LB>& b,
                                          const fragment<accumulator, M, N, K, T>& c, SIM_WHERE) {
  static_assert(sizeof(A) == 2, "the simulator multiplies matrices of 16-bit numbers only");
  float x[32][M * K / 32], y[32][K * N / 32];
  sim_spread(a, x, SIM_HERE);
  sim_spread(b, y, SIM_HERE);
  for (int e = 0; e < M * N / 32; ++e) {
    int at = e * 32 + (int)sim_lane, i = at / N, j = at % N;
    float sum = (float)c.x[e];
    for (int k = 0; k < K; ++k) {
      int from = i * K + k, with = k * N + j;
      sum += x[from % 32][from / 32] * y[with % 32][with / 32];
    }
    d.x[e] = sum;
  }
}
}  // namespace wmma
}  // namespace nvcuda
