"""Gradient rules of indexing: gather and scatter-add are each other's transposes."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from ... import ops
from ...core.bprop import Bprop, bprop_getters, rule
from ...ops.checks import broadcast, normal_axis
from ...ops.index import TENSOR, analyse, index_by
from ..batching import Batched, aligned, batches, behind, in_front, looped, padded
from ..forward import moved_or_zeros, moves_along


@rule(ops.Gather)
def gather_bprop(self: ops.Gather, x: Any, indices: Any, out: Any, dout: Any) -> tuple[Any, None]:
    axis = normal_axis("Gather", self.axis, len(x.shape))
    return ops.IndexAdd((axis,), axis, x.shape)(dout, indices), None


@rule(ops.Index)
def index_bprop(self: ops.Index, x: Any, *rest: Any) -> tuple[Any, ...]:
    *indices, _, dout = rest
    dx = ops.IndexAdd(self.axes, self.at, x.shape)(dout, *indices)
    return dx, *(None for _ in indices)


@rule(ops.IndexAdd)
def index_add_bprop(self: ops.IndexAdd, updates: Any, *rest: Any) -> tuple[Any, ...]:
    *indices, _, dout = rest
    return index_by(dout, tuple(indices), self.axes, self.at), *(None for _ in indices)


@rule(ops.TakeAlongAxis)
def take_along_axis_bprop(
    self: ops.TakeAlongAxis, x: Any, indices: Any, out: Any, dout: Any
) -> tuple[Any, None]:
    extent = x.shape[normal_axis("TakeAlongAxis", self.axis, len(x.shape))]
    dx = ops.PutAlongAxisAdd(self.axis, extent)(dout, indices)
    return (dx if dx.shape == x.shape else ops.sum_to(dx, x.shape)), None


@bprop_getters.register(ops.PutAlongAxisAdd)
def get_bprop_put_along_axis_add(self: ops.PutAlongAxisAdd) -> Bprop:
    return lambda updates, indices, out, dout: (ops.TakeAlongAxis(self.axis)(dout, indices), None)


@rule(ops.ScatterAdd)
def scatter_add_bprop(
    self: ops.ScatterAdd, x: Any, indices: Any, updates: Any, out: Any, dout: Any
) -> tuple[Any, None, Any]:
    taken = ops.Gather(self.axis)(dout, indices)
    if taken.shape != updates.shape:
        taken = ops.sum_to(taken, updates.shape)
    return dout, None, taken


@rule(ops.Scatter)
def scatter_bprop(self: ops.Scatter, x: Any, value: Any, *rest: Any) -> tuple[Any, ...]:
    *indices, _, dout = rest
    dx = ops.Scatter(self.index)(dout, ops.zeros((), dout.dtype), *indices)
    tensors = iter(indices)
    index = tuple(next(tensors) if item == TENSOR else item for item in self.index)
    taken = ops.getitem(dout, index)
    if indices:
        stays = _stays(self.index, x.shape, tuple(indices), len(taken.shape))
        taken = ops.where(stays, taken, 0.0)
    dvalue = taken if taken.shape == value.shape else ops.sum_to(taken, value.shape)
    return dx, dvalue, *(None for _ in indices)


def _stays(items: Any, shape: tuple[int, ...], indices: tuple[Any, ...], ndim: int) -> Any:
    """True where the value at an index is the last one for its element, and so the one that stays.

    Found by scattering the indices' own positions: the one that is read back is the last. It has
    the indices' common shape, with axes of extent 1 behind it for a region of rank `ndim`.
    """
    named = analyse("Scatter", items, shape)
    extents = tuple(named.shape[a] for a in named.axes)
    common = broadcast("Scatter indices", *(i.shape for i in indices))
    positions = np.arange(prod(common)).reshape(common)
    slots = ops.Scatter((TENSOR,) * len(indices))(ops.zeros(extents, int), positions, *indices)
    stays = ops.equal(index_by(slots, indices, tuple(range(len(indices))), 0), positions)
    return ops.reshape(stays, common + (1,) * (ndim - named.at - len(common)))


# --- Batching -------------------------------------------------------------------------------------


@batches(ops.Gather)
def batch_gather(self: ops.Gather, batched: Batched, x: Any, indices: Any) -> Any:
    axis = self.axis % (len(x.shape) - batched[0])
    if not batched[1]:
        return ops.Gather(axis + 1)(x, indices)
    return batch_index(ops.Index((axis,), axis), batched, x, indices)


@batches(ops.Index)
def batch_index(self: ops.Index, batched: Batched, x: Any, *indices: Any) -> Any:
    axes = tuple([a + 1 for a in self.axes])
    if not any(batched[1:]):
        return ops.Index(axes, self.at + 1)(x, *indices)
    named = _indices(batched, indices)
    if batched[0]:
        found = ops.Index((0, *axes), self.at)(x, _examples(named, batched), *named)
    else:
        found = ops.Index(self.axes, self.at)(x, *named)
    return ops.moveaxis(found, self.at, 0)


@batches(ops.IndexAdd)
def batch_index_add(self: ops.IndexAdd, batched: Batched, updates: Any, *indices: Any) -> Any:
    axes, shape = tuple([a + 1 for a in self.axes]), (batched.size, *self.shape)
    if not any(batched[1:]):
        return ops.IndexAdd(axes, self.at + 1, shape)(updates, *indices)
    named = _indices(batched, indices)
    placed = ops.moveaxis(updates if batched[0] else in_front(updates, batched.size), 0, self.at)
    examples = _examples(named, batched)
    return ops.IndexAdd((0, *axes), self.at, shape)(placed, examples, *named)


def _indices(batched: Batched, indices: Sequence[Any]) -> list[Any]:
    """Indices that broadcast to one shape for each example, so that they do for all."""
    flags = batched[len(batched) - len(indices) :]
    return aligned(Batched(flags, batched.mapped), indices)


def _examples(named: Sequence[Any], batched: Batched) -> Any:
    """The numbers of the examples, along the first axis of the shape to which indices broadcast."""
    rank = max(len(i.shape) for i in named) - 1
    numbers = ops.arange(batched.size, dtype=named[0].dtype)
    return ops.reshape(numbers, (batched.size, *[1] * rank))


@batches(ops.TakeAlongAxis)
def batch_take_along_axis(self: Any, batched: Batched, x: Any, indices: Any) -> Any:
    given = _together(batched, x, indices)
    return ops.TakeAlongAxis(behind(self.axis, len(given[0].shape) - 1))(*given)


@batches(ops.PutAlongAxisAdd)
def batch_put_along_axis_add(self: Any, batched: Batched, updates: Any, indices: Any) -> Any:
    whole = updates if batched[0] else in_front(updates, batched.size)
    axis = behind(self.axis, len(whole.shape) - 1)
    return ops.PutAlongAxisAdd(axis, self.extent)(whole, _together(batched, whole, indices)[1])


def _together(batched: Batched, *values: Any) -> list[Any]:
    """Values of equal ranks for one example, those that all share with an axis of extent 1."""
    return [
        v if flag else ops.expand_dims(v, 0) for v, flag in zip(values, (*batched,), strict=True)
    ]


@batches(ops.ScatterAdd)
def batch_scatter_add(
    self: ops.ScatterAdd, batched: Batched, x: Any, indices: Any, updates: Any
) -> Any:
    shape = x.shape[1:] if batched[0] else x.shape
    named = indices.shape[1:] if batched[1] else indices.shape
    axis = self.axis % len(shape)
    places = (*shape[:axis], *named, *shape[axis + 1 :])
    whole = x if batched[0] else in_front(x, batched.size)
    spread = padded(updates, len(places)) if batched[2] else updates
    if not batched[1]:
        return ops.ScatterAdd(axis + 1)(whole, indices, spread)
    each = ops.broadcast_to(spread, (batched.size, *places))
    add = ops.IndexAdd((axis,), axis, shape)
    return whole + batch_index_add(add, Batched((True, True), batched.mapped), each, indices)


_SCATTERED = (
    "Scatter writes at indices that differ between examples, or between two index tensors; "
    "ops.where with a mask, or ops.scatter_add of the differences, is one call"
)


@batches(ops.Scatter)
def batch_scatter(self: ops.Scatter, batched: Batched, x: Any, value: Any, *indices: Any) -> Any:
    shape = x.shape[1:] if batched[0] else x.shape
    if any(batched[2:]):
        return looped(self, batched, (x, value, *indices), _SCATTERED)
    named = tuple([i.shape for i in indices])
    region = analyse("Scatter", self.index, shape).region(named)
    all_ = analyse("Scatter", (slice(None), *self.index), (batched.size, *shape)).region(named)
    if all_ != (batched.size, *region):  # the axis of the examples would not come first
        return looped(self, batched, (x, value, *indices), _SCATTERED)
    spread = padded(value, len(region)) if batched[1] else value
    target = x if batched[0] else in_front(x, batched.size)
    return ops.Scatter((slice(None), *self.index))(target, spread, *indices)


# --- Tangents -------------------------------------------------------------------------------------


@moves_along(ops.Index, ops.IndexAdd)
def jvp_index(self: Any, primals: Any, tangents: Any, out: Any) -> Any:
    return self(tangents[0], *primals[1:])


@moves_along(ops.Scatter)
def jvp_scatter(self: ops.Scatter, primals: Any, tangents: Any, out: Any) -> Any:
    return self(*map(moved_or_zeros, tangents[:2], primals[:2]), *primals[2:])
