"""Tensors, calls, programs and training on a CUDA device, against the CPU."""

import numpy as np
import pytest

import miniml as ml
from miniml import nn, ops, optim
from miniml.errors import DeviceError, NonFiniteError, OutOfRangeError
from miniml.grad import GradOperation, grad, value_and_grad


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


class TestTensors:
    @pytest.mark.parametrize("dtype", ["bool", "int8", "uint64", "float16", "bfloat16", "float64"])
    def test_data_go_there_and_back(self, on_device, dtype):
        data = np.arange(6).reshape(2, 3).astype(ml.Tensor([0.0]).astype(dtype).asnumpy().dtype)
        t = ml.Tensor(data)
        assert (t.device, t.shape, t.dtype) == (on_device, (2, 3), data.dtype)
        assert np.array_equal(t.asnumpy(), data)
        assert np.array_equal(t.to("cpu").to(on_device).asnumpy(), data)

    @pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3)])
    def test_nothing_and_one_element_do_too(self, on_device, shape):
        data = np.full(shape, 3.0, np.float32)
        assert np.array_equal((ml.Tensor(data) + 1).asnumpy(), data + 1)

    def test_a_tensor_stays_where_it_was_made(self, device):
        x = ml.Tensor([1.0, 2.0], device=device)
        assert (x * 2).device == device
        assert repr(x).endswith(f"device={device})")
        assert float(x[1]) == 2.0

    @pytest.mark.parametrize(
        "look",
        [
            lambda x: x.T,
            lambda x: x[1:, ::2],
            lambda x: x[:, ::-1],
            lambda x: x.reshape(4, -1),
            lambda x: x.T.reshape(2, 6),
            lambda x: ops.broadcast_to(x[:, None], (3, 2, 4)),
        ],
        ids=["transposed", "sliced", "flipped", "reshaped", "copied", "broadcast"],
    )
    def test_views(self, on_device, look):
        data = numbers(3, 4)
        on_cpu = look(ml.Tensor(data, device="cpu")).asnumpy()
        seen = look(ml.Tensor(data))
        assert np.array_equal(seen.asnumpy(), on_cpu)
        assert np.array_equal((seen * 2).asnumpy(), on_cpu * 2)

    def test_two_devices_are_refused_by_name(self, device):
        x, y = ml.Tensor([1.0], device=device), ml.Tensor([1.0], device="cpu")
        with pytest.raises(DeviceError, match=f"Add got tensors on two devices, {device} and cpu"):
            x + y
        with pytest.raises(DeviceError, match="Add got tensors on two devices"):
            ml.jit(lambda a: a + y)(x)

    def test_arrays_and_tensors_share_the_version_that_follows(self, device):
        net, x = nn.Dense(3, 2).to(device), numbers(4, 3)
        given = {"x": x}, {"x": ml.Tensor(x, device=device)}
        for calls in (given, given[::-1]):
            f = ml.jit(lambda batch: net(batch["x"]))
            assert {f(batch).device for batch in calls * 2} == {device}
            assert f.recompilations == ["first call"]
        found = ml.Tensor([1.0, 2.0, 3.0], device=device)
        g = ml.jit(lambda batch: batch["x"] * found)
        assert {g(given[0]).device for _ in range(3)} == {device}
        assert g.recompilations == ["first call"]

    def test_sizes_share_nothing_with_those_of_another_device(self, device):
        net = nn.Dense(3, 3)
        f = ml.jit(lambda x: x @ ops.exp(net(net.weight)), dynamic={"x": (0,)})
        for where in (device, "cpu", device):
            net.to(where)
            want = np.exp(net(net.weight).asnumpy())
            for n in (2, 4):
                out = f(numbers(n, 3))
                assert out.device == where
                np.testing.assert_allclose(out.asnumpy(), numbers(n, 3) @ want, rtol=1e-5)

    def test_errors_on_the_device_that_is_followed_come_alone(self, device):
        net = nn.Dense(3, 2).to(device)

        def fails(x):
            raise ValueError(net(x).device)

        with pytest.raises(ValueError, match=device) as caught:
            ml.jit(fails)(numbers(4, 3))
        assert caught.value.__context__ is None

    @pytest.mark.parametrize("mode", [ml.PYNATIVE_MODE, ml.GRAPH_MODE])
    def test_arrays_follow_the_parameters_of_a_network(self, device, mode):
        net = nn.Dense(3, 2).to(device)
        x, y = numbers(4, 3), numbers(4, 2)
        w, b = net.weight.asnumpy(), net.bias.asnumpy()
        by_name = ml.jit(lambda batch: net(batch["x"]))
        with ml.context(mode=mode):
            for out in (net(x), ml.jit(net)(x), by_name({"x": x})):
                assert out.device == device
                np.testing.assert_allclose(out.asnumpy(), x @ w + b, rtol=1e-5, atol=1e-6)
            with pytest.raises(DeviceError, match="two devices"):
                by_name({"x": ml.Tensor(x, device="cpu")})
            _, (dx, _) = value_and_grad(lambda x: ops.sum(net(x)), weights=net)(x)
            assert dx.device == device
            step = ml.train_step(net, nn.MSELoss(), optim.SGD(net.trainable_params(), lr=0.5))
            assert step(x, y).device == device
        slope = 2 * (x @ w + b - y) / y.size
        np.testing.assert_allclose(net.bias.asnumpy(), b - 0.5 * slope.sum(0), rtol=1e-5, atol=1e-6)


class TestPrograms:
    def test_eager_is_graph(self, on_device):
        x, w = ml.Tensor(numbers(4, 3)), ml.Tensor(numbers(3, 5, seed=1))

        def f(x, w):
            h = ops.tanh(ops.matmul(x, w))
            return ops.sum(h * ops.softmax(h.T).T, 0), h[1:, ::2].reshape(-1)

        for eager, graph in zip(f(x, w), ml.jit(f)(x, w)):
            assert np.allclose(eager.asnumpy(), graph.asnumpy(), rtol=1e-6, atol=1e-7)

    def test_arrays_follow_the_tensors(self, device):
        x = ml.Tensor([1.0, 2.0], device=device)
        out = ml.jit(ops.add)(x, np.float32([3.0, 4.0]))
        assert out.device == device
        assert out.tolist() == [4.0, 6.0]

    def test_one_function_serves_two_devices(self, device):
        f = ml.jit(lambda x: x * 2)
        for where in ("cpu", device, "cpu", device):
            out = f(ml.Tensor([1.0, 2.0], device=where))
            assert (out.device, out.tolist()) == (where, [2.0, 4.0])

    def test_outputs_are_the_callers_own(self, on_device):
        f = ml.jit(lambda x: (x, x + 1))
        x = ml.Tensor([1.0])
        first = f(x)
        f(ml.Tensor([5.0]))
        assert [t.item() for t in first] == [1.0, 2.0]

    def test_parameters_swap_their_values(self, on_device):
        a, b = ml.Parameter(np.float32([1, 2])), ml.Parameter(np.float32([3, 4]))

        def swap(x):
            old = a + 0
            ops.assign(a, b)
            ops.assign(b, old)
            return x

        ml.jit(swap)(ml.Tensor([0.0]))
        assert (a.tolist(), b.tolist()) == ([3.0, 4.0], [1.0, 2.0])

    def test_a_value_that_is_read_through_a_view_too_is_not_overwritten(self, on_device):
        """Elementwise kernels work in place; NumPy would notice the overlap, CUDA does not."""
        x = numbers(40, 40)
        f = ml.jit(lambda x: (lambda h: h - h.T)(x * 2))
        assert np.array_equal(f(ml.Tensor(x)).asnumpy(), x * 2 - (x * 2).T)

    def test_a_parameter_is_read_until_its_new_value_is_done(self, on_device):
        """A product reads all of its input for each output: it cannot work in place."""
        w, x = ml.Parameter(numbers(5, 5)), numbers(5, 5, seed=1)
        first = w.asnumpy()

        def multiply(x):
            ops.assign(w, ops.matmul(w, x))
            return x

        ml.jit(multiply)(ml.Tensor(x))
        assert np.allclose(w.asnumpy(), first @ x, rtol=1e-5, atol=1e-6)

    def test_the_old_value_of_a_parameter_goes_to_another(self, on_device):
        a, b = ml.Parameter(np.float32([1, 2])), ml.Parameter(np.float32([3, 4]))

        def shift(x):
            ops.assign(b, a)
            ops.assign(a, a * x)
            return x

        f = ml.jit(shift)
        for i in (0, 1, 2):
            f(ml.Tensor([2.0]))
            assert b.tolist() == [2.0**i, 2 * 2.0**i]
            assert a.tolist() == [2 * 2.0**i, 4 * 2.0**i]

    def test_one_new_value_of_two_parameters(self, on_device):
        a, b = ml.Parameter(np.float32([1, 2])), ml.Parameter(np.float32([3, 4]))

        def share(x):
            new = a * x
            ops.assign(a, new)
            ops.assign(b, ops.reshape(new, (2,)))
            return x

        f = ml.jit(share)
        for i in (1, 2, 3):
            f(ml.Tensor([2.0]))
            assert a.tolist() == b.tolist() == [2.0**i, 2 * 2.0**i]

    def test_branches_and_loops(self, on_device):
        f = ml.jit(lambda x: ops.cond(ops.sum(x) > 0, lambda v: v * 2, lambda v: -v, x))
        assert f(ml.Tensor([1.0, 2.0])).tolist() == [2.0, 4.0]
        assert f(ml.Tensor([-1.0, -2.0])).tolist() == [1.0, 2.0]
        g = ml.jit(lambda x: ops.while_loop(lambda v: ops.sum(v) < 100, lambda v: v * 2, x))
        assert g(ml.Tensor([1.0, 2.0])).tolist() == [64.0, 128.0]

    def test_a_scan_and_its_gradient(self, device):
        rng = np.random.default_rng(0)
        args = [rng.normal(size=s).astype(np.float32) for s in ((3, 3), (2, 3), (4, 2, 3))]

        def loss(weight, start, rows):
            def step(h, x):
                h = ops.tanh(ops.matmul(h, weight) + ops.dropout(x, 0.3))
                return h, h * h

            ys, h = ops.scan(step, start, rows)
            return ops.sum(ys) + ops.sum(ops.sin(h))

        found = []
        for where in ("cpu", device):
            ml.manual_seed(3)
            with ml.context(device_target=where):
                derived = ml.jit(ml.grad.grad(loss, (0, 1, 2)))
                found.append([g.asnumpy() for g in derived(*map(ml.Tensor, args))])
        for host, other in zip(*found):
            np.testing.assert_allclose(other, host, rtol=1e-5, atol=1e-6)

    def test_random_draws_are_the_bits_of_the_cpu(self, device):
        drawn = {}
        for where in ("cpu", device):
            ml.manual_seed(3)
            with ml.context(device_target=where):
                draw = ml.jit(lambda x: x + ops.uniform((3, 5)))
                zero = ml.Tensor(np.zeros((3, 5), np.float32))
                drawn[where] = [draw(zero).asnumpy(), draw(zero).asnumpy()]
                drawn[where].append(ops.bernoulli((7,), 0.3).asnumpy())
        assert all(map(np.array_equal, drawn["cpu"], drawn[device]))

    def test_a_nan_is_found_where_it_is_made(self, on_device):
        with ml.context(check_nan=True), pytest.raises(NonFiniteError, match="Log made NaN") as e:
            ml.jit(lambda x: ops.exp(ops.log(x)))(ml.Tensor([-1.0]))
        assert "ops.exp(ops.log(x))" in "".join(e.value.__notes__)

    def test_an_index_outside_is_refused(self):
        with ml.context(device_target="cuda-sim"):
            x = ml.Tensor([1.0, 2.0])
            with pytest.raises(OutOfRangeError, match="Gather got index 5 for an axis of extent 2"):
                ops.gather(x, np.array([0, 5]))


class TestTraining:
    def test_gradients_are_those_of_the_cpu(self, device):
        def f(x, w):
            return ops.sum(ops.sigmoid(ops.conv2d(x, w, padding=1)) ** 2)

        x, w = numbers(2, 3, 5, 4), numbers(4, 3, 3, 3, seed=1)
        expected = grad(f, (0, 1))(ml.Tensor(x), ml.Tensor(w))
        with ml.context(device_target=device):
            got = grad(f, (0, 1))(ml.Tensor(x), ml.Tensor(w))
            (again,) = GradOperation(get_all=True)(lambda x: f(x, ml.Tensor(w)))(ml.Tensor(x))
        for right, found in zip((*expected, expected[0]), (*got, again)):
            assert np.allclose(right.asnumpy(), found.asnumpy(), rtol=1e-5, atol=1e-5)

    @pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "op by op"])
    def test_a_network_learns_as_on_the_cpu(self, device, compiled):
        x, y = numbers(8, 1, 6, 6), np.arange(8) % 3
        losses, weights = {}, {}
        for where in ("cpu", device):
            with ml.context(device_target=where, jit=compiled):
                ml.manual_seed(0)
                net = nn.Sequential(
                    nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2),
                    nn.Flatten(), nn.Dropout(0.25), nn.Dense(36, 3),
                )  # fmt: skip
                params = net.trainable_params()
                step = ml.train_step(net, nn.CrossEntropyLoss(), optim.SGD(params, 0.1, 0.9))
                losses[where] = [float(step(x, y)) for _ in range(3)]
                assert all(p.device == where for p in net.get_parameters())
                weights[where] = [p.asnumpy() for p in net.get_parameters()]
        assert np.allclose(losses["cpu"], losses[device], rtol=1e-5)
        for right, found in zip(weights["cpu"], weights[device]):
            assert np.allclose(right, found, rtol=1e-4, atol=1e-5)

    def test_a_network_moves(self, device):
        net = nn.Dense(3, 2)
        x = numbers(4, 3)
        expected = net(ml.Tensor(x)).asnumpy()
        net.to(device)
        assert np.allclose(net(ml.Tensor(x, device=device)).asnumpy(), expected, rtol=1e-6)
        with pytest.raises(DeviceError, match="two devices"):
            net(ml.Tensor(x))
