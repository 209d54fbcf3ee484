"""NumPy kernels of the shape operations, as views. SumTo is with the sums."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ..kernel import Array, Kernel, KernelNode
from ..registry import view_kernel

_SPREAD: Any = ("multi_index", "refs_ok", "zerosize_ok")


def reshape(x: Array, *, shape: tuple[int, ...]) -> Array:
    return x.reshape(shape)  # a copy where no strides can describe the new shape


def transpose(x: Array, *, axes: tuple[int, ...]) -> Array:
    return x.transpose(axes)


class BroadcastTo(Kernel):
    """x repeated to the shape of the output's array, in whatever memory format."""

    def prepare(self, node: KernelNode) -> None:
        self.call = partial(broadcast_to, shape=node.outputs[0].shape)


def broadcast_to(x: Array, *, shape: tuple[int, ...]) -> Array:
    # What np.broadcast_to comes to after six calls in Python, in a third of its time.
    spread: Any = np.nditer(x, _SPREAD, ["readonly"], itershape=shape, order="C")
    return spread.itviews[0]  # type: ignore[no-any-return]


def expand_dims(x: Array, *, axis: Any) -> Array:
    return np.expand_dims(x, axis)


def squeeze(x: Array, *, axis: Any) -> Array:
    return np.squeeze(x, axis)


def flip(x: Array, *, axis: Any) -> Array:
    return np.flip(x, axis) if x.ndim else x  # NumPy turns a 0-d array into a scalar


view_kernel("Reshape", "cpu")(reshape)
view_kernel("Transpose", "cpu")(transpose)
view_kernel("BroadcastTo", "cpu")(BroadcastTo)
view_kernel("ExpandDims", "cpu")(expand_dims)
view_kernel("Squeeze", "cpu")(squeeze)
view_kernel("Flip", "cpu")(flip)
