"""opcheck as it is called: its report, its options, what it passes and what it says it skipped."""

import ast
import pickle
import re
import subprocess
import sys
import time

import numpy as np
import pytest

import miniml as ml
from miniml import ops
from miniml.errors import ArityError
from miniml.testing import OpCheckError, OpInfo, Sample, assert_op, opcheck
from miniml.testing.calls import Call, launched
from miniml.testing.opchecks import CHECKS, devices, session
from miniml.testing.opchecks.draws import drawn
from miniml.testing.opchecks.run import FIRST, REST
from miniml.testing.opchecks.session import chosen
from tests.faults.planting import plant
from tests.opinfo import ROWS

# Checks that have nothing to look at in a primitive of one float input without CUDA kernels.
ELSEWHERE = {
    "infer_value", "batching", "devices", "devices with long inputs", "in C", "integers",
    "one array twice", "sizes", "gradient of broadcast inputs", "facts", "ranks",
}  # fmt: skip


def test_a_correct_primitive_passes_without_being_given_anything():
    with plant() as snake:
        report = opcheck(snake)
    assert report.ok
    assert not report.findings
    for name in set(CHECKS) - ELSEWHERE:
        assert report.calls[name] > 0, name
    assert "own float64 kernel" in str(report)


def with_cuda(snake, *letters):
    """A kernel that rounds once where the one for the CPU rounds twice, on every machine."""
    ml.elementwise_kernel(snake.name, "fma(sin(alpha * x), sin(alpha * x) / alpha, x)", *letters)


def test_kernels_of_absent_devices_are_named(monkeypatch):
    monkeypatch.setattr(devices, "available", lambda: "there is no C++ compiler")
    with plant() as snake:
        with_cuda(snake, "f->f", "d->d")
        report = opcheck(snake, checks=["rules", "devices"])
    (note,) = (n for n in report.notes if n.startswith("not checked"))
    assert "because there is no C++ compiler: cuda f->f (miniml), cuda d->d (miniml)" in note


@pytest.mark.skipif(bool(devices.available()), reason="no C++ compiler here")
def test_cuda_kernels_run_in_the_simulator():
    with plant() as snake:
        with_cuda(snake, "f->f", "d->d")
        report = opcheck(snake, checks=["devices"])
    (note,) = (n for n in report.notes if "simulator" in n)
    assert note.endswith("not on a GPU: cuda f->f (miniml), cuda d->d (miniml)")
    (apart,) = (n for n in report.notes if "units in the last place" in n)
    assert "cuda f->f (miniml) from the kernel in float64" in apart
    assert "cuda f->f (miniml) from cpu f->f (miniml)" in apart


@pytest.mark.parametrize("seed", [None, 3, 14])
def test_every_check_sees_every_float_dtype(seed):
    with plant(letters=("f->f", "d->d", "e->e", "E->E"), fn=in_float32) as snake:
        calls = [c for c in drawn(snake, seed, lambda call: True) if launched(c)]
        for check in (*FIRST, *REST):
            if check.name == "in C":  # of what was planted before, an expression may be left
                continue
            seen = {c.dtypes[0].name for c in chosen(check, calls)}
            expected = {
                **{name: {"float64"} for name in IN_FLOAT64},
                "gradient in narrow dtypes": {"float32", "float16", "bfloat16"},
                **{name: set() for name in ELSEWHERE},
            }.get(check.name, {"float16", "float32", "float64", "bfloat16"})
            few = check.limit < len(expected)
            assert seen <= expected if few else seen == expected, check.name


IN_FLOAT64 = (
    "gradient", "gradient with other attributes", "gradient of long inputs", "precision",
    "isolated values",
)  # fmt: skip


def in_float32(x, *, alpha, out):
    wide = x.astype(np.float32) if x.dtype.itemsize == 2 else x
    np.copyto(out, wide + np.sin(alpha * wide) ** 2 / alpha, casting="unsafe")


def test_layouts_stand_in_findings_and_in_their_programs(tmp_path):
    def backwards(x, *, alpha, out):
        np.copyto(out, x + 1 if any(s < 0 for s in x.strides) else x)

    with plant(fn=backwards, bprop=None, body={"differentiable": False}) as faulty:
        report = opcheck(faulty, raise_error=False, checks=["layouts"])
        (finding,) = report.findings
        assert "reversed" in finding.message
        said = re.search(r"layouts=(\(.*?\)), checks", finding.example)[1]
        again = opcheck(
            faulty, inputs=(np.ones(2),), layouts=ast.literal_eval(said), checks=["layouts"],
            raise_error=False,
        )  # fmt: skip
        assert [f.check for f in again.findings] == ["layouts"]
        fine = opcheck(faulty, inputs=(np.ones(2),), layouts=("sliced",), checks=["layouts"])
        assert not fine.findings


def test_unknown_layouts_are_refused_by_name():
    with pytest.raises(ArityError, match=r"knows no layouts \['sideways'\].*Fortran-ordered"):
        opcheck(ops.Exp(), inputs=(np.ones(2),), layouts=["sideways"])


def test_it_raises_with_the_report_unless_told_not_to():
    with plant(fn=lambda x, *, alpha, out: None) as faulty:
        with pytest.raises(OpCheckError, match="memory") as caught:
            opcheck(faulty, checks=["memory"])
        with pytest.raises(AssertionError):
            assert_op(faulty)
        report = opcheck(faulty, raise_error=False, checks=["memory"])
    assert not caught.value.report.ok
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    first = report.findings[0]
    assert (first.check, first.severity) == ("memory", "fault")
    assert first.message in str(report)
    assert first.advice in str(report)
    assert "opcheck(" in first.example


def test_faults_come_before_warnings():
    def forgets_nan(x, *, alpha, out):
        np.copyto(out, np.where(x == x, x, 1))  # a warning: nothing says that a NaN should come

    with plant(fn=forgets_nan, bprop=lambda self: lambda x, out, dout: (3.0 * dout,)) as faulty:
        report = opcheck(faulty, raise_error=False)
    severities = [f.severity for f in report.findings]
    assert severities == sorted(severities)
    assert {"fault", "warning"} == set(severities)
    assert [f.check for f in report.warnings] == ["special"]


def test_the_same_is_drawn_unless_a_seed_says_otherwise():
    seen = []

    def noting(x, *, alpha, out):
        seen[-1] += (x.shape, x.tobytes())
        np.copyto(out, x)

    with plant(fn=noting) as snake:
        for seed in (None, None, 1, 1, 2):
            seen.append(())
            opcheck(snake, seed=seed, checks=["rules"], raise_error=False)
    assert seen[0] == seen[1]
    assert seen[2] == seen[3]
    assert len(set(seen)) == 3


def test_a_budget_ends_a_gradient_check_that_has_begun():
    calls = []

    def slow(x, *, alpha, out):
        calls.append(1)
        end = time.process_time() + 0.01
        while time.process_time() < end:
            pass
        np.add(x, np.sin(alpha * x) ** 2 / alpha, out=out)

    with plant(slow) as snake:
        given = (np.array([0.3, 2.0]),)
        report = opcheck(snake, budget=0.2, inputs=given, checks=["gradient"])
    assert len(calls) < 60
    assert any("budget was used up in gradient" in n for n in report.notes)


def test_a_budget_ends_it_and_says_where():
    def slow(x, *, alpha, out):
        time.sleep(0.01)
        np.copyto(out, x)

    with plant(fn=slow) as snake:
        start = time.monotonic()
        report = opcheck(snake, budget=0.5, raise_error=False)
        assert time.monotonic() - start < 12.0
    assert any("budget was used up in" in n for n in report.notes)


def test_one_call_can_be_checked_alone():
    report = opcheck(ops.Exp(), inputs=(np.array([0.5]),), checks=("kernels", "gradient"))
    assert report.calls == {"kernels": 1, "gradient": 1}


def test_what_is_no_primitive_or_no_check_is_refused_by_name():
    with pytest.raises(ArityError, match="takes a Primitive; got"):
        opcheck(np.exp)
    with pytest.raises(ArityError, match="knows no checks"):
        opcheck(ops.Exp(), checks=["speed"])
    with pytest.raises(ArityError, match="PutAlongAxisAdd"):
        opcheck(ops.PutAlongAxisAdd)


def test_a_class_stands_for_its_defaults():
    assert opcheck(ops.Exp, checks=["rules"]).subject == "Exp()"


def test_without_guessable_inputs_it_asks_for_an_opinfo():
    def only(self, x):
        if len(x) != 2 or (3 + x[1]) * x[0] + x[1] * x[1] != 179:
            raise ml.errors.ShapeError(f"{self.name} takes thirteen by seven; got {x}; reshape it")
        return x

    with plant(infer_shape=only) as picky:
        report = opcheck(picky, raise_error=False)
        assert [(f.check, f.severity) for f in report.findings] == [("draws", "cannot judge")]
        assert not report.ok
        assert not report.faults
        assert "cannot draw inputs" in report.findings[0].message
        assert "takes thirteen by seven" in report.findings[0].message
        assert "OpInfo" in report.findings[0].advice
        info = OpInfo(type(picky), lambda rng, dtype: [Sample((np.ones((13, 7), dtype),))])
        assert opcheck(picky, info).calls["kernels"] == 2


@pytest.mark.parametrize("row", [r for r in ROWS if r.primitive is ops.Gather])
def test_an_opinfo_gives_samples_and_a_reference(row):
    report = opcheck(ops.Gather(1), row)
    assert "compared with the OpInfo's reference" in str(report)


def test_calls_are_drawn_without_hypothesis():
    program = (
        "import sys, miniml; assert 'miniml.testing' not in sys.modules\n"
        "sys.modules['hypothesis'] = None\n"
        "from miniml.testing import opcheck\n"
        "assert opcheck(miniml.ops.Exp(), checks=['rules']).calls['rules'] > 20"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.skipif(bool(devices.available()), reason="no C++ compiler here")
def test_what_an_infinity_becomes_as_an_integer_is_left_to_machines():
    report = opcheck(
        ops.Cast(np.dtype(np.int8)), inputs=(np.array(-0.4, "f"),), checks=("devices",)
    )
    assert report.ok
    assert not report.findings


def test_a_reproduction_spells_dtypes_as_numpy_takes_them():
    call = Call(ops.Cast(np.dtype(np.int8)), (np.ones(2, np.float32),))
    program = session.program("kernels", call, call.primitive)
    assert "Cast(dtype=np.dtype('int8'))" in program


def test_a_primitive_takes_one_call():
    with pytest.raises(ArityError, match="takes the inputs of one call, a tuple; got a list"):
        opcheck(ops.Sin(), inputs=[(1.0,)])
