"""Schedules: their formulas, their place in a compiled step, and exact resume."""

import math
import pickle

import numpy as np
import pytest

import miniml as ml
from miniml import nn, ops, optim
from miniml.errors import MinimlError


def cosine(t, steps, lr=0.1, end=0.0):
    return end + (lr - end) * (1 + math.cos(math.pi * t / steps)) / 2


FORMULAS = [
    (optim.step_decay(0.1, every=4), lambda t: 0.1 * 0.1 ** (t // 4)),
    (optim.cosine(0.1, steps=10, end=0.01), lambda t: cosine(min(t, 10), 10, end=0.01)),
    (optim.polynomial(0.1, 8, power=2.0), lambda t: 0.1 * (1 - min(t, 8) / 8) ** 2),
    (optim.warmup(4, 0.1), lambda t: 0.1 * min(1.0, (t + 1) / 5)),
    (
        optim.warmup(4, optim.cosine(0.1, steps=6)),
        lambda t: 0.1 * (t + 1) / 5 if t < 4 else cosine(min(t - 4, 6), 6),
    ),
    (optim.warm_restarts(0.1, 5, end=0.01), lambda t: cosine(t % 5, 5, end=0.01)),
    (
        optim.warm_restarts(0.1, 2, factor=3),
        lambda t: cosine(t, 2) if t < 2 else cosine(t - 2, 6) if t < 8 else cosine(t - 8, 18),
    ),
    (optim.cyclic(0.1, 0.4, up=3), lambda t: 0.1 + 0.3 * (1 - abs(t % 6 - 3) / 3)),
    (
        optim.cyclic(0.1, 0.4, up=3, down=1, factor=0.5),
        lambda t: 0.1 + 0.3 * 0.5 ** (t // 4) * (t % 4 / 3),
    ),
    (
        optim.chained([0.2, optim.cosine(0.1, 3), lambda t: 0.1 / (1.0 + t)], milestones=[2, 5]),
        lambda t: 0.2 if t < 2 else cosine(t - 2, 3) if t < 5 else 0.1 / (1 + t - 5),
    ),
]


@pytest.mark.parametrize(("schedule", "formula"), FORMULAS)
def test_schedules_follow_their_formulas(schedule, formula):
    found = [float(schedule(step)) for step in range(13)]
    assert np.allclose(found, [formula(t) for t in range(13)], rtol=1e-13, atol=1e-17)


def test_one_cycle_gives_what_torch_2_13_gave():
    # torch.optim.lr_scheduler.OneCycleLR(max_lr=0.1, total_steps=10)
    expected = [
        0.0040000000000000036, 0.052000000000000005, 0.1, 0.09504846320134738, 0.0811745653949763,
        0.06112620219362893, 0.03887419780637107, 0.0188258346050237, 0.004951936798652629, 4e-07,
    ]  # fmt: skip
    found = [float(optim.one_cycle(0.1, steps=10)(step)) for step in range(10)]
    assert np.allclose(found, expected, rtol=1e-12, atol=0)


def test_on_plateau_gives_what_torch_2_13_gave():
    # torch.optim.lr_scheduler.ReduceLROnPlateau(factor=0.5, patience=1, min_lr=0.03)
    metrics = 1.0, 0.5, 0.5, 0.49999, 0.4, 0.6, np.nan, 0.6, 0.6, 0.1
    rate, found = optim.OnPlateau(0.1, factor=0.5, patience=1, low=0.03), []
    for metric in metrics:
        rate.update(metric)
        found.append(float(rate.rate))
    assert found == [0.1, 0.1, 0.1, 0.05, 0.05, 0.05, 0.03, 0.03, 0.03, 0.03]


X = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
Y = np.arange(6) % 2


def run_of(make):
    """A net, its optimizer and a compiled step, equal for every call."""
    ml.manual_seed(0)
    net = nn.Dense(3, 2)
    opt = make(net.trainable_params())
    step = ml.train_step(net, nn.CrossEntropyLoss(), opt)
    return {"net": net, "opt": opt}, step


def bits(run):
    found = {**run["net"].parameters_dict(), **run["opt"].parameters_dict()}
    return {name: p.asnumpy().tobytes() for name, p in found.items()}


RATE = optim.warmup(3, optim.cosine(0.1, steps=5))


@pytest.mark.parametrize("jit", [True, False])
def test_a_scheduled_step_has_the_bits_of_one_set_by_hand(jit):
    scheduled, step = run_of(lambda params: optim.SGD(params, lr=RATE, momentum=0.9))
    by_hand, other = run_of(lambda params: optim.SGD(params, lr=0.0, momentum=0.9))
    with ml.context(jit=jit):
        for t in range(7):
            by_hand["opt"].lr = float(RATE(t))
            step(X, Y)
            other(X, Y)
            assert float(scheduled["opt"].lr) == np.float32(RATE(t))
    found = bits(scheduled)
    assert found.pop("step") == np.int64(7).tobytes()
    assert found == bits(by_hand)
    assert not jit or step.recompilations == ["first call"]


MAKERS = [
    lambda params: optim.AdamW(params, lr=RATE),
    lambda params: optim.RMSprop(params, lr=RATE, momentum=0.9, centered=True),
    lambda params: optim.Lion(params, lr=optim.one_cycle(0.01, 10)),
    lambda params: optim.Adagrad(params, lr=optim.OnPlateau(0.1, factor=0.5, patience=0)),
]


@pytest.mark.parametrize("make", MAKERS)
def test_a_run_resumed_from_a_file_has_the_same_bits(make, tmp_path):
    def train(run, step, steps):
        for _ in range(steps):
            loss = step(X, Y)
            schedule = run["opt"]._schedule
            if isinstance(schedule, optim.OnPlateau):
                schedule.update(-loss)  # it is always worse, so the rate falls
        return run

    whole = train(*run_of(make), 6)
    first = train(*run_of(make), 3)
    ml.save_checkpoint(first, tmp_path / "run.safetensors")
    second, step = run_of(make)
    ml.load_checkpoint(tmp_path / "run.safetensors", second)
    assert bits(train(second, step, 3)) == bits(whole)


def test_on_plateau_is_told_inside_a_compiled_step():
    rate = optim.OnPlateau(0.1, factor=0.5, patience=0)
    p = ml.Parameter(np.zeros(2, np.float32))
    opt = optim.SGD([p], lr=rate)

    @ml.jit
    def step(g, metric):
        rate.update(metric)
        opt.update([g])

    for metric in (1.0, 1.0, 0.5):
        step(np.ones(2, np.float32), ml.Tensor(metric))
    assert np.allclose(p.asnumpy(), -(0.1 + 0.05 + 0.05))
    assert len(step.recompilations) == 1
    assert "schedule.rate" in opt.parameters_dict()


def test_a_step_left_out_does_not_advance_the_schedule():
    p = ml.Parameter(np.zeros((), np.float32))
    opt = optim.SGD([p], lr=optim.polynomial(1.0, steps=4))
    for where in (True, False, True):
        opt.update([ml.Tensor(1.0)], where=ml.Tensor(where))
    assert p.item() == -1.75
    assert opt.parameters_dict()["step"].item() == 2


def test_schedules_that_come_with_miniml_can_be_sent_to_another_process():
    copy = pickle.loads(pickle.dumps(optim.SGD([ml.Parameter(X)], lr=RATE)))
    copy.update([ml.Tensor(X)])
    assert float(copy.lr) == np.float32(RATE(0))


P = ml.Parameter(np.zeros(2, np.float32), name="w")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: optim.cosine(0.1, steps=0), "cosine got steps=0; expected an int >= 1"),
        (lambda: optim.cosine(0.1, steps=2.5), r"steps=2\.5"),
        (lambda: optim.cosine(-0.1, steps=2), r"cosine got lr=-0\.1; expected a number >= 0"),
        (lambda: optim.polynomial("a", steps=2), "polynomial got lr='a'; expected a number"),
        (lambda: optim.one_cycle(0.1, steps=3), r"one_cycle got pct_start=0\.3 of steps=3"),
        (lambda: optim.one_cycle(0.1, 9, div_factor=0), "div_factor=0; expected a number > 0"),
        (lambda: optim.chained([0.1, 0.2], []), r"chained got 2 schedules and milestones=\[\]"),
        (lambda: optim.chained([1, 2, 3], [5, 5]), "each larger than the one before"),
        (lambda: optim.OnPlateau(0.1, factor=1.0), "OnPlateau got factor=1"),
        (lambda: optim.OnPlateau(0.1).update([1.0, 2.0]), r"a metric of shape \(2,\)"),
        (lambda: optim.SGD([P], lr=lambda step: ops.zeros((3,))), r"float32\[3\] for step 0"),
        (lambda: optim.SGD([P], lr=lambda step: None), "gives None for step 0"),
        (lambda: optim.SGD([P], lr=lambda step: step - 1.0), r"SGD got lr=-1\.0"),
        (lambda: setattr(optim.SGD([P], lr=RATE), "lr", 0.1), "SGD got lr=0.1, but .* a schedule"),
    ],
)
def test_what_makes_no_sense_is_refused(make, message):
    with pytest.raises(MinimlError, match=message):
        make()


def test_keywords_of_other_libraries_are_hinted_at():
    with pytest.raises(TypeError, match="step_size") as caught:
        optim.step_decay(0.1, step_size=3)
    assert caught.value.__notes__ == ["in miniml: every="]


def test_numpy_ints_count_too():
    assert float(optim.cosine(0.1, steps=np.int64(4))(2)) == pytest.approx(0.05)


def test_updates_are_one_native_kernel_for_each_parameter():
    params = [ml.Parameter(np.ones(s, np.float32), name=f"w{s}") for s in (7, 16)]
    opt = optim.AdamW(params, lr=RATE)
    with ml.context(providers=("cc",)):
        rows = ml.explain(lambda *g: opt.update(g), *[p.asnumpy() for p in params]).rows
    assert [row.provider for row in rows].count("cc") <= len(params) + 1
    assert all(row.why == "a view: no copy" for row in rows if row.provider != "cc")
