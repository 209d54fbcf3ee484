"""Primitives whose CPU kernels are right and whose CUDA kernels are not; and some that are."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from miniml import Kernel, Launch, elementwise_kernel, kernel, raw_kernel

from .planted import PRODUCT, REFERENCE, SCALE, TOTAL, WAVE, Planted

BLOCK = 128
ELEMENTWISE = """
extern "C" __global__ void wave(const T* x, T* out, long long n) {
  long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  GUARD out[i] = sin(x[i]);
}
"""
SUM = """
extern "C" __global__ void total(const T* x, T* out, long long count, long long apart) {
  __shared__ ACCUMULATED parts[64];
  long long row = blockIdx.x, above = row / apart, beside = row % apart;
  ACCUMULATED sum = 0;
  for (long long k = threadIdx.x; k < count; k += blockDim.x)
    sum += x[(above * count + k) * apart + beside];
  parts[threadIdx.x] = sum;
  __syncthreads();
  for (int half = 32; half > 0; half /= 2) {
    if (threadIdx.x < half) parts[threadIdx.x] += parts[threadIdx.x + half];
    BARRIER
  }
  if (threadIdx.x == 0) out[row] = parts[0];
}
"""
CLASS = """
extern "C" __global__ void scaled(const float* x, float* out, float alpha, long long n) {
  long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = alpha * x[i];
}
"""
ONE_BY_ONE = """
extern "C" __global__ void product(const T* x, const T* y, T* out, long long n) {
  long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = x[i] * y[i % COUNT_OF_Y];
}
"""


def expression(text: str, *letters: str) -> Callable[[str], None]:
    """Files a scalar expression."""
    return lambda name: elementwise_kernel(name, text, *letters)


def wave(guard: str, blocks: Callable[[int], int]) -> Callable[[str], None]:
    """Files sin with a thread for each element, guarded by that text, in that many blocks."""

    def rule(node: Any) -> Launch:
        n = prod(node.outputs[0].shape)
        return Launch((blocks(n),), (BLOCK,), (np.int64(n),))

    def file(name: str) -> None:
        source = ELEMENTWISE.replace("GUARD", guard)
        raw_kernel(name, "f->f", "d->d", entry="wave", source=source, launch=rule)

    return file


def total(accumulated: str = "T", barrier: str = "__syncthreads();") -> Callable[[str], None]:
    """Files a sum over one axis, a block for each result."""

    def rule(node: Any) -> Launch:
        shape, axis = node.inputs[0].shape, node.attrs["axis"]
        apart = prod(shape[axis % len(shape) + 1 :])
        args = np.int64(shape[axis]), np.int64(apart)
        return Launch((prod(node.outputs[0].shape),), (64,), args)

    def file(name: str) -> None:
        source = SUM.replace("ACCUMULATED", accumulated).replace("BARRIER", barrier)
        raw_kernel(name, "f->f", "d->d", entry="total", source=source, launch=rule)

    return file


def product_of_equal_sizes(name: str) -> None:
    """Files x * y that runs through both in the order of memory, whatever their shapes."""

    def rule(node: Any) -> Launch:
        n = prod(node.outputs[0].shape)
        return Launch((-(-n // BLOCK),), (BLOCK,), (np.int64(n),))

    source = ONE_BY_ONE.replace("COUNT_OF_Y", "n")
    raw_kernel(name, "ff->f", "dd->d", entry="product", source=source, launch=rule)


def scaled(factor: Callable[[Any], float]) -> Callable[[str], None]:
    """Files alpha x as a Kernel class that takes alpha from that function of the node."""

    class Scaled(Kernel):
        def prepare(self, node):
            super().prepare(node)
            self.function = node.device.compiler.function(CLASS, "scaled")

        def launch(self, inputs, workspace, outputs, stream):
            n = inputs[0].size
            args = inputs[0].flat, outputs[0].flat, np.float32(factor(self.node)), np.int64(n)
            self.function((-(-n // BLOCK),), (BLOCK,), args)

    return lambda name: kernel(name, "cuda", "f->f")(Scaled)


def whole(n: int) -> int:
    return -(-n // BLOCK)


FD: dict[str, Any] = {"letters": "fd"}
CUDA_RIGHT = (
    Planted("RightOnCuda", WAVE, "", cuda=expression("sin(x)", "f->f", "d->d"), **FD),
    Planted("RightAttributeOnCuda", SCALE, "", cuda=scaled(lambda node: node.attrs["alpha"]), **FD),
    Planted("RightTextOnCuda", WAVE, "", cuda=wave("if (i < n)", whole), **FD),
    Planted("RightSumOnCuda", TOTAL, "", cuda=total(), row=REFERENCE, **FD),
)
CUDA_WRONG = (
    Planted("WrongExpression", WAVE, "devices", r"cuda f->f|cuda d->d",
        cuda=expression("sin(x) + 0.001f * x", "f->f", "d->d"), **FD),
    Planted("WrongOnlyInFloat64", WAVE, "devices", "cuda d->d",
        cuda=lambda name: (elementwise_kernel(name, "sin(x)", "f->f"),
                           elementwise_kernel(name, "sin((float)x)", "d->d")), **FD),
    Planted("OffByOneGuard", WAVE, "devices", r"out-of-bounds.*block .*thread .*wave\.cu:4",
        cuda=wave("if (i <= n)", whole), **FD),
    Planted("NoGuard", WAVE, "devices", r"out-of-bounds.*wave\.cu:4", cuda=wave("", whole), **FD),
    Planted("MissesTheLastBlock", WAVE, "devices", "unwritten",
        cuda=wave("if (i < n)", lambda n: max(n // BLOCK, 1)), **FD),
    Planted("MissesTheLastElement", WAVE, "devices", "unwritten",
        cuda=wave("if (i < n - 1)", whole), **FD),
    Planted("RaceInShared", TOTAL, "devices", r"race.*total\.cu:\d+", cuda=total(barrier=""),
        row=REFERENCE, **FD),
    Planted("SumsDoublesInFloat", TOTAL, "devices", "cuda d->d", cuda=total("float"),
        row=REFERENCE, **FD),
    Planted("IgnoresAlphaOnCuda", SCALE, "devices", "cuda f->f", cuda=scaled(lambda node: 2.5),
        **FD),
    Planted("WrongForBroadcast", PRODUCT, "devices", r"out-of-bounds.*product\.cu:4",
        cuda=product_of_equal_sizes, **FD),
    Planted("DoesNotCompile", WAVE, "devices", "does not compile",
        cuda=expression("sin(x) +* x", "f->f"), **FD),
    Planted("SwallowsNaNOnCuda", WAVE, "devices", "cuda",
        cuda=expression("x == x ? sin(x) : 0", "f->f", "d->d"), **FD),
)  # fmt: skip
