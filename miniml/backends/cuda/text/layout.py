"""Addresses of the elements of strided arrays: axes merged, and passed to kernels as a Layout."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from ....errors import ShapeError
from ...product import Axis, Shape, broadcast_steps
from ...product import merged as merge
from ..array import DeviceArray

MAX_RANK = 8
BLOCK = 256
PER_THREAD = 4


def spread(size: int, per_thread: int = PER_THREAD) -> tuple[tuple[int], tuple[int]]:
    """Grid and block for `size` elements, a few per thread."""
    threads = min(BLOCK, -(-max(size, 1) // 32) * 32)
    return (min(-(-max(size, 1) // (threads * per_thread)), 1 << 20),), (threads,)


def merged(shape: Shape, steps: Sequence[Shape], name: str) -> list[Axis]:
    """The axes of `shape`, merged, with their steps in each of several arrays; ShapeError, which
    names the primitive, if more than 8 remain."""
    return bounded(merge(shape, steps), name)


def bounded(axes: list[Axis], name: str) -> list[Axis]:
    """These axes; ShapeError, which names the primitive, if there are more than 8."""
    if len(axes) > MAX_RANK:
        raise ShapeError(
            f"{name} needs {len(axes)} axes that do not merge; kernels of CUDA take {MAX_RANK}: "
            "reshape the inputs, or make them contiguous"
        )
    return axes


def collapsed(inputs: Sequence[DeviceArray], shape: Shape, name: str) -> list[Axis]:
    """The output's axes, merged, with the steps of each input, which broadcasts to it."""
    steps = [
        broadcast_steps(a.shape, shape, tuple(s // a.dtype.itemsize for s in a.strides))
        for a in inputs
    ]
    return merged(shape, steps, name)


def layout(axes: Sequence[Axis], starts: Sequence[int] = ()) -> Any:
    """The struct Layout<K> of K arrays: their steps along some axes, and their starts."""
    record = np.zeros(1, layout_dtype(len(axes[0][1])))
    record["rank"], record["extent"] = len(axes), 1
    for d, (extent, steps) in enumerate(axes):
        record["extent"][0, d] = extent
        record["step"][0, :, d] = steps
    record["start"][0, : len(starts)] = starts
    return record


def starts_of(inputs: Sequence[DeviceArray]) -> list[int]:
    """The position of the first element of each in the memory that `flat` points to."""
    return [(a.offset - a.bounds()[0]) // a.dtype.itemsize for a in inputs]


@cache
def layout_dtype(count: int) -> np.dtype[Any]:
    """The NumPy dtype of Layout<count>."""
    return np.dtype(
        [
            ("rank", np.int64), ("extent", np.int64, MAX_RANK),
            ("step", np.int64, (count, MAX_RANK)), ("start", np.int64, (count,)),
        ]
    )  # fmt: skip


LAYOUT = f"""
// V neighbours, moved by one instruction.
template <typename A, int V> struct alignas(sizeof(A) * V) Pack {{ A at[V]; }};
template <int K> struct Layout {{
  long long rank, extent[{MAX_RANK}], step[K][{MAX_RANK}], start[K];
}};
template <int K> __device__ __forceinline__ void locate(
    const Layout<K>& at, long long i, long long* found) {{
  for (int k = 0; k < K; ++k) found[k] = at.start[k];
  for (int d = (int)at.rank - 1; d > 0; --d) {{
    long long above = i / at.extent[d], here = i - above * at.extent[d];
    for (int k = 0; k < K; ++k) found[k] += here * at.step[k][d];
    i = above;
  }}
  for (int k = 0; k < K; ++k) found[k] += i * at.step[k][0];
}}
// The V elements of input k along the last axis from x on: neighbours, or one element V times.
template <int V, typename A, int K> __device__ __forceinline__ Pack<A, V> pack_of(
    const A* x, const Layout<K>& where, int k) {{
  if (where.step[k][where.rank - 1]) return *(const Pack<A, V>*)x;
  Pack<A, V> all;
  for (int v = 0; v < V; ++v) all.at[v] = *x;
  return all;
}}
"""


def packs(axes: list[Axis], inputs: tuple[DeviceArray, ...], out: DeviceArray, width: int) -> int:
    """The number of packs of `width` elements in the output, if in each input the elements of a
    pack are aligned neighbours or one element repeated; else 0."""
    extent, steps = axes[-1]
    whole = len(axes) == 1 or extent % width == 0
    if width == 1 or not whole or out.offset % (width * out.dtype.itemsize):
        return 0
    for k, a in enumerate(inputs):
        apart = [steps[k] for _, steps in axes[:-1]]
        if steps[k] == 0:
            continue
        if steps[k] != 1 or any(s % width for s in apart) or a.offset % (width * a.dtype.itemsize):
            return 0
    return out.size // width
