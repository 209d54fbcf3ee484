"""Rows of the collectives, in the group of one: what several ranks compute, tests/unit/distributed
compares with NumPy."""

from __future__ import annotations

import numpy as np

from miniml import ops
from miniml.errors import AttributeRefusedError, DTypeError, ShapeError, ValueRefusedError
from miniml.testing import OpInfo, Refusal, Sample

from .draws import SHAPES, numbers


def samples(*attributes):
    def draw(rng, dtype):
        for shape in SHAPES:
            for attrs in attributes or ({},):
                yield Sample((numbers(rng, shape, dtype),), attrs)

    return draw


def rows(rng, dtype):
    for shape in SHAPES:
        if shape:
            yield Sample((numbers(rng, shape, dtype),))


def same(x, **_):
    return x


X = np.ones((2, 3))


def refused(match, error, x=X, **attrs):
    return Refusal((x,), match, attrs, error)


ROWS = (
    OpInfo(
        ops.AllReduce,
        samples({"op": "sum"}, {"op": "max"}),
        same,
        refused=(
            refused('got op="min"|op=.min.', ValueRefusedError, op="min"),
            refused("takes floats; got int64", DTypeError, np.arange(3), op="mean"),
            refused("takes real numbers; got complex64", DTypeError, np.ones(3, "F"), op="max"),
            refused("takes numbers; got bool", DTypeError, np.array([True])),
            refused("size=0", ValueRefusedError, size=0),
        ),
    ),
    OpInfo(
        ops.Reduce,
        samples(),
        same,
        refused=(
            refused("root=1 in a group of 1; ranks are 0 to 0", AttributeRefusedError, root=1),
            refused("takes numbers; got bool", DTypeError, np.array([True])),
        ),
    ),
    OpInfo(
        ops.Broadcast,
        samples(),
        same,
        refused=(refused("root=-1 in a group of 2", AttributeRefusedError, root=-1, size=2),),
    ),
    OpInfo(
        ops.AllGather,
        rows,
        same,
        refused=(refused(r"which x of shape \(\) lacks", ShapeError, np.ones(())),),
    ),
    OpInfo(
        ops.ReduceScatter,
        rows,
        same,
        refused=(
            refused("a block for each of 3 ranks", ShapeError, size=3),
            refused(r"got shape \(\)", ShapeError, np.ones(())),
            refused("takes numbers; got bool", DTypeError, np.array([True])),
        ),
    ),
    OpInfo(
        ops.AllToAll,
        rows,
        same,
        refused=(refused("a block for each of 3 ranks", ShapeError, size=3),),
    ),
    OpInfo(
        ops.SendRecv,
        samples({"pairs": ((0, 0),)}, {"pairs": ()}),
        lambda x, pairs, **_: x if pairs else np.zeros_like(x),
        nan="handled",  # where nobody sends, zeros arrive
        refused=(
            refused("pairs=1 in a group of 1", AttributeRefusedError, pairs=((0, 1),)),
            refused(r"declared pairs: tuple\[tuple", AttributeRefusedError, pairs=(0, 1)),
            refused("rank 1 receives twice", AttributeRefusedError, pairs=((0, 1), (1, 1)), size=2),
        ),
    ),
)
