"""Philox against the published vectors, its recipe word by word, and statistics of the draws."""

import ml_dtypes
import numpy as np
import pytest
from scipy import stats

from miniml import ArraySpec
from miniml.backends.cpu import random
from miniml.backends.kernel import KernelNode
from miniml.ops.random import block_count
from tests.opinfo import random as rows

STATE = np.array([0x0123456789ABCDEF, 1000], np.uint64)
KERNELS = {
    "uniform": (random.Uniform, {"low": -1.0, "high": 3.0}),
    "normal": (random.Normal, {"mean": 2.0, "std": 0.5}),
    "bernoulli": (random.Bernoulli, {"p": 0.3}),
}
FLOATS = [np.float16, ml_dtypes.bfloat16, np.float32, np.float64]


def draw(name, shape, dtype=np.float32, skip=0, state=STATE, **attrs):
    kind, usual = KERNELS[name]
    out = np.full(shape, 77, dtype)
    specs = (ArraySpec((2,), state.dtype),), (ArraySpec(shape, out.dtype),)
    kernel = kind()
    kernel.prepare(KernelNode(name, *specs, usual | attrs | {"skip": skip}))
    kernel.call(state, out=out)
    return out


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        ("00000000 00000000 00000000 00000000", "00000000 00000000",
         "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff",
         "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0",
         "d16cfe09 94fdcceb 5001e420 24126ea1"),
    ],
    ids=["zeros", "ones", "pi"],
)  # fmt: skip
def test_known_answers(counter, key, words):
    """The vectors that Random123 publishes for philox4x32-10."""
    counter, key, words = (
        np.array([int(word, 16) for word in text.split()], np.uint32)
        for text in (counter, key, words)
    )
    np.testing.assert_array_equal(encrypted(np.stack([counter] * 3), key), [words] * 3)


def encrypted(counters, key):
    wide = counters.astype(np.uint64).T
    return random.rounds(wide[0::2].copy(), wide[1::2].copy(), key.astype(np.uint64))


def blocks(key, offset, count):
    return random.numbers(key, offset, 4 * count).reshape(-1, 4)


@pytest.mark.parametrize(
    "counters",
    [[], [7], [3, 4, 5], [4, 9, 20], [2, 900, 1025], [0, 2, 0, 2], [1, 3, 3], [2**64 - 1, 0]],
)
def test_numbers_made_ahead_are_those_of_the_counters(counters):
    low = np.array(counters, np.uint64)
    for made in (random.as_words, random.inner64):
        for high in (0, 1, 0, 5):
            got = random.made_of(made, 5, low, high)
            each = [made(random.blocks_at(5, low[i : i + 1], high)) for i in range(len(low))]
            np.testing.assert_array_equal(got, np.concatenate([got[:0], *each]))
            assert len(got) == len(low)


def test_blocks_place_key_and_offset():
    key, offset = 0xFEDCBA9876543210, 2**33 + 5
    got = blocks(key, offset, 3)
    for i in range(3):
        counter = np.array([[5 + i, 2, 0, 0]], np.uint32)
        expected = encrypted(counter, np.array([0x76543210, 0xFEDCBA98], np.uint32))
        np.testing.assert_array_equal(got[i : i + 1], expected)
    assert got.dtype == np.uint32
    assert blocks(key, offset, 0).shape == (0, 4)


def test_blocks_carry_and_wrap():
    near = blocks(7, 2**32 - 2, 4)
    np.testing.assert_array_equal(near[2:], blocks(7, 2**32, 2))
    around = blocks(7, 2**64 - 1, 2)
    np.testing.assert_array_equal(around[1:], blocks(7, 0, 1))
    state = np.array([7, 2**64 - 1], np.uint64)
    np.testing.assert_array_equal(
        draw("uniform", (4,), skip=1, state=state),
        draw("uniform", (4,), state=np.array([7, 0], np.uint64)),
    )


@pytest.mark.parametrize(
    ("shape", "dtype", "count"),
    [((), "f", 1), ((4,), "f", 1), ((5,), "e", 2), ((2, 3), "?", 2), ((2, 3), "l", 2),
     ((0, 3), "f", 0), ((), "d", 1), ((2,), "d", 1), ((3,), "d", 2), ((5,), "E", 2)],
)  # fmt: skip
def test_block_count(shape, dtype, count):
    dtype = np.dtype(ml_dtypes.bfloat16 if dtype == "E" else dtype)
    assert block_count(shape, dtype) == count


@pytest.mark.parametrize(("name", "dtype"), [
    ("uniform", np.float32), ("uniform", np.float64), ("bernoulli", np.bool_),
])  # fmt: skip
def test_draws_are_those_of_the_recipe_bit_for_bit(name, dtype):
    dtype, attrs = np.dtype(dtype), KERNELS[name][1]
    expected = getattr(rows, name)(STATE, shape=(11,), dtype=dtype, **attrs)
    np.testing.assert_array_equal(draw(name, (11,), dtype), expected)


def test_normals_are_those_of_the_recipe():
    expected = rows.normal(STATE, shape=(3,), dtype=np.dtype(np.float64))
    got = draw("normal", (3,), np.float64, mean=0.0, std=1.0)
    np.testing.assert_allclose(got, expected, rtol=1e-13)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("ahead", [0, 512, random.AHEAD])
def test_small_draws_after_each_other_are_parts_of_a_large_one(name, dtype, ahead, monkeypatch):
    """However many numbers are made ahead of them, with draws of others in between, and behind the
    end of the offsets."""
    monkeypatch.setattr(random, "AHEAD", ahead)
    per_block = 2 if dtype == np.float64 and name != "bernoulli" else 4
    for start in (0, 2**64 - 130):
        state = np.array([9, start], np.uint64)
        large = draw(name, (per_block * 400,), dtype, state=state)
        for first, count in [(i, 1 + i % 20) for i in range(0, 380, 7)] + [(3, 5), (390, 10)]:
            at = np.array([9, (start + first) % 2**64], np.uint64)
            part = draw(name, (per_block * count - 1,), dtype, state=at)
            kept = large[per_block * first : per_block * (first + count) - 1]
            np.testing.assert_array_equal(part, kept)
            draw("bernoulli", (64,), state=at)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("chunk", [3, random.CHUNK])
def test_draws_repeat_and_skip(name, dtype, chunk, monkeypatch):
    """draw(skip=k) is the tail of a longer draw, however the work is cut into pieces."""
    long = draw(name, (103,), dtype)
    monkeypatch.setattr(random, "CHUNK", chunk)
    np.testing.assert_array_equal(draw(name, (103,), dtype), long)
    per_block = 2 if dtype == np.float64 and name != "bernoulli" else 4
    for skip in (1, 7, 20):
        tail = long[skip * per_block :]
        np.testing.assert_array_equal(draw(name, tail.shape, dtype, skip=skip), tail)
    np.testing.assert_array_equal(draw(name, (2, 3), dtype), long[:6].reshape(2, 3))
    assert draw(name, (), dtype) == long[0]
    assert draw(name, (0, 2), dtype).shape == (0, 2)
    other = np.array([STATE[0] + np.uint64(1), STATE[1]], np.uint64)
    assert (draw(name, (103,), dtype, state=other) != long).any()


def test_state_may_be_a_read_only_view():
    wide = np.repeat(STATE, 3)[::-1]
    view = wide[::-3]
    view.flags.writeable = False
    np.testing.assert_array_equal(draw("uniform", (9,), state=view), draw("uniform", (9,)))


@pytest.mark.parametrize("dtype", FLOATS)
def test_uniform_distribution(dtype):
    x = draw("uniform", (40_000,), dtype).astype(np.float64)
    assert x.min() >= -1
    assert x.max() < 3
    # A standard error of the mean is 0.0058, of the variance 0.006.
    assert abs(x.mean() - 1) < 0.02
    assert abs(x.var() - 4 / 3) < 0.025
    if dtype in (np.float32, np.float64):
        assert stats.kstest(x, stats.uniform(-1, 4).cdf).pvalue > 0.01
    halves = np.corrcoef(x[0::2], x[1::2])[0, 1]
    assert abs(halves) < 0.025


@pytest.mark.parametrize("dtype", FLOATS)
def test_normal_distribution(dtype):
    x = draw("normal", (40_001,), dtype).astype(np.float64)
    assert abs(x.mean() - 2) < 0.01
    assert abs(x.std() - 0.5) < 0.007
    if dtype in (np.float32, np.float64):
        assert stats.kstest(x, stats.norm(2, 0.5).cdf).pvalue > 0.01
    assert abs(np.corrcoef(x[0:-1:2], x[1::2])[0, 1]) < 0.025
    assert abs(stats.kurtosis(x)) < 0.1


@pytest.mark.parametrize("dtype", [np.bool_, np.int32, *FLOATS])
def test_bernoulli_distribution(dtype):
    x = draw("bernoulli", (40_000,), dtype)
    assert set(np.unique(x.astype(np.float64))) == {0.0, 1.0}
    assert abs(x.astype(np.float64).mean() - 0.3) < 0.01
    np.testing.assert_array_equal(x.astype(np.bool_), draw("bernoulli", (40_000,), np.bool_))
    assert not draw("bernoulli", (4000,), dtype, p=0.0).any()
    assert draw("bernoulli", (4000,), dtype, p=1.0).all()


def words_are(monkeypatch, word):
    """Let all words of all blocks be this one."""
    monkeypatch.setattr(
        random,
        "numbers",
        lambda key, offset, size, made: made(np.full((size, 4), word, np.uint32)).flat[:size],
    )


@pytest.mark.parametrize(("unit", "expected"), [(5033164, 1), (5033165, 0)])
def test_bernoulli_threshold(unit, expected, monkeypatch):
    """0.3 * 2**24 lies between the two."""
    words_are(monkeypatch, unit << 8)
    assert (draw("bernoulli", (4,), p=0.3) == expected).all()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (1024.0, 1032.0), (-2.0, -1.0), (1.0, 1.0)])
def test_uniform_never_reaches_its_end(dtype, low, high, monkeypatch):
    """Even the largest word, and where the sum rounds up to `high`."""
    words_are(monkeypatch, 0xFFFFFFFF)
    x = draw("uniform", (8,), dtype, low=low, high=high)
    assert x.dtype == dtype
    if low == high:
        assert (x == dtype(low)).all()
    else:
        assert (x < dtype(high)).all()
        assert (x >= dtype(low)).all()


@pytest.mark.parametrize("word", [0, 0xFFFFFFFF])
@pytest.mark.parametrize("dtype", FLOATS)
def test_normal_is_finite_at_both_ends(word, dtype, monkeypatch):
    words_are(monkeypatch, word)
    assert np.isfinite(draw("normal", (8,), dtype).astype(np.float64)).all()
