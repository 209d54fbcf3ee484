"""Primitives as users write them: gradcheck calls no right one wrong, and misses no fault."""

import re

import numpy as np
import pytest

from . import judging
from .rights import RIGHTS
from .wrongs import WRONGS

SOME = RIGHTS[::6]


def named(row):
    return row.name


def half(rows):
    return [pytest.param(r, marks=pytest.mark.deep if i % 2 else ()) for i, r in enumerate(rows)]


@pytest.mark.parametrize("row", half(RIGHTS), ids=[r.name for r in RIGHTS])
def test_a_right_primitive_is_not_called_wrong(row):
    """In float32, so that the gradient in float64 is checked, too."""
    report = judging.check_natural(row, 1, np.float32)
    assert not report.wrong, str(report)


@pytest.mark.deep
@pytest.mark.parametrize("row", RIGHTS, ids=named)
def test_a_right_primitive_is_not_called_wrong_at_other_points(row):
    for seed in range(2, 8):
        for dtype in (np.float64, np.float32):
            report = judging.check_natural(row, seed, dtype)
            assert not report.wrong, f"seed {seed}:\n{report}"


@pytest.mark.parametrize("row", half(WRONGS), ids=[r.name for r in WRONGS])
def test_a_wrong_gradient_of_a_primitive_is_found_and_named(row):
    judgement = judging.judge_natural(row)
    assert judgement.found, judgement.text
    assert judgement.named, judgement.text


def test_the_right_primitives_are_right_where_nothing_is_saturated():
    """Most are judged whole: what gradcheck does not complain of, it has looked at."""
    reports = [judging.check_natural(row, seed=1) for row in SOME]
    assert sum(bool(r.judged) for r in reports) >= 0.8 * len(reports)


def test_the_names_differ():
    rows = RIGHTS + WRONGS
    assert len({row.name for row in rows}) == len(rows)
    assert all(re.fullmatch(r"\w+", row.name) for row in rows)
