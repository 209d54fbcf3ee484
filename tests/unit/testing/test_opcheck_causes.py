"""Findings name the cause: earlier calls, a layout, the inputs of a number; each is said once."""

import subprocess
import sys

import numpy as np
import pytest

from miniml import ops
from miniml.testing import opcheck
from miniml.testing.calls import USUAL, Call, laid_out
from miniml.testing.opchecks.run import _findings
from miniml.testing.opchecks.session import Issue, Session
from miniml.testing.report import OpFinding
from miniml.testing.tolerance import ulps
from tests.faults.planting import plant, snake

CALLS = [0]
KEPT = {}


def every(period):
    def counts(x, *, alpha, out):
        CALLS[0] += 1
        snake(x, alpha=alpha, out=out)
        if CALLS[0] % period == 0:
            out *= 1.001

    return counts


def in_one_place(x, *, alpha, out):
    n = int(KEPT.pop("n", 0.0)) + 1  # the number before is freed, and the next one takes its place
    KEPT["n"] = float(n)
    snake(x, alpha=alpha, out=out)
    if n % 2 == 0:
        out *= 1.001


def test_a_number_is_named_that_takes_the_place_of_the_one_before():
    KEPT["n"] = float(0)  # no constant, which would stay
    with plant(fn=in_one_place) as primitive:
        report = opcheck(primitive, checks=["repeat"], raise_error=False)
    assert any("KEPT of" in note for note in report.notes)


def unwritten(x, *, alpha, out):
    snake(x.reshape(-1)[1:], alpha=alpha, out=out.reshape(-1)[1:])


@pytest.mark.parametrize("period", [2, 3, 5, 11])
def test_a_counter_is_not_taken_for_memory_that_is_not_written(period):
    with plant(fn=every(period)) as primitive:
        report = opcheck(primitive, checks=["memory", "repeat"], raise_error=False)
    assert [f.check for f in report.faults] == ["repeat"], str(report)
    assert any("CALLS of" in note and "earlier calls" in note for note in report.notes)


def test_memory_that_is_not_written_is_still_found():
    with plant(fn=unwritten) as primitive:
        report = opcheck(primitive, checks=["memory"], raise_error=False)
    assert [f.check for f in report.faults] == ["memory"]
    assert "to what was in memory" in report.faults[0].message
    assert not any("earlier calls" in note for note in report.notes)


def test_what_the_call_alone_does_not_show_depends_on_earlier_calls():
    with plant() as primitive:
        call = Call(primitive, (np.ones(3),))
        session = Session(8.0)
        session.note("kernels", Issue("wrong 0", "it was wrong once", "correct it"), call)
        (found,) = _findings(session, primitive)
    assert found.message.startswith("it was wrong once; the same call alone does not show it")
    assert "keep nothing from call to call" in found.advice


def test_one_text_is_one_finding_and_a_fault_before_a_warning():
    for first, second in (("warning", "fault"), ("fault", "warning"), ("warning", "warning")):
        session = Session(8.0, few=True)
        with plant() as primitive:
            call = Call(primitive, (np.ones(3),))
            session.note("kernels", Issue("one", "the same text", "a", first), call)
            session.note("special", Issue("two", "the same text", "a", second), call)
            found = _findings(session, primitive)
        assert [f.severity for f in found] == [min(first, second)]
        assert isinstance(found[0], OpFinding)


def cached_by_shape(x, *, alpha, out):
    mean = KEPT.setdefault(x.shape, float(x.mean()) if x.size else 0.0)
    out[...] = x - mean


def test_a_cache_is_named_whatever_the_findings_speak_of():
    with plant(fn=cached_by_shape) as primitive:
        report = opcheck(primitive, checks=["gradient"], raise_error=False)
    assert report.faults
    assert any("KEPT of" in note for note in report.notes)
    with plant() as primitive:
        assert not any("earlier calls" in note for note in opcheck(primitive, budget=1.0).notes)


def test_layouts_are_arrays_of_numpy_with_a_base_of_its_own():
    for layout in (*USUAL, "contiguous", "axes swapped, reversed along axis 1"):
        for dtype in ("f", "d", "l", "?", "float16"):
            x = np.arange(12).reshape(3, 4).astype(dtype)
            (view,) = laid_out((x,), (layout,))
            assert isinstance(view, np.ndarray)
            assert view.base is None if layout == "contiguous" else type(view.base) is np.ndarray
            expected = np.repeat(x[:1], 3, 0) if (0 in view.strides) else x
            assert np.array_equal(view, expected)


def takes_the_base(x, *, alpha, out):
    snake(
        x if x.base is None else x.base.view(x.dtype)[: x.size].reshape(x.shape),
        alpha=alpha,
        out=out,
    )


def test_a_kernel_that_reads_the_base_of_its_input_is_told_the_layout():
    with plant(fn=takes_the_base, bprop=None) as primitive:
        report = opcheck(primitive, checks=["layouts"], raise_error=False)
    (fault,) = report.faults
    assert "on contiguous inputs" not in fault.message
    assert "DummyArray" not in fault.message


def test_a_difference_without_one_right_digit_is_not_counted_in_ulp():
    one = np.array([1.0, 2.0])
    assert "ulp" in ulps(one, one * (1 + 1e-10))
    assert ulps(np.array([1.0]), np.array([1e-300])) == ""


def test_the_advice_on_a_gradient_is_a_line_that_runs_after_the_program():
    def wrong(self):
        return lambda x, out, dout: (dout * (1.0 + ops.sin(1.9 * self.alpha * x)),)

    with plant(bprop=wrong) as primitive:
        report = opcheck(primitive, checks=["gradient"], raise_error=False)
    (fault,) = report.faults
    assert "gradcheck(Planted(alpha=0.5), x0)" in fault.advice
    assert "import OpInfo, gradcheck, opcheck" in fault.example


def test_the_command_and_pytest_tell_of_checks():
    shown = subprocess.run(
        [sys.executable, "-m", "miniml", "--help"], capture_output=True, text=True, check=True
    ).stdout
    assert "opcheck" in shown
    assert "gradcheck" in shown
    helped = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "_miniml_pytest", "--help"],
        capture_output=True, text=True,
    ).stdout  # fmt: skip
    assert "seconds for one primitive (8 by default)" in " ".join(helped.split())
