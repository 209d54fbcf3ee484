"""Copies between arrays of any strides, and filling: parts of kernels of several launches."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from ...dtype import DType, bfloat16, float16
from .array import DeviceArray
from .layout import LAYOUT, collapsed, layout, spread
from .source import C_TYPES, computed_in, prelude

TEXT = r"""
using namespace miniml;
extern "C" __global__ void move(const E* x, E* out, Layout<2> where, long long n) {
  const long long step = (long long)gridDim.x * blockDim.x;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
    long long at[2];
    locate(where, i, at);
    out[at[1]] = x[at[0]];
  }
}
extern "C" __global__ void fill(E* out, C value, long long n) {
  const long long step = (long long)gridDim.x * blockDim.x;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step)
    out[i] = store<E>(value);
}
"""


@cache
def text(dtype: DType) -> str:
    """The unit of one dtype."""
    types = f"typedef {C_TYPES[dtype]} E;\ntypedef {computed_in(dtype)} C;\n"
    return prelude({dtype}) + LAYOUT + types + TEXT


def move(source: DeviceArray, target: DeviceArray) -> None:
    """Copy an array into one of its dtype to whose shape it broadcasts; they do not overlap."""
    device, size = target.device, target.size
    if not size:
        return
    key = (source.shape, source.strides, target.shape, target.strides)
    where = device.moves.get(key)
    if where is None:
        if len(device.moves) >= 4096:
            device.moves.clear()
        axes = collapsed((source, target), target.shape, "a copy")
        where = device.moves[key] = layout(axes, (source, target))
    function = device.compiler.function(text(target.dtype), "move")
    function(*spread(size), (source.flat, target.flat, where, np.int64(size)))


def fill(target: DeviceArray, value: Any) -> None:
    """Overwrite a contiguous array with one number."""
    if target.size:
        dtype = target.dtype
        passed = np.dtype(np.float32) if dtype in (float16, bfloat16) else dtype
        function = target.device.compiler.function(text(dtype), "fill")
        size = target.size
        function(*spread(size), (target.flat, np.asarray(value).astype(passed)[()], np.int64(size)))
