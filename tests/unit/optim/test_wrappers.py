"""Optimizers made of others, against what they say written out by hand, and exact resume."""

import copy
import pickle

import numpy as np
import pytest

import miniml as ml
from miniml import nn, optim
from miniml.errors import GradientArgumentError, GraphError, MinimlError, ValueRefusedError

RNG = np.random.default_rng(0)
X = RNG.normal(size=(8, 3)).astype(np.float32)
Y = np.arange(8) % 2
GRADS = [[RNG.normal(size=s).astype(np.float32) for s in ((3, 2), (2,))] for _ in range(6)]
JIT = pytest.mark.parametrize("jit", [True, False])


def parameters():
    return [ml.Parameter(np.full(g.shape, 0.5, np.float32), name=n) for g, n in zip(GRADS[0], "ab")]


def updated(opt, jit, count=6):
    step = ml.jit(lambda *grads: opt.update(grads))
    with ml.context(jit=jit):
        for grads in GRADS[:count]:
            step(*grads)
    return [p.asnumpy() for p in opt.params]


def run_of(make):
    ml.manual_seed(0)
    net = nn.Sequential(nn.Dense(3, 4), nn.Tanh(), nn.Dense(4, 2))
    return {"net": net, "opt": make(net)}


def step_of(run, **options):
    return ml.train_step(run["net"], nn.CrossEntropyLoss(), run["opt"], **options)


def bits(run):
    found = {**run["net"].parameters_dict(), **run["opt"].parameters_dict()}
    return {name: p.asnumpy().tobytes() for name, p in found.items()}


@JIT
def test_groups_do_what_their_optimizers_do_alone(jit):
    (a, b), (c, d) = parameters(), parameters()
    groups = optim.Groups(optim.SGD([a], lr=0.1), optim.Adam([b], lr=optim.cosine(0.1, 4)))
    found = updated(groups, jit)
    sgd, adam = optim.SGD([c], lr=0.1), optim.Adam([d], lr=optim.cosine(0.1, 4))
    for g, h in GRADS:
        sgd.update([ml.Tensor(g)])
        adam.update([ml.Tensor(h)])
    assert np.array_equal(found[0], c.asnumpy())
    assert np.allclose(found[1], d.asnumpy(), rtol=1e-6)
    assert list(groups.parameters_dict()) == [
        "0.lr", "1.lr", "1.step", "1.sum.b", "1.square_sum.b",
    ]  # fmt: skip


def test_the_rate_of_a_group_changes_without_compiling_anew():
    a, b = parameters()
    groups = optim.Groups(optim.SGD([a], lr=1.0), optim.SGD([b], lr=1.0, momentum=0.5))
    step = ml.jit(lambda *grads: groups.update(grads))
    step(*GRADS[0])
    groups[0].lr = 0.0
    before = a.asnumpy()
    step(*GRADS[1])
    assert np.array_equal(a.asnumpy(), before)
    assert len(step.recompilations) == 1
    groups[1].momentum = 0.0  # a number of a rule does
    step(*GRADS[2])
    assert len(step.recompilations) == 2


@JIT
def test_accumulated_gradients_make_one_update_of_their_mean(jit):
    whole, parts = optim.AdamW(parameters()), optim.AdamW(parameters())
    found = updated(optim.Accumulate(parts, every=3), jit)
    for first in (0, 3):
        means = [np.mean(g, axis=0) for g in zip(*GRADS[first : first + 3])]
        whole.update([ml.Tensor(g) for g in means])
    assert all(np.allclose(v, p.asnumpy(), rtol=1e-6) for v, p in zip(found, whole.params))
    assert int(parts.parameters_dict()["step"]) == 2


@JIT
def test_nothing_but_the_sums_changes_before_the_last_part(jit):
    opt = optim.Accumulate(optim.SGD(parameters(), lr=optim.cosine(0.1, 9), momentum=0.9), 3)
    assert all(np.all(value == 0.5) for value in updated(opt, jit, count=2))
    state = {name: p.asnumpy() for name, p in opt.parameters_dict().items()}
    assert state["micro_steps"] == 2
    assert state["step"] == 0
    assert not state["velocity.a"].any()
    assert np.allclose(state["gradient_sum.b"], GRADS[0][1] + GRADS[1][1])


@JIT
@pytest.mark.parametrize("later", [1, 2, 3, 5])
def test_parts_are_counted_by_the_number_that_is_set_now(jit, later):
    """Also where that many have come already: no update would be due ever again."""
    opt = optim.Accumulate(optim.SGD(parameters(), lr=1.0), every=4)
    start, parts = updated(opt, jit, count=0), [grads for grads in GRADS for _ in range(2)][:3]
    with ml.context(jit=jit):
        for grads in parts:
            opt.update(grads)
        opt.every = later
        while int(opt.parameters_dict()["micro_steps"]):
            assert len(parts) < 6
            parts.append(GRADS[0])
            opt.update(GRADS[0])
    assert len(parts) == max(later, 4)
    for p, before, grads in zip(opt.params, start, zip(*parts, strict=True), strict=True):
        np.testing.assert_allclose(p.asnumpy(), before - np.mean(grads, 0), rtol=1e-5)


def test_parts_of_a_batch_train_as_the_whole_and_compile_once():
    runs = [
        run_of(lambda net: optim.SGD(net.trainable_params(), lr=0.1)),
        run_of(lambda net: optim.Accumulate(optim.SGD(net.trainable_params(), lr=0.1), every=4)),
    ]
    whole, part = map(step_of, runs)
    for _ in range(3):
        whole(X, Y)
        for i in range(0, 8, 2):
            part(X[i : i + 2], Y[i : i + 2])
    weights = [run["net"][0].weight.asnumpy() for run in runs]
    assert np.allclose(*weights, rtol=1e-5)
    assert part.recompilations == ["first call"]


def test_the_mean_of_accumulated_gradients_is_clipped():
    opt = optim.Accumulate(optim.SGD(parameters(), lr=1.0), every=2, clip=0.1)
    steps = [value - 0.5 for value in updated(opt, jit=True, count=2)]
    assert np.isclose(np.sqrt(sum(np.sum(s**2) for s in steps)), 0.1, rtol=1e-5)


@JIT
def test_averages_follow_the_formula_and_stand_in_for_the_weights(jit):
    opt = optim.EMA(optim.SGD(parameters(), lr=0.1), decay=0.9)
    found = updated(opt, jit)
    w, average = np.full(2, 0.5), np.full(2, 0.5)
    for grads in GRADS:
        w = w - 0.1 * grads[1]
        average = 0.9 * average + 0.1 * w
    with opt.averaged():
        assert np.allclose(opt.params[1].asnumpy(), average, rtol=1e-6)
    assert np.array_equal(opt.params[1].asnumpy(), found[1])
    with pytest.raises(ZeroDivisionError), opt.averaged():
        1 / 0  # noqa: B018
    assert np.array_equal(opt.params[1].asnumpy(), found[1])


def test_the_rate_is_that_of_the_optimizer_inside():
    inner = optim.SGD(parameters(), lr=0.1)
    opt = optim.Accumulate(optim.EMA(inner), every=2)
    opt.lr = 0.25
    assert float(opt.lr) == float(inner.lr) == 0.25


def test_averages_of_16_bits_are_kept_in_32():
    p = ml.Parameter(np.ones(2, np.float16))
    opt = optim.EMA(optim.SGD([p], lr=0.0), decay=0.9999)
    p.set_data(np.zeros(2, np.float16))
    opt.update([ml.Tensor(np.zeros(2, np.float16))])
    assert opt.parameters_dict()["average.parameter"].tolist() == [np.float32(0.9999)] * 2
    with opt.averaged():
        assert p.dtype == ml.float16
        assert p.tolist() == [1.0, 1.0]


def nested(net):
    rate = optim.warmup(2, optim.cosine(0.1, steps=5))
    body = optim.AdamW(net[0].trainable_params(), lr=rate)
    head = optim.Lion(net[2].trainable_params(), lr=optim.OnPlateau(0.01))
    return optim.Accumulate(optim.EMA(optim.Groups(body, head), decay=0.9), every=2, clip=1.0)


def test_a_run_resumed_in_the_middle_of_accumulation_has_the_same_bits(tmp_path):
    whole, first, second = (run_of(nested) for _ in range(3))
    for step, count in ((step_of(whole), 7), (step_of(first), 3)):
        for _ in range(count):
            step(X, Y)
    ml.save_checkpoint(first, tmp_path / "run.safetensors")
    ml.load_checkpoint(tmp_path / "run.safetensors", second)
    step = step_of(second)
    for _ in range(4):
        step(X, Y)
    assert bits(second) == bits(whole)
    assert {"1.schedule.rate", "micro_steps", "0.step"} <= set(second["opt"].parameters_dict())


def test_a_step_with_a_gradient_that_is_not_finite_changes_nothing():
    run = run_of(nested)
    step = step_of(run, loss_scale=optim.LossScale(2.0))
    step(X, Y)
    before = bits(run)
    step(X * np.float32(np.inf), Y)
    assert bits(run) == before


@pytest.mark.parametrize("through", [copy.deepcopy, lambda v: pickle.loads(pickle.dumps(v))])
def test_copies_are_whole_and_apart(through):
    opt = optim.EMA(optim.Groups(*(optim.SGD([p], lr=0.1) for p in parameters())), decay=0.5)
    twin = through(opt)
    assert updated(twin, jit=True)[0].tolist() != opt.params[0].tolist()
    assert [v.tolist() for v in updated(opt, jit=True)] == [p.tolist() for p in twin.params]
    assert bits({"net": nn.ReLU(), "opt": opt}) == bits({"net": nn.ReLU(), "opt": twin})


def test_gradients_are_clipped_by_value():
    grads = [ml.Tensor([3.0, -0.5, np.nan]), ml.Tensor(np.full(2, -7.0, np.float16))]
    found = optim.clip_by_value(grads, 1.0)
    assert np.array_equal(found[0].asnumpy(), [1.0, -0.5, np.nan], equal_nan=True)
    assert found[1].dtype == ml.float16
    assert found[1].tolist() == [-1.0, -1.0]


@JIT
def test_a_step_clips_with_a_function(jit):
    run = run_of(lambda net: optim.SGD(net.trainable_params(), lr=1.0))
    step = step_of(run, clip=lambda grads: optim.clip_by_value(grads, 1e-3))
    before = run["net"][0].weight.asnumpy()
    with ml.context(jit=jit):
        step(X, Y)
    change = np.abs(run["net"][0].weight.asnumpy() - before)
    assert np.allclose(change.max(), 1e-3, rtol=1e-3)


P, Q = ml.Parameter(np.zeros(2, np.float32), name="w"), ml.Parameter(np.zeros(2, np.float32))
SGD = optim.SGD([P], lr=0.1)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: optim.Groups(SGD, [Q]), MinimlError, "Groups got list as argument 1; expected an"),
        (optim.Groups, GradientArgumentError, "Groups got no parameters"),
        (lambda: optim.Groups(SGD, optim.Adam([P])), GradientArgumentError, "'w' twice"),
        (lambda: optim.Groups(SGD).lr, MinimlError, r"rate for each group; .* groups\[0\]\.lr"),
        (lambda: setattr(optim.Groups(SGD), "lr", 1), MinimlError, "Groups got lr=1; set that of"),
        (lambda: optim.SGD([{"params": [P]}], lr=1), GradientArgumentError, "dict .* optim.Groups"),
        (lambda: optim.Accumulate(SGD, every=0), MinimlError, "Accumulate got every=0; expected"),
        (
            lambda: optim.Accumulate(SGD, 2, clip=-1),
            ValueRefusedError,
            "Accumulate got clip=-1",
        ),
        (lambda: optim.EMA(SGD, decay=1.0), MinimlError, "EMA got decay=1"),
        (lambda: optim.EMA(optim.EMA(SGD)), MinimlError, "state 'average.w' already"),
        (lambda: optim.EMA([P]), MinimlError, "EMA got list as argument 0"),
        (lambda: optim.clip_by_value([], 0), ValueRefusedError, "clip=0; expected a number > 0"),
        (ml.jit(optim.EMA(SGD).averaged().__enter__), GraphError, "inside a compiled"),
    ],
)
def test_what_makes_no_sense_is_refused(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_updates_are_one_native_kernel_for_each_parameter_with_the_same_numbers():
    def make():
        rate = optim.chained([optim.warmup(2, 0.1), optim.one_cycle(0.1, 9)], milestones=[3])
        return optim.Accumulate(optim.EMA(optim.AdamW(parameters(), lr=rate)), every=2)

    expected, opt = updated(make(), jit=True), make()
    with ml.context(providers=("cc",)):
        rows = ml.explain(lambda *grads: opt.update(grads), *GRADS[0]).rows
        found = updated(opt, jit=True)
    assert [row.provider for row in rows].count("cc") <= len(opt.params) + 2  # and of numbers
    assert all(row.why == "a view: no copy" for row in rows if row.provider != "cc")
    assert all(np.allclose(a, b, rtol=1e-6) for a, b in zip(found, expected))


@pytest.mark.parametrize("jit", [True, False])
@pytest.mark.parametrize(("start", "every"), [(1, 1), (3, 2)])
def test_the_mean_of_weights_from_an_update_on(start, every, jit):
    w = ml.Parameter(np.float64([1.0, -1.0]), name="w")
    swa = optim.SWA(optim.SGD([w], lr=0.1), start, every)
    update, seen = ml.jit(lambda g: swa.update([g])), []
    for t in range(1, 9):
        with ml.context(jit=jit):
            update(ml.Tensor(np.float64([t, 2.0 * t])))
        if t >= start and (t - start) % every == 0:
            seen.append(w.asnumpy())
        expected = np.mean(seen, 0) if seen else w.asnumpy()
        with swa.averaged():
            np.testing.assert_allclose(w.asnumpy(), expected, 1e-13)
    with pytest.raises(MinimlError, match="SWA got start=0"):
        optim.SWA(optim.SGD([w], lr=0.1), 0)
