"""How far a reader walks: the files that first calls pass are counted, and may not become more."""

import subprocess
import sys

import pytest

from tools import walks
from tools.walks import WALKS, count

# Files at most, with one or two for what a cold cache adds; the functions of the second call of
# x + y are its speed.
MOST = {
    "x + y, first call": 17,
    "x + y, second call": 5,
    "step of two layers, first call": 83,
    "step of two layers, third call": 9,
    "grad of sum(tanh(x)), first call": 32,
    "gradcheck of tanh": 45,
    "opcheck of Tanh": 120,
}


@pytest.mark.parametrize(
    "walk",
    [pytest.param(w, marks=[pytest.mark.deep] * (w.name == "opcheck of Tanh")) for w in WALKS],
    ids=lambda walk: walk.name,
)
def test_a_walk_passes_no_more_files_than_before(walk):
    counted = count(walk)
    assert counted["files"] <= MOST[walk.name]
    if walk.name == "x + y, second call":
        assert counted["calls"] == counted["functions"] == 8


def test_the_table_shows_every_walk(monkeypatch, capsys):
    """With counts made up, since the real ones take processes of their own."""
    monkeypatch.setattr(sys, "argv", ["walks"])
    monkeypatch.setattr(walks, "count", lambda _: {"calls": 3, "functions": 2, "files": 1})
    walks.main()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in lines[1:]] == [walk.name for walk in WALKS]


def test_a_walk_of_an_unknown_name_is_an_error():
    done = subprocess.run(
        [sys.executable, "-m", "tools.walks", "x"], cwd=walks.ROOT, capture_output=True
    )
    assert done.returncode != 0
