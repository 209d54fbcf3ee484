"""tools/compare_commits.py: two trees answer the same cases in turns; what is slower is said."""

import pytest

from benchmarks.cases import CASES
from tools import compare_commits
from tools.compare_commits import ROOT, Row, Worker, main


def test_rows_give_the_ratio_and_mark_what_became_slower():
    assert str(Row("x[2]", 2e-6, 1e-6)).split() == ["x[2]", "2.00", "1.00", "0.50"]
    assert str(Row("x[2]", 1e-6, 2e-6)).split()[-2:] == ["2.00", "slower"]
    assert str(Row("new", None, 1e-6)).split() == ["new", "-", "1.00", "-"]


def test_the_least_of_all_turns_counts_and_a_slower_case_fails_the_run(monkeypatch, capsys):
    answers = {"old": [3.0, 1.0, 2.0], "this": [4.0, 4.0, 2.0]}

    class Answering:
        def __init__(self, tree):
            self.left = answers[tree]

        def __enter__(self):
            return self

        def __exit__(self, *error):
            pass

        def seconds(self, name):
            assert name == "eager x[2]"
            return self.left.pop(0)

    monkeypatch.setattr(compare_commits, "Worker", Answering)
    monkeypatch.setattr(compare_commits, "checkout", lambda commit: _Given(commit or "this"))
    assert main(["old", "--only", "x[2]", "--rounds", "3"]) == 1
    assert capsys.readouterr().out.splitlines()[1].endswith("2.00 slower")


class _Given(str):
    def __enter__(self):
        return str(self)

    def __exit__(self, *error):
        pass


def test_a_worker_measures_a_case_and_refuses_the_package_of_another_tree(tmp_path):
    with Worker(ROOT) as worker:
        took = worker.seconds("eager x + y")
        assert took is not None
        assert 0 < took < 1e-2
        assert worker.seconds("no such case") is None
    with pytest.raises(RuntimeError, match="was imported"):
        Worker(tmp_path)


@pytest.mark.parametrize("name", CASES)
def test_every_case_can_be_called(name):
    assert CASES[name]()() is not None
