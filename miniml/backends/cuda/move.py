"""Strided copies and filling on the CUDA device, for kernels with several launches.

Only bytes matter here, so one text serves all dtypes of one size.
"""

from __future__ import annotations

from functools import cache
from math import prod
from typing import Any

import numpy as np

from ...core.abstract import DType
from ..product import Axis
from .array import DeviceArray
from .text.source import collapsed, layout, packs, spread, starts_of, unit

TILE = 32
TEXT = r"""
using namespace miniml;
extern "C" __global__ void move(
    const E* x, E* out, Layout<2> where, long long packs, long long n) {
  long long at[2];
  MINIML_FOR(p, packs) {
    locate(where, p * WIDTH, at);
    *(Pack<E, WIDTH>*)(out + at[1]) = pack_of<WIDTH>(x + at[0], where, 0);
  }
  MINIML_FOR_FROM(i, packs * WIDTH, n) {
    locate(where, i, at);
    out[at[1]] = x[at[0]];
  }
}
// x has its neighbours along one axis (a), out along another (b): through tiles of shared memory,
// so that both are read and written by rows of 32. Elements there have 4 bytes at least.
extern "C" __global__ void turn(const E* x, E* out, Layout<2> where, Turn s) {
  __shared__ WORD tile[32][33];
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  for (long long g = blockIdx.x; g < s.batch * s.tiles_a * s.tiles_b; g += gridDim.x) {
    const long long row = quotient(g, s.tiles_a), number = quotient(row, s.tiles_b);
    const long long a = (g - row * s.tiles_a) * 32, b = (row - number * s.tiles_b) * 32;
    long long at[2];
    locate(where, number, at);
    for (int r = warp; r < 32; r += 8)
      if (a + lane < s.a && b + r < s.b) tile[r][lane] = x[at[0] + a + lane + (b + r) * s.x_step];
    __syncthreads();
    for (int r = warp; r < 32; r += 8)
      if (a + r < s.a && b + lane < s.b)
        out[at[1] + (a + r) * s.out_step + b + lane] = (E)tile[lane][r];
    __syncthreads();
  }
}
extern "C" __global__ void fill(E* out, E value, long long packs, long long n) {
  Pack<E, WIDTH> all;
  for (int v = 0; v < WIDTH; ++v) all.at[v] = value;
  MINIML_FOR(p, packs) *(Pack<E, WIDTH>*)(out + p * WIDTH) = all;
  MINIML_FOR_FROM(i, packs * WIDTH, n) out[i] = value;
}
"""
TURN = np.dtype([(f, np.int64) for f in "a b x_step out_step tiles_a tiles_b batch".split()])


@cache
def carrier(nbytes: int) -> DType:
    """The unsigned integers of that size."""
    return np.dtype(f"u{nbytes}")


@cache
def text(nbytes: int) -> str:
    """The unit for elements of that size."""
    word = carrier(max(nbytes, 4))
    return unit(TEXT, E=carrier(nbytes), WORD=word, WIDTH=16 // nbytes, Turn=TURN)


def move(source: DeviceArray, target: DeviceArray) -> None:
    """Copy an array into one of its dtype to whose shape it broadcasts; they do not overlap."""
    if not target.size:
        return
    device, nbytes = target.device, target.dtype.itemsize
    key = (
        nbytes, source.shape, source.strides, target.shape, target.strides, source.offset % 16,
        target.offset % 16,
    )  # fmt: skip
    planned = device.moves.get(key)
    if planned is None:
        if len(device.moves) >= 4096:
            device.moves.clear()
        planned = device.moves[key] = plan(source, target)
    entry, grid, block, args = planned
    function = device.compiler.function(text(nbytes), entry)
    bits = carrier(nbytes)
    function(grid, block, (source.flat.view(bits), target.flat.view(bits), *args))


def plan(source: DeviceArray, target: DeviceArray) -> tuple[str, Any, Any, tuple[Any, ...]]:
    """The kernel that copies, its grid, block and arguments after the arrays."""
    axes, both = collapsed((source, target), target.shape, "a copy"), (source, target)
    turned = next((d for d, (n, s) in enumerate(axes[:-1]) if s[0] == 1 and n >= TILE // 2), None)
    last, (x_step, out_step) = axes[-1]
    if turned is not None and out_step == 1 and x_step > 1 and last >= TILE // 2:
        return ("turn", *turn(axes, turned, both))
    width = 16 // target.dtype.itemsize
    count = packs(axes, both, target, width) if out_step == 1 else 0
    size = target.size
    where = layout(axes, starts_of(both))
    return "move", *spread(size, max(width, 4)), (where, np.int64(count), np.int64(size))


def turn(axes: list[Axis], turned: int, both: tuple[DeviceArray, ...]) -> tuple[Any, Any, Any]:
    """Grid, block and arguments for the tiles of two axes: `turned`, and the last one."""
    rest = [axis for d, axis in enumerate(axes[:-1]) if d != turned] or [(1, (0, 0))]
    (a, (_, out_step)), (b, (x_step, _)) = axes[turned], axes[-1]
    tiles, batch = (-(-a // TILE), -(-b // TILE)), prod(n for n, _ in rest)
    sizes = np.array([(a, b, x_step, out_step, *tiles, batch)], TURN)
    blocks = min(prod(tiles) * batch, 1 << 20)
    return (blocks,), (8 * TILE,), (layout(rest, starts_of(both)), sizes)


def fill(target: DeviceArray, value: Any) -> None:
    """Overwrite a contiguous array with one number."""
    if target.size:
        bits = carrier(target.dtype.itemsize)
        function = target.device.compiler.function(text(bits.itemsize), "fill")
        size, number = target.size, np.asarray(value).astype(target.dtype).view(bits)[()]
        width = 16 // bits.itemsize
        count = 0 if target.offset % 16 else size // width
        args = (target.flat.view(bits), number, np.int64(count), np.int64(size))
        function(*spread(size, max(width, 4)), args)
