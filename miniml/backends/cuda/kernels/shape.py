"""Views on a device: arithmetic of shapes and strides alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...registry import view_kernel
from ...typecodes import ANY, FLOAT, pairs, same
from ..array import DeviceArray

Indices = tuple[int, ...]


def reshape(x: DeviceArray, *, shape: Indices) -> DeviceArray:
    return x.reshape(shape)  # a copy where no strides can describe the new shape


def transpose(x: DeviceArray, *, axes: Indices) -> DeviceArray:
    return x.seen(lambda a: a.transpose(axes))


def broadcast_to(x: DeviceArray, *, shape: Indices) -> DeviceArray:
    return x.seen(lambda a: np.broadcast_to(a, shape))


def expand_dims(x: DeviceArray, *, axis: Any) -> DeviceArray:
    return x.seen(lambda a: np.expand_dims(a, axis))


def squeeze(x: DeviceArray, *, axis: Any) -> DeviceArray:
    return x.seen(lambda a: np.squeeze(a, axis))


def flip(x: DeviceArray, *, axis: Any) -> DeviceArray:
    return x.seen(lambda a: np.flip(a, axis))


def slice_(
    x: DeviceArray, *, begin: Indices, end: Indices, strides: Indices, dropped: Indices
) -> DeviceArray:
    index: list[Any] = list(map(selected, begin, end, strides))
    for axis in dropped:
        index[axis] = begin[axis]
    return x.seen(lambda a: a[..., *index])


def selected(begin: int, end: int, stride: int) -> slice:
    """The elements range(begin, end, stride) of an axis."""
    if not range(begin, end, stride):
        return slice(0, 0)
    return slice(begin, None if end < 0 else end, stride)  # -1 would count from the end


def stop_gradient(x: DeviceArray) -> DeviceArray:
    return x


def assign(parameter: DeviceArray, value: DeviceArray) -> DeviceArray:
    return value  # the runtime publishes it in the parameter's buffer when the step is done


def barrier(x: DeviceArray, after: DeviceArray) -> DeviceArray:
    return x


_VIEWS: dict[str, Any] = {
    "Reshape": reshape, "Transpose": transpose, "BroadcastTo": broadcast_to,
    "ExpandDims": expand_dims, "Squeeze": squeeze, "Flip": flip, "Slice": slice_,
    "StopGradient": stop_gradient,
}  # fmt: skip

for _name, _look in _VIEWS.items():
    view_kernel(_name, "cuda")(_look)
view_kernel("Assign", "cuda", *same(2, ANY), of=1)(assign)
view_kernel("Barrier", "cuda", *pairs(FLOAT))(barrier)
