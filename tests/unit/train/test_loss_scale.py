"""Loss scaling: what a step with a gradient that is not finite leaves, and how the scale moves."""

import copy
import pickle

import numpy as np
import pytest

import miniml as ml
from miniml import nn, ops, optim
from miniml.errors import MinimlError

RNG = np.random.default_rng(0)
X = RNG.normal(size=(64, 8)).astype(np.float32)
Y = (X[:, 0] * X[:, 1] > 0).astype(np.int64)
HUGE = X.copy()
HUGE[3, 2] = 1e30  # beyond float16, whose largest number is 65504


def setup(scale, **options):
    ml.manual_seed(0)
    net = nn.Sequential(nn.Dense(8, 16), nn.Tanh(), nn.Dense(16, 2))
    opt = optim.Adam(net.trainable_params(), lr=1e-2)
    return ml.train_step(net, nn.CrossEntropyLoss(), opt, loss_scale=scale, **options)


def state(step):
    """Everything that a step may change but the scale, as bytes."""
    found = {**step.net.parameters_dict(), **step.optimizer.parameters_dict()}
    return {name: p.asnumpy().tobytes() for name, p in found.items()}


JIT = pytest.mark.parametrize("jit", [True, False])


@JIT
def test_a_step_that_overflows_changes_the_scale_alone(jit):
    scale = optim.LossScale(1024.0, every=2)
    step = setup(scale)
    found = []
    with ml.context(autocast=ml.float16, jit=jit):
        for x in (X, X, X, HUGE, HUGE, X):
            before = state(step)
            step(x, Y)
            same = state(step) == before
            assert same == (x is HUGE)
            found.append((float(scale.scale), int(scale.good_steps)))
    # By hand: doubled after two good steps in a row, halved by each bad one.
    assert found == [(1024, 1), (2048, 0), (2048, 1), (1024, 0), (512, 0), (512, 1)]
    assert int(step.optimizer.parameters_dict()["step"]) == 4


@JIT
def test_a_static_scale_skips_and_stays(jit):
    scale = optim.LossScale(256.0, dynamic=False)
    step = setup(scale, clip=1.0)
    with ml.context(autocast=ml.float16, jit=jit):
        step(X, Y)
        before = state(step)
        step(HUGE, Y)
    assert state(step) == before
    assert (float(scale.scale), int(scale.good_steps)) == (256.0, 0)


@JIT
def test_running_statistics_are_skipped_too(jit):
    class Net(nn.Cell):
        def __init__(self):
            self.norm, self.dense = nn.BatchNorm2d(8), nn.Dense(8, 2)

        def construct(self, x):
            return self.dense(ops.reshape(self.norm(ops.reshape(x, (64, 8, 1, 1))), (64, 8)))

    ml.manual_seed(0)
    net = Net()
    opt = optim.SGD(net.trainable_params(), lr=0.1, momentum=0.9)
    step = ml.train_step(net, nn.CrossEntropyLoss(), opt, loss_scale=optim.LossScale())
    with ml.context(autocast=ml.float16, jit=jit):
        step(X, Y)
        before = state(step)
        step(np.full_like(X, np.inf), Y)
        assert state(step) == before
        step(X, Y)
    assert all(state(step)[name] != before[name] for name in ("norm.running_mean", "dense.weight"))


def test_float16_trains_to_the_accuracy_of_float32():
    losses = {}
    for low in (False, ml.float16):
        step = setup(optim.LossScale())
        with ml.context(autocast=low):
            losses[low] = [float(step(X, Y)) for _ in range(150)]
    assert losses[False][0] > 0.6
    assert losses[ml.float16][-1] < 0.02
    assert abs(losses[ml.float16][-1] - losses[False][-1]) < 1e-3


def test_powers_of_two_change_no_bit_in_float32_and_clipping_comes_after():
    plain = ml.train_step(*parts(), clip=0.1)
    scaled = ml.train_step(*parts(), clip=0.1, loss_scale=optim.LossScale(2.0**20))
    for _ in range(3):
        assert float(plain(X, Y)) == float(scaled(X, Y))
    for a, b in zip(plain.net.get_parameters(), scaled.net.get_parameters(), strict=True):
        assert np.abs(a.asnumpy() - b.asnumpy()).max() <= 1e-7  # of kernels fused otherwise


def parts():
    ml.manual_seed(0)
    net = nn.Sequential(nn.Dense(8, 16), nn.Tanh(), nn.Dense(16, 2))
    return net, nn.CrossEntropyLoss(), optim.SGD(net.trainable_params(), lr=0.5)


def test_small_gradients_survive():
    """1e-9 is 0 in float16, whose smallest number is 6e-8."""
    found = {}
    for scale in (None, optim.LossScale(2.0**16)):
        weight = ml.Parameter(np.ones((1, 1), np.float32), name="w")
        opt = optim.SGD([weight], lr=1.0)
        step = ml.train_step(
            lambda x, w=weight: ops.matmul(x, w), lambda out: ops.sum(out) * 1e-9, opt,
            loss_scale=scale,
        )  # fmt: skip
        with ml.context(autocast=ml.float16, jit=False):
            step(np.full((1, 1), 1000.0, np.float32))
        found[scale is None] = float(weight)
    assert found[True] == 1.0
    assert found[False] == pytest.approx(1.0 - 1e-6, abs=1e-7)


def test_training_goes_on_from_a_checkpoint(tmp_path):
    def pieces():
        step = setup(optim.LossScale(1024.0, every=3))
        return step, {"net": step.net, "opt": step.optimizer, "scale": step.loss_scale}

    first, saved = pieces()
    with ml.context(autocast=ml.float16):
        for x in (X, X, HUGE, X):
            first(x, Y)
        ml.save_checkpoint(saved, tmp_path / "run.safetensors")
        second, loaded = pieces()
        ml.load_checkpoint(tmp_path / "run.safetensors", loaded)
        for _ in range(4):
            assert float(first(X, Y)) == float(second(X, Y))
    assert state(first) == state(second)
    assert float(second.loss_scale.scale) == float(first.loss_scale.scale) == 1024.0
    assert int(second.loss_scale.good_steps) == 2


def test_a_loop_by_hand_does_the_same():
    scale, opt_scale = optim.LossScale(1024.0, every=2), optim.LossScale(1024.0, every=2)
    step = setup(scale)
    net, loss_fn, opt = setup(None).net, nn.CrossEntropyLoss(), None
    opt = optim.Adam(net.trainable_params(), lr=1e-2)
    gradients = ml.grad.grad(lambda x: opt_scale(loss_fn(net(x), Y)), None, weights=opt.params)
    with ml.context(autocast=ml.float16, jit=False):
        for x in (X, HUGE, X, X):
            step(x, Y)
            grads, finite = opt_scale.unscaled(gradients(x))
            opt.update(grads, where=finite)
            opt_scale.update(finite)
    assert float(opt_scale.scale) == float(scale.scale)
    for a, b in zip(net.get_parameters(), step.net.get_parameters(), strict=True):
        assert np.array_equal(a.asnumpy(), b.asnumpy())


def test_the_scale_stays_within_bounds():
    low, high = optim.LossScale(1.0), optim.LossScale(2.0**126, every=1)
    low.update(ml.Tensor(False))
    high.update(ml.Tensor(True))
    assert (float(low.scale), float(high.scale)) == (1.0, 2.0**126)


BAD = [{"scale": 0.0}, {"scale": 0.5}, {"scale": "x"}, {"scale": np.inf}, {"every": 0},
       {"every": 1.5}, {"factor": 1.0}, {"factor": np.inf}]  # fmt: skip


@pytest.mark.parametrize("given", BAD)
def test_arguments_are_checked(given):
    (name,) = given
    with pytest.raises(MinimlError, match=f"LossScale got {name}="):
        optim.LossScale(**given)


def test_a_number_is_no_loss_scale():
    with pytest.raises(MinimlError, match=r"loss_scale=1024.*optim\.LossScale"):
        setup(1024.0)


def test_steps_with_a_scale_are_shown_and_copied():
    step = setup(optim.LossScale(8.0))
    assert "(loss_scale): LossScale(8, dynamic=True, every=2000, factor=2)" in repr(step)
    assert float(pickle.loads(pickle.dumps(step)).loss_scale.scale) == 8.0
    assert copy.deepcopy(step).loss_scale is not step.loss_scale
