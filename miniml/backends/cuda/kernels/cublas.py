"""Products of matrices by cuBLAS, through cupy."""

from __future__ import annotations

from itertools import product as pairs
from typing import Any, NamedTuple

import numpy as np

from ....dtype import DType
from ....errors import ShapeError
from ...kernel import Kernel, KernelNode
from ...product import Product, product_of
from ...typecodes import BF16
from ..failures import explained, raise_as

# Numbers of cublas_api.h and library_types.h: operations, the algorithm, types of numbers, of sums.
_AS_IT_LIES, _TRANSPOSED = 0, 1
_ANY_ALGORITHM = -1
_TYPES = {"f": 0, "d": 1, "e": 2, BF16: 14}
_FLOAT32_SUMS, _FLOAT64_SUMS = 68, 70
# No TensorFloat-32, and no sums in 16 bits where work is split: float32 means float32.
_EXACT = 16
LIMIT = 2**31 - 1


class Operand(NamedTuple):
    """How cuBLAS sees a matrix: the operation, and the elements from one of its columns to
    the next, which are our rows."""

    operation: int
    leading: int


class Gemm(NamedTuple):
    """The number and arguments of the calls of gemmStridedBatchedEx for a product.

    cuBLAS is column-major. To it a row-major matrix is the transposed one, so it computes y^T x^T,
    the transposed result, which is then row-major. steps: elements from one matrix of a call to the
    next, of x, y and out. starts: the same from call to call. exchanged: x and y are swapped, for a
    column-major result.
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
    """A product by gemmStridedBatchedEx on the current stream."""

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
        self.gemm, self.module = gemm, device.module
        wide = dtype == np.dtype("d")
        self.type, self.itemsize = _TYPES[dtype.char], dtype.itemsize
        self.sums = _FLOAT64_SUMS if wide else _FLOAT32_SUMS
        self.one, self.zero = np.ones(1, "d" if wide else "f"), np.zeros(1, "d" if wide else "f")
        return True

    def launch(self, inputs: Any, workspace: Any, outputs: Any, stream: object) -> None:
        x, y, out = (a.flat for a in (*inputs, *outputs))
        if self.gemm.exchanged:
            x, y = y, x
        if not self.gemm.k:
            out.fill(0)
            return
        module = self.module
        handle = module.cuda.get_cublas_handle()
        mode = module.cuda.cublas.getMathMode(handle)
        module.cuda.cublas.setMathMode(handle, _EXACT)
        try:
            for start in self.gemm.starts:
                at = (a.data.ptr + s * self.itemsize for a, s in zip((x, y, out), start))
                self._call(handle, *at)
        except Exception as error:
            raise_as(explained(error, self.node.device, "a product by cuBLAS"), error)
        finally:
            module.cuda.cublas.setMathMode(handle, mode)

    def _call(self, handle: int, x: int, y: int, out: int) -> None:
        g, kind, (x_step, y_step, out_step) = self.gemm, self.type, self.gemm.steps
        self.module.cuda.cublas.gemmStridedBatchedEx(
            handle, g.y.operation, g.x.operation, g.n, g.m, g.k, self.one.ctypes.data,
            y, kind, g.y.leading, y_step, x, kind, g.x.leading, x_step, self.zero.ctypes.data,
            out, kind, g.out.leading, out_step, g.batch, self.sums, _ANY_ALGORITHM,
        )  # fmt: skip
