"""Reductions of rows of elements, each by its entry in `expressions.reduce`."""

from __future__ import annotations

from math import prod
from typing import Any, ClassVar

import numpy as np

from ....dtype import DType, uint8, uint64
from ...expressions.reduce import ROWS, Row
from ...expressions.types import accumulation, computed, ends
from ...kernel import Kernel, KernelNode
from ...product import Axis, dense_strides
from ...registry import kernel
from ...signature import ArraySpec
from ...typecodes import ANY, FLOAT, INT, WHOLE, same
from ..text.groups import grid_for, lanes_for, parts
from ..text.layout import layout, merged
from ..text.source import unit

PACK = 16  # bytes that a thread loads at once


_TEXT = r"""
using namespace miniml;
struct Op {
  struct A { VALUE value; OTHER other; };
  static __device__ __forceinline__ A identity() { A r = {IDENTITY}; return r; }
  static __device__ __forceinline__ A element(C x, long long i) {
    (void)i; A r = {ELEMENT}; return r;
  }
  static __device__ __forceinline__ A combine(A a, A b) { A r = {COMBINE}; return r; }
  static __device__ __forceinline__ A crossed(A a, int o) {
    A r = {(VALUE)__shfl_xor_sync(0xffffffffu, a.value, o),
           (OTHER)__shfl_xor_sync(0xffffffffu, a.other, o)};
    return r;
  }
};
__device__ __forceinline__ OUT finished(Op::A a, long long n) {
  (void)n; return store<OUT>(RESULT(FINISH));
}
// Where element i of a row is; without a loop where one step says it, so that loads overlap.
template <bool ONE_STEP> __device__ __forceinline__ long long address_of(
    const Layout<1>& over, long long i) {
  long long address;
  if (ONE_STEP) return over.start[0] + i * over.step[0][0];
  locate(over, i, &address);
  return address;
}
// Elements [begin, end) of a row: packs of neighbours if they come in such, then single ones.
template <bool ONE_STEP> __device__ __forceinline__ Op::A taken(
    const IN* x, const Layout<1>& over, long long begin, long long end, int lane, int lanes,
    bool packed) {
  Op::A a = Op::identity();
  if (packed && begin < end) {
    const long long rest = end - (end - begin) % WIDTH;
#pragma unroll (ONE_STEP ? 2 : 1)
    for (long long i = begin + WIDTH * lane; i < rest; i += WIDTH * lanes) {
      typedef Pack<IN, WIDTH> Taken;
      const Taken pack = *(const Taken*)(x + (ONE_STEP ? i : address_of<false>(over, i)));
#pragma unroll
      for (int v = 0; v < WIDTH; ++v) a = Op::combine(a, Op::element(load(pack.at[v]), i + v));
    }
    begin = rest;
  }
#pragma unroll (ONE_STEP ? 4 : 1)
  for (long long i = begin + lane; i < end; i += lanes)
    a = Op::combine(a, Op::element(load(x[address_of<ONE_STEP>(over, i)]), i));
  return a;
}
extern "C" __global__ void reduce_elements(
    const IN* x, OUT* out, unsigned char* scratch, Layout<1> kept, Layout<1> over, Shape s,
    int lanes, int packed) {
  const int lane = threadIdx.x % lanes;
  for (long long g = group_index(lanes); g < s.outer * s.split; g += group_count(lanes)) {
    const Part p = part_of(g, s.outer, s.n, s.split, s.length, lanes);
    long long base;
    locate(kept, p.row, &base);
    Op::A a = over.rank == 1 ? taken<true>(x + base, over, p.begin, p.end, lane, lanes, packed)
                             : taken<false>(x + base, over, p.begin, p.end, lane, lanes, packed);
    a = combined<Op>(a, lanes);
    if (lane == 0) {
      if (s.split > 1) ((Op::A*)scratch)[p.row * s.split + p.number] = a;
      else out[p.row] = finished(a, s.n);
    }
  }
}
extern "C" __global__ void reduce_parts(const unsigned char* scratch, OUT* out, Shape s) {
  const int lane = threadIdx.x % 32;
  const Op::A* parts = (const Op::A*)scratch;
  for (long long row = group_index(32); row < s.outer; row += group_count(32)) {
    Op::A a = Op::identity();
    for (long long i = lane; i < s.split; i += 32) a = Op::combine(a, parts[row * s.split + i]);
    a = combined<Op>(a, 32);
    if (lane == 0) out[row] = finished(a, s.n);
  }
}
"""
SHAPE = np.dtype([(f, np.int64) for f in ("outer", "n", "split", "length")])


class Reduce(Kernel):
    """A reduction of one row: a group of threads for each output, or, where outputs are few and
    long, several groups whose parts a second launch combines."""

    row: ClassVar[Row]

    def prepare(self, node: KernelNode) -> None:
        super().prepare(node)
        shape, dtype, _ = node.inputs[0]
        axes = reduced_axes(node)
        kept = tuple(i for i in range(len(shape)) if i not in axes)
        outer, n = prod(shape[i] for i in kept), prod(shape[i] for i in axes)
        steps = dense_strides(shape, 1)
        kept_axes, over = (
            merged(tuple(shape[i] for i in of), [tuple(steps[i] for i in of)], node.name)
            for of in (kept, axes)
        )
        self.where = layout(kept_axes), layout(over)
        self.width = packable(kept_axes, over, n, PACK // dtype.itemsize)
        neighbours = prod(shape[max(axes, default=-1) + 1 :])
        self.lanes = 1 if neighbours >= 8 else lanes_for(n, neighbours)
        self.split = parts(outer, n, self.lanes)
        length = -(-n // (self.split * self.width)) * self.width
        self.outer, self.sizes = outer, np.array([(outer, n, self.split, length)], SHAPE)
        code = reduction_text(self.row, dtype, node.outputs[0].dtype)
        names = ("reduce_elements", "reduce_parts")[: 1 + (self.split > 1)]
        self.functions = [node.device.compiler.function(code, name) for name in names]

    def workspace(self) -> tuple[ArraySpec, ...]:
        return (ArraySpec((16 * self.outer * self.split if self.split > 1 else 16,), uint8),)

    def launch(self, inputs: Any, workspace: Any, outputs: Any, stream: object) -> None:
        (x,), (out,), (scratch,) = inputs, outputs, workspace
        first, *more = self.functions
        packed = np.int32(self.width > 1 and x.offset % 16 == 0)
        rest = *self.where, self.sizes, np.int32(self.lanes), packed
        first(
            *grid_for(self.outer * self.split, self.lanes), (x.flat, out.flat, scratch.flat, *rest)
        )
        for second in more:
            second(*grid_for(self.outer, 32), (scratch.flat, out.flat, self.sizes))


def packable(kept: list[Axis], over: list[Axis], n: int, width: int) -> int:
    """`width` if the reduced rows consist of whole packs of that many neighbours, else 1."""
    (extent, (step,)), rest = over[-1], [*kept, *over[:-1]]
    whole = extent % width == 0 or (len(over) == 1 and kept[0][0] == 1)
    apart = any(step % width for _, (step,) in rest)
    return width if whole and step == 1 and not apart and n >= width else 1


def reduced_axes(node: KernelNode) -> tuple[int, ...]:
    """The axes of the input that the output does not have, ascending."""
    shape = node.inputs[0].shape
    if node.name == "SumTo":
        target = node.outputs[0].shape
        lead = len(shape) - len(target)
        ones = (lead + i for i, n in enumerate(target) if n == 1 and shape[lead + i] != 1)
        return (*range(lead), *ones)
    axis = node.attrs["axis"]
    if axis is None:
        return tuple(range(len(shape)))
    axes = axis if isinstance(axis, tuple) else (axis,)
    return tuple(sorted(a % len(shape) for a in axes))


def reduction_text(row: Row, dtype: DType, out: DType) -> str:
    """The unit of a reduction of one dtype."""
    low, high = ends(dtype)
    whole = row.value == "S" and out.kind in "iu"
    names = {"IDENTITY": row.identity, "ELEMENT": row.element, "COMBINE": row.combine}
    pad = ("0",) * (len(row.identity) == 1)
    return unit(
        _TEXT, IN=dtype, OUT=out, C=computed(dtype), S=accumulation(dtype), LOWEST=low,
        HIGHEST=high, VALUE=row.value, OTHER=row.other, FINISH=row.finish,
        RESULT=uint64 if whole else computed(out), WIDTH=PACK // dtype.itemsize, Shape=SHAPE,
        **{name: ", ".join((*texts, *pad)) for name, texts in names.items()},
    )  # fmt: skip


for _names, _signatures in (
    ("Sum Prod", same(1, FLOAT) + WHOLE),
    ("SumTo", same(1, FLOAT + INT)),
    ("Mean LogSumExp", same(1, FLOAT)),
    ("Max Min", same(1, ANY)),
    ("ArgMax ArgMin", same(1, ANY, "l")),
    ("Any All", same(1, ANY, "?")),
):
    for _name in _names.split():
        _class = type(_name, (Reduce,), {"row": ROWS[_name], "__module__": __name__})
        kernel(_name, "cuda", *_signatures)(_class)
