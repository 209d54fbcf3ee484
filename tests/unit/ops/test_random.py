"""Random draws as functions of a seed: repeatable, equal in both modes, and of the right law."""

import sys
from threading import Thread

import numpy as np
import pytest

import miniml as ml
from miniml import ops
from miniml.backends.cpu import philox
from miniml.errors import AttributeRefusedError, DTypeError, ShapeError
from miniml.grad import grad, vjp
from miniml.ops.random import block_count
from miniml.random import Generator, default_generator


def offset():
    return int(default_generator.state.asnumpy()[1])


def draws(x):
    """One of each kind, with sizes that do not fill their blocks."""
    uniform, normal = ops.uniform((3,), -1.0, 1.0), ops.normal((2, 3), dtype="float64")
    return uniform, normal, ops.bernoulli((5,), 0.4), ops.dropout(x, 0.3)


def seeded(function, *args):
    ml.manual_seed(7)
    return [t.asnumpy() for _ in range(3) for t in function(*args)], offset()


def test_compiled_and_eager_give_equal_bits():
    x = ml.Tensor(np.ones((4, 3)))
    (eager, end), (compiled, other) = seeded(draws, x), seeded(ml.jit(draws), x)
    assert end == other == 3 * (1 + 3 + 2 + 6)
    for one, two in zip(eager, compiled, strict=True):
        assert one.tobytes() == two.tobytes()


def test_under_a_gradient_and_compiled_give_equal_bits():
    x = ml.Tensor(np.ones((40, 3)))

    def slope(x):
        return (
            grad(lambda x: ops.sum(ops.dropout(ops.dropout(x, 0.3) * ops.normal((3,)), 0.5)))(x),
        )

    (eager, end), (compiled, other) = seeded(slope, x), seeded(ml.jit(slope), x)
    assert end == other
    for one, two in zip(eager, compiled, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-12)
        assert 0 < np.count_nonzero(one) < one.size


def test_a_seed_starts_the_stream_again_and_calls_advance_it():
    ml.manual_seed(3)
    first, second = ops.uniform((4,)).tolist(), ops.uniform((4,)).tolist()
    ml.manual_seed(3)
    assert ops.uniform((4,)).tolist() == first
    assert ops.uniform((4,)).tolist() == second != first
    ml.manual_seed(4)
    assert ops.uniform((4,)).tolist() != first


@pytest.mark.parametrize("shape", [(), (0, 3), (1,), (4,), (5,), (7, 9)])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_blocks_reserved_are_blocks_used(shape, dtype, monkeypatch):
    used = []
    blocks = philox.blocks
    monkeypatch.setattr(philox, "blocks", lambda *args: used.append(args[2]) or blocks(*args))
    ops.uniform(shape, dtype=dtype)
    assert sum(used) == block_count(shape, np.dtype(dtype))
    ops.normal(shape, dtype=dtype)
    assert sum(used) == 2 * block_count(shape, np.dtype(dtype))
    ops.bernoulli(shape, dtype=dtype)
    assert sum(used) <= 3 * block_count(shape, np.dtype(dtype))


def test_dropout_keeps_the_mean_and_passes_its_own_mask():
    ml.manual_seed(0)
    x = np.ones(20_000)
    out, pull = vjp(lambda x: ops.dropout(x, 0.25), x)
    values = out.asnumpy()
    assert set(np.unique(values)) == {0.0, 1 / 0.75}
    assert abs(values.mean() - 1.0) < 0.02
    (slope,) = pull(np.ones(20_000))
    np.testing.assert_array_equal(slope.asnumpy(), values)


def test_dropout_at_its_ends():
    x = ml.Tensor([1.0, 2.0])
    before = offset()
    assert ops.dropout(x, 0.0) is x
    assert offset() == before
    assert ops.dropout(x, 1.0).tolist() == [0.0, 0.0]
    for p in (-0.1, 1.5, np.nan):
        with pytest.raises(AttributeRefusedError, match="probability is in"):
            ops.dropout(x, p)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_dropout_keeps_the_dtype(dtype):
    assert ops.dropout(ml.Tensor([1.0, 2.0], dtype), 0.5).dtype.name == dtype


def test_dropout_of_integers_is_float32():
    assert ops.dropout(np.array([1, 2]), 0.5).dtype == ml.float32


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: ops.uniform((2, -1)), ShapeError, "tuple of ints >= 0"),
        (lambda: ops.normal((2.5,)), ShapeError, r"got shape \(2.5,\)"),
        (lambda: ops.uniform((2,), dtype=int), DTypeError, "draws floats; got dtype int64"),
        (lambda: ops.uniform((2,), 1.0, 0.0), AttributeRefusedError, "low=1.0 and high=0.0"),
        (lambda: ops.bernoulli((2,), 2.0), AttributeRefusedError, "p=2.0"),
    ],
)
def test_refusals(call, error, says):
    with pytest.raises(error, match=says):
        call()


def test_a_draw_that_nothing_uses_leaves_the_others_as_they_are():
    def both(x):
        ops.normal((8,))
        return (ops.uniform((4,)) + x,)

    x = ml.Tensor(np.zeros(4, np.float32))
    (eager, end), (compiled, other) = seeded(both, x), seeded(ml.jit(both), x)
    assert end == other
    np.testing.assert_array_equal(eager, compiled)


def test_threads_draw_different_numbers():
    generator, drawn = Generator(5), []

    def draw():
        drawn.extend(int(generator.reserve(1).asnumpy()[1]) for _ in range(300))

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [Thread(target=draw) for _ in range(4)]
        [t.start() for t in threads]
        [t.join() for t in threads]
    finally:
        sys.setswitchinterval(interval)
    assert sorted(drawn) == list(range(1200))
