"""CUDA decompositions: a block of threads for each matrix, which stays in device memory.

Elimination with partial pivoting; Cholesky's factors column by column; reflections (Householder)
for QR; rotations of pairs of columns (one-sided Jacobi) for singular values, and, of a matrix with
so much added to its diagonal that it is positive definite, for eigenvalues. Parts: the text of
linear systems, determinants and Cholesky's factors; the text of QR, singular values, eigenvalues
and pseudo-inverses; their launches.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod, sqrt
from typing import Any, NamedTuple

import numpy as np

from ....core.abstract import ArraySpec, int64
from ....core.signature import WIDE
from ...kernel import Kernel, KernelNode, Launch
from ...registry import kernel
from ..text.source import BLOCK, unit

# --- Linear systems -------------------------------------------------------------------------------


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
struct Pivot {
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
    best = Pivot::combine(best, other);
  }
  best = combined<Pivot>(best, blockDim.x);
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


# --- Factorizations -------------------------------------------------------------------------------


# Warps work on columns. A wide matrix is seen as its transpose, so there are at least as many rows.
FACTORS = r"""
#define EACH_COLUMN(j, n) for (long long j = threadIdx.x >> 5; j < (n); j += blockDim.x >> 5)
#define EACH_ROW(i, first, m) for (long long i = (first) + (threadIdx.x & 31); i < (m); i += 32)
// A power of two by which numbers come near 1, so that no square leaves the range.
__device__ __forceinline__ T scale_of(const T* x, long long n) {
  T most = T(0);
  EACH(i, n) most = Largest<T>::combine(most, fabs(x[i]));
  most = combined<Largest<T> >(most, blockDim.x);
  int exponent = 0;
  frexp(most, &exponent);
  return most > T(0) ? ldexp(T(1), exponent - 1) : T(1);
}
// x_i^T y_j from row `first` on, in all threads of a warp.
__device__ __forceinline__ T dot(
    const Matrix& x, long long i, const Matrix& y, long long j, long long first, long long m) {
  T sum = T(0);
  EACH_ROW(r, first, m) sum += x(r, i) * y(r, j);
  return combined<Total<T> >(sum, 32);
}
// The sign of the first of the largest numbers in a column.
__device__ __forceinline__ T sign_of(const Matrix& x, long long j, long long m) {
  T most = T(0);
  for (long long i = 0; i < m; ++i) most = Largest<T>::combine(most, fabs(x(i, j)));
  for (long long i = 0; i < m; ++i)
    if (fabs(x(i, j)) >= T(LARGEST) * most) return x(i, j) < T(0) ? T(-1) : T(1);
  return T(1);
}
// Column c of x less factor v (v^T c); v is 1 in row j, and below that column j of w.
__device__ __forceinline__ void reflected(
    const Matrix& w, long long j, long long m, T factor, const Matrix& x, long long c) {
  const T part = factor * (x(j, c) + dot(w, j, x, c, j + 1, m));
  __syncwarp();
  if ((threadIdx.x & 31) == 0) x(j, c) -= part;
  EACH_ROW(i, j + 1, m) x(i, c) -= part * w(i, j);
  __syncwarp();
}
// w (m, n) becomes r, with the vectors of the reflections below its diagonal.
__device__ __forceinline__ void reflect(const Matrix& w, long long m, long long n, T* factors) {
  for (long long j = 0; j < n && j < m; ++j) {
    const T head = w(j, j), tail = dot(w, j, w, j, j + 1, m);
    const T size = sqrt(head * head + tail), other = head > T(0) ? -size : size;
    const T factor = tail > T(0) ? (other - head) / other : T(0);
    __syncthreads();
    if (tail > T(0)) EACH(i, m - j - 1) w(j + 1 + i, j) /= head - other;
    if (threadIdx.x == 0) {
      factors[j] = factor;
      if (tail > T(0)) w(j, j) = other;
    }
    __syncthreads();
    EACH_COLUMN(c, n) if (c > j) reflected(w, j, m, factor, w, c);
    __syncthreads();
  }
}
// The first k columns of the product of the reflections.
__device__ __forceinline__ void accumulate(
    const Matrix& w, long long m, long long k, const T* factors, const Matrix& q) {
  EACH(e, m * k) q(e / k, e % k) = e / k == e % k ? T(1) : T(0);
  __syncthreads();
  for (long long j = k - 1; j >= 0; --j)
    EACH_COLUMN(c, k) if (c >= j) reflected(w, j, m, factors[j], q, c);
  __syncthreads();
}
// Turns columns p and q by an angle, given by its sine and the tangent of its half: the cosine is
// not rounded by itself, which would change the columns' lengths a little each time.
__device__ __forceinline__ void rotated(
    const Matrix& x, long long m, long long p, long long q, T sine, T half) {
  EACH_ROW(i, 0, m) {
    const T left = x(i, p), right = x(i, q);
    x(i, p) = left - sine * (right + half * left);
    x(i, q) = right + sine * (left - half * right);
  }
}
// Rotates the columns of w (m, n) until all are orthogonal, to `tolerance`, and those of v (n, n)
// with them: in each round every column has one partner, in n rounds every other.
__device__ __forceinline__ void orthogonalise(
    const Matrix& w, long long m, const Matrix& v, long long n, T tolerance) {
  EACH(e, n * n) v(e / n, e % n) = e / n == e % n ? T(1) : T(0);
  __syncthreads();
  const long long rounds = n - 1 + n % 2;
  for (int sweep = 0; sweep < SWEEPS; ++sweep) {
    bool changed = false;
    for (long long round = 0; round < rounds; ++round) {
      EACH_COLUMN(pair, (rounds + 1) / 2) {
        const long long one = pair ? (round + pair) % rounds : rounds;
        const long long two = (round + rounds - pair) % rounds;
        const long long p = one < two ? one : two, q = one < two ? two : one;
        if (q >= n) continue;
        const T pp = dot(w, p, w, p, 0, m), qq = dot(w, q, w, q, 0, m), pq = dot(w, p, w, q, 0, m);
        if (!(fabs(pq) > tolerance * sqrt(pp) * sqrt(qq))) continue;
        changed = true;
        const T half = (qq - pp) / (T(2) * pq);
        const T tangent = copysign(T(1), half) / (fabs(half) + sqrt(T(1) + half * half));
        const T cosine = T(1) / sqrt(T(1) + tangent * tangent), sine = cosine * tangent;
        __syncwarp();
        rotated(w, m, p, q, sine, sine / (T(1) + cosine));
        rotated(v, n, p, q, sine, sine / (T(1) + cosine));
      }
      __syncthreads();
    }
    if (!__syncthreads_or(changed)) return;
  }
}
// Where each of n numbers is, counted from the largest or from the smallest.
__device__ __forceinline__ void sort_places(
    const T* x, long long n, bool descending, long long* order) {
  EACH(j, n) {
    long long place = 0;
    for (long long i = 0; i < n; ++i)
      place += (descending ? x[i] > x[j] : x[i] < x[j]) || (x[i] == x[j] && i < j);
    order[place] = j;
  }
  __syncthreads();
}
extern "C" __global__ void qr(
    const T* x, T* q, T* r, T* work, T* factors, long long count, long long m, long long n) {
  const long long k = m < n ? m : n;
  EACH_MATRIX(b, count) {
    const T* a = x + b * m * n;
    if (!finite(a, m * n)) {
      fill_nan(q + b * m * k, m * k);
      fill_nan(r + b * k * n, k * n);
      continue;
    }
    const Matrix w = {work + b * m * n, 1, m}, basis = {q + b * m * k, k, 1};
    const T scale = scale_of(a, m * n);
    EACH(e, m * n) w(e / n, e % n) = a[e] / scale;
    __syncthreads();
    reflect(w, m, n, factors + b * k);
    accumulate(w, m, k, factors + b * k, basis);
    EACH(e, m * k) if (w(e % k, e % k) < T(0)) basis.at[e] = -basis.at[e];
    EACH(e, k * n) {
      const long long i = e / n, j = e % n;
      const T size = w(i, i) < T(0) ? -w(i, j) : w(i, j);
      r[b * k * n + e] = i <= j ? scale * size : T(0);
    }
  }
}
// w = x / scale, or its transpose if x (m, n) is wide; then its columns are made orthogonal. Their
// lengths are the singular values.
__device__ __forceinline__ void singular(
    const T* x, T scale, long long m, long long n, const Matrix& w, const Matrix& v, T* lengths,
    T tolerance) {
  const long long rows = m < n ? n : m, columns = m < n ? m : n;
  EACH(e, m * n) {
    if (m < n) w(e % n, e / n) = x[e] / scale;
    else w(e / n, e % n) = x[e] / scale;
  }
  __syncthreads();
  orthogonalise(w, rows, v, columns, tolerance);
  EACH_COLUMN(j, columns) {
    const T length = sqrt(dot(w, j, w, j, 0, rows));
    if ((threadIdx.x & 31) == 0) lengths[j] = length;
  }
  __syncthreads();
}
// The orthogonal columns of w, in order, are q times a diagonal r, which gives orthonormal columns
// where lengths are 0, too.
extern "C" __global__ void svd(
    const T* x, T* us, T* ss, T* vhs, T* work, T* sorted, T* turns, T* sizes, long long* orders,
    long long count, long long m, long long n, double tolerance) {
  const bool wide = m < n;
  const long long rows = wide ? n : m, k = wide ? m : n;
  EACH_MATRIX(b, count) {
    const T* a = x + b * m * n;
    T *u = us + b * m * k, *vh = vhs + b * k * n, *first = sizes + 2 * b * k, *second = first + k;
    if (!finite(a, m * n)) {
      fill_nan(u, m * k);
      fill_nan(ss + b * k, k);
      fill_nan(vh, k * n);
      continue;
    }
    const Matrix w = {work + b * m * n, 1, rows}, v = {turns + b * k * k, 1, k};
    const Matrix r = {sorted + b * m * n, 1, rows};
    long long* order = orders + b * k;
    const T scale = scale_of(a, m * n);
    singular(a, scale, m, n, w, v, first, T(tolerance));
    sort_places(first, k, true, order);
    EACH(e, rows * k) r(e / k, e % k) = w(e / k, order[e % k]);
    EACH(j, k) ss[b * k + j] = scale * first[order[j]];
    __syncthreads();
    reflect(r, rows, k, second);
    accumulate(r, rows, k, second, w);
    EACH(j, k) {
      const T turn = r(j, j) < T(0) ? T(-1) : T(1);
      const T sign = wide ? sign_of(v, order[j], k) : sign_of(w, j, rows);
      first[j] = wide ? sign * turn : sign;   // what turns a column of w
      second[j] = wide ? sign : sign * turn;  // and one of v
    }
    __syncthreads();
    const Matrix left = {wide ? vh : u, wide ? 1 : k, wide ? n : 1};
    const Matrix right = {wide ? u : vh, wide ? k : 1, wide ? 1 : n};
    EACH(e, rows * k) left(e / k, e % k) = first[e % k] * w(e / k, e % k);
    EACH(e, k * k) right(e / k, e % k) = second[e % k] * v(e / k, order[e % k]);
  }
}
extern "C" __global__ void pinv(
    const T* x, T* out, T* work, T* turns, T* sizes, long long count, long long m, long long n,
    double tolerance, double rtol) {
  const bool wide = m < n;
  const long long rows = wide ? n : m, k = wide ? m : n;
  EACH_MATRIX(b, count) {
    const T* a = x + b * m * n;
    if (!finite(a, m * n)) {
      fill_nan(out + b * m * n, m * n);
      continue;
    }
    const Matrix w = {work + b * m * n, 1, rows}, v = {turns + b * k * k, 1, k};
    const Matrix p = {out + b * m * n, wide ? 1 : m, wide ? m : 1};
    T* lengths = sizes + b * k;
    const T scale = scale_of(a, m * n);
    singular(a, scale, m, n, w, v, lengths, T(tolerance));
    T most = T(0);
    for (long long j = 0; j < k; ++j) most = Largest<T>::combine(most, lengths[j]);
    EACH(e, k * rows) {
      const long long i = e / rows, r = e % rows;
      T sum = T(0);
      for (long long j = 0; j < k; ++j)
        if (lengths[j] > T(rtol) * most) sum += v(i, j) / lengths[j] * (w(r, j) / lengths[j]);
      p(i, r) = sum / scale;
    }
  }
}
extern "C" __global__ void eigh(
    const T* x, T* ws, T* vs, T* work, T* turns, T* sizes, long long* orders, long long count,
    long long n, double tolerance) {
  EACH_MATRIX(b, count) {
    const T* a = x + b * n * n;
    T *out = vs + b * n * n, *values = sizes + b * n;
    long long* order = orders + b * n;
    if (!finite(a, n * n)) {
      fill_nan(ws + b * n, n);
      fill_nan(out, n * n);
      continue;
    }
    const Matrix w = {work + b * n * n, 1, n}, v = {turns + b * n * n, 1, n};
    const T scale = scale_of(a, n * n);
    T squares = T(0);
    EACH(e, n * n) {
      const T number = symmetric(a, n, e / n, e % n) / scale;
      w(e / n, e % n) = number;
      squares += number * number;
    }
    const T shift = sqrt(combined<Total<T> >(squares, blockDim.x));  // at least any eigenvalue
    __syncthreads();
    EACH(i, n) w(i, i) += shift;
    __syncthreads();
    orthogonalise(w, n, v, n, T(tolerance));
    EACH_COLUMN(j, n) {
      T sum = T(0);  // v_j^T a v_j
      EACH_ROW(i, 0, n) {
        T product = T(0);
        for (long long k = 0; k < n; ++k) product += symmetric(a, n, i, k) / scale * v(k, j);
        sum += v(i, j) * product;
      }
      sum = combined<Total<T> >(sum, 32);
      if ((threadIdx.x & 31) == 0) values[j] = sum;
    }
    __syncthreads();
    sort_places(values, n, false, order);
    EACH(j, n) {
      ws[b * n + j] = scale * values[order[j]];
      const T sign = sign_of(v, order[j], n);
      for (long long i = 0; i < n; ++i) out[i * n + j] = sign * v(i, order[j]);
    }
  }
}
"""


# --- Launches -------------------------------------------------------------------------------------


# Rotations end when columns are orthogonal to rounding, after 6 to 10 sweeps for matrices of up to
# a thousand columns; the limit is for matrices for which rounding prevents this.
SWEEPS = 30
# As on the CPU: numbers this close to the largest of a vector count as equal to it.
LARGEST = 0.9
MANY = 1 << 20  # blocks of a grid; each block loops over its share of more matrices


class PerMatrix(Kernel):
    """A kernel of PLANS; those of one text and dtype are compiled together."""

    def prepare(self, node: KernelNode) -> None:
        super().prepare(node)
        plan = PLANS[node.name]
        self.rule = plan.launch(node)
        code = unit(COMMON + plan.text, T=node.inputs[0].dtype, SWEEPS=SWEEPS, LARGEST=str(LARGEST))
        self.function = node.device.compiler.function(code, plan.entry)

    def workspace(self) -> tuple[ArraySpec, ...]:
        return self.rule.workspace

    def launch(self, inputs: Any, workspace: Any, outputs: Any, stream: object) -> None:
        arrays = [a.flat for a in (*inputs, *outputs, *workspace)]
        self.function(self.rule.grid, self.rule.block, (*arrays, *self.rule.args))


def cholesky(node: KernelNode) -> Launch:
    return per_matrix(node, extents(node)[:2])


def solve(node: KernelNode) -> Launch:
    count, n, _ = extents(node)
    return per_matrix(node, (count, n, node.inputs[1].shape[-1]), (count * n * n,))


def triangular_solve(node: KernelNode) -> Launch:
    sizes = (*extents(node)[:2], node.inputs[1].shape[-1])
    flags = [np.int32(node.attrs[f]) for f in ("upper", "transpose", "unit_diagonal")]
    return per_matrix(node, sizes, args=flags)


def det(node: KernelNode) -> Launch:
    count, n, _ = extents(node)
    return per_matrix(node, (count, n), (count * n * n,))


def qr(node: KernelNode) -> Launch:
    count, m, n = extents(node)
    return per_matrix(node, (count, m, n), (count * m * n, count * min(m, n)))


def svd(node: KernelNode) -> Launch:
    count, m, n = extents(node)
    k, whole = min(m, n), count * m * n
    scratch = (whole, whole, count * k * k, 2 * count * k, (count * k, int64))
    return per_matrix(node, (count, m, n), scratch, (tolerance(node),))


def pinv(node: KernelNode) -> Launch:
    count, m, n = extents(node)
    k = min(m, n)
    args = tolerance(node), np.float64(node.attrs["rtol"])
    return per_matrix(node, (count, m, n), (count * m * n, count * k * k, count * k), args)


def eigh(node: KernelNode) -> Launch:
    count, n, _ = extents(node)
    whole = count * n * n
    scratch = (whole, whole, count * n, (count * n, int64))
    return per_matrix(node, (count, n), scratch, (tolerance(node),))


def per_matrix(node: KernelNode, sizes: Any, scratch: Any = (), args: Any = ()) -> Launch:
    """A block for each matrix. sizes: integer arguments of the kernel, the first the number of
    matrices; scratch: the numbers of elements of workspaces, with their dtype where it is not that
    of the matrices."""
    dtype = node.inputs[0].dtype
    pairs = [s if isinstance(s, tuple) else (s, dtype) for s in scratch]
    return Launch(
        grid=(min(max(sizes[0], 1), MANY),),
        block=(32 if max(node.inputs[0].shape[-2:]) <= 32 else BLOCK,),
        args=(*map(np.int64, sizes), *args),
        workspace=tuple(ArraySpec((max(size, 1),), d) for size, d in pairs),
    )


def extents(node: KernelNode) -> tuple[int, int, int]:
    """The numbers of matrices, of their rows and of their columns."""
    *batch, m, n = node.inputs[0].shape
    return prod(batch), m, n


def tolerance(node: KernelNode) -> np.float64:
    """The cosine of two columns that counts as 0: its rounding error for this length."""
    rows = max(node.inputs[0].shape[-2:])
    return np.float64(sqrt(rows) * np.finfo(node.inputs[0].dtype).eps)


class Plan(NamedTuple):
    """The text with a primitive's kernel, the function in it, and its launch rule."""

    text: str
    entry: str
    launch: Callable[[KernelNode], Launch]
    signature: str


PLANS = {
    "Cholesky": Plan(SYSTEMS, "cholesky", cholesky, "{}->{}"),
    "Solve": Plan(SYSTEMS, "solve", solve, "{}{}->{}"),
    "TriangularSolve": Plan(SYSTEMS, "triangular_solve", triangular_solve, "{}{}->{}"),
    "Det": Plan(SYSTEMS, "det", det, "{}->{}"),
    "SlogDet": Plan(SYSTEMS, "slogdet", det, "{}->{}{}"),
    "QR": Plan(FACTORS, "qr", qr, "{}->{}{}"),
    "SVD": Plan(FACTORS, "svd", svd, "{}->{}{}{}"),
    "Eigh": Plan(FACTORS, "eigh", eigh, "{}->{}{}"),
    "Pinv": Plan(FACTORS, "pinv", pinv, "{}->{}"),
}

for _name, _plan in PLANS.items():
    kernel(_name, "cuda", *[_plan.signature.replace("{}", c) for c in WIDE])(PerMatrix)
