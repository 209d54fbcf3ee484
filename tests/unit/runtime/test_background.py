"""Background compilation: calls run on NumPy's kernels until a thread has compiled those in C."""

import contextlib
import os
import shutil
import subprocess
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import numpy as np
import pytest

import miniml as ml
from miniml import nn, ops, optim
from miniml.backends.cc import units
from miniml.errors import PerformanceWarning
from tests.frame.compilers import own_folders, put
from tests.frame.native import needs_compiler
from tests.unit.core.test_scopes import interrupt_all

pytestmark = needs_compiler
X = np.random.default_rng(5).standard_normal((400, 60)).astype(np.float32)
Y = np.arange(400) % 3
_number = count(3)


@pytest.fixture(autouse=True)
def patch(tmp_path, monkeypatch):
    monkeypatch.setattr(units, "_given_up", {})
    with own_folders(tmp_path) as patch, ml.context(providers=()):  # in C where that pays
        yield patch
        for thread in compiling():
            thread.join(60)


@pytest.fixture
def gate(tmp_path, patch):
    """A file without which the compiler does not begin."""
    real = shutil.which(units.TOOLS.command()[0])
    path = tmp_path / "gate"
    put(patch, units.TOOLS, tmp_path, f'until test -e {path}; do sleep 0.02; done; {real} "$@"')
    return path


def compiling():
    return [t for t in threading.enumerate() if t.name == "miniml compiles"]


def finish(gate):
    """Let the compilers begin, and wait for them."""
    gate.touch()
    for thread in compiling():
        thread.join(60)
    assert not compiling()


def function():
    """A function whose kernels no cache has."""
    number = float(next(_number)) + time.time() % 1.0
    return lambda x: ops.sum(ops.tanh(x * number) + ops.exp(x), 1)


def by_numpy(fn, *args):
    with ml.context(providers=("miniml",)):
        return ml.jit(fn)(*args).asnumpy()


def launched(compiled, *args):
    """The sentence on the kernels that calls run now."""
    return next(v for _, v in compiled._kept if v.pending is None).program.launched


def test_calls_run_before_and_after_the_kernels_in_c_are_there(gate):
    fn = function()
    f = ml.jit(fn)
    with ml.context(compile="background"):
        for _ in range(3):
            np.testing.assert_array_equal(f(X).asnumpy(), by_numpy(fn, X))
        assert len(compiling()) == 1  # one thread, however many calls
        finish(gate)
        np.testing.assert_allclose(f(X).asnumpy(), by_numpy(fn, X), rtol=1e-5)
        assert "kernels in C" in launched(f, X)
        again = ml.jit(fn)  # what was compiled is used at once
        np.testing.assert_array_equal(again(X).asnumpy(), f(X).asnumpy())
        assert not compiling()
        assert "kernels in C" in launched(again, X)
    assert f.recompilations == ["first call"]


def test_looking_at_a_program_waits_for_it(gate):
    f = ml.jit(function())
    with ml.context(compile="background"):
        f(X)
        threading.Timer(0.2, gate.touch).start()
        assert "kernels in C" in str(ml.explain(f, X))


def test_only_where_a_run_asks_for_it(gate):
    fn = function()
    f = ml.jit(fn)
    with ml.context(compile="background"):
        f(X)
    threading.Timer(0.2, gate.touch).start()
    np.testing.assert_allclose(f(X).asnumpy(), by_numpy(fn, X), rtol=1e-5)  # it waits
    assert f.recompilations[1].startswith("the context's settings changed: compile from")
    assert "kernels in C" in launched(f, X)


def stepped(steps, before=lambda i: None):
    """Losses and weights of some steps from the same weights."""
    ml.manual_seed(3)
    net = nn.Sequential(nn.Dense(60, 7), nn.Tanh(), nn.Dropout(0.2), nn.Dense(7, 3))
    rate = 0.1 + time.time() % 1e-3
    step = ml.train_step(net, nn.CrossEntropyLoss(), optim.Adam(net.trainable_params(), rate))
    losses = []
    for i in range(steps):
        before(i)
        losses.append(float(step(X, Y)))
    return losses, [p.asnumpy() for p in net.trainable_params()], rate


def test_a_training_step_changes_its_kernels_between_two_steps(gate, monkeypatch):
    with ml.context(compile="background"):
        losses, weights, rate = stepped(8, lambda i: i == 4 and finish(gate))
    monkeypatch.setattr(time, "time", lambda: rate - 0.1)
    expected, of_numpy, same = stepped(8)
    assert same == rate
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    for got, weight in zip(weights, of_numpy, strict=True):
        np.testing.assert_allclose(got, weight, rtol=1e-4, atol=1e-6)


def test_loops_are_compiled_in_the_background_too(gate):
    number = float(next(_number)) + time.time() % 1.0

    def fn(x):
        return ops.scan(lambda h, row: (ops.tanh(h * number + row), ops.sum(h)), x[0], x)[1]

    f = ml.jit(fn)
    with ml.context(compile="background"):
        first = f(X).asnumpy()
        assert compiling()
        finish(gate)
        np.testing.assert_allclose(f(X).asnumpy(), first, rtol=1e-5)
        assert "kernels in C" in launched(f, X)


def test_a_compiler_that_fails_is_a_warning_at_a_later_call(tmp_path, patch):
    gate = tmp_path / "gate"
    waits = f"until test -e {gate}; do sleep 0.02; done"
    fails = f"test $1 = --version || {{ {waits}; echo no space >&2; kill -9 $$; }}"
    put(patch, units.TOOLS, tmp_path, fails)
    fn = function()
    f = ml.jit(fn)
    with ml.context(compile="background"):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            f(X)
        finish(gate)
        with pytest.warns(PerformanceWarning, match="NumPy's kernels take the place") as caught:
            np.testing.assert_array_equal(f(X).asnumpy(), by_numpy(fn, X))
        assert [w.filename for w in caught] == [__file__]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            f(X)


ENDS = """
import os, sys, threading, time
import numpy as np
import miniml as ml
from miniml import ops
ml.set_context(compile="background")
f = ml.jit(lambda x: ops.sum(ops.tanh(x * 1.75) + ops.exp(x), 1))
f(np.ones((400, 60), np.float32))
while not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
{then}
"""


@pytest.mark.parametrize("then", ["", "raise KeyboardInterrupt", "sys.exit(3)"])
def test_no_compiler_outlives_the_process(then, tmp_path, patch):
    whole = f"echo $$ > {tmp_path}/written; mv {tmp_path}/written {tmp_path}/pid"
    put(patch, units.TOOLS, tmp_path, f"{whole}; sleep 300")
    command = [sys.executable, "-c", ENDS.format(then=then), str(tmp_path / "pid")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == {"": 0, "sys.exit(3)": 3}.get(then, -2), done.stderr
    assert done.stderr.count("Error") == 0, done.stderr
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_an_interrupt_leaves_no_lock_with_its_thread_and_compiles_again(monkeypatch):
    """At every step of `load`, of what is there and of what would have to be compiled."""

    def fails(missing):
        raise units.NotCached

    def call():
        with units.cached_only():
            units.load([units.Source("int none;")])

    def attempt():
        with contextlib.suppress(units.NotCached):
            call()

    def is_free():
        for lock in (units._building, units._lock):
            assert lock.acquire(timeout=10)
            lock.release()
        return True

    def check():
        assert not units._cached_only.get()
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(is_free).result()

    monkeypatch.setattr(units, "_load", fails)
    codes = {units.load.__code__, units.cached_only.__code__, call.__code__, attempt.__code__}
    assert interrupt_all(attempt, codes.__contains__, most=200, check=check) > 20
