"""Running sums: a warp walks a row 32 elements at a time, or a thread a row of its own."""

from __future__ import annotations

import numpy as np

from ..kernel import KernelNode, Launch
from .letters import FLOAT, INT, raw
from .rows import GROUPS, accumulator, along, grid_for

TEXT = (
    "using namespace miniml;\n"
    + GROUPS
    + r"""
extern "C" __global__ void cumsum(
    const T_IN0* x, T_OUT0* out, long long rows, long long n, long long inner, int lanes,
    int reverse, int exclusive) {
  const int lane = threadIdx.x % lanes;
  for (long long g = group_index(lanes); g < rows; g += group_count(lanes)) {
    const long long at = g / inner * n * inner + g % inner;
    SUM carry = SUM(0);
    for (long long begin = 0; begin < n; begin += lanes) {
      const long long i = begin + lane, place = at + (reverse ? n - 1 - i : i) * inner;
      const SUM own = i < n ? SUM(load(x[place])) : SUM(0);
      SUM sum = own;
      for (int o = 1; o < lanes; o <<= 1) {
        const SUM before = __shfl_up_sync(0xffffffffu, sum, o);
        if (lane >= o) sum += before;
      }
      SUM shown = sum;
      if (exclusive) {
        shown = lanes > 1 ? __shfl_up_sync(0xffffffffu, sum, 1) : SUM(0);
        if (lane == 0) shown = SUM(0);
      }
      if (i < n) out[place] = store<T_OUT0>(carry + shown);
      carry += lanes > 1 ? __shfl_sync(0xffffffffu, sum, 31) : sum;
    }
  }
}
"""
)


def cumsum(node: KernelNode) -> Launch:
    outer, n, inner = along(node.inputs[0].shape, node.attrs["axis"])
    lanes = 1 if inner >= 32 or n <= 8 else 32
    sizes = tuple(map(np.int64, (outer * inner, n, inner)))
    flags = tuple(map(np.int32, (lanes, node.attrs["reverse"], node.attrs["exclusive"])))
    return Launch(*grid_for(outer * inner, lanes), (*sizes, *flags))


for _c in "?" + INT + FLOAT:
    _dtype = np.dtype(_c) if _c in "?" + INT + "fd" else np.dtype(np.float32)
    _out = _c if _c in FLOAT else "L" if _c.isupper() else "l"
    raw(
        "CumSum", f"{_c}->{_out}", entry="cumsum", source=TEXT, launch=cumsum,
        defines={"SUM": accumulator(_dtype)},
    )  # fmt: skip
