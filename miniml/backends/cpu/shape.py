"""NumPy kernels of shape operations, as views; of joining, splitting and slicing; of creation."""

from __future__ import annotations

from itertools import accumulate, pairwise
from math import isinf
from operator import itemgetter, methodcaller, mul
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ...core.abstract import DType
from ...core.signature import FLOAT, HELD, INT, same
from ..kernel import Array, Kernel, KernelNode, index_of
from ..registry import register, view_kernel


class BroadcastTo(Kernel):
    """x broadcast to the shape of the output's array, in whatever memory format."""

    def prepare(self, node: KernelNode) -> None:
        (given, dtype, _), shape = node.inputs[0], node.outputs[0].shape
        spread = [0 if n == 1 else s for n, s in zip(given, dense(given, dtype))]
        steps = (*[0] * (len(shape) - len(given)), *spread)
        spare: Any = ("multi_index", "refs_ok", "zerosize_ok")

        def broadcast_to(x: Array) -> Any:
            if x.flags.c_contiguous:  # a view of its memory, in a third of the time
                return np.ndarray(shape, dtype, x, 0, steps)
            # The core of np.broadcast_to, without its six calls in Python: a third of its time.
            return np.nditer(x, spare, ["readonly"], itershape=shape, order="C").itviews[0]

        self.call = broadcast_to


def dense(shape: tuple[int, ...], dtype: DType) -> tuple[int, ...]:
    """The strides of contiguous memory, of at least one axis."""
    return tuple(accumulate(shape[:0:-1], mul, initial=dtype.itemsize))[::-1]


class Reshaped(Kernel):
    """The elements in the shape of the output: a copy where no strides can describe it. NumPy's
    functions for axes of extent 1 are in Python, and take several times as long."""

    def prepare(self, node: KernelNode) -> None:
        self.call = methodcaller("reshape", node.outputs[0].shape)


class Transposed(Kernel):
    """A view with the axes in another order."""

    def prepare(self, node: KernelNode) -> None:
        self.call = methodcaller("transpose", node.attrs["axes"])


def flip(x: Array, *, axis: Any) -> Array:
    return np.flip(x, axis) if x.ndim else x  # NumPy turns a 0-d array into a scalar


view_kernel("Reshape", "cpu")(Reshaped)
view_kernel("Transpose", "cpu")(Transposed)
view_kernel("BroadcastTo", "cpu")(BroadcastTo)
view_kernel("ExpandDims", "cpu")(Reshaped)
view_kernel("Squeeze", "cpu")(Reshaped)
view_kernel("Flip", "cpu")(flip)


# --- Joining, splitting and slicing ---------------------------------------------------------------


Indices = tuple[int, ...]


def concat(*xs: Array, axis: int, out: Array) -> None:
    np.concatenate(xs, axis=axis, out=out)


class SplitKernel(Kernel):
    """Copies of the parts, whose slices are known when the kernel is prepared."""

    def prepare(self, node: KernelNode) -> None:
        axis = node.attrs["axis"] % len(node.inputs[0].shape)
        ends = [0, *accumulate(part.shape[axis] for part in node.outputs)]
        indices = [(*[slice(None)] * axis, slice(*pair)) for pair in pairwise(ends)]

        def split(x: Array, *, out: tuple[Array, ...] | Array) -> None:
            parts = out if isinstance(out, tuple) else (out,)  # Kernel.launch gives one as it is
            for part, index in zip(parts, indices):
                part[...] = x[index]

        self.call = split


class SliceKernel(Kernel):
    """A view by an index that is known when the kernel is prepared."""

    def prepare(self, node: KernelNode) -> None:
        self.call = itemgetter(index_of(**node.attrs))


def slice_grad(
    x: Array, *, shape: Indices, begin: Indices, end: Indices, strides: Indices, out: Array
) -> None:
    out.fill(0)
    out[index_of(begin, end, strides)] = x


class SlidingWindow(Kernel):
    """Windows of neighbours as a view."""

    def prepare(self, node: KernelNode) -> None:
        (given, dtype, _), shape = node.inputs[0], node.outputs[0].shape
        axis, step = node.attrs["axis"] % len(given), node.attrs["step"]

        def windows(strides: tuple[int, ...]) -> tuple[int, ...]:
            by = strides[axis]
            return (*strides[:axis], by * step, *strides[axis + 1 :], by)

        steps = windows(dense(given, dtype))

        def look(x: Array) -> Array:
            if x.flags.c_contiguous:  # in a fifth of the time
                return np.ndarray(shape, dtype, x, 0, steps)
            return as_strided(x, shape, windows(x.strides), writeable=False)

        self.call = look


class PadKernel(Kernel):
    """The place of x in the output is known when the kernel is prepared."""

    def prepare(self, node: KernelNode) -> None:
        value, sides = node.attrs["value"], zip(node.inputs[0].shape, node.attrs["padding"])
        inside = tuple([slice(a, a + n) for n, (a, _) in sides])

        def pad(x: Array, *, out: Array) -> None:
            out.fill(value)
            out[inside] = x

        self.call = pad


register("Concat", concat, *[f"{c}*->{c}" for c in HELD])
register("Split", SplitKernel, *[f"{c}->{c}*" for c in HELD])
view_kernel("Slice", "cpu")(SliceKernel)
view_kernel("SlidingWindow", "cpu")(SlidingWindow)
register("SliceGrad", slice_grad, *same(1, HELD))
register("Pad", PadKernel, *same(1, HELD))


# --- Tensors from numbers alone -------------------------------------------------------------------


def full(*, shape: tuple[int, ...], value: Any, dtype: Any, out: Array) -> None:
    out.fill(value)


def count(*, start: int, stop: int, step: int, dtype: Any, out: Array) -> None:
    counted = np.arange(len(out), dtype=np.uint64) * np.uint64(int(step) % 2**64)
    np.copyto(out, counted + np.uint64(int(start) % 2**64), casting="unsafe")


def arange(*, start: float, stop: float, step: float, dtype: Any, out: Array) -> None:
    np.copyto(out, np.arange(len(out)) * float(step) + float(start), casting="unsafe")


def steps(*, start: int, stop: int, num: int, dtype: Any, out: Array) -> None:
    step = (int(stop) - int(start)) // max(num - 1, 1)
    count(start=start, stop=stop, step=step, dtype=dtype, out=out)


def linspace(*, start: float, stop: float, num: int, dtype: Any, out: Array) -> None:
    scale = 2.0 if isinf(float(stop) - float(start)) else 1.0  # by halves, which cannot overflow
    np.copyto(out, np.linspace(start / scale, stop / scale, num) * scale, casting="unsafe")


def eye(*, n: int, m: int, dtype: Any, out: Array) -> None:
    out.fill(0)
    out.reshape(-1)[: min(n, m) * (m + 1) : m + 1] = 1


register("Full", full, *[f"->{c}" for c in HELD])
register("Arange", count, *[f"->{c}" for c in INT])
register("Arange", arange, *[f"->{c}" for c in FLOAT])
register("Linspace", steps, *[f"->{c}" for c in INT])
register("Linspace", linspace, *[f"->{c}" for c in FLOAT])
register("Eye", eye, *[f"->{c}" for c in HELD])
