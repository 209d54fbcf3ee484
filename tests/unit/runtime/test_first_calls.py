"""First calls that race, fail or are interrupted: one compilation, counted once, and right."""

import os
import signal
import threading
import time

import numpy as np
import pytest

import miniml as ml
from miniml import nn, ops, optim
from miniml.core.access import Access
from miniml.runtime.jit import Jit
from tests.conftest import DEEP

X = np.random.default_rng(0).normal(size=(16, 6)).astype(np.float32)
RACES = 60 if DEEP else 6


class Traced:
    """A function that takes its time to be traced, and fails the first times."""

    def __init__(self, failures=0):
        self.failures, self.count = failures, 0

    def __call__(self, x):
        self.count += 1
        failed = self.count <= self.failures
        time.sleep(0.005)
        if failed:
            raise OSError("a file that the function reads is gone")
        return ops.tanh(x * 1.5 + 1.0) @ np.ones((6, 3), np.float32)


def raced(calls):
    """What each of these calls gives or raises, all begun at the same time."""
    start, results = threading.Barrier(len(calls)), [None] * len(calls)

    def call(i):
        start.wait()
        try:
            results[i] = calls[i]()
        except OSError as error:
            results[i] = error

    threads = [threading.Thread(target=call, args=(i,)) for i in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    return results


@pytest.mark.larger
@pytest.mark.parametrize("seed", range(RACES))
def test_threads_that_race_a_first_call_share_one_compilation(seed):
    """Of each kind of arguments; those whose turn it is when it fails raise, others try again."""
    draw = np.random.default_rng(seed)
    failures, sizes = int(draw.integers(3)), int(draw.integers(1, 4))
    fn = Traced(failures)
    quick = Jit(fn)
    rows = [int(draw.integers(1, 1 + sizes)) for _ in range(8)]
    results = raced([lambda n=n: quick(X[:n]) for n in rows])
    failed = [r for r in results if isinstance(r, OSError)]
    assert len(failed) == failures
    plain, kinds = Traced(), set()
    for n, result in zip(rows, results, strict=True):
        if not isinstance(result, OSError):
            np.testing.assert_allclose(result.asnumpy(), np.asarray(plain(X[:n])), rtol=1e-6)
            kinds.add(n)
    assert fn.count == failures + len(kinds)
    assert len(quick.recompilations) == len(kinds)
    assert not any("cell" in reason or "thread" in reason for reason in quick.recompilations)


def test_steps_that_race_are_compiled_once_and_all_are_taken():
    net = nn.Sequential(nn.Dense(6, 4), nn.Dropout(0.2), nn.Dense(4, 2))
    sgd = optim.Adam(net.trainable_params(), lr=0.01)
    step = ml.train_step(net, nn.MSELoss(), sgd)
    y = np.ones((16, 2), np.float32)
    raced([lambda: step(X, y)] * 6)
    assert step.recompilations == ["first call"]
    assert int(sgd.parameters_dict()["step"]) == 6


def test_a_compilation_that_is_interrupted_is_not_counted_and_others_go_on():
    traced, others = [], []

    def fn(x):
        traced.append(threading.current_thread())
        if len(traced) == 1:
            thread.start()
            time.sleep(0.01)
            signal.raise_signal(signal.SIGALRM)
        return x * 2.0

    def late(number, frame):
        raise TimeoutError

    quick = Jit(fn)
    thread = threading.Thread(target=lambda: others.append(quick(X)))
    old = signal.signal(signal.SIGALRM, late)
    try:
        with pytest.raises(TimeoutError):
            quick(X)
    finally:
        signal.signal(signal.SIGALRM, old)
    thread.join(60)
    np.testing.assert_array_equal(others[0].asnumpy(), X * 2.0)
    np.testing.assert_array_equal(quick(X).asnumpy(), X * 2.0)
    assert len(traced) == 2
    assert quick.recompilations == ["first call"]


def test_a_thread_inside_a_section_does_not_wait_for_one_that_waits_for_it():
    p, tracing = ml.Parameter(np.ones(3, np.float32)), threading.Event()

    def fn(x):
        tracing.set()
        time.sleep(0.02)
        Access("reading", reads=(p,)).run(lambda: None)
        return x * 2.0

    quick = Jit(fn)
    thread = threading.Thread(target=quick, args=(X,))

    def inside():
        thread.start()
        assert tracing.wait(60)
        return quick(X)

    out = Access("writing", writes=(p,)).run(inside)
    thread.join(60)
    assert not thread.is_alive()
    np.testing.assert_array_equal(out.asnumpy(), X * 2.0)
    assert "another thread compiled" in quick.recompilations[-1]


def test_a_child_of_a_fork_compiles_what_a_thread_of_its_parent_was_compiling():
    tracing, go = threading.Event(), threading.Event()

    def fn(x):
        tracing.set()
        go.wait(60)
        return x * 2.0

    quick = Jit(fn)
    thread = threading.Thread(target=quick, args=(X,))
    thread.start()
    assert tracing.wait(60)
    child = os.fork()
    if not child:
        signal.alarm(30)
        go.set()
        status = 1
        try:
            status = int(not np.array_equal(quick(X).asnumpy(), X * 2.0))
        finally:  # else the child would go on as a test process of its own
            os._exit(status)
    _, status = os.waitpid(child, 0)
    go.set()
    thread.join(60)
    assert status == 0
