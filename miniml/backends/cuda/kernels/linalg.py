"""CUDA products of matrices: by cuBLAS, by tensor cores, and by tiles in shared memory.

Parts: cuBLAS; tiles, with and without tensor cores; the kernels of MatMul for the
products of other primitives; Einstein sums, as matrix products or with each output by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product as pairs
from math import prod
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ....core.abstract import ArraySpec, DType
from ....core.errors import ShapeError
from ....core.signature import BF16, FLOAT, INT, same
from ...expressions import accumulation
from ...kernel import Kernel, KernelNode
from ...product import Product, Shape, axes_of, dense_strides, product_of, spelt_out
from ...registry import kernel
from ..driver import explained, raise_as
from ..text.source import bounded, grid_for, layout, unit

# --- cuBLAS ---------------------------------------------------------------------------------------


# Numbers of cublas_api.h and library_types.h: operations, the algorithm, types of numbers, of sums.
_AS_IT_LIES, _TRANSPOSED = 0, 1
_ANY_ALGORITHM = -1
_TYPES = {"f": 0, "d": 1, "e": 2, BF16: 14}
_FLOAT32_SUMS, _FLOAT64_SUMS = 68, 70
LIMIT = 2**31 - 1


class Operand(NamedTuple):
    """A matrix for cuBLAS: the operation, and the elements from one of its columns to the next,
    which are our rows."""

    operation: int
    leading: int


class Gemm(NamedTuple):
    """The number and arguments of the calls of gemmStridedBatchedEx for a product.

    cuBLAS is column-major and reads a row-major matrix as the transposed one, so it computes
    y^T x^T, the transposed result, which is then row-major. steps: elements from one matrix of a
    call to the next, of x, y and out. starts: the same from call to call. exchanged: x and y are
    swapped, for a column-major result.
    """

    m: int
    n: int
    k: int
    x: Operand
    y: Operand
    out: Operand
    batch: int
    steps: tuple[int, ...]
    starts: list[tuple[int, ...]]
    exchanged: bool = False


def gemm_of(p: Product) -> Gemm | None:
    """The calls for a product: one for a whole batch with even steps, and one product of more rows
    if only x has a batch. None if a matrix is neither row-major nor column-major, or too large for
    cuBLAS."""
    x, y, out = lying(p.m, p.k, p.x), lying(p.k, p.n, p.y), lying(p.m, p.n, p.out)
    if x is None or y is None or out is None:
        return None
    if out.operation == _TRANSPOSED:
        found = gemm_of(p.transposed)
        return None if found is None else found._replace(exchanged=True)
    m, axes = p.m, list(p.axes)
    if x.operation == _AS_IT_LIES and axes == [(p.batches, (m * p.x[0], 0, m * p.out[0]))]:
        m, axes = m * p.batches, [(1, (0, 0, 0))]
    together = max(axes)
    axes.remove(together)
    starts = [
        tuple(sum(i * s[o] for i, (_, s) in zip(at, axes, strict=True)) for o in range(3))
        for at in pairs(*[range(extent) for extent, _ in axes])
    ]
    batch, steps = together
    if max(m, p.n, p.k, x.leading, y.leading, out.leading, batch) > LIMIT:
        return None
    return Gemm(m, p.n, p.k, x, y, out, batch, steps, starts)


def lying(rows: int, columns: int, steps: tuple[int, int]) -> Operand | None:
    """The layout of a matrix: row-major if it can be, else column-major; None if neither."""
    row, column = steps
    if column == 1 or columns == 1:
        leading = row if rows > 1 else columns
        if leading >= columns:
            return Operand(_AS_IT_LIES, leading)
    if row == 1 or rows == 1:
        leading = column if columns > 1 else rows
        if leading >= rows:
            return Operand(_TRANSPOSED, leading)
    return None


class CuBLAS(Kernel):
    """A product by cublasGemmStridedBatchedEx."""

    def prepare(self, node: KernelNode) -> None:
        super().prepare(node)
        product = product_of(node)
        if not self.plan(product, node.inputs[0].dtype, node.device):
            raise ShapeError(
                f"{node.name} got {product.batches} products of {product.m} x {product.k} by "
                f"{product.k} x {product.n}; cuBLAS counts up to {LIMIT}: multiply parts"
            )

    def plan(self, product: Product, dtype: DType, device: Any) -> bool:
        """Prepare for a product of any origin; False for one that gemm cannot compute."""
        gemm = gemm_of(product)
        if gemm is None:
            return False
        self.gemm, self.device, self.cublas = gemm, device, device.driver.cublas
        wide = dtype == np.dtype("d")
        self.type, self.itemsize = _TYPES[dtype.char], dtype.itemsize
        self.sums = _FLOAT64_SUMS if wide else _FLOAT32_SUMS
        self.one, self.zero = np.ones(1, "d" if wide else "f"), np.zeros(1, "d" if wide else "f")
        return True

    def workspace(self) -> tuple[ArraySpec, ...]:
        return (ArraySpec((self.cublas.scratch,), np.dtype(np.uint8)),)

    def launch(self, inputs: Any, workspace: Any, outputs: Any, stream: Any) -> None:
        x, y, out, scratch = (a.flat for a in (*inputs, *outputs, *workspace))
        if self.gemm.exchanged:
            x, y = y, x
        if not self.gemm.k:
            out.fill(0)
            return
        try:
            for start in self.gemm.starts:
                at = (a.data.ptr + s * self.itemsize for a, s in zip((x, y, out), start))
                self._call(stream.ptr, scratch.data.ptr, *at)
        except Exception as error:
            raise_as(explained(error, self.device, "a product by cuBLAS"), error)

    def _call(self, stream: int, scratch: int, x: int, y: int, out: int) -> None:
        g, kind, (x_step, y_step, out_step) = self.gemm, self.type, self.gemm.steps
        self.cublas.gemm(
            stream, scratch, g.y.operation, g.x.operation, g.n, g.m, g.k, self.one.ctypes.data,
            y, kind, g.y.leading, y_step, x, kind, g.x.leading, x_step, self.zero.ctypes.data,
            out, kind, g.out.leading, out_step, g.batch, self.sums, _ANY_ALGORITHM,
        )  # fmt: skip


# --- Tiles in shared memory -----------------------------------------------------------------------


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


_FIELDS = (
    "batches", "m", "n", "k", "x_row", "x_column", "y_row", "y_column", "out_row", "out_column"
)  # fmt: skip
PRODUCT = np.dtype([(name, np.int64) for name in _FIELDS])


# This many blocks of large tiles keep a GPU busy; with fewer, small tiles are faster.
BUSY = 64


class Tiles(Kernel):
    """A product by tiles of 64 x 64 or 16 x 16 results, of which a block computes one at a time."""

    source: ClassVar[str]
    threads: ClassVar[dict[int, int]]

    def prepare(self, node: KernelNode) -> None:
        super().prepare(node)
        self.plan(product_of(node), node.inputs[0].dtype, node.device)

    def plan(self, product: Product, dtype: DType, device: Any) -> bool:
        """Prepare for a product of any origin; True, since tiles can compute all of them."""
        self.args = arguments(product)
        tiles = {s: product.batches * -(-product.m // s) * -(-product.n // s) for s in self.threads}
        side = 64 if min(product.m, product.n) > 32 and tiles[64] >= BUSY else 16
        self.grid, self.block = (min(max(tiles[side], 1), 1 << 20),), (self.threads[side],)
        code = unit(self.source, T=dtype, S=accumulation(dtype), Product=PRODUCT)
        self.function = device.compiler.function(code, f"matmul_{side}")
        return True

    def launch(self, inputs: Any, workspace: Any, outputs: Any, stream: object) -> None:
        arrays = [a.flat for a in (*inputs, *outputs)]
        self.function(self.grid, self.block, (*arrays, *self.args))


class RegisterTiles(Tiles):
    """Sums in the registers of threads: any dtype, any device."""

    source = TILES + REGISTERS
    threads: ClassVar = {64: 256, 16: 64}


class TensorCoreTiles(Tiles):
    """float16 or bfloat16 multiplied by tensor cores and summed in float32."""

    source = "#include <mma.h>\n" + TILES + TENSOR_CORES
    threads: ClassVar = {64: 128, 16: 32}


def arguments(product: Product) -> tuple[Any, Any]:
    """The Layout<3> of the batch and the struct Product for a kernel."""
    p = product
    sizes = (p.batches, p.m, p.n, p.k, *p.x, *p.y, *p.out)
    return layout(bounded(p.axes, "MatMul")), np.array([sizes], PRODUCT)


# Of the kernels with one key whose requirements the device meets, the highest priority runs.
kernel("MatMul", "cuda", *same(2, FLOAT), requires=("cublas",), priority=2)(CuBLAS)
kernel("MatMul", "cuda", *same(2, "e"), requires=("wmma",), priority=1)(TensorCoreTiles)
kernel("MatMul", "cuda", *same(2, BF16), requires=("wmma_bfloat16",), priority=1)(TensorCoreTiles)
kernel("MatMul", "cuda", *same(2, "?" + INT + FLOAT))(RegisterTiles)


# --- Products of other primitives -----------------------------------------------------------------


def planned(product: Product, dtype: DType, target: Any) -> Kernel | None:
    """The kernel of MatMul that the target selects for a dtype, prepared for a product of another
    primitive; None if that kernel cannot compute it."""
    like = ArraySpec((), dtype)
    selection = target.select("MatMul", (like, like), (like,))
    made = target.device.bare_kernel(selection.entry)
    if isinstance(made, Tiles | CuBLAS):
        return made if made.plan(product, dtype, target.device) else None
    foreign = Foreign(made)
    return foreign if selection.cast is None and foreign.plan(product, dtype, target) else None


class Foreign(Kernel):
    """A MatMul kernel without support for products of other primitives, applied to one with the
    operands in shapes that it takes."""

    def __init__(self, kernel: Kernel):
        self.kernel = kernel

    def plan(self, product: Product, dtype: DType, target: Any) -> bool:
        """Prepare the kernel; False if MatMul does not take such operands."""
        out = stored(product, 2)
        self.exchanged = out is not None and out.transposed
        product = product.transposed if self.exchanged else product
        x, y, out = (stored(product, operand) for operand in range(3))
        if x is None or y is None or out is None:
            return False
        turns = {"transpose_x": x.transposed, "transpose_y": y.transposed}
        specs = [ArraySpec(operand.shape, dtype) for operand in (x, y, out)]
        self.shapes = x.shape, y.shape, out.shape
        self.kernel.prepare(KernelNode("MatMul", tuple(specs[:2]), (specs[2],), turns, target))
        return True

    def workspace(self) -> tuple[ArraySpec, ...]:
        return self.kernel.workspace()

    def launch(self, inputs: Any, workspace: Any, outputs: Any, stream: object) -> None:
        given = inputs[::-1] if self.exchanged else inputs
        x, y, out = (a.reshape(s) for a, s in zip((*given, *outputs), self.shapes, strict=True))
        self.kernel.launch((x, y), workspace, (out,), stream)

    def release(self) -> None:
        self.kernel.release()


class Stored(NamedTuple):
    """An operand of MatMul: matrices one after the other, perhaps transposed."""

    shape: Shape
    transposed: bool


def stored(product: Product, operand: int) -> Stored | None:
    """The layout of x, y or out (0, 1 or 2) of a product as an operand; None if it has none."""
    p = product
    rows, columns = ((p.m, p.k), (p.k, p.n), (p.m, p.n))[operand]
    row, column = (p.x, p.y, p.out)[operand]
    turned = not (column == 1 and row == columns)
    if turned and not (row == 1 and column == rows):
        return None
    shape: Shape = (columns, rows) if turned else (rows, columns)
    step = rows * columns
    for extent, steps in reversed(p.axes):
        if steps[operand] not in (0, step):
            return None
        shape = (extent if steps[operand] else 1, *shape)
        step *= shape[0]
    return Stored(shape, turned)


# --- Einstein sums --------------------------------------------------------------------------------


EINSUM = r"""
using namespace miniml;
extern "C" __global__ void einsum(
    INPUTS, E* out, Layout<K> kept, Layout<K> over, long long size, long long terms,
    int lanes) {
  const int lane = threadIdx.x % lanes;
  for (long long i = group_index(lanes); i < size; i += group_count(lanes)) {
    long long at[K], more[K];
    locate(kept, i, at);
    S sum = S(0);
    for (long long r = lane; r < terms; r += lanes) {
      locate(over, r, more);
      S term = S(1);
      for (int k = 0; k < K; ++k) more[k] += at[k];
      TERM
      sum += term;
    }
    sum = combined<Total<S> >(sum, lanes);
    if (lane == 0) out[i] = store<E>(sum);
  }
}
"""


class EinsumKernel(Kernel):
    """A sum over the labels that the output lacks, for every combination of its own labels.

    product: the kernel that computes it as a matrix product, if it is one.
    """

    def prepare(self, node: KernelNode) -> None:
        super().prepare(node)
        dtype = node.outputs[0].dtype
        shapes = tuple(i.shape for i in node.inputs)
        operands, output, extents = spelt_out(node.attrs["equation"], shapes)
        summed = [label for label in extents if label not in output]
        steps = [
            operand_steps(labels, shape) for labels, shape in zip(operands, shapes, strict=True)
        ]
        self.product = product_for(node, steps, output, extents)
        if self.product is not None:
            return
        self.size = prod(extents[label] for label in output)
        self.terms = prod(extents[label] for label in summed)
        self.kept = layout(bounded(axes_of(output, steps, extents), node.name))
        self.over = layout(bounded(axes_of(summed, steps, extents), node.name))
        self.lanes = 32 if self.terms >= 256 else 1
        self.function = node.device.compiler.function(einsum_text(dtype, len(operands)), "einsum")

    def workspace(self) -> tuple[ArraySpec, ...]:
        return () if self.product is None else self.product.workspace()

    def release(self) -> None:
        if self.product is not None:
            self.product.release()

    def launch(self, inputs: Any, workspace: Any, outputs: Any, stream: object) -> None:
        if self.product is not None:
            self.product.launch(inputs, workspace, outputs, stream)
            return
        sizes = np.int64(self.size), np.int64(self.terms), np.int32(self.lanes)
        arrays = (*[a.flat for a in inputs], outputs[0].flat)
        args = (*arrays, self.kept, self.over, *sizes)
        self.function(*grid_for(self.size, self.lanes), args)


def product_for(
    node: KernelNode, steps: list[dict[str, int]], output: str, extents: dict[str, int]
) -> Kernel | None:
    """The kernel for two operands whose sum is a proper matrix product: several rows, columns and
    terms."""
    if len(steps) != 2:
        return None
    product = product_of_labels(steps[0], steps[1], output, extents)
    if product is None or min(product[:3]) < 2:
        return None
    return planned(product, node.outputs[0].dtype, node.target)


def product_of_labels(
    x: Mapping[Any, int], y: Mapping[Any, int], output: Sequence[Any], extents: Mapping[Any, int]
) -> Product | None:
    """The Einstein sum of two operands as a product of matrices, where it is one.

    x, y: the steps of each along its labels. Labels of both that the output keeps are the batch,
    labels that are summed run along k, labels of one alone along m or n. None where a label is
    summed in one operand alone, or where the axes of one kind do not lie as one axis.
    """
    labels = [label for label in extents if extents[label] != 1]
    out = dict(zip(output, dense_strides(tuple(extents[o] for o in output), 1), strict=True))
    kinds: dict[tuple[int, int, int], list[Any]] = {}
    for label in [*(o for o in output if extents[o] != 1), *(s for s in labels if s not in out)]:
        kinds.setdefault((label in x, label in y, label in out), []).append(label)
    found = []
    of_m, of_n, of_k, of_batch = (1, 0, 1), (0, 1, 1), (1, 1, 0), (1, 1, 1)
    for kind, operands in ((of_m, (x, out)), (of_n, (y, out)), (of_k, (x, y))):
        axes = axes_of(kinds.pop(kind, []), operands, extents)
        found.append(axes[0])
        if len(axes) > 1:
            return None
    batch = axes_of(kinds.pop(of_batch, []), (x, y, out), extents)
    if kinds:
        return None
    (m, m_steps), (n, n_steps), (k, k_steps) = found
    return Product(
        m, n, k, (m_steps[0], k_steps[0]), (k_steps[1], n_steps[0]), (m_steps[1], n_steps[1]), batch
    )  # fmt: skip


def einsum_text(dtype: DType, count: int) -> str:
    """The unit for `count` operands."""
    inputs = ", ".join(f"const E* x{k}" for k in range(count))
    term = " ".join(f"term *= S(load(x{k}[more[{k}]]));" for k in range(count))
    return unit(EINSUM, E=dtype, S=accumulation(dtype), K=count, INPUTS=inputs, TERM=term)


def operand_steps(labels: str, shape: Shape) -> dict[str, int]:
    """Elements from one to the next along each label; a diagonal steps along all its axes."""
    steps: dict[str, int] = {}
    for label, extent, step in zip(labels, shape, dense_strides(shape, 1), strict=True):
        steps[label] = steps.get(label, 0) + (step if extent != 1 else 0)
    return steps


kernel("Einsum", "cuda", *[f"{c}*->{c}" for c in "?" + INT + FLOAT])(EinsumKernel)
