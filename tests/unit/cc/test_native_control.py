"""Branches and while loops in C, alone, in each other and in scans: their numbers are those of the
same loop written in NumPy; what has no kernel in C is called back; signals and errors get out."""

import os
import signal
import threading

import numpy as np
import pytest

import miniml as ml
from miniml import Primitive, kernel, ops
from miniml.grad import value_and_grad
from tests.frame.native import needs_compiler
from tests.unit.cc.test_native import calls, numbers

pytestmark = needs_compiler
timers = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers here")


@pytest.fixture(autouse=True)
def natively():
    # Cheap branches stay branches.
    with ml.context(providers=("cc",), disabled_passes="selections"):
        yield


class NatOwnRow(Primitive):
    """x times 2, by a kernel in Python alone; it refuses what begins with NaN."""

    def infer_shape(self, x):
        return x

    def infer_dtype(self, x):
        return x


@kernel("NatOwnRow", "cpu", "f->f", "d->d")
def own_row(x, *, out):
    if np.isnan(x.flat[0]):
        raise RuntimeError("the first number is not one")
    np.multiply(x, 2.0, out=out)


own = NatOwnRow()


def run(fn, *given):
    """The outputs of a compiled function that is one native call; the same at its second call."""
    program = ml.jit(fn)
    first, second = (ml_leaves(program(*given)) for _ in range(2))
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a, b)
    assert calls(program.compiled(*given).program.source) == (1, [])
    return first


def ml_leaves(outs):
    return [out.asnumpy() for out in (outs if isinstance(outs, (tuple, list)) else [outs])]


def close(found, *expected):
    for out, right in zip(found, expected, strict=True):
        np.testing.assert_allclose(out, right, 1e-5, 1e-6)


# --- Branches -------------------------------------------------------------------------------------


def choose(x, y):
    """Branches that share operands, leave one as it is, give one twice, and make a view."""
    return ops.cond(
        ops.sum(x) > 0.0,
        lambda: (x + y, x, x + y, ops.reshape(y.T, (3, 4))),
        lambda: (ops.exp(y), y, x * 2.0, y[::-1] - x),
    )


@pytest.mark.parametrize("sign", [1.0, -1.0, np.nan])
def test_a_branch_is_the_one_that_holds(sign):
    x, y = np.abs(numbers(3, 4)) * np.float32(sign), numbers(3, 4, seed=1)
    if x.sum() > 0.0:
        expected = x + y, x, x + y, y.T.reshape(3, 4)
    else:  # of NaN too, which no comparison holds of
        expected = np.exp(y), y, x * 2.0, y[::-1] - x
    close(ml_leaves(ml.jit(choose)(x, y)), *expected)


def test_a_branch_is_one_call_and_its_choice_is_made_at_each_call():
    def fn(x, y):
        return ops.cond(ops.sum(x) > 0.0, lambda: x + y, lambda: ops.cond(
            y[0] > 0.0, lambda: y, lambda: own(x)))  # fmt: skip

    program = ml.jit(fn)
    x, y = np.abs(numbers(4)), numbers(4, seed=1)
    y[0] = 1.0
    for a, b, expected in ((x, y, x + y), (-x, y, y), (-x, -y, -2.0 * x), (x, -y, x - y)):
        close(ml_leaves(program(a, b)), expected)
    assert calls(program.compiled(x, y).program.source) == (1, [])


def walk(h, xs):
    """A scan with a branch in its body, and a row of each step."""

    def step(h, x):
        h = ops.cond(ops.sum(h) < 1.0, lambda: h + x, lambda: ops.sin(h) - x)
        return h, h[0]

    rows, last = ops.scan(step, h, xs)
    return rows, last


def walked(h, xs):
    rows = []
    for x in xs:
        h = h + x if h.sum() < 1.0 else np.sin(h) - x
        rows.append(h[0])
    return np.array(rows, h.dtype), h


def test_a_branch_in_a_scan():
    h, xs = numbers(5), numbers(20, 5, seed=1)
    close(run(walk, h, xs), *walked(h, xs))


def test_the_gradient_of_a_branch_in_a_scan_is_the_slope_of_the_loop_by_hand():
    h, xs = numbers(5).astype("d"), numbers(7, 5, seed=1).astype("d")
    weights = numbers(5, seed=2).astype("d")

    def loss(h, xs):
        return ops.sum(walk(h, xs)[1] * weights)

    value, (dh, dxs) = ml.jit(value_and_grad(loss, (0, 1)))(h, xs)
    by_hand = lambda h, xs: float((walked(h, xs)[1] * weights).sum())  # noqa: E731
    np.testing.assert_allclose(value.item(), by_hand(h, xs), 1e-12)
    for given, slope in ((h, dh.asnumpy()), (xs, dxs.asnumpy())):
        for i in np.ndindex(given.shape):
            kept, given[i] = given[i], given[i] + 1e-6
            above, given[i] = by_hand(h, xs), kept - 1e-6
            below, given[i] = by_hand(h, xs), kept
            np.testing.assert_allclose(slope[i], (above - below) / 2e-6, 1e-6, 1e-6)


# --- While loops ----------------------------------------------------------------------------------


def newton(x, rounds):
    """The square root of x; x stays as it is, and two carried values change places."""

    def step(state):
        i, root, _, same = state
        return i + 1, 0.5 * (root + same / root), root, same

    state = ops.while_loop(lambda s: s[0] < rounds, step, (ml.Tensor(0), x, x * 0.0, x))
    return state[1], state[2], state[0]


@pytest.mark.parametrize("rounds", [0, 1, 2, 7])
def test_a_while_loop_runs_as_often_as_its_condition_holds(rounds):
    x = np.abs(numbers(3, 5)) + 1
    root, before = x, x * 0
    for _ in range(rounds):
        root, before = np.float32(0.5) * (root + x / root), root
    close(run(newton, x, ml.Tensor(rounds)), root, before, rounds)


def test_values_that_change_places():
    """The next of each is the memory of another: Fibonacci's numbers."""
    fn = lambda a, b, n: ops.while_loop(  # noqa: E731
        lambda s: s[2] > 0, lambda s: (s[1], s[0] + s[1], s[2] - 1), (a, b, n)
    )
    a, b = 0, 1
    for n in range(12):
        found = run(fn, ml.Tensor(0), ml.Tensor(1), ml.Tensor(n))
        assert [int(v) for v in found] == [a, b, 0]
        a, b = b, a + b


def test_a_condition_that_is_nan_ends_the_loop():
    fn = lambda x: ops.while_loop(lambda x: x[0] < 10.0, lambda x: x * 3.0, x)  # noqa: E731
    for first in (1.0, np.nan, 20.0, -np.inf):
        x = np.array([first, 1.0], "f")
        if first == -np.inf:
            continue  # it would never end
        expected = x
        while expected[0] < 10.0:
            expected = expected * 3.0
        close(run(fn, x), expected)


def collatz(starts):
    """The steps of each start to 1: a while loop with a branch, in a scan."""

    def steps(n):
        after = lambda s: ops.cond(  # noqa: E731
            s[0] % 2 == 0, lambda n: n // 2, lambda n: 3 * n + 1, s[0]
        )
        return ops.while_loop(lambda s: s[0] > 1, lambda s: (after(s), s[1] + 1), (n, n * 0))[1]

    return ops.scan(lambda total, n: (total + steps(n), steps(n)), ml.Tensor(0), starts)


def test_loops_and_branches_in_each_other():
    starts = np.array([1, 6, 7, 27, 97])
    expected = []
    for start in starts.tolist():
        n, count = start, 0
        while n > 1:
            n, count = n // 2 if n % 2 == 0 else 3 * n + 1, count + 1
        expected.append(count)
    close(run(collatz, starts), expected, sum(expected))


def test_what_a_loop_captures_may_be_a_view_or_strided():
    def fn(x, w):
        return ops.while_loop(
            lambda s: ops.sum(s) < 100.0, lambda s: s + ops.abs(ops.matmul(s, w.T[:3, ::2])), x
        )

    x, w = np.abs(numbers(2, 3)), numbers(6, 5, seed=1)
    for given in (w, np.asfortranarray(w), np.repeat(w, 2, 1)[:, ::2]):
        expected = x
        while expected.sum() < 100.0:
            expected = expected + np.abs(expected @ w.T[:3, ::2])
        close(ml_leaves(ml.jit(fn)(x, given)), expected)


# --- Calls back into Python -----------------------------------------------------------------------


def doubling(h, xs):
    """A primitive with a kernel in Python, among steps in C, on rows, views and carried values."""

    def step(h, x):
        y = own(h) * 0.4 + own(x)
        return ops.tanh(y), (own(y[::-1]), own(x))

    rows, last = ops.scan(step, h, xs)
    return rows[0], rows[1], last


def test_an_own_primitive_is_called_back():
    h, xs = numbers(4), numbers(9, 4, seed=1)
    ys, zs = [], []
    last = h
    for x in xs:
        y = 2 * last * np.float32(0.4) + 2 * x
        last = np.tanh(y)
        ys.append(2 * y[::-1])
        zs.append(2 * x)
    close(run(doubling, h, xs), np.array(ys), np.array(zs), last)
    assert "which calls back for NatOwnRow" in str(ml.explain(ml.jit(doubling), h, xs))


def test_a_users_kernel_cannot_write_to_what_it_reads():
    class NatOwnBad(Primitive):
        def infer_shape(self, x):
            return x

        def infer_dtype(self, x):
            return x

    @kernel("NatOwnBad", "cpu", "f->f")
    def bad(x, *, out):
        x[0] = 5.0
        out[...] = x

    h, xs = numbers(4), numbers(3, 4)
    fn = ml.jit(lambda h, xs: ops.scan(lambda h, x: (NatOwnBad()(h) + x, ()), h, xs)[1])
    with pytest.raises(ValueError, match="read-only") as found:
        fn(h, xs)
    assert any("which it must not write to" in note for note in found.value.__notes__)


def test_an_error_in_a_step_stands_on_the_users_line_with_the_step():
    h, xs = numbers(4), numbers(9, 4, seed=1)
    xs[6, 0] = np.nan
    for reverse in (False, True):
        fn = ml.jit(lambda h, xs, r=reverse: ops.scan(
            lambda h, x: (h + x, own(x)), h, xs, reverse=r))  # fmt: skip
        with pytest.raises(RuntimeError, match="the first number") as found:
            fn(h, xs)
        notes = "\n".join(found.value.__notes__)
        assert "NatOwnRow was called at" in notes
        assert "lambda h, x: (h + x, own(x))" in notes
        assert "in step 6 of the scan" in notes


def test_the_steps_of_all_loops_around_an_error_are_said_and_nothing_is_written():
    p = ml.Parameter(np.zeros(2, "f"), name="p")

    @ml.jit
    def fn(x):
        grown = ops.while_loop(
            lambda s: s[0] < 5,
            lambda s: (s[0] + 1, ops.scan(lambda c, _: (own(c) / (c - 8.0) * (c - 8.0), ()),
                                          s[1], length=2)[1]),
            (ml.Tensor(0), x),
        )[1]  # fmt: skip
        ops.assign(p, grown)
        return grown

    fn(np.array([3.0, 1.0], "f"))
    kept = p.asnumpy().copy()
    with pytest.raises(RuntimeError) as found:
        fn(np.array([2.0, 1.0], "f"))  # 2, 4, 8: then 0 / 0
    notes = [note for note in found.value.__notes__ if note.startswith("in step")]
    assert notes == [
        "in step 1 of the scan, counted from 0",
        "in step 1 of the loop, counted from 0",
    ]
    np.testing.assert_array_equal(p.asnumpy(), kept)
    fn(np.array([3.0, 1.0], "f"))


def test_an_index_that_a_step_computes_is_refused_in_its_step():
    table = numbers(5, 2)
    fn = ml.jit(lambda n: ops.while_loop(
        lambda s: s[0] < n, lambda s: (s[0] + 1, s[1] + ops.gather(ml.Tensor(table), s[0] * 2)),
        (ml.Tensor(0), np.zeros(2, "f")),
    )[1])  # fmt: skip
    close(ml_leaves(fn(ml.Tensor(3))), table[[0, 2, 4]].sum(0))
    with pytest.raises(IndexError, match="6") as found:
        fn(ml.Tensor(4))
    assert any("in step 3 of the loop" in note for note in found.value.__notes__)


def test_threads_call_back_at_once():
    program, h = ml.jit(doubling), numbers(4)
    given = [numbers(50, 4, seed=i) for i in range(4)]
    expected = [ml_leaves(program(h, xs)) for xs in given]
    results = {}

    def call(i):
        with ml.context(providers=("cc",)):
            for _ in range(20):
                results[i] = ml_leaves(program(h, given[i]))

    threads = [threading.Thread(target=call, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i in range(4):
        close(results[i], *expected[i])


# --- Signals --------------------------------------------------------------------------------------


def endless(x):
    """A loop that ends only for numbers below 0."""
    return ops.while_loop(lambda x: ops.sum(x) >= 0.0, lambda x: x * 1.0, x)


@timers
@pytest.mark.parametrize("nested", [False, True])
def test_a_loop_without_an_end_is_interrupted_and_writes_nothing(nested):
    p = ml.Parameter(np.full(2, 7.0, "f"), name="p")

    @ml.jit
    def fn(x, xs):
        end = ops.scan(lambda c, y: (endless(c + y), ()), x, xs)[1] if nested else endless(x)
        ops.assign(p, end)
        return end

    xs = np.zeros((2, 2), "f")
    close(ml_leaves(fn(np.full(2, -1.0, "f"), xs)), np.full(2, -1.0))
    before = signal.signal(signal.SIGALRM, lambda *_: 1 / 0)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(ZeroDivisionError) as found:
            fn(np.ones(2, "f"), xs)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert p.tolist() == [-1.0, -1.0]
    assert any("of the loop" in note for note in found.value.__notes__)
    close(ml_leaves(fn(np.full(2, -2.0, "f"), xs)), np.full(2, -2.0))


@timers
def test_control_c_ends_a_loop_without_an_end():
    timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
    program = ml.jit(endless)
    program(np.full(2, -1.0, "f"))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            program(np.ones(2, "f"))
    finally:
        signal.signal(signal.SIGINT, before)
        timer.join()


@timers
def test_a_handler_may_run_the_program_that_it_interrupts():
    program = ml.jit(lambda x, n: ops.while_loop(
        lambda s: s[1] > 0, lambda s: (s[0] + 1.0, s[1] - 1), (x, n))[0])  # fmt: skip
    inner = []
    x, many = np.zeros(3, "f"), ml.Tensor(4_000_000)
    program(x, ml.Tensor(1))

    def handler(*_):
        inner.append(program(x + 5.0, ml.Tensor(3)).tolist())

    before = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        close(ml_leaves(program(x, many)), np.full(3, 4_000_000.0))
    finally:
        signal.signal(signal.SIGALRM, before)
    assert inner == [[8.0, 8.0, 8.0]]
