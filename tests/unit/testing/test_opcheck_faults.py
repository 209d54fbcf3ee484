"""Each check finds the fault that it is there for, and says so in a program that shows it."""

import itertools
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import special

from miniml import ops
from miniml.ops.activation import GELU
from miniml.testing import OpInfo, Sample, opcheck
from tests.faults import snakes
from tests.faults.planting import plant, snake
from tests.faults.snakes import TestAdder

COUNT = itertools.count()


def with_bprop(rule):
    return {"bprop": lambda self: rule}


def writes_input(x, *, alpha, out):
    x *= alpha
    snake(x, alpha=alpha, out=out)


def nearly_all(x, *, alpha, out):
    out.reshape(-1)[1:] = (x + np.sin(alpha * x) ** 2 / alpha).reshape(-1)[1:]


def counts(x, *, alpha, out):
    snake(x * x.dtype.type(1 + 0.1 * next(COUNT)), alpha=alpha, out=out)


def in_memory_order(x, *, alpha, out):
    snake(x.ravel("K").reshape(x.shape), alpha=alpha, out=out)


def not_of_scalars(x, *, alpha, out):
    assert x.ndim
    snake(x, alpha=alpha, out=out)


def rougher(x, *, alpha, out):
    snake(x * x.dtype.type(1.001), alpha=alpha, out=out)


def swallows_nan(x, *, alpha, out):
    np.maximum(x, 0, out=out)
    out[np.isnan(x)] = 0


def one_alpha(x, *, alpha, out):
    snake(x, alpha=0.5, out=out)


def keeps_none(self, x, y=None):
    return x


def matrix_rule(self, x):
    return x[::-1]


def known(self, x):
    return np.asarray(x) + 1


def refused(self, x):
    return (x[0], *x[1:])  # an IndexError for 0-d


FAULTS = {
    "a shape turned": ("rules", {"infer_shape": matrix_rule}),
    "a dtype that no kernel gives": ("rules", {"infer_dtype": lambda self, x: np.float32}),
    "a shape of floats": ("refusals", {"infer_shape": lambda self, x: tuple(n / 1 for n in x)}),
    "an IndexError for a sentence": ("refusals", {"infer_shape": refused}),
    "no 0-d inputs": ("kernels run", {"fn": not_of_scalars}),
    "writes its input": ("memory", {"fn": writes_input}),
    "leaves an element": ("memory", {"fn": nearly_all}),
    "falsely in place": (
        "memory",
        {
            "fn": lambda x, *, alpha, out: (out.fill(0), snake(x, alpha=alpha, out=out)),
            "inplace": (0,),
        },
    ),
    "counts its calls": ("repeat", {"fn": counts}),
    "rough in float32": ("kernels", {"letters": ["d->d"], "others": [(rougher, ["f->f"], {})]}),
    "providers differ": ("kernels", {"others": [(rougher, ["d->d"], {"provider": "mine"})]}),
    "order of memory": ("layouts", {"fn": in_memory_order}),
    "swallows NaN": ("special", {"fn": swallows_nan}),
    "knows another value": ("infer_value", {"body": {"infer_value": known}}),
    "equal whatever alpha": (
        "attributes",
        {"body": {"__eq__": lambda s, o: type(s) is type(o), "__hash__": lambda s: 1}},
    ),
    "unhashable": ("attributes", {"body": {"__hash__": None}}),
    "forgets alpha in pickle": ("attributes", {"body": {"__reduce__": lambda s: (type(s), ())}}),
    "no bprop": ("bprop", {"bprop": None}),
    "a gradient too many": ("bprop", with_bprop(lambda x, out, dout: (dout, dout))),
    "no tuple": ("bprop", with_bprop(lambda x, out, dout: dout)),
    "a scalar gradient": ("bprop", with_bprop(lambda x, out, dout: (ops.sum(dout),))),
    "a constant gradient": (
        "gradient cotangents",
        with_bprop(lambda x, out, dout: (dout + ops.cos(x),)),
    ),
    "a gradient of another alpha": (
        "gradient",
        with_bprop(lambda x, out, dout: (dout * (1.0 + ops.sin(2.0 * x)),)),
    ),
    "wrong in order 2": (
        "gradient",
        with_bprop(lambda x, out, dout: (dout * (1.0 + ops.sin(ops.stop_gradient(x))),)),
    ),
    "wrong in float32": (
        "gradient in narrow dtypes",
        with_bprop(
            lambda x, out, dout: (
                dout * (1.0 + ops.sin(x)) * (1.0 if x.dtype == np.float64 else 1.1),
            )
        ),
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found_and_named(fault):
    check, planted = FAULTS[fault]
    with plant(**planted) as primitive:
        report = opcheck(primitive, raise_error=False)
        assert check in [f.check for f in report.findings], str(report)
        found = next(f for f in report.findings if f.check == check)
        assert found.message
        assert found.advice
        compile(found.example, "example", "exec")


FLUSHED = "is 0 where numbers below the smallest normal one are right"


def test_lost_denormals_are_warnings():
    tiny = np.finfo(np.float64).tiny

    def half(x, *, alpha, out):
        np.multiply(x, 0.5, out=out)
        out[np.abs(out) < tiny] = 0

    with plant(fn=half, bprop=None, body={"differentiable": False}) as primitive:
        info = OpInfo(type(primitive), lambda rng, dtype: (), reference=lambda x, alpha: x * 0.5)
        inputs = (np.array([tiny / 2]),)
        report = opcheck(primitive, info, inputs=inputs, checks=("kernels",), raise_error=False)
    assert any(FLUSHED in f.message for f in report.warnings), str(report)
    assert report.ok


def test_a_function_that_ends_a_little_early_is_a_warning():
    info = OpInfo(
        GELU, lambda rng, dtype: (),
        reference=lambda x, approximate: x * np.exp(special.log_ndtr(x)),
    )  # fmt: skip
    report = opcheck(GELU(), info, inputs=(np.array([-38.396]),), checks=("kernels",))
    (found,) = report.findings
    assert (found.severity, FLUSHED in found.message) == ("warning", True)


def test_rows_that_depend_on_each_other_are_found():
    def centred(x, *, alpha, out):
        np.subtract(x, x.mean(axis=0) if len(x) else x, out=out)

    def samples(rng, dtype):
        yield Sample((rng.normal(size=(4, 3)).astype(dtype),))

    with plant(fn=centred, bprop=None, body={"differentiable": False}) as primitive:
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
