"""Native runs: consecutive kernels in C are one call, whatever arrays a program is given."""

import gc
import re
import signal
import sys
import threading
import time
import weakref
from contextvars import copy_context

import numpy as np
import pytest

import miniml as ml
from miniml import nn, ops, optim
from miniml.backends.cc import native, units
from miniml.errors import OutOfRangeError
from tests.frame.native import NatPlus, NatSlow, NatTwice, needs_compiler

pytestmark = needs_compiler
twice, plus, slow = NatTwice(), NatPlus(), NatSlow()


@pytest.fixture(autouse=True)
def natively():
    with ml.context(providers=("cc",)):
        yield


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype("f")


def calls(source):
    """How often the function of a program calls native runs, and anything else."""
    lines = source.splitlines()[1:-1]
    runs = [line for line in lines if re.match(r"\s*run\d+\(", line)]
    others = [x for x in lines if x not in runs and "unusable" not in x and "= empty" not in x]
    return len(runs), others


def losses(x, labels):
    return ops.cross_entropy(twice(x), labels, ignore_index=100)


@pytest.mark.parametrize("code", "bhilBHIL")
def test_labels_of_every_dtype_are_looked_through_in_the_run(code):
    """Refused ones by NumPy's kernel, in its words, whatever their strides."""
    x, labels = numbers(5, 3), np.array([0, 2, 1, 2, 100])
    whole = np.zeros((5, 2), code)
    whole[:, 1] = labels
    fn = ml.jit(losses)
    with ml.context(providers=("miniml",)):
        expected = ml.jit(losses)(x, whole[:, 1])
    np.testing.assert_allclose(fn(x, whole[:, 1]).asnumpy(), expected.asnumpy(), rtol=1e-6)
    runs, others = calls(fn.compiled(x, whole[:, 1]).program.source)
    assert (runs, others) == (1, [])
    wrong = [3, 101] + [-1] * (code in "bhil") + [2**63 + 1] * (code == "L")
    for label in wrong:
        whole[3, 1] = label
        with pytest.raises(OutOfRangeError, match=rf"label {label} .*, and this is labels\[3\]"):
            fn(x, whole[:, 1])


def test_a_refused_label_leaves_all_that_a_step_changes():
    net = nn.Sequential(nn.Dense(4, 3), nn.Dropout(0.5))
    step = ml.train_step(net, nn.CrossEntropyLoss(), optim.Adam(net.trainable_params(), lr=0.1))
    x, labels = numbers(5, 4), np.array([0, 2, 1, 2, 0])
    step(x, labels)
    before = [p.asnumpy() for p in net.trainable_params()]
    ml.manual_seed(1)
    with pytest.raises(OutOfRangeError, match="label 3"):
        step(x, labels + 1)
    for p, old in zip(net.trainable_params(), before, strict=True):
        np.testing.assert_array_equal(p.asnumpy(), old)
    loss = step(x, labels)
    again = nn.Sequential(nn.Dense(4, 3), nn.Dropout(0.5))
    for p, old in zip(again.trainable_params(), before, strict=True):
        p.set_data(old)
    ml.manual_seed(1)
    plain = ml.train_step(again, nn.CrossEntropyLoss(), optim.SGD(again.trainable_params(), lr=0.1))
    assert float(plain(x, labels)) == float(loss)


def test_indices_that_nothing_reads_may_be_anything():
    """C finds them, and NumPy's kernel lets them pass."""
    x, indices = numbers(4, 3), np.array([0, 3, 99, -99])
    fn = ml.jit(lambda x, i: twice(x[i[:2]]))
    np.testing.assert_array_equal(fn(x, indices).asnumpy(), 2 * x[indices[:2]])
    empty = ml.jit(lambda x, i: twice(x[:0][i]))
    assert empty(x, np.zeros(0, "l")).shape == (0, 3)
    with pytest.raises(OutOfRangeError, match="it has no elements"):
        empty(x, np.zeros(1, "l"))


def test_consecutive_kernels_are_one_call():
    fn = ml.jit(lambda x, y: (plus(twice(x), y), twice(plus(x, y))))
    x, y = numbers(3, 4), numbers(3, 4, seed=1)
    first, second = fn(x, y)
    np.testing.assert_array_equal(first.asnumpy(), 2 * x + y)
    np.testing.assert_array_equal(second.asnumpy(), 2 * (x + y))
    assert calls(fn.compiled(x, y).program.source) == (1, [])


def strided(x):
    return np.repeat(x, 2, axis=1)[:, ::2]


def misaligned(x):
    raw = np.empty(x.nbytes + 1, np.uint8)[1:]
    moved = raw.view(x.dtype).reshape(x.shape)
    moved[...] = x
    return moved


def read_only(x):
    x = x.copy()
    x.flags.writeable = False
    return x


class Subclass(np.ndarray):
    """An array of a user's class."""


LAYOUTS = {
    "strided": strided,
    "transposed": np.asfortranarray,
    "misaligned": misaligned,
    "read-only": read_only,
    "of a subclass": lambda x: x.view(Subclass),
    "reversed": lambda x: x[::-1].copy()[::-1],
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_layout_of_an_input_gives_the_same(layout):
    fn = ml.jit(lambda x, y: plus(twice(x), y))
    x, y = numbers(5, 6), numbers(5, 6, seed=1)
    given = LAYOUTS[layout](x)
    before = given.copy()
    for arrays in ((x, y), (given, y), (y, given), (given, given), (x, y)):
        expected = 2 * np.asarray(arrays[0]) + np.asarray(arrays[1])
        np.testing.assert_array_equal(fn(*arrays).asnumpy(), expected)
    np.testing.assert_array_equal(given, before)


def test_a_program_reads_what_it_can_where_it_is():
    x = numbers(5, 6)
    spec = (x.shape, x.dtype)
    assert native.unusable([spec, spec])(x, read_only(x)) == 0
    swapped = x.astype(x.dtype.newbyteorder())
    others = [*(LAYOUTS[k](x) for k in LAYOUTS if k != "read-only"), swapped, x.astype("d"), x[:4]]
    assert [native.unusable([spec])(other) for other in others] == [1] * len(others)
    assert native.unusable([spec])(x.ravel()) == 1
    assert native.unusable([spec, spec])(x, strided(x)) == 1


def test_byte_swapped_arrays_are_copied_and_other_shapes_refused():
    program = ml.jit(twice).compiled(numbers(5, 6)).program
    x = numbers(5, 6)
    np.testing.assert_array_equal(program(x.astype(">f4"))[0], 2 * x)
    with pytest.raises(ValueError, match=r"got an array of shape \(6, 5\); it takes \(5, 6\)"):
        program(numbers(6, 5))


def test_scalars_and_empty_arrays():
    fn = ml.jit(lambda x: twice(twice(x)))
    assert fn(np.array(1.5, "f")).item() == 6.0
    assert fn(np.empty((0, 3), "f")).shape == (0, 3)


def views(x, y):
    """Views of inputs and of results, as operands and as outputs."""
    first = plus(x.T, y)
    part = twice(x[1:, ::2])
    row = plus(x[2], first[:, 1][:4] if first.shape[0] > 4 else first[:, 1])
    mixed = twice(ops.reshape(first.T, (-1,)))
    return first.T, part, row, mixed, x, x.T, first, ops.reshape(x, (-1,))


def test_views_are_resolved_ahead_of_time():
    x, y = numbers(4, 4), numbers(4, 4, seed=1)
    with ml.context(providers=("miniml",)):
        expected = [out.asnumpy() for out in ml.jit(views)(x, y)]
    fn = ml.jit(views)
    for given in (x, strided(x)):
        for out, result in zip(fn(given, y), expected, strict=True):
            np.testing.assert_array_equal(out.asnumpy(), result)
    assert calls(fn.compiled(x, y).program.source)[0] == 1


def test_a_reshape_that_copies_its_input_is_made_by_python():
    fn = ml.jit(lambda x: twice(twice(ops.reshape(x.T, (-1,)))))
    x = numbers(3, 4)
    np.testing.assert_array_equal(fn(x).asnumpy(), 4 * x.T.reshape(-1))


def test_python_gives_a_kernel_views_of_inputs_of_any_layout():
    """Beside what Python copies, so that the kernel is called by Python too."""
    fn = ml.jit(lambda x, y: ops.concat([x.T, ops.reshape(y.T, (4, 3))]))
    x, y = numbers(3, 4), numbers(6, 2, seed=1)
    for given in (x, strided(x), np.asfortranarray(x)):
        np.testing.assert_array_equal(fn(given, y).asnumpy(), [*x.T, *y.T.reshape(4, 3)])


def test_what_has_no_kernel_in_c_runs_between():
    fn = ml.jit(lambda x, y: twice(ops.svd(plus(twice(x), y))[1]))
    x, y = numbers(3, 4), numbers(3, 4, seed=1)
    expected = 2 * np.linalg.svd(2 * x + y, compute_uv=False)
    np.testing.assert_allclose(fn(x, y).asnumpy(), expected, 1e-5)
    runs, others = calls(fn.compiled(x, y).program.source)
    assert (runs, len(others)) == (2, 1)


def test_outputs_belong_to_the_caller():
    fn = ml.jit(twice)
    a, b = fn(numbers(2, 2)), fn(numbers(2, 2, seed=1))
    np.testing.assert_array_equal(a.asnumpy(), 2 * numbers(2, 2))
    assert not np.may_share_memory(a._data, b._data)


@pytest.fixture
def pair():
    return [ml.Parameter(np.zeros(8, "f"), name=name) for name in "pq"]


def counting(pair):
    """A step that adds x to both parameters, and what it returns."""
    p, q = pair

    @ml.jit
    def step(x):
        out = plus(p, x)
        ops.assign(p, out)
        ops.assign(q, plus(q, x))
        return out

    return step


def test_a_step_and_its_updates_are_one_call(pair):
    step, x = counting(pair), np.ones(8, "f")
    for i in range(1, 4):
        assert step(x).tolist() == [i] * 8
    assert [p.tolist() for p in pair] == [[3.0] * 8] * 2
    assert calls(step.compiled(x).program.source) == (1, [])


def test_parameters_are_exchanged(pair):
    p, q = pair
    p.set_data(np.ones(8, "f"))

    @ml.jit
    def exchange(x):
        old = p + 0.0
        ops.assign(p, q)
        ops.assign(q, old)
        return twice(x)

    @ml.jit
    def swap(x):
        both = p, q
        ops.assign(p, plus(both[1], x))
        ops.assign(q, twice(p))

    exchange(np.ones(3, "f"))
    assert (p.tolist(), q.tolist()) == ([0.0] * 8, [1.0] * 8)
    swap(np.ones(8, "f"))
    assert (p.tolist(), q.tolist()) == ([2.0] * 8, [4.0] * 8)


def test_updates_that_python_computed_are_one_call_too(pair):
    p, q = pair

    @ml.jit
    def step(x):
        made = plus(twice(x), x)
        ops.assign(p, ops.svd(made)[1])
        ops.assign(q, ops.svd(x)[1])
        return made

    x = np.diag(np.arange(8, 0, -1)).astype("f")
    step(x)
    for parameter, expected in ((p, 3 * x), (q, x)):
        np.testing.assert_allclose(parameter.asnumpy(), np.diag(expected), 1e-6)
    *others, last = calls(step.compiled(x).program.source)[1]
    assert last.strip().startswith("consume(map(call, ")
    assert not any("copy" in line and "out" not in line for line in others)


class Stop(Exception):
    """Raised by a handler."""


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers here")
def test_a_signal_finds_all_parameters_new_or_none(pair):
    step, x = counting(pair), np.ones(8, "f")
    step(x)
    seen = []

    def handler(number, frame):
        seen.append(all(np.array_equal(pair[0].asnumpy(), p.asnumpy()) for p in pair))
        raise Stop

    before = signal.signal(signal.SIGALRM, handler)
    try:
        for i in range(200):
            try:
                signal.setitimer(signal.ITIMER_REAL, 1e-5 + i * 1e-6)
                until = time.monotonic() + 5.0
                while True:
                    step(x)
                    if time.monotonic() > until:  # it was raised in a finalizer
                        break
            except Stop:
                pass
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert len(seen) == 200
    assert all(seen)
    np.testing.assert_array_equal(pair[0].asnumpy(), pair[1].asnumpy())


def test_an_error_between_runs_leaves_the_parameters(pair):
    p, _ = pair

    @ml.jit
    def step(x, i):
        ops.assign(p, plus(p, x))
        return ops.gather(twice(x), i)

    with pytest.raises(IndexError):
        step(np.ones(8, "f"), np.array([9]))
    assert p.tolist() == [0.0] * 8
    step(np.ones(8, "f"), np.array([7]))
    assert p.tolist() == [1.0] * 8


def test_other_threads_run_meanwhile():
    fn, x = ml.jit(slow), numbers(2, 2)
    fn(x)
    other = threading.Thread(target=copy_context().run, args=(fn, x))
    began = time.perf_counter()
    other.start()
    counted = 0
    while other.is_alive():
        counted += 1
    assert time.perf_counter() - began > 0.04
    assert counted > 1000


def test_threads_that_call_one_program_have_an_arena_each():
    fn = ml.jit(lambda x: twice(slow(twice(x))))
    given = [np.full((4, 4), i, "f") for i in range(4)]
    fn(given[0])
    results, took = {}, []

    def call(i):
        results[i] = fn(given[i]).asnumpy()

    for _ in range(3):
        threads = [threading.Thread(target=copy_context().run, args=(call, i)) for i in range(4)]
        began = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        took.append(time.perf_counter() - began)
        for i in range(4):
            assert (results.pop(i) == 8 * i).all()
    assert min(took) < 0.2  # one after another they sleep 0.2 s, together 0.05 s


def test_a_program_that_is_dropped_frees_its_tables():
    fn, x = ml.jit(lambda x: twice(twice(x))), numbers(2, 2)
    fn(x)
    program = fn.compiled(x).program
    run = next(v for k, v in program._idle[0].executor.run.__globals__.items() if k[:3] == "run")
    table = weakref.ref(run.__self__)
    assert table() is not None
    gc.collect()
    gc.disable()
    try:
        del fn, program, run
        assert table() is None
    finally:
        gc.enable()


def test_a_call_keeps_no_reference():
    fn, x = ml.jit(twice), numbers(2, 2)
    fn(x)
    count = sys.getrefcount(x)
    for _ in range(10):
        fn(x)
    assert sys.getrefcount(x) == count


def by_c(fn, *args):
    """A compiled function whose tensors C takes and makes, after its first call."""
    fn = ml.jit(fn)
    fn(*args)
    assert fn._latest.compiled.unwrap(*args) is not None
    return fn


def test_tensors_are_taken_and_made_by_c_without_references_left():
    x, y = ml.Tensor(numbers(2, 3)), ml.Tensor(numbers(2, 3, seed=1))
    fn = by_c(lambda x, y: (plus(x, y), {"twice": twice(x)}), x, y)
    held = lambda: [sys.getrefcount(o) for o in (x, x._data, x._kind, y._data, ml.Tensor, None)]  # noqa: E731
    before = held()
    for _ in range(100):
        total, named = fn(x, y)
    made = [weakref.ref(o) for o in (total, total._data, named["twice"], named["twice"]._data)]
    np.testing.assert_array_equal(total.asnumpy(), x.asnumpy() + y.asnumpy())
    np.testing.assert_array_equal(named["twice"].asnumpy(), 2 * x.asnumpy())
    assert {type(t) for t in (total, named["twice"])} == {ml.Tensor}
    assert not total._data.flags.writeable
    assert (total.shape, total.dtype, total.device) == ((2, 3), ml.float32, "cpu")
    del total, named
    assert [o() for o in made] == [None] * 4
    after = held()
    assert after[:4] == before[:4]
    assert all(abs(b - a) < 50 for a, b in zip(before[4:], after[4:], strict=True))


def test_what_c_does_not_take_python_does():
    x = ml.Tensor(numbers(2, 3))
    fn = by_c(plus, x, x)
    unwrap, expected = fn._latest.compiled.unwrap, 2 * x.asnumpy()
    others = ml.Parameter(x.asnumpy(), name="p"), x.asnumpy(), ml.Tensor(numbers(3, 2)), 2.0, None
    assert [unwrap(x, other) for other in others] == [None] * 5
    assert unwrap() is unwrap(x) is unwrap(x, x, x) is None
    for other in others[:2]:
        np.testing.assert_array_equal(fn(x, other).asnumpy(), expected)
    for args in ((x,), (x, x, x)):
        with pytest.raises(ml.errors.ArityError):
            fn(*args)
    np.testing.assert_array_equal(fn(x, x).asnumpy(), expected)


def test_c_takes_no_objects_whose_slots_are_elsewhere():
    x = ml.Tensor(numbers(2, 3))
    assert native.in_slots(x, x._data, x._kind)
    assert not native.in_slots(x, x._kind, x._data)
    assert not native.in_slots(object(), x._data, x._kind)


def test_a_run_copies_arrays_of_any_strides():
    rng = np.random.default_rng(0)
    shapes = [(), (1,), (5,), (2, 3), (4, 1, 3), (2, 3, 4, 5), (0, 3), (3, 0)]
    for dtype in ("?", "e", "f", "d", "D"):
        for shape in shapes:
            whole = np.array(rng.integers(0, 2, [2 * n for n in shape]), dtype)
            half = whole[(..., *[slice(None, None, 2)] * len(shape))]
            wide = np.broadcast_to(half, (2, *half.shape))
            for part in (whole, whole.T, half, half.T, half[..., ::-1] if shape else half, wide):
                target = np.full(part.shape, 7, dtype)
                native.native_run([native.copy(target, part, part)], 0)()
                np.testing.assert_array_equal(target, part)


def test_the_services_begin_once():
    assert units.executor() is units.executor()
