"""train_step against a step written by hand, in both modes; wholly or not at all; NaN located."""

import numpy as np
import pytest

import miniml as ml
from miniml import nn, ops, optim
from miniml.errors import NonFiniteError
from miniml.grad import bprop_getters
from miniml.ops import Unary
from miniml.train import Snapshot, locate_nonfinite

rng = np.random.default_rng(0)
X = rng.normal(size=(8, 4)).astype(np.float32)
LABELS = rng.integers(0, 3, 8)


def small_net(*extra):
    ml.manual_seed(1)
    return nn.Sequential(nn.Dense(4, 5), nn.ReLU(), *extra, nn.Dense(5, 3))


def by_hand(values, lr, steps):
    """Losses and weights of a two-layer network with relu and cross entropy under plain SGD."""
    w1, b1, w2, b2 = (v.astype(np.float64) for v in values)
    losses = []
    for _ in range(steps):
        a = X @ w1 + b1
        h = np.maximum(a, 0)
        z = h @ w2 + b2
        p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
        losses.append(-np.log(p[np.arange(8), LABELS]).mean())
        dz = (p - np.eye(3)[LABELS]) / 8
        da = (dz @ w2.T) * (a > 0)
        w1, b1 = w1 - lr * X.T @ da, b1 - lr * da.sum(0)
        w2, b2 = w2 - lr * h.T @ dz, b2 - lr * dz.sum(0)
    return losses, [w1, b1, w2, b2]


@pytest.mark.parametrize("jit", [True, False])
def test_a_step_is_what_one_writes_by_hand(jit):
    net = small_net()
    step = ml.train_step(net, nn.CrossEntropyLoss(), optim.SGD(net.trainable_params(), lr=0.5))
    losses, weights = by_hand([p.asnumpy() for p in net.get_parameters()], 0.5, 4)
    with ml.context(jit=jit):
        for expected in losses:
            loss = step(X, LABELS)
            assert loss.shape == ()
            assert np.isclose(float(loss), expected, rtol=1e-5)
    for p, expected in zip(net.get_parameters(), weights, strict=True):
        assert np.allclose(p.asnumpy(), expected, atol=1e-5)


def trained(jit, steps=6):
    net = small_net(nn.Dropout(0.3))
    opt = optim.Adam(net.trainable_params(), lr=0.01)
    step = ml.train_step(net, nn.CrossEntropyLoss(), opt)
    with ml.context(jit=jit):
        losses = [float(step(X, LABELS)) for _ in range(steps)]
    return losses, [p.asnumpy() for p in (*net.get_parameters(), *opt.parameters_dict().values())]


def test_graph_and_eager_agree_and_equal_seeds_are_equal():
    losses, values = trained(True)
    again, same = trained(True)
    eager, close = trained(False)
    assert losses == again
    assert all(np.array_equal(a, b) for a, b in zip(values, same, strict=True))
    assert np.allclose(losses, eager, rtol=1e-5)
    assert all(np.allclose(a, b, atol=1e-5) for a, b in zip(values, close, strict=True))


def test_train_and_eval_make_two_programs_and_statistics_move():
    ml.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 2, 2), nn.BatchNorm2d(2), nn.Flatten(), nn.Dense(2, 3))
    opt = optim.SGD(net.trainable_params(), lr=0.1)
    step = ml.train_step(net, nn.CrossEntropyLoss(), opt)
    images = X.reshape(8, 1, 2, 2)
    step(images, LABELS)
    moved = net[1].running_mean.asnumpy()
    assert moved.any()
    net.set_train(False)
    step(images, LABELS)
    assert np.array_equal(net[1].running_mean.asnumpy(), moved)


class Fuse(Unary):
    """x, until it is told to raise: a kernel that fails in the middle of a step."""


blown: list[BaseException] = []


@ml.kernel("Fuse", "cpu", "f->f")
def fuse_cpu(x, *, out):
    if blown:
        raise blown[0]
    np.copyto(out, x)


@bprop_getters.register(Fuse)
def get_bprop_fuse(self):
    return lambda x, out, dout: (self(dout),)


class FuseLayer(nn.Cell):
    def construct(self, x):
        return Fuse()(x)


@pytest.mark.parametrize("jit", [True, False])
@pytest.mark.parametrize("error", [ValueError("broken"), KeyboardInterrupt()])
def test_a_step_that_raises_changes_nothing_and_the_next_one_works(jit, error):
    """In the network the statistics of BatchNorm are assigned before the kernel that raises."""
    ml.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 2, 2), nn.BatchNorm2d(2), nn.Dropout(0.5), FuseLayer(), nn.Flatten(),
        nn.Dense(2, 3),
    )  # fmt: skip
    opt = optim.Adam(net.trainable_params(), lr=0.1)
    step = ml.train_step(net, nn.CrossEntropyLoss(), opt)
    images = X.reshape(8, 1, 2, 2)
    with ml.context(jit=jit):
        step(images, LABELS)
        state = (*net.get_parameters(), *opt.parameters_dict().values())
        state += (ml.core.parameter.default_generator.state,)
        before = [p.asnumpy() for p in state]
        blown.append(error)
        try:
            with pytest.raises(type(error)):
                step(images, LABELS)
        finally:
            blown.clear()
        assert all(np.array_equal(p.asnumpy(), b) for p, b in zip(state, before, strict=True))
        step(images, LABELS)
        assert not all(np.array_equal(p.asnumpy(), b) for p, b in zip(state, before, strict=True))


def test_snapshot_goes_back():
    net = small_net()
    net.stream = ml.Generator(1)
    before = Snapshot(net)
    drawn = ops.uniform((3,)).tolist()
    own = ops.uniform((3,), generator=net.stream).tolist()
    for p in net.get_parameters():
        p.set_data(np.zeros(p.shape, np.float32))
    before.restore()
    assert net[0].weight.asnumpy().any()
    assert ops.uniform((3,)).tolist() == drawn
    assert ops.uniform((3,), generator=net.stream).tolist() == own


def test_a_snapshot_is_renewed_after_every_kind_of_write():
    net = small_net()
    step = ml.train_step(net, nn.CrossEntropyLoss(), optim.SGD(net.trainable_params(), lr=0.1))
    weight, kept = net[0].weight, Snapshot(net)
    for write in (
        lambda: step(X, LABELS),
        lambda: weight.set_data(weight.asnumpy() + 1.0),
        lambda: ops.assign(weight, weight * 2.0),
        lambda: ops.uniform((3,)),
    ):
        write()
        kept.renew()
        kept.renew()  # nothing was written since
        expected, state = weight.asnumpy(), ml.core.parameter.default_generator.state.asnumpy()
        weight.set_data(np.zeros(weight.shape, np.float32))
        ops.uniform((3,))
        kept.restore()
        np.testing.assert_array_equal(weight.asnumpy(), expected)
        np.testing.assert_array_equal(ml.core.parameter.default_generator.state.asnumpy(), state)


class Reciprocal(nn.Cell):
    def construct(self, x):
        return ops.log(x)  # the line to be named


def test_a_nan_is_located_and_nothing_is_changed():
    net = nn.Sequential(nn.Dense(4, 3), Reciprocal())
    opt = optim.SGD(net.trainable_params(), lr=0.1)
    step = ml.train_step(net, nn.CrossEntropyLoss(), opt)
    before = [p.asnumpy() for p in net.get_parameters()]
    found = locate_nonfinite(step, [(X, LABELS)])
    assert isinstance(found, NonFiniteError)
    assert str(found).startswith("Log made NaN; its inputs were float32[8, 3] in [-")
    assert "the line to be named" in "".join(found.__notes__)
    same = zip(net.get_parameters(), before, strict=True)
    assert all(np.array_equal(p.asnumpy(), b) for p, b in same)
    net = small_net()
    fine = ml.train_step(net, nn.CrossEntropyLoss(), optim.SGD(net.trainable_params(), lr=0.1))
    assert locate_nonfinite(fine, [(X, LABELS)]) is None


def test_shapes_and_dtypes_that_do_not_fit_are_refused_by_the_layer():
    net = small_net()
    opt = optim.SGD(net.trainable_params(), lr=0.1)
    step = ml.train_step(net, nn.CrossEntropyLoss(), opt)
    with pytest.raises(ml.errors.ShapeError, match=r"Dense\(4, 5\) got input of shape \(8, 3\)"):
        step(X[:, :3], LABELS)
    with pytest.raises(ml.errors.DTypeError, match="CrossEntropy needs labels of an integer"):
        step(X, LABELS.astype(np.float32))


@pytest.mark.parametrize("jit", [True, False])
def test_a_step_that_raises_undoes_what_functions_around_the_net_changed(jit):
    calls, norm, dense = ml.Parameter(np.float32(0)), nn.BatchNorm2d(2), nn.Dense(2, 5)

    def net(x):
        ops.assign(calls, calls + 1.0)
        return dense(ops.mean(norm(x), (2, 3)))

    step = ml.train_step(net, nn.CrossEntropyLoss(), optim.SGD(dense.trainable_params(), lr=0.1))
    x, good = np.ones((3, 2, 2, 2), np.float32), np.array([0, 1, 2])
    with ml.context(jit=jit):
        step(x, good)
        before = [p.tolist() for p in (calls, *norm.get_parameters(), *dense.get_parameters())]
        with pytest.raises(ml.errors.OutOfRangeError):
            step(x, np.array([0, 1, 9]))
        after = [p.tolist() for p in (calls, *norm.get_parameters(), *dense.get_parameters())]
    assert after == before


@pytest.mark.parametrize("dtype", [ml.bfloat16, ml.float16])
@pytest.mark.parametrize("jit", [True, False])
def test_a_net_of_two_byte_floats_learns(dtype, jit):
    class Low(nn.Cell):
        def __init__(self):
            rng = np.random.default_rng(1)
            self.w1 = ml.Parameter(ml.Tensor(rng.normal(size=(4, 16)) * 0.5, dtype=dtype))
            self.w2 = ml.Parameter(ml.Tensor(rng.normal(size=(16, 2)) * 0.3, dtype=dtype))

        def construct(self, x):
            return ops.relu(x @ self.w1) @ self.w2

    points = np.random.default_rng(0).normal(size=(64, 4))
    labels = (points[:, 0] + points[:, 1] > 0).astype(np.int64)
    net = Low()
    step = ml.train_step(net, nn.CrossEntropyLoss(), optim.Adam(net.trainable_params(), lr=0.05))
    with ml.context(jit=jit):
        losses = [step(ml.Tensor(points, dtype=dtype), labels).item() for _ in range(40)]
    assert losses[0] > 0.5
    assert losses[-1] < 0.1
    assert net.w1.dtype == dtype
