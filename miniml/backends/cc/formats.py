"""Kernels on images whose batch is the last axis, and the copies to that order and back."""

from __future__ import annotations

from math import prod

from ..kernel import KernelNode
from ..registry import kernel
from ..signature import ArraySpec
from .convolve import TEXTS, Convolution, enumerators, run_by
from .kernel import NativeKernel
from .planes import BatchInnermost
from .pool import Pooling
from .source import Source
from .vectors import SCALARS, Vectors, register_bytes

SPLIT = 100_000  # elements, about 50 us, from which on a copy is split over threads

# A part is a channel: its pixels by images, or its images by pixels, transposed.
MOVE = """\
static void KERNEL_part(void *data, long channel) {
  char *const *at = data;
  const REAL *x = (const REAL *)at[0] + channel * KERNEL_FROM;
  REAL_squares(x, KERNEL_X_STRIDE, (REAL *)at[1] + channel * KERNEL_TO, KERNEL_OUT_STRIDE,
               KERNEL_ROWS, KERNEL_COLUMNS);
}
void KERNEL(char *const *at) { KERNEL_RUN(KERNEL_part, (void *)at, KERNEL_CHANNELS); }
"""


class BatchLast(NativeKernel):
    """The kernel of the wrapped primitive, told that its images have the batch innermost."""

    def prepare(self, node: KernelNode) -> None:
        super().prepare(node)
        inner = unwrapped(node)
        self.inner = Convolution() if inner.name in TEXTS else Pooling()
        self.inner.prepare(inner)
        self.source = self.inner.source

    def workspace(self) -> tuple[ArraySpec, ...]:
        return self.inner.workspace()


def unwrapped(node: KernelNode) -> KernelNode:
    """The wrapped primitive on images in this memory format."""
    name = node.attrs["operation"]
    inputs = tuple(map(images, node.inputs, _moved(name, node.inputs)))
    outputs = tuple(map(images, node.outputs, _given(name, node.outputs)))
    return KernelNode(name, inputs, outputs, dict(node.attrs["given"]), node.target)


def images(spec: ArraySpec, moved: bool) -> ArraySpec:
    """Images (C, H, W, N) as (N, C, H, W) in this memory format."""
    if not moved:
        return spec
    return BatchInnermost((spec.shape[-1], *spec.shape[:-1]), spec.dtype)


def _moved(name: str, specs: tuple[ArraySpec, ...]) -> list[bool]:
    """Filters are no images: the second input of a convolution and of its gradient."""
    return [not (i == 1 and name in ("Conv2D", "Conv2DInputGrad")) for i in range(len(specs))]


def _given(name: str, specs: tuple[ArraySpec, ...]) -> list[bool]:
    return [name != "Conv2DWeightGrad"] * len(specs)


class MoveBatch(NativeKernel):
    def prepare(self, node: KernelNode) -> None:
        super().prepare(node)
        x, to_last = node.inputs[0], node.attrs["to_last"]
        n, channels, *plane = x.shape if to_last else node.outputs[0].shape
        pixels = prod(plane)
        rows, columns = (n, pixels) if to_last else (pixels, n)
        strides = (channels * pixels, n) if to_last else (n, channels * pixels)
        numbers = {
            "FROM": pixels if to_last else pixels * n, "TO": pixels * n if to_last else pixels,
            "X_STRIDE": strides[0], "OUT_STRIDE": strides[1], "ROWS": rows, "COLUMNS": columns,
            "CHANNELS": channels,
        }  # fmt: skip
        v = Vectors("float" if x.dtype.itemsize == 4 else "double", register_bytes(node.masked))
        text = enumerators(numbers) + run_by(prod(x.shape) > SPLIT) + v.written(MOVE)
        self.source = Source(text, (v.prelude, v.text("planes.c")))


for _c in SCALARS:
    _codes = f"{_c}{_c}->{_c}", f"{_c}->{_c}", f"{_c}->{_c}l", f"{_c}l->{_c}"
    kernel("BatchLast", "cpu", *_codes, provider="cc", total=True)(BatchLast)
for _c in (*SCALARS, "l"):
    kernel("MoveBatch", "cpu", f"{_c}->{_c}", provider="cc", total=True)(MoveBatch)
