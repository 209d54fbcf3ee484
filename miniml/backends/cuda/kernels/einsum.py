"""Einstein sums: matrix products by the kernels of MatMul, others with each output computed on its
own."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ....dtype import DType
from ...equation import spelt_out
from ...expressions.types import accumulation
from ...kernel import Kernel, KernelNode
from ...product import Shape, axes_of, dense_strides, product_of_labels
from ...registry import kernel
from ...signature import ArraySpec
from ...typecodes import FLOAT, INT
from ..text.groups import grid_for
from ..text.layout import bounded, layout
from ..text.source import unit
from .linalg import planned

TEXT = r"""
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
    """A sum over the labels that the output lacks, for every combination of those it has.

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
        self.function = node.device.compiler.function(text(dtype, len(operands)), "einsum")

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


def text(dtype: DType, count: int) -> str:
    """The unit for `count` operands."""
    inputs = ", ".join(f"const E* x{k}" for k in range(count))
    term = " ".join(f"term *= S(load(x{k}[more[{k}]]));" for k in range(count))
    return unit(TEXT, E=dtype, S=accumulation(dtype), K=count, INPUTS=inputs, TERM=term)


def operand_steps(labels: str, shape: Shape) -> dict[str, int]:
    """Elements from one to the next along each label; a diagonal steps along all its axes."""
    steps: dict[str, int] = {}
    for label, extent, step in zip(labels, shape, dense_strides(shape, 1), strict=True):
        steps[label] = steps.get(label, 0) + (step if extent != 1 else 0)
    return steps


kernel("Einsum", "cuda", *[f"{c}*->{c}" for c in "?" + INT + FLOAT])(EinsumKernel)
