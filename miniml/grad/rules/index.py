"""Gradient rules of indexing: gather and scatter-add are each other's transposes."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from ... import ops
from ...core.abstract import float32
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


@rule(ops.IndexReduce)
def index_reduce_bprop(self: ops.IndexReduce, updates: Any, *rest: Any) -> tuple[Any, ...]:
    *indices, out, dout = rest
    slopes = _slopes(self, updates, tuple(indices), out)
    return slopes * index_by(dout, tuple(indices), self.axes, self.at), *(None for _ in indices)


def _slopes(self: ops.IndexReduce, updates: Any, indices: tuple[Any, ...], out: Any) -> Any:
    """The derivative of its element of the result with respect to each update."""
    if self.mode == "mul":
        return _others(self, updates, indices)
    chosen = ops.cast(ops.equal(updates, _taken(self, out, indices)), updates.dtype)
    wide = ops.cast(chosen, float32) if chosen.dtype.itemsize < 4 else chosen  # counts to 2^24
    counts = _taken(self, ops.IndexAdd(self.axes, self.at, self.shape)(wide, *indices), indices)
    return chosen * ops.cast(ops.reciprocal(counts), chosen.dtype)


def _taken(self: ops.IndexReduce, x: Any, indices: tuple[Any, ...]) -> Any:
    return index_by(x, indices, self.axes, self.at)


def _others(self: ops.IndexReduce, updates: Any, indices: tuple[Any, ...]) -> Any:
    """For each update the product of the others for its position. Never out / update: that fails
    where an update is 0.

    Updates are sorted by position; products of those before and of those behind each one, among
    equals, are found in log2(n) rounds that double their number: polynomials, whose own gradients
    are right at zeros too.
    """
    extents = tuple([self.shape[a] for a in self.axes])
    common = broadcast("IndexReduce indices", *(i.shape for i in indices))
    count, lead = prod(common), len(common)
    if not count:
        return updates
    place: Any = np.zeros((), np.int64)
    for named, extent in zip(indices, extents, strict=True):
        place = place * extent + ops.select(ops.less(named, 0), named + extent, named)
    place = ops.reshape(ops.broadcast_to(place, common), -1)
    order = ops.argsort(place)
    place = ops.gather(place, order)
    ahead = tuple(range(self.at, self.at + lead))
    apart = ops.moveaxis(updates, ahead, tuple(range(lead)))
    wide = ops.cast(apart, float32) if apart.dtype.itemsize < 4 else apart
    rows = ops.gather(ops.reshape(wide, (count, -1 if wide.size else 0)), order)
    before = _products_before(rows, place)
    behind = ops.flip(_products_before(ops.flip(rows, 0), ops.flip(place, 0)), 0)
    unsorted = ops.gather(before * behind, ops.argsort(order))
    back = ops.reshape(ops.cast(unsorted, updates.dtype), apart.shape)
    return ops.moveaxis(back, tuple(range(lead)), ahead)


def _products_before(rows: Any, place: Any) -> Any:
    """For each row the product of the rows in front of it that have the same place; sorted."""
    count, step = len(place), 1
    total = _shifted(rows, place, step)
    while step < count:
        total = total * _shifted(total, place, step)
        step *= 2
    return total


def _shifted(rows: Any, place: Any, step: int) -> Any:
    """For each row the one `step` rows in front of it, 1 where that has another place."""
    ones = ops.ones_like(rows[:step])
    same = ops.equal(place[step:], place[:-step])
    return ops.concat((ones, ops.where(ops.expand_dims(same, 1), rows[:-step], 1.0)), 0)


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


@batches(ops.IndexAdd, ops.IndexReduce)
def batch_index_add(self: Any, batched: Batched, updates: Any, *indices: Any) -> Any:
    axes, shape = tuple([a + 1 for a in self.axes]), (batched.size, *self.shape)
    same = {**self.attributes, "shape": shape}
    if not any(batched[1:]):
        of_all = self.with_attributes({**same, "axes": axes, "at": self.at + 1})
        return of_all(updates, *indices)
    named = _indices(batched, indices)
    placed = ops.moveaxis(updates if batched[0] else in_front(updates, batched.size), 0, self.at)
    examples = _examples(named, batched)
    return self.with_attributes({**same, "axes": (0, *axes)})(placed, examples, *named)


def _indices(batched: Batched, indices: Sequence[Any]) -> list[Any]:
    """Indices that broadcast to one shape for each example, so that they do for all."""
    return aligned(Batched(batched[len(batched) - len(indices) :], batched.mapped), indices)


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
    "Scatter writes between two index tensors; ops.where with a mask, or ops.scatter_add of the "
    "differences, is one call"
)


@batches(ops.Scatter)
def batch_scatter(self: ops.Scatter, batched: Batched, x: Any, value: Any, *indices: Any) -> Any:
    shape = x.shape[1:] if batched[0] else x.shape
    if any(batched[2:]):
        return _scattered_each(self, batched, shape, x, value, *indices)
    named = tuple([i.shape for i in indices])
    region = analyse("Scatter", self.index, shape).region(named)
    all_ = analyse("Scatter", (slice(None), *self.index), (batched.size, *shape)).region(named)
    if all_ != (batched.size, *region):  # the axis of the examples would not come first
        return looped(self, batched, (x, value, *indices), _SCATTERED)
    spread = padded(value, len(region)) if batched[1] else value
    target = x if batched[0] else in_front(x, batched.size)
    return ops.Scatter((slice(None), *self.index))(target, spread, *indices)


def _scattered_each(
    self: ops.Scatter, batched: Batched, shape: tuple[int, ...], x: Any, value: Any, *indices: Any
) -> Any:
    """Scatter with other indices for each example: one index more, of the example.

    The indices' common shape then comes first in the region, so that the axes of the values that
    belong to it move there.
    """
    each = [i.shape[1:] if f else i.shape for i, f in zip(indices, batched[2:], strict=True)]
    named = analyse("Scatter", self.index, shape)
    region, common = named.region(tuple(each)), broadcast("Scatter indices", *each)
    spread = padded(value, len(region)) if batched[1] else value
    spread = ops.broadcast_to(spread, (batched.size, *region))
    axes = range(1 + named.at, 1 + named.at + len(common))
    moved = ops.moveaxis(spread, tuple(axes), tuple(range(1, 1 + len(common))))
    whole = x if batched[0] else in_front(x, batched.size)
    rows = _indices(batched, indices)
    return ops.Scatter((TENSOR, *self.index))(whole, moved, _examples(rows, batched), *rows)


# --- Tangents -------------------------------------------------------------------------------------


@moves_along(ops.Index, ops.IndexAdd)
def jvp_index(self: Any, primals: Any, tangents: Any, out: Any) -> Any:
    return self(tangents[0], *primals[1:])


@moves_along(ops.IndexReduce)
def jvp_index_reduce(self: ops.IndexReduce, primals: Any, tangents: Any, out: Any) -> Any:
    """The sum of the slopes times the tangents of the updates for each position."""
    updates, *indices = primals
    moved = _slopes(self, updates, tuple(indices), out) * tangents[0]
    return ops.IndexAdd(self.axes, self.at, self.shape)(moved, *indices)


@moves_along(ops.Scatter)
def jvp_scatter(self: ops.Scatter, primals: Any, tangents: Any, out: Any) -> Any:
    return self(*map(moved_or_zeros, tangents[:2], primals[:2]), *primals[2:])
