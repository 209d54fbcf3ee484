"""ONNX's reductions, running sums and products, sorting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ... import ops
from ...core.abstract import as_dtype, bool_, int32, is_float
from ..operators import Constant, Ints, register_composition, register_operator, register_writer
from ..tensors import code_of, extent, ints, number

Reduction = Callable[[Any, Ints | None, bool], Any]


def _like(x: Any, out: Any) -> Any:
    return out if out.dtype == x.dtype else ops.cast(out, x.dtype)


def _empty(x: Any, axes: Ints | None, keep: bool, value: Any) -> Any:
    """The reduction of no elements: `value`, the end of the dtype's range."""
    shape = np.empty(x.shape, np.int8).sum(axes, keepdims=keep).shape
    return ops.full(shape, value, x.dtype)


def _extremum(function: Any, sign: int) -> Reduction:
    def reduction(x: Any, axes: Ints | None, keep: bool) -> Any:
        kind = as_dtype(x.dtype)
        if kind == bool_:
            return (ops.any if sign > 0 else ops.all)(x, axes, keep)
        if 0 in x.shape:
            ends = np.iinfo(kind) if kind.kind in "iu" else None
            low = ends.min if ends else float("-inf")
            high = ends.max if ends else float("inf")
            return _empty(x, axes, keep, low if sign > 0 else high)
        return function(x, axes, keep)

    return reduction


_REDUCTIONS: dict[str, Reduction] = {
    "ReduceSum": ops.sum,
    "ReduceMean": ops.mean,
    "ReduceProd": ops.prod,
    "ReduceMax": _extremum(ops.max, 1),
    "ReduceMin": _extremum(ops.min, -1),
    "ReduceL1": lambda x, a, k: ops.sum(ops.abs(x), a, k),
    "ReduceL2": lambda x, a, k: ops.norm(x, 2, a, k),
    "ReduceLogSum": lambda x, a, k: ops.log(ops.sum(x, a, k)),
    "ReduceLogSumExp": ops.logsumexp,
    "ReduceSumSquare": lambda x, a, k: ops.sum(ops.square(x), a, k),
}


def _register(type: str, function: Reduction) -> None:
    moved = 13 if type == "ReduceSum" else 18  # the version whose axes are an input

    @register_operator("", type, (1, moved - 1))
    def before(x: Any, *, axes: Ints | None = None, keepdims: int = 1) -> Any:
        return _like(x, function(x, axes, bool(keepdims)))

    @register_operator("", type, (moved, None))
    def now(
        x: Any, axes: Constant | None = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0
    ) -> Any:
        named = () if axes is None else ints(axes)
        if not named and noop_with_empty_axes:
            # No axis is reduced, but the elementwise part of the reduction, as of L1, is computed.
            return _like(x, function(ops.expand_dims(x, 0), (0,), False))
        return _like(x, function(x, named or None, bool(keepdims)))


for _type, _function in _REDUCTIONS.items():
    _register(_type, _function)


def _arg_extremum(x: Any, axis: int, keepdims: int, last: int, function: Any) -> Any:
    if not last:
        return function(x, axis, bool(keepdims))
    from_end = function(ops.flip(x, axis), axis, bool(keepdims))
    return ops.sub(extent(x, axis) - 1, from_end)


@register_operator("", "ArgMax", (1, None))
def argmax(x: Any, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Any:
    return _arg_extremum(x, axis, keepdims, select_last_index, ops.argmax)


@register_operator("", "ArgMin", (1, None))
def argmin(x: Any, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Any:
    return _arg_extremum(x, axis, keepdims, select_last_index, ops.argmin)


@register_operator("", "CumSum", (11, None))
def cumsum(x: Any, axis: Constant, *, exclusive: int = 0, reverse: int = 0) -> Any:
    return ops.cast(ops.cumsum(x, int(number(axis)), bool(reverse), bool(exclusive)), x.dtype)


@register_operator("", "CumProd", (26, None))
def cumprod(x: Any, axis: Constant, *, exclusive: int = 0, reverse: int = 0) -> Any:
    return ops.cast(ops.cumprod(x, int(number(axis)), bool(reverse), bool(exclusive)), x.dtype)


@register_operator("", "TopK", (1, 9))
def topk_attribute(x: Any, *, k: int, axis: int = -1) -> Any:
    return ops.topk(x, k, axis)


@register_operator("", "TopK", (10, None))
def topk(x: Any, k: Constant, *, axis: int = -1, largest: int = 1, sorted: int = 1) -> Any:
    return ops.topk(x, int(number(k)), axis, bool(largest))


@register_operator("", "Unique", (11, None))
def unique(x: Constant, *, axis: int | None = None, sorted: int = 1) -> Any:
    """Distinct elements, sorted or in the order of their first occurrence."""
    values, first, inverse, counts = np.unique(
        x, return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    order = np.arange(len(first)) if sorted else np.argsort(first, kind="stable")
    rank = np.argsort(order, kind="stable")
    values = np.take(values, order, axis or 0)
    return values, first[order], rank[inverse.reshape(-1)], counts[order]


# --- The way back ---------------------------------------------------------------------------------


def axes_of(node: Any, axis: Any) -> Any:
    """The axes of a reduction as an input; None for all."""
    return None if axis is None else np.array([axis] if isinstance(axis, int) else axis, np.int64)


def _reducing(type: str) -> Any:
    def write(emit: Any, node: Any, x: Any) -> Any:
        primitive, out = node.primitive, node.outputs[0].abstract.dtype
        if node.inputs[0].abstract.dtype != out:
            x = emit("Cast", x, to=code_of(out))
        if primitive.axis == ():
            return emit("Identity", x)
        return emit(type, x, axes_of(node, primitive.axis), keepdims=int(primitive.keepdims))

    return write


for _primitive, _type in {
    ops.Sum: "ReduceSum", ops.Mean: "ReduceMean", ops.Prod: "ReduceProd", ops.Max: "ReduceMax",
    ops.Min: "ReduceMin", ops.LogSumExp: "ReduceLogSumExp",
}.items():  # fmt: skip
    register_writer(_primitive)(_reducing(_type))


@register_writer(ops.All, ops.Any)
def write_truth(emit: Any, node: Any, x: Any) -> Any:
    """As the minimum or maximum of 0 and 1."""
    primitive, given = node.primitive, node.inputs[0].abstract.dtype
    if given != bool_:
        x = emit("Not", emit("Equal", x, np.zeros((), given)))
    if primitive.axis == ():
        return emit("Identity", x)
    type_ = "ReduceMin" if type(primitive) is ops.All else "ReduceMax"
    whole = emit("Cast", x, to=code_of(int32))
    out = emit(type_, whole, axes_of(node, primitive.axis), keepdims=int(primitive.keepdims))
    return emit("Cast", out, to=code_of(bool_))


@register_writer(ops.ArgMax, ops.ArgMin)
def write_arg(emit: Any, node: Any, x: Any) -> Any:
    primitive, rank = node.primitive, len(node.inputs[0].abstract.shape)
    type_ = type(primitive).__name__
    keep = int(primitive.keepdims)
    if node.inputs[0].abstract.dtype == bool_:
        x = emit("Cast", x, to=code_of(int32))
    if primitive.axis is not None:
        return emit(type_, x, axis=primitive.axis, keepdims=keep)
    found = emit(type_, emit("Reshape", x, np.array([-1], np.int64)), axis=0, keepdims=0)
    return emit("Reshape", found, np.array([1] * (rank * keep), np.int64))


@register_writer(ops.CumSum)
def write_cumsum(emit: Any, node: Any, x: Any) -> Any:
    primitive, out = node.primitive, node.outputs[0].abstract.dtype
    if node.inputs[0].abstract.dtype != out:
        x = emit("Cast", x, to=code_of(out))
    order = {"reverse": int(primitive.reverse), "exclusive": int(primitive.exclusive)}
    return emit("CumSum", x, np.array(primitive.axis, np.int64), **order)


@register_writer(ops.TopK)
def write_topk(emit: Any, node: Any, x: Any) -> Any:
    p = node.primitive
    k = np.array([p.k], np.int64)
    return emit.several(2, "TopK", x, k, axis=p.axis, largest=int(p.largest), sorted=1)


@register_writer(ops.Sort)
def write_sort(emit: Any, node: Any, x: Any) -> Any:
    p, shape = node.primitive, node.inputs[0].abstract.shape
    k = emit.extents(shape[p.axis])
    return emit.several(2, "TopK", x, k, axis=p.axis, largest=int(p.descending), sorted=1)


_STEPS = {
    ops.CumMax: ops.maximum, ops.CumMin: ops.minimum, ops.CumProd: ops.mul,
    ops.LogCumSumExp: ops.logaddexp,
}  # fmt: skip


@register_composition(*_STEPS)
def running_of(self: Any, x: Any) -> Any:
    """A scan along the axis; a product that leaves out its own element begins with 1, and the sum
    of exponentials, which nothing overflows, with 0."""
    if not x.shape[self.axis]:
        return ops.cast(x, self.infer_dtype(x.dtype))
    function = _STEPS[type(self)]
    rows = ops.moveaxis(x, self.axis, 0)
    order = {"reverse": getattr(self, "reverse", False)}
    if type(self) is ops.CumProd:
        rows = rows if is_float(rows.dtype) else ops.cast(rows, self.infer_dtype(x.dtype))
        first, own = ops.ones_like(rows[0]), not self.exclusive
    elif type(self) is ops.LogCumSumExp:
        first, own = ops.full(rows.shape[1:], -np.inf, rows.dtype), True
    else:
        first, own = rows[0], True

    def step(before: Any, row: Any) -> Any:
        after = function(before, row)
        return after, after if own else before

    ys, _ = ops.scan(step, first, rows, **order)
    return ops.moveaxis(ys, 0, self.axis)


@register_composition(ops.SearchSorted)
def search_sorted_of(self: Any, x: Any, values: Any) -> Any:
    """Counts by comparison of each value with its whole row."""
    before = ops.less if self.side == "left" else ops.less_equal
    if len(x.shape) > 1:
        x = ops.expand_dims(x, -2)
    return ops.sum(ops.cast(before(x, ops.expand_dims(values, -1)), np.int64), -1)
