"""Each fault is found and named; each correct row passes without a finding."""

import re

import pytest

from miniml.errors import MinimlError
from miniml.testing import gradcheck, gradcheck_vjp
from miniml.testing.opchecks import CHECKS
from miniml.testing.opchecks.devices import available

from ..conftest import DEEP
from . import judging
from .bends import BENDS
from .conduct import CONDUCT
from .cuda_kernels import CUDA_RIGHT, CUDA_WRONG
from .definitions import DEFINITIONS
from .digits import DIGITS
from .functions import REFUSED, REFUSED_NUMPY, RIGHT, WRONG_FUNCTIONS
from .gradients import WRONG
from .kernels import KERNELS
from .planted import CORRECT
from .shaped import SHAPED
from .smooth import KINKS, SMOOTH

SECONDS = 5.0 if DEEP else 2.0  # for a primitive in which there is nothing to find
HIDDEN = BENDS + DIGITS + CONDUCT
PRIMITIVES = KERNELS + DEFINITIONS + HIDDEN
needs_a_compiler = pytest.mark.skipif(bool(available()), reason=f"no C++ compiler: {available()}")


def named(row):
    return re.sub(r"[^\w.]+", "-", row.name)


def each(rows, one_of=1):
    """A test for each row; those beyond one of so many are for the deep run."""
    marked = [
        pytest.param(r, marks=pytest.mark.deep if i % one_of else ()) for i, r in enumerate(rows)
    ]
    return pytest.mark.parametrize("row", marked, ids=[named(r) for r in rows])


def passes(row, report):
    """Nothing is found, at the price that the row allows: kinks cost what they cost."""
    assert report.ok, str(report)
    assert row.kink or not report.findings, str(report)
    assert row.kink or report.forward_calls <= row.most_calls, str(report)


@each(SMOOTH + KINKS + SHAPED, one_of=2)
def test_a_correct_pair_passes(row):
    passes(row, judging.check_pair(row))


@each(RIGHT)
def test_a_correct_function_passes(row):
    passes(row, judging.check_function(row))


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(1, 3))
@each(SMOOTH + KINKS + SHAPED + RIGHT)
def test_a_correct_row_passes_at_other_points(row, seed):
    check = judging.check_function if row in RIGHT else judging.check_pair
    passes(row, check(row, seed))


@pytest.mark.larger
@each(CORRECT)
def test_a_correct_primitive_passes(row):
    report = judging.check_planted(row, budget=SECONDS)
    assert not report.findings, str(report)


@pytest.mark.parametrize(
    "row",
    [pytest.param(r, marks=pytest.mark.deep if "100,000" in r.name else ()) for r in WRONG],
    ids=named,
)
def test_a_wrong_pull_back_is_found_and_named(row):
    judgement = judging.judge_pair(row)
    assert judgement.found, judgement.text
    assert judgement.named, judgement.text


@each(WRONG_FUNCTIONS)
def test_a_wrong_function_is_found_and_named(row):
    judgement = judging.judge_function(row)
    assert judgement.found, judgement.text
    assert judgement.named, judgement.text


@each(KERNELS + DEFINITIONS + HIDDEN[::4], one_of=3)
def test_a_fault_in_a_primitive_is_found_by_its_check(row):
    names = [name for name in CHECKS if re.search(row.check, name)]
    judgement = judging.judge_planted(row, checks=names)
    assert judgement.named, judgement.text


@pytest.mark.deep
@each(PRIMITIVES)
def test_a_fault_in_a_primitive_is_found_and_named_among_all_checks(row):
    judgement = judging.judge_planted(row)
    assert judgement.found or row in HIDDEN, judgement.text
    assert judgement.named, judgement.text


@needs_a_compiler
@each(CUDA_RIGHT)
def test_a_correct_cuda_kernel_passes(row):
    report = judging.check_planted(row, checks=["devices"])
    assert not report.findings, str(report)
    assert report.calls["devices"] >= 12


@needs_a_compiler
@each(CUDA_WRONG)
def test_a_wrong_cuda_kernel_is_found_and_named(row):
    judgement = judging.judge_planted(row, checks=["devices"])
    assert judgement.found, judgement.text
    assert judgement.named, judgement.text


@each(REFUSED)
def test_what_cannot_be_checked_is_refused_in_words(row):
    """Or the report says why some of it could not be judged."""
    try:
        text = str(gradcheck(row.f, *row.args))
    except MinimlError as refusal:
        text = str(refusal)
    assert re.search(row.says, text), text


@each(REFUSED_NUMPY)
def test_a_numpy_function_that_cannot_be_checked_is_refused_in_words(row):
    with pytest.raises(MinimlError) as refusal:
        gradcheck_vjp(row.f, lambda x, dout: (dout,), *row.args)
    assert re.search(row.says, str(refusal.value)), str(refusal.value)


def test_the_corpus_is_as_large_as_it_says():
    assert len(WRONG) + len(WRONG_FUNCTIONS) + len(PRIMITIVES) >= 200
    assert len(SMOOTH) + len(KINKS) + len(SHAPED) + len(RIGHT) + len(CORRECT) >= 100
    for rows in (SMOOTH + KINKS + SHAPED, WRONG, PRIMITIVES):
        assert len({row.name for row in rows}) == len(rows)
