"""Every fault of the corpus is reported, with its kind and line; what is right is clean."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from miniml.backends.cuda.sim.memory import SCHEDULES, using
from miniml.errors import KernelFaultError
from tests.device import emucupy as cp

from .corpus import CASES, Case

BY_NAME = {case.name: case for case in CASES}


@cache
def unit(breaks: bool) -> tuple[str, Any]:
    """All kernels in one text, so that the compiler is called once."""
    text = "".join(case.source(breaks) for case in CASES)
    return text, cp.RawModule(code=text)


def launch(case: Case, breaks: bool) -> None:
    args = case.broken_args if breaks and case.broken_args else case.args
    shared = case.broken_shared_mem if breaks and case.broken_shared_mem else case.shared_mem
    function = unit(breaks)[1].get_function(case.name)
    function(case.grid, case.block, args(), shared_mem=shared)


def marked_lines(case: Case) -> dict[int, str]:
    lines = unit(True)[0].splitlines()
    own = case.source(True).splitlines()
    start = next(k for k in range(len(lines)) if lines[k : k + len(own)] == own)
    return {start + k + 1: text for k, text in enumerate(own) if "//!" in text}


@pytest.mark.parametrize("name", BY_NAME)
def test_a_fault_is_reported_with_its_kind_and_line(name):
    case = BY_NAME[name]
    with using(mode="check", seconds=0.2), pytest.raises(KernelFaultError) as caught:
        launch(case, True)
    first = caught.value.faults[0]
    assert first.kind == case.kind, str(caught.value)
    assert first.kernel == name
    marks = marked_lines(case)
    if marks:
        assert first.line in marks, str(caught.value)
        assert first.source == marks[first.line]
        assert f"kernel.cu:{first.line}" in str(caught.value)
        assert first.block is not None
        assert first.thread is not None


@pytest.mark.parametrize("name", BY_NAME)
def test_what_is_right_is_clean(name):
    for schedule in SCHEDULES:
        for seed in range(3 if schedule == "shuffled" else 1):
            with using(mode="check", schedule=schedule, seed=seed, seconds=10.0):
                launch(BY_NAME[name], False)


@pytest.mark.parametrize("name", BY_NAME)
def test_the_kind_does_not_depend_on_the_schedule(name):
    case = BY_NAME[name]
    for schedule in ("reverse", "shuffled"):
        checked = using(mode="check", schedule=schedule, seed=1, seconds=0.2)
        with checked, pytest.raises(KernelFaultError) as caught:
            launch(case, True)
        assert case.kind in {f.kind for f in caught.value.faults}, str(caught.value)


def test_the_corpus_is_as_large_as_promised():
    assert len(CASES) >= 40
