"""Rows of arithmetic, rounding, bounds and casts."""

import numpy as np

from miniml import ops
from miniml.dtype import ALL, INTEGERS, is_float
from miniml.errors import DTypeError, ShapeError
from miniml.testing import OpInfo, Refusal, Sample

from .draws import SHAPES, apart, numbers

# Pairs that broadcast: equal, with a missing axis, with an axis of extent 1 on either side.
PAIRS = (
    ((), ()), ((), (4,)), ((4,), (4,)), ((1,), (4,)), ((0, 3), (3,)), ((2, 3, 5), (3, 1)),
    ((2, 1, 5), (3, 5)),
)  # fmt: skip
BOOLS = np.ones(3, bool)


def unary(low=-2.0, high=2.0):
    """Samples of one tensor with numbers from [low, high), some of them near 0 if it is inside,
    where naive formulas cancel."""

    def samples(rng, dtype):
        for shape in SHAPES:
            yield Sample((numbers(rng, shape, dtype, low, high),))
        if low < 0 < high:
            yield Sample((numbers(rng, (4,), dtype, -1e-3, 1e-3),))

    return samples


def binary(low=-2.0, high=2.0, other=(-2.0, 2.0)):
    """Samples of two tensors, the second with numbers from `other`."""

    def samples(rng, dtype):
        for x, y in PAIRS:
            yield Sample((numbers(rng, x, dtype, low, high), numbers(rng, y, dtype, *other)))

    return samples


def off_zero(rng, shape, dtype):
    """Distinct floats of either sign that are odd multiples of 1/8; any numbers for integers."""
    return apart(rng, shape, dtype) if is_float(dtype) else numbers(rng, shape, dtype)


def unary_off_zero(rng, dtype):
    for shape in SHAPES:
        yield Sample((off_zero(rng, shape, dtype),))


def binary_off_zero(rng, dtype):
    for x, y in PAIRS:
        yield Sample((off_zero(rng, x, dtype), off_zero(rng, y, dtype)))


def without_ties(rng, dtype):
    """Pairs in which floats differ by at least 1/2."""
    for x, y in PAIRS:
        if is_float(dtype):
            right = apart(rng, y, dtype, 1.0) + dtype.type(0.5)
            yield Sample((apart(rng, x, dtype, 1.0), right.astype(dtype)))
        else:
            yield Sample((numbers(rng, x, dtype), numbers(rng, y, dtype)))


def fractions(rng, dtype):
    """Floats at least 0.2 away from whole numbers."""
    for shape in SHAPES:
        if is_float(dtype):
            x = rng.integers(-3, 3, shape) + rng.uniform(0.2, 0.8, shape)
            yield Sample((np.asarray(x).astype(dtype),))
        else:
            yield Sample((numbers(rng, shape, dtype),))


def halves(rng, dtype):
    """As `fractions`, and the halves, which Round takes to the even neighbour."""
    yield from fractions(rng, dtype)
    if is_float(dtype):
        yield Sample((np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 3.5], dtype),))


def divisions(rng, dtype):
    """Quotients at least 0.2 away from whole numbers, with all four pairs of signs."""
    for x, y in PAIRS:
        divisor = numbers(rng, y, dtype, 1.0, 2.0)
        if not is_float(dtype):
            yield Sample((numbers(rng, x, dtype, -3.0, 3.0), divisor))
            continue
        sign = rng.choice([-1, 1], size=y)
        shape = np.broadcast_shapes(x, y)
        quotient = rng.integers(-3, 3, shape) + rng.uniform(0.2, 0.8, shape)
        divisor = (divisor * sign).astype(dtype)
        yield Sample((np.asarray(quotient * divisor).astype(dtype), divisor))


def clips(rng, dtype):
    """Bounds of ints, of floats for floats, of one side or none; no float is near a bound."""
    low = 1 if dtype.kind == "u" else -1
    bounds = [{"min": low, "max": 2}, {"max": 1}, {"min": low}, {}]
    if is_float(dtype):
        bounds += [{"min": -0.5, "max": 0.75}, {"min": 1.0, "max": 0.5}]
    for shape, attrs in zip(SHAPES * 2, bounds * 2):
        yield Sample((off_zero(rng, shape, dtype),), attrs)


def casts(rng, dtype):
    for target in ALL:
        yield Sample((numbers(rng, (2, 3), dtype, *_held(dtype, target)),), {"dtype": target})
    for shape in SHAPES:
        yield Sample((numbers(rng, shape, dtype),), {"dtype": np.float32})
    for target in INTEGERS if is_float(dtype) else ():
        outside = np.array([np.nan, np.inf, -np.inf, 4e4, -4e4, 300.7, -300.7, -0.9])
        yield Sample((outside.astype(dtype),), {"dtype": target})


def cast(x, dtype):
    """Floats as the nearest integer of the dtype towards 0, NaN as 0."""
    if not (is_float(x.dtype) and dtype in INTEGERS):
        return x.astype(dtype)
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    whole = [0 if np.isnan(v) else int(min(max(v, low), high)) for v in x.ravel().tolist()]
    return np.array(whole, dtype).reshape(x.shape)


def _held(dtype, target):
    """What both dtypes can hold: no sign where one has none, so that nothing wraps."""
    return (0.0, 2.0) if "u" in (dtype.kind, target.kind) else (-2.0, 2.0)


def no_bool(*inputs):
    return (Refusal(inputs, "no meaning for bool.*logical operators", error=DTypeError),)


APART = Refusal(
    (np.ones((2, 3)), np.ones(2)), r"cannot broadcast shapes \(2, 3\) and \(2,\)", error=ShapeError
)


UNCOMMON = Refusal(
    (np.ones(2, np.uint64), np.ones(2, np.int64)), "no common integer dtype", error=DTypeError
)

ROWS = (
    OpInfo(ops.Cast, casts, reference=cast),
    OpInfo(ops.Add, binary(), reference=np.add, refused=(APART, UNCOMMON)),
    OpInfo(ops.Sub, binary(), reference=np.subtract, refused=(APART, *no_bool(BOOLS, BOOLS))),
    OpInfo(ops.Mul, binary(), reference=np.multiply, refused=(APART,)),
    OpInfo(ops.Div, binary(other=(0.5, 2.0)), reference=np.true_divide, refused=(APART,)),
    OpInfo(ops.FloorDiv, divisions, reference=np.floor_divide, refused=no_bool(BOOLS, BOOLS),
           nan="handled", domain="y != 0, x / y not whole"),
    OpInfo(ops.Mod, divisions, reference=np.remainder, refused=no_bool(BOOLS, BOOLS),
           nan="handled", domain="y != 0, x / y not whole"),
    OpInfo(ops.Maximum, without_ties, reference=np.maximum, domain="x != y", refused=(APART,)),
    OpInfo(ops.Minimum, without_ties, reference=np.minimum, domain="x != y", refused=(APART,)),
    OpInfo(ops.Neg, unary(), reference=np.negative, refused=no_bool(BOOLS)),
    OpInfo(ops.Abs, unary_off_zero, reference=np.absolute, domain="x != 0"),
    OpInfo(ops.Sign, unary_off_zero, reference=np.sign, refused=no_bool(BOOLS)),
    OpInfo(ops.Square, unary(), reference=np.square, refused=no_bool(BOOLS)),
    OpInfo(ops.Floor, fractions, reference=np.floor, domain="x not whole"),
    OpInfo(ops.Ceil, fractions, reference=np.ceil, domain="x not whole"),
    OpInfo(ops.Round, halves, reference=np.rint),
    OpInfo(ops.Trunc, fractions, reference=np.trunc, domain="x not whole"),
    OpInfo(ops.Clip, clips, reference=lambda x, min=None, max=None: np.clip(x, min, max),
           refused=(
               *no_bool(BOOLS),
               Refusal((np.arange(3),), "max=1.5 for int64", {"max": 1.5}, DTypeError),
               Refusal((np.ones(3, np.uint8),), "min=-1 for uint8", {"min": -1}, DTypeError),
               Refusal((np.ones(3),), "give a number", {"min": (0, 1)}, ShapeError),
           )),
    OpInfo(ops.Reciprocal, unary_off_zero, reference=lambda x: 1 / x, domain="x != 0"),
)  # fmt: skip
