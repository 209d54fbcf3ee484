"""A step happens wholly or not at all, whatever signals arrive and whatever their handlers do."""

import signal

import pytest
from safetensors.numpy import load_file

import miniml as ml
from miniml.train import Snapshot, checkpoint
from tests.frame.interrupted import Sender, Training, digest

# A handler may run inside a finalizer, where Python reports what it raises and goes on.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

STEPS = 40
SIGNALS = {
    "ctrl_c": [signal.SIGINT],
    "exits": [signal.SIGTERM],
    "both": [signal.SIGINT, signal.SIGTERM],
    "saves": [signal.SIGUSR1],
}


@pytest.fixture
def sender(monkeypatch):
    monkeypatch.setattr(checkpoint.os, "fsync", lambda descriptor: None)
    made = Sender(seed=7)
    yield made
    made.close()


def under_signals(sender, kind, signals, attempts, within, path):
    with ml.context(jit=kind != "op_by_op"):
        return disturbed(sender, Training(kind), SIGNALS[signals], attempts, within, path)


def disturbed(sender, training, signals, attempts, within, path):
    """How often each outcome was seen: "before", "after", "raised"; anything else fails."""
    states = training.states(STEPS)
    start = Snapshot(training.net, training.opt)
    at, seen, saved = 0, dict.fromkeys(("before", "after", "raised"), 0), []

    def save():
        ml.save_checkpoint(training.held, path)
        saved.append(digest(load_file(path)))

    sender.on_save = save
    for _ in range(attempts):
        raised = sender.during(training.step, signals, within)
        now = training.state()
        assert now in states[at : at + 2], "the step was torn"
        assert all(s in states[at : at + 2] for s in saved), "a torn state was saved"
        saved.clear()
        happened = now == states[at + 1]
        seen["after" if happened else "before"] += 1
        seen["raised"] += bool(raised)
        at += happened
        if at == STEPS:
            start.restore()
            at = 0
    return seen


# How a step is run, about how many seconds it takes, and how often it is disturbed every day.
CASES = [("compiled", 4e-4, 200), ("op_by_op", 8e-3, 25), ("update", 2e-3, 60)]


@pytest.mark.parametrize(("kind", "within", "count"), CASES)
@pytest.mark.parametrize("signals", SIGNALS)
def test_a_step_under_signals_is_whole(sender, tmp_path, kind, within, count, signals):
    seen = under_signals(sender, kind, signals, count, within, tmp_path / "x")
    assert seen["after"]
    assert bool(seen["raised"]) == (signals != "saves")


@pytest.mark.deep
@pytest.mark.parametrize(("kind", "within", "count"), CASES)
@pytest.mark.parametrize("signals", SIGNALS)
def test_thousands_of_steps_under_signals_are_whole(sender, tmp_path, kind, within, count, signals):
    count *= 20
    seen = under_signals(sender, kind, signals, count, within, tmp_path / "x")
    assert seen["before"] or signals == "saves"
    assert seen["after"]
