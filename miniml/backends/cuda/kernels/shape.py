"""CUDA views, which compute shapes and strides alone, and kernels that copy parts of arrays."""

from __future__ import annotations

from operator import itemgetter, methodcaller
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ....core import abstract
from ....core.signature import ANY, FLOAT, pairs, same
from ...kernel import Kernel, KernelNode, index_of
from ...registry import kernel, view_kernel
from ..array import DeviceArray
from ..text.source import fill, move

Indices = tuple[int, ...]


# --- Views and memory formats ---------------------------------------------------------------------


class Reshaped(Kernel):
    """The elements in the shape of the output: a copy where no strides can describe it."""

    def prepare(self, node: KernelNode) -> None:
        self.call = methodcaller("reshape", node.outputs[0].shape)


def transpose(x: DeviceArray, *, axes: Indices) -> DeviceArray:
    return x.seen(lambda a: a.transpose(axes))


class BroadcastTo(Kernel):
    """x repeated to the shape of the output's array, in its memory format."""

    def prepare(self, node: KernelNode) -> None:
        shape = node.outputs[0].shape
        self.call = lambda x: x.seen(lambda a: np.broadcast_to(a, shape))


def flip(x: DeviceArray, *, axis: Any) -> DeviceArray:
    return x.seen(lambda a: np.flip(a, axis))


def slice_(
    x: DeviceArray, *, begin: Indices, end: Indices, strides: Indices, dropped: Indices
) -> DeviceArray:
    return x.seen(itemgetter(index_of(begin, end, strides, dropped)))


def sliding_window(x: DeviceArray, *, axis: int, size: int, step: int) -> DeviceArray:
    axis %= x.ndim
    windows = (x.shape[axis] - size) // step + 1
    shape = (*x.shape[:axis], windows, *x.shape[axis + 1 :], size)

    def look(a: Any) -> Any:
        near = a.strides[axis]
        strides = (*a.strides[:axis], near * step, *a.strides[axis + 1 :], near)
        return as_strided(a, shape, strides)

    return x.seen(look)


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
        self.pairs = abstract.pairs(x.format, out.format, x.shape[1]) if images else []
        self.fills = abstract.padding(out.format, x.shape[1]) is not None

    def launch(self, inputs: Any, workspace: Any, outputs: Any, stream: object) -> None:
        (x,), (out,) = inputs, outputs
        if self.fills:
            fill(out, 0)
        for look, place in self.pairs:
            move(x.seen(look), out.seen(place))
        if not self.pairs:
            move(x, out)


_VIEWS: dict[str, Any] = {
    "Reshape": Reshaped, "ExpandDims": Reshaped, "Squeeze": Reshaped, "Transpose": transpose,
    "BroadcastTo": BroadcastTo, "Flip": flip, "Slice": slice_, "SlidingWindow": sliding_window,
    "StopGradient": stop_gradient,
}  # fmt: skip

for _name, _look in _VIEWS.items():
    view_kernel(_name, "cuda")(_look)
kernel("Convert", "cuda", *same(1, ANY))(Convert)
view_kernel("Assign", "cuda", *same(2, ANY), of=1)(assign)
view_kernel("Barrier", "cuda", *pairs(FLOAT))(barrier)


# --- Joining, splitting and padding ---------------------------------------------------------------


def concat(*xs: DeviceArray, axis: int, out: DeviceArray) -> None:
    start, axis = 0, axis % out.ndim
    for x in xs:
        move(x, part(out, axis, start, x.shape[axis]))
        start += x.shape[axis]


def split(x: DeviceArray, *, axis: int, sections: Any, out: Any) -> None:
    start, axis = 0, axis % x.ndim
    for target in out if isinstance(out, tuple) else (out,):
        move(part(x, axis, start, target.shape[axis]), target)
        start += target.shape[axis]


def part(x: DeviceArray, axis: int, start: int, extent: int) -> DeviceArray:
    """The `extent` elements along an axis that begin at `start`."""
    index = (*(slice(None),) * axis, slice(start, start + extent))
    return x.seen(lambda a: a[index])


def slice_grad(
    x: DeviceArray,
    *,
    shape: Indices,
    begin: Indices,
    end: Indices,
    strides: Indices,
    out: DeviceArray,
) -> None:
    fill(out, 0)
    move(x, out.seen(itemgetter(index_of(begin, end, strides))))


def pad(x: DeviceArray, *, padding: Any, value: Any, out: DeviceArray) -> None:
    fill(out, value)
    index = tuple(slice(a, a + n) for n, (a, _) in zip(x.shape, padding, strict=True))
    move(x, out.seen(lambda a: a[index]) if index else out)


kernel("Concat", "cuda", *[f"{c}*->{c}" for c in ANY], strided=True)(concat)
kernel("Split", "cuda", *[f"{c}->{c}*" for c in ANY], strided=True)(split)
kernel("SliceGrad", "cuda", *same(1, ANY), strided=True)(slice_grad)
kernel("Pad", "cuda", *same(1, ANY), strided=True)(pad)
