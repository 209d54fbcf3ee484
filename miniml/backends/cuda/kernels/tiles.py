"""CUDA C of products of matrices by tiles in shared memory, with and without tensor cores."""

from __future__ import annotations

# A block makes tiles of SIDE x SIDE results, for which it fetches DEPTH columns of x and as many
# rows of y at a time. Both lie in shared memory with the summed axis first, zeros past the ends.
TILES = r"""
using namespace miniml;
template <typename S, typename E> struct As {
  static __device__ __forceinline__ S from(E x) { return S(load(x)); }
};
template <typename S> struct As<S, S> {
  static __device__ __forceinline__ S from(S x) { return x; }
};
// `side` and `depth`: how many elements there are from here on along the two axes. Neighbouring
// threads read neighbouring elements, whichever way the matrix lies.
template <int SIDE, int DEPTH, int PITCH, int THREADS, typename S, typename E>
__device__ __forceinline__ void fetch(
    S (*tile)[PITCH], const E* from, long long side, long long depth, long long side_step,
    long long depth_step) {
  const bool along = depth_step == 1;
  const int sides = side < SIDE ? (int)side : SIDE, depths = depth < DEPTH ? (int)depth : DEPTH;
  const int more_s = along ? THREADS / DEPTH : 0, more_d = along ? 0 : THREADS / SIDE;
  int s = along ? threadIdx.x / DEPTH : threadIdx.x % SIDE;
  int d = along ? threadIdx.x % DEPTH : threadIdx.x / SIDE;
  from += s * side_step + d * depth_step;
  const long long more = more_s * side_step + more_d * depth_step;
#pragma unroll 4
  for (int e = 0; e < SIDE * DEPTH / THREADS; ++e) {
    tile[d][s] = s < sides && d < depths ? As<S, E>::from(*from) : S(0.0f);
    s += more_s, d += more_d, from += more;
  }
}
// Where tile number t of the batch begins in x, y and out.
struct Tile {
  long long x, y, out, rows, columns;
};
template <int SIDE> __device__ __forceinline__ Tile tile_at(
    long long t, const Layout<3>& batch, const Product& p) {
  const long long across = (p.n + SIDE - 1) / SIDE, each = (p.m + SIDE - 1) / SIDE * across;
  const long long item = t / each, here = t - item * each;
  const long long row = here / across * SIDE, column = (here - here / across * across) * SIDE;
  long long at[3];
  locate(batch, item, at);
  return {at[0] + row * p.x_row, at[1] + column * p.y_column,
          at[2] + row * p.out_row + column * p.out_column, p.m - row, p.n - column};
}
template <int SIDE> __device__ __forceinline__ long long tile_count(const Product& p) {
  return p.batches * ((p.m + SIDE - 1) / SIDE) * ((p.n + SIDE - 1) / SIDE);
}
"""

# A thread sums PER x PER results, SIDE / PER rows and columns apart, so that neighbouring threads
# have neighbouring results.
REGISTERS = r"""
template <int SIDE, int PER> __device__ __forceinline__ void product(
    const T* x, const T* y, T* out, const Layout<3>& batch, const Product& p) {
  const int DEPTH = 16, ACROSS = SIDE / PER, THREADS = ACROSS * ACROSS;
  __shared__ S a[DEPTH][SIDE + 1], b[DEPTH][SIDE + 1];
  const int r = threadIdx.x / ACROSS, c = threadIdx.x % ACROSS;
  for (long long t = blockIdx.x; t < tile_count<SIDE>(p); t += gridDim.x) {
    const Tile at = tile_at<SIDE>(t, batch, p);
    S sum[PER][PER] = {};
    for (long long l = 0; l < p.k; l += DEPTH) {
      fetch<SIDE, DEPTH, SIDE + 1, THREADS>(
          a, x + at.x + l * p.x_column, at.rows, p.k - l, p.x_row, p.x_column);
      fetch<SIDE, DEPTH, SIDE + 1, THREADS>(
          b, y + at.y + l * p.y_row, at.columns, p.k - l, p.y_column, p.y_row);
      __syncthreads();
#pragma unroll
      for (int d = 0; d < DEPTH; ++d) {
        S u[PER], v[PER];
#pragma unroll
        for (int i = 0; i < PER; ++i) u[i] = a[d][r + i * ACROSS], v[i] = b[d][c + i * ACROSS];
#pragma unroll
        for (int i = 0; i < PER; ++i)
#pragma unroll
          for (int j = 0; j < PER; ++j) sum[i][j] += u[i] * v[j];
      }
      __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < PER; ++i)
#pragma unroll
      for (int j = 0; j < PER; ++j)
        if (r + i * ACROSS < at.rows && c + j * ACROSS < at.columns)
          out[at.out + (r + i * ACROSS) * p.out_row + (c + j * ACROSS) * p.out_column] =
              store<T>(sum[i][j]);
  }
}
extern "C" __global__ void __launch_bounds__(256, 2) matmul_64(
    const T* x, const T* y, T* out, Layout<3> batch, Product p) {
  product<64, 4>(x, y, out, batch, p);
}
extern "C" __global__ void __launch_bounds__(64, 8) matmul_16(
    const T* x, const T* y, T* out, Layout<3> batch, Product p) {
  product<16, 2>(x, y, out, batch, p);
}
"""

# A warp makes PER x PER squares of 16 x 16. Pitches keep every square at a multiple of 32 bytes
# and every row at one of 16, as tensor cores ask, and neighbouring rows in different banks.
TENSOR_CORES = r"""
using namespace nvcuda;
template <int SIDE, int PER, int DEPTH> __device__ __forceinline__ void product(
    const T* x, const T* y, T* out, const Layout<3>& batch, const Product& p) {
  const int ACROSS = SIDE / (16 * PER), THREADS = 32 * ACROSS * ACROSS, PITCH = SIDE + 8;
  __shared__ __align__(32) T a[DEPTH][PITCH], b[DEPTH][PITCH];
  __shared__ __align__(32) float c[SIDE][SIDE + 4];
  const int warp = threadIdx.x / 32;
  const int row = warp / ACROSS * 16 * PER, column = warp % ACROSS * 16 * PER;
  for (long long t = blockIdx.x; t < tile_count<SIDE>(p); t += gridDim.x) {
    const Tile at = tile_at<SIDE>(t, batch, p);
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum[PER][PER];
#pragma unroll
    for (int i = 0; i < PER; ++i)
#pragma unroll
      for (int j = 0; j < PER; ++j) wmma::fill_fragment(sum[i][j], 0.0f);
    for (long long l = 0; l < p.k; l += DEPTH) {
      fetch<SIDE, DEPTH, PITCH, THREADS>(
          a, x + at.x + l * p.x_column, at.rows, p.k - l, p.x_row, p.x_column);
      fetch<SIDE, DEPTH, PITCH, THREADS>(
          b, y + at.y + l * p.y_row, at.columns, p.k - l, p.y_column, p.y_row);
      __syncthreads();
#pragma unroll
      for (int d = 0; d < DEPTH; d += 16) {
        wmma::fragment<wmma::matrix_a, 16, 16, 16, T, wmma::col_major> u[PER];
        wmma::fragment<wmma::matrix_b, 16, 16, 16, T, wmma::row_major> v[PER];
#pragma unroll
        for (int i = 0; i < PER; ++i) {
          wmma::load_matrix_sync(u[i], &a[d][row + 16 * i], PITCH);
          wmma::load_matrix_sync(v[i], &b[d][column + 16 * i], PITCH);
        }
#pragma unroll
        for (int i = 0; i < PER; ++i)
#pragma unroll
          for (int j = 0; j < PER; ++j) wmma::mma_sync(sum[i][j], u[i], v[j], sum[i][j]);
      }
      __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < PER; ++i)
#pragma unroll
      for (int j = 0; j < PER; ++j)
        wmma::store_matrix_sync(
            &c[row + 16 * i][column + 16 * j], sum[i][j], SIDE + 4, wmma::mem_row_major);
    __syncthreads();
    for (int e = threadIdx.x; e < SIDE * SIDE; e += THREADS)
      if (e / SIDE < at.rows && e % SIDE < at.columns)
        out[at.out + e / SIDE * p.out_row + e % SIDE * p.out_column] =
            store<T>(c[e / SIDE][e % SIDE]);
    __syncthreads();
  }
}
extern "C" __global__ void __launch_bounds__(128, 3) matmul_64(
    const T* x, const T* y, T* out, Layout<3> batch, Product p) {
  product<64, 2, 32>(x, y, out, batch, p);
}
extern "C" __global__ void __launch_bounds__(32, 16) matmul_16(
    const T* x, const T* y, T* out, Layout<3> batch, Product p) {
  product<16, 1, 16>(x, y, out, batch, p);
}
"""
