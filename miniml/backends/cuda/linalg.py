"""Products of matrices by tiles in shared memory."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ..kernel import KernelNode, Launch
from .expression import LAYOUT, layout_dtype
from .letters import FLOAT, INT, raw, same
from .rows import accumulator

TILE = 16

MATMUL = (
    LAYOUT
    + r"""
using namespace miniml;
typedef Compute<T>::type C;
extern "C" __global__ void matmul(
    const T* x, const T* y, T* out, Layout<2> batch, long long batches, long long m, long long n,
    long long k, long long x_row, long long x_column, long long y_row, long long y_column) {
  __shared__ SUM a[16][17], b[16][17];
  const long long tiles_n = (n + 15) / 16, tiles = (m + 15) / 16 * tiles_n;
  const int r = threadIdx.x / 16, c = threadIdx.x % 16;
  for (long long t = blockIdx.x; t < batches * tiles; t += gridDim.x) {
    const long long item = t / tiles, tile = t - item * tiles;
    long long at[2];
    locate(batch, item, at);
    const long long row = tile / tiles_n * 16, column = tile % tiles_n * 16;
    SUM sum = SUM(0);
    for (long long begin = 0; begin < k; begin += 16) {
      // Neighbouring threads read neighbouring elements, whichever way the matrix lies.
      const int ar = x_column == 1 ? r : c, ac = x_column == 1 ? c : r;
      const int br = y_column == 1 ? r : c, bc = y_column == 1 ? c : r;
      a[ar][ac] = row + ar < m && begin + ac < k
                      ? SUM(load(x[at[0] + (row + ar) * x_row + (begin + ac) * x_column]))
                      : SUM(0);
      b[br][bc] = begin + br < k && column + bc < n
                      ? SUM(load(y[at[1] + (begin + br) * y_row + (column + bc) * y_column]))
                      : SUM(0);
      __syncthreads();
      for (int i = 0; i < 16; ++i) {
        sum += a[r][i] * b[i][c];
      }
      __syncthreads();
    }
    if (row + r < m && column + c < n)
      out[(item * m + row + r) * n + column + c] = store<T>(sum);
  }
}
"""
)


def matmul(node: KernelNode) -> Launch:
    x, y = (i.shape for i in node.inputs)
    x, y = (x if len(x) > 1 else (1, *x)), (y if len(y) > 1 else (*y, 1))
    m, k = x[-2:] if not node.attrs["transpose_x"] else (x[-1], x[-2])
    n = y[-2] if node.attrs["transpose_y"] else y[-1]
    x_steps = (1, m) if node.attrs["transpose_x"] else (k, 1)
    y_steps = (1, k) if node.attrs["transpose_y"] else (n, 1)
    shape = np.broadcast_shapes(x[:-2], y[:-2])
    batches = prod(shape)
    tiles = batches * -(-m // TILE) * -(-n // TILE)
    sizes = (batches, m, n, k, *x_steps, *y_steps)
    args = (batch_layout(shape, x, y), *map(np.int64, sizes))
    return Launch((min(max(tiles, 1), 1 << 20),), (TILE * TILE,), args)


def batch_layout(shape: tuple[int, ...], x: tuple[int, ...], y: tuple[int, ...]) -> Any:
    """Where the matrices of each entry of the batch begin in contiguous x and y."""
    record = np.zeros(1, layout_dtype(2))
    record["rank"], record["extent"] = max(len(shape), 1), 1
    for k, operand in enumerate((x, y)):
        lead = len(shape) - (len(operand) - 2)
        for d, extent in enumerate(shape):
            record["extent"][0, d] = extent
            if d >= lead and operand[d - lead] != 1:
                record["step"][0, k, d] = prod(operand[d - lead + 1 :])
    return record


def sum_type(letter: str) -> str:
    """The C type of sums; bools are counted as numbers, of which any but 0 is true."""
    return accumulator(np.dtype(letter)) if letter in INT + "d" else "float"


for _c in "?" + INT + FLOAT:
    raw(
        "MatMul", *same(2, _c), entry="matmul", source=MATMUL, launch=matmul,
        defines={"SUM": sum_type(_c)},
    )  # fmt: skip
