"""Budgets on machines that are busy, idle or asleep."""

import time

import pytest

from miniml.testing import budget as clocks


@pytest.mark.parametrize(
    ("clock", "work", "elapsed"),
    [(2.0, 2.0, 2.0), (2.0, 1.0, 1.0), (2.0, 0.1, 0.5), (2.0, 16.0, 2.0), (0.0, 0.0, 0.0)],
    ids=["idle machine", "half of it", "asleep", "many threads", "at once"],
)
def test_waiting_for_others_counts_a_quarter(monkeypatch, clock, work, elapsed):
    now = {"clock": 10.0, "work": 5.0}
    monkeypatch.setattr(time, "monotonic", lambda: now["clock"])
    monkeypatch.setattr(clocks, "_work", lambda: now["work"])
    watch = clocks.Stopwatch()
    now["clock"] += clock
    now["work"] += work
    assert watch.elapsed() == pytest.approx(elapsed)
    assert watch.seconds() == pytest.approx(clock)
