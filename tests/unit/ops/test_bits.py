"""Bits of integers: the operators of tensors, bools, promotion, and shifts out of range."""

import operator

import numpy as np
import pytest

import miniml as ml
from miniml import ops
from miniml.errors import DTypeError

INTEGERS = [np.dtype(c) for c in "bhilBHIL"]
PAIRS = {
    operator.and_: (ops.bitwise_and, np.bitwise_and),
    operator.or_: (ops.bitwise_or, np.bitwise_or),
    operator.xor: (ops.bitwise_xor, np.bitwise_xor),
    operator.lshift: (ops.left_shift, np.left_shift),
    operator.rshift: (ops.right_shift, np.right_shift),
}
SHIFTS = ops.left_shift, ops.right_shift


def drawn(dtype, seed=0):
    info = np.iinfo(dtype)
    rng = np.random.default_rng(seed)
    return rng.integers(info.min, info.max, (3, 40), dtype, endpoint=True)


@pytest.mark.parametrize("sign", PAIRS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_operators_are_numpys(sign, dtype):
    fn, reference = PAIRS[sign]
    x, y = drawn(dtype), drawn(dtype, 1)[0]
    if sign in (operator.lshift, operator.rshift):
        y %= np.array(8 * dtype.itemsize + 3).astype(dtype)  # some are too wide
    expected = reference(x, y)
    found = [
        fn(x, y), sign(ml.Tensor(x), y), sign(x, ml.Tensor(y)), reference(ml.Tensor(x), y),
        ml.jit(fn)(x, y), ml.vmap(fn, in_axes=(0, None))(x, y),
    ]  # fmt: skip
    for got in found:
        assert got.dtype == dtype
        np.testing.assert_array_equal(got.asnumpy(), expected)
    assert sign(ml.Tensor(x), 3).dtype == sign(3, ml.Tensor(x)).dtype == dtype
    np.testing.assert_array_equal(sign(3, ml.Tensor(y)).asnumpy(), reference(dtype.type(3), y))


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_not_is_numpys(dtype):
    x = drawn(dtype)
    for got in (
        ops.bitwise_not(x),
        ~ml.Tensor(x),
        np.invert(ml.Tensor(x)),
        ml.jit(lambda x: ~x)(x),
    ):
        assert got.dtype == dtype
        np.testing.assert_array_equal(got.asnumpy(), ~x)


def test_of_bools_they_are_the_logical_operators():
    x, y = np.array([True, True, False, False]), np.array([True, False, True, False])
    for sign in (operator.and_, operator.or_, operator.xor):
        for got in (sign(ml.Tensor(x), y), sign(x, ml.Tensor(y)), PAIRS[sign][0](x, y)):
            assert got.dtype == ml.bool_
            np.testing.assert_array_equal(got.asnumpy(), sign(x, y))
        assert sign(ml.Tensor(x), True).dtype == ml.bool_
        assert sign(ml.Tensor(x), 1).dtype == ml.int64
        assert sign(ml.Tensor(x), np.array([1, 2, 3, 4], np.int8)).dtype == ml.int8
    assert (~ml.Tensor(x)).tolist() == [False, False, True, True]
    assert "LogicalAnd" in str(ml.trace(lambda a, b: a & b, x, y))
    assert "BitwiseAnd" in str(ml.trace(lambda a, b: a & b, x.astype(int), y.astype(int)))


def test_shifts_that_leave_no_bit():
    by = np.array([-(2**63), -64, -1, 0, 63, 64, 2**40])
    x = np.array([[5], [-5]])
    for left, right in (SHIFTS, map(ml.jit, SHIFTS)):
        top = -(2**63)
        assert left(x, by).tolist() == [[0, 0, 0, 5, top, 0, 0], [0, 0, 0, -5, top, 0, 0]]
        assert right(x, by).tolist() == [[0, 0, 0, 5, 0, 0, 0], [-1, -1, -1, -5, -1, -1, -1]]
    narrow = ml.Tensor([100, -100], dtype=ml.int8)
    assert (narrow << 1).tolist() == [-56, 56]
    assert (narrow << np.array([1], np.int16)).tolist() == [200, -200]
    assert ops.left_shift(np.zeros((0, 2), int), 1).shape == (0, 2)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: ml.Tensor([1]) | 1.0, "BitwiseOr needs integer tensors; got float32"),
        (lambda: ml.Tensor([1.0]) ^ ml.Tensor([True]), "BitwiseXor needs integer tensors; got"),
        (lambda: ops.left_shift(1, 0.5), "LeftShift needs integer tensors; got float32; compare"),
        (lambda: ops.right_shift(True, [True]), "RightShift needs integer.*got bool; use"),
        (lambda: ml.Tensor([1]) & np.array([1], np.uint64), "no common integer dtype"),
        (lambda: ops.bitwise_and("a", 1), "ops got 'a' of type str for a tensor"),
    ],
)  # fmt: skip
def test_refusals_say_what_to_do(call, text):
    with pytest.raises(DTypeError, match=text):
        call()
