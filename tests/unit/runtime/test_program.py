"""Programs: the numbers of op by op, no memory per call, a whole step or none of it."""

from __future__ import annotations

import gc
import re
import sys
import threading
import tracemalloc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import miniml as ml
from miniml import nn, ops, optim
from miniml.errors import ArityError, NonFiniteError
from miniml.ops import Unary
from miniml.runtime.program import Program

Array = np.ndarray[Any, Any]


def program(fn: Callable[..., Any], *args: Any) -> Program:
    """`fn` compiled as it was traced, without passes."""
    return Program(ml.trace(fn, *args))


def array(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def test_a_program_computes_what_the_operations_compute() -> None:
    def fn(x: Any, y: Any) -> Any:
        a = ops.sin(x * y) + ops.exp(y)
        return ops.sum(a * a, 0), ops.transpose(a), ops.max(a, 1)

    x, y = array(3, 4), array(4, seed=1)
    for made, wanted in zip(program(fn, x, y)(x, y), fn(ml.Tensor(x), ml.Tensor(y)), strict=True):
        np.testing.assert_array_equal(made, wanted.asnumpy())


def test_views_cost_no_step_when_their_source_is_planned() -> None:
    def fn(x: Any) -> Any:
        a = ops.exp(x)
        return ops.sum(ops.transpose(ops.reshape(a, (4, 3)))[1:], 1)

    x = array(3, 4)
    made = program(fn, x)
    assert "view" not in made.source
    np.testing.assert_allclose(made(x)[0], np.exp(x).reshape(4, 3).T[1:].sum(1), rtol=1e-6)


def test_what_the_caller_receives_is_its_own_memory() -> None:
    made = program(lambda x: (x + 1.0, ops.reshape(x, (12,)), x), array(3, 4))
    x = array(3, 4)
    first = made(x)
    kept = [o.copy() for o in first]
    second = made(x * 2)
    for a, b, c in zip(first, kept, second, strict=True):
        np.testing.assert_array_equal(a, b)
        assert not np.shares_memory(a, c)
        assert not np.shares_memory(a, x)


def test_a_program_takes_any_strides_and_leaves_its_inputs_alone() -> None:
    made = program(lambda x: ops.exp(x) + x, array(3, 4))
    for x in (array(4, 3).T, array(6, 8)[::2, ::2], array(3, 4)[::-1, ::-1]):
        before = x.copy()
        np.testing.assert_allclose(made(x)[0], np.exp(before) + before, rtol=1e-6)
        np.testing.assert_array_equal(x, before)


def test_empty_arrays_and_scalars_pass() -> None:
    made = program(lambda x, s: (ops.exp(x) * s, ops.sum(x)), array(0, 4), np.float32(2))
    out, total = made(array(0, 4), np.array(2, np.float32))
    assert out.shape == (0, 4)
    assert total == 0


def test_a_step_allocates_nothing_the_size_of_an_array() -> None:
    """Outputs apart, a call of elementwise kernels and products leaves the heap as it was."""

    def fn(x: Any, w: Any) -> Any:
        for _ in range(6):
            x = ops.tanh(ops.matmul(x, w) + 1.0)
        return ops.max(x)

    x, w = array(128, 128), array(128, 128, seed=1)
    made = program(fn, x, w)
    made(x, w)
    tracemalloc.start()
    try:
        made(x, w)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < x.nbytes / 4


def test_dying_inputs_lend_their_buffer_to_the_output() -> None:
    made = program(lambda x: ops.exp(ops.exp(ops.exp(x + 1.0))), array(1000))
    assert made.plan.size == 4032  # one buffer of 1000 float32, rounded to 64 bytes


def of_copies(x: Any) -> Any:
    """Reshapes that no strides describe: of values, of views of them, and of one that stays."""
    first = ops.reshape(ops.transpose(ops.exp(x)), (x.size,))
    kept = ops.reshape(first, (x.shape[1], x.shape[0]))
    a = x
    for _ in range(4):
        a = ops.reshape(ops.transpose(ops.sin(a)), x.shape) + 1.0
    flipped = ops.reshape(ops.flip(a, 1), (x.size,))
    return flipped * first, ops.reshape(ops.transpose(kept * 2.0), x.shape), kept


def of_copies_by_numpy(x: Array) -> tuple[Array, ...]:
    first, a = np.exp(x).T.reshape(-1), x
    kept = first.reshape(x.shape[::-1])
    for _ in range(4):
        a = np.sin(a).T.reshape(x.shape) + 1
    return np.flip(a, 1).reshape(-1) * first, (kept * 2).T.reshape(x.shape), kept


@pytest.mark.parametrize("providers", [("miniml",), ("cc", "miniml")], ids=lambda p: p[0])
@pytest.mark.parametrize("shape", [(6, 4), (5, 1), (0, 3)], ids=str)
def test_reshapes_that_copy_compute_what_numpy_does(
    providers: tuple[str, ...], shape: tuple[int, ...]
) -> None:
    with ml.context(providers=providers):
        made = program(of_copies, array(*shape))
        for seed in range(3):  # of each call, nothing of the one before
            x = array(*shape, seed=seed)
            for got, expected in zip(made(x), of_copies_by_numpy(x), strict=True):
                np.testing.assert_allclose(got, expected, rtol=1e-5)


def test_reshapes_that_copy_share_the_arena() -> None:
    """Six of them are alive one after the other, so they do not take six times the memory."""
    tracemalloc.start()
    try:
        made = program(of_copies, array(500, 100))
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert made.plan.size <= 5 * 200_000
    assert kept < made.plan.size + 100_000


def test_a_program_that_is_dropped_frees_its_memory_at_once() -> None:
    made = program(lambda x: ops.exp(x) + x, array(10))
    made(array(10))
    run = weakref.ref(made._idle[0].executor.run)
    gc.disable()
    try:
        del made
        assert run() is None
    finally:
        gc.enable()


def test_the_arena_is_near_the_largest_sum_alive() -> None:
    def fn(x: Any) -> Any:
        parts = [ops.exp(x[: 10 * (i + 1)]) for i in range(12)]
        return sum((ops.sum(p * p) for p in parts), ops.sum(x))

    plan = program(fn, array(500)).plan
    assert plan.size <= 1.1 * plan.peak


# --- state ----------------------------------------------------------------------------------


def test_assignments_are_seen_later_in_the_trace_and_published_at_the_end() -> None:
    w = ml.Parameter(array(3), name="w")

    def fn(x: Any) -> Any:
        before = ops.sum(w)
        ops.assign(w, w * x)
        return before, ops.sum(w)

    start, x = w.asnumpy(), array(3, seed=1)
    before, after = program(fn, x)(x)
    np.testing.assert_allclose(before, start.sum(), rtol=1e-6)
    np.testing.assert_allclose(after, (start * x).sum(), rtol=1e-5)
    np.testing.assert_array_equal(w.asnumpy(), start * x)


@pytest.mark.parametrize(
    "through", [lambda v: v * 1.0, ops.stop_gradient, lambda v: ops.reshape(v, (3,))]
)
def test_two_parameters_swap_their_values(through: Callable[[Any], Any]) -> None:
    a, b = ml.Parameter(array(3), name="a"), ml.Parameter(array(3, seed=1), name="b")

    def fn(x: Any) -> Any:
        old_a, old_b = through(a), through(b)
        ops.assign(a, old_b)
        ops.assign(b, old_a)
        return x

    before = a.asnumpy(), b.asnumpy()
    program(fn, array(1))(array(1))
    np.testing.assert_array_equal(a.asnumpy(), before[1])
    np.testing.assert_array_equal(b.asnumpy(), before[0])


def test_an_old_value_that_no_strides_describe_is_of_this_call() -> None:
    a = ml.Parameter(array(2, 3), name="a")
    b = ml.Parameter(np.zeros(6, np.float32), name="b")

    def fn(x: Any) -> Any:
        old = ops.reshape(ops.transpose(a), (6,))
        ops.assign(a, a + x)
        ops.assign(b, old)
        return x

    made = program(fn, array(2, 3))
    for _ in range(3):
        before = a.asnumpy()
        made(np.ones((2, 3), np.float32))
        np.testing.assert_array_equal(a.asnumpy(), before + 1)
        np.testing.assert_array_equal(b.asnumpy(), before.T.reshape(6))


@pytest.mark.parametrize("through", [lambda v: v, lambda v: ops.reshape(v, (3,))])
def test_one_new_value_of_two_parameters(through: Callable[[Any], Any]) -> None:
    a, b = ml.Parameter(array(3), name="a"), ml.Parameter(array(3, seed=1), name="b")

    def fn(x: Any) -> Any:
        new = a * x
        ops.assign(a, new)
        ops.assign(b, through(new))
        return x

    old, made = a.asnumpy(), program(fn, array(1))
    made(np.float32([2]))
    made(np.float32([2]))
    np.testing.assert_array_equal(a.asnumpy(), 4 * old)
    np.testing.assert_array_equal(b.asnumpy(), 4 * old)


def test_an_update_that_reads_the_old_value_of_another_gets_the_old_value() -> None:
    a, b = ml.Parameter(array(3), name="a"), ml.Parameter(array(3, seed=1), name="b")

    def fn(x: Any) -> Any:
        new_a, new_b = a - b, b + a
        ops.assign(a, new_a)
        ops.assign(b, new_b)
        return x

    old_a, old_b = a.asnumpy(), b.asnumpy()
    program(fn, array(1))(array(1))
    np.testing.assert_array_equal(a.asnumpy(), old_a - old_b)
    np.testing.assert_array_equal(b.asnumpy(), old_b + old_a)


def test_an_update_that_reads_its_parameter_through_a_view_gets_the_old_value() -> None:
    a = ml.Parameter(array(3, 3), name="a")

    def fn(x: Any) -> Any:
        ops.assign(a, a + ops.transpose(a))
        return x

    old, made = a.asnumpy(), program(fn, array(1))
    made(array(1))
    np.testing.assert_array_equal(a.asnumpy(), old + old.T)
    assert not made.buffers.donated


def test_gradient_descent_writes_into_the_parameters_themselves() -> None:
    net = nn.Dense(3, 2)
    optimizer = optim.SGD(net.trainable_params(), lr=0.1)
    step = ml.train_step(net, nn.CrossEntropyLoss(), optimizer)
    compiled = step._program.compiled(array(4, 3), np.array([0, 1, 1, 0]))  # type: ignore[attr-defined]
    assert len(compiled.program.buffers.donated) == 2


class Faulty(ml.Primitive):
    """x, whose kernel raises when told to."""

    def infer_shape(self, x: tuple[int, ...]) -> tuple[int, ...]:
        return x

    def infer_dtype(self, x: Any) -> Any:
        return x


raises: list[type[BaseException]] = []


@ml.kernel("Faulty", "cpu", "f->f")
def faulty_cpu(x: Array, *, out: Array) -> None:
    out[...] = x
    if raises:
        raise raises[0]("planted")


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("compiled", [True, False])
def test_a_step_that_raises_changes_nothing_and_the_next_one_works(
    error: type[BaseException], compiled: bool
) -> None:
    class Net(nn.Cell):
        def __init__(self) -> None:
            self.dense = nn.Dense(3, 2)
            self.count = ml.Parameter(np.zeros((), np.float32), requires_grad=False)

        def construct(self, x: Any) -> Any:
            ops.assign(self.count, self.count + 1.0)
            return self.dense(x) + ops.stop_gradient(Faulty()(self.dense(x)))

    net = Net()
    optimizer = optim.SGD(net.trainable_params(), lr=0.1, momentum=0.9)
    step = ml.train_step(net, nn.CrossEntropyLoss(), optimizer)
    x, labels = array(4, 3), np.array([0, 1, 1, 0])
    with ml.context(jit=compiled):
        step(x, labels)
        state = [*net.get_parameters(), *optimizer.parameters_dict().values()]
        before = [p.asnumpy() for p in state]
        raises.append(error)
        try:
            with pytest.raises(error) as caught:
                step(x, labels)
        finally:
            raises.clear()
        if error is RuntimeError:
            assert "Faulty()(self.dense(x))" in "".join(caught.value.__notes__)
        for p, old in zip(state, before, strict=True):
            np.testing.assert_array_equal(p.asnumpy(), old)
        step(x, labels)
        assert float(net.count) == 2


def test_updates_run_in_one_call_so_that_no_interrupt_comes_between() -> None:
    net = nn.Sequential(nn.Dense(3, 4), nn.ReLU(), nn.Dense(4, 2))
    step = ml.train_step(net, nn.CrossEntropyLoss(), optim.SGD(net.trainable_params(), lr=0.1))
    compiled = step._program.compiled(array(4, 3), np.array([0, 1, 1, 0]))  # type: ignore[attr-defined]
    lines = compiled.program.source.strip().splitlines()
    assert [line for line in lines if "consume(" in line] == [lines[-2]]
    assert re.fullmatch(r"consume\(map\(call, updates\d+\)\)", lines[-2].strip())


class Clipped(optim.SGD):
    """An update of operations whose kernels are written in Python."""

    def new_values(self, grads: Any) -> Any:
        small = [ops.clip(g * ops.rsqrt(ops.sum(g * g) + 1.0), -1.0, 1.0) for g in grads]
        return super().new_values([ops.select(g > 0.0, g, ops.relu(g)) for g in small])


OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "sgd": lambda p: optim.SGD(p, lr=0.1),
    "decay": lambda p: optim.SGD(p, lr=0.1, weight_decay=0.1),
    "momentum": lambda p: optim.SGD(p, lr=0.1, momentum=0.9),
    "nesterov": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "adam": lambda p: optim.Adam(p, weight_decay=0.1),
    "clipped": lambda p: Clipped(p, lr=0.1, momentum=0.9),
}


def python_in_updates(call: Callable[[], object]) -> list[str]:
    """The Python functions that run while a program updates its parameters."""
    inside, found = [False], []

    def look(frame: Any, event: str, arg: Any) -> None:
        if event.startswith("c_") and getattr(arg, "__name__", "") == "extend":
            if frame.f_code.co_filename.startswith("<miniml program"):
                inside[0] = event == "c_call"
        elif event == "call" and inside[0]:
            found.append(frame.f_code.co_qualname)

    sys.setprofile(look)
    try:
        call()
    finally:
        sys.setprofile(None)
    return found


@pytest.mark.parametrize(
    ("optimizer", "dtype"),
    [*((o, ml.float32) for o in OPTIMIZERS), ("adam", ml.float64), ("adam", ml.bfloat16)],
)
def test_no_python_runs_between_updates_so_that_no_handler_does(optimizer: str, dtype: Any) -> None:
    class Net(nn.Cell):
        def __init__(self) -> None:
            self.conv, self.norm = nn.Conv2d(1, 2, 2), nn.BatchNorm2d(2)
            self.drop, self.dense = nn.Dropout(0.5), nn.Dense(8, 3)
            self.w = ml.Parameter(ml.Tensor(array(3, 3), dtype=dtype))
            self.seen = ml.Parameter(array(3, 2), requires_grad=False)

        def construct(self, x: Any) -> Any:
            h = self.dense(ops.reshape(self.drop(self.norm(self.conv(x))), (4, 8)))
            ops.assign(self.seen, ops.reshape(ops.transpose(h[:2]), (3, 2)))
            return ops.cast(h, dtype) @ self.w

    net = Net()
    step = ml.train_step(net, nn.CrossEntropyLoss(), OPTIMIZERS[optimizer](net.trainable_params()))
    x, labels = array(4, 1, 3, 3), np.array([0, 1, 2, 0])
    step(x, labels)
    source = step._program.compiled(x, labels).program.source  # type: ignore[attr-defined]
    assert "consume(" in source
    assert python_in_updates(lambda: step(x, labels)) == []


def test_a_program_that_only_moves_state_runs_no_python_between_updates() -> None:
    a, b, c = (ml.Parameter(array(3, 3, seed=s), name=n) for s, n in enumerate("abc"))

    @ml.jit
    def move(x: Any) -> Any:
        old = ops.reshape(ops.transpose(a), (3, 3))
        ops.assign(a, b)
        ops.assign(b, old)
        ops.assign(c, x)
        return x

    move(array(3, 3))
    before = a.asnumpy(), b.asnumpy()
    assert python_in_updates(lambda: move(array(3, 3))) == []
    np.testing.assert_array_equal(a.asnumpy(), before[1])
    np.testing.assert_array_equal(b.asnumpy(), before[0].T)


def test_a_program_without_state_runs_in_many_threads_at_once() -> None:
    made = program(lambda x: ops.sum(ops.exp(ops.matmul(x, x)), 0), array(60, 60))
    inputs = [array(60, 60, seed=s) * 0.1 for s in range(8)]
    wanted = [np.exp(x @ x).sum(0) for x in inputs]
    wrong: list[int] = []

    def work(i: int) -> None:
        found = [made(inputs[i])[0] for _ in range(50)]
        wrong.extend(i for f in found if not np.allclose(f, wanted[i], rtol=1e-4))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert wrong == []


def test_a_program_with_state_counts_every_call_of_every_thread() -> None:
    n = ml.Parameter(np.zeros(1000, np.float32), name="n")

    def fn(x: Any) -> Any:
        ops.assign(n, n + x)
        return x

    one = np.ones(1000, np.float32)
    made = program(fn, one)
    threads = [threading.Thread(target=lambda: [made(one) for _ in range(200)]) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert set(n.asnumpy()) == {800.0}


def test_check_nan_names_the_node_and_the_users_line() -> None:
    def fn(x: Any) -> Any:
        return ops.sum(ops.log(x))

    graph = ml.trace(fn, array(3))
    with (
        ml.context(check_nan=True),
        pytest.raises(NonFiniteError, match="Log made NaN") as caught,
    ):
        Program(graph)(np.array([1, -1, 2], np.float32))
    assert "ops.sum(ops.log(x))" in caught.value.__notes__[0]
    assert np.isnan(Program(graph)(np.array([1, -1, 2], np.float32))[0])


def test_check_nan_says_what_the_inputs_were_and_looks_at_updates_too() -> None:
    w = ml.Parameter(np.float32([1, 3e38]), name="w")

    def fn(x: Any) -> Any:
        ops.assign(w, w * x)
        return x

    with ml.context(check_nan=True):
        made = Program(ml.trace(fn, array(2)))
    expected = r"Mul made an infinity; its inputs were float32\[2\] in \[1, 3e\+38\], "
    with pytest.raises(NonFiniteError, match=expected):
        made(np.float32([2, 2]))
    np.testing.assert_array_equal(w.asnumpy(), np.float32([1, 3e38]))


def test_a_widened_kernel_shows_as_casts() -> None:
    class OnlyDouble(Unary):
        """2 x, in float64 only."""

    ml.kernel("OnlyDouble", "cpu", "d->d")(lambda x, *, out: np.multiply(x, 2, out=out))
    x = array(3)
    made = program(OnlyDouble(), x)
    np.testing.assert_array_equal(made(x)[0], x * 2)
    names = [c.primitive for c in ml.explain(OnlyDouble(), x).rows]
    assert names == ["Cast(dtype=float64)", "OnlyDouble()", "Cast(dtype=float32)"]
    np.testing.assert_array_equal(OnlyDouble()(x).asnumpy(), x * 2)


def many(x):
    y = ops.tanh(x)
    z = ops.exp(y)
    return y, y, x, z, ops.reshape(y, (-1,)), ops.transpose(z), z[1:], ops.concat((y, z), 0)


@pytest.mark.parametrize("providers", [("miniml",), ("cc",), ()])
def test_every_output_is_the_callers_own_however_it_was_made(providers):
    """The same one twice, views of others, an input; what later calls compute changes none."""
    x = np.random.default_rng(0).normal(size=(40, 50))
    y = np.tanh(x)
    z = np.exp(y)
    expected = [y, y, x, z, y.ravel(), z.T, z[1:], np.concatenate([y, z])]
    with ml.context(providers=providers):
        fn = ml.jit(many)
        outs = fn(x)
        again = fn(-x)
    for out, other, right in zip(outs, again, expected, strict=True):
        np.testing.assert_allclose(out.asnumpy(), right, rtol=1e-12)
        assert not np.shares_memory(out._data, other._data)
    for i, out in enumerate(outs):
        assert not any(np.shares_memory(out._data, other._data) for other in outs[:i])


def test_explain_says_which_example_arguments_it_needs():
    def scaled(x, scale=2.0):
        return x * scale

    cases = {
        (): "explain got no example arguments for scaled(x, scale): missing a required argument: "
        "'x'; give it what a call gets, since it compiles for these shapes and dtypes: "
        "explain(scaled, x)",
        (1.0, 2.0, 3.0): "explain got 3 example arguments for scaled(x, scale): too many ",
    }
    for given, message in cases.items():
        for fn in (scaled, ml.jit(scaled)):
            with pytest.raises(ArityError, match=re.escape(message)):
                ml.explain(fn, *given)
    for layer in (nn.Dense(2, 3), ml.jit(nn.Dense(2, 3))):
        with pytest.raises(ArityError, match=r"for Dense\(x\): missing .* explain\(Dense, x\)"):
            ml.explain(layer)
    assert ml.explain(scaled, ml.Tensor([1.0]), scale=3.0).rows
