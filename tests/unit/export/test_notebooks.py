"""Networks of the notebooks in C: the numbers of Python's program."""

import numpy as np
import pytest

import miniml as ml
from miniml import nn, ops, optim
from tests.frame.native import needs_compiler
from tests.unit.export.test_export_c import WIDE, Step, compiler, ran, rng, same

pytestmark = [needs_compiler, pytest.mark.deep]
__all__ = ["compiler", "rng"]
LENGTH, PIECES = 16, 50


class Transformer(nn.Cell):
    """That of the language model, with fewer tokens."""

    def __init__(self, d, depth):
        super().__init__()
        self.look_up, self.place = nn.Embedding(PIECES, d), nn.Embedding(LENGTH, d)
        self.layers = nn.CellList(
            nn.TransformerEncoderLayer(d, heads=4, hidden=4 * d, dropout=0.05, norm_first=True)
            for _ in range(depth)
        )
        self.norm, self.head = nn.LayerNorm(d), nn.Dense(d, PIECES)

    def construct(self, tokens):
        x = self.look_up(tokens) + self.place(np.arange(tokens.shape[1]))
        for layer in self.layers:
            x = layer(x, is_causal=True)
        return self.head(self.norm(x))


def test_the_transformer_of_the_language_model_scores(rng, tmp_path, compiler):
    net = Transformer(96, 2)
    net.set_train(False)
    tokens = rng.integers(0, PIECES, (1, LENGTH)).astype(np.int32)
    same(*ran(compiler, net, tmp_path, tokens), compiler)


def test_the_transformer_of_the_language_model_learns(rng, tmp_path, compiler):
    """With causal attention, dropout, AdamW and clipped gradients."""
    net = Transformer(32, 2)
    optimizer = optim.AdamW(net.trainable_params(), lr=1e-3, betas=(0.9, 0.99))

    def surprise(scores, y):
        return nn.CrossEntropyLoss()(ops.reshape(scores, (-1, PIECES)), ops.reshape(y, (-1,)))

    step = ml.train_step(net, surprise, optimizer, clip=1.0)
    x, y = (rng.integers(0, PIECES, (4, LENGTH)).astype(np.int32) for _ in range(2))
    in_c = Step(compiler, step, tmp_path, x, y)
    with ml.context(providers=("cc",), without=tuple(WIDE)):
        losses = [float(step(x, y)) for _ in range(10)]
    assert losses[-1] < losses[0]
    np.testing.assert_allclose([in_c(x, y) for _ in range(10)], losses, 1e-5)


def test_the_transformer_of_the_language_model_writes(rng, tmp_path, compiler):
    """A loop over the network, of which each step takes the likeliest token."""
    net = Transformer(32, 1)
    net.set_train(False)

    def writes(tokens):
        def step(window, _):
            token = ops.cast(ops.argmax(net(window)[:, -1], -1), ml.int32)
            return ops.concat([window[:, 1:], token[:, None]], axis=1), token

        return ops.scan(step, tokens, length=5)[1]

    tokens = rng.integers(0, PIECES, (1, LENGTH)).astype(np.int32)
    got, expected = ran(compiler, writes, tmp_path, tokens)
    np.testing.assert_array_equal(got[0], expected[0])


def test_the_network_that_pytorch_trains(rng, tmp_path, compiler):
    net = nn.Sequential(nn.Dense(1, 32), nn.Tanh(), nn.Dense(32, 1))
    net.set_train(False)
    x = np.linspace(-3, 3, 64, dtype=np.float32)[:, None]
    same(*ran(compiler, net, tmp_path, x), compiler)
