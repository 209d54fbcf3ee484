"""Steps on a device, whose updates are launches from Python: whole under any signal, too."""

import signal

import pytest

import miniml as ml
from miniml.core.access import at_once, is_native, uninterrupted
from tests.frame.interrupted import Sender, Training, disturbed


@pytest.fixture
def sender():
    made = Sender(seed=11)
    yield made
    made.close()


def under_signals(sender, kind, signals, count, within, path, graphs="off"):
    with ml.context(
        device_target="cuda-sim", sim="fast", jit=kind != "op_by_op", cuda_graphs=graphs
    ):
        return disturbed(sender, Training(kind), signals, count, within, path)


CASES = [
    ("compiled", [signal.SIGTERM], "off"),
    ("compiled", [signal.SIGUSR1], "off"),
    ("compiled", [signal.SIGTERM], "on"),
    ("update", [signal.SIGINT, signal.SIGTERM], "off"),
]


@pytest.mark.parametrize(("kind", "signals", "graphs"), CASES)
def test_a_step_under_signals_is_whole(sender, tmp_path, kind, signals, graphs):
    under_signals(sender, kind, signals, 8, 0.02, tmp_path / "x", graphs)


@pytest.mark.deep
@pytest.mark.parametrize("graphs", ["off", "on"])
@pytest.mark.parametrize("kind", ["compiled", "op_by_op", "update"])
@pytest.mark.parametrize("signals", [[signal.SIGINT], [signal.SIGTERM], [signal.SIGUSR1]])
def test_hundreds_of_steps_under_signals_are_whole(sender, tmp_path, kind, signals, graphs):
    under_signals(sender, kind, signals, 300, 0.02, tmp_path / "x", graphs)


class Boom(Exception):
    """What a handler raises."""


@pytest.fixture
def handled():
    """Handlers for two signals, and the order in which they ran; SIGUSR1's raises."""
    ran = []

    def raises(number, frame):
        ran.append(number)
        raise Boom

    handlers = {signal.SIGUSR1: raises, signal.SIGUSR2: lambda number, frame: ran.append(number)}
    before = {number: signal.signal(number, h) for number, h in handlers.items()}
    yield ran, handlers
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("order", [[10, 12], [12, 10], [10, 10, 12]])
def test_every_signal_waits_and_none_is_lost_when_a_handler_raises(handled, order):
    ran, handlers = handled

    def updates():
        with uninterrupted():
            for number in order:
                signal.raise_signal(number)
            ran.append("done")

    with pytest.raises(Boom):
        updates()
    assert ran == ["done", *order]
    assert all(signal.getsignal(n) is h for n, h in handlers.items())


def test_blocks_may_stand_in_one_another(handled):
    ran, _ = handled
    with uninterrupted():
        with uninterrupted():
            signal.raise_signal(signal.SIGUSR2)
        assert ran == []
    assert ran == [signal.SIGUSR2]


def test_a_handler_that_somebody_sets_meanwhile_stays(handled):
    ran, _ = handled

    def other(number, frame):
        ran.append("other")

    with uninterrupted():
        signal.signal(signal.SIGUSR2, other)
    assert signal.getsignal(signal.SIGUSR2) is other


def test_calls_in_python_are_held_together_too(handled):
    ran, _ = handled
    calls = [lambda: signal.raise_signal(signal.SIGUSR1), lambda: ran.append("done")]
    assert not any(map(is_native, calls))
    with pytest.raises(Boom):
        at_once(calls)
    assert ran == ["done", signal.SIGUSR1]
