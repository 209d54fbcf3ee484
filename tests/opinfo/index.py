"""Rows of indexing: gather, take and put along axes, scatter, advanced indices."""

from itertools import product

import numpy as np

from miniml import ops
from miniml.errors import DTypeError, OutOfRangeError, ShapeError, ValueRefusedError
from miniml.testing import OpInfo, Refusal, Sample

from .draws import apart, numbers

X = np.ones((2, 3), np.float32)
I64 = np.array([0, 1])


def named(rng, shape, extent, dtype=np.int64):
    """Indices into an axis, from both ends, with repeats."""
    return np.asarray(rng.integers(-extent, extent, size=shape)).astype(dtype)


def gathers(rng, dtype):
    for x, indices, axis in (
        ((4,), (), 0), ((4,), (6,), 0), ((1,), (3,), -1), ((3, 5), (2, 4), 0), ((3, 5), (4,), 1),
        ((2, 3, 5), (4, 1), 1), ((2, 3, 5), (), -2), ((2, 3, 5), (0,), 1), ((0, 3), (2,), 1),
        ((70, 3), (40,), 0),
    ):  # fmt: skip
        for kind in (np.int64, np.int32):
            places = named(rng, indices, x[axis], kind)
            yield Sample((numbers(rng, x, dtype), places), {"axis": axis})


INDEXED = (
    ((3, 4), (0, 1), 0, ((5,), (5,))),
    ((3, 4), (0, 1), 0, ((), ())),
    ((3, 4), (1,), 0, ((2, 6),)),
    ((2, 3, 4), (0, 2), 0, ((2, 1), (3,))),
    ((2, 3, 4), (0, 2), 1, ((5,), ())),
    ((2, 3, 4), (1, 2), 1, ((2, 3), (3,))),
    ((2, 3, 4, 5), (1, 3), 2, ((2,), (2,))),
    ((2, 0, 4), (0, 2), 0, ((3,), (3,))),
    ((2, 3, 4), (0, 1), 0, ((0,), (0,))),
)


def indices_of(rng, x, axes, shapes):
    return tuple(named(rng, s, x[a]) for s, a in zip(shapes, axes))


def indexings(rng, dtype):
    for x, axes, at, shapes in INDEXED:
        inputs = (numbers(rng, x, dtype), *indices_of(rng, x, axes, shapes))
        yield Sample(inputs, {"axes": axes, "at": at})


def index(x, *indices, axes, at):
    """Element by element, over the common shape of the indices."""
    common = np.broadcast_shapes(*(i.shape for i in indices))
    rest = [n for a, n in enumerate(x.shape) if a not in axes]
    out = np.zeros((*common, *rest), x.dtype)
    for place in np.ndindex(*common):
        key = [slice(None)] * x.ndim
        for axis, i in zip(axes, indices):
            key[axis] = int(np.broadcast_to(i, common)[place])
        out[place] = x[tuple(key)]
    size = len(common)
    return np.moveaxis(out, range(size), range(at, at + size))


def index_additions(rng, dtype):
    for x, axes, at, shapes in INDEXED:
        indices = indices_of(rng, x, axes, shapes)
        shape = index(np.zeros(x), *indices, axes=axes, at=at).shape
        yield Sample((numbers(rng, shape, dtype), *indices), {"axes": axes, "at": at, "shape": x})


def index_add(updates, *indices, axes, at, shape):
    out = np.zeros(shape, updates.dtype)
    common = np.broadcast_shapes(*(i.shape for i in indices))
    rows = np.moveaxis(updates, range(at, at + len(common)), range(len(common)))
    for place in np.ndindex(*common):
        key = [slice(None)] * len(shape)
        for axis, i in zip(axes, indices):
            key[axis] = int(np.broadcast_to(i, common)[place])
        out[tuple(key)] += rows[place]
    return out


def index_reductions(rng, dtype):
    for x, axes, at, shapes in INDEXED:
        indices = indices_of(rng, x, axes, shapes)
        shape = index(np.zeros(x), *indices, axes=axes, at=at).shape
        # Extrema of nothing are infinite, which differences of float64 could not be taken of.
        for mode in ("mul",) if dtype == np.float64 else ("mul", "min", "max"):
            attrs = {"axes": axes, "at": at, "shape": x, "mode": mode}
            yield Sample((apart(rng, shape, dtype), *indices), attrs)
    every = np.append(named(rng, (6,), 4), range(4))
    runs = np.repeat([2, 0, 3, 1], (9, 4, 6, 1))
    for places, mode in product((every, runs), ("min", "max")):
        attrs = {"axes": (1,), "at": 1, "shape": (2, 4, 3), "mode": mode}
        yield Sample((apart(rng, (2, len(places), 3), dtype), places), attrs)


def index_reduce(updates, *indices, axes, at, shape, mode):
    kind = updates.dtype.kind
    low, high = (-np.inf, np.inf) if kind not in "iu" else tuple(
        getattr(np.iinfo(updates.dtype), end) for end in ("min", "max")
    )  # fmt: skip
    start, combine = {"mul": (1, np.multiply), "min": (high, np.minimum), "max": (low, np.maximum)}[
        mode
    ]
    out = np.full(shape, start, updates.dtype)
    common = np.broadcast_shapes(*(i.shape for i in indices))
    rows = np.moveaxis(updates, range(at, at + len(common)), range(len(common)))
    for place in np.ndindex(*common):
        key = [slice(None)] * len(shape)
        for axis, i in zip(axes, indices):
            key[axis] = int(np.broadcast_to(i, common)[place])
        out[tuple(key)] = combine(out[tuple(key)], rows[place])
    return out


ALONG = (
    ((4,), (6,), 0), ((1,), (3,), -1), ((2, 3, 5), (2, 4, 5), 1), ((2, 3, 5), (2, 3, 2), -1),
    ((3, 5), (1, 2), 1), ((1, 5), (3, 2), 1), ((3, 5), (3, 0), 1), ((0, 3), (0, 2), 1),
)  # fmt: skip


def takings(rng, dtype):
    for x, indices, axis in ALONG:
        for kind in (np.int64, np.int32):
            places = named(rng, indices, x[axis], kind)
            yield Sample((numbers(rng, x, dtype), places), {"axis": axis})


def puttings(rng, dtype):
    for updates, indices, axis, extent in (
        ((6,), (6,), 0, 4), ((2, 4, 5), (2, 4, 5), 1, 3), ((2, 4, 5), (1, 4, 1), 1, 3),
        ((3, 2), (3, 2), -1, 5), ((3, 0), (3, 0), 1, 2), ((0, 2), (0, 2), 1, 3),
    ):  # fmt: skip
        places = named(rng, indices, extent)
        yield Sample((numbers(rng, updates, dtype), places), {"axis": axis, "extent": extent})


def put_along_axis_add(updates, indices, axis, extent):
    axis %= updates.ndim
    out = np.zeros((*updates.shape[:axis], extent, *updates.shape[axis + 1 :]), updates.dtype)
    indices = np.broadcast_to(indices, updates.shape)
    for place in np.ndindex(*updates.shape):
        out[(*place[:axis], indices[place], *place[axis + 1 :])] += updates[place]
    return out


def scatter_additions(rng, dtype):
    for x, indices, updates, axis in (
        ((4,), (6,), (6,), 0), ((4,), (), (), 0), ((3, 5), (2, 4), (2, 4, 5), 0),
        ((3, 5), (4,), (3, 4), 1), ((2, 3, 5), (4,), (4, 5), -2), ((2, 3, 5), (4,), (), 1),
        ((3, 2), (0,), (0, 2), 0), ((0, 3), (2,), (0, 2), 1),
    ):  # fmt: skip
        inputs = numbers(rng, x, dtype), named(rng, indices, x[axis]), numbers(rng, updates, dtype)
        yield Sample(inputs, {"axis": axis})


def scatter_add(x, indices, updates, axis):
    out = np.moveaxis(x.copy(), axis, 0)
    shape = np.take(x, indices, axis).shape
    spread = np.broadcast_to(updates, shape)
    lead = axis % x.ndim
    rows = np.moveaxis(spread, range(lead, lead + indices.ndim), range(indices.ndim))
    for place in np.ndindex(*indices.shape):
        out[int(indices[place])] += rows[place]
    return np.moveaxis(out, 0, axis)


def scatters(rng, dtype):
    for x, place, value, shapes in (
        ((), (), (), ()),
        ((4,), (1,), (), ()),
        ((4,), (slice(None, None, -2),), (2,), ()),
        ((2, 3, 5), (..., slice(1, 4, 2)), (3, 2), ()),
        ((2, 3, 5), (None, 1, slice(None)), (3, 5), ()),
        ((0, 3), (slice(None), 1), (1,), ()),
        ((4,), ("tensor",), (6,), (((6,), 4),)),
        ((4,), ("tensor",), (), (((2, 3), 4),)),
        ((3, 5), ("tensor", "tensor"), (2, 3), (((2, 1), 3), ((3,), 5))),
        ((2, 3, 5), ("tensor", slice(1, 3), "tensor"), (6, 1), (((6,), 2), ((6,), 5))),
        ((2, 3, 5), (0, slice(None), "tensor"), (6, 3), (((6,), 5),)),
        ((2, 3, 5), (slice(None), "tensor"), (2, 6, 5), (((6,), 3),)),
        ((2, 3), ("tensor",), (0, 3), (((0,), 2),)),
    ):
        indices = (named(rng, s, n) for s, n in shapes)
        yield Sample(
            (numbers(rng, x, dtype), numbers(rng, value, dtype), *indices), {"index": place}
        )


def scatter(x, value, *indices, index):
    out, rest = np.array(x), iter(indices)
    out[tuple(next(rest) if item == "tensor" else item for item in index)] = value
    return out


def sparse(rng, dtype):
    for shape in ((), (0, 3), (6,), (2, 3, 5)):
        x = numbers(rng, shape, dtype)
        yield Sample(((x * (numbers(rng, shape, np.dtype(bool)))).astype(dtype),))


def places(x):
    """By looking at each element."""
    found = [place for place, v in np.ndenumerate(x) if v != 0]
    return np.array(found, int).reshape(len(found), np.ndim(x))


ROWS = (
    OpInfo(ops.NonZero, sparse, reference=places, nan="handled"),
    OpInfo(ops.Gather, gathers, reference=np.take,
           refused=(
               Refusal((X, np.array([0, 5])), "index 5 for axis 1 of extent 3.*-3 to 2",
                       {"axis": 1}, OutOfRangeError),
               Refusal((X, np.array([-3])), "index -3 for axis 0", {}, OutOfRangeError),
               Refusal((X[:0], I64), "it has no elements", {}, OutOfRangeError),
               Refusal((X, X), "int32 or int64 indices, all alike; got float32", {}, DTypeError),
               Refusal((X, I64), "axis 2 of a tensor of rank 2", {"axis": 2}, ShapeError),
           )),
    OpInfo(ops.Index, indexings, reference=index,
           refused=(
               Refusal((X, I64, np.array([3])), "index 3 for axis 1 of extent 3",
                       {"axes": (0, 1), "at": 0}, OutOfRangeError),
               Refusal((X, I64), "1 indices for axes", {"axes": (0, 1), "at": 0}, ShapeError),
               Refusal((X, I64, I64), "they are counted from 0 and ascend",
                       {"axes": (1, 0), "at": 0}, ShapeError),
               Refusal((X, I64), "1 axes are not indexed", {"axes": (1,), "at": 2}, ShapeError),
               Refusal((X, I64, np.arange(3)), "cannot broadcast shapes",
                       {"axes": (0, 1), "at": 0}, ShapeError),
           )),
    OpInfo(ops.IndexAdd, index_additions, reference=index_add,
           refused=(
               Refusal((X, I64), "updates of shape",
                       {"axes": (0,), "at": 0, "shape": (4, 4)}, ShapeError),
               Refusal((X, np.array([0, 4])), "index 4 for axis 0 of extent 4",
                       {"axes": (0,), "at": 0, "shape": (4, 3)}, OutOfRangeError),
               Refusal((X > 0, I64), "no meaning for bool",
                       {"axes": (0,), "at": 0, "shape": (4, 3)}, DTypeError),
           )),
    OpInfo(ops.IndexReduce, index_reductions, reference=index_reduce,
           refused=(
               Refusal((X, I64), "IndexReduce got updates of shape",
                       {"axes": (0,), "at": 0, "shape": (4, 4), "mode": "max"}, ShapeError),
               Refusal((X, np.array([0, 4])), "index 4 for axis 0 of extent 4",
                       {"axes": (0,), "at": 0, "shape": (4, 3), "mode": "min"}, OutOfRangeError),
               Refusal((X > 0, I64), "no meaning for bool",
                       {"axes": (0,), "at": 0, "shape": (4, 3), "mode": "mul"}, DTypeError),
               Refusal((X, I64), "mode='add'; expected one of 'mul', 'min', 'max'",
                       {"axes": (0,), "at": 0, "shape": (4, 3), "mode": "add"},
                       ValueRefusedError),
           )),
    OpInfo(ops.TakeAlongAxis, takings,
           reference=np.take_along_axis,
           refused=(
               Refusal((X, I64), "need equal ranks", {}, ShapeError),
               Refusal((X, I64[None] + 2), "index 3 for axis 1", {}, OutOfRangeError),
           )),
    OpInfo(ops.PutAlongAxisAdd, puttings, reference=put_along_axis_add,
           refused=(
               Refusal((X, I64), "must have that rank", {"axis": 1, "extent": 2}, ShapeError),
               Refusal((X, I64[:1, None]), "as long along axis 1", {"axis": 1, "extent": 2},
                       ShapeError),
               Refusal((X[:, :2], I64[None] + 2), "index 3 for axis 1 of extent 3",
                       {"axis": 1, "extent": 3}, OutOfRangeError),
           )),
    OpInfo(ops.ScatterAdd, scatter_additions, reference=scatter_add,
           refused=(
               Refusal((X, I64, np.ones((3, 3), np.float32)), "updates must broadcast", {},
                       ShapeError),
               Refusal((X, I64, np.ones(3)), "float64 values for a float32 tensor", {}, DTypeError),
               Refusal((X, I64 + 1, X), "index 2 for axis 0 of extent 2", {}, OutOfRangeError),
           )),
    OpInfo(ops.Scatter, scatters, reference=scatter, nan="handled",
           refused=(
               Refusal((X, np.ones(2, np.float32)), "value must broadcast", {"index": (0,)},
                       ShapeError),
               Refusal((X, X[0], np.array([7])), "index 7 is out of bounds",
                       {"index": ("tensor",)}, OutOfRangeError),
               Refusal((X, X[0]), "index 2 for axis 0 of extent 2", {"index": (2,)},
                       OutOfRangeError),
               Refusal((X, X[0], I64), "1 index tensors; its index .* has places for 0",
                       {"index": (0,)}, ShapeError),
               Refusal((X, X[0]), "3 indices for a tensor of shape", {"index": (0, 0, 0)},
                       ShapeError),
               Refusal((X, X[0]), "'...' 2 times", {"index": (..., ...)}, ShapeError),
           )),
)  # fmt: skip
