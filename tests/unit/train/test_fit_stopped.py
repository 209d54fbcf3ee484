"""A fit that is stopped at any moment, by any exception, goes on and ends in the same bits."""

import gc
import os
import signal
from functools import partial

import numpy as np
import pytest

import miniml as ml
from miniml import nn, optim, train
from miniml.data import DataLoader
from tests.conftest import DEEP
from tests.frame.moments import Moments, drawn

DRAW = np.random.default_rng(0)
X, Y = DRAW.normal(size=(32, 12)).astype(np.float32), np.arange(32) % 3
ERRORS = (SystemExit, KeyboardInterrupt, RuntimeError, BaseException)
RUNS = 100 if DEEP else 5


class Counts(train.Callback):
    """A state that changes with every step, and with every epoch."""

    def __init__(self):
        self.state = {"steps": 0, "epochs": 0, "losses": np.zeros(2)}

    def on_steps(self, run, losses):
        self.state["steps"] += len(losses)
        self.state["losses"] += sum(losses)

    def on_epoch(self, run, row):
        self.state["epochs"] += 1


def plain(net):
    return {"optimizer": optim.Adam(net.trainable_params(), lr=0.01)}


def wrapped(net):
    inner = optim.EMA(optim.AdamW(net.trainable_params(), lr=0.01), decay=0.9)
    return {"optimizer": optim.Accumulate(inner, every=3), "clip": 1.0}


def scaled(net):
    sgd = optim.SGD(net.trainable_params(), lr=optim.cosine(0.1, 12), momentum=0.9)
    return {"optimizer": sgd, "loss_scale": optim.LossScale(2.0**120, every=2)}


def model(kind):
    ml.manual_seed(0)
    net = nn.Sequential(nn.Dense(12, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Dense(8, 3))
    return train.Model(net, nn.CrossEntropyLoss(), metrics=[train.accuracy()], **kind(net))


def fit(learner, path, save_every):
    data = DataLoader(X, Y, size=8, seed=1, prefetch=2 * (save_every == 2))
    callbacks = [Counts(), train.Log(f"{path}.log"), train.EarlyStopping(9, "loss")]
    options = {"validation": data, "callbacks": callbacks, "show": False}
    learner.fit(data, epochs=3, resume=path, save_every=save_every, **options)


def held(learner, path):
    """All that a run leaves behind, beside the seconds that it took."""
    with open(f"{path}.log") as log:
        lines = [line.partition('"seconds"')[0] for line in log]
    modes = [cell.training for cell in learner.net.cells()]
    parameters = [*learner.net.parameters_dict().values()]
    values = [p.asnumpy().tobytes() for p in parameters]
    with open(path, "rb") as file:
        return file.read(), lines, modes, values


@pytest.fixture
def moments(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    with Moments() as made:
        yield made


@pytest.mark.larger
@pytest.mark.timeout(1000)
@pytest.mark.parametrize("kind", [plain, wrapped, scaled])
@pytest.mark.parametrize("every", [1, 2, 1000])
def test_a_fit_that_is_stopped_at_any_moment_ends_in_the_same_bits(kind, every, moments, tmp_path):
    """By SystemExit, KeyboardInterrupt, others, once or twice; gone on with the same Model or with
    another one. Without prefetching, and with a thread that reads ahead."""
    draw, learner, whole = np.random.default_rng(every), model(kind), tmp_path / "whole"
    codes = moments.count(partial(fit, learner, whole, every))
    expected = held(learner, whole)
    for run in range(RUNS):
        learner, folder = model(kind), tmp_path / f"run{run}"
        folder.mkdir()
        call = partial(fit, path=folder / "run", save_every=every)
        at, again = drawn(draw, codes), float(draw.choice([0.0, draw.uniform(1e-6, 3e-3)]))
        error, same = ERRORS[draw.integers(len(ERRORS))], bool(draw.integers(2))
        raised = moments.during(partial(call, learner), at, error, again)
        learner = learner if same else model(kind)
        call(learner)
        got, moment = held(learner, folder / "run"), codes[at].co_qualname
        where = f"{run=}: {raised!r} in {moment}, {at=}, {again=}, {same=}"
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler, where
        assert got[0] == expected[0], f"{where}: another file"
        assert got[1:] == expected[1:], where
        assert sorted(os.listdir(folder)) == ["run", "run.log"], where


class Ring:
    """An object that the collector finds, whose finalizer calls functions."""

    def __init__(self):
        self.itself = self

    def __del__(self):
        self.list()
        self.list()

    def list(self):
        return [self]


def test_a_moment_may_lie_in_a_finalizer(moments):
    def rings():
        for _ in range(4):
            Ring()
            [(lambda: [1])() for _ in range(3)]

    thresholds = gc.get_threshold()
    gc.set_threshold(1)
    try:
        count = len(moments.count(rings))
        found = {moments.during(rings, at, RuntimeError) for at in range(count)}
    finally:
        gc.set_threshold(*thresholds)
    assert "RuntimeError" in found <= {"RuntimeError", ""}
