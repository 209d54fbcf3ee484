"""opcheck keeps its budget, whatever is slow: kernels, rules, gradients, making failures small."""

import time

import numpy as np
import pytest

from miniml import ops
from miniml.testing import opcheck
from tests.faults.planting import get_bprop_snake, plant, same, snake

BUDGET = 0.6
_UNIT = 0.02  # seconds that one slow piece takes
_RUNS = 6  # pieces between two looks at the clock, and what is imported on the way


def busy(seconds=_UNIT):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def slowly(fn, seconds=_UNIT):
    def slow(*args, **named):
        busy(seconds)
        return fn(*args, **named)

    return slow


def slow_bprop(self):
    return slowly(get_bprop_snake(self))


def wrong_bprop(self):
    return slowly(lambda x, out, dout: (dout * (1.0 + ops.sin(1.9 * self.alpha * x)),))


def rough(x, *, alpha, out):
    snake(x * x.dtype.type(1.001 if x.dtype == np.float32 else 1), alpha=alpha, out=out)


def by_strides(x, *, alpha, out):
    snake(x.ravel("K").reshape(x.shape), alpha=alpha, out=out)


KINDS = {
    "kernel": {"fn": slowly(snake)},
    "rule": {"infer_shape": slowly(same, 2e-3)},
    "gradient": {"bprop": slow_bprop},
    "wrong kernel": {"fn": slowly(rough)},
    "wrong strides": {"fn": slowly(by_strides)},
    "wrong gradient": {"bprop": wrong_bprop},
}


@pytest.fixture(scope="module")
def imported():
    """What opcheck needs has been imported."""
    opcheck(ops.Exp(), budget=BUDGET, raise_error=False)


@pytest.mark.usefixtures("imported")
@pytest.mark.parametrize("kind", KINDS)
def test_a_budget_is_kept_by_all_that_is_slow(kind):
    with plant(**KINDS[kind]) as primitive:
        start = time.process_time()
        report = opcheck(primitive, budget=BUDGET, raise_error=False)
        took = time.process_time() - start
    assert took < BUDGET + _RUNS * _UNIT, str(report)
    assert any("the budget was used up" in note for note in report.notes)


@pytest.mark.parametrize("kind", ["wrong kernel", "wrong strides", "wrong gradient"])
def test_what_is_found_is_made_small_within_the_budget(kind):
    names = {"wrong kernel": "kernels", "wrong strides": "layouts", "wrong gradient": "gradient"}
    pieces = {**KINDS[kind]}
    if "fn" in pieces:
        pieces["fn"] = {"wrong kernel": rough, "wrong strides": by_strides}[kind]
    with plant(**pieces) as primitive:
        start = time.process_time()
        report = opcheck(primitive, budget=2.0, checks=[names[kind]], raise_error=False)
        took = time.process_time() - start
    assert took < 2.0 + _RUNS * _UNIT
    (fault, *_) = report.faults
    assert fault.check == names[kind]
    assert "base85" not in fault.example


def test_time_that_is_up_is_no_error_of_a_kernel():
    """Every launch may be the one that is not made: nothing of that is a finding."""
    for budget in np.linspace(0.05, 1.2, 8):
        with plant(fn=slowly(snake, 1e-3)) as primitive:
            report = opcheck(primitive, budget=float(budget), raise_error=False)
        assert {f.check for f in report.findings} <= {"budget"}, str(report)
