"""When kernels in C are used, and what happens where they cannot be."""

import sys
import warnings

import numpy as np
import pytest

import miniml as ml
from miniml import nn, ops, optim
from miniml.backends.cc import units
from miniml.core.signature import CPU
from miniml.errors import CompileError, DeviceError, MinimlError, PerformanceWarning
from miniml.runtime import launch
from tests.frame.native import NatPlus, NatTwice, native, needs_compiler

twice, plus = NatTwice(), NatPlus()
X = np.arange(6, dtype="f").reshape(2, 3)


@pytest.fixture(autouse=True)
def by_default():
    with ml.context(providers=()):
        yield


def providers(fn, *args):
    return {choice.provider for choice in ml.explain(fn, *args).rows}


@needs_compiler
def test_compiled_programs_prefer_c():
    assert providers(lambda x: plus(twice(x), x), X) == {"cc"}
    assert providers(lambda x: ops.svd(twice(x))[1], X) == {"cc", "miniml"}


SMALL = "too small for kernels in C"


@needs_compiler
@pytest.mark.parametrize(
    "fn", [lambda x: x + x, lambda x: ops.tanh(ops.transpose(x)) * 2.0, lambda x: x.reshape(-1)]
)
def test_what_is_too_small_is_not_compiled(fn):
    assert SMALL in str(ml.explain(fn, X))
    with ml.context(providers=("cc",)):
        assert SMALL not in str(ml.explain(fn, X))
        np.testing.assert_allclose(ml.jit(fn)(X), fn(ml.Tensor(X)), rtol=1e-6)


@needs_compiler
@pytest.mark.parametrize(
    ("fn", "x"),
    [
        (lambda x: ops.tanh(x * 2.0 + 1.0), X),
        (lambda x: x @ x.T, X),
        (lambda x: ops.sum(x, 1), X),
        (lambda x: x + x, np.zeros((2, 513), "f")),
        (ops.sigmoid, X),  # several passes of NumPy
        (lambda x: x % 0.7, X),  # one of NumPy, without vectors
        (ops.cos, X.astype(np.float64)),
        (ops.erfinv, X),  # by SciPy, which takes 200 times as long
        (twice, X),  # a user's kernel in C is wanted for what it does
    ],
)
def test_everything_else_is(fn, x):
    assert "kernels in C: 1, in one call" in str(ml.explain(fn, x))


@needs_compiler
@pytest.mark.parametrize("fn", [ops.sinh, ops.log1p, ops.atan, lambda x: x**0.3])
def test_what_numpy_has_vectors_of_by_avx512_alone_is_compiled_elsewhere(fn):
    vectors = CPU.get("avx512_skx") and sys.platform == "linux"
    assert (SMALL in str(ml.explain(fn, X))) == bool(vectors)


@needs_compiler
def test_explain_counts_the_calls_of_native_kernels():
    found = ml.explain(lambda x: twice(ops.svd(twice(twice(x)))[1]), X)
    assert "\nkernels in C: 3, in 2 calls" in str(found)


def test_with_other_providers_they_do_not():
    with ml.context(providers=("miniml",)):
        assert providers(lambda x: plus(twice(x), x), X) == {"miniml"}


def test_nan_is_found_node_by_node():
    with ml.context(check_nan=True), pytest.raises(ml.errors.NonFiniteError, match="NatTwice"):
        ml.jit(lambda x: twice(x) * 0.0)(np.array([3e38], "f"))


@pytest.mark.parametrize("ranked", [(), ("cc",)])
def test_eager_calls_never_do(monkeypatch, ranked):
    monkeypatch.setattr(units, "load", None)
    monkeypatch.setattr(units, "executor", None)
    with ml.context(providers=ranked):
        np.testing.assert_array_equal(twice(ml.Tensor(X)).asnumpy(), 2 * X)


def test_without_a_compiler_nothing_is_tried(monkeypatch):
    monkeypatch.setattr(launch, "available", lambda: False)
    monkeypatch.setattr(units, "load_with_services", None)
    assert ml.jit(twice)(X).tolist() == (2 * X).tolist()


@pytest.mark.parametrize("error", [CompileError("cc1: it broke"), DeviceError("disk full")])
def test_a_failure_warns_once_and_numpy_computes(monkeypatch, error):
    def fails(sources):
        raise error

    monkeypatch.setattr(launch, "available", lambda: True)
    monkeypatch.setattr(units, "load_with_services", fails)
    units._warn.cache_clear()
    for k, expected in ((1, [PerformanceWarning]), (2, [])):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            fn = ml.jit(lambda x, k=k: twice(twice(x)) * float(k))
            np.testing.assert_array_equal(fn(X).asnumpy(), 4 * k * X)
        assert [w.category for w in caught] == expected
        assert all(str(error) in str(w.message) for w in caught)
        assert "cc" not in providers(twice, X)


class NatBroken(NatTwice):
    """2 x, whose C does not compile."""


@ml.kernel("NatBroken", "cpu", "f->f")
def broken(x, *, out):
    np.multiply(x, 2, out=out)


native("NatBroken", 1, "this is no C")


@needs_compiler
def test_one_text_that_does_not_compile_does_not_stop_others():
    units._warn.cache_clear()
    with pytest.warns(PerformanceWarning, match="NumPy's kernels take the place of those in C"):
        np.testing.assert_array_equal(ml.jit(NatBroken())(X).asnumpy(), 2 * X)
    assert providers(twice, X) == {"cc"}


@needs_compiler
@pytest.mark.parametrize("outside", [twice, NatBroken()])
def test_one_text_in_a_loop_that_does_not_compile_leaves_it_all_to_numpy(outside):
    units._warn.cache_clear()

    def looped(x):
        step = lambda h, row: (NatBroken()(h) + row, twice(h))  # noqa: E731
        return ops.scan(step, outside(x[0]), x)[1]

    with ml.context(jit=False):
        expected = looped(ml.Tensor(X)).asnumpy()
    with pytest.warns(PerformanceWarning, match="NumPy's kernels take the place of those in C"):
        np.testing.assert_array_equal(ml.jit(looped)(X).asnumpy(), expected)


@needs_compiler
@pytest.mark.parametrize(
    "make",
    [lambda: nn.LSTM(8, 16), lambda: nn.GRU(8, 16), lambda: nn.Sequential(nn.LSTM(8, 8), Last())],
)
def test_a_step_with_loops_is_compiled_at_once(monkeypatch, tmp_path, make):
    monkeypatch.setenv("MINIML_CACHE", str(tmp_path))
    monkeypatch.setattr(units, "_loaded", {})
    net, rounds, compiled = Last(make()), [], units._compile
    monkeypatch.setattr(units, "_compile", lambda names: rounds.append(names) or compiled(names))
    step = ml.train_step(net, nn.MSELoss(), optim.SGD(net.trainable_params(), lr=0.1))
    x = np.random.default_rng(0).standard_normal((2, 6, 8)).astype("f")
    target = net(ml.Tensor(x)).asnumpy() + 1
    rounds.clear()
    assert step(x, target).item() > step(x, target).item()
    assert len(rounds) == 1


class Last(nn.Cell):
    """The outputs of a recurrent layer alone, or what it is given."""

    def __init__(self, layer=None):
        super().__init__()
        self.layer = layer

    def construct(self, x):
        x = x if self.layer is None else self.layer(x)
        return x[0] if isinstance(x, tuple) else x


@needs_compiler
def test_branches_and_loops_run_them():
    fn = ml.jit(lambda x: ops.cond(ops.sum(x) > 0, twice, lambda x: plus(x, x), x))
    np.testing.assert_array_equal(fn(X).asnumpy(), 2 * X)
    np.testing.assert_array_equal(fn(-X).asnumpy(), -2 * X)


@needs_compiler
def test_memory_is_reused_where_the_kernel_says_so():
    fn = ml.jit(lambda x: twice(twice(twice(twice(x)))))
    fn(X)
    assert fn.compiled(X).program.plan.size == 64
    np.testing.assert_array_equal(fn(X).asnumpy(), 16 * X)


@needs_compiler
def test_the_number_of_threads_is_a_setting():
    with ml.context(threads=1):
        assert ml.core.settings.current().threads == 1
        np.testing.assert_array_equal(ml.jit(twice)(X).asnumpy(), 2 * X)
    assert ml.core.settings.current().threads == 0


@pytest.mark.parametrize("threads", [-1, 1.5, True, "two"])
def test_other_numbers_of_threads_are_refused(threads):
    with pytest.raises(MinimlError, match=r"threads=.*; expected an int >= 0"):
        ml.set_context(threads=threads)


class NatHalf(ml.Primitive):
    """x / 2, with no expression."""

    like = "x"
    inputs = ("x",)


class NatBoth(ml.Primitive):
    """sin(x) and cos(x)."""

    outputs = ("sin", "cos")

    def infer_shape(self, x):
        return x, x

    def infer_dtype(self, x):
        return x, x


class NatRows(ml.Primitive):
    """The sum of each row."""

    def infer_shape(self, x):
        return x[:-1]

    def infer_dtype(self, x):
        return x


@ml.kernel("NatHalf", "cpu", "f->f", "d->d")
def half(x, *, out):
    np.multiply(x, 0.5, out=out)


@ml.kernel("NatBoth", "cpu", "f->ff")
def both(x, *, out):
    np.sin(x, out=out[0])
    np.cos(x, out=out[1])


@ml.kernel("NatRows", "cpu", "f->f")
def rows(x, *, out):
    np.sum(x, -1, out=out)


def unfused(fn, dtype="f"):
    found = ml.explain(lambda x: ops.exp(fn(ops.tanh(x) + 1.0) * 2.0), np.ones((64, 32), dtype))
    return [line for line in found.apart if line.startswith("Nat")]


@needs_compiler
def test_explain_says_why_a_primitive_of_the_users_stands_alone():
    (said,) = unfused(lambda x: NatBoth()(x)[0])
    assert said == "NatBoth(): it has 2 outputs, and an expression gives one"
    (said,) = unfused(NatRows())
    assert "another shape; a function of operations in its place would be fused" in said
    with ml.context(providers=("miniml",)):
        assert unfused(NatHalf()) == []


@needs_compiler
def test_what_explain_advises_fuses_the_primitive():
    for dtype, codes, lacks in ("f", "f->f", "it has no expression"), ("d", "d->d", "is for f->f;"):
        (said,) = unfused(NatHalf(), dtype)
        assert lacks in said
        assert repr(codes) in said or f"register it for {codes}" in said
        ml.elementwise_kernel("NatHalf", "x * 0.5", codes)
        assert unfused(NatHalf(), dtype) == []
