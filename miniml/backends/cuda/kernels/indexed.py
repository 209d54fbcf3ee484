"""The shared part of indexing kernels: one text for all, and a Layout of all addresses.

Output (or update) number i belongs to element at[0] + sum over k of index_k[at[k + 1]] * step_k.
An index outside its axis raises OutOfRangeError in the simulator's check mode, where launches are
synchronous; elsewhere it reads 0 and adds nothing, so that memory is never overrun.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from ....dtype import DType, int32
from ....errors import OutOfRangeError
from ...expressions.types import accumulation
from ...kernel import Kernel, KernelNode
from ...product import Shape, broadcast_steps, dense_strides
from ..array import DeviceArray
from ..move import carrier
from ..text.layout import layout, merged
from ..text.source import unit

HEAD = r"""
using namespace miniml;
__device__ __forceinline__ bool address(
    INDICES, const long long* at, const Axes& axes, long long* found) {
  long long total = at[0];
  bool inside = true;
  ADD_STEPS
  *found = total;
  return inside;
}
"""
TAKE = r"""
extern "C" __global__ void take(
    const E* x, INDICES, E* out, Layout<K + 1> where, Axes axes, long long n) {
  MINIML_FOR(i, n) {
    long long at[K + 1], found;
    locate(where, i, at);
    out[i] = address(NAMES, at, axes, &found) ? x[found] : E(0);
  }
}
"""
ADD = r"""
extern "C" __global__ void add(
    const E* updates, INDICES, S* sums, Layout<K + 2> where, Axes axes, long long n) {
  MINIML_FOR(i, n) {
    long long at[K + 2], found;
    locate(where, i, at);
    if (address(NAMES, at, axes, &found)) atomicAdd(&sums[found], S(load(updates[at[K + 1]])));
  }
}
extern "C" __global__ void widen(const E* x, S* sums, long long n) {
  MINIML_FOR(i, n) sums[i] = S(load(x[i]));
}
extern "C" __global__ void round_sums(const S* sums, E* out, long long n) {
  MINIML_FOR(i, n) out[i] = store<E>(sums[i]);
}
"""
PUT = r"""
extern "C" __global__ void claim(
    INDICES, unsigned long long* owner, Layout<K + 2> where, Axes axes, long long n) {
  MINIML_FOR(i, n) {
    long long at[K + 2], found;
    locate(where, i, at);
    if (address(NAMES, at, axes, &found)) atomicMax(&owner[found], (unsigned long long)i + 1);
  }
}
extern "C" __global__ void put(
    const E* values, INDICES, const unsigned long long* owner, E* out, Layout<K + 2> where,
    Axes axes, long long n) {
  MINIML_FOR(i, n) {
    long long at[K + 2], found;
    locate(where, i, at);
    if (address(NAMES, at, axes, &found) && owner[found] == (unsigned long long)i + 1)
      out[found] = values[at[K + 1]];
  }
}
"""
AXES = np.dtype([("extent", np.int64, 8), ("step", np.int64, 8)])
# The shape of what is taken or put; the Axes that indices run along; the steps along that shape in
# the array that is indexed, in each index, and in what is put.
Plan = tuple[Any, ...]


def text(kernels: str, dtype: DType, index: DType, count: int) -> str:
    """The unit of TAKE, ADD or PUT for elements of `dtype` and `count` indices."""
    line = (
        "{{ long long j = (long long)j{0}[at[{0} + 1]]; if (j < 0) j += axes.extent[{0}]; "
        "inside = inside && j >= 0 && j < axes.extent[{0}]; total += j * axes.step[{0}]; }}"
    )
    all_of = range(count)
    return unit(
        HEAD + kernels, E=dtype, S=accumulation(dtype), I=index, K=count, Axes=AXES,
        INDICES=", ".join(f"const I* j{k}" for k in all_of),
        NAMES=", ".join(f"j{k}" for k in all_of), ADD_STEPS=" ".join(map(line.format, all_of)),
    )  # fmt: skip


def axes_of(extents: Sequence[int], steps: Sequence[int]) -> Any:
    """The struct Axes."""
    record = np.zeros(1, AXES)
    record["extent"][0, : len(extents)] = extents
    record["step"][0, : len(steps)] = steps
    return record


class Indexed(Kernel):
    """Base of kernels that read or write at indices: `plan` gives the addresses.

    kernels: the text. moves: elements are only moved, so that only their size matters.
    """

    kernels: str
    moves = True

    def prepare(self, node: KernelNode) -> None:
        super().prepare(node)
        self.named = [i for i, s in enumerate(node.inputs) if self.is_index(i)]
        index = node.inputs[self.named[0]].dtype if self.named else int32
        held = node.outputs[0].dtype
        self.element = carrier(held.itemsize) if self.moves else held
        code = text(self.kernels, self.element, index, len(self.named))
        compiler = node.device.compiler
        self.get: Callable[[str], Any] = lambda entry: compiler.function(code, entry)
        shape, self.axes, *steps = self.plan(node)
        self.where, self.count = layout(merged(shape, steps, node.name)), prod(shape)

    def is_index(self, i: int) -> bool:
        """True for the inputs that are indices: all but the first."""
        return i > 0

    def plan(self, node: KernelNode) -> Plan:
        """The addresses of what is taken or put."""
        raise NotImplementedError(f"{type(self).__name__} defines no plan")

    def indices(self, inputs: Any) -> list[Any]:
        """The indices' pointers; OutOfRangeError for an index outside, in check mode."""
        found = [inputs[i] for i in self.named]
        if self.node.device.checks:
            for k, array in enumerate(found):
                self.check(array, int(self.axes["extent"][0, k]))
        return [a.flat for a in found]

    def bits(self, array: DeviceArray) -> Any:
        """The pointer to elements that are only moved, as integers of their size."""
        return array.flat.view(self.element)

    def check(self, array: DeviceArray, extent: int) -> None:
        """OutOfRangeError, which names the index, unless all are inside an axis."""
        numbers = array.device.to_host(array)
        outside = numbers[(numbers < -extent) | (numbers >= extent)]
        if outside.size:
            raise OutOfRangeError(
                f"{self.node.name} got index {outside[0]} for an axis of extent {extent}; "
                f"indices run from {-extent} to {extent - 1}"
            )


def along_others(node: KernelNode, shape: Shape, indices: list[Shape]) -> Plan:
    """The plan of Index, or of Gather: what the indices name in an array of this shape."""
    if "axes" in node.attrs:
        axes, at = node.attrs["axes"], node.attrs["at"]
    else:
        at = node.attrs["axis"] % len(shape)
        axes = (at,)
    steps = dense_strides(shape, 1)
    rest = [a for a in range(len(shape)) if a not in axes]
    named = axes_of([shape[a] for a in axes], [steps[a] for a in axes])
    return around(rest[:at], rest[at:], shape, steps, indices, named)


def around(
    before: list[int], after: list[int], shape: Shape, steps: Shape, indices: list[Shape], axes: Any
) -> Plan:
    """The plan where the axes of the indices, broadcast, come between those before and after."""
    block = np.broadcast_shapes(*indices)
    result = (*(shape[a] for a in before), *block, *(shape[a] for a in after))
    own = (*(steps[a] for a in before), *(0,) * len(block), *(steps[a] for a in after))
    lead, tail = (0,) * len(before), (0,) * len(after)
    return result, axes, own, *[(*lead, *broadcast_steps(i, block), *tail) for i in indices]
