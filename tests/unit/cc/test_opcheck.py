"""opcheck compares kernels in C with NumPy's; everything else in it compiles nothing."""

from dataclasses import replace

import numpy as np
import pytest

import miniml as ml
from miniml import Primitive, elementwise_kernel, kernel, ops
from miniml.backends.cc import units
from miniml.backends.cc.native import NativeKernel
from miniml.backends.cc.units import Source
from miniml.grad import bprop_getters
from miniml.testing import gradcheck, opcheck
from miniml.testing.calls import calls, dtypes_of
from miniml.testing.opchecks.relations import check_in_c, compile_all, related
from tests.frame.native import needs_compiler
from tests.opinfo import ROWS

X = np.linspace(-2, 3, 11)


@pytest.fixture(autouse=True)
def by_default():
    with ml.context(providers=()):
        yield


class CcSnake(Primitive):
    """x + sin(alpha x)^2 / alpha."""

    alpha: float = 1.0

    def infer_shape(self, x):
        return x

    def infer_dtype(self, x):
        return x


@bprop_getters.register(CcSnake)
def _snake_grad(self):
    return lambda x, out, dout: (dout * (1.0 + ops.sin(2.0 * self.alpha * x)),)


@kernel("CcSnake", "cpu", "f->f", "d->d")
def snake(x, *, alpha, out):
    np.add(x, np.sin(alpha * x) ** 2 / alpha, out=out)


RIGHT = "x + sin(alpha * x) * sin(alpha * x) / alpha"


def checked(expression, *checks):
    elementwise_kernel("CcSnake", expression, "f->f", "d->d")
    return opcheck(CcSnake(0.5), checks=checks or ("in C",), raise_error=False)


@needs_compiler
def test_an_expression_of_a_user_is_checked():
    report = checked(RIGHT)
    assert report.ok, str(report)
    assert report.calls["in C"] > 3


@needs_compiler
@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (RIGHT.replace("sin(alpha * x) *", "cos(alpha * x) *"), "gives other numbers than NumPy's"),
        (f"x < T(1e30) ? {RIGHT} : T(0)", "on special numbers"),
        (f"x == x ? {RIGHT} : T(0)", "on special numbers"),
        (f"{RIGHT} + (x & x)", "CompileError"),
    ],
    ids=["formula", "infinity", "NaN", "does not compile"],
)
def test_a_wrong_expression_is_found(expression, message):
    try:
        report = checked(expression)
    finally:
        checked(RIGHT)
    (finding,) = report.findings
    assert (finding.check, finding.severity) == ("in C", "fault")
    assert message in finding.message
    assert "CcSnake(alpha=0.5)(" in finding.message


class CcTwice(Primitive):
    """2 x."""

    def infer_shape(self, x):
        return x

    def infer_dtype(self, x):
        return x


@kernel("CcTwice", "cpu", "f->f")
def twice(x, *, out):
    np.multiply(x, 2, out=out)


FAULTS = {
    "vectors without a tail": "for (long i = 0; i < N / 4 * 4; ++i) y[i] = 2 * x[i];",
    "the last of many": "for (long i = 0; i < N - (N > 100000); ++i) y[i] = 2 * x[i];",
    "infinities": "for (long i = 0; i < N; ++i) y[i] = x[i] - x[i] == 0 ? 2 * x[i] : 0;",
    "another result each time": "static int n; ++n; for (long i = 0; i < N; ++i) y[i] = n * x[i];",
}


@needs_compiler
@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_kernel_is_found(fault):
    class Wrong(NativeKernel):
        def prepare(self, node):
            text = FAULTS[fault].replace("N", str(node.inputs[0].size))
            begin = "const float *x = (const float *)at[0]; float *y = (float *)at[1];"
            self.source = Source(f"void KERNEL(char *const *at) {{ {begin} {text} }}")

    kernel("CcTwice", "cpu", "f->f", provider="cc", total=True)(Wrong)
    report = opcheck(CcTwice(), checks=("in C",), raise_error=False)
    assert {f.check for f in report.faults} == {"in C"}, str(report)


def test_nothing_else_compiles(monkeypatch):
    for module in (units, units):
        monkeypatch.setattr(module, "load", None)
    assert checked(RIGHT, "kernels", "graph", "state", "threads", "attributes", "bprop").ok
    assert gradcheck(CcSnake(0.5), X, mode=ml.GRAPH_MODE).ok
    with ml.context(providers=("miniml",)):
        assert "in C" not in checked(RIGHT, "in C", "rules").calls


def of_float32(row):
    """The first call of a row that programs compute in C, of float32 where the row has it."""
    dtype = np.dtype(np.float32)
    dtype = dtype if dtype in dtypes_of(row) else dtypes_of(row)[0]
    found = calls(row, dtype, np.random.default_rng(0))
    return next(filter(check_in_c, found), None)


@needs_compiler
def test_every_primitive_computes_in_c_what_it_computes_in_numpy(monkeypatch):
    """Their kernels are one unit, as a program may have any of them beside any other: none of the
    texts that they share gives to a name another meaning than another one does."""
    found, asked = [call for call in map(of_float32, ROWS) if call is not None], []
    assert len(found) > 90
    with monkeypatch.context() as patch:
        load = units.load_with_services
        note = lambda sources: asked.append(sources) or load(sources)  # noqa: E731
        patch.setattr(units, "load_with_services", note)
        compile_all(found)
    (sources,) = asked
    shared = tuple(dict.fromkeys(text for source in sources for text in source.shared))
    only_read = [*units.FLAGS, "-fsyntax-only", "-x", "c", "-"]
    units.TOOLS.run(only_read, units.unit([Source("", shared)]))
    assert [issue.message for call in found for issue in related("in C")(call)] == []


@needs_compiler
@pytest.mark.deep
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.primitive.__name__)
def test_every_dtype(row):
    opcheck(row.primitive, replace(row, refused=()), checks=("in C",), budget=120)
