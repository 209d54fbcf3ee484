"""Reductions from rows: what is accumulated, where it begins, how two are combined and finished."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

import numpy as np

from ...dtype import DType, uint8
from ..kernel import Kernel, KernelNode
from ..registry import kernel
from ..signature import ArraySpec
from .layout import LAYOUT
from .letters import ANY, FLOAT, INT, same
from .rows import GROUPS, accumulator, grid_for, lanes_for, parts, places
from .source import C_TYPES, computed_in, prelude

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Row:
    """One reduction in C. x is an element, i its place among those that are reduced, n their
    number; a and b are accumulators of type A: `value`, and `other` where a reduction keeps two.

    value, other: the types ("C" is that of an element, "S" that of sums). identity, element,
    combine: value and other of an accumulator; finish: the result from a.
    """

    identity: tuple[str, ...]
    element: tuple[str, ...]
    combine: tuple[str, ...]
    finish: str
    value: str = "C"
    other: str = "int"


_ARG = "0x7fffffffffffffffLL"
_SUM = Row(("S(0)",), ("S(x)",), ("a.value + b.value",), "a.value", "S")
_MAX = Row(("LOWEST",), ("x",), ("nan_max(a.value, b.value)",), "a.value")
_MIN = Row(("HIGHEST",), ("x",), ("nan_min(a.value, b.value)",), "a.value")
_BETTER = (
    "(b.value {0} a.value || (is_nan(b.value) && !is_nan(a.value)) || (!(a.value {0} b.value) && "
    "(is_nan(a.value) == is_nan(b.value)) && b.other < a.other))"
)


def _arg(row: Row, relation: str) -> Row:
    wins = _BETTER.format(relation)
    combine = (f"{wins} ? b.value : a.value", f"{wins} ? b.other : a.other")
    return Row((*row.identity, _ARG), ("x", "i"), combine, "a.other", "C", "long long")


ROWS: dict[str, Row] = {
    "Sum": _SUM,
    "SumTo": _SUM,
    "Mean": Row(_SUM.identity, _SUM.element, _SUM.combine, "a.value / S(n)", "S"),
    "Prod": Row(("S(1)",), ("S(x)",), ("a.value * b.value",), "a.value", "S"),
    "Max": _MAX,
    "Min": _MIN,
    "Any": Row(("0",), ("x != C(0)",), ("a.value | b.value",), "a.value != 0", "int"),
    "All": Row(("1",), ("x != C(0)",), ("a.value & b.value",), "a.value != 0", "int"),
    "ArgMax": _arg(_MAX, ">"),
    "ArgMin": _arg(_MIN, "<"),
    # value: the largest x; other: the sum of exp(x - value)
    "LogSumExp": Row(
        ("-INFINITY", "C(0)"),
        ("x", "C(1)"),
        ("nan_max(a.value, b.value)", "scaled_sum(a.value, a.other, b.value, b.other)"),
        "is_inf(a.value) ? a.value : a.value + log(a.other)",
        "C",
        "C",
    ),
}  # fmt: skip

_TEXT = r"""
template <typename C> __device__ __forceinline__ C scaled_sum(C m, C s, C k, C t) {
  const C top = nan_max(m, k);
  return (m == top || s == C(0) ? s : s * exp(m - top)) +
         (k == top || t == C(0) ? t : t * exp(k - top));
}
struct Op {
  struct A { VALUE value; OTHER other; };
  static __device__ __forceinline__ A identity() { A r = {@IDENTITY@}; return r; }
  static __device__ __forceinline__ A element(C x, long long i) {
    (void)i; A r = {@ELEMENT@}; return r;
  }
  static __device__ __forceinline__ A combine(A a, A b) { A r = {@COMBINE@}; return r; }
  static __device__ __forceinline__ A crossed(A a, int o) {
    A r = {__shfl_xor_sync(0xffffffffu, a.value, o), __shfl_xor_sync(0xffffffffu, a.other, o)};
    return r;
  }
};
__device__ __forceinline__ OUT finished(Op::A a, long long n) {
  (void)n; return store<OUT>(RESULT(@FINISH@));
}
extern "C" __global__ void reduce_elements(
    const IN* x, OUT* out, unsigned char* scratch, Layout<1> kept, Layout<1> over,
    long long outer, long long n, long long split, int lanes) {
  const int lane = threadIdx.x % lanes;
  const long long length = (n + split - 1) / split;
  for (long long g = group_index(lanes); g < outer * split; g += group_count(lanes)) {
    const long long row = g / split, begin = (g - row * split) * length;
    const long long end = begin + length < n ? begin + length : n;
    long long base, place;
    locate(kept, row, &base);
    Op::A a = Op::identity();
    for (long long i = begin + lane; i < end; i += lanes) {
      locate(over, i, &place);
      a = Op::combine(a, Op::element(load(x[base + place]), i));
    }
    a = combined<Op>(a, lanes);
    if (lane == 0) {
      if (split > 1) ((Op::A*)scratch)[g] = a;
      else out[row] = finished(a, n);
    }
  }
}
extern "C" __global__ void reduce_parts(
    const unsigned char* scratch, OUT* out, long long outer, long long n, long long split) {
  const int lane = threadIdx.x % 32;
  const Op::A* parts = (const Op::A*)scratch;
  for (long long row = group_index(32); row < outer; row += group_count(32)) {
    Op::A a = Op::identity();
    for (long long i = lane; i < split; i += 32) a = Op::combine(a, parts[row * split + i]);
    a = combined<Op>(a, 32);
    if (lane == 0) out[row] = finished(a, n);
  }
}
"""


class Reduce(Kernel):
    """A reduction of one row: a group of threads for each output, or, where outputs are few and
    long, several groups whose parts a second launch combines."""

    row: ClassVar[Row]

    def prepare(self, node: KernelNode) -> None:
        super().prepare(node)
        shape, dtype = node.inputs[0]
        axes = reduced_axes(node)
        kept = tuple(i for i in range(len(shape)) if i not in axes)
        self.outer, self.n = prod(shape[i] for i in kept), prod(shape[i] for i in axes)
        inner = prod(shape[max(axes, default=-1) + 1 :])
        self.lanes = lanes_for(self.n, inner)
        self.split = parts(self.outer, self.n, self.lanes)
        self.where = places(shape, kept), places(shape, axes)
        code = reduction_text(self.row, dtype, node.outputs[0].dtype)
        self.first = node.device.compiler.function(code, "reduce_elements")
        self.second = (
            node.device.compiler.function(code, "reduce_parts") if self.split > 1 else None
        )

    def workspace(self) -> tuple[ArraySpec, ...]:
        return (ArraySpec((16 * self.outer * self.split if self.split > 1 else 16,), uint8),)

    def launch(self, inputs: Any, workspace: Any, outputs: Any, stream: object) -> None:
        (x,), (out,), (scratch,) = inputs, outputs, workspace
        grid, block = grid_for(self.outer * self.split, self.lanes)
        sizes = np.int64(self.outer), np.int64(self.n), np.int64(self.split)
        arrays = x.flat, out.flat, scratch.flat
        self.first(grid, block, (*arrays, *self.where, *sizes, np.int32(self.lanes)))
        if self.second is not None:
            grid, block = grid_for(self.outer, 32)
            self.second(grid, block, (scratch.flat, out.flat, *sizes))


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
    names = {
        "IN": C_TYPES[dtype], "OUT": C_TYPES[out], "C": computed_in(dtype), "VALUE": row.value,
        "OTHER": row.other, "LOWEST": low, "HIGHEST": high, "S": accumulator(dtype),
        "RESULT": result_type(row, out),
    }  # fmt: skip
    types = "".join(
        f"typedef {names[n]} {n};\n" for n in ("IN", "OUT", "C", "S", "VALUE", "OTHER", "RESULT")
    )
    macros = f"#define LOWEST {low}\n#define HIGHEST {high}\n"
    pad = ("0",) if len(row.identity) == 1 else ()
    text = _TEXT
    for slot, texts in (
        ("@IDENTITY@", row.identity), ("@ELEMENT@", row.element), ("@COMBINE@", row.combine)
    ):  # fmt: skip
        text = text.replace(slot, ", ".join((*texts, *pad)))
    text = text.replace("@FINISH@", row.finish)
    head = prelude({dtype, out}) + LAYOUT + "using namespace miniml;\n" + GROUPS
    return head + types + macros + text


def result_type(row: Row, out: DType) -> str:
    """The type of what `finish` gives."""
    return "unsigned long long" if row.value == "S" and out.kind in "iu" else computed_in(out)


def ends(dtype: DType) -> tuple[str, str]:
    """The least and the greatest number of a dtype, in C."""
    if dtype.kind == "b":
        return "false", "true"
    if dtype.kind not in "iu":
        return "-INFINITY", "INFINITY"
    c, bits = C_TYPES[dtype], 8 * dtype.itemsize
    if dtype.kind == "u":
        return f"({c})0", f"({c})~({c})0"
    top = f"({c})0x{2 ** (bits - 1) - 1:x}LL"
    return f"({c})(-{top} - 1)", top


def file_reduction(name: str, *signatures: str) -> None:
    """File the class of one row."""
    made = type(name, (Reduce,), {"row": ROWS[name], "__module__": __name__})
    kernel(name, "cuda", *signatures)(made)


_WHOLE = [f"{c}->{'L' if c.isupper() else 'l'}" for c in "?" + INT]
file_reduction("Sum", *same(1, FLOAT), *_WHOLE)
file_reduction("Prod", *same(1, FLOAT), *_WHOLE)
file_reduction("SumTo", *same(1, FLOAT + INT))
file_reduction("Mean", *same(1, FLOAT))
file_reduction("LogSumExp", *same(1, FLOAT))
for _name in ("Max", "Min"):
    file_reduction(_name, *same(1, ANY))
for _name in ("ArgMax", "ArgMin"):
    file_reduction(_name, *same(1, ANY, "l"))
for _name in ("Any", "All"):
    file_reduction(_name, *same(1, ANY, "?"))
