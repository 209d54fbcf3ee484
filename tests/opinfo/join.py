"""Rows of putting together and taking apart."""

import numpy as np

from miniml import ops
from miniml.dtype import is_float
from miniml.errors import ArityError, DTypeError, ShapeError
from miniml.testing import OpInfo, Refusal, Sample

from .draws import numbers


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


ROWS = (
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
