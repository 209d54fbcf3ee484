"""Programs as CUDA graphs: recorded once, the same numbers, a step wholly or not at all."""

import dataclasses
import gc
import threading
import weakref

import numpy as np
import pytest

import miniml as ml
from miniml import Kernel, Launch, kernel, nn, ops, optim
from miniml.backends.cuda.sim import memory as sim_settings
from miniml.backends.cuda.sim import module
from miniml.backends.cuda.sim.module import SimKernel
from miniml.backends.selection import get_device
from miniml.errors import CaptureError, KernelFaultError, MinimlError
from miniml.ops import Unary
from tests.device.test_programs import numbers
from tests.device.test_users_kernels import Swish2, broken


@pytest.fixture
def graphs(device):
    """The device, with CUDA graphs."""
    with ml.context(device_target=device, cuda_graphs="on"):
        yield device


@pytest.fixture
def on_sim(on_simulator):
    with ml.context(device_target="cuda-sim", cuda_graphs="on"):
        yield get_device("cuda-sim")


@pytest.fixture
def launched(monkeypatch):
    """The names of the kernels that Python launches."""
    names = []
    call = SimKernel.__call__

    def noted(self, *args, **keywords):
        names.append(self.name)
        return call(self, *args, **keywords)

    monkeypatch.setattr(SimKernel, "__call__", noted)
    return names


def network():
    ml.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Dropout(0.25), nn.Dense(36, 3),
    )  # fmt: skip
    step = ml.train_step(
        net, nn.CrossEntropyLoss(), optim.SGD(net.trainable_params(), 0.1, momentum=0.9)
    )
    return net, step


def program_of(step, *args):
    return step._program.compiled(*args).program


class TestReplay:
    def test_a_training_step_is_the_same_with_and_without(self, device):
        batches = [(numbers(8, 1, 6, 6, seed=i), (np.arange(8) + i) % 3) for i in range(4)]
        losses, weights = {}, {}
        for how in ("off", "on"):
            with ml.context(device_target=device, cuda_graphs=how):
                net, step = network()
                losses[how] = [float(step(*batch)) for batch in batches]
                weights[how] = [p.asnumpy() for p in net.get_parameters()]
                made = program_of(step, *batches[0])
                replay = made._idle[0].executor.recorded if how == "on" else None
        assert replay is not None
        assert losses["on"] == losses["off"]
        assert all(map(np.array_equal, weights["on"], weights["off"]))

    def test_a_replay_launches_nothing_from_python_but_copies(self, on_sim, launched):
        x, y = numbers(8, 1, 6, 6), np.arange(8) % 3
        _, step = network()
        counts = []
        for _ in range(4):
            launched.clear()
            step(x, y)
            counts.append(len(launched))
        assert counts[0] > 20
        assert counts[2:] == [1, 1]  # the copy of the loss
        assert set(launched) == {"move"}

    def test_new_inputs_and_views_of_inputs(self, graphs):
        def f(x, y):
            h = ops.matmul(x.T, y)
            return ops.exp(h) + ops.sum(x.T.reshape(-1)), h[1:, ::2] * 2

        compiled, plain = ml.jit(f), ml.jit(f)
        for i in range(4):
            x, y = ml.Tensor(numbers(3, 4, seed=i)), ml.Tensor(numbers(3, 5, seed=9 + i))
            if i == 2:  # of other strides
                x = ml.Tensor(numbers(4, 3, seed=i)).T
            with ml.context(cuda_graphs="off"):
                expected = plain(x, y)
            for got, right in zip(compiled(x, y), expected):
                assert np.array_equal(got.asnumpy(), right.asnumpy())
        assert compiled.compiled(x, y).program._idle[0].executor.recorded is not None

    def test_outputs_are_the_callers_own(self, graphs):
        f = ml.jit(lambda x: (x, ops.exp(x), ops.exp(x).reshape(2, 1) * 2))
        kept = [f(ml.Tensor([float(i), 1.0])) for i in range(4)]
        for i, (x, e, doubled) in enumerate(kept):
            assert x.tolist() == [i, 1]
            assert np.allclose(e.asnumpy(), np.exp([i, 1]), rtol=1e-6)
            assert np.allclose(doubled.asnumpy()[:, 0], 2 * np.exp([i, 1]), rtol=1e-6)

    def test_an_old_value_of_a_parameter_is_copied_before_it_changes(self, graphs):
        count, twice = ml.Parameter(np.float32([0, 10])), ml.Parameter(np.float32([0, 0]))

        def f(x):
            old = count + 0
            ops.assign(count, old + x)
            ops.assign(twice, old * 2)
            return count, old

        g = ml.jit(f)
        before = ml.jit(lambda: count)
        for i in range(4):
            assert before().tolist() == [i, 10 + i]
            new, old = g(ml.Tensor([1.0, 1.0]))
            assert (old.tolist(), new.tolist()) == ([i, 10 + i], [i + 1, 11 + i])
            assert twice.tolist() == [2 * i, 20 + 2 * i]

    def test_a_parameter_that_is_given_back_and_overwritten(self, graphs):
        p = ml.Parameter(np.float32([1, 2]))

        def f(x):
            held = ops.stop_gradient(p)
            ops.assign(p, ops.exp(x) * 0 + x)
            return held

        g = ml.jit(f)
        seen = [g(ml.Tensor([float(i), 0.0])).tolist() for i in range(4)]
        assert seen == [[1, 2], [0, 0], [1, 0], [2, 0]]
        assert g.compiled(ml.Tensor([0.0, 0.0])).program._idle[0].executor.recorded is not None

    def test_draws_go_on_where_the_stream_is(self, device):
        drawn = {}
        for how in ("off", "on"):
            ml.manual_seed(3)
            with ml.context(device_target=device, cuda_graphs=how):
                draw = ml.jit(lambda x: x + ops.uniform((3, 5)) * ops.normal((3, 5)))
                zero = ml.Tensor(np.zeros((3, 5), np.float32))
                drawn[how] = [draw(zero).asnumpy() for _ in range(4)]
                drawn[how].append(ops.uniform((3, 5)).asnumpy())  # others draw meanwhile
                drawn[how].append(draw(zero).asnumpy())
                ml.manual_seed(3)
                drawn[how].append(draw(zero).asnumpy())
        assert all(map(np.array_equal, drawn["on"], drawn["off"]))
        *first, last = drawn["on"]
        assert np.array_equal(first[0], last)
        assert len({d.tobytes() for d in first}) == len(first)

    def test_bodies_of_loops_are_graphs_of_their_own(self, graphs):
        def body(v):
            return ops.exp(ops.tanh(v)) + ops.sum(v) * 0.1

        f = ml.jit(lambda x: ops.while_loop(lambda v: ops.sum(v) < 50, body, x))
        for i in range(2):
            x = ml.Tensor(numbers(3, 4, seed=i))
            with ml.context(cuda_graphs="off", jit=False):
                expected = f(x).asnumpy()
            assert np.allclose(f(x).asnumpy(), expected, rtol=1e-5)
        (loop,) = f.compiled(x).program.prepared.values()
        kernel = getattr(loop.instance, "kernel", loop.instance)  # without what checks it
        assert kernel.body.program._idle[0].executor.recorded is not None

    def test_a_program_that_is_dropped_frees_its_memory_at_once(self, graphs):
        x = ml.Tensor(X)
        f = ml.jit(lambda x: ops.exp(ops.tanh(x)) * 2)
        for _ in range(3):
            f(x)
        executor = weakref.ref(f.compiled(x).program._idle[0].executor)
        assert executor().recorded is not None
        gc.disable()
        try:
            del f
            assert executor() is None
        finally:
            gc.enable()

    def test_threads_have_a_graph_each(self, graphs):
        f = ml.jit(lambda x: ops.exp(ops.tanh(x)) * 2)
        settings, wrong = ml.core.settings.current(), []

        def work(seed):
            with ml.context(device_target=settings.device_target, cuda_graphs="on"):
                for i in range(8):
                    x = numbers(5, 3, seed=10 * seed + i)
                    if not np.allclose(
                        f(ml.Tensor(x)).asnumpy(), 2 * np.exp(np.tanh(x)), rtol=1e-5
                    ):
                        wrong.append((seed, i))

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []

    def test_parameters_set_from_outside_are_seen(self, graphs):
        net = nn.Dense(3, 2)
        f = ml.jit(lambda x: ops.tanh(net(x)))
        x = ml.Tensor(numbers(4, 3))
        for i in range(4):
            net.weight.set_data(numbers(*net.weight.shape, seed=i))
            expected = ops.tanh(net(x)).asnumpy()
            assert np.allclose(f(x).asnumpy(), expected, rtol=1e-6, atol=1e-7)


class Odd(Unary):
    """x + 1, by a class of a user."""


class OddKernel(Kernel):
    """Adds two numbers of its own Python."""

    def launch(self, inputs, workspace, outputs, stream):
        self.node.device.copy_into(outputs[0], inputs[0])


kernel("Odd", "cuda", "f->f")(OddKernel)
X = np.float32([1, 2])


class TestStepByStep:
    @pytest.mark.parametrize(
        ("f", "why", "settings"),
        [
            (lambda x: ops.exp(ops.exp(x)), "cuda_graphs='off'", {"cuda_graphs": "off"}),
            (lambda x: ops.exp(ops.exp(x)), "only with cuda_graphs='on'", {"cuda_graphs": "auto"}),
            (lambda x: ops.exp(ops.exp(x)), "check_nan looks at the outputs", {"check_nan": True}),
            (ops.exp, "a graph of 1 launches saves nothing when 1 inputs", {}),
            (lambda x: Odd()(ops.exp(x)), "Odd runs Python of its own", {}),
            (
                lambda x: ops.exp(ops.cond(ops.sum(x) > 0, lambda v: v * 2, lambda v: -v, x)),
                "Cond runs Python of its own",
                {},
            ),
        ],
        ids=["off", "auto", "check_nan", "short", "class", "branch"],
    )
    def test_the_reason_is_told(self, on_simulator, f, why, settings):
        with ml.context(**{"device_target": "cuda-sim", "cuda_graphs": "on", **settings}):
            x = ml.Tensor(X)
            message = ml.explain(f, x).launched
            assert message.startswith("launched one by one: ")
            assert why in message
            compiled = ml.jit(f)
            first = compiled(x).asnumpy()
            assert np.array_equal(compiled(x).asnumpy(), first)

    def test_as_many_inputs_as_launches_are_not_copied(self, on_sim):
        message = str(ml.explain(lambda x, y: ops.exp(x * y), ml.Tensor(X), ml.Tensor(X)))
        assert "a graph of 2 launches saves nothing when 2 inputs are copied first" in message

    def test_large_inputs_are_not_copied(self, on_sim):
        x = ml.Tensor(np.zeros(1 << 22, np.float32))
        message = str(ml.explain(lambda x: ops.exp(ops.exp(x[:2])), x))
        assert "copying 16777216 bytes of inputs first costs more than 2 launches" in message

    def test_explain_says_when_a_graph_is_made(self, on_sim):
        explained = ml.explain(lambda x: ops.exp(ops.exp(x)), ml.Tensor(X))
        assert explained.launched in str(explained).splitlines()
        assert explained.launched == (
            "launched one by one at the first call, as one CUDA graph from then on"
        )
        with ml.context(device_target="cpu"):
            assert "launched" not in str(ml.explain(ops.exp, ml.Tensor(X)))

    def test_what_looks_at_values_meanwhile_is_not_recorded(self, on_sim):
        """In check mode indices are looked at before they are used."""
        f = ml.jit(lambda x, i: ops.exp(ops.exp(ops.gather(x, i))))
        x, i = ml.Tensor(X), ml.Tensor(np.array([1, 0]))
        for _ in range(3):
            assert np.allclose(f(x, i).asnumpy(), np.exp(np.exp(X[::-1])), rtol=1e-6)
        message = f.compiled(x, i).program.launched
        assert message == (
            "launched one by one: Gather could not be recorded (a CUDA graph only launches; "
            "got a copy to the host while one was recorded)"
        )

    def test_a_class_that_only_launches_may_say_so(self, on_sim, monkeypatch):
        monkeypatch.setattr(OddKernel, "capturable", True)
        f = ml.jit(lambda x: Odd()(ops.exp(x)))
        for i in range(3):
            assert np.allclose(f(ml.Tensor(X + i)).asnumpy(), np.exp(X + i), rtol=1e-6)
        assert f.compiled(ml.Tensor(X)).program._idle[0].executor.recorded is not None

    def test_an_expression_of_a_user_only_launches(self, on_sim):
        f = ml.jit(lambda x: Swish2(1.0)(ops.exp(x)))
        seen = [f(ml.Tensor(X)).asnumpy() for _ in range(3)]
        assert np.array_equal(seen[0], seen[2])
        assert f.compiled(ml.Tensor(X)).program._idle[0].executor.recorded is not None

    def test_a_gpu_makes_graphs_by_itself(self, gpu):
        assert "as one CUDA graph" in str(ml.explain(lambda x: ops.exp(ops.exp(x)), ml.Tensor(X)))
        f = ml.jit(lambda x: ops.exp(ops.exp(x)))
        seen = [f(ml.Tensor(X)).asnumpy() for _ in range(3)]
        assert np.array_equal(seen[0], seen[2])
        assert f.compiled(ml.Tensor(X)).program._idle[0].executor.recorded is not None

    def test_an_unknown_setting(self):
        with pytest.raises(MinimlError, match="cuda_graphs='always'; expected one of"):
            ml.set_context(cuda_graphs="always")


class TestFaults:
    text = (
        'extern "C" __global__ void f(const T* x, T* out, long long n) {\n'
        "  out[threadIdx.x] = x[threadIdx.x + (x[0] > 5 ? 1000 : 0)];\n}\n"
    )

    def test_a_fault_leaves_parameters_and_program_as_they_were(self, on_sim):
        reads = broken("Reads", self.text, lambda n: Launch((1,), (2,), (np.int64(2),)))
        p = ml.Parameter(X)

        def f(x):
            row = reads(x)
            ops.assign(p, p + ops.sum(row))
            return ops.exp(row)

        g = ml.jit(f)
        good, bad = np.ones((2, 3), np.float32), np.full((2, 3), 9, np.float32)
        for _ in range(3):
            g(ml.Tensor(good))
        assert p.tolist() == [7, 8]
        with pytest.raises(KernelFaultError, match=r"out-of-bounds in kernel f.*f\.cu:2"):
            g(ml.Tensor(bad))
        assert p.tolist() == [7, 8]
        g(ml.Tensor(good))
        assert p.tolist() == [9, 10]

    def test_late_errors_surface_where_somebody_waits(self, on_sim, monkeypatch):
        late = dataclasses.replace(sim_settings.current(), deferred=True)
        monkeypatch.setattr(sim_settings, "_default", late)  # what programs see
        reads = broken("ReadsLate", self.text, lambda n: Launch((1,), (2,), (np.int64(2),)))
        p = ml.Parameter(X)

        def step(x):
            row = reads(x)
            ops.assign(p, p + 1)
            return ops.exp(row)

        f = ml.jit(step)
        for _ in range(2):
            f(ml.Tensor(np.ones((2, 3), np.float32))).asnumpy()
        out = f(ml.Tensor(np.full((2, 3), 9, np.float32)))
        with pytest.raises(KernelFaultError, match="out-of-bounds"):
            out.asnumpy()
        assert p.tolist() == [3, 4]

    def test_an_interrupted_recording_is_made_again(self, on_sim, monkeypatch):
        p = ml.Parameter(X)

        def f(x):
            ops.assign(p, p + x)
            return ops.exp(ops.exp(x))

        g = ml.jit(f)
        g(ml.Tensor(X))

        def interrupted(*args):
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(module, "Address", interrupted)
            with pytest.raises(KeyboardInterrupt):
                g(ml.Tensor(X))
        assert p.tolist() == [2, 4]
        g(ml.Tensor(X))
        assert p.tolist() == [3, 6]
        assert g.compiled(ml.Tensor(X)).program._idle[0].executor.recorded is not None

    def test_the_device_refuses_what_cuda_would_let_pass(self, on_sim):
        with pytest.raises(CaptureError, match="got an allocation while one was recorded"):
            on_sim.capture(lambda: on_sim.empty((2,), np.dtype(np.float32)))
        array = on_sim.from_host(X)
        with pytest.raises(CaptureError, match="a copy from the host"):
            on_sim.capture(lambda: on_sim.copy_into(array, X))
        with pytest.raises(CaptureError, match="waiting for the stream"):
            on_sim.capture(on_sim.synchronize)
        on_sim.capture(lambda: None)()
        assert Swish2(1.0)(ml.Tensor(X)).shape == (2,)  # nothing is left of them
