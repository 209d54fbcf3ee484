"""Rates over fresh seeds: false alarms, faults found, one wrong element wherever it stands."""

import secrets

import numpy as np
import pytest

from miniml.testing import gradcheck_vjp
from tests.opinfo import ROWS

from . import judging
from .bends import BENDS
from .conduct import CONDUCT
from .cuda_kernels import CUDA_RIGHT, CUDA_WRONG
from .definitions import DEFINITIONS
from .digits import DIGITS
from .functions import RIGHT, WRONG_FUNCTIONS
from .gradients import WRONG
from .kernels import KERNELS
from .planted import CORRECT, Planted
from .rights import RIGHTS
from .shaped import SHAPED
from .smooth import KINKS, SMOOTH
from .wrongs import WRONGS

pytestmark = [pytest.mark.rates, pytest.mark.timeout(3600)]
TIMES = 20  # seeds of each right primitive, half of them in float32
PRIMITIVES = KERNELS + DEFINITIONS + BENDS + DIGITS + CONDUCT + CUDA_WRONG
PAIRS = SMOOTH + KINKS + SHAPED


def wrong_at(slope, place):
    """A pull-back of sin that is wrong by 1 % in one place."""

    def vjp(x, dout):
        d = dout * slope(x)
        d[place] *= 1.01
        return (d,)

    return vjp


def test_gradcheck_gives_no_false_alarm():
    first = secrets.randbits(32)
    alarms = []
    for i in range(3000):
        row = (PAIRS + RIGHT)[i % len(PAIRS + RIGHT)]
        check = judging.check_function if row in RIGHT else judging.check_pair
        report = check(row, first + i)
        if not report.ok:
            alarms.append(f"{row.name}, seed {first + i}:\n{report}")
    assert not alarms, "\n\n".join(alarms)


def test_gradcheck_calls_no_primitive_wrong_that_it_was_not_tuned_on():
    first, alarms = secrets.randbits(32), []
    for i in range(TIMES * len(RIGHTS)):
        row, dtype = RIGHTS[i % len(RIGHTS)], (np.float64, np.float32)[i // len(RIGHTS) % 2]
        report = judging.check_natural(row, first + i, dtype)
        if report.wrong:
            alarms.append(f"{row.name}, seed {first + i}, {dtype.__name__}:\n{report}")
    assert not alarms, f"{len(alarms)} of {TIMES * len(RIGHTS)}:\n" + "\n\n".join(alarms)


@pytest.mark.parametrize("row", WRONGS, ids=lambda row: row.name)
def test_a_wrong_gradient_of_a_primitive_is_found_wherever_it_is_asked(row):
    first = secrets.randbits(32)
    for seed in range(first, first + 10):
        judgement = judging.judge_natural(row, seed)
        assert judgement.found, f"seed {seed}:\n{judgement.text}"
        assert judgement.named, f"seed {seed}:\n{judgement.text}"


def test_opcheck_gives_no_false_alarm():
    first = secrets.randbits(32)
    rows = [row for row in ROWS if row.primitive.differentiable] + [*CORRECT, *CUDA_RIGHT]
    rows += RIGHTS
    alarms = []
    for seed in range(first, first + 1000):
        row = rows[seed % len(rows)]
        check = judging.check_planted if isinstance(row, Planted) else judging.check_row
        report = check(row, seed=seed)
        if not report.ok:
            alarms.append(f"seed {seed}:\n{report}")
    assert not alarms, f"{len(alarms)} of 1000:\n" + "\n\n".join(alarms)


@pytest.mark.parametrize("row", WRONG + WRONG_FUNCTIONS, ids=lambda row: row.name)
def test_a_wrong_gradient_is_found_and_named_wherever_it_is_asked(row):
    first = secrets.randbits(32)
    judge = judging.judge_function if row in WRONG_FUNCTIONS else judging.judge_pair
    for seed in range(first, first + 20):
        judgement = judge(row, seed)
        assert judgement.found, f"seed {seed}:\n{judgement.text}"
        assert judgement.named, f"seed {seed}:\n{judgement.text}"


@pytest.mark.parametrize("row", PRIMITIVES, ids=lambda row: row.name)
def test_a_wrong_primitive_is_found_and_named_whatever_is_drawn(row):
    first = secrets.randbits(32)
    for seed in range(first, first + 5):
        judgement = judging.judge_planted(row, seed=seed)
        assert judgement.named, f"seed {seed}:\n{judgement.text}"


@pytest.mark.parametrize(("dtype", "largest"), [(np.float64, 100_000), (np.float32, 100_000)])
def test_one_element_wrong_by_a_percent_is_found(dtype, largest):
    rng = np.random.default_rng(secrets.randbits(32))
    missed = []
    for i in range(200):
        size = int(np.exp(rng.uniform(np.log(2), np.log(largest + 1))))
        place = int(rng.integers(size))
        x = rng.normal(size=size).astype(dtype)
        report = gradcheck_vjp(np.sin, wrong_at(np.cos, place), x, raise_error=False, seed=i)
        if not any(f.verdict == "wrong" and f.index == (place,) for f in report.findings):
            missed.append(f"size {size}, element {place}: {report}")
    assert not missed, f"{len(missed)} of 200:\n" + "\n\n".join(missed)
