"""CUDA kernels of the scalar expressions, most creations among them; and of one-hot rows."""

from __future__ import annotations

from math import prod

import numpy as np

from ...expressions.table import table
from ...kernel import KernelNode, Launch
from ...registry import kernel, raw_kernel
from ...signature import ANY, INT, parse
from ..text.source import spread

ONE_HOT = r"""
extern "C" __global__ void one_hot(
    const T_IN0* indices, T_OUT0* out, long long depth, long long n) {
  MINIML_FOR(i, n) {
    const long long row = i / depth;
    const T_IN0 named = indices[row];
    const bool here = !(named < T_IN0(1) && named != T_IN0(0)) &&
                      (unsigned long long)named == (unsigned long long)(i - row * depth);
    out[i] = miniml::store<T_OUT0>(int(here));
  }
}
"""


def one_hot(node: KernelNode) -> Launch:
    size = prod(node.outputs[0].shape)
    return Launch(*spread(size), (np.int64(node.attrs["depth"]), np.int64(size)))


_SIGNATURES = [f"{i}->{c}" for i in INT for c in ANY]
raw_kernel("OneHot", *_SIGNATURES, entry="one_hot", source=ONE_HOT, launch=one_hot)


# The library's scalar expressions as CUDA kernels.
for (_name, _signature), _body in tuple(table.items()):
    if _body.unit:  # users' expressions are registered one by one
        _inputs, (_out,) = parse(_signature).inputs, parse(_signature).outputs
        # Every element is read before it is written, so `out` may be any input of its dtype.
        _inplace = tuple(i for i, dtype in enumerate(_inputs) if dtype == _out)
        kernel(_name, "cuda", _signature, inplace=_inplace, total=True)(_body)
