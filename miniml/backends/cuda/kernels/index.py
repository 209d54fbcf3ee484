"""CUDA kernels that read or write at indices.

Parts: the base of these kernels, with one text for all and a Layout of all addresses; the reads,
additions and writes of each primitive; one-hot rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from ....core.abstract import ArraySpec, DType, from_type_code, int32, int64, uint64
from ....core.errors import OutOfRangeError
from ....core.signature import ANY, FLOAT, INT
from ...expressions import accumulation, identity
from ...kernel import Kernel, KernelNode
from ...product import Shape, broadcast_steps, dense_strides
from ...registry import kernel
from ..array import DeviceArray
from ..text.source import carrier, fill, layout, merged, move, spread, unit

# --- Addresses ------------------------------------------------------------------------------------


# Output (or update) number i belongs to element at[0] + sum over k of index_k[at[k + 1]] * step_k.
# An index outside its axis raises OutOfRangeError in the simulator's check mode, where launches are
# synchronous; elsewhere it reads 0 and adds nothing, so that memory is never overrun.
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
"""
ROUND = r"""
extern "C" __global__ void round_sums(const S* sums, E* out, long long n) {
  MINIML_FOR(i, n) out[i] = store<E>(sums[i]);
}
"""
# There are no atomics of all these types and modes, so bits are exchanged until none intervened.
REDUCE = r"""
union Place { BITS bits; S value; };
__device__ __forceinline__ void combine(S* place, S value) {
  Place seen, next;
  seen.bits = atomicCAS((BITS*)place, (BITS)0, (BITS)0);
  BITS expected;
  do {
    expected = seen.bits;
    const S a = seen.value, b = value;
    next.value = COMBINED;
    seen.bits = atomicCAS((BITS*)place, expected, next.bits);
  } while (seen.bits != expected);
}
extern "C" __global__ void reduce(
    const E* updates, INDICES, S* found_at, Layout<K + 2> where, Axes axes, long long n) {
  MINIML_FOR(i, n) {
    long long at[K + 2], found;
    locate(where, i, at);
    if (address(NAMES, at, axes, &found)) combine(&found_at[found], S(load(updates[at[K + 1]])));
  }
}
"""
_COMBINED = {"mul": "a * b", "min": "a != a || a < b ? a : b", "max": "a != a || a > b ? a : b"}
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
# The shape of the elements taken or put; the Axes along which indices run; the steps along that
# shape in the indexed array, in each index, and in the elements put.
Plan = tuple[Any, ...]


def text(kernels: str, dtype: DType, index: DType, count: int, **names: DType | str) -> str:
    """The unit of TAKE, ADD or PUT for elements of `dtype` and `count` indices.

    names: what it needs beside them; S is by default the dtype of sums.
    """
    line = (
        "{{ long long j = (long long)j{0}[at[{0} + 1]]; if (j < 0) j += axes.extent[{0}]; "
        "inside = inside && j >= 0 && j < axes.extent[{0}]; total += j * axes.step[{0}]; }}"
    )
    all_of = range(count)
    names.setdefault("S", accumulation(dtype))
    return unit(
        HEAD + kernels, E=dtype, I=index, K=count, Axes=AXES, **names,
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

    kernels: the text, and entries the names of its kernels. moves: True where elements are only
    copied, so that only their size matters.
    """

    kernels: str
    entries: tuple[str, ...]
    moves = True

    def prepare(self, node: KernelNode) -> None:
        super().prepare(node)
        self.named = [i for i, s in enumerate(node.inputs) if self.is_index(i)]
        index = node.inputs[self.named[0]].dtype if self.named else int32
        held = node.outputs[0].dtype
        self.element = carrier(held.itemsize) if self.moves else held
        code = text(self.kernels, self.element, index, len(self.named), **self.names(node))
        self.functions = node.device.compiler.functions(code, *self.entries)
        shape, self.axes, *steps = self.plan(node)
        self.where, self.count = layout(merged(shape, steps, node.name)), prod(shape)

    def is_index(self, i: int) -> bool:
        """True for the inputs that are indices: all but the first."""
        return i > 0

    def names(self, node: KernelNode) -> dict[str, DType | str]:
        """Names that the text needs beside the dtypes of elements and indices."""
        return {}

    def plan(self, node: KernelNode) -> Plan:
        """The addresses of the elements taken or put."""
        raise NotImplementedError(f"{type(self).__name__} defines no plan")

    def indices(self, inputs: Any) -> list[Any]:
        """The indices' pointers; OutOfRangeError for an index outside, in check mode."""
        found = [inputs[i] for i in self.named]
        if self.node.device.checks:
            for k, array in enumerate(found):
                self.check(array, int(self.axes["extent"][0, k]))
        return [a.flat for a in found]

    def bits(self, array: DeviceArray) -> Any:
        """The pointer to elements that are only copied, as integers of their size."""
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
    """The plan of Index, or of Gather: the elements at the indices in an array of this shape."""
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


# --- Kernels of the primitives --------------------------------------------------------------------


NAMED = "il"


class Take(Indexed):
    """Base of kernels that read at indices."""

    kernels, entries = TAKE, ("take",)

    def launch(self, inputs: Any, workspace: Any, outputs: Any, stream: object) -> None:
        arrays = (self.bits(inputs[0]), *self.indices(inputs), self.bits(outputs[0]))
        args = (*arrays, self.where, self.axes, np.int64(self.count))
        self.functions[0](*spread(self.count), args)


class AddAt(Indexed):
    """Base of kernels that add at indices, in sums of a type that has atomics, rounded once."""

    kernels = ADD + ROUND
    entries: tuple[str, ...] = ("add", "round_sums", "widen")
    moves = False

    def workspace(self) -> tuple[ArraySpec, ...]:
        out = self.node.outputs[0]
        return (ArraySpec(out.shape, accumulation(out.dtype)),)

    def start(self, inputs: Any, sums: DeviceArray) -> None:
        """Fill the sums that updates are added to: with zeros, unless overridden."""
        fill(sums, 0)

    def updates(self, inputs: Any) -> DeviceArray:
        first: DeviceArray = inputs[0]
        return first

    def launch(self, inputs: Any, workspace: Any, outputs: Any, stream: object) -> None:
        (sums,), (out,) = workspace, outputs
        add, round_sums, *_ = self.functions
        self.start(inputs, sums)
        if self.count:
            arrays = (self.updates(inputs).flat, *self.indices(inputs), sums.flat)
            args = (*arrays, self.where, self.axes, np.int64(self.count))
            add(*spread(self.count), args)
        round_sums(*spread(out.size), (sums.flat, out.flat, np.int64(out.size)))


class IndexKernel(Take):
    """The elements at several indices together; the slices at one, for Gather."""

    def plan(self, node: KernelNode) -> Plan:
        x, *indices = (i.shape for i in node.inputs)
        return along_others(node, x, indices)


class IndexAddKernel(AddAt):
    """The transpose of Index."""

    def plan(self, node: KernelNode) -> Plan:
        updates, *indices = (i.shape for i in node.inputs)
        plan = along_others(node, node.attrs["shape"], indices)
        return *plan, dense_strides(updates, 1)


class IndexReduceKernel(IndexAddKernel):
    """Products, minima and maxima of the updates for each position, in 32 or 64 bits."""

    kernels, entries = REDUCE + ROUND, ("reduce", "round_sums")

    def names(self, node: KernelNode) -> dict[str, DType | str]:
        mode, dtype = node.attrs["mode"], node.outputs[0].dtype
        signed = dtype.kind == "i" and mode != "mul"  # products wrap around, as they may not in C
        self.wide = int64 if signed else accumulation(dtype)
        bits = _ATOMIC[self.wide.itemsize]
        return {"S": self.wide, "BITS": bits, "COMBINED": _COMBINED[mode]}

    def workspace(self) -> tuple[ArraySpec, ...]:
        return (ArraySpec(self.node.outputs[0].shape, self.wide),)

    def start(self, inputs: Any, sums: DeviceArray) -> None:
        fill(sums, identity(self.node.attrs["mode"], self.node.outputs[0].dtype))


_ATOMIC = {4: "unsigned int", 8: "unsigned long long"}  # what atomicCAS takes, by bytes


class TakeAlong(Take):
    """One element for each index."""

    def plan(self, node: KernelNode) -> Plan:
        (x, indices), out = (i.shape for i in node.inputs), node.outputs[0].shape
        return along_axis(node, x, indices, out)


class PutAlongAdd(AddAt):
    """The transpose of TakeAlongAxis."""

    def plan(self, node: KernelNode) -> Plan:
        (updates, indices), out = (i.shape for i in node.inputs), node.outputs[0].shape
        return *along_axis(node, out, indices, updates), dense_strides(updates, 1)


def along_axis(node: KernelNode, x: Shape, indices: Shape, shape: Shape) -> Plan:
    """The plan for one element of x for each index; shape: of the elements taken or put."""
    axis = node.attrs["axis"] % len(x)
    own = [0 if i == axis else s for i, s in enumerate(broadcast_steps(x, shape))]
    named = axes_of((x[axis],), (dense_strides(x, 1)[axis],))
    return shape, named, tuple(own), broadcast_steps(indices, shape)


class ScatterAddKernel(AddAt):
    """x with updates added to the slices at indices."""

    def is_index(self, i: int) -> bool:
        return i == 1

    def updates(self, inputs: Any) -> DeviceArray:
        third: DeviceArray = inputs[2]
        return third

    def start(self, inputs: Any, sums: DeviceArray) -> None:
        size = sums.size
        self.functions[-1](*spread(size), (inputs[0].flat, sums.flat, np.int64(size)))

    def plan(self, node: KernelNode) -> Plan:
        x, indices, updates = (i.shape for i in node.inputs)
        shape, *rest = along_others(node, x, [indices])
        return shape, *rest, broadcast_steps(updates, shape)


class ScatterKernel(Indexed):
    """x with values put at an index; of several for one element, the last one is kept."""

    kernels, entries = PUT, ("claim", "put")

    def is_index(self, i: int) -> bool:
        return i > 1

    def workspace(self) -> tuple[ArraySpec, ...]:
        return (ArraySpec(self.node.outputs[0].shape if self.named else (1,), uint64),)

    def prepare(self, node: KernelNode) -> None:
        if any(item == "tensor" for item in node.attrs["index"]):
            super().prepare(node)
            self.where["start"][0, 0] = self.start
        else:
            self.node, self.named = node, []

    def plan(self, node: KernelNode) -> Plan:
        out, value = node.outputs[0].shape, node.inputs[1].shape
        items = spelt_out(node.attrs["index"], len(out))
        view = DeviceArray(None, None, 0, out, from_type_code("b"))
        basic = view.seen(lambda a: a[tuple(slice(None) if i == "tensor" else i for i in items)])
        self.start = basic.offset
        kept = [i for i in items if not is_int(i)]
        named = [d for d, i in enumerate(kept) if i == "tensor"]
        advanced = [p for p, i in enumerate(items) if i == "tensor" or is_int(i)]
        together = advanced == list(range(advanced[0], advanced[-1] + 1))
        at = sum(not is_int(i) for i in items[: advanced[0]]) if together else 0
        rest = [d for d in range(len(kept)) if d not in named]
        shape, steps = basic.shape, basic.strides
        axes = axes_of([shape[d] for d in named], [steps[d] for d in named])
        indices = [i.shape for i in node.inputs[2:]]
        region, *plan = around(rest[:at], rest[at:], shape, steps, indices, axes)
        return region, *plan, broadcast_steps(value, region)

    def launch(self, inputs: Any, workspace: Any, outputs: Any, stream: object) -> None:
        x, value, *_ = inputs
        (owner,), (out,) = workspace, outputs
        move(x, out)
        if not self.named:
            index = self.node.attrs["index"]
            move(value, out.seen(lambda a: a[(*index, ...)] if ... not in index else a[index]))
        elif self.count:
            (claim, put), indices = self.functions, self.indices(inputs)
            fill(owner, 0)
            rest = self.where, self.axes, np.int64(self.count)
            claim(*spread(self.count), (*indices, owner.flat, *rest))
            arrays = (self.bits(value), *indices, owner.flat, self.bits(out))
            put(*spread(self.count), (*arrays, *rest))


def is_int(item: Any) -> bool:
    """True for an integer, which removes an axis."""
    return isinstance(item, (int, np.integer)) and not isinstance(item, bool)


def spelt_out(index: tuple[Any, ...], ndim: int) -> list[Any]:
    """The index with one item for each axis, and None for new axes."""
    items = list(index)
    if ... not in items:
        items.append(...)
    at = items.index(...)
    used = sum(i is not None and i is not ... for i in items)
    return items[:at] + [slice(None)] * (ndim - used) + items[at + 1 :]


kernel("Gather", "cuda", *[f"{c}{i}->{c}" for c in ANY for i in NAMED])(IndexKernel)
kernel("Index", "cuda", *[f"{c}{i}*->{c}" for c in ANY for i in NAMED])(IndexKernel)
kernel("TakeAlongAxis", "cuda", *[f"{c}{i}->{c}" for c in ANY for i in NAMED])(TakeAlong)
_NUMBERS = INT + FLOAT
kernel("IndexAdd", "cuda", *[f"{c}{i}*->{c}" for c in _NUMBERS for i in NAMED])(IndexAddKernel)
kernel("IndexReduce", "cuda", *[f"{c}{i}*->{c}" for c in _NUMBERS for i in NAMED])(
    IndexReduceKernel
)
kernel("PutAlongAxisAdd", "cuda", *[f"{c}{i}->{c}" for c in _NUMBERS for i in NAMED])(PutAlongAdd)
kernel("ScatterAdd", "cuda", *[f"{c}{i}{c}->{c}" for c in _NUMBERS for i in NAMED])(
    ScatterAddKernel
)
kernel("Scatter", "cuda", *[f"{c}{c}{i}*->{c}" for c in ANY for i in NAMED])(ScatterKernel)
