"""Rows of the shape operations."""

import numpy as np

from miniml import ops
from miniml.errors import AttributeRefusedError, DTypeError, ShapeError
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


def refused(match, **attrs):
    return Refusal((np.ones((2, 3)),), match, attrs, ShapeError)


ROWS = (
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
        ops.Flip,
        along(*((shape, None) for shape in SHAPES), ((4,), -1), ((2, 3, 5), (0, -1)), ((4,), ())),
        np.flip,
        refused=(refused("axis 2 of a tensor of rank 2", axis=2), refused("twice", axis=(0, 0))),
    ),
)  # fmt: skip
