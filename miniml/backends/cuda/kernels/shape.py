"""Views on a device: arithmetic of shapes and strides alone; and images in other orders."""

from __future__ import annotations

from typing import Any

import numpy as np

from .... import formats
from ...kernel import Kernel, KernelNode
from ...registry import kernel, view_kernel
from ...typecodes import ANY, FLOAT, pairs, same
from ..array import DeviceArray
from ..move import fill, move

Indices = tuple[int, ...]


def reshape(x: DeviceArray, *, shape: Indices) -> DeviceArray:
    return x.reshape(shape)  # a copy where no strides can describe the new shape


def transpose(x: DeviceArray, *, axes: Indices) -> DeviceArray:
    return x.seen(lambda a: a.transpose(axes))


class BroadcastTo(Kernel):
    """x repeated to the shape of the output's array, in whatever memory format."""

    def prepare(self, node: KernelNode) -> None:
        shape = node.outputs[0].shape
        self.call = lambda x: x.seen(lambda a: np.broadcast_to(a, shape))


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


class Convert(Kernel):
    """Images in another memory format: a copy, or two where the last block is not full."""

    def prepare(self, node: KernelNode) -> None:
        (x,), (out,) = node.inputs, node.outputs
        images = x.format or out.format
        self.pairs = formats.pairs(x.format, out.format, x.shape[1]) if images else []
        self.fills = formats.padding(out.format, x.shape[1]) is not None

    def launch(self, inputs: Any, workspace: Any, outputs: Any, stream: object) -> None:
        (x,), (out,) = inputs, outputs
        if self.fills:
            fill(out, 0)
        for look, place in self.pairs:
            move(x.seen(look), out.seen(place))
        if not self.pairs:
            move(x, out)


_VIEWS: dict[str, Any] = {
    "Reshape": reshape, "Transpose": transpose, "BroadcastTo": BroadcastTo,
    "ExpandDims": expand_dims, "Squeeze": squeeze, "Flip": flip, "Slice": slice_,
    "StopGradient": stop_gradient,
}  # fmt: skip

for _name, _look in _VIEWS.items():
    view_kernel(_name, "cuda")(_look)
kernel("Convert", "cuda", *same(1, ANY))(Convert)
view_kernel("Assign", "cuda", *same(2, ANY), of=1)(assign)
view_kernel("Barrier", "cuda", *pairs(FLOAT))(barrier)
