"""LBFGS against dense inverse Hessians by NumPy, and numbers that PyTorch gave."""

import numpy as np
import pytest

import miniml as ml
from miniml import optim
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
