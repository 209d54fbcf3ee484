"""A Scan whose body is all in C is one native call, with the results of the loop in Python."""

import gc
import signal
import threading
import weakref
from contextvars import copy_context

import numpy as np
import pytest

import miniml as ml
from miniml import ops
from miniml.backends.cc import native
from miniml.grad import grad, value_and_grad
from miniml.runtime.control import ScanKernel
from miniml.runtime.executor import Natives, joined
from miniml.runtime.memory import Copy, Memory
from tests.frame.native import NatPlus, NatSlow, NatTwice, needs_compiler
from tests.unit.cc.test_native import calls, numbers

pytestmark = needs_compiler
twice, plus, slow = NatTwice(), NatPlus(), NatSlow()


@pytest.fixture(autouse=True)
def natively():
    with ml.context(providers=("cc",)):
        yield


@pytest.fixture
def in_python(monkeypatch):
    """A function that gives the results of a program whose loops are in Python."""

    def results(fn, *arrays):
        program = ml.jit(fn)
        with monkeypatch.context() as changed:
            prepare = ScanKernel.prepare

            def prepared(self, node):
                prepare(self, node)
                self.native = False

            changed.setattr(ScanKernel, "prepare", prepared)
            outs = program(*arrays)
        assert "Scan" in program.compiled(*arrays).program.source
        return outs

    return results


def leaves(outs):
    return [out.asnumpy() for out in (outs if isinstance(outs, (tuple, list)) else [outs])]


def same(outs, expected):
    for out, right in zip(leaves(outs), leaves(expected), strict=True):
        np.testing.assert_array_equal(out, right)
        assert out.dtype == right.dtype


def rows(length, reverse=False):
    """A loop with rows, values that are carried alone, carried values that are rows, a captured
    value, rows that are given twice and rows that are as they were."""

    def fn(a, b, c, xs, w):
        def step(carry, x):
            a, b, c = carry
            a = ops.tanh(plus(a, x) * 0.5)
            b = ops.sin(b + a)
            return (a, c, b), (a, ops.exp(b), a, x, ops.matmul(c, w))

        (r0, r1, r2, r3, r4), (a, b, c) = ops.scan(step, (a, b, c), xs, length, reverse)
        return a, b, c, r0, r1, r2, r3, r4

    return fn


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("length", [0, 1, 2, 5])
def test_a_loop_in_c_gives_what_one_in_python_gives(in_python, length, reverse):
    fn = rows(length, reverse)
    given = [*(numbers(3, 4, seed=i) for i in range(3)), numbers(length, 3, 4), numbers(4, 4)]
    program = ml.jit(fn)
    expected = in_python(fn, *given)
    for _ in range(2):
        same(program(*given), expected)
    assert calls(program.compiled(*given).program.source) == (1, [])


def test_strided_inputs(in_python):
    fn = rows(5)
    given = [*(numbers(3, 4, seed=i) for i in range(3)), numbers(5, 3, 8)[..., ::2], numbers(4, 4)]
    given[4] = given[4].T
    same(ml.jit(fn)(*given), in_python(fn, *given))


def nested(x, ys):
    """A loop in a loop."""

    def outer(carry, y):
        zs, last = ops.scan(lambda c, z: (plus(c, z), twice(c)), carry, y, reverse=True)
        return twice(last) * 0.25, ops.sum(zs, 0)

    sums, last = ops.scan(outer, x, ys)
    return sums, last


def test_a_loop_in_a_loop(in_python):
    x, ys = numbers(3), numbers(4, 5, 3)
    program = ml.jit(nested)
    expected = in_python(nested, x, ys)
    same(program(x, ys), expected)
    assert calls(program.compiled(x, ys).program.source) == (1, [])


def test_rows_that_are_views_of_each_other_and_of_carried_values():
    def step(h, x):
        y = ops.tanh(h + x)
        return y, (y[0], y.T, ops.reshape(y, (-1,)), y[:, ::2], x[1], h[0])

    h, xs = numbers(3, 4), numbers(5, 3, 4, seed=1)
    expected = [[] for _ in range(6)]
    last = h
    for x in xs:
        y = np.tanh(last + x)
        for rows, row in zip(
            expected, (y[0], y.T, y.reshape(-1), y[:, ::2], x[1], last[0]), strict=True
        ):
            rows.append(row)
        last = y
    found = ml.jit(lambda h, xs: ops.scan(step, h, xs))(h, xs)
    for rows, right in zip((*found[0], found[1]), (*map(np.array, expected), last), strict=True):
        np.testing.assert_allclose(rows.asnumpy(), right, 1e-5, 1e-6)


def lstm(w, h, xs):
    def step(carry, x):
        h, c = carry
        gates = h @ w + x
        c = ops.sigmoid(gates) * c + ops.tanh(gates)
        h = ops.sigmoid(gates) * ops.tanh(c)
        return (h, c), h

    ys, (h, c) = ops.scan(step, (h, ops.zeros_like(h)), xs)
    return ops.sum(ops.square(ys)) + ops.sum(c)


def test_the_gradient_is_a_loop_in_c(in_python):
    gradient = value_and_grad(lstm, (0, 1, 2))

    def flat(*given):
        value, slopes = gradient(*given)
        return value, *slopes

    given = numbers(4, 4), numbers(3, 4, seed=1), numbers(6, 3, 4, seed=2)
    program = ml.jit(flat)
    same(program(*given), in_python(flat, *given))
    assert calls(program.compiled(*given).program.source) == (1, [])
    wide = [np.float64(x) for x in given]
    with ml.context(providers=("miniml",)):
        expected = leaves(ml.jit(flat)(*wide))
    for out, right in zip(leaves(program(*given)), expected, strict=True):
        np.testing.assert_allclose(out, right, 1e-4, 1e-5)


def test_one_node_without_a_kernel_in_c_is_called_back():
    def fn(x, ys):
        return ops.scan(lambda c, y: (ops.svd(plus(c, y))[0], twice(c)), x, ys)[1]

    x, ys = numbers(3, 3), numbers(4, 3, 3)
    program = ml.jit(fn)
    with ml.context(providers=("miniml",)):
        expected = ml.jit(fn)(x, ys)
    same(program(x, ys), expected)
    assert calls(program.compiled(x, ys).program.source) == (1, [])
    assert "a loop in C, which calls back for SVD" in str(ml.explain(program, x, ys))


def recurrence(w, h, xs):
    """Its gradient multiplies by w and by its transpose at each step."""
    last = ops.scan(lambda h, x: (ops.tanh(ops.matmul(h, w) + x), None), h, xs)[1]
    return ops.sum(ops.square(last))


def plus_itself(w, h, xs):
    """What follows the product reads the matrix as well."""
    return ops.scan(lambda h, x: (ops.tanh(ops.matmul(h, w) * 0.1 + w + x), h), h, xs)[0]


def by_what_changes(w, h, xs):
    """The second factor is carried, or a row."""
    step = lambda h, x: (ops.tanh(ops.matmul(w, h) * 0.1 + ops.matmul(h, x) * 0.1), h)  # noqa: E731
    return ops.scan(step, h, xs)[0]


def by_a_part(w, h, xs):
    """The second factor is cut out before the loop."""
    part = lambda h: ops.matmul(h[:, :16], w[16:])  # noqa: E731
    return ops.scan(lambda h, x: (ops.tanh(part(h) + x), h), h, xs)[0]


def by_two(w, h, xs):
    """Two matrices that are packed alike."""
    other = w * -0.5
    return ops.scan(lambda h, x: (ops.tanh(h @ w + ops.sin(h) @ other + x), h), h, xs)[0]


@pytest.mark.parametrize(
    ("fn", "rows", "length", "packed"),
    [
        (by_two, 6, 5, 2),
        (grad(recurrence, (0, 1)), 6, 5, 2),
        (grad(recurrence, (0, 1)), 6, 3, 0),  # steps, which are too few
        (grad(recurrence, (0, 1)), 3, 5, 0),  # rows
        (plus_itself, 32, 5, 0),
        (by_what_changes, 32, 5, 0),
        (by_a_part, 6, 5, 1),
    ],
)
def test_matrices_that_steps_only_read_are_packed_once(
    in_python, monkeypatch, fn, rows, length, packed
):
    before, pack = [], native._packed

    def packing(*given):
        found = pack(*given)
        before.extend(found[0])
        return found

    monkeypatch.setattr(native, "_packed", packing)
    given = numbers(32, 32) * 0.2, numbers(rows, 32, seed=1), numbers(length, rows, 32, seed=2)
    program = ml.jit(fn)
    for _ in range(2):
        same(program(*given), in_python(fn, *given))
    assert len(before) == packed
    assert calls(program.compiled(*given).program.source) == (1, [])


def test_a_part_of_a_matrix_is_not_packed_as_its_beginning(in_python):
    given = numbers(32, 32) * 0.2, numbers(6, 32, seed=1), numbers(5, 6, 32, seed=2)
    with ml.context(disabled_passes=("loops",)):  # else the part is cut out before the loop
        program = ml.jit(by_a_part)
        same(program(*given), in_python(by_a_part, *given))
        assert calls(program.compiled(*given).program.source) == (1, [])


def checking(table, init, labels, indices, row):
    """Losses of each step, and rows looked up in what a step computes; labels of all steps."""

    def step(h, given):
        label, i = given
        h = ops.tanh(h @ table)
        found = ops.gather(ops.concat([h, h * 2.0]), i)
        return h, (ops.cross_entropy(h, label), ops.gather(found, row), i)

    ys, _ = ops.scan(step, init, (labels, indices))
    return ys


def checked(labels=(3, 4), indices=(0, -1), row=(1,)):
    rng = np.random.default_rng(0)
    all_labels, all_indices = rng.integers(0, 5, (6, 2)), rng.integers(0, 4, (6, 3, 2))
    all_labels[4], all_indices[4, 1] = labels, indices
    w, h = numbers(5, 5), numbers(2, 5)
    return w, h, all_labels.astype("i"), all_indices, np.array(row)


def native_calls(program):
    """The calls of a program that is one native run."""
    _, buffers = program.arranged(watched=False, direct=False)
    natives = Natives(Memory(buffers, program.device), program.graph.inputs)
    outs = [f"out{i}" for i, _ in enumerate(s for s in program.steps.compute if type(s) is Copy)]
    (run,), _ = joined(program.steps, outs, natives)
    return run.calls


def test_labels_and_indices_are_checked_before_the_loop():
    program, given = ml.jit(checking), checked()
    with ml.context(providers=("miniml",)):
        expected = leaves(ml.jit(checking)(*given))
    for out, right in zip(leaves(program(*given)), expected, strict=True):
        np.testing.assert_allclose(out, right, 1e-5, 1e-6)
    made = program.compiled(*given).program
    assert calls(made.source) == (1, [])
    order = [call.kernel for call in native_calls(made) if call.kernel in ("copy_bounded", "loop")]
    assert order == [*["copy_bounded"] * 3, "loop"]


@pytest.mark.parametrize("wrong", [{"labels": (0, 5)}, {"indices": (4, 0)}, {"row": (-4,)}])
def test_what_is_refused_in_a_step_is_refused_before_the_loop(wrong):
    given = checked(**wrong)
    with ml.context(providers=("miniml",)), pytest.raises(IndexError) as expected:
        ml.jit(checking)(*given)
    with pytest.raises(IndexError) as found:
        ml.jit(checking)(*given)
    # All steps' labels are checked at once, so that the place found names the step, too.
    said = [str(error.value).partition(", and this is")[0] for error in (found, expected)]
    assert said[0] == said[1]
    lines = [error.value.__notes__[0].splitlines()[1:] for error in (found, expected)]
    assert lines[0] == lines[1]


def test_labels_that_are_computed_are_checked_when_they_are_there():
    """Beside a check of what is given, which runs first."""
    given = checked()
    later = [*given[:2], given[2] + 3, *given[3:]]

    def fn(w, h, labels, *rest):
        return checking(w, h, labels - ops.cast(ops.reshape(rest[-1], ()) * 3, labels.dtype), *rest)

    same(ml.jit(fn)(*later), ml.jit(checking)(*given))
    later[2][4] = 8
    with pytest.raises(IndexError, match="label"):
        ml.jit(fn)(*later)


def test_a_loop_of_no_steps_refuses_nothing():
    w, h, labels, indices, row = checked(row=(7,))
    losses, _, _ = ml.jit(checking)(w, h, labels[:0], indices[:0], row)
    assert losses.shape == (0,)


def test_a_small_step_is_in_c_as_well():
    fn = lambda x, ys: ops.scan(lambda c, y: (c + y, c * 2.0), x, ys)  # noqa: E731
    x, ys = numbers(3), numbers(9, 3)
    with ml.context(providers=()):
        program = ml.jit(fn)
        found = leaves(program(x, ys))
        source = program.compiled(x, ys).program.source
    with ml.context(providers=("miniml",)):
        expected = leaves(ml.jit(fn)(x, ys))
    for out, right in zip(found, expected, strict=True):
        np.testing.assert_array_equal(out, right)
    assert calls(source) == (1, [])


def test_explain_says_that_the_loop_is_in_c():
    assert "a loop in C" in str(ml.explain(ml.jit(nested), numbers(3), numbers(4, 5, 3)))


def slowly(x, ys):
    return ops.scan(lambda c, y: (plus(slow(c), y), twice(c)), x, ys)


def test_threads_have_memory_of_their_own_and_run_at_once():
    program = ml.jit(slowly)
    given = [numbers(2, seed=i) for i in range(4)]
    ys = numbers(2, 2)
    expected = [leaves(program(x, ys)) for x in given]
    results = {}

    def call(i):
        results[i] = leaves(program(given[i], ys))

    threads = [threading.Thread(target=copy_context().run, args=(call, i)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i in range(4):
        for out, right in zip(results[i], expected[i], strict=True):
            np.testing.assert_array_equal(out, right)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers here")
def test_a_signal_waits_until_the_loop_ends():
    p = ml.Parameter(np.zeros(2, "f"), name="p")

    @ml.jit
    def step(x, ys):
        ops.assign(p, ops.scan(lambda c, y: (plus(slow(c), y), None), x, ys)[1])

    step(numbers(2), numbers(2, 2))
    before = signal.signal(signal.SIGALRM, lambda *_: 1 / 0)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        with pytest.raises(ZeroDivisionError):
            step(np.ones(2, "f"), np.ones((2, 2), "f"))
    finally:
        signal.signal(signal.SIGALRM, before)
    assert p.tolist() == [7.0, 7.0]


def test_a_program_that_is_dropped_frees_the_arrays_of_its_loop():
    program, given = ml.jit(nested), (numbers(3), numbers(4, 5, 3))
    program(*given)
    function = program.compiled(*given).program._idle[0].executor.run
    run = next(v for k, v in function.__globals__.items() if k[:3] == "run")
    tables = [weakref.ref(a) for a in run.__self__.kept if type(a) is type(run.__self__)]
    assert tables
    gc.collect()
    gc.disable()
    try:
        del program, function, run
        assert all(table() is None for table in tables)
    finally:
        gc.enable()
