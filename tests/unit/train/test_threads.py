"""State in several threads: no update is lost, and whoever looks sees one state."""

import copy
import os
import pickle
import signal
import threading
import time

import numpy as np
import pytest
from safetensors.numpy import load_file

import miniml as ml
from miniml import nn, ops, optim
from miniml.core.access import Access
from miniml.errors import InUseError
from miniml.ops import Unary

SHAPE = (64, 257)  # large enough for NumPy to let other threads run while it computes


class Ramp(nn.Cell):
    """A loss whose gradient is 1 everywhere: with lr=1, n steps take n from each weight."""

    def __init__(self):
        self.w = ml.Parameter(np.zeros(SHAPE, np.float32), name="w")
        self.b = ml.Parameter(np.zeros(SHAPE, np.float32), name="b")

    def construct(self, x):
        return ops.sum(self.w + self.b) + 0.0 * ops.sum(x)


def ramp(size=1):
    net = Ramp()
    step = ml.train_step(net, lambda out: out, optim.SGD(net.trainable_params(), lr=1.0))
    return net, step


LAYER_BLOCKS = 2  # of the random stream, for the weight and the bias of a Dense(1, 1)


def in_threads(*works):
    """Run all at once; the first error of any is raised here."""
    errors = []

    def guarded(work):
        try:
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(work,), daemon=True) for work in works]
    [t.start() for t in threads]
    [t.join(60) for t in threads]
    assert not any(t.is_alive() for t in threads), "a thread waits for ever"
    if errors:
        raise errors[0]


@pytest.mark.filterwarnings(
    "ignore:.*compiled for the fifth time:miniml.core.errors.PerformanceWarning"
)
@pytest.mark.parametrize("jit", [True, False])
@pytest.mark.parametrize("sizes", [(1, 1), (1, 2), tuple(range(1, 9))])
def test_no_step_of_any_thread_is_lost(sizes, jit):
    net, step = ramp()
    count = 160 // len(sizes) if jit else 8

    def work(x):
        with ml.context(jit=jit):
            for _ in range(count):
                step(x)

    in_threads(*(lambda n=n: work(np.zeros(n, np.float32)) for n in sizes))
    for p in net.get_parameters():
        assert set(p.asnumpy().ravel()) == {-float(count * len(sizes))}


@pytest.mark.parametrize("jit", [True, False])
def test_steps_of_different_networks_take_their_draws_from_one_stream(jit):
    """No two of them get the same blocks, and the stream is where one thread would have left it."""
    seen, count = [], 20

    def work(rows):
        net = nn.Dense(1, 1)
        step = ml.train_step(
            net, lambda out, y: (out * 0.0 + y * ops.uniform((4 * rows,))[0]).sum(),
            optim.SGD(net.trainable_params(), lr=0.0),
        )  # fmt: skip
        x, y = np.zeros((1, 1), np.float32), np.ones((1, 1), np.float32)
        with ml.context(jit=jit):
            seen.extend(step(x, y).item() for _ in range(count))

    ml.manual_seed(1)
    in_threads(*(lambda n=n: work(n) for n in (1, 2, 3)))
    assert ml.random_state.tolist()[1] == count * (1 + 2 + 3) + 3 * LAYER_BLOCKS
    assert len(set(seen)) == 3 * count


def test_compiled_steps_and_updates_by_hand_lose_nothing_to_each_other():
    net, step = ramp()
    opt = optim.SGD(net.trainable_params(), lr=1.0)
    ones = [ops.ones(SHAPE, ml.float32) for _ in opt.params]
    x = np.zeros(1, np.float32)
    in_threads(
        lambda: [step(x) for _ in range(60)],
        lambda: [opt.update(ones) for _ in range(60)],
    )
    for p in net.get_parameters():
        assert set(p.asnumpy().ravel()) == {-120.0}


@pytest.mark.parametrize("jit", [True, False])
def test_what_is_saved_and_evaluated_beside_training_is_one_state(tmp_path, monkeypatch, jit):
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    net, step = ramp()
    evaluate = ml.jit(lambda: (net.w * 1.0, net.b * 1.0))
    evaluate()
    over = threading.Event()

    def train():
        x = np.zeros(1, np.float32)
        with ml.context(jit=jit):
            until = time.monotonic() + 0.5
            while time.monotonic() < until:
                step(x)
        over.set()

    def one_state(*arrays):
        found = {float(v) for a in arrays for v in np.unique(a)}
        assert len(found) == 1, f"a torn state: {found}"

    def save():
        while not over.is_set():
            ml.save_checkpoint(net, tmp_path / "x")
            one_state(*load_file(tmp_path / "x").values())

    def look():
        while not over.is_set():
            one_state(*(t.asnumpy() for t in evaluate()))

    in_threads(train, save, look)


def test_programs_that_read_run_at_the_same_time():
    inside = threading.Barrier(3, timeout=30)
    net, _ = ramp()

    def meet():
        inside.wait()

    access = Access("reading", reads=net.get_parameters())
    in_threads(*(lambda: access.run(meet) for _ in range(3)))


def test_draws_in_threads_and_steps_with_dropout_use_no_number_twice():
    ml.manual_seed(0)
    drop = ml.jit(lambda x: ops.uniform((5,)) + x)
    drawn = []

    def compiled():
        drawn.extend(tuple(drop(np.float32(0)).tolist()) for _ in range(50))

    def eager():
        drawn.extend(tuple(ops.uniform((5,)).tolist()) for _ in range(50))

    in_threads(compiled, compiled, eager, eager)
    assert len(set(drawn)) == 200


def test_the_same_step_inside_itself_is_refused_in_a_sentence_and_the_next_one_works():
    net, step = ramp()
    x = np.zeros(1, np.float32)
    step(x)
    message = []

    def handler(number, frame):
        for call in (lambda: step(x), lambda: net.w.set_data(np.zeros(SHAPE, np.float32))):
            with pytest.raises(InUseError, match="while train_step, inside which it is called"):
                call()
        message.append(net.w.asnumpy()[0, 0])

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        Access("train_step", net.get_parameters()).run(
            lambda: (signal.raise_signal(signal.SIGUSR1), time.sleep(0))
        )
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert message == [-1.0]
    step(x)
    assert float(net.w.asnumpy()[0, 0]) == -2.0


def test_a_draw_inside_a_draw_is_refused_in_a_sentence():
    state = ml.core.parameter.default_generator.state
    with pytest.raises(InUseError, match="a random draw got parameter 'random_state'"):
        Access("a random draw", (state,)).run(lambda: ops.uniform((3,)))
    ops.uniform((3,))


def test_two_threads_that_wait_for_each_other_are_refused_and_others_go_on():
    a, b = (ml.Parameter(np.zeros(2, np.float32), name=n) for n in "ab")
    met, refused = threading.Barrier(2, timeout=30), []

    def work(first, second):
        def inside():
            met.wait()
            second.set_data(np.ones(2, np.float32))

        try:
            Access("a step", (first,)).run(inside)
        except InUseError as error:
            refused.append(str(error))

    in_threads(lambda: work(a, b), lambda: work(b, a))
    assert refused
    assert "waits for a step of another thread, which waits for this one" in refused[0]
    a.set_data(np.zeros(2, np.float32))


def test_a_section_that_raises_leaves_nothing_behind():
    net, step = ramp()

    def fails():
        raise ValueError("planted")

    for _ in range(3):
        with pytest.raises(ValueError, match="planted"):
            Access("a step", net.get_parameters()).run(fails)
    in_threads(lambda: step(np.zeros(1, np.float32)))


def test_whoever_came_first_goes_first():
    p = ml.Parameter(np.zeros(2, np.float32))
    order, started = [], threading.Event()

    def hold():
        started.set()
        time.sleep(0.2)

    def writes():
        started.wait()
        Access("write", (p,)).run(lambda: order.append("write"))

    def reads():
        started.wait()
        time.sleep(0.1)  # after the writer has queued up
        Access("read", reads=(p,)).run(lambda: order.append("read"))

    in_threads(lambda: Access("read", reads=(p,)).run(hold), writes, reads)
    assert order == ["write", "read"]


def in_child(work):
    """The exit code of work() in a fork of this process; 99 if it takes more than 10 seconds."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            signal.alarm(10)
            code = work()
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    return 99 if os.WIFSIGNALED(status) else os.waitstatus_to_exitcode(status)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_forked_while_another_thread_trains_sees_a_whole_state_and_trains_on():
    net, step = ramp()
    x = np.zeros(1, np.float32)
    step(x)
    over = threading.Event()

    def train():
        while not over.is_set():
            step(x)

    def in_the_child():
        values = {float(v) for p in net.get_parameters() for v in np.unique(p.asnumpy())}
        (start,) = values
        step(x)
        return 0 if set(np.unique(net.w.asnumpy())) == {start - 1.0} else 2

    def forks():
        try:
            assert [in_child(in_the_child) for _ in range(8)] == [0] * 8
        finally:
            over.set()

    in_threads(train, forks)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda s: pickle.loads(pickle.dumps(s))])
def test_a_copy_of_a_step_trains_a_copy_of_its_net(copied):
    net = nn.Dense(3, 2)
    step = ml.train_step(net, nn.CrossEntropyLoss(), optim.Adam(net.trainable_params()))
    x, labels = np.ones((4, 3), np.float32), np.array([0, 1, 1, 0])
    step(x, labels)
    other, before = copied(step), net.weight.asnumpy()
    loss = other(x, labels)
    assert np.array_equal(net.weight.asnumpy(), before)
    assert float(loss) == float(step(x, labels))
    for p, q in zip(other.net.get_parameters(), net.get_parameters(), strict=True):
        assert np.array_equal(p.asnumpy(), q.asnumpy())


class Slow(Unary):
    """x, from a kernel that lets other threads run."""


@ml.kernel("Slow", "cpu", "f->f")
def slow_cpu(x, *, out):
    out[...] = x
    time.sleep(0.001)


def test_two_shapes_of_one_function_count_every_call():
    n = ml.Parameter(np.zeros((), np.float32), name="n")
    count = ml.jit(lambda x: ops.assign(n, Slow()(n) + 1.0) + ops.sum(x))
    in_threads(
        *(lambda s=s: [count(np.zeros(s, np.float32)) for _ in range(20)] for s in (1, 2, 3))
    )
    assert float(n) == 60


class Doorbell(Unary):
    """x, from a kernel that sends this process a signal."""


@ml.kernel("Doorbell", "cpu", "f->f")
def bell_cpu(x, *, out):
    out[...] = x
    signal.raise_signal(signal.SIGUSR1)


@pytest.mark.parametrize("jit", [True, False])
def test_a_handler_may_save_but_not_step_inside_a_step(tmp_path, jit):
    norm, dense = nn.BatchNorm2d(2), nn.Dense(8, 3)

    def net(x):
        return dense(ops.reshape(ops.stop_gradient(Doorbell()(ops.stop_gradient(norm(x)))), (4, 8)))

    opt = optim.Adam(dense.trainable_params())
    step = ml.train_step(net, nn.CrossEntropyLoss(), opt)
    x, labels = np.ones((4, 2, 2, 2), np.float32), np.array([0, 1, 2, 0])
    held = {"norm": norm, "dense": dense, "opt": opt}
    evaluate = ml.jit(lambda: (norm.running_mean * 1.0, dense.weight * 1.0))
    before = signal.signal(signal.SIGUSR1, lambda number, frame: None)
    seen = []

    def handler(number, frame):
        ml.save_checkpoint(held, tmp_path / "x")
        seen.append(load_file(tmp_path / "x"))
        if jit:
            assert np.array_equal(evaluate()[1].asnumpy(), seen[0]["dense.weight"])
        with pytest.raises(InUseError, match=r"train_step got parameter .* to write while train_"):
            step(x, labels)

    try:
        with ml.context(jit=jit):
            step(x, labels)
            state = [p.asnumpy() for h in held.values() for p in h.parameters_dict().values()]
            signal.signal(signal.SIGUSR1, handler)
            step(x, labels)
    finally:
        signal.signal(signal.SIGUSR1, before)
    (saved,) = seen
    names = [f"{k}.{n}" for k, h in held.items() for n in h.parameters_dict()]
    assert all(np.array_equal(saved[n], old) for n, old in zip(names, state, strict=True))
    assert int(opt.parameters_dict()["step"]) == 2
