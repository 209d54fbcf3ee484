"""NumPy kernels of linear algebra: matrix products by BLAS, Einstein sums by matrix products."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

import numpy as np

from ...dtype import float32
from ..kernel import Array, Arrays, Kernel, KernelNode
from ..signature import ArraySpec
from ..typecodes import INT, LOW, WIDE, same
from . import products
from .contraction import plan
from .registering import in_float32, register


def matmul(x: Array, y: Array, *, transpose_x: bool, transpose_y: bool, out: Array) -> None:
    if y.ndim == 2 and x.ndim > 2 and not transpose_x and x.flags.c_contiguous:
        # One product instead of one per batch entry.
        rows = prod(x.shape[:-1])  # not -1: NumPy cannot tell it beside an extent of 0
        x, folded = x.reshape(rows, x.shape[-1]), out.reshape(rows, out.shape[-1])
        products.matmul(x, y.mT if transpose_y else y, out=folded)
        return
    products.matmul(x.mT if transpose_x else x, y.mT if transpose_y else y, out=out)


class MatMulKernel(Kernel):
    """The product for given shapes: NumPy's own if it is small and not folded."""

    def prepare(self, node: KernelNode) -> None:
        x, y = (i.shape for i in node.inputs)
        turns = node.attrs["transpose_x"], node.attrs["transpose_y"]
        folds = len(y) == 2 and len(x) > 2
        large = prod(node.outputs[0].shape) * x[-2 if turns[0] else -1] > products.MATRICES
        self.call = partial(matmul, **node.attrs) if folds or large else _PRODUCTS[turns]
        self.reason = "one BLAS thread, unless threads= asks for more" if large else ""


_PRODUCTS: dict[tuple[bool, bool], Callable[..., Any]] = {
    (False, False): np.matmul,
    (True, False): lambda x, y, out: np.matmul(x.mT, y, out),
    (False, True): lambda x, y, out: np.matmul(x, y.mT, out),
    (True, True): lambda x, y, out: np.matmul(x.mT, y.mT, out),
}


class ContractionKernel(Kernel):
    """An Einstein sum as products of matrices, planned once per shape."""

    def prepare(self, node: KernelNode) -> None:
        super().prepare(node)
        self.plan = plan(node.attrs["equation"], tuple(i.shape for i in node.inputs))

    def launch(self, inputs: Arrays, workspace: Arrays, outputs: Arrays, stream: object) -> None:
        self.plan.run(inputs, outputs[0])


class EinsumInFloat32(ContractionKernel):
    """The same for float16 and bfloat16: operands widened to float32, the result rounded once."""

    def workspace(self) -> tuple[ArraySpec, ...]:
        return (ArraySpec(self.node.outputs[0].shape, float32),)

    def launch(self, inputs: Arrays, workspace: Arrays, outputs: Arrays, stream: object) -> None:
        self.plan.run(tuple(x.astype(float32) for x in inputs), workspace[0])
        outputs[0][...] = workspace[0]


register("MatMul", MatMulKernel, *same(2, "?" + INT + WIDE))
register("MatMul", in_float32(matmul), *same(2, LOW))
register("Einsum", ContractionKernel, *[f"{c}*->{c}" for c in "?" + INT + WIDE])
register("Einsum", EinsumInFloat32, *[f"{c}*->{c}" for c in LOW])
