"""A step happens wholly or not at all, whatever signals arrive and whatever their handlers do."""

import signal
from collections import Counter

import pytest

import miniml as ml
from miniml import files
from tests.frame.interrupted import Sender, Training, disturbed
from tests.frame.native import needs_compiler

SIGNALS = {
    "ctrl_c": [signal.SIGINT],
    "exits": [signal.SIGTERM],
    "both": [signal.SIGINT, signal.SIGTERM],
    "saves": [signal.SIGUSR1],
}


@pytest.fixture
def sender(monkeypatch):
    monkeypatch.setattr(files.os, "fsync", lambda descriptor: None)
    made = Sender(seed=7)
    yield made
    made.close()


def under_signals(sender, kind, signals, attempts, within, path):
    providers = ("cc",) if kind == "native" else None
    with ml.context(jit=kind != "op_by_op", providers=providers):
        return disturbed(sender, Training(kind), SIGNALS[signals], attempts, within, path)


# How a step is run, about how many seconds it takes, and how often it is disturbed every day.
CASES = [
    ("compiled", 4e-4, 100),
    pytest.param("native", 2e-4, 100, marks=needs_compiler),
    ("op_by_op", 8e-3, 12),
    ("update", 2e-3, 30),
]


@pytest.mark.parametrize(("kind", "within", "count"), CASES)
@pytest.mark.parametrize("signals", SIGNALS)
def test_a_step_under_signals_is_whole(sender, tmp_path, kind, within, count, signals):
    seen, expected = Counter(), {"after"} if signals == "saves" else {"after", "raised"}
    for _ in range(20):  # when signals arrive depends on what else the machine does
        seen += under_signals(sender, kind, signals, count, within, tmp_path / "x")
        if expected <= seen.keys():
            break
    assert expected <= seen.keys()
    assert seen["raised"] == 0 or signals != "saves"


@pytest.mark.deep
@pytest.mark.parametrize(("kind", "within", "count"), CASES)
@pytest.mark.parametrize("signals", SIGNALS)
def test_thousands_of_steps_under_signals_are_whole(sender, tmp_path, kind, within, count, signals):
    count *= 40
    seen = under_signals(sender, kind, signals, count, within, tmp_path / "x")
    assert seen["before"] or signals == "saves"
    assert seen["after"]
