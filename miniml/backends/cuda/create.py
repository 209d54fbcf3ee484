"""Tensors made from nothing but numbers: expressions of the element's index."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...dtype import DType, bfloat16, float16, from_letter
from ..kernel import KernelNode, Launch
from .layout import spread
from .letters import ANY, FLOAT, INT, express, raw

_INT64, _FLOAT64 = np.dtype(np.int64), np.dtype(np.float64)


def given(node: KernelNode) -> dict[str, Any]:
    return dict(node.attrs)


def filled(node: KernelNode) -> dict[str, Any]:
    """The value as the output's dtype rounds it."""
    return {"value": np.asarray(node.attrs["value"]).astype(node.outputs[0].dtype)[()]}


def argument(dtype: DType) -> DType:
    """The dtype in which a number of `dtype` is passed to a kernel."""
    return np.dtype(np.float32) if dtype in (float16, bfloat16) else dtype


for _c in ANY:
    _types = (("value", argument(from_letter(_c))),)
    express("Full", "value", f"->{_c}", unit="create", types=_types, scalars=filled)
    express(
        "Eye", "T(index / m == index % m)", f"->{_c}", unit="create", types=(("m", _INT64),),
        scalars=given,
    )  # fmt: skip
for _c in INT:
    express(
        "Arange", "T((unsigned long long)start + (unsigned long long)index * "
        "(unsigned long long)step)", f"->{_c}", unit="create",
        types=(("start", _INT64), ("step", _INT64)), scalars=given,
    )  # fmt: skip
for _c in FLOAT:
    express(
        "Arange", "T(start + double(index) * step)", f"->{_c}", unit="create",
        types=(("start", _FLOAT64), ("step", _FLOAT64)), scalars=given,
    )  # fmt: skip

ONE_HOT = r"""
extern "C" __global__ void one_hot(
    const T_IN0* indices, T_OUT0* out, long long depth, long long n) {
  const long long step = (long long)gridDim.x * blockDim.x;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
    const long long row = i / depth;
    const T_IN0 named = indices[row];
    const bool here = !(named < T_IN0(1) && named != T_IN0(0)) &&
                      (unsigned long long)named == (unsigned long long)(i - row * depth);
    out[i] = miniml::store<T_OUT0>(int(here));
  }
}
"""


def one_hot(node: KernelNode) -> Launch:
    size = int(np.prod(node.outputs[0].shape))
    grid, block = spread(size)
    return Launch(grid, block, (np.int64(node.attrs["depth"]), np.int64(size)))


raw(
    "OneHot", *[f"{i}->{c}" for i in INT for c in ANY], entry="one_hot", source=ONE_HOT,
    launch=one_hot,
)  # fmt: skip
