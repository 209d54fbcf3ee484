// Patterns that kernels are made of; test_kernels.py compares each with NumPy.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>

extern "C" __global__ void add(const float* x, const float* y, float* z, long long n) {
  long long step = (long long)gridDim.x * blockDim.x;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) z[i] = x[i] + y[i];
}

extern "C" __global__ void add_vectors(const float4* x, const float4* y, float4* z, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) z[i] = make_float4(x[i].x + y[i].x, x[i].y + y[i].y, x[i].z + y[i].z, x[i].w + y[i].w);
}

template <bool largest> __device__ float across_block(float v, float identity) {
  __shared__ float part[32];
  int lane = threadIdx.x & 31, w = threadIdx.x >> 5;
  for (int round = 0; round < 2; ++round) {
    for (int o = 16; o > 0; o >>= 1) {
      float u = __shfl_xor_sync(0xffffffffu, v, o);
      v = largest ? fmaxf(v, u) : v + u;
    }
    if (round) break;
    if (lane == 0) part[w] = v;
    __syncthreads();
    v = lane < (blockDim.x + 31) / 32 ? part[lane] : identity;
  }
  __syncthreads();
  return v;
}

extern "C" __global__ void __launch_bounds__(256) softmax(const float* x, float* y, int rows, int columns) {
  for (int r = blockIdx.x; r < rows; r += gridDim.x) {
    const float* p = x + (long long)r * columns;
    float top = __int_as_float(0xff800000), sum = 0;
    for (int c = threadIdx.x; c < columns; c += blockDim.x) top = fmaxf(top, p[c]);
    top = across_block<true>(top, top);
    for (int c = threadIdx.x; c < columns; c += blockDim.x) sum += __expf(p[c] - top);
    sum = across_block<false>(sum, 0);
    for (int c = threadIdx.x; c < columns; c += blockDim.x)
      y[(long long)r * columns + c] = __expf(p[c] - top) / sum;
  }
}

#define TILE 8
extern "C" __global__ void __launch_bounds__(TILE * TILE) product(
    const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int m, int n, int k) {
  __shared__ float s[TILE][TILE + 1], t[TILE][TILE + 1];
  int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * TILE + y, column = blockIdx.x * TILE + x;
  float sum = 0;
  for (int o = 0; o < k; o += TILE) {
    s[y][x] = row < m && o + x < k ? a[row * k + o + x] : 0;
    t[y][x] = o + y < k && column < n ? b[(o + y) * n + column] : 0;
    __syncthreads();
#pragma unroll
    for (int j = 0; j < TILE; ++j) sum += s[y][j] * t[j][x];
    __syncthreads();
  }
  if (row < m && column < n) c[row * n + column] = sum;
}

extern "C" __global__ void scatter(const float* v, const long long* at, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomicAdd(&y[at[i]], v[i]);
}

struct Strides {
  long long shape[4], stride[4];
  int axes, unused;
};
extern "C" __global__ void copy_strided(const float* x, float* y, Strides s, long long n) {
  long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x, left = i, at = 0;
  if (i >= n) return;
  for (int d = s.axes - 1; d >= 0; --d) at += left % s.shape[d] * s.stride[d], left /= s.shape[d];
  y[i] = x[at];
}

extern "C" __global__ void sum_dynamic(const double* x, double* y, int n) {
  extern __shared__ __align__(16) double s[];
  int t = threadIdx.x;
  double sum = 0;
  for (int i = blockIdx.x * blockDim.x + t; i < n; i += gridDim.x * blockDim.x) sum += x[i];
  s[t] = sum;
  __syncthreads();
  for (int o = blockDim.x / 2; o > 0; o >>= 1) {
    if (t < o) s[t] += s[t + o];
    __syncthreads();
  }
  if (t == 0) atomicAdd(y, s[0]);
}

extern "C" __global__ void scan(const int* x, int* y, int n) {
  __shared__ int sums[32];
  int t = threadIdx.x, lane = t & 31, w = t >> 5, before = 0;
  for (int base = 0; base < n; base += blockDim.x) {
    int i = base + t, v = i < n ? x[i] : 0;
    for (int o = 1; o < 32; o <<= 1) {
      int u = __shfl_up_sync(0xffffffffu, v, o);
      if (lane >= o) v += u;
    }
    if (lane == 31) sums[w] = v;
    __syncthreads();
    if (w == 0) {
      int u = lane < blockDim.x / 32 ? sums[lane] : 0;
      for (int o = 1; o < 32; o <<= 1) {
        int z = __shfl_up_sync(0xffffffffu, u, o);
        if (lane >= o) u += z;
      }
      sums[lane] = u;
    }
    __syncthreads();
    v += before + (w ? sums[w - 1] : 0);
    if (i < n) y[i] = v;
    before += sums[31];
    __syncthreads();
  }
}

extern "C" __global__ void sort64(float* x) {
  __shared__ float s[64];
  int t = threadIdx.x;
  s[t] = x[blockIdx.x * 64 + t];
  __syncthreads();
  for (int k = 2; k <= 64; k <<= 1)
    for (int j = k >> 1; j > 0; j >>= 1) {
      float a = s[t], b = s[t ^ j];
      __syncthreads();
      s[t] = (t < (t ^ j)) == ((t & k) == 0) ? fminf(a, b) : fmaxf(a, b);
      __syncthreads();
    }
  x[blockIdx.x * 64 + t] = s[t];
}

extern "C" __global__ void philox(unsigned* y, uint4 c, uint2 k) {
  for (int i = 0; i < 10; ++i) {
    unsigned high0 = __umulhi(0xD2511F53u, c.x), low0 = 0xD2511F53u * c.x;
    unsigned high1 = __umulhi(0xCD9E8D57u, c.z), low1 = 0xCD9E8D57u * c.z;
    c = make_uint4(high1 ^ c.y ^ k.x, low1, high0 ^ c.w ^ k.y, low0);
    k.x += 0x9E3779B9u, k.y += 0xBB67AE85u;
  }
  *(uint4*)y = c;
}

extern "C" __global__ void votes(const int* x, unsigned* y) {
  int t = threadIdx.x, lane = t & 31, w = t >> 5;
  unsigned mask = __activemask(), bits = __ballot_sync(mask, x[t] > 0);
  int any = __any_sync(mask, x[t] > 40), all = __all_sync(mask, x[t] > -100);
  unsigned equal = __match_any_sync(mask, x[t] & 3);
  int sum = __reduce_add_sync(mask, x[t]), top = __reduce_max_sync(mask, x[t]);
  int positive = __syncthreads_count(x[t] > 0), some = __syncthreads_or(x[t] > 46);
  int each = __syncthreads_and(x[t] > 0);
  if (lane) return;
  unsigned row[] = {bits, (unsigned)any, (unsigned)all, equal, (unsigned)sum, (unsigned)top,
                    (unsigned)positive, (unsigned)(some != 0), (unsigned)(each != 0)};
  for (int i = 0; i < 9; ++i) y[9 * w + i] = row[i];
}

extern "C" __global__ void shuffles(const double* x, double* y) {
  int t = threadIdx.x;
  double v = x[t];
  y[t] = __shfl_sync(0xffffffffu, v, 3, 8);
  y[32 + t] = __shfl_down_sync(0xffffffffu, v, 2, 16);
  y[64 + t] = __shfl_up_sync(0xffffffffu, v, 1, 4);
  y[96 + t] = __shfl_xor_sync(0xffffffffu, v, 5);
}

extern "C" __global__ void last_block(const float* x, float* part, unsigned* count, float* y, int n) {
  __shared__ bool last;
  float v = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) v += x[i];
  v = across_block<false>(v, 0);
  if (threadIdx.x == 0) {
    part[blockIdx.x] = v;
    __threadfence();
    last = atomicInc(count, gridDim.x - 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (!last || threadIdx.x) return;
  float sum = 0;
  for (unsigned b = 0; b < gridDim.x; ++b) sum += ((volatile float*)part)[b];
  *y = sum;
}

extern "C" __global__ void atomics(const int* x, int* y, unsigned* u, float* f, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  atomicAdd(&y[0], x[i]), atomicSub(&y[1], x[i]), atomicMax(&y[2], x[i]), atomicMin(&y[3], x[i]);
  atomicAnd(&u[0], (unsigned)x[i] | 1u), atomicOr(&u[1], (unsigned)x[i]), atomicXor(&u[2], (unsigned)x[i]);
  atomicInc(&u[3], 4u), atomicDec(&u[4], 9u);
  int* bits = (int*)f;
  for (int old = *(volatile int*)bits, seen; __int_as_float(old) < (float)x[i]; old = seen) {
    seen = atomicCAS(bits, old, __float_as_int((float)x[i]));
    if (seen == old) break;
  }
}

extern "C" __global__ void half_axpy(const __half* x, __half* y, float a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = __float2half(a * __half2float(x[i]) + __half2float(y[i]));
}
extern "C" __global__ void half_sums(const __half* x, const __half* y, __half* z, int n) {
  int i = threadIdx.x;
  if (i < n) z[i] = __hadd(x[i], y[i]), z[n + i] = x[i] * y[i], z[2 * n + i] = __hdiv(x[i], y[i]);
}
extern "C" __global__ void round_to_16(const double* x, __half* h, __nv_bfloat16* b, float* back, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  h[i] = __half(x[i]), b[i] = __nv_bfloat16(x[i]);
  back[i] = __half2float(h[i]), back[n + i] = __bfloat162float(b[i]);
}

using namespace nvcuda;
extern "C" __global__ void tensor_cores(const __half* a, const __half* b, float* c, int n) {
  wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> x;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major> y;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
  wmma::fill_fragment(sum, 0.0f);
  for (int k = 0; k < n; k += 16) {
    wmma::load_matrix_sync(x, a + blockIdx.y * 16 * n + k, n);
    wmma::load_matrix_sync(y, b + k * n + blockIdx.x * 16, n);
    wmma::mma_sync(sum, x, y, sum);
  }
  wmma::store_matrix_sync(c + blockIdx.y * 16 * n + blockIdx.x * 16, sum, n, wmma::mem_row_major);
}

__device__ int visits;
extern "C" __global__ void indices(int* y) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y * blockDim.y + threadIdx.y;
  int z = blockIdx.z * blockDim.z + threadIdx.z;
  int wide = gridDim.x * blockDim.x, high = gridDim.y * blockDim.y;
  y[(z * high + r) * wide + x] = (z * 100 + r) * 100 + x;
  atomicAdd(&visits, 1);
}

#define UNARY(NAME, EXPRESSION) \
  extern "C" __global__ void unary_##NAME(const double* x, double* y, int n) { \
    int i = threadIdx.x;                                                       \
    if (i < n) y[i] = EXPRESSION;                                              \
  }
UNARY(erfinv, erfinv(x[i]))
UNARY(erfcinv, erfcinv(x[i]))
UNARY(normcdf, normcdf(x[i]))
UNARY(normcdfinv, normcdfinv(x[i] * x[i] * x[i] * x[i]))
UNARY(rsqrt, rsqrt(fabs(x[i])))
UNARY(sinpi, sinpi(x[i]))
UNARY(to_int, (double)__double2int_rz(x[i] * 1e10))
