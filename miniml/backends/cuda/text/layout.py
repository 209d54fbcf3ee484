"""Where the elements of strided arrays stand: axes merged, and passed to kernels as a Layout."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from ....errors import ShapeError
from ..array import DeviceArray

MAX_RANK = 8
BLOCK = 256
PER_THREAD = 4
Axis = tuple[int, tuple[int, ...]]


def spread(size: int, per_thread: int = PER_THREAD) -> tuple[tuple[int], tuple[int]]:
    """Grid and block for `size` elements, of which a thread takes a few."""
    threads = min(BLOCK, -(-max(size, 1) // 32) * 32)
    return (min(-(-max(size, 1) // (threads * per_thread)), 1 << 20),), (threads,)


def collapsed(inputs: tuple[DeviceArray, ...], shape: tuple[int, ...], name: str) -> list[Axis]:
    """The output's axes (extent, elements from one to the next of each input), neighbours merged
    where all inputs run through both as through one. ShapeError for more than 8 that remain."""
    axes: list[Axis] = []
    lead = [len(shape) - a.ndim for a in inputs]
    for d, extent in enumerate(shape):
        if extent == 1:
            continue
        steps = tuple(
            0 if d < gap or a.shape[d - gap] == 1 else a.strides[d - gap] // a.dtype.itemsize
            for a, gap in zip(inputs, lead, strict=True)
        )
        if axes and all(p == s * extent for p, s in zip(axes[-1][1], steps, strict=True)):
            axes[-1] = (axes[-1][0] * extent, steps)
        else:
            axes.append((extent, steps))
    if len(axes) > MAX_RANK:
        raise ShapeError(
            f"{name} needs {len(axes)} axes that do not merge; kernels of CUDA take {MAX_RANK}: "
            "reshape the inputs, or make them contiguous"
        )
    return axes or [(1, (0,) * len(inputs))]


def layout(axes: list[Axis], inputs: tuple[DeviceArray, ...]) -> Any:
    """The struct Layout<K> that says where each element of the inputs stands."""
    record = np.zeros(1, layout_dtype(len(inputs)))
    record["rank"] = len(axes)
    record["extent"] = 1
    for d, (extent, steps) in enumerate(axes):
        record["extent"][0, d] = extent
        record["step"][0, :, d] = steps
    for k, a in enumerate(inputs):
        record["start"][0, k] = (a.offset - a.bounds()[0]) // a.dtype.itemsize
    return record


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
    const Layout<K>& at, long long i, long long* place) {{
  for (int k = 0; k < K; ++k) place[k] = at.start[k];
  for (int d = (int)at.rank - 1; d > 0; --d) {{
    long long above = i / at.extent[d], here = i - above * at.extent[d];
    for (int k = 0; k < K; ++k) place[k] += here * at.step[k][d];
    i = above;
  }}
  for (int k = 0; k < K; ++k) place[k] += i * at.step[k][0];
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
    """How many packs of `width` elements the output has whose elements stand side by side, aligned,
    in each input that does not repeat one; 0 where any pack is otherwise."""
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
