"""Random draws as functions of a seed: repeatable, equal in both modes, and of the right law."""

import itertools
import sys
from threading import Thread

import numpy as np
import pytest
from scipy import stats

import miniml as ml
from miniml import Generator, ops
from miniml.backends.cpu import random
from miniml.core.parameter import default_generator
from miniml.errors import (
    AttributeRefusedError,
    DTypeError,
    OutOfRangeError,
    ShapeError,
    ValueRefusedError,
)
from miniml.grad import grad, vjp
from miniml.ops.random import block_count


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
    used, numbers = [], random.numbers

    def noting(key, offset, size, made):
        used.append(-(-size // random.PER_BLOCK[made]))
        return numbers(key, offset, size, made)

    monkeypatch.setattr(random, "numbers", noting)
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
        with pytest.raises(ValueRefusedError, match=r"expected a .*number from 0 to 1"):
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
        (lambda: ops.uniform((2,), 1.0, 0.0), ValueRefusedError, "low=1.0 and high=0.0"),
        (lambda: ops.bernoulli((2,), 2.0), ValueRefusedError, "p=2.0"),
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


# Laws: each test has one seed; a right law fails with one in a thousand of all seeds.


def kolmogorov(sample, law):
    assert stats.kstest(sample.asnumpy().ravel().astype(float), law).pvalue > 1e-3


def test_floats_have_their_laws():
    g = Generator(12)
    kolmogorov(ops.uniform((4000,), -1.0, 3.0, generator=g), stats.uniform(-1, 4).cdf)
    kolmogorov(ops.normal((4000,), 1.0, 2.0, generator=g), stats.norm(1, 2).cdf)
    kolmogorov(ops.gumbel((4000,), 1.0, 2.0, generator=g), stats.gumbel_r(1, 2).cdf)
    for low, high in ((-2, 2), (-np.inf, -1), (0.5, np.inf), (6, 9), (-9, -6), (-0.25, 30)):
        drawn = ops.truncated_normal((2000,), low=low, high=high, dtype="float64", generator=g)
        assert low <= drawn.min().item() < drawn.max().item() <= high
        kolmogorov(drawn, stats.truncnorm(low, high).cdf)
    drawn = ops.truncated_normal((2000,), 3.0, 0.5, 2.0, 3.25, generator=g)
    kolmogorov(drawn, stats.truncnorm(-2, 0.5, 3, 0.5).cdf)


@pytest.mark.parametrize(
    ("low", "high", "dtype"),
    [
        (0, 6, "int64"),
        (-128, 128, "int8"),
        (2**63, 2**63 + 5, "uint64"),
        (-4, 5, int),
    ],
)
def test_whole_numbers_are_equally_likely(low, high, dtype):
    drawn = ops.randint((100, 64), low, high, dtype, Generator(12)).asnumpy().ravel()
    values, counts = np.unique(drawn, return_counts=True)
    assert [int(v) for v in values] == list(range(low, high))
    assert stats.chisquare(counts).pvalue > 1e-3


def test_the_widest_range_of_whole_numbers():
    drawn = ops.randint((50,), -5, 2**53 - 5, generator=Generator(1)).asnumpy()
    assert drawn.max() > 2**52 > drawn.min() >= -5
    assert {n % 2 for n in drawn.tolist()} == {0, 1}
    assert ops.randint((0, 2), 3, 4).shape == (0, 2)
    assert ops.randint((), 3, 4).item() == 3


def test_all_orders_are_equally_likely():
    g = Generator(12)
    orders = [tuple(ops.permutation(4, generator=g).tolist()) for _ in range(600)]
    found = [orders.count(order) for order in itertools.permutations(range(4))]
    assert stats.chisquare(found).pvalue > 1e-3


def test_permutation_keeps_what_it_shuffles(monkeypatch):
    x = np.arange(24.0).reshape(2, 3, 4)
    shuffled = ops.permutation(x, -1, Generator(1)).asnumpy()
    order = shuffled[0, 0].astype(int).tolist()
    assert sorted(order) == [0, 1, 2, 3] != order
    np.testing.assert_array_equal(shuffled, x[..., order])
    assert ops.permutation(0).shape == (0,)
    assert ops.permutation(np.zeros((0, 2))).shape == (0, 2)
    (slope,) = vjp(lambda x: ops.permutation(x, 2, Generator(1)) * np.arange(4.0), x)[1](x * 0 + 1)
    np.testing.assert_array_equal(slope.asnumpy()[1, 1][order], np.arange(4.0))
    ties = lambda *attributes, **skip: lambda state: ml.Tensor(np.full(5, 0.5))  # noqa: E731
    ties.name = "Uniform"
    monkeypatch.setattr("miniml.ops.random.Uniform", ties)
    assert ops.permutation(5).tolist() == [0, 1, 2, 3, 4]


def test_categories_have_their_probabilities():
    g, p = Generator(12), np.array([[0.1, 0.2, 0.7, 0.0], [0.25, 0.25, 0.25, 0.25]])
    with np.errstate(divide="ignore"):
        drawn = ops.categorical(np.log(p) + [[5.0], [-900.0]], 3000, g).asnumpy()
    assert drawn.shape == (3000, 2)
    assert drawn.dtype == np.int64
    for row, column in zip(p, drawn.T, strict=True):
        found = np.bincount(column, minlength=4)
        assert found[row == 0].sum() == 0
        assert stats.chisquare(found[row > 0], 3000 * row[row > 0]).pvalue > 1e-3
    assert ops.categorical(ml.Tensor([0.0, 50.0], dtype="float16"), generator=g).item() == 1
    assert ops.categorical(np.zeros((0, 3))).shape == (0,)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_logits_without_a_law_are_refused(bad):
    logits = np.array([[0.0, 1.0], [-np.inf, bad]])
    with pytest.raises(OutOfRangeError, match="categorical got a row of logits with a NaN"):
        ops.categorical(logits)
    with pytest.raises(OutOfRangeError, match="index 2"):
        ml.jit(ops.categorical)(logits)


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: ops.randint((2,), 3, 3), AttributeRefusedError, "low=3 and high=3; they are ints"),
        (lambda: ops.randint((2,), 0.5, 3), AttributeRefusedError, "low=0.5 .*they are ints"),
        (lambda: ops.randint((2,), 0, 2**60), AttributeRefusedError, "by at most"),
        (lambda: ops.randint((2,), 0, 300, "uint8"), DTypeError, "which uint8 cannot hold"),
        (lambda: ops.randint((2,), -1, 3, "uint8"), DTypeError, "which uint8 cannot hold"),
        (lambda: ops.randint((2,), 0, 3, "float32"), DTypeError, "draws integers; got .* float32"),
        (lambda: ops.permutation(-1), ShapeError, "got shape -1"),
        (lambda: ops.permutation(ml.Tensor(1.0)), ShapeError, "permutation got axis 0"),
        (lambda: ops.permutation(ml.Tensor([1.0]), 1), ShapeError, "permutation got axis 1"),
        (lambda: ops.categorical(1.0), ShapeError, r"logits of shape \(\)"),
        (lambda: ops.categorical(np.zeros((2, 0))), ShapeError, r"logits of shape \(2, 0\)"),
        (lambda: ops.gumbel((2,), scale=-1.0), ValueRefusedError, "scale=-1.0"),
        (lambda: ops.gumbel((2,), dtype=int), DTypeError, "draws floats"),
    ],
)
def test_refusals_of_the_others(call, error, says):
    with pytest.raises(error, match=says):
        call()


@pytest.mark.parametrize("draw", [ops.permutation, ops.categorical, ops.dropout])
def test_draws_are_made_on_the_device_of_what_they_draw_from(draw):
    x = ml.Tensor(np.ones((4, 3), np.float32))
    on_sim = draw(x.to("cuda-sim"), generator=ml.Generator(3))
    assert on_sim.device == "cuda-sim"
    np.testing.assert_array_equal(
        on_sim.asnumpy(), draw(x, generator=ml.Generator(3)).asnumpy(), strict=True
    )
