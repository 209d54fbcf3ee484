"""Networks of the notebooks in C: the numbers of Python's program."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import miniml as ml
from miniml import nn, ops, optim
from tests.frame.native import needs_compiler
from tests.unit.export.test_export_c import WIDE, Step, compiler, ran, rng, same

pytestmark = [needs_compiler, pytest.mark.deep]
__all__ = ["compiler", "rng"]
LENGTH, PIECES = 16, 50
ROOT = Path(__file__).resolve().parents[3]
# How many programs a notebook compiles that are written in C, and those that are refused. 06 takes
# minutes: its networks are below. 10 needs PyTorch: its network is below, too. 04 counts how often
# kernels are prepared, and 00 and 02 compile nothing but what opcheck checks.
COMPILED = {
    "01": (1, {"Snake", "TransposePerm"}), "03": (2, set()), "05": (5, set()), "07": (1, set()),
    "08": (5, set()), "09": (5, set()), "11": (6, set()), "12": (2, set()),
    "13": (1, {"AllReduce"}),
}  # fmt: skip


@pytest.mark.timeout(300)
@pytest.mark.parametrize("number", COMPILED)
def test_what_a_notebook_compiles_is_the_same_in_c(number):
    """Each program where it is first called: outputs, and what a step leaves in its state."""
    command = [sys.executable, "-m", "tools.notebooks_in_c", number]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    written, refused = COMPILED[number]
    assert len(re.findall(r" apart\b", done.stderr)) == written, done.stderr
    assert {*re.findall(r"refused: export_c has no C for (\w+)", done.stderr)} == refused


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
