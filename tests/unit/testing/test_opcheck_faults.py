"""What opcheck says of faults: warnings, the smallest example, and a program that shows it.

tests/faults plants a fault for each check.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from miniml.ops import rules
from miniml.testing import OpInfo, Sample, opcheck
from miniml.testing.calls import Call
from miniml.testing.opchecks import gradients, run
from miniml.testing.opchecks.session import Issue
from miniml.testing.tolerance import degree
from tests.faults import snakes
from tests.faults.planting import plant, snake
from tests.faults.snakes import TestAdder


def rougher(x, *, alpha, out):
    snake(x * x.dtype.type(1.001), alpha=alpha, out=out)


NO_GRADIENT = {"differentiable": False}
FLUSHED = "is 0 where numbers below the smallest normal one are right"


def test_lost_denormals_are_warnings():
    tiny = np.finfo(np.float64).tiny

    def half(x, *, alpha, out):
        np.multiply(x, 0.5, out=out)
        out[np.abs(out) < tiny] = 0

    with plant(fn=half, bprop=None, body=NO_GRADIENT) as primitive:
        info = OpInfo(type(primitive), lambda rng, dtype: (), reference=lambda x, alpha: x * 0.5)
        inputs = (np.array([tiny / 2]),)
        report = opcheck(primitive, info, inputs=inputs, checks=("kernels",), raise_error=False)
    assert any(FLUSHED in f.message for f in report.warnings), str(report)
    assert report.ok


def test_a_function_that_ends_a_little_early_is_a_warning():
    def early(x, *, alpha, out):
        np.exp(x, out=out)
        out[x < -740] = 0  # exp(-744.4) is the smallest number

    with plant(fn=early, bprop=None, body=NO_GRADIENT) as primitive:
        info = OpInfo(type(primitive), lambda rng, dtype: (), reference=lambda x, alpha: np.exp(x))
        report = opcheck(primitive, info, inputs=(np.array([-740.5]),), checks=("kernels",))
    (found,) = report.findings
    assert (found.severity, FLUSHED in found.message) == ("warning", True)


def test_a_kernel_that_no_call_reaches_is_a_warning():
    """A manual's addition has one for int32, and a rule that takes float32 alone."""
    only = rules.one_of("float32", "float64")
    with plant(letters=("f->f", "d->d", "i->i"), infer_dtype=only) as primitive:
        (found,) = opcheck(primitive, checks=["rules"]).warnings
    assert found.check == "rules"
    assert (
        "no call reaches the kernel i->i (miniml): DTypeError: Planted got int32" in found.message
    )
    with plant() as primitive:
        assert not opcheck(primitive, checks=["rules"]).findings


def test_a_fault_stays_one_while_its_example_is_made_smaller():
    """Short arrays are off by fewer units of float16, which is a warning of the same kind."""

    def body(x, *, alpha, out):
        exact = np.sin(x.astype(np.float64))
        if x.dtype == np.float16:
            units = (10 if x.size > 12 else 5) * np.resize([1, -1], x.shape)
            exact += units * np.spacing(exact.astype(np.float16)).astype(np.float64)
        out[...] = exact

    with plant(fn=body, letters=("e->e", "d->d"), bprop=None, body=NO_GRADIENT) as primitive:
        x = np.random.default_rng(0).normal(size=40).astype(np.float16)
        report = opcheck(primitive, inputs=(x,), checks=("kernels",), raise_error=False)
    (found,) = report.findings
    assert (found.severity, "(float16[13])" in found.message) == ("fault", True), str(report)


@pytest.mark.parametrize(
    ("right", "out", "expected"),
    [
        ([np.inf, 1.0], [np.inf, 1.0], "rounding"),
        ([-np.inf, 1.0], [-np.inf, 1 + 1e-5], "inaccurate"),
        ([np.inf, 1.0], [-np.inf, 1.0], "wrong"),
        ([np.inf, np.nan], [np.inf, np.nan], "rounding"),
        ([np.inf, 1.0], [1.0, 1.0], "wrong"),
    ],
)
def test_infinities_of_one_sign_agree(right, out, expected):
    out = np.array(out, np.float32)
    assert degree((np.ones(2, np.float32),), out, np.array(right)) == expected


def test_rows_that_depend_on_each_other_are_found():
    def centred(x, *, alpha, out):
        np.subtract(x, x.mean(axis=0) if len(x) else x, out=out)

    def samples(rng, dtype):
        yield Sample((rng.normal(size=(4, 3)).astype(dtype),))

    with plant(fn=centred, bprop=None, body=NO_GRADIENT) as primitive:
        info = OpInfo(type(primitive), samples, batch_axes=(0,))
        report = opcheck(primitive, info, raise_error=False)
    assert [f.check for f in report.faults] == ["kernels run", "batching"]


def test_examples_are_as_small_as_they_can_be():
    with plant(others=[(rougher, ["d->d"], {"provider": "mine"})]) as primitive:
        report = opcheck(primitive, raise_error=False, checks=["kernels", "gradient"])
    assert "float64[]" in report.findings[0].message
    assert "x0 = np.array(1.0, 'float64')" in report.findings[0].example


def test_an_example_shows_the_failure_when_it_is_run(tmp_path):
    report = opcheck(TestAdder(2.0), raise_error=False, budget=4.0)
    memory = next(f for f in report.findings if f.check == "memory")
    ran = subprocess.run(
        [sys.executable, "-c", memory.example], cwd=tmp_path, capture_output=True, text=True
    )
    assert ran.returncode == 1, ran.stderr
    assert "OpCheckError" in ran.stderr
    assert memory.message in ran.stderr


def test_the_example_of_a_program_holds_its_definitions_and_not_its_actions(tmp_path):
    program = tmp_path / "program.py"
    text = Path(snakes.__file__).read_text()
    program.write_text(
        text + "\nfrom miniml.testing import opcheck\nprint('acts')\n"
        "report = opcheck(adder, raise_error=False, checks=['memory'])\n"
        "print(report.findings[0].example)\n"
    )
    printed = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, check=True
    ).stdout
    acts, _, example = printed.partition("\n")
    assert acts == "acts"
    assert "print('acts')" not in example
    ran = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True)
    assert "writes into input 0" in ran.stderr


@pytest.mark.parametrize(("named", "size"), [(True, 4), (False, 1), (False, 0)])
def test_the_smallest_call_names_the_cause_that_a_larger_one_names(monkeypatch, named, size):
    """Of swapped gradients at 1 and 0, say, one may be known to be wrong, and no more. Shrinking
    ends where no call is smaller, though an issue shows in empty arrays."""

    def issues(check, call):
        n = call.arrays[0].size
        found = Issue("gradient", f"at {n}", "mend it", named=named and n >= 4)
        return [found] if n >= min(size, 1) else []

    monkeypatch.setattr(run, "issues", issues)
    with plant() as snake_:
        call = Call(snake_, (np.linspace(1, 2, 9),))
        (first,) = issues(None, call)
        issue, shown = run._shrunk(None, "gradient", first, call)
    assert (issue.named, shown.arrays[0].size) == (named, size)


def test_a_kernel_that_loses_the_last_element_of_each_block_is_found(monkeypatch):
    """One element of 4,096, in all dtypes alike; to name it takes gradcheck seconds."""
    monkeypatch.setattr(gradients, "_compared", lambda call, order: iter(()))

    def blocks(x, *, alpha, out):
        snake(x, alpha=alpha, out=out)
        out.reshape(-1)[4095::4096] = 0

    x = np.random.default_rng(0).permutation(np.linspace(-2.0, 2.0, 40_000))
    for kernel, wrong in ((blocks, True), (snake, False)):
        with plant(fn=kernel) as primitive:
            call = Call(primitive, (x,), kind="longest")
            found = list(gradients.gradient_of_long_inputs(call))
        assert bool(found) == wrong, found


@pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux alone")
class TestAKernelThatEndsTheProcess:
    """The kernels below do so in a child of this process alone, lest a test end the others."""

    def crashing(self, x, *, alpha, out):
        if os.getpid() != PID and x.ndim == 0:
            os.kill(os.getpid(), signal.SIGSEGV)
        snake(x, alpha=alpha, out=out)

    def test_is_a_fault_with_its_call_and_line(self):
        with plant(fn=self.crashing) as primitive:
            report = opcheck(primitive, raise_error=False)
        (found,) = report.findings
        assert (found.check, found.severity) == ("kernels", "fault")
        line = self.crashing.__code__.co_firstlineno + 2
        where = f"ends the process by SIGSEGV, in crashing at {__file__}:{line}; nothing else"
        assert "Planted(alpha=0.5)(float64[]) " + where in found.message
        assert "inputs=(x0,), checks=('kernels',))" in found.example

    def test_is_found_in_calls_and_samples_that_are_given(self):
        def number(x, *, alpha, out):
            self.crashing(
                x.reshape(()) if x.size == 1 else x, alpha=alpha, out=out.reshape(x.shape)
            )

        with plant(fn=number) as primitive:
            one = opcheck(primitive, inputs=(np.ones(1),), raise_error=False)
            info = OpInfo(type(primitive), lambda rng, dtype: [Sample((np.ones(1, dtype),))])
            sampled = opcheck(primitive, info, raise_error=False)
        for report in (one, sampled):
            assert "[1]) ends the process by SIGSEGV" in str(report.findings[0])

    def test_what_the_child_does_stays_there(self, capfd):
        here = []

        def counting(x, *, alpha, out):
            here.append(os.write(1, b"called "))
            snake(x, alpha=alpha, out=out)

        with plant(fn=counting) as primitive:
            opcheck(primitive, checks=("kernels run",), raise_error=False)
        assert capfd.readouterr().out.count("called") == len(here) > 0

    def test_a_child_that_hangs_is_ended(self):
        def waiting(x, *, alpha, out):
            if os.getpid() != PID:
                signal.pause()
            snake(x, alpha=alpha, out=out)

        with plant(fn=waiting) as primitive:
            assert opcheck(primitive, checks=("kernels run",)).ok


PID = os.getpid()
