"""Gradient rules of indexing: gather and scatter-add are each other's transposes."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ... import ops
from ...core.bprop import Bprop, bprop_getters, rule
from ...ops.checks import broadcast, normal_axis
from ...ops.index import TENSOR, analyse, index_by


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
