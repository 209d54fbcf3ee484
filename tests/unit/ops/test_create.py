"""Tensors made from numbers, where a row of samples cannot say it."""

import numpy as np
import pytest

import miniml as ml
from miniml import jit, ops
from miniml.errors import AttributeRefusedError, DTypeError, ShapeError, ValueRefusedError
from miniml.grad import grad

NAN, INF = np.nan, np.inf


def listed(tensor):
    return tensor.tolist(), tensor.dtype


def test_full_takes_the_dtype_of_the_number():
    assert listed(ops.full(2, 1)) == ([1, 1], ml.int64)
    assert listed(ops.full((2,), 1.5)) == ([1.5, 1.5], ml.float32)
    assert listed(ops.full([1, 1], True)) == ([[True]], ml.bool_)
    assert listed(ops.full((), np.float64(2))) == (2.0, ml.float64)
    assert listed(ops.full((1,), np.int8(2))) == ([2], ml.int8)
    assert listed(ops.full((1,), 2.0, int)) == ([2], ml.int64)
    assert listed(ops.zeros(2)) == ([0, 0], ml.float32)
    assert listed(ops.ones((1, 2), "bfloat16")) == ([[1, 1]], ml.bfloat16)
    assert ops.zeros((0, 3)).shape == (0, 3)


def test_equal_numbers_make_equal_primitives():
    graph = ml.trace(
        lambda x: x + ops.full((2,), 0, ml.float32) + ops.full((2,), 0.0), np.ones(2, "f")
    )
    assert len({n.primitive for n in graph.nodes if n.primitive.name == "Full"}) <= 1


@pytest.mark.parametrize(
    ("value", "dtype"),
    [(NAN, int), (INF, int), (-INF, bool), (2.5, int), (300, "int8"), (-1, "uint8"), (2, bool)],
)
def test_full_refuses_what_the_dtype_cannot_hold(value, dtype):
    name = ml.dtype.as_dtype(dtype).name
    with pytest.raises(DTypeError, match=f"Full got the number {value}, which {name} cannot hold"):
        ops.full((2,), value, dtype)


def test_full_of_a_tensor_carries_its_gradient():
    assert grad(lambda v: ops.sum(ops.full((2, 3), v)))(2.0).item() == 6
    assert listed(ops.full((2,), ml.Tensor(3), float)) == ([3, 3], ml.float32)


def test_refused_shapes():
    with pytest.raises(ShapeError, match=r"Full got shape \(2, -1\); an extent is 0 or more"):
        ops.zeros((2, -1))
    with pytest.raises(ShapeError, match="a shape is a tuple of ints"):
        ops.zeros("ab")
    with pytest.raises(ShapeError, match="Eye got shape"):
        ops.eye(-1)


def test_likes():
    x = np.ones((2, 1), np.float16)
    assert listed(ops.zeros_like(x)) == ([[0], [0]], ml.float16)
    assert listed(ops.ones_like([1, 2])) == ([1, 1], ml.int64)
    assert listed(ops.full_like(True, False)) == (False, ml.bool_)
    assert listed(ops.zeros_like(x, int)) == ([[0], [0]], ml.int64)
    assert listed(ops.ones_like([])) == ([], ml.float32)
    assert grad(lambda v: ops.sum(v * ops.full_like(v, 3)))(np.ones(2)).tolist() == [3, 3]


@pytest.mark.parametrize(
    "given",
    [(5,), (2, 5), (0, 10, 3), (5, 0, -2), (3, 3), (0, 1, 0.25), (2.5,), (1, 0, 0.5), (-1.5, 2)],
)
def test_arange_is_numpys(given):
    came, expected = ops.arange(*given), np.arange(*given)
    np.testing.assert_array_equal(came.asnumpy(), expected)
    assert came.dtype == (ml.int64 if expected.dtype.kind == "i" else ml.float32)


def test_arange_dtypes_and_refusals():
    assert listed(ops.arange(3, dtype="uint8")) == ([0, 1, 2], ml.uint8)
    assert listed(ops.arange(0, 256, 255, "uint8")) == ([0, 255], ml.uint8)
    assert listed(ops.arange(3, dtype=ml.bfloat16)) == ([0, 1, 2], ml.bfloat16)
    assert listed(ops.arange(2**53, 2**53 + 2)) == ([2**53, 2**53 + 1], ml.int64)
    assert listed(ops.arange(2, -1, -1, "uint8")) == ([2, 1, 0], ml.uint8)
    assert ops.arange(0, 1, 0.1, ml.float64).tolist() == np.arange(0, 1, 0.1).tolist()
    with pytest.raises(DTypeError, match=r"300|299"):
        ops.arange(300, dtype="int8")
    with pytest.raises(ShapeError, match="the step not 0"):
        ops.arange(0, 3, 0)
    with pytest.raises(DTypeError, match="cannot count in bool"):
        ops.arange(2, dtype=bool)


@pytest.mark.parametrize("num", [0, 1, 2, 3, 7, 50, 101])
@pytest.mark.parametrize(("start", "stop"), [(0, 1), (-1.5, 2.5), (3, -3), (2, 2)])
def test_linspace_is_numpys(start, stop, num):
    came = ops.linspace(start, stop, num)
    np.testing.assert_allclose(came.asnumpy(), np.linspace(start, stop, num), 1e-6, 1e-7)
    assert came.dtype == ml.float32
    if num > 1:
        assert came.tolist()[-1] == stop


@pytest.mark.parametrize(
    ("start", "stop", "num"),
    [(1.0, 1.0 + 1e-15, 50), (0.0, 1e300, 7), (1e-3, 5e-324, 4), (2, 7, 1), (0.1, 0.7, 13)],
)
def test_linspace_has_its_length_and_its_ends_whatever_the_step(start, stop, num):
    got = ops.linspace(start, stop, num, "float64").asnumpy()
    np.testing.assert_array_equal(got, np.linspace(start, stop, num))


def test_linspace_from_end_to_end_of_the_range():
    got = ops.linspace(-1.5e308, 1.5e308, 5, "float64").tolist()
    assert got == [-1.5e308, -0.75e308, 0.0, 0.75e308, 1.5e308]
    top = np.finfo(np.float64).max
    assert ops.linspace(top, -top, 3, "float64").tolist() == [top, 0.0, -top]


def test_linspace_of_integers_is_exact_and_refuses_in_its_own_name():
    assert listed(ops.linspace(2**53, 2**53 + 2, 3, int)) == (
        [2**53 + i for i in range(3)],
        ml.int64,
    )
    assert listed(ops.linspace(2**64 - 1, 2**64 - 3, 3, "uint64"))[0] == [
        2**64 - i for i in (1, 2, 3)
    ]
    assert listed(ops.linspace(0, 10, 11, int))[0] == list(range(11))
    with pytest.raises(DTypeError, match="Linspace got 50 numbers from 0 to 1, which are not all"):
        ops.linspace(0, 1, dtype=int)
    with pytest.raises(ShapeError, match=r"Linspace got shape"):
        ops.linspace(0, 1, -1)
    with pytest.raises(AttributeRefusedError, match=r"num=5\.0; it is declared num: int"):
        ops.linspace(0, 1, 5.0)
    assert listed(ops.arange(2**63, 2**63 + 2, dtype="uint64"))[0] == [2**63, 2**63 + 1]


def test_eye():
    for n, m in ((3, None), (2, 4), (4, 2), (0, 2), (1, 1)):
        np.testing.assert_array_equal(ops.eye(n, m).asnumpy(), np.eye(n, m))
    assert ops.eye(2, dtype=bool).dtype == ml.bool_


@pytest.mark.parametrize("depth", [0, 1, 3, 40, 300])
@pytest.mark.parametrize("dtype", [ml.float32, ml.bfloat16, ml.int8, ml.bool_])
def test_one_hot(depth, dtype):
    for kind in (np.int64, np.int32, np.int8, np.uint8, np.uint64):
        indices = np.array([[0, depth - 1], [depth, -1]]).astype(kind)
        for out in (ops.one_hot(indices, depth, dtype), jit(ops.one_hot)(indices, depth, dtype)):
            expected = indices[..., None].astype(object) == np.arange(depth)
            np.testing.assert_array_equal(out.asnumpy().astype(float), expected.astype(float))
            assert (out.dtype, out.shape) == (dtype, (2, 2, depth))


def test_one_hot_refuses_floats_and_negative_depths():
    with pytest.raises(DTypeError, match=r"one_hot needs integer indices; got .*float32"):
        ops.one_hot(np.ones(1, np.float32), 3)
    with pytest.raises(ValueRefusedError, match="one_hot got depth=-1"):
        ops.one_hot([1], -1)
    assert ops.one_hot(1, 2).tolist() == [0, 1]
    assert ops.one_hot([], 2).shape == (0, 2)
