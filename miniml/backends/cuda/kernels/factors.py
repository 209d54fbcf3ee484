"""CUDA C of QR, singular values, eigenvalues and pseudo-inverses: a block for each matrix."""

# Warps work on columns. A wide matrix is seen as its transpose, so there are at least as many rows.
FACTORS = r"""
#define EACH_COLUMN(j, n) for (long long j = threadIdx.x >> 5; j < (n); j += blockDim.x >> 5)
#define EACH_ROW(i, first, m) for (long long i = (first) + (threadIdx.x & 31); i < (m); i += 32)
struct Most {
  typedef T A;
  static __device__ __forceinline__ A combine(A a, A b) { return a > b ? a : b; }
  static __device__ __forceinline__ A crossed(A a, int o) {
    return __shfl_xor_sync(0xffffffffu, a, o);
  }
};
// A power of two by which numbers come near 1, so that no square leaves the range.
__device__ __forceinline__ T scale_of(const T* x, long long n) {
  T most = T(0);
  EACH(i, n) most = Most::combine(most, fabs(x[i]));
  most = combined<Most>(most, blockDim.x);
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
  for (long long i = 0; i < m; ++i) most = Most::combine(most, fabs(x(i, j)));
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
    for (long long j = 0; j < k; ++j) most = Most::combine(most, lengths[j]);
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
