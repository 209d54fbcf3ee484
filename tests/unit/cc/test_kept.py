"""Filters and matrices that kernels keep packed from call to call, while nobody writes to them."""

from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context

import numpy as np
import pytest

import miniml as ml
from miniml import Primitive, kernel, nn, ops, optim
from miniml.core import parameter
from miniml.runtime import memory
from miniml.train import Snapshot
from tests.frame.native import needs_compiler

pytestmark = needs_compiler

# images, filters, and attributes of the convolution; or factors, and attributes of the product
CASES = {
    "image by image": ((2, 3, 7, 9), (5, 3, 3, 2), {}),
    "batch": ((16, 4, 5, 5), (7, 4, 3, 3), {"padding": 1}),
    "blocks": ((2, 32, 6, 7), (48, 32, 3, 3), {"padding": 1}),
    "many filters": ((1, 300, 5, 6), (32, 300, 3, 3), {"padding": 1}),
    "few pixels": ((1, 20, 2, 2), (33, 20, 3, 3), {"padding": 1}),
    "depthwise": ((2, 32, 9, 7), (32, 1, 3, 3), {"padding": 1, "groups": 32}),
    "groups": ((2, 4, 5, 5), (6, 2, 3, 3), {"groups": 2}),
    "one axis": ((2, 9, 40), (20, 9, 5), {"stride": 3}),
    "matrix turned": ((16, 130), (70, 130), {"transpose_y": True}),
    "by the last axis": ((2, 3, 140), (40, 140), {"transpose_y": True}),
    "one row": ((1, 130), (130, 300), {}),
    "lines inside of vectors": ((5, 130), (130, 257), {}),
    "two rows, few columns": ((2, 2048), (2048, 10), {}),
    "parts of lines": ((1, 1100), (1100, 300), {}),
    "lines far apart": ((40, 130), (130, 512), {}),
}


def drawn(*shape, dtype=np.float32):
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


def applied(x, w, attributes):
    by = {2: ops.matmul, 3: ops.conv1d, 4: ops.conv2d}[len(w.shape)]
    return ops.tanh(by(x, w, **attributes)) + 1.0


def networks(shape, filters, attributes, dtype=np.float32):
    """Images; a Parameter; a convolution by it, and one by filters that are an argument."""
    p = ml.Parameter(drawn(*filters, dtype=dtype))
    kept = ml.jit(lambda x: applied(x, p, attributes))
    given = ml.jit(lambda x, w: applied(x, w, attributes))
    return drawn(*shape, dtype=dtype), p, kept, given


@pytest.fixture(autouse=True)
def in_c():
    with ml.context(providers=("cc",)):
        yield


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("case", CASES)
def test_all_calls_give_the_same_bits_and_see_every_change(case, dtype):
    x, p, kept, given = networks(*CASES[case], dtype=dtype)
    for calls in (4, 1, 2, 3, 5):
        expected = given(x, p.asnumpy()).asnumpy()
        for _ in range(calls):
            np.testing.assert_array_equal(kept(x).asnumpy(), expected)
            np.testing.assert_array_equal(kept(-x).asnumpy(), given(-x, p.asnumpy()).asnumpy())
        p.set_data(p.asnumpy()[::-1] * 1.5)


@pytest.mark.parametrize("case", CASES)
def test_constants_are_kept_too(case):
    x, p, _, given = networks(*CASES[case])
    w, (_, _, attributes) = p.asnumpy(), CASES[case]
    fixed = ml.jit(lambda x: applied(x, w, attributes))
    for sign in (1, -1, 2, -2, 3):
        np.testing.assert_array_equal(fixed(sign * x).asnumpy(), given(sign * x, w).asnumpy())


@pytest.mark.parametrize("case", CASES)
def test_a_program_sees_what_it_writes_itself(case):
    x, p, _, given = networks(*CASES[case])
    w, (_, _, attributes) = p.asnumpy(), CASES[case]

    @ml.jit
    def before_and_after(x):
        before = applied(x, p, attributes)
        ops.assign(p, p * -0.5)
        return before, applied(x, p, attributes)

    for _ in range(5):
        for out in before_and_after(x):
            np.testing.assert_array_equal(out.asnumpy(), given(x, w).asnumpy())
            w = w * np.float32(-0.5)
        w = w * np.float32(-2.0)


def test_products_by_one_matrix_keep_it_once(monkeypatch):
    """As the steps of an unrolled loop: each with a copy of its own, they left the cache."""
    rooms, note = {}, memory.Kept.note

    def noted(self, node, held):
        rooms.update({(node, p): of.room for p, of in held})
        note(self, node, held)

    monkeypatch.setattr(memory.Kept, "note", noted)
    p, q = (ml.Parameter(drawn(130, 300) * scale) for scale in (0.1, 0.2))
    back = ml.Tensor(drawn(300, 130))

    def steps(x, p, q, back):
        for _ in range(3):
            x = ops.tanh(ops.tanh(x @ p) @ back)
        return x @ q

    kept, given = ml.jit(lambda x: steps(x, p, q, back)), ml.jit(steps)
    x = drawn(1, 130)
    for written in (p, q, p):
        for _ in range(4):
            right = given(x, p.asnumpy(), q.asnumpy(), back)
            np.testing.assert_array_equal(kept(x).asnumpy(), right.asnumpy())
        written.set_data(written.asnumpy() * 1.5)
    assert len(rooms) == 7
    assert len({id(room) for room in rooms.values()}) == 3


def recurrence(p, steps):
    """States of a row that is multiplied by p in each step."""
    return ops.scan(lambda h, x: (ops.tanh(h @ p * 0.1 + x), h), steps[0], steps)[1]


def loops():
    """Numbers for a loop; a Parameter; the loop by it, and by a matrix that is an argument."""
    p = ml.Parameter(drawn(130, 130))
    kept, given = ml.jit(lambda xs: recurrence(p, xs)), ml.jit(lambda xs, w: recurrence(w, xs))
    return drawn(6, 1, 130), p, kept, given


def test_matrices_of_loops_are_kept_too():
    xs, p, kept, given = loops()
    for calls in (4, 1, 2, 3):
        expected = given(xs, p.asnumpy()).asnumpy()
        for _ in range(calls):
            np.testing.assert_array_equal(kept(xs).asnumpy(), expected)
        p.set_data(p.asnumpy()[::-1] * 1.5)


def test_a_look_that_saw_no_change_would_show(monkeypatch):
    """So that the tests here can fail: filters are kept in every kind of kernel."""
    for case in (*CASES, "loop"):
        x, p, kept, _ = networks(*CASES[case]) if case in CASES else loops()
        before = [kept(x).asnumpy() for _ in range(3)][-1]
        with monkeypatch.context() as patch:
            patch.setattr(memory.Kept, "_look", lambda self: None)
            p.set_data(p.asnumpy() * 2.0)
            np.testing.assert_array_equal(kept(x).asnumpy(), before, err_msg=case)


def by_step(p, folder):
    step = ml.jit(lambda: ops.assign(p, p * 0.5))
    step()


def by_optimizer(p, folder):
    optim.SGD([p], lr=0.1).update([ml.Tensor(np.ones_like(p.asnumpy()))])


def by_checkpoint(p, folder):
    ml.save_checkpoint({"p": ml.Parameter(p.asnumpy() + 1.0)}, folder / "p.safetensors")
    ml.load_checkpoint(folder / "p.safetensors", {"p": p})


def by_undoing(p, folder):
    with parameter.logged() as log:
        p.set_data(p.asnumpy() + 1.0)
    log.restore()
    p.set_data(p.asnumpy() - 1.0)


def by_snapshot(p, folder):
    snapshot = Snapshot(p)
    p.set_data(p.asnumpy() * 3.0)
    ml.jit(lambda x: ops.sum(x * p))(p.asnumpy())
    snapshot.restore()
    p.set_data(p.asnumpy() - 2.0)


class KeptMoves(Primitive):
    """p moved by d, in place."""

    effect, differentiable, inputs, like = "state", False, ("p", "d"), "p"


@kernel("KeptMoves", "cpu", "ff->f", inplace=(0,))
def moves(p, d, *, out):
    np.add(p, d, out=out)


def by_kernel_in_place(p, folder):
    KeptMoves()(p, np.full(p.shape, 0.5, np.float32))


WRITERS = [
    by_step, by_optimizer, by_checkpoint, by_undoing, by_snapshot, by_kernel_in_place,
    lambda p, folder: ops.assign(p, p * 0.25),
    lambda p, folder: p.set_data(np.zeros_like(p.asnumpy())),
]  # fmt: skip


@pytest.mark.parametrize("case", ["blocks", "matrix turned"])
@pytest.mark.parametrize("write", WRITERS, ids=range(len(WRITERS)))
def test_every_way_to_write_is_seen(write, case, tmp_path):
    x, p, kept, given = networks(*CASES[case])
    for _ in range(2):
        for _ in range(4):
            np.testing.assert_array_equal(kept(x).asnumpy(), given(x, p.asnumpy()).asnumpy())
        before = p.asnumpy()
        write(p, tmp_path)
        assert write is WRITERS[-1] or (p.asnumpy() != before).any()
    np.testing.assert_array_equal(kept(x).asnumpy(), given(x, p.asnumpy()).asnumpy())


def test_evaluation_between_steps_of_training():
    ml.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 4, 3), nn.Flatten()
    )
    step = ml.train_step(net, nn.CrossEntropyLoss(), optim.SGD(net.trainable_params(), lr=0.1))
    answer, x, y = ml.jit(net), drawn(2, 3, 6, 6), np.array([1, 2])
    for calls in (1, 4, 1, 3):
        step(x, y)
        with ml.context(providers=("miniml",)):
            expected = net(x).asnumpy()
        for _ in range(calls):
            np.testing.assert_allclose(answer(x).asnumpy(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("case", ["many filters", "one row"])
def test_a_call_that_fails_keeps_nothing(case):
    x, p, _, _ = networks(*CASES[case])
    f = ml.jit(lambda x, i: applied(ops.gather(x, i), p, {}))
    expected = f(x, np.array([0])).asnumpy()
    for index in (7, -9, 7):
        with pytest.raises(IndexError):
            f(x, np.array([index]))
    for _ in range(4):
        np.testing.assert_array_equal(f(x, np.array([0])).asnumpy(), expected)


@pytest.mark.parametrize("case", ["blocks", "matrix turned"])
def test_threads_see_the_filters_of_their_call(case):
    x, p, kept, given = networks(*CASES[case])
    first = p.asnumpy()
    allowed = [given(x, first * scale).asnumpy().tobytes() for scale in (1.0, 3.0)]

    def calls():
        return {kept(x).asnumpy().tobytes() for _ in range(20)}

    with ThreadPoolExecutor(4) as pool:
        here = [copy_context() for _ in range(8)]
        seen = pool.map(lambda context: context.run(calls), here)
        for scale in (3.0, 1.0, 3.0):
            p.set_data(first * scale)
        assert set().union(*seen) <= {*allowed}
    assert kept(x).asnumpy().tobytes() == allowed[1]
