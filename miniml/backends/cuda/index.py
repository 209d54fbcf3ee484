"""Indexing and adding at indices: one text for all, told by a Layout where everything stands.

Output (or update) number i belongs to element at[0] + sum over k of index_k[at[k + 1]] * step_k.
An index outside its axis raises OutOfRangeError in the simulator's check mode, where launches are
synchronous; elsewhere it reads 0 and adds nothing, so that memory is never overrun.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ...dtype import DType, float32, float64, from_letter, int32, uint64
from ...errors import OutOfRangeError
from ..kernel import Kernel, KernelNode
from ..registry import kernel
from ..signature import ArraySpec
from .array import DeviceArray, dense_strides
from .expression import LAYOUT, MAX_RANK, layout_dtype, spread
from .letters import ANY, FLOAT, INT
from .move import fill, move
from .source import C_TYPES, computed_in, prelude

Shape = tuple[int, ...]
NAMED = "il"

TEXT = r"""
using namespace miniml;
struct Axes { long long extent[8], step[8]; };
__device__ __forceinline__ bool place(
    @INDICES@, const long long* at, const Axes& axes, long long* found) {
  long long total = at[0];
  bool inside = true;
@PLACE@
  *found = total;
  return inside;
}
extern "C" __global__ void take(
    const E* x, @INDICES@, E* out, Layout<@K@ + 1> where, Axes axes, long long n) {
  const long long step = (long long)gridDim.x * blockDim.x;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
    long long at[@K@ + 1], found;
    locate(where, i, at);
    out[i] = place(@NAMES@, at, axes, &found) ? x[found] : store<E>(0);
  }
}
"""
ADD = r"""
extern "C" __global__ void add(
    const E* updates, @INDICES@, S* sums, Layout<@K@ + 2> where, Axes axes, long long n) {
  const long long step = (long long)gridDim.x * blockDim.x;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
    long long at[@K@ + 2], found;
    locate(where, i, at);
    if (place(@NAMES@, at, axes, &found)) atomicAdd(&sums[found], S(load(updates[at[@K@ + 1]])));
  }
}
extern "C" __global__ void widen(const E* x, S* sums, long long n) {
  const long long step = (long long)gridDim.x * blockDim.x;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step)
    sums[i] = S(load(x[i]));
}
extern "C" __global__ void round_sums(const S* sums, E* out, long long n) {
  const long long step = (long long)gridDim.x * blockDim.x;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step)
    out[i] = store<E>(sums[i]);
}
"""
PUT = r"""
extern "C" __global__ void claim(
    @INDICES@, unsigned long long* owner, Layout<@K@ + 2> where, Axes axes, long long n) {
  const long long step = (long long)gridDim.x * blockDim.x;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
    long long at[@K@ + 2], found;
    locate(where, i, at);
    if (place(@NAMES@, at, axes, &found)) atomicMax(&owner[found], (unsigned long long)i + 1);
  }
}
extern "C" __global__ void put(
    const E* values, @INDICES@, const unsigned long long* owner, E* out, Layout<@K@ + 2> where,
    Axes axes, long long n) {
  const long long step = (long long)gridDim.x * blockDim.x;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
    long long at[@K@ + 2], found;
    locate(where, i, at);
    if (place(@NAMES@, at, axes, &found) && owner[found] == (unsigned long long)i + 1)
      out[found] = values[at[@K@ + 1]];
  }
}
"""
AXES = np.dtype([("extent", np.int64, 8), ("step", np.int64, 8)])


def text(dtype: DType, index: DType, count: int, more: str = "") -> str:
    """The unit for elements of `dtype` and `count` indices."""
    named = C_TYPES[index]
    line = (
        "  {{ long long j = (long long)j{0}[at[{0} + 1]]; if (j < 0) j += axes.extent[{0}];\n"
        "    inside = inside && j >= 0 && j < axes.extent[{0}]; total += j * axes.step[{0}]; }}"
    )
    body = (TEXT + more).replace("@K@", str(count))
    body = body.replace("@PLACE@", "\n".join(line.format(k) for k in range(count)))
    body = body.replace("@INDICES@", ", ".join(f"const {named}* j{k}" for k in range(count)))
    body = body.replace("@NAMES@", ", ".join(f"j{k}" for k in range(count)))
    types = f"typedef {C_TYPES[dtype]} E;\ntypedef {sum_type(dtype)} S;\n"
    return prelude({dtype}) + LAYOUT + types + body


def sum_type(dtype: DType) -> str:
    """The C type of sums, one that atomicAdd takes."""
    if dtype.kind in "iub":
        return "unsigned long long"
    return computed_in(dtype)


def sum_dtype(dtype: DType) -> DType:
    """The dtype of sums."""
    if dtype.kind in "iub":
        return uint64
    return float64 if dtype == float64 else float32


def located(shape: Shape, *steps: Shape) -> Any:
    """The Layout of an array's elements in several others: their steps along each of its axes."""
    record = np.zeros(1, layout_dtype(len(steps)))
    record["rank"], record["extent"] = max(len(shape), 1), 1
    record["extent"][0, : len(shape)] = shape
    for k, own in enumerate(steps):
        record["step"][0, k, : len(own)] = own
    return record


def broadcast_steps(shape: Shape, target: Shape) -> Shape:
    """Elements from one to the next of a contiguous array along the axes it broadcasts to."""
    own = [0 if n == 1 else s for n, s in zip(shape, dense_strides(shape, 1), strict=True)]
    return (*(0,) * (len(target) - len(shape)), *own)


def axes_of(extents: Shape, steps: Shape) -> Any:
    """The struct Axes."""
    record = np.zeros(1, AXES)
    record["extent"][0, : len(extents)] = extents
    record["step"][0, : len(steps)] = steps
    return record


class Indexed(Kernel):
    """Base of kernels whose indices name places: `plan` says where everything stands."""

    more = ""

    def prepare(self, node: KernelNode) -> None:
        super().prepare(node)
        self.named = [i for i, s in enumerate(node.inputs) if self.is_index(i)]
        index = node.inputs[self.named[0]].dtype if self.named else int32
        code = text(node.outputs[0].dtype, index, len(self.named), self.more)
        self.get = lambda entry: node.device.compiler.function(code, entry)
        self.shape, self.where, self.axes = self.plan(node)
        if len(self.shape) > MAX_RANK:
            raise OutOfRangeError(f"{node.name} takes {MAX_RANK} axes on CUDA; got {self.shape}")
        self.count = prod(self.shape)

    def is_index(self, i: int) -> bool:
        """True for the inputs that are indices: all but the first."""
        return i > 0

    def plan(self, node: KernelNode) -> tuple[Shape, Any, Any]:
        """The shape of what is taken or put, its Layout and the Axes that indices run along."""
        raise NotImplementedError(f"{type(self).__name__} defines no plan")

    def indices(self, inputs: Any) -> list[Any]:
        """The indices' pointers; OutOfRangeError for one outside, where that can be known."""
        found = [inputs[i] for i in self.named]
        if self.node.device.checks:
            for k, array in enumerate(found):
                self.check(array, int(self.axes["extent"][0, k]))
        return [a.flat for a in found]

    def check(self, array: DeviceArray, extent: int) -> None:
        """OutOfRangeError, which names the index, unless all are inside an axis."""
        numbers = array.device.to_host(array)
        outside = numbers[(numbers < -extent) | (numbers >= extent)]
        if outside.size:
            raise OutOfRangeError(
                f"{self.node.name} got index {outside[0]} for an axis of extent {extent}; "
                f"indices run from {-extent} to {extent - 1}"
            )


class Take(Indexed):
    """Base of what reads at indices."""

    def launch(self, inputs: Any, workspace: Any, outputs: Any, stream: object) -> None:
        arrays = (inputs[0].flat, *self.indices(inputs), outputs[0].flat)
        args = (*arrays, self.where, self.axes, np.int64(self.count))
        self.get("take")(*spread(self.count), args)


class AddAt(Indexed):
    """Base of what adds at indices, in sums of a type that has atomics; they are rounded once."""

    more = ADD

    def workspace(self) -> tuple[ArraySpec, ...]:
        out = self.node.outputs[0]
        return (ArraySpec(out.shape, sum_dtype(out.dtype)),)

    def start(self, inputs: Any, sums: DeviceArray) -> None:
        """What the updates are added to: zeros."""
        fill(sums, 0)

    def updates(self, inputs: Any) -> DeviceArray:
        """What is added."""
        first: DeviceArray = inputs[0]
        return first

    def launch(self, inputs: Any, workspace: Any, outputs: Any, stream: object) -> None:
        (sums,), (out,) = workspace, outputs
        self.start(inputs, sums)
        if self.count:
            arrays = (self.updates(inputs).flat, *self.indices(inputs), sums.flat)
            args = (*arrays, self.where, self.axes, np.int64(self.count))
            self.get("add")(*spread(self.count), args)
        self.get("round_sums")(*spread(out.size), (sums.flat, out.flat, np.int64(out.size)))


def along_others(
    shape: Shape, axes: Shape, at: int, indices: list[Shape]
) -> tuple[Shape, list[Shape], Any]:
    """For Index(axes, at) of `shape`: the shape of the result, its steps in x and in each of the
    indices, and the Axes."""
    steps = dense_strides(shape, 1)
    rest = [a for a in range(len(shape)) if a not in axes]
    block = np.broadcast_shapes(*indices)
    before, after = rest[:at], rest[at:]
    result = (*(shape[a] for a in before), *block, *(shape[a] for a in after))
    none = (0,) * len(block)
    own = (*(steps[a] for a in before), *none, *(steps[a] for a in after))
    named = [
        (*(0,) * len(before), *broadcast_steps(i, block), *(0,) * len(after)) for i in indices
    ]
    where = axes_of(tuple(shape[a] for a in axes), tuple(steps[a] for a in axes))
    return result, [own, *named], where


class Gather(Take):
    """The slices that indices name."""

    def plan(self, node: KernelNode) -> tuple[Shape, Any, Any]:
        x, indices = (i.shape for i in node.inputs)
        axis = node.attrs["axis"] % len(x)
        shape, steps, axes = along_others(x, (axis,), axis, [indices])
        return shape, located(shape, *steps), axes


class Index(Take):
    """The elements that several indices name together."""

    def plan(self, node: KernelNode) -> tuple[Shape, Any, Any]:
        x, *indices = (i.shape for i in node.inputs)
        shape, steps, axes = along_others(x, node.attrs["axes"], node.attrs["at"], indices)
        return shape, located(shape, *steps), axes


class IndexAdd(AddAt):
    """The transpose of Index."""

    def plan(self, node: KernelNode) -> tuple[Shape, Any, Any]:
        updates, *indices = (i.shape for i in node.inputs)
        shape, steps, axes = along_others(
            node.attrs["shape"], node.attrs["axes"], node.attrs["at"], indices
        )
        return shape, located(shape, *steps, dense_strides(updates, 1)), axes


class TakeAlong(Take):
    """One element for each index."""

    def plan(self, node: KernelNode) -> tuple[Shape, Any, Any]:
        (x, indices), out = (i.shape for i in node.inputs), node.outputs[0].shape
        axis = node.attrs["axis"] % len(x)
        own = list(broadcast_steps(x, out))
        own[axis] = 0
        axes = axes_of((x[axis],), (dense_strides(x, 1)[axis],))
        return out, located(out, tuple(own), broadcast_steps(indices, out)), axes


class PutAlongAdd(AddAt):
    """The transpose of TakeAlongAxis."""

    def plan(self, node: KernelNode) -> tuple[Shape, Any, Any]:
        (updates, indices), out = (i.shape for i in node.inputs), node.outputs[0].shape
        axis = node.attrs["axis"] % len(out)
        steps = dense_strides(out, 1)
        own = tuple(0 if i == axis else s for i, s in enumerate(steps))
        axes = axes_of((out[axis],), (steps[axis],))
        where = located(
            updates, own, broadcast_steps(indices, updates), dense_strides(updates, 1)
        )
        return updates, where, axes


class ScatterAdd(AddAt):
    """x with updates added to the slices that indices name."""

    def is_index(self, i: int) -> bool:
        return i == 1

    def updates(self, inputs: Any) -> DeviceArray:
        third: DeviceArray = inputs[2]
        return third

    def start(self, inputs: Any, sums: DeviceArray) -> None:
        size = sums.size
        self.get("widen")(*spread(size), (inputs[0].flat, sums.flat, np.int64(size)))

    def plan(self, node: KernelNode) -> tuple[Shape, Any, Any]:
        x, indices, updates = (i.shape for i in node.inputs)
        axis = node.attrs["axis"] % len(x)
        shape, steps, axes = along_others(x, (axis,), axis, [indices])
        return shape, located(shape, *steps, broadcast_steps(updates, shape)), axes


class Scatter(Indexed):
    """x with values put where an index says; of several for one place the last one stays."""

    more = PUT

    def is_index(self, i: int) -> bool:
        return i > 1

    def workspace(self) -> tuple[ArraySpec, ...]:
        return (ArraySpec(self.node.outputs[0].shape if self.named else (1,), uint64),)

    def prepare(self, node: KernelNode) -> None:
        if any(item == "tensor" for item in node.attrs["index"]):
            super().prepare(node)
        else:
            self.node, self.named = node, []

    def plan(self, node: KernelNode) -> tuple[Shape, Any, Any]:
        out, value = node.outputs[0].shape, node.inputs[1].shape
        indices = [i.shape for i in node.inputs[2:]]
        items = spelt_out(node.attrs["index"], len(out))
        view = DeviceArray(None, None, 0, out, from_letter("b"))
        basic = view.seen(lambda a: a[tuple(slice(None) if i == "tensor" else i for i in items)])
        kept = [i for i in items if not is_int(i)]
        named = [d for d, i in enumerate(kept) if i == "tensor"]
        advanced = [p for p, i in enumerate(items) if i == "tensor" or is_int(i)]
        together = advanced == list(range(advanced[0], advanced[-1] + 1))
        rest = [d for d in range(len(kept)) if d not in named]
        first = sum(not is_int(i) for i in items[: advanced[0]])
        at = first if together else 0
        block = np.broadcast_shapes(*indices)
        shapes, steps = basic.shape, basic.strides
        region = (
            *(shapes[d] for d in rest[:at]), *block, *(shapes[d] for d in rest[at:])
        )  # fmt: skip
        pad = (0,) * len(block)
        own = (*(steps[d] for d in rest[:at]), *pad, *(steps[d] for d in rest[at:]))
        lead, tail = (0,) * at, (0,) * (len(rest) - at)
        places = [(*lead, *broadcast_steps(i, block), *tail) for i in indices]
        where = located(region, own, *places, broadcast_steps(value, region))
        where["start"][0, 0] = basic.offset
        extents = tuple(shapes[d] for d in named)
        return region, where, axes_of(extents, tuple(steps[d] for d in named))

    def launch(self, inputs: Any, workspace: Any, outputs: Any, stream: object) -> None:
        x, value, *_ = inputs
        (owner,), (out,) = workspace, outputs
        move(x, out)
        if not self.named:
            place = self.node.attrs["index"]
            move(value, out.seen(lambda a: a[(*place, ...)] if ... not in place else a[place]))
        elif self.count:
            fill(owner, 0)
            indices = self.indices(inputs)
            rest = self.where, self.axes, np.int64(self.count)
            self.get("claim")(*spread(self.count), (*indices, owner.flat, *rest))
            arrays = (value.flat, *indices, owner.flat, out.flat)
            self.get("put")(*spread(self.count), (*arrays, *rest))


def is_int(item: Any) -> bool:
    """True for a position, which takes an axis away."""
    return isinstance(item, (int, np.integer)) and not isinstance(item, bool)


def spelt_out(index: tuple[Any, ...], ndim: int) -> list[Any]:
    """The index with one item for each axis, and None for new ones."""
    items = list(index)
    if ... not in items:
        items.append(...)
    at = items.index(...)
    used = sum(i is not None and i is not ... for i in items)
    return items[:at] + [slice(None)] * (ndim - used) + items[at + 1 :]


kernel("Gather", "cuda", *[f"{c}{i}->{c}" for c in ANY for i in NAMED])(Gather)
kernel("Index", "cuda", *[f"{c}{i}*->{c}" for c in ANY for i in NAMED])(Index)
kernel("TakeAlongAxis", "cuda", *[f"{c}{i}->{c}" for c in ANY for i in NAMED])(TakeAlong)
_NUMBERS = INT + FLOAT
kernel("IndexAdd", "cuda", *[f"{c}{i}*->{c}" for c in _NUMBERS for i in NAMED])(IndexAdd)
kernel("PutAlongAxisAdd", "cuda", *[f"{c}{i}->{c}" for c in _NUMBERS for i in NAMED])(PutAlongAdd)
kernel("ScatterAdd", "cuda", *[f"{c}{i}{c}->{c}" for c in _NUMBERS for i in NAMED])(ScatterAdd)
kernel("Scatter", "cuda", *[f"{c}{c}{i}*->{c}" for c in ANY for i in NAMED])(Scatter)
