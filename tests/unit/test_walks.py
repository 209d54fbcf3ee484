"""How far a reader walks: the files that first calls pass are counted, and may not become more."""

import gc
import subprocess
import sys

import numpy as np
import pytest

import miniml as ml
from tools import walks
from tools.walks import WALKS, count, passed_by

# Files at most, with one or two for what a cold cache adds; the functions of the second call of
# x + y are its speed.
MOST = {
    "x + y, first call": 12,
    "x + y, second call": 5,
    "step of two layers, first call": 65,
    "step of two layers, third call": 9,
    "grad of sum(tanh(x)), first call": 25,
    "gradcheck of tanh": 38,
    "opcheck of Tanh": 80,
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


# Python calls of an eager call whose plan is known: at most, since each takes 50 to 100 ns.
CALLS = {
    "x + y": 8, "x + 1.0": 17, "x[2]": 9, "x @ y": 9, "x + parameter": 8, "x + array": 19,
    "ops.nonzero(x)": 14, "x[mask]": 44, "ops.all(x)": 12, "ops.eye(8)": 10,
}  # fmt: skip


@pytest.mark.parametrize(("text", "most"), CALLS.items())
def test_a_planned_eager_call_passes_no_more_functions_than_before(text, most):
    x, y = (ml.Tensor(np.full((8, 8), value, np.float32)) for value in (1.0, 2.0))
    array = np.ones((8, 8), np.float32)
    names = {"ops": ml.ops, "x": x, "y": y, "array": array, "parameter": ml.Parameter(array)}
    names["mask"] = array > 0
    call = compile(text, "<call>", "eval")
    for _ in range(3):
        eval(call, names)
    gc.collect()  # what it would release in the call is none of its functions
    passed = passed_by(call, names)
    assert sum(passed.values()) <= most, [f"{c.co_qualname} x {n}" for c, n in passed.items()]
    assert passed  # the package's own functions were seen


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
