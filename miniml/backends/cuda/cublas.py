"""Products of matrices by cuBLAS, through cupy."""

from __future__ import annotations

from itertools import product as pairs
from typing import Any, NamedTuple

import numpy as np

from ...errors import ShapeError
from ..kernel import Kernel, KernelNode
from .letters import BF16
from .product import Product, product_of

# Numbers of cublas_api.h and library_types.h: operations, the algorithm, types of numbers, of sums.
_AS_IT_LIES, _TRANSPOSED = 0, 1
_ANY_ALGORITHM = -1
_TYPES = {"f": 0, "d": 1, "e": 2, BF16: 14}
_FLOAT32_SUMS, _FLOAT64_SUMS = 68, 70
# No TensorFloat-32, and no sums in 16 bits where work is split: what is said to be float32 is.
_EXACT = 16
LIMIT = 2**31 - 1


class Gemm(NamedTuple):
    """How often and with what gemmStridedBatchedEx is called for a product.

    cuBLAS counts elements by columns. A matrix that lies by rows is to it the transposed one, so it
    is asked for y^T x^T, which is the transposed result: that then lies by rows. Each operand has
    an operation, the elements from one of cuBLAS's columns to the next, and from one matrix to
    the next. starts: of x, y and out, for each call.
    """

    m: int
    n: int
    k: int
    x: tuple[int, int, int]
    y: tuple[int, int, int]
    out_step: int
    batch: int
    starts: list[tuple[int, ...]]


def gemm_of(p: Product, transpose_x: bool, transpose_y: bool) -> Gemm:
    """The calls for a product: one for all of the batch whose steps are even, which is most often
    all of it; one product of more rows where only x has a batch."""
    m, axes = p.m, [(extent, (*steps, 0)) for extent, steps in p.axes]
    if p.axes == [(p.batches, (m * p.k, 0))] and not transpose_x:
        m, axes = m * p.batches, [(1, (0, 0, 0))]
    step = m * p.n
    for d in reversed(range(len(axes))):  # the result is contiguous
        extent, (x, y, _) = axes[d]
        axes[d] = extent, (x, y, step)
        step *= extent
    together = max(axes)
    axes.remove(together)
    count, steps = together
    starts = [
        tuple(sum(i * s[o] for i, (_, s) in zip(at, axes, strict=True)) for o in range(3))
        for at in pairs(*[range(extent) for extent, _ in axes])
    ]
    operand_x = (_TRANSPOSED, p.x[1]) if transpose_x else (_AS_IT_LIES, p.x[0])
    operand_y = (_TRANSPOSED, p.y[1]) if transpose_y else (_AS_IT_LIES, p.y[0])
    return Gemm(
        m, p.n, p.k, (*operand_x, steps[0]), (*operand_y, steps[1]), steps[2], count, starts
    )  # fmt: skip


class CuBLAS(Kernel):
    """A product by gemmStridedBatchedEx on the current stream."""

    def prepare(self, node: KernelNode) -> None:
        super().prepare(node)
        dtype = node.inputs[0].dtype
        product = product_of(node)
        self.gemm = gemm_of(product, node.attrs["transpose_x"], node.attrs["transpose_y"])
        largest = max(self.gemm.m, *product[1:3], self.gemm.batch)
        if largest > LIMIT:
            raise ShapeError(
                f"{node.name} got an extent of {largest}; cuBLAS takes {LIMIT} at most"
            )
        wide = dtype == np.dtype("d")
        self.type, self.itemsize = _TYPES[dtype.char], dtype.itemsize
        self.sums = _FLOAT64_SUMS if wide else _FLOAT32_SUMS
        self.one, self.zero = np.ones(1, "d" if wide else "f"), np.zeros(1, "d" if wide else "f")

    def launch(self, inputs: Any, workspace: Any, outputs: Any, stream: object) -> None:
        out = outputs[0].flat
        if not self.gemm.k:
            out.fill(0)
            return
        module = self.node.device.module
        handle = module.cuda.get_cublas_handle()
        mode = module.cuda.cublas.getMathMode(handle)
        module.cuda.cublas.setMathMode(handle, _EXACT)
        try:
            bases = [a.data.ptr for a in (inputs[0].flat, inputs[1].flat, out)]
            for start in self.gemm.starts:
                at = [b + s * self.itemsize for b, s in zip(bases, start, strict=True)]
                self._call(module, handle, *at)
        finally:
            module.cuda.cublas.setMathMode(handle, mode)

    def _call(self, module: Any, handle: int, x: int, y: int, out: int) -> None:
        g, kind = self.gemm, self.type
        module.cuda.cublas.gemmStridedBatchedEx(
            handle, g.y[0], g.x[0], g.n, g.m, g.k,
            self.one.ctypes.data, y, kind, g.y[1], g.y[2], x, kind, g.x[1], g.x[2],
            self.zero.ctypes.data, out, kind, g.n, g.out_step, g.batch, self.sums, _ANY_ALGORITHM,
        )  # fmt: skip
