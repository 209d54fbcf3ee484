"""Rows of comparisons, logic, kinds of floats and selection."""

import numpy as np

from miniml import ops
from miniml.dtype import ALL, is_float, type_code
from miniml.errors import DTypeError, ShapeError
from miniml.testing import OpInfo, Refusal, Sample

from .arithmetic import APART, PAIRS, UNCOMMON
from .draws import SHAPES, numbers

TRIPLES = (
    ((), (), ()), ((4,), (), (4,)), ((0, 3), (3,), ()), ((3, 1), (2, 3, 5), (5,)), ((), (1,), (4,)),
    ((2, 3, 5), (2, 3, 5), (2, 3, 5)),
)  # fmt: skip


def whole(rng, shape, dtype):
    """-1, 0 and 1 (0 and 1 without a sign), so that ties are frequent."""
    low = 0 if dtype.kind in "bu" else -1
    return np.asarray(rng.integers(low, 2, size=shape)).astype(dtype)


def pairs(rng, dtype):
    for x, y in PAIRS:
        yield Sample((whole(rng, x, dtype), whole(rng, y, dtype)))


def bools(rng, dtype):
    for shape in SHAPES:
        yield Sample((whole(rng, shape, dtype),))


def kinds(rng, dtype):
    """Numbers, and for floats the special ones."""
    for shape in SHAPES:
        yield Sample((numbers(rng, shape, dtype),))
    if is_float(dtype):
        yield Sample((np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-30], dtype),))


def selections(rng, dtype):
    for cond, x, y in TRIPLES:
        yield Sample(
            (
                np.asarray(rng.integers(0, 2, size=cond)).astype(bool),
                numbers(rng, x, dtype),
                numbers(rng, y, dtype),
            )
        )


def needs_bool(*inputs):
    return (Refusal(inputs, r"bool tensors; got float64.*x != 0", error=DTypeError),)


F = np.ones(3)

ROWS = (
    OpInfo(ops.Equal, pairs, reference=np.equal, refused=(APART, UNCOMMON)),
    OpInfo(ops.NotEqual, pairs, reference=np.not_equal, refused=(APART,)),
    OpInfo(ops.Less, pairs, reference=np.less, refused=(APART,)),
    OpInfo(ops.LessEqual, pairs, reference=np.less_equal, refused=(APART,)),
    OpInfo(ops.Greater, pairs, reference=np.greater, refused=(APART,)),
    OpInfo(ops.GreaterEqual, pairs, reference=np.greater_equal, refused=(APART,)),
    OpInfo(ops.LogicalAnd, pairs, reference=np.logical_and, refused=needs_bool(F, F)),
    OpInfo(ops.LogicalOr, pairs, reference=np.logical_or, refused=needs_bool(F, F)),
    OpInfo(ops.LogicalXor, pairs, reference=np.logical_xor, refused=needs_bool(F, F)),
    OpInfo(ops.LogicalNot, bools, reference=np.logical_not, refused=needs_bool(F)),
    OpInfo(ops.IsNan, kinds, reference=np.isnan),
    OpInfo(ops.IsInf, kinds, reference=np.isinf),
    OpInfo(ops.IsFinite, kinds, reference=np.isfinite),
    OpInfo(
        ops.Select,
        selections,
        reference=np.where,
        dtypes="".join(map(type_code, ALL)),
        refused=(
            Refusal((F, F, F), "bool condition; got float64", error=DTypeError),
            Refusal((F > 0, np.ones((2, 3)), np.ones(2)), "cannot broadcast", error=ShapeError),
        ),
    ),
)
