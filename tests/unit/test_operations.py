"""The table of `benchmarks.operations`: its rows run in miniml, a report names slow ones."""

import numpy as np
import pytest

from benchmarks.operations import TABLE, Case, Row, Worker, cases, report, table


def test_every_row_has_a_text_for_each_library():
    found = cases()
    assert len({c.name for c in found}) == len(found) > 300
    for case in found:
        for text in (case.ours, case.torch, case.jax):
            compile(text or "None", case.name, "eval")
    assert {c.group for c in found} == {group for group, _, _ in TABLE}


def test_rows_run_in_miniml():
    worker = Worker("miniml")
    chosen = [c for c in cases() if c.group in ("norms", "einsum of batches", "pooling")]
    assert len(chosen) > 8
    for case in chosen:
        answer = worker.answer({"make": case})
        assert "error" not in answer, (case.name, answer)
        assert np.isfinite(answer["result"])


@pytest.mark.deep
def test_all_rows_run_in_miniml():
    worker = Worker("miniml")
    errors = [(c.name, a) for c in cases() if "error" in (a := worker.answer({"make": c}))]
    assert not errors


def test_a_call_is_timed_and_a_wrong_one_is_an_answer():
    worker = Worker("miniml")
    worker.answer({"make": Case("a group", "x + x", "f(3)", "", "")})
    assert 0 < worker.answer({"time": 0.001})["seconds"] < 1
    answer = worker.answer({"make": Case("a group", "absent(x)", "f(3)", "", "")})
    assert "NameError" in answer["error"]


def test_the_report_counts_what_lies_above_and_names_it():
    rows = [
        Row("slow", 40.0, 4.0, 2.0, ""),
        Row("equal", 1.0, 1.0, None, ""),
        Row("alone", 1.0, None, None, ""),
        Row("bad", 2.0, 1.0, 1.0, "results differ"),
    ]
    count, *named = report(rows)
    assert count == "3 cases, 1 above 10, 1 above 3, 2 above 1.5, 2 above 1.2"
    assert [line.split(":")[0].split()[-1] for line in named[:2]] == ["slow", "bad"]
    assert named[2].startswith("cannot be compared: ")
    assert "bad" in named[2]


def test_the_table_of_a_run_has_the_slowest_of_each_group():
    rows = [
        Row("sums: sum(x) of f(3)", 4.0, 2.0, 1.0, ""),
        Row("sums: prod(x) of f(3)", 7.0, 2.0, 4.0, ""),
        Row("moves: flip(x) of f(3)", 1.0, 2.0, None, ""),
        Row("moves: roll(x) of f(3)", 1.0, None, None, ""),
    ]
    first, *_, sums, moves = table(rows)
    assert "3 cases **0 above 10, 2 above 3, 2 above 1.5, 2 above 1.2**" in first
    assert sums == "| sums | 2 | 2 | 2 | `sum(x) of f(3)` 4.0 |"
    assert moves == "| moves | 1 | 0 | 0 | `flip(x) of f(3)` 0.5 |"
