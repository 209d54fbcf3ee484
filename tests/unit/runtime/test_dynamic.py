"""jit(fn, dynamic=...): sizes that vary, kernels that follow them, and how many are kept."""

import gc
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar

import numpy as np
import pytest

import miniml as ml
from miniml import Kernel, Primitive, kernel, nn, ops
from miniml.errors import GraphError, InUseError, ShapeError
from miniml.runtime import jit
from miniml.runtime.jit import SIZES
from tests.frame.native import needs_compiler


class Follow(Primitive):
    """Twice its input, by kernels that count."""

    def infer_shape(self, x):
        return x

    def infer_dtype(self, x):
        return x


class Counted(Kernel):
    """Fills twice the input, and checks that it is of the size that it was told."""

    events: ClassVar[list] = []
    fail, pause = None, 0.0

    def prepare(self, node):
        super().prepare(node)
        self._note("prepare")

    def _note(self, what):
        self.events.append((what, self.node.inputs[0].shape))
        if self.fail == (what, self.node.inputs[0].shape):
            raise RuntimeError(f"no {what}")

    def workspace(self):
        return (self.node.inputs[0],)

    def launch(self, inputs, workspace, outputs, stream):
        assert inputs[0].shape == workspace[0].shape == self.node.inputs[0].shape
        np.multiply(inputs[0], 2, out=workspace[0])
        time.sleep(self.pause)
        assert inputs[0].shape == self.node.inputs[0].shape
        outputs[0][...] = workspace[0]

    def release(self):
        self.events.append(("release", self.node.inputs[0].shape))


class Resized(Counted):
    def resize(self, node):
        self.node = node
        self._note("resize")


class Calling(Resized):
    """Calls a function from inside a launch, as a signal handler may."""

    def launch(self, inputs, workspace, outputs, stream):
        if self.node.inputs[0].shape == (2, 3):
            self.inside(rows(3))
        super().launch(inputs, workspace, outputs, stream)


kernel("Follow", "cpu", "f->f", "d->d")(Resized)
kernel("Follow", "cpu", "f->f", provider="calling")(Calling)
kernel("Follow", "cpu", "f->f", provider="fresh")(Counted)


@pytest.fixture
def events():
    gc.collect()  # those of other tests
    Counted.events, Counted.fail = [], None
    yield Counted.events
    Counted.fail = None


def rows(n, width=3):
    return ml.Tensor(np.arange(n * width, dtype=np.float32).reshape(n, width))


def twice_plus_n(x):
    return Follow()(x) + x.shape[0]


class TestSizes:
    @pytest.mark.parametrize("n", [0, 1, 2, 7])
    def test_any_size_gives_what_numpy_does(self, n):
        run = ml.jit(lambda x, w: ops.softmax(x @ w, -1) * x.shape[0], dynamic={"x": (0,)})
        w = np.ones((3, 2), np.float32)
        for size in (4, n, 4):
            x = rows(size).asnumpy()
            y = np.exp(x @ w) / np.exp(x @ w).sum(-1, keepdims=True) * size
            np.testing.assert_allclose(run(x, w).asnumpy(), y, rtol=1e-6)

    def test_shapes_are_integers_in_a_trace(self):
        seen = []
        run = ml.jit(lambda x: seen.append(x.shape) or x + 1, dynamic={"x": 0})
        run(rows(2)), run(rows(5)), run(rows(2))
        assert seen == [(2, 3), (5, 3)]
        assert all(type(n) is int for shape in seen for n in shape)

    def test_two_arguments_in_equal_and_other_sizes(self):
        run = ml.jit(lambda a, b: (a.T @ b, a.shape[0]), dynamic={"a": (0,), "b": (0, -1)})
        for n, m in ((2, 2), (3, 3), (3, 2), (2, 4), (0, 1)):
            a, b = rows(n).asnumpy(), rows(n, m).asnumpy()
            got, size = run(a, b)
            np.testing.assert_allclose(got.asnumpy(), a.T @ b)
            assert size == n
        with pytest.raises(ShapeError):
            run(rows(2), rows(3))

    def test_trees_keywords_and_what_is_left_out(self):
        def fn(pair, *, mask=None, **other):
            out = pair["a"] + pair["b"] + sum(other.values())
            return out if mask is None else out * mask

        run = ml.jit(fn, dynamic={"pair": (0,), "mask": (0,), "other": (0,)})
        for n in (2, 3):
            x = rows(n)
            np.testing.assert_array_equal(run({"a": x, "b": x}).asnumpy(), 2 * x.asnumpy())
            out = run({"a": x, "b": x}, mask=x, z=x)
            np.testing.assert_array_equal(out.asnumpy()[0], [0, 3, 12])

    def test_a_cell_and_its_gradient(self):
        net = nn.Sequential(nn.Dense(3, 4), nn.ReLU(), nn.Dense(4, 2))
        run, plain = ml.jit(net, dynamic={"x": (0,)}), ml.jit(net)

        def loss(x):
            return ops.sum(net(x) ** 2)

        gradient = ml.jit(ml.grad.grad(loss), dynamic={"x": (0,)})
        for n in (2, 5, 1):
            np.testing.assert_allclose(run(rows(n)).asnumpy(), plain(rows(n)).asnumpy(), rtol=1e-6)
            expected = ml.grad.grad(loss)(rows(n)).asnumpy()
            np.testing.assert_allclose(gradient(rows(n)).asnumpy(), expected, rtol=1e-5, atol=1e-6)

    def test_a_training_step(self):
        def made(**dynamic):
            ml.manual_seed(1)
            net = nn.Dense(3, 2)
            opt = ml.optim.SGD(net.trainable_params(), lr=0.01)
            return net, ml.jit(ml.train_step(net, nn.MSELoss(), opt), **dynamic)

        (net, step), (other, plain) = made(dynamic={"x": 0, "labels": 0}), made()
        for n in (4, 2, 4, 1):
            loss = step(rows(n), rows(n, 2)).item()
            assert loss == pytest.approx(plain(rows(n), rows(n, 2)).item(), rel=1e-5)
        np.testing.assert_allclose(net.weight.asnumpy(), other.weight.asnumpy(), rtol=1e-5)


class TestKernels:
    def test_one_object_is_resized(self, events):
        run = ml.jit(twice_plus_n, dynamic={"x": (0,)})
        for n in (2, 2, 5, 5, 2, 5):
            np.testing.assert_array_equal(run(rows(n)).asnumpy(), rows(n).asnumpy() * 2 + n)
        two, five = (2, 3), (5, 3)
        assert events == [
            ("prepare", two), ("resize", five), ("resize", two), ("resize", five)
        ]  # fmt: skip
        assert "0 kernels as they are, 1 that are resized; 1 are this" in run.recompilations[-1]
        del run
        gc.collect()
        assert events[-1] == ("release", five)
        assert len(events) == 5

    def test_empty_arrays_have_no_part_in_it(self, events):
        run = ml.jit(twice_plus_n, dynamic={"x": (0,)})
        for n in (0, 4, 0, 7):
            assert run(rows(n)).shape == (n, 3)
        assert events == [("prepare", (4, 3)), ("resize", (7, 3))]

    def test_one_that_does_not_override_resize_has_an_object_for_each_size(self, events):
        run = ml.jit(twice_plus_n, dynamic={"x": (0,)})
        with ml.context(providers="fresh"):
            for n in (2, 5, 2, 5):
                run(rows(n))
        assert events == [("prepare", (2, 3)), ("prepare", (5, 3))]

    def test_calls_that_are_equal_keep_theirs(self, events):
        run = ml.jit(lambda x, w: Follow()(x) @ Follow()(w), dynamic={"x": (0,)})
        w = rows(3, 2)
        for n in (2, 5, 4):
            run(rows(n), w)
        assert [e for e in events if e[1] == (3, 2)] == [("prepare", (3, 2))]
        assert "1 kernels as they are, 1 that are resized" in run.recompilations[-1]

    def test_more_sizes_are_kept_where_they_take_little_memory(self, events):
        run = ml.jit(twice_plus_n, dynamic={"x": (0,)})
        with ml.context(providers="fresh"):
            for n in [*range(1, 4 * SIZES), *range(1, 4 * SIZES)]:
                run(rows(n))
        assert len(run.recompilations) == len(events) == 4 * SIZES - 1

    def test_the_sizes_used_last_are_kept_and_others_released(self, events, monkeypatch):
        monkeypatch.setattr(jit, "_ROOM", 0)
        run = ml.jit(twice_plus_n, dynamic={"x": (0,)})
        gc.disable()  # what is dropped goes at once
        try:
            with ml.context(providers="fresh"):
                for n in range(1, SIZES + 1):
                    run(rows(n))
                run(rows(1))
                run(rows(SIZES + 1))
                assert [e for e in events if e[0] == "release"] == [("release", (2, 3))]
                run(rows(1))
                assert events[-1][0] == "release"  # nothing was prepared
                run(rows(2))
                assert events[-2:] == [("prepare", (2, 3)), ("release", (3, 3))]
        finally:
            gc.enable()

    @needs_compiler
    def test_kernels_in_c_share_texts(self):
        run = ml.jit(lambda x: ops.exp(x @ x.T) * 2 + 1, dynamic={"x": (0, 1)})
        with ml.context(providers=("cc",)):
            first, second = (str(ml.explain(run, np.ones((n, n), np.float32))) for n in (40, 41))
        assert "sizes vary: no other size yet" in first
        assert "serve other sizes" not in first
        assert "kernels in C: 1 (1 of them serve other sizes, too)" in second
        assert run.recompilations[0] == "first call; no other size yet"  # the same versions

    def test_dtypes_and_settings_are_versions_of_their_own(self, events):
        run = ml.jit(twice_plus_n, dynamic={"x": (0,)})
        run(rows(2))
        run(rows(2).astype("float64"))
        assert events == [("prepare", (2, 3))] * 2
        assert run.recompilations[-1].endswith("no other size yet")


class TestOtherGraphs:
    def test_control_flow_on_the_size(self, events):
        def fn(x):
            return Follow()(x) if x.shape[0] > 2 else ops.neg(x)

        run = ml.jit(fn, dynamic={"x": (0,)})
        for n in (2, 4, 1, 5):
            x = rows(n).asnumpy()
            np.testing.assert_array_equal(run(x).asnumpy(), 2 * x if n > 2 else -x)
        assert [e[0] for e in events] == ["prepare", "resize"]  # 5 shares with 4
        assert run.recompilations[1].endswith(
            "nothing is shared with other sizes: Follow stands where Neg stood"
        )

    def test_a_size_of_one_may_broadcast(self):
        gradient = ml.grad.grad(lambda x: ops.sum((x + np.ones((4, 3), "f")) ** 2))
        run = ml.jit(gradient, dynamic={"x": (0,)})
        for n in (4, 1):
            x = rows(n).asnumpy()
            expected = 2 * (x + np.ones((4, 3), "f"))
            np.testing.assert_allclose(
                run(x).asnumpy(), expected if n == 4 else expected.sum(0, keepdims=True)
            )
        assert "nothing is shared with other sizes" in run.recompilations[-1]


class TestFailures:
    def test_in_resize(self, events):
        run = ml.jit(twice_plus_n, dynamic={"x": (0,)})
        run(rows(2)), run(rows(5))
        Counted.fail = "resize", (2, 3)
        for _ in range(2):
            with pytest.raises(RuntimeError, match="no resize") as caught:
                run(rows(2))
        assert "Follow" in "".join(caught.value.__notes__)
        np.testing.assert_array_equal(run(rows(5)).asnumpy(), rows(5).asnumpy() * 2 + 5)
        Counted.fail = None
        np.testing.assert_array_equal(run(rows(2)).asnumpy(), rows(2).asnumpy() * 2 + 2)

    def test_what_failed_is_resized_for_a_new_program_that_keeps_it(self, events):
        run = ml.jit(lambda a, b: (Follow()(a), b + 1), dynamic={"a": (0,), "b": (0,)})
        run(rows(2), rows(3)), run(rows(5), rows(3))
        Counted.fail = "resize", (2, 3)
        with pytest.raises(RuntimeError, match="no resize"):
            run(rows(2), rows(3))
        Counted.fail = None
        events.clear()
        for _ in range(2):
            np.testing.assert_array_equal(run(rows(2), rows(4))[0].asnumpy(), rows(2).asnumpy() * 2)
        assert events == [("resize", (2, 3))]

    def test_in_the_resize_for_a_new_size(self, events):
        run = ml.jit(twice_plus_n, dynamic={"x": (0,)})
        run(rows(2))
        Counted.fail = "resize", (5, 3)
        for _ in range(2):
            with pytest.raises(RuntimeError, match="no resize"):
                run(rows(5))
            np.testing.assert_array_equal(run(rows(2)).asnumpy(), rows(2).asnumpy() * 2 + 2)
        assert not [e for e in events if e[0] == "release"]

    def test_a_call_from_inside_a_call_is_refused(self, events, monkeypatch):
        run = ml.jit(lambda x: Follow()(x) + 1, dynamic={"x": (0,)})
        monkeypatch.setattr(Calling, "inside", staticmethod(run), raising=False)
        with ml.context(providers="calling"):
            for _ in range(2):  # a new size, and a known one
                with pytest.raises(InUseError, match="is called inside a call of itself"):
                    run(rows(2))
                run(rows(3))
            np.testing.assert_array_equal(run(rows(4)).asnumpy(), rows(4).asnumpy() * 2 + 1)


class TestThreads:
    def test_two_sizes_at_once(self, events, monkeypatch):
        monkeypatch.setattr(Counted, "pause", 1e-4)
        run = ml.jit(lambda x: Follow()(x) + x.shape[0], dynamic={"x": (0,)})
        start = threading.Barrier(4)

        def work(n):
            start.wait()
            for i in range(40):
                size = n + i % 3
                got = run(rows(size)).asnumpy()
                np.testing.assert_array_equal(got, rows(size).asnumpy() * 2 + size)

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(work, (1, 2, 1, 5)))


class TestRefusals:
    @pytest.mark.parametrize(
        ("dynamic", "message"),
        [
            ((0,), r"got dynamic=\(0,\); give the axes that vary by the name"),
            ({}, r"got dynamic=\{\}; give the axes"),
            ({"z": (0,)}, "got dynamic axes of 'z', which is not among its arguments: x, n"),
            ({"x": ()}, r"got \(\) as the dynamic axes of x; give integers"),
            ({"x": (0.5,)}, r"got \(0.5,\) as the dynamic axes of x"),
            ({"x": "0"}, "got '0' as the dynamic axes of x"),
            ({"x": True}, "got True as the dynamic axes of x"),
        ],
    )
    def test_when_compiled(self, dynamic, message):
        def fn(x, n=2):
            return x * n

        with pytest.raises(GraphError, match=message):
            ml.jit(fn, dynamic=dynamic)

    def test_when_called(self):
        run = ml.jit(lambda x, n=2: x * n, dynamic={"x": (2,), "n": 0})
        with pytest.raises(ShapeError, match=r"has the dynamic axis 2 in .* float32\[2, 3\]"):
            run(rows(2))
        with pytest.raises(GraphError, match=r"got 3 for n, whose axes \(0,\) are dynamic"):
            run(np.ones((1, 2, 3)), 3)
        with pytest.raises(TypeError, match="missing 1 required positional argument: 'x'"):
            run()
