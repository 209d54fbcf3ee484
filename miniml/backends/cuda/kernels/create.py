"""One-hot rows; the other tensors made from numbers are expressions of the element's index."""

from __future__ import annotations

from math import prod

import numpy as np

from ...kernel import KernelNode, Launch
from ...registry import raw_kernel
from ...typecodes import ANY, INT
from ..text.layout import spread

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
