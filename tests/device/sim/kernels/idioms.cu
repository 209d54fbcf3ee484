// What users of CuPy write: a kernel for each idiom, compared with NumPy in test_idioms.py.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
#include <cub/block/block_load.cuh>
#include <cub/block/block_reduce.cuh>
#include <cub/block/block_scan.cuh>
#include <cub/block/block_store.cuh>
#include <cub/warp/warp_reduce.cuh>
#include <cub/warp/warp_scan.cuh>
#include <cuda/functional>
#include <cuda/std/cstdint>
#include <cuda/std/functional>
#include <cuda/std/limits>
#include <cuda/std/type_traits>
#include <cuda/std/utility>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <math_constants.h>
namespace cg = cooperative_groups;

__constant__ float taps[4];
__constant__ int primes[] = {2, 3, 5, 7};
static __constant__ float scale_of_all = 2.0f;
__device__ int visits;

extern "C" {
__global__ void constants_of_host(const float* x, float* y) {
  float sum = 0;
  for (int k = 0; k < 4; ++k) sum += taps[k] * x[threadIdx.x + k] * primes[k];
  y[threadIdx.x] = scale_of_all * sum;
  atomicAdd(&visits, 1);
}
__global__ void static_shared(const float* x, float* y) {
  static __shared__ float s[64];
  s[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = s[63 - threadIdx.x];
}
__global__ void half_pairs(const __half2* x, const __half2* y, __half2* out) {
  int t = threadIdx.x;
  __half2 a = x[t], b = y[t];
  out[16 * t] = a + b, out[16 * t + 1] = a - b, out[16 * t + 2] = a * b, out[16 * t + 3] = a / b;
  out[16 * t + 4] = -a, out[16 * t + 5] = __hmax2(a, b), out[16 * t + 6] = __hmin2(a, b);
  out[16 * t + 7] = h2exp(a), out[16 * t + 8] = h2sqrt(b), out[16 * t + 9] = __hfma2(a, b, a);
  out[16 * t + 10] = __hgt2(a, b), out[16 * t + 11] = __habs2(a), out[16 * t + 12] = h2log(b);
  out[16 * t + 13] = __lowhigh2highlow(a), out[16 * t + 14] = __half2half2(__low2half(b));
  out[16 * t + 15] = __halves2half2(hsin(a.x), hcos(a.y));
  a += b, a *= b;
  __half2 made(a.y, a.x);
  out[16 * t + 15] += made - made;
}
__global__ void bfloat_pairs(const __nv_bfloat162* x, float* out) {
  __nv_bfloat162 a = x[threadIdx.x], b = __float2bfloat162_rn(2.0f), c = a * b + b;
  out[2 * threadIdx.x] = __low2float(c), out[2 * threadIdx.x + 1] = __high2float(h2exp(a));
}
__global__ void half_to_integers(const __half* x, int* out) {
  int t = threadIdx.x;
  out[4 * t] = __half2int_rn(x[t]), out[4 * t + 1] = __half2int_rz(x[t]);
  out[4 * t + 2] = __half2int_rd(x[t]), out[4 * t + 3] = __half2ushort_rn(__habs(x[t]));
}
__global__ void norms(const float4* x, float* y) {
  float4 v = x[threadIdx.x];
  y[4 * threadIdx.x] = norm3df(v.x, v.y, v.z), y[4 * threadIdx.x + 1] = rnorm4df(v.x, v.y, v.z, v.w);
  y[4 * threadIdx.x + 2] = rhypotf(v.x, v.y), y[4 * threadIdx.x + 3] = fdividef(v.x, v.w);
}
__global__ void named_numbers(float* y, double* d) {
  y[0] = CUDART_PI_F, y[1] = CUDART_INF_F, y[2] = CUDART_L2E_F, y[3] = CUDART_SQRT_TWO_F;
  y[4] = CUDART_LN2_F, y[5] = CUDART_NAN_F, y[6] = CUDART_MIN_DENORM_F;
  d[0] = CUDART_PI, d[1] = CUDART_LN2, d[2] = CUDART_SQRT_HALF, d[3] = CUDART_2_OVER_PI;
}
__global__ void bytes_of_words(const unsigned* x, const unsigned* y, unsigned* out) {
  unsigned a = x[threadIdx.x], b = y[threadIdx.x], *o = out + 8 * threadIdx.x;
  o[0] = __vadd4(a, b), o[1] = __vsub4(a, b), o[2] = __vmaxu4(a, b), o[3] = __vmins4(a, b);
  o[4] = __vabsdiffu4(a, b), o[5] = __vcmpeq4(a, b), o[6] = __vsadu4(a, b), o[7] = __vavgu4(a, b);
}
__global__ void pairs_added(float2* sums, float4* fours) {
  atomicAdd(&sums[threadIdx.x % 2], make_float2(1, threadIdx.x));
  atomicAdd(fours, make_float4(1, 2, 3, threadIdx.x));
}
__global__ void assumed(const float* x, float* y, int n) {
  __builtin_assume(n > 0);
  float best = -cuda::std::numeric_limits<float>::infinity();
  for (int k = 0; k < n; ++k) best = cuda::maximum<>()(best, x[k]);
  static_assert(cuda::std::is_same_v<cuda::std::uint32_t, unsigned>, "");
  static_assert(cuda::std::is_floating_point_v<float> && !cuda::std::is_integral_v<float>, "");
  y[0] = cuda::std::move(best), y[1] = cuda::std::numeric_limits<int>::max();
  y[2] = cuda::std::plus<float>()(x[0], x[1]), y[3] = cuda::std::numeric_limits<float>::epsilon();
}

// Cooperative groups.
__global__ void group_sums(const float* x, float* y) {
  cg::thread_block block = cg::this_thread_block();
  __shared__ float partial[2];
  cg::thread_block_tile<32> warp = cg::tiled_partition<32>(block);
  float v = x[block.thread_rank()];
  for (int o = warp.size() / 2; o > 0; o /= 2) v += warp.shfl_down(v, o);
  if (warp.thread_rank() == 0) partial[warp.meta_group_rank()] = v;
  block.sync();
  if (block.thread_rank() == 0) y[0] = partial[0] + partial[1];
}
__global__ void group_functions(const int* x, int* y) {
  auto block = cg::this_thread_block();
  auto tile = cg::tiled_partition<8>(block);
  int v = x[block.thread_rank()], *o = y + 12 * block.thread_rank();
  o[0] = tile.shfl(v, 3), o[1] = tile.shfl_up(v, 2), o[2] = tile.shfl_xor(v, 5);
  o[3] = tile.any(v == 5), o[4] = tile.all(v < 60), o[5] = tile.ballot(v % 2);
  o[6] = cg::reduce(tile, v, cg::plus<int>()), o[7] = cg::reduce(tile, v, cg::greater<int>());
  o[8] = cg::inclusive_scan(tile, v), o[9] = cg::exclusive_scan(tile, v, cg::plus<int>());
  o[10] = tile.match_any(v % 3), o[11] = tile.meta_group_size();
  cg::sync(tile);
}
__global__ void group_places(int* y) {
  auto block = cg::this_thread_block();
  auto grid = cg::this_grid();
  int* o = y + 4 * grid.thread_rank();
  o[0] = block.thread_rank(), o[1] = block.group_index().x, o[2] = block.dim_threads().y;
  o[3] = grid.size() == 2 * block.num_threads();
}
__global__ void aggregated_atomics(const int* x, int* count, int* kept) {
  int v = x[threadIdx.x];
  if (v % 3 == 0) {
    cg::coalesced_group active = cg::coalesced_threads();
    int start = 0;
    if (active.thread_rank() == 0) start = atomicAdd(count, active.size());
    kept[active.shfl(start, 0) + active.thread_rank()] = v;
  }
}
__global__ void active_lanes(const int* x, int* y) {
  int v = x[threadIdx.x], sum = 0;
  if (v % 2) {
    unsigned mask = __activemask();
    sum = __reduce_add_sync(mask, v);
  }
  __syncthreads();
  y[threadIdx.x] = sum;
}

// cub.
__global__ void cub_sums(const float* x, float* y, int valid) {
  typedef cub::BlockReduce<float, 64> Reduce;
  __shared__ typename Reduce::TempStorage temp;
  float v = x[threadIdx.x], sum = Reduce(temp).Sum(v);
  __syncthreads();
  float best = Reduce(temp).Reduce(v, cuda::maximum<>());
  __syncthreads();
  float some = Reduce(temp).Sum(v, valid);
  if (threadIdx.x == 0) y[0] = sum, y[1] = best, y[2] = some;
}
__global__ void cub_scans(const int* x, int* y) {
  typedef cub::BlockScan<int, 64> Scan;
  __shared__ typename Scan::TempStorage temp;
  int v = x[threadIdx.x], in, ex, all, best;
  Scan(temp).InclusiveSum(v, in);
  __syncthreads();
  Scan(temp).ExclusiveSum(v, ex, all);
  __syncthreads();
  Scan(temp).InclusiveScan(v, best, cuda::maximum<>());
  int* o = y + 4 * threadIdx.x;
  o[0] = in, o[1] = ex, o[2] = all, o[3] = best;
}
__global__ void cub_items(const int* x, int* y, int n) {
  typedef cub::BlockLoad<int, 32, 4> Load;
  typedef cub::BlockStore<int, 32, 4> Store;
  typedef cub::BlockScan<int, 32> Scan;
  __shared__ union {
    typename Load::TempStorage load;
    typename Store::TempStorage store;
    typename Scan::TempStorage scan;
  } temp;
  int items[4];
  Load(temp.load).Load(x, items, n, 0);
  __syncthreads();
  Scan(temp.scan).ExclusiveSum(items, items);
  __syncthreads();
  Store(temp.store).Store(y, items, n);
}
__global__ void cub_warps(const int* x, int* y) {
  typedef cub::WarpReduce<int> Reduce;
  typedef cub::WarpScan<int, 16> Scan;
  __shared__ typename Reduce::TempStorage reduce[2];
  __shared__ typename Scan::TempStorage scan[4];
  int v = x[threadIdx.x], warp = threadIdx.x / 32, running;
  int sum = Reduce(reduce[warp]).Sum(v);
  Scan(scan[threadIdx.x / 16]).InclusiveSum(v, running);
  y[2 * threadIdx.x] = threadIdx.x % 32 ? 0 : sum, y[2 * threadIdx.x + 1] = running;
}
}
