"""Cross entropy and its gradient: softmax of each row, then, for sum and mean, one block's sum."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ...expressions.types import accumulation
from ...kernel import Kernel, KernelNode
from ...registry import kernel
from ...signature import ArraySpec
from ...typecodes import FLOAT, INT
from ..text.groups import BLOCK
from ..text.layout import spread
from ..text.source import unit
from .norm import EXPONENTIALS, ROWS, shared_rows

# Labels are passed as bytes, so that all widths share a unit; labels outside the classes are -1.
TEXT = (
    ROWS
    + EXPONENTIALS
    + r"""
template <typename I> __device__ __forceinline__ long long inside(I label, long long classes) {
  const unsigned long long number = (unsigned long long)label;
  return number < (unsigned long long)classes ? (long long)number : -1;
}
__device__ __forceinline__ long long label_of(
    const unsigned char* labels, const Labels& s, long long row) {
  const long long n = s.classes;
  if (s.width == 8) return inside(((const unsigned long long*)labels)[row], n);
  if (s.width == 4)
    return s.is_signed ? inside(((const int*)labels)[row], n)
                       : inside(((const unsigned int*)labels)[row], n);
  if (s.width == 2)
    return s.is_signed ? inside(((const short*)labels)[row], n)
                       : inside(((const unsigned short*)labels)[row], n);
  return s.is_signed ? inside(((const signed char*)labels)[row], n) : inside(labels[row], n);
}
extern "C" __global__ void cross_entropy(
    const T* logits, const unsigned char* labels, T* loss, T* probs, C* losses, Labels s,
    long long rows, int lanes, int keeps, int reduction) {
  extern __shared__ __align__(16) C rows_kept[];
  const long long n = s.classes;
  C* kept = rows_kept + threadIdx.x / lanes * n;
  const int lane = threadIdx.x % lanes;
  const bool packs = side_by_side(logits, n) && side_by_side(probs, n);
  for (long long g = group_index(lanes); g < rows; g += group_count(lanes)) {
    const T* row = logits + g * n;
    const Exponentials::A a = ROW(softmax_row, row, probs + g * n, kept, n, 1, lane, lanes);
    if (lane) continue;
    const long long label = label_of(labels, s, g);
    const C one = label < 0 ? C(NAN) : log(a.sum) - (load(row[label]) - a.top);
    if (reduction) losses[g] = one;
    else loss[g] = store<T>(one);
  }
}
extern "C" __global__ void sum_losses(const C* losses, T* loss, long long rows, int reduction) {
  C sum = C(0);
  for (long long i = threadIdx.x; i < rows; i += blockDim.x) sum += losses[i];
  sum = combined<Total<C> >(sum, blockDim.x);
  if (threadIdx.x == 0) loss[0] = store<T>(reduction == 2 ? sum / C(rows) : sum);
}
extern "C" __global__ void cross_entropy_grad(
    const T* probs, const unsigned char* labels, const T* dloss, T* out, Labels s, long long rows,
    int reduction) {
  MINIML_FOR(i, rows * s.classes) {
    const long long row = i / s.classes;
    C share = load(dloss[reduction ? 0 : row]);
    if (reduction == 2) share /= C(rows);
    const bool here = label_of(labels, s, row) == i - row * s.classes;
    out[i] = store<T>(load(probs[i]) * share - (here ? share : C(0)));
  }
}
"""
)
LABELS = np.dtype([(f, np.int64) for f in ("classes", "width", "is_signed")])
REDUCTIONS = {"none": 0, "sum": 1, "mean": 2}


class Labelled(Kernel):
    """Base of kernels that take rows of classes and a label for each row."""

    def prepare(self, node: KernelNode) -> None:
        super().prepare(node)
        (self.rows, n), labels = node.inputs[0].shape, node.inputs[1].dtype
        self.reduction = np.int32(REDUCTIONS[node.attrs["reduction"]])
        self.labels = np.array([(n, labels.itemsize, labels.kind == "i")], LABELS)

    def function(self, entry: str) -> Any:
        """A kernel of the unit."""
        code = unit(TEXT, T=self.node.inputs[0].dtype, LOGARITHM=0, Labels=LABELS)
        return self.node.device.compiler.function(code, entry)


class CrossEntropyKernel(Labelled):
    """The losses and the probabilities."""

    def prepare(self, node: KernelNode) -> None:
        super().prepare(node)
        n = node.inputs[0].shape[1]
        self.grid, self.block, lanes, self.shared, keeps = shared_rows(node, self.rows, n)
        self.flags = np.int32(lanes), keeps, self.reduction
        self.each = self.function("cross_entropy")
        self.sum = self.function("sum_losses") if self.reduction else None

    def workspace(self) -> tuple[ArraySpec, ...]:
        return (ArraySpec((max(self.rows, 1),), accumulation(self.node.inputs[0].dtype)),)

    def launch(self, inputs: Any, workspace: Any, outputs: Any, stream: object) -> None:
        (logits, labels), (loss, probs), (losses,) = inputs, outputs, workspace
        rows = np.int64(self.rows)
        arrays = logits.flat, labels.flat.view(np.uint8), loss.flat, probs.flat, losses.flat
        if self.rows:
            args = (*arrays, self.labels, rows, *self.flags)
            self.each(self.grid, self.block, args, shared_mem=self.shared)
        if self.sum is not None:
            self.sum((1,), (BLOCK,), (losses.flat, loss.flat, rows, self.reduction))


class CrossEntropyGradKernel(Labelled):
    """The gradient in the logits."""

    def prepare(self, node: KernelNode) -> None:
        super().prepare(node)
        self.call = self.function("cross_entropy_grad")

    def launch(self, inputs: Any, workspace: Any, outputs: Any, stream: object) -> None:
        probs, labels, dloss = inputs
        arrays = probs.flat, labels.flat.view(np.uint8), dloss.flat, outputs[0].flat
        args = (*arrays, self.labels, np.int64(self.rows), self.reduction)
        self.call(*spread(prod(probs.shape)), args)


_PAIRS = [(c, i) for c in FLOAT for i in INT]
kernel("CrossEntropy", "cuda", *[f"{c}{i}->{c}{c}" for c, i in _PAIRS])(CrossEntropyKernel)
kernel("CrossEntropyGrad", "cuda", *[f"{c}{i}{c}->{c}" for c, i in _PAIRS])(CrossEntropyGradKernel)
