"""Rows of the shape operations."""

from __future__ import annotations

import numpy as np

from miniml import ops
from miniml.core.abstract import is_float
from miniml.errors import (
    ArityError,
    AttributeRefusedError,
    DTypeError,
    ShapeError,
    ValueRefusedError,
)
from miniml.testing import OpInfo, Refusal, Sample

from .draws import SHAPES, numbers


def shaped(*cases):
    """Samples from (shape, attributes)."""

    def samples(rng, dtype):
        for shape, attrs in cases:
            yield Sample((numbers(rng, shape, dtype),), attrs)

    return samples


def to_shape(*cases):
    """Samples from (shape, target)."""
    return shaped(*((shape, {"shape": target}) for shape, target in cases))


def along(*cases):
    """Samples from (shape, axis)."""
    return shaped(*((shape, {"axis": axis}) for shape, axis in cases))


def summed(x, shape):
    lead = x.ndim - len(shape)
    axes = tuple(i for i in range(lead, x.ndim) if shape[i - lead] == 1)
    return x.sum(axis=axes, keepdims=True).sum(axis=tuple(range(lead)))


def windows(x, axis, size, step=1):
    """Window by window."""
    taken = [np.take(x, range(i, i + size), axis) for i in range(0, x.shape[axis] - size + 1, step)]
    return np.stack([np.moveaxis(w, axis, -1) for w in taken], axis % x.ndim)


def refused(match, **attrs):
    return Refusal((np.ones((2, 3)),), match, attrs, ShapeError)


SHAPE_ROWS = (
    OpInfo(
        ops.Reshape,
        to_shape(
            ((), ()), ((), (1, 1)), ((0, 3), (3, -1)), ((0, 3), (0,)), ((1,), ()), ((4,), (-1,)),
            ((2, 3, 5), (5, 6)), ((2, 3, 5), (3, -1, 1)),
        ),
        np.reshape,
        refused=(
            refused("cannot arrange the 6 elements", shape=(4,)),
            refused("no extent fits -1 beside 4", shape=(4, -1)),
            refused("one of them may be -1", shape=(-1, -1)),
            refused("extents are >= 0", shape=(-2, 3)),
            Refusal((np.ones((0, 3)),), "no extent fits -1", {"shape": (0, -1)}),
        ),
    ),
    OpInfo(
        ops.Convert,
        shaped(
            *(((2, 3, 4, 5), {"format": f}) for f in ("NCHW", "NHWC", "CHWN", "NC16HW")),
            ((1, 17, 1, 2), {"format": "NC16HW"}),
        ),
        lambda x, format: x,
        refused=(
            Refusal(
                (np.ones((2, 3, 4, 5)),),
                "'N16CX' is unknown; the formats are NCHW, NHWC, CHWN, NC16HW",
                {"format": "N16CX"},
                AttributeRefusedError,
            ),
            refused(r"needs images \(N, C, H, W\); got x of shape \(2, 3\)", format="NHWC"),
        ),
    ),
    OpInfo(
        ops.Transpose,
        shaped(
            ((), {"axes": ()}), ((0, 3), {"axes": (1, 0)}), ((4,), {"axes": (-1,)}),
            ((2, 3, 5), {"axes": (2, 0, 1)}), ((2, 3, 5), {"axes": (0, -1, 1)}),
        ),
        np.transpose,
        refused=(
            refused("name each of its axes once", axes=(0,)),
            refused("names one axis twice", axes=(1, -1)),
            refused("axis 2 of a tensor of rank 2", axes=(0, 2)),
        ),
    ),
    OpInfo(
        ops.BroadcastTo,
        to_shape(
            ((), ()), ((), (3,)), ((1,), (0,)), ((1,), (4,)), ((3, 1), (2, 3, 5)),
            ((4,), (2, 4)), ((0, 3), (2, 0, 3)),
        ),
        np.broadcast_to,
        refused=(refused("cannot bring shape", shape=(2, 4)), refused("to", shape=(3,))),
    ),
    OpInfo(
        ops.SumTo,
        to_shape(
            ((), ()), ((3,), ()), ((0,), (1,)), ((4,), (1,)), ((4,), (4,)), ((2, 3, 5), (3, 1)),
            ((2, 3, 5), (5,)), ((2, 3, 5), (1, 3, 1)), ((2, 0, 3), (0, 3)), ((2, 3, 5), (2, 1, 5)),
        ),
        summed,
        refused=(
            refused("the target must broadcast", shape=(2,)),
            Refusal((np.ones(3, bool),), "bool", {"shape": ()}, DTypeError),
        ),
    ),
    OpInfo(
        ops.ExpandDims,
        along(((), 0), ((4,), -1), ((4,), 0), ((0, 3), 1), ((2, 3, 5), (0, -2)), ((4,), ())),
        np.expand_dims,
        refused=(refused("axis 3 of a result of rank 3", axis=3), refused("twice", axis=(0, -4))),
    ),
    OpInfo(
        ops.Squeeze,
        along(
            ((), None), ((1,), 0), ((1, 4), None), ((1, 4), 0), ((0, 1), -1),
            ((2, 1, 5, 1), (1, 3)), ((2, 1, 5, 1), -1), ((3,), None), ((3,), ()),
        ),
        np.squeeze,
        refused=(refused("extent is 3", axis=1), refused("axis -3 of a tensor", axis=-3)),
    ),
    OpInfo(
        ops.SlidingWindow,
        shaped(
            ((4,), {"axis": 0, "size": 2}), ((4,), {"axis": -1, "size": 4, "step": 3}),
            ((2, 7, 3), {"axis": 1, "size": 3, "step": 2}), ((2, 5), {"axis": 0, "size": 1}),
            ((0, 5), {"axis": 1, "size": 2}), ((7, 2), {"axis": 0, "size": 2, "step": 3}),
        ),
        windows,
        refused=(
            refused("size 4 for axis 1 of shape", axis=1, size=4),
            refused("axis 2 of a tensor of rank 2", axis=2, size=1),
            Refusal((np.ones(3),), "size=0; expected an int >= 1",
                    {"axis": 0, "size": 0}, ValueRefusedError),
            Refusal((np.ones(3),), "step=0; expected an int >= 1",
                    {"axis": 0, "size": 1, "step": 0}, ValueRefusedError),
        ),
    ),
    OpInfo(
        ops.Flip,
        along(*((shape, None) for shape in SHAPES), ((4,), -1), ((2, 3, 5), (0, -1)), ((4,), ())),
        np.flip,
        refused=(refused("axis 2 of a tensor of rank 2", axis=2), refused("twice", axis=(0, 0))),
    ),
)  # fmt: skip


# --- join -----------------------------------------------------------------------------------------
# Rows of putting together and taking apart.


def concat_samples(rng, dtype):
    for axis, *shapes in (
        (0, (1,)), (0, (2,), (4,), (1,)), (-1, (2, 3), (2, 1)), (1, (2, 3, 5), (2, 0, 5)),
        (0, (0, 3), (0, 3)),
    ):  # fmt: skip
        yield Sample(tuple(numbers(rng, s, dtype) for s in shapes), {"axis": axis})


def split_samples(rng, dtype):
    for shape, axis, sections in (
        ((6,), 0, 3), ((1,), -1, 1), ((2, 4, 5), 1, 2), ((2, 4, 5), -1, (1, 4)), ((0, 3), 0, 2),
        ((0, 3), 1, (1, 0, 2)), ((4,), 0, (4,)),
    ):  # fmt: skip
        yield Sample((numbers(rng, shape, dtype),), {"axis": axis, "sections": sections})


def split_by_numpy(x, axis, sections):
    cuts = sections if isinstance(sections, int) else np.cumsum(sections)[:-1]
    return np.split(x, cuts, axis)


# (shape, begin, end, strides) with each range inside the shape.
SLICES = (
    ((), (), (), ()), ((1,), (0,), (1,), (1,)), ((4,), (1,), (4,), (2,)),
    ((4,), (3,), (-1,), (-1,)), ((4,), (2,), (2,), (1,)), ((4,), (-1,), (-1,), (-1,)),
    ((0, 3), (0, 2), (0, -1), (1, -2)), ((2, 3, 5), (0, 1, 4), (2, 3, 0), (1, 1, -3)),
)  # fmt: skip


def slice_samples(rng, dtype):
    for shape, begin, end, strides in SLICES:
        attrs = {"begin": begin, "end": end, "strides": strides}
        yield Sample((numbers(rng, shape, dtype),), attrs)
        single = tuple(a for a, r in enumerate(zip(begin, end, strides)) if len(range(*r)) == 1)
        if single:
            yield Sample((numbers(rng, shape, dtype),), {**attrs, "dropped": single[:1]})
            yield Sample((numbers(rng, shape, dtype),), {**attrs, "dropped": single})


def slice_grad_samples(rng, dtype):
    for shape, begin, end, strides in SLICES:
        extents = tuple(len(range(*r)) for r in zip(begin, end, strides))
        attrs = {"shape": shape, "begin": begin, "end": end, "strides": strides}
        yield Sample((numbers(rng, extents, dtype),), attrs)


def chosen(begin, end, strides):
    return np.ix_(*(np.array(range(*r), dtype=int) for r in zip(begin, end, strides)))


def sliced(x, begin, end, strides, dropped=()):
    return x[chosen(begin, end, strides)].squeeze(dropped) if x.ndim else x


def placed(x, shape, begin, end, strides):
    out = np.zeros(shape, x.dtype)
    out[chosen(begin, end, strides) if shape else ()] = x
    return out


def pad_samples(rng, dtype):
    value = 1.5 if is_float(dtype) else 1
    for shape, padding in (
        ((), ()), ((1,), ((0, 2),)), ((4,), ((0, 0),)), ((0, 3), ((1, 1), (0, 2))),
        ((2, 3, 5), ((1, 0), (0, 0), (2, 3))),
    ):  # fmt: skip
        for number in (0, value):
            attrs = {"padding": padding, "value": number}
            yield Sample((numbers(rng, shape, dtype),), attrs)


def padded(x, padding, value):
    return np.pad(x, padding, constant_values=value) if x.ndim else x


def slicing(match, begin=(0,), end=(4,), strides=(1,), dropped=()):
    attrs = {"begin": begin, "end": end, "strides": strides, "dropped": dropped}
    return Refusal((np.ones(4),), match, attrs, ShapeError)


JOIN_ROWS = (
    OpInfo(
        ops.Concat,
        concat_samples,
        lambda *xs, axis: np.concatenate(xs, axis),
        refused=(
            Refusal((), "at least one", error=ArityError),
            Refusal((np.ones((2, 3)), np.ones((3, 3))), r"input 1 of shape \(3, 3\)", {"axis": 1}),
            Refusal((np.ones(2), np.ones((2, 1))), "input 1", error=ShapeError),
            Refusal((np.ones(()),), "a tensor of shape () has none".replace("()", r"\(\)")),
        ),
    ),
    OpInfo(
        ops.Split,
        split_samples,
        split_by_numpy,
        refused=(
            Refusal((np.ones(4),), "into 3 equal parts", {"axis": 0, "sections": 3}, ShapeError),
            Refusal((np.ones(4),), "into 0 equal parts", {"axis": 0, "sections": 0}, ShapeError),
            Refusal((np.ones(4),), "sum to 4", {"axis": 0, "sections": (1, 2)}, ShapeError),
            Refusal(
                (np.ones(4),), "at least 0 and sum", {"axis": 0, "sections": (5, -1)}, ShapeError
            ),
            Refusal((np.ones(4),), "axis 1", {"axis": 1, "sections": 2}, ShapeError),
        ),
    ),
    OpInfo(
        ops.Slice,
        slice_samples,
        sliced,
        nan="handled",  # what is left out is gone
        refused=(
            slicing("a stride is not 0", strides=(0,)),
            slicing("elements 0 to 4 of axis 0", end=(5,)),
            slicing("one entry per axis", begin=(0, 0)),
            slicing("cannot drop", end=(2,), dropped=(0,)),
            slicing("cannot drop", end=(1,), dropped=(1,)),
        ),
    ),
    OpInfo(
        ops.SliceGrad,
        slice_grad_samples,
        placed,
        refused=(
            Refusal(
                (np.ones(3),),
                r"slice of shape \(2,\)",
                {"shape": (4,), "begin": (0,), "end": (2,), "strides": (1,)},
                ShapeError,
            ),
        ),
    ),
    OpInfo(
        ops.Pad,
        pad_samples,
        padded,
        refused=(
            Refusal((np.ones(4),), "one pair", {"padding": ((1, 1), (1, 1))}, ShapeError),
            Refusal((np.ones(4),), "numbers >= 0", {"padding": ((-1, 0),)}, ShapeError),
            Refusal(
                (np.ones(4, np.int64),),
                "which int64 cannot hold",
                {"padding": ((1, 1),), "value": float("nan")},
                DTypeError,
            ),
        ),
    ),
)

ROWS = (*SHAPE_ROWS, *JOIN_ROWS)
