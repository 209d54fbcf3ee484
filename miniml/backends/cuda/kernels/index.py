"""Indexing, adding at indices and putting: the reads and writes of each primitive."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....dtype import from_type_code, uint64
from ...expressions.types import accumulation
from ...kernel import KernelNode
from ...product import Shape, broadcast_steps, dense_strides
from ...registry import kernel
from ...signature import ArraySpec
from ...typecodes import ANY, FLOAT, INT
from ..array import DeviceArray
from ..move import fill, move
from ..text.layout import spread
from .indexed import ADD, PUT, TAKE, Indexed, Plan, along_others, around, axes_of

NAMED = "il"


class Take(Indexed):
    """Base of kernels that read at indices."""

    kernels = TAKE

    def launch(self, inputs: Any, workspace: Any, outputs: Any, stream: object) -> None:
        arrays = (self.bits(inputs[0]), *self.indices(inputs), self.bits(outputs[0]))
        args = (*arrays, self.where, self.axes, np.int64(self.count))
        self.get("take")(*spread(self.count), args)


class AddAt(Indexed):
    """Base of kernels that add at indices, in sums of a type that has atomics, rounded once."""

    kernels = ADD
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
        self.start(inputs, sums)
        if self.count:
            arrays = (self.updates(inputs).flat, *self.indices(inputs), sums.flat)
            args = (*arrays, self.where, self.axes, np.int64(self.count))
            self.get("add")(*spread(self.count), args)
        self.get("round_sums")(*spread(out.size), (sums.flat, out.flat, np.int64(out.size)))


class IndexKernel(Take):
    """The elements that several indices name together; the slices that one names, for Gather."""

    def plan(self, node: KernelNode) -> Plan:
        x, *indices = (i.shape for i in node.inputs)
        return along_others(node, x, indices)


class IndexAddKernel(AddAt):
    """The transpose of Index."""

    def plan(self, node: KernelNode) -> Plan:
        updates, *indices = (i.shape for i in node.inputs)
        plan = along_others(node, node.attrs["shape"], indices)
        return *plan, dense_strides(updates, 1)


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
    """The plan for one element of x for each index; `shape` is that of what is taken or put."""
    axis = node.attrs["axis"] % len(x)
    own = [0 if i == axis else s for i, s in enumerate(broadcast_steps(x, shape))]
    named = axes_of((x[axis],), (dense_strides(x, 1)[axis],))
    return shape, named, tuple(own), broadcast_steps(indices, shape)


class ScatterAddKernel(AddAt):
    """x with updates added to the slices that indices name."""

    def is_index(self, i: int) -> bool:
        return i == 1

    def updates(self, inputs: Any) -> DeviceArray:
        third: DeviceArray = inputs[2]
        return third

    def start(self, inputs: Any, sums: DeviceArray) -> None:
        size = sums.size
        self.get("widen")(*spread(size), (inputs[0].flat, sums.flat, np.int64(size)))

    def plan(self, node: KernelNode) -> Plan:
        x, indices, updates = (i.shape for i in node.inputs)
        shape, *rest = along_others(node, x, [indices])
        return shape, *rest, broadcast_steps(updates, shape)


class ScatterKernel(Indexed):
    """x with values put where an index says; if several are put at one element, the last one
    stays."""

    kernels = PUT

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
            fill(owner, 0)
            indices = self.indices(inputs)
            rest = self.where, self.axes, np.int64(self.count)
            self.get("claim")(*spread(self.count), (*indices, owner.flat, *rest))
            arrays = (self.bits(value), *indices, owner.flat, self.bits(out))
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


kernel("Gather", "cuda", *[f"{c}{i}->{c}" for c in ANY for i in NAMED])(IndexKernel)
kernel("Index", "cuda", *[f"{c}{i}*->{c}" for c in ANY for i in NAMED])(IndexKernel)
kernel("TakeAlongAxis", "cuda", *[f"{c}{i}->{c}" for c in ANY for i in NAMED])(TakeAlong)
_NUMBERS = INT + FLOAT
kernel("IndexAdd", "cuda", *[f"{c}{i}*->{c}" for c in _NUMBERS for i in NAMED])(IndexAddKernel)
kernel("PutAlongAxisAdd", "cuda", *[f"{c}{i}->{c}" for c in _NUMBERS for i in NAMED])(PutAlongAdd)
kernel("ScatterAdd", "cuda", *[f"{c}{i}{c}->{c}" for c in _NUMBERS for i in NAMED])(
    ScatterAddKernel
)
kernel("Scatter", "cuda", *[f"{c}{c}{i}*->{c}" for c in ANY for i in NAMED])(ScatterKernel)
