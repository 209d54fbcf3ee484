"""CUDA C of linear systems and determinants, and Cholesky's factors: a block for each matrix."""

from __future__ import annotations

COMMON = r"""
using namespace miniml;
#define EACH(i, n) for (long long i = threadIdx.x; i < (n); i += blockDim.x)
#define EACH_MATRIX(b, n) for (long long b = blockIdx.x; b < (n); b += gridDim.x)
struct Matrix {
  T* at;
  long long down, right;
  __device__ __forceinline__ T& operator()(long long i, long long j) const {
    return at[i * down + j * right];
  }
};
// False in all threads where one of n numbers is NaN or infinite.
__device__ __forceinline__ bool finite(const T* x, long long n) {
  bool bad = false;
  EACH(i, n) bad = bad || x[i] - x[i] != T(0);
  return !__syncthreads_or(bad);
}
__device__ __forceinline__ void fill_nan(T* x, long long n) {
  EACH(i, n) x[i] = T(NAN);
}
__device__ __forceinline__ T symmetric(const T* a, long long n, long long i, long long j) {
  return a[i * n + j] / T(2) + a[j * n + i] / T(2);
}
"""

SYSTEMS = r"""
extern "C" __global__ void cholesky(const T* x, T* out, long long count, long long n) {
  EACH_MATRIX(b, count) {
    const T* a = x + b * n * n;
    const Matrix l = {out + b * n * n, n, 1};
    EACH(e, n * n) l.at[e] = e % n <= e / n ? symmetric(a, n, e / n, e % n) : T(0);
    bool definite = finite(a, n * n);
    for (long long k = 0; definite && k < n; ++k) {
      const T pivot = l(k, k), root = sqrt(pivot);
      definite = pivot > T(0);
      const long long rest = n - k - 1;
      __syncthreads();
      EACH(i, rest + 1) l(k + i, k) = i ? l(k + i, k) / root : root;
      __syncthreads();
      EACH(e, rest * rest) {
        const long long i = k + 1 + e / rest, j = k + 1 + e % rest;
        if (j <= i) l(i, j) -= l(i, k) * l(j, k);
      }
      __syncthreads();
    }
    if (!definite) fill_nan(l.at, n * n);
  }
}
struct Candidate { T size; int row; };
struct Largest {
  typedef Candidate A;
  static __device__ __forceinline__ A combine(A a, A b) {
    return b.size > a.size || (b.size == a.size && b.row < a.row) ? b : a;
  }
  static __device__ __forceinline__ A crossed(A a, int o) {
    return {__shfl_xor_sync(0xffffffffu, a.size, o), __shfl_xor_sync(0xffffffffu, a.row, o)};
  }
};
__device__ __forceinline__ int pivot_row(const Matrix& a, long long n, long long k) {
  Candidate best = {T(-1), int(k)};
  EACH(i, n - k) {
    const Candidate other = {fabs(a(k + i, k)), int(k + i)};
    best = Largest::combine(best, other);
  }
  best = combined<Largest>(best, blockDim.x);
  __syncthreads();
  return best.size > T(0) ? best.row : -1;
}
// Makes a (n, n) upper triangular, with the same steps for the rows of b (n, m). The sign of the
// exchanges of rows; 0 where no pivot is left. What is below the diagonal of a is not made 0: it
// holds the factors that were used.
__device__ __forceinline__ int eliminate(
    const Matrix& a, const Matrix& b, long long n, long long m) {
  int sign = 1;
  for (long long k = 0; k < n; ++k) {
    const int row = pivot_row(a, n, k);
    if (row < 0) return 0;
    const long long rest = n - k - 1, width = rest + m;
    if (row != k) {
      sign = -sign;
      EACH(j, width + 1) {
        T& upper = j <= rest ? a(k, k + j) : b(k, j - rest - 1);
        T& lower = j <= rest ? a(row, k + j) : b(row, j - rest - 1);
        const T kept = upper;
        upper = lower;
        lower = kept;
      }
      __syncthreads();
    }
    EACH(i, rest) a(k + 1 + i, k) /= a(k, k);
    __syncthreads();
    EACH(e, rest * width) {
      const long long i = k + 1 + e / width, j = e % width;
      if (j < rest) a(i, k + 1 + j) -= a(i, k) * a(k, k + 1 + j);
      else b(i, j - rest) -= a(i, k) * b(k, j - rest);
    }
    __syncthreads();
  }
  return sign;
}
// x (n, m) becomes t^-1 x, for a lower triangular t or, upwards, an upper one.
__device__ __forceinline__ void substitute(
    const Matrix& t, const Matrix& x, long long n, long long m, bool upwards, bool unit) {
  for (long long rest = n - 1; rest >= 0; --rest) {
    const long long k = upwards ? rest : n - 1 - rest, first = upwards ? 0 : k + 1;
    if (!unit) EACH(j, m) x(k, j) /= t(k, k);
    __syncthreads();
    EACH(e, rest * m) {
      const long long i = first + e / m, j = e % m;
      x(i, j) -= t(i, k) * x(k, j);
    }
    __syncthreads();
  }
}
extern "C" __global__ void solve(
    const T* x, const T* y, T* out, T* work, long long count, long long n, long long m) {
  EACH_MATRIX(b, count) {
    const Matrix a = {work + b * n * n, n, 1}, r = {out + b * n * m, m, 1};
    EACH(e, n * n) a.at[e] = x[b * n * n + e];
    EACH(e, n * m) r.at[e] = y[b * n * m + e];
    if (finite(x + b * n * n, n * n) && eliminate(a, r, n, m)) substitute(a, r, n, m, true, false);
    else fill_nan(r.at, n * m);
  }
}
extern "C" __global__ void triangular_solve(
    const T* x, const T* y, T* out, long long count, long long n, long long m, int upper,
    int transpose, int unit) {
  EACH_MATRIX(b, count) {
    const Matrix a = {const_cast<T*>(x) + b * n * n, transpose ? 1 : n, transpose ? n : 1};
    const Matrix r = {out + b * n * m, m, 1};
    EACH(e, n * m) r.at[e] = y[b * n * m + e];
    bool bad = false;
    EACH(e, n * n) {
      const long long i = e / n, j = e % n;
      const T t = x[b * n * n + e];
      if (upper ? i < j : i > j) bad = bad || t - t != T(0);
      if (i == j && !unit) bad = bad || t - t != T(0) || t == T(0);
    }
    if (__syncthreads_or(bad)) fill_nan(r.at, n * m);
    else substitute(a, r, n, m, (upper != 0) != (transpose != 0), unit != 0);
  }
}
// The sign of the determinant, or NaN; what has to be multiplied by it is on the diagonal of a.
__device__ __forceinline__ T factored(const T* x, const Matrix& a, long long n) {
  EACH(e, n * n) a.at[e] = x[e];
  return finite(x, n * n) ? T(eliminate(a, a, n, 0)) : T(NAN);
}
extern "C" __global__ void det(const T* x, T* out, T* work, long long count, long long n) {
  EACH_MATRIX(b, count) {
    const Matrix a = {work + b * n * n, n, 1};
    T product = factored(x + b * n * n, a, n);
    if (threadIdx.x) continue;
    int exponent = 0, more = 0;  // kept apart: on the way the product may leave the range
    for (long long k = 0; k < n && product != T(0); ++k) {
      product = frexp(product * a(k, k), &more);
      exponent += more;
    }
    out[b] = ldexp(product, exponent);
  }
}
extern "C" __global__ void slogdet(
    const T* x, T* signs, T* logs, T* work, long long count, long long n) {
  EACH_MATRIX(b, count) {
    const Matrix a = {work + b * n * n, n, 1};
    T sign = factored(x + b * n * n, a, n), sum = sign == T(0) ? -T(INFINITY) : sign - sign;
    if (threadIdx.x) continue;
    for (long long k = 0; k < n && sign != T(0); ++k) {
      sign = a(k, k) < T(0) ? -sign : sign;
      sum += log(fabs(a(k, k)));
    }
    signs[b] = sign;
    logs[b] = sum;
  }
}
"""
