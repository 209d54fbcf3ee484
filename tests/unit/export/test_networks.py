"""Networks as people write them, of many layers at once: the numbers of Python's program in C."""

import numpy as np
import pytest

import miniml as ml
from miniml import nn, ops, optim
from tests.frame.native import needs_compiler
from tests.unit.export.test_export_c import (
    WIDE,
    Step,
    compiler,
    evaluated,
    fences,
    floats,
    ran,
    rng,
    same,
)

pytestmark = [needs_compiler, pytest.mark.deep]
__all__ = ["compiler", "fences", "rng"]


class Separable(nn.Cell):
    """A depthwise convolution, a pointwise one and a gate for each channel, beside the input."""

    def __init__(self, n):
        super().__init__()
        self.depthwise = nn.Conv2d(n, n, 5, padding=2, groups=n, bias=False)
        self.pointwise, self.norm = nn.Conv2d(n, n, 1, bias=False), nn.BatchNorm2d(n)
        self.gate = nn.Conv2d(n, n, 1)

    def construct(self, x):
        y = self.norm(self.pointwise(ops.silu(self.depthwise(x))))
        return x + y * ops.sigmoid(self.gate(ops.mean(y, (2, 3), keepdims=True)))


class Reader(nn.Cell):
    """Two directions of GRUs, and the mean of the tokens that count, weighted by their scores."""

    def __init__(self):
        super().__init__()
        self.look_up, self.norm = nn.Embedding(40, 12), nn.LayerNorm(32)
        self.gru = nn.GRU(12, 16, num_layers=2, bidirectional=True, batch_first=True)
        self.score, self.head = nn.Dense(32, 1), nn.Dense(32, 5)

    def construct(self, tokens, lengths):
        y = self.norm(self.gru(self.look_up(tokens))[0])
        counts = np.arange(tokens.shape[1])[None] < lengths[:, None]
        weights = ops.softmax(ops.where(counts, self.score(y)[..., 0], -1e9), -1)
        return self.head(ops.sum(y * weights[..., None], 1))


class Decoder(nn.Cell):
    """One token after another, which attends to the keys and values of those before."""

    def __init__(self, d=32, heads=4):
        super().__init__()
        self.look_up, self.norm, self.head = nn.Embedding(50, d), nn.RMSNorm(d), nn.Dense(d, 50)
        self.attend = nn.MultiHeadAttention(d, heads, rotary=nn.RotaryPositions(d // heads, 64))
        self.up, self.gate, self.down = nn.Dense(d, 64), nn.Dense(d, 64), nn.Dense(64, d)

    def construct(self, token, start, keys, values):
        x = self.look_up(token)
        y, (keys, values) = self.attend(x, x, x, cache=(keys, values), start=start)
        x = self.norm(x + y)
        x = x + self.down(ops.silu(self.gate(x)) * self.up(x))
        return self.head(x), keys, values


def block(n_in, n):
    return nn.Sequential(nn.Conv2d(n_in, n, 3, padding=1), nn.GroupNorm(2, n), nn.GELU())


class UNet(nn.Cell):
    """Down twice, and up by transposed convolutions beside what was there."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = block(1, 6), block(6, 12), block(12, 24)
        self.up_second, self.up_first = (
            nn.ConvTranspose2d(24, 12, 2, stride=2),
            nn.ConvTranspose2d(12, 6, 4, stride=2, padding=1),
        )
        self.join_second, self.join_first = block(24, 12), block(12, 6)
        self.pool, self.drop, self.head = nn.MaxPool2d(2), nn.Dropout2d(0.2), nn.Conv2d(6, 1, 1)

    def construct(self, x):
        a = self.first(x)
        b = self.second(self.pool(a))
        y = self.up_second(self.drop(self.third(self.pool(b))))
        y = self.join_second(ops.concat([y, b], axis=1))
        return self.head(self.join_first(ops.concat([self.up_first(y), a], axis=1)))


def test_a_depthwise_network_with_gates(rng, tmp_path, compiler):
    net = nn.Sequential(nn.Conv2d(3, 16, 3, stride=2, padding=1), Separable(16), Separable(16))
    same(*ran(compiler, evaluated(net), tmp_path, floats(rng, 1, 3, 20, 20)), compiler)


def test_recurrent_layers_of_both_directions_with_lengths(rng, tmp_path, compiler):
    tokens = rng.integers(0, 40, (3, 9)).astype(np.int32)
    lengths = np.array([9, 4, 1], np.int32)
    same(*ran(compiler, evaluated(Reader()), tmp_path, tokens, lengths), compiler)


def test_a_decoder_that_keeps_keys_and_values(rng, tmp_path, compiler):
    cache = floats(rng, 1, 4, 16, 8), floats(rng, 1, 4, 16, 8)
    given = np.array([[7]], np.int32), np.array(3, np.int32), *cache
    same(*ran(compiler, evaluated(Decoder()), tmp_path, *given), compiler)


def test_a_network_that_marks_pixels_learns(rng, tmp_path, compiler):
    """With AdamW, clipped gradients and dropout of channels."""
    net, x = UNet(), floats(rng, 2, 1, 16, 16)
    y = (x > 0).astype(np.float32)
    optimizer = optim.AdamW(net.trainable_params(), lr=1e-2)
    step = ml.train_step(net, nn.BCEWithLogitsLoss(), optimizer, clip=1.0)
    in_c = Step(compiler, step, tmp_path, x, y)
    with ml.context(providers=("cc",), without=tuple(WIDE)):
        losses = [float(step(x, y)) for _ in range(10)]
    assert losses[-1] < losses[0]
    np.testing.assert_allclose([in_c(x, y) for _ in range(10)], losses, 1e-5)
