"""Budgets on machines that are busy, idle or asleep."""

import time

import pytest

from miniml.testing import calls as clocks


@pytest.mark.parametrize(
    ("clock", "work", "waited", "elapsed"),
    [
        (2.0, 2.0, 0.0, 2.0),
        (2.0, 1.0, 1.0, 1.0),
        (2.0, 0.1, 0.0, 0.5),
        (2.0, 0.1, 1.9, 0.1),
        (2.0, 0.1, 1.7, 0.3),
        (2.0, 16.0, 0.0, 2.0),
        (0.0, 0.0, 0.0, 0.0),
    ],
    ids=[
        "idle",
        "half of it",
        "asleep",
        "a twentieth of it",
        "busy and asleep",
        "threads",
        "at once",
    ],
)
def test_others_do_not_count_and_sleep_counts_a_quarter(monkeypatch, clock, work, waited, elapsed):
    now = {"clock": 10.0, "work": 5.0, "waited": 3.0}
    monkeypatch.setattr(time, "monotonic", lambda: now["clock"])
    monkeypatch.setattr(clocks, "_work", lambda: now["work"])
    monkeypatch.setattr(clocks, "_waited", lambda: now["waited"])
    watch = clocks.Stopwatch()
    now["clock"] += clock
    now["work"] += work
    now["waited"] += waited
    assert watch.elapsed() == pytest.approx(elapsed)
    assert watch.seconds() == pytest.approx(clock)


def test_the_system_says_how_long_others_had_the_processors(monkeypatch, tmp_path):
    said = tmp_path / "schedstat"
    monkeypatch.setattr(clocks, "_SCHEDULED", str(said))
    assert clocks._waited() == 0.0
    said.write_text("")
    assert clocks._waited() == 0.0
    said.write_text("82376 3502000000 2\n")
    assert clocks._waited() == pytest.approx(3.502)
