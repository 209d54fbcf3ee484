"""LBFGS against dense inverse Hessians by NumPy, and numbers that PyTorch gave."""

from itertools import pairwise

import numpy as np
import pytest

import miniml as ml
from miniml import nn, ops, optim
from miniml.errors import MinimlError

A = np.diag([1.0, 3.0, 10.0, 30.0, 2.0]) + 0.3
START = np.linspace(-1, 1, 5)


def gradient(w):
    """Of w A w / 2 + sum(w^4) - sum(w)."""
    return A @ w + 4 * w**3 - 1


def minimized(lr, history, steps, jit=True, factor=1.0, **settings):
    a, b = ml.Parameter(START[:2], name="a"), ml.Parameter(START[2:].reshape(3, 1), name="b")
    opt = optim.LBFGS([a, b], lr=lr, history=history)
    update = ml.jit(lambda *grads: opt.update(grads))
    for _ in range(steps):
        g = factor * gradient(np.concatenate([a.asnumpy(), b.asnumpy().ravel()]))
        with ml.context(jit=jit, **settings):
            update(ml.Tensor(g[:2]), ml.Tensor(g[2:].reshape(3, 1)))
    return np.concatenate([a.asnumpy(), b.asnumpy().ravel()])


def by_matrices(lr, history, steps):
    w, pairs, last = START, [], None
    for step in range(steps):
        g = gradient(w)
        if last is not None:
            s, y = w - last[0], g - last[1]
            pairs = [*pairs, (s, y)][-history:] if s @ y > 2e-16 * (y @ y) else pairs
        h = np.eye(5) * (
            pairs[-1][0] @ pairs[-1][1] / (pairs[-1][1] @ pairs[-1][1]) if pairs else 1
        )
        for s, y in pairs:
            v = np.eye(5) - np.outer(y, s) / (y @ s)
            h = v.T @ h @ v + np.outer(s, s) / (y @ s)
        last = w, g
        w = w - lr * (1.0 if step else min(1.0, 1.0 / np.abs(g).sum())) * h @ g
    return w


@pytest.mark.parametrize("jit", [True, False])
@pytest.mark.parametrize(("lr", "history"), [(1.0, 10), (0.5, 2)])
def test_updates_are_those_of_the_dense_inverse_hessian(lr, history, jit):
    found = minimized(lr, history, 6, jit, check_nan=True)
    assert np.allclose(found, by_matrices(lr, history, 6), rtol=1e-9)


def test_updates_are_those_of_torch_2_13():
    # torch.optim.LBFGS([p], lr=0.5, max_iter=1, history_size=3), 8 steps
    expected = [
        0.24788223183196767, 0.31247207113985037, 0.06653176376550139, 0.010671670553650732,
        0.3366327938280015,
    ]  # fmt: skip
    assert np.allclose(minimized(0.5, 3, 8), expected, rtol=1e-12)


def test_it_finds_the_minimum():
    found = minimized(1.0, 5, 40)
    assert np.abs(gradient(found)).max() < 1e-9


def test_small_gradients_tell_curvature_too():
    found = minimized(1.0, 5, 40, factor=1e-8)
    assert np.abs(gradient(found)).max() < 1e-9


def test_a_run_resumed_has_the_same_bits(tmp_path):
    def start():
        p = ml.Parameter(START)
        return {"p": p, "opt": optim.LBFGS([p], lr=optim.cosine(1.0, 9), history=2)}

    def train(run, steps):
        for _ in range(steps):
            run["opt"].update([ml.Tensor(gradient(run["p"].asnumpy()))])
        return run["p"].asnumpy()

    whole, first, second = start(), start(), start()
    train(first, 3)
    ml.save_checkpoint(first, tmp_path / "run.safetensors")
    ml.load_checkpoint(tmp_path / "run.safetensors", second)
    assert train(second, 3).tobytes() == train(whole, 6).tobytes()


def test_what_makes_no_sense_is_refused():
    with pytest.raises(MinimlError, match="LBFGS got history=0; expected an int >= 1"):
        optim.LBFGS([ml.Parameter(START)], history=0)


class Valley(nn.Cell):
    """Rosenbrock's function, a curved valley with its minimum 0 at (1, 1, ...)."""

    def __init__(self, start):
        self.w = ml.Parameter(np.array(start), name="w")

    def construct(self, x):
        a, b = self.w[:-1], self.w[1:]
        return 100.0 * (b - a * a) ** 2 + (1.0 - a) ** 2


def valley(w):
    a, b = w[:-1], w[1:]
    slopes = np.zeros_like(w)
    slopes[:-1] += -400 * a * (b - a * a) - 2 * (1 - a)
    slopes[1:] += 200 * (b - a * a)
    return (100 * (b - a * a) ** 2 + (1 - a) ** 2).sum(), slopes


def searching(start=(-1.2, 1.0, 0.5), **options):
    net = Valley(start)
    opt = optim.LBFGS(net.trainable_params(), **{"line_search": 20, **options})
    return net, ml.train_step(net, ops.sum, opt)


@pytest.mark.parametrize("jit", [True, False])
def test_each_step_of_a_search_fulfils_the_conditions_of_wolfe(jit):
    net, step = searching()
    w, x, decreases = net.w.asnumpy(), np.zeros(1), 0
    for _ in range(12):
        value, slopes = valley(w)
        with ml.context(jit=jit):
            assert float(step(x)) == pytest.approx(value, rel=1e-12)
        change = net.w.asnumpy() - w
        w = net.w.asnumpy()
        after, others = valley(w)
        slope = slopes @ change  # t f'(0)
        assert after <= value + 1e-4 * slope + 1e-12
        decreases += others @ change >= 0.9 * slope
    assert decreases == 12
    assert not jit or step.recompilations == ["first call"]


def test_a_search_finds_the_minimum_that_steps_alone_miss():
    x = np.zeros(1)
    net, step = searching()
    losses = [float(step(x)) for _ in range(60)]
    assert losses[-1] < 1e-18
    assert all(a >= b for a, b in pairwise(losses))
    np.testing.assert_allclose(net.w.asnumpy(), 1.0, 1e-9)
    _, alone = searching(line_search=0)
    losses = [float(alone(x)) for _ in range(60)]
    assert not all(a >= b for a, b in pairwise(losses))


def test_the_way_of_a_search_does_not_depend_on_the_mode():
    found = []
    for jit in (True, False):
        net, step = searching(history=3)
        with ml.context(jit=jit):
            for _ in range(8):
                step(np.zeros(1))
        found.append(net.w.asnumpy())
    np.testing.assert_allclose(*found, 1e-8)


def test_a_search_trains_a_network_by_fit_and_gives_aux():
    x = np.random.default_rng(0).normal(size=(40, 3))
    net = nn.Dense(3, 1).to(ml.float64)
    target = x @ np.array([[1.0], [-2.0], [0.5]])
    loss = lambda out, y: (ops.mse_loss(out, y), {"largest": ops.max(ops.abs(out - y))})  # noqa: E731
    opt = optim.LBFGS(net.trainable_params(), line_search=10)
    rows = ml.train.Model(net, loss, opt).fit(x, target, epochs=12, batch_size=40, show=False)
    assert rows[-1]["loss"] < 1e-10 < rows[0]["loss"]
    assert rows[-1]["largest"] < 1e-4


def test_what_cannot_be_searched_is_refused():
    net = nn.Sequential(nn.Dense(2, 2), nn.Dropout(0.5))
    opt = optim.LBFGS(net.trainable_params(), line_search=5)
    with pytest.raises(MinimlError, match="needs the loss; give it itself"):
        opt.update([ml.Tensor(np.zeros(p.shape, np.float32)) for p in opt.params])
    with pytest.raises(MinimlError, match="takes no clip, loss_scale or group"):
        ml.train_step(net, nn.MSELoss(), opt, clip=1.0)
    x = np.zeros((3, 2), np.float32)
    with pytest.raises(MinimlError, match="needs the loss; give it itself"):
        ml.train_step(net, nn.MSELoss(), optim.EMA(opt))(x, x)
    with pytest.raises(MinimlError, match="random"):
        ml.train_step(net, nn.MSELoss(), opt)(x, x)
