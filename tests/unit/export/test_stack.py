"""Exported programs on small stacks: their scratch memory is in the arena that the caller gives."""

import re
import shutil
import subprocess

import numpy as np
import pytest

import miniml as ml
from miniml import nn, optim
from miniml.cli.demo import network
from tests.conftest import HAS_CC

pytestmark = pytest.mark.skipif(not HAS_CC or not shutil.which("gcc"), reason="no C compiler")
FLAGS = "-std=c11 -ffp-contract=off -fno-math-errno -fno-trapping-math -fcallgraph-info=su".split()
MOST = 4096


class Recurrent(nn.Cell):
    """Scores of each token's successor."""

    def __init__(self):
        super().__init__()
        self.look_up, self.lstm, self.head = nn.Embedding(30, 16), nn.LSTM(16, 32), nn.Dense(32, 30)

    def construct(self, x):
        return self.head(self.lstm(self.look_up(x))[0]).reshape(-1, 30)


class Attending(nn.Cell):
    """The same by attention."""

    def __init__(self):
        super().__init__()
        self.look_up = nn.Embedding(30, 32)
        self.layer = nn.TransformerEncoderLayer(32, heads=4, hidden=128, dropout=0.05)
        self.head = nn.Dense(32, 30)

    def construct(self, x):
        return self.head(self.layer(self.look_up(x))).reshape(-1, 30)


def deepest(folder, level):
    """Bytes of the largest frame in net.c, and of the deepest chain of calls."""
    command = ["gcc", *FLAGS, level, "-c", "net.c"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    text = (folder / "net.ci").read_text()
    frames = {
        name: int(size)
        for name, size in re.findall(r'node: { title: "([^"]+)" label: "[^"]*?\\n(\d+) bytes', text)
    }
    calls = re.findall(r'edge: { sourcename: "([^"]+)" targetname: "([^"]+)"', text)
    depth = {}

    def below(name):
        if name not in depth:
            depth[name] = 0  # a function that calls itself would be counted once: there is none
            inner = [below(to) for by, to in calls if by == name]
            depth[name] = frames.get(name, 0) + max(inner, default=0)
        return depth[name]

    return max(frames.values()), max(map(below, frames))


IMAGE = np.zeros((1, 1, 8, 8), np.float32)
TOKENS = np.zeros((1, 12), np.int64)
CASES = {
    "CNN": (network, IMAGE, np.zeros(1, np.int64), 1),
    "CNN, 32 images": (network, IMAGE, np.zeros(1, np.int64), 32),
    "LSTM": (Recurrent, TOKENS, TOKENS[0], 1),
    "attention": (Attending, TOKENS, TOKENS[0], 1),
}


def exported(name, step, folder):
    """Write a network, or its training step, to net.c."""
    make, x, y, batch = CASES[name]
    net = make()
    net.set_train(step)
    x, y = np.tile(x, (batch, *(1,) * (x.ndim - 1))), np.tile(y, batch)
    if step:
        params = net.trainable_params()
        trained = ml.train_step(net, nn.CrossEntropyLoss(), optim.Adam(params, 1e-3))
        ml.export_c(trained, folder / "net.c", x, y)
    else:
        ml.export_c(net, folder / "net.c", x)


def check(name, step, level, folder):
    exported(name, step, folder)
    frame, chain = deepest(folder, level)
    assert 0 < frame <= chain <= MOST


@pytest.mark.parametrize("name", ["CNN", "LSTM"])
def test_a_training_step_has_a_small_stack(name, tmp_path):
    check(name, True, "-Os", tmp_path)


@pytest.mark.deep
@pytest.mark.parametrize("level", ["-Os", "-O2", "-O3"])
@pytest.mark.parametrize("step", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_networks_and_training_steps_have_small_stacks(name, step, level, tmp_path):
    check(name, step, level, tmp_path)


def test_large_products_have_their_panels_in_the_arena(tmp_path):
    """The last layer packs its columns, and a transposed x of a gradient is copied in blocks."""
    net = nn.Sequential(nn.Dense(64, 512), nn.ReLU(), nn.Dense(512, 300))
    step = ml.train_step(net, nn.CrossEntropyLoss(), optim.SGD(net.trainable_params(), 0.1))
    ml.export_c(step, tmp_path / "net.c", np.zeros((300, 64), np.float32), np.zeros(300, np.int64))
    frame, chain = deepest(tmp_path, "-Os")
    assert 0 < frame <= chain <= MOST
