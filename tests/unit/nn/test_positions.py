"""Positional encodings against their formulas in float64."""

import numpy as np
import pytest

import miniml as ml
from miniml import nn, ops
from miniml.errors import (
    AttributeRefusedError,
    DTypeError,
    OutOfRangeError,
    ShapeError,
    ValueRefusedError,
)
from miniml.grad import grad
from miniml.testing import gradcheck

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("d", [1, 6, 7])
def test_sinusoidal_positions_are_waves(d):
    table = ops.sinusoidal_positions(5, d, start=100, base=1000.0, dtype=ml.float64).asnumpy()
    for t in range(5):
        for column in range(d):
            angle = (100 + t) / 1000.0 ** ((column - column % 2) / d)
            wave = np.cos(angle) if column % 2 else np.sin(angle)
            assert table[t, column] == pytest.approx(wave, abs=1e-12)


@pytest.mark.parametrize("mode", [ml.PYNATIVE_MODE, ml.GRAPH_MODE])
def test_encodings_are_added(mode):
    x = RNG.normal(size=(2, 3, 4)).astype(np.float32)
    waves, learnt = nn.SinusoidalPositions(4), nn.LearnedPositions(8, 4)
    with ml.context(mode=mode):
        added = x + ops.sinusoidal_positions(3, 4, 2).asnumpy()
        np.testing.assert_allclose(waves(x, 2).asnumpy(), added, atol=1e-6)
        added = x + learnt.weight.asnumpy()[5:]
        np.testing.assert_allclose(learnt(x, 5).asnumpy(), added, atol=1e-6)
        assert waves(ml.Tensor(x, dtype=ml.float16)).dtype == ml.float16
        _, (slope,) = grad(lambda x: ops.sum(learnt(x, 1)), weights=[learnt.weight])(x)
    assert slope.asnumpy().sum(1).tolist() == [0, 8, 8, 8, 0, 0, 0, 0]


@pytest.mark.parametrize("d", [4, 7])
@pytest.mark.parametrize("rows", [1, 3, 8])
@pytest.mark.parametrize("kind", ["sines", "learnt"])
def test_one_compiled_step_serves_all_starts(kind, rows, d):
    layer = nn.SinusoidalPositions(d) if kind == "sines" else nn.LearnedPositions(8, d)
    step = ml.jit(lambda x, start: layer(x, start=start))
    x = RNG.normal(size=(2, rows, d)).astype(np.float32)
    for start in range(8 - rows + 1):
        expected = layer(x, start=start).asnumpy()
        for given in (ml.Tensor(start), np.array(start, np.int8)):
            np.testing.assert_allclose(layer(x, start=given).asnumpy(), expected, atol=1e-6)
        np.testing.assert_allclose(step(x, ml.Tensor(start)).asnumpy(), expected, atol=1e-6)
    assert len(step.recompilations) == 1
    if kind == "learnt":
        for start in (-1, 8 - rows + 1, 100):
            message = rf"LearnedPositions\(8, {d}\) got start {start}; starts are 0 to {8 - rows},"
            with pytest.raises(OutOfRangeError, match=message):
                step(x, ml.Tensor(start))
    with pytest.raises(AttributeRefusedError, match="expected an int"):
        layer(x, start=ml.Tensor([1, 2]))


def turned(x, positions, base, interleaved):
    """Pairs as complex numbers, times exp(i p w)."""
    half = x.shape[-1] // 2
    a, b = (x[..., ::2], x[..., 1::2]) if interleaved else (x[..., :half], x[..., half:])
    angles = positions[..., None] * base ** (-np.arange(half) / half)
    z = (a + 1j * b) * np.exp(1j * angles)
    both = (z.real, z.imag)
    return np.stack(both, -1).reshape(x.shape) if interleaved else np.concatenate(both, -1)


@pytest.mark.parametrize("interleaved", [False, True])
def test_rotary_embedding_turns_pairs(interleaved):
    x = RNG.normal(size=(2, 3, 5, 6))
    for positions in (None, np.array([3, 1, 4, 1, 5]), np.arange(10).reshape(2, 1, 5)):
        places = np.arange(5) if positions is None else positions
        wanted = turned(x, places, 100.0, interleaved)
        got = ops.rotary_embedding(x, positions, 100.0, interleaved).asnumpy()
        np.testing.assert_allclose(got, wanted, atol=1e-12)
        if positions is not None:
            f = ml.jit(lambda x, p: ops.rotary_embedding(x, p, 100.0, interleaved))
            np.testing.assert_allclose(f(x, positions).asnumpy(), wanted, atol=1e-5)
    gradcheck(lambda x: ops.rotary_embedding(x, None, 100.0, interleaved), x[0, 0], order=2)
    cell = nn.RotaryPositions(6, 100.0, interleaved)
    np.testing.assert_allclose(cell(x).asnumpy(), turned(x, np.arange(5), 100.0, interleaved))


def test_products_of_what_is_turned_depend_on_the_distance_alone():
    q, k = RNG.normal(size=(2, 1, 8))
    products = [
        float(ops.sum(ops.rotary_embedding(q, [p]) * ops.rotary_embedding(k, [p + 3])).item())
        for p in (0, 11, 500)
    ]
    np.testing.assert_allclose(products, products[0], rtol=1e-6)


X = np.ones((3, 4), np.float32)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: nn.SinusoidalPositions(0), ValueRefusedError, "d=0; expected an int >= 1"),
        (lambda: nn.SinusoidalPositions(6)(X), ShapeError, r"\(3, 4\); expected \(..., T, 6\)"),
        (lambda: nn.SinusoidalPositions(4)(X, 0.5), AttributeRefusedError, "start=0.5"),
        (
            lambda: nn.LearnedPositions(2, 4)(X),
            ShapeError,
            "positions 0 to 2; it has rows for 0 to 1",
        ),
        (lambda: nn.LearnedPositions(4, 4)(X, -1), ShapeError, "positions -1 to 1"),
        (lambda: nn.RotaryPositions(3), ValueRefusedError, "d=3; expected an even"),
        (lambda: ops.rotary_embedding(X[:, :3]), ShapeError, "expected floats .* with an even d"),
        (
            lambda: ops.rotary_embedding(X, X[:, 0]),
            DTypeError,
            "positions of float32; expected int",
        ),
        (lambda: ops.rotary_embedding(X, np.arange(2)), ShapeError, "positions"),
        (
            lambda: ops.rotary_embedding(X, np.ones((2, 3), int)),
            ShapeError,
            r"broadcasts to \(3,\)",
        ),
    ],
)
def test_what_does_not_fit_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_an_empty_sequence_stays_empty():
    x = np.ones((2, 0, 3), np.float32)
    assert nn.SinusoidalPositions(3)(x).shape == x.shape
    assert ops.sinusoidal_positions(0, 4).shape == (0, 4)
