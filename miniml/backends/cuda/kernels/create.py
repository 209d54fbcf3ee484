"""Tensors made from nothing but numbers: expressions of the element's index."""

from __future__ import annotations

from math import isinf
from typing import Any

import numpy as np

from ....dtype import DType, bfloat16, float16, from_letter
from ...kernel import KernelNode, Launch
from ...typecodes import ANY, FLOAT, INT
from ..text.layout import spread
from ..text.registering import express, raw

_INT64, _UINT64, _FLOAT64 = map(np.dtype, (np.int64, np.uint64, np.float64))


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


def spaced(node: KernelNode) -> dict[str, Any]:
    """Linspace by its step. By halves where the way from end to end leaves float64's range."""
    start, stop, num = (node.attrs[name] for name in ("start", "stop", "num"))
    scale = 2.0 if isinf(float(stop) - float(start)) else 1.0
    step = (stop / scale - start / scale) / max(num - 1, 1)
    end = num - 1 if num > 1 else -1  # the index of what is `stop` itself
    return {"start": start / scale, "stop": stop, "step": step, "scale": scale, "end": end}


def whole_steps(node: KernelNode) -> dict[str, Any]:
    """Linspace of integers by its step."""
    start, stop, num = (int(node.attrs[name]) for name in ("start", "stop", "num"))
    return modular(start, (stop - start) // max(num - 1, 1))


def counted(node: KernelNode) -> dict[str, Any]:
    """Arange of integers."""
    return modular(int(node.attrs["start"]), int(node.attrs["step"]))


def modular(start: int, step: int) -> dict[str, Any]:
    return {"start": start % 2**64, "step": step % 2**64}


_SPACED = (*((n, _FLOAT64) for n in ("start", "stop", "step", "scale")), ("end", _INT64))
for _name, _scalars in (("Arange", counted), ("Linspace", whole_steps)):
    for _c in INT:
        express(
            _name, "T(start + (unsigned long long)index * step)", f"->{_c}", unit="create",
            types=(("start", _UINT64), ("step", _UINT64)), scalars=_scalars,
        )  # fmt: skip
for _c in FLOAT:
    express(
        "Linspace", "T(index == end ? stop : (start + double(index) * step) * scale)", f"->{_c}",
        unit="create", types=_SPACED, scalars=spaced,
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
