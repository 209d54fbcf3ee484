"""Optimizers against their rules written out in NumPy, in both modes, and what they refuse."""

import numpy as np
import pytest

import miniml as ml
from miniml import bfloat16, optim
from miniml.errors import (
    ArityError,
    AttributeRefusedError,
    GradientArgumentError,
    MinimlError,
    ShapeError,
    ValueRefusedError,
)

P = ml.Parameter(np.zeros(2, np.float32), name="w")
rng = np.random.default_rng(0)
SHAPES = ((3, 2), (4,), ())
GRADS = [[rng.normal(size=s) for s in SHAPES] for _ in range(5)]


def sgd(lr, momentum=0.0, weight_decay=0.0, nesterov=False):
    def step(w, g, state, t):
        g = g + weight_decay * w
        if momentum:
            v = state["v"] = momentum * state.get("v", 0.0) + g
            g = g + momentum * v if nesterov else v
        return w - lr * g

    return step


def adam(lr, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0):
    def step(w, g, state, t):
        g = g + weight_decay * w
        m = state["m"] = betas[0] * state.get("m", 0.0) + (1 - betas[0]) * g
        v = state["v"] = betas[1] * state.get("v", 0.0) + (1 - betas[1]) * g * g
        return w - lr * (m / (1 - betas[0] ** t)) / (np.sqrt(v / (1 - betas[1] ** t)) + eps)

    return step


def amsgrad(lr, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, amsgrad=True, decoupled=0.0):
    def step(w, g, state, t):
        w = w - lr * decoupled * w
        g = g + weight_decay * w
        m = state["m"] = betas[0] * state.get("m", 0.0) + (1 - betas[0]) * g
        v = state["v"] = betas[1] * state.get("v", 0.0) + (1 - betas[1]) * g * g
        largest = state["x"] = np.maximum(state.get("x", 0.0), v)
        size = np.sqrt(largest / (1 - betas[1] ** t)) + eps
        return w - lr * (m / (1 - betas[0] ** t)) / size

    return step


def decoupled_amsgrad(lr, weight_decay, amsgrad):
    return globals()["amsgrad"](lr, decoupled=weight_decay)


def nadam(lr, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, momentum_decay=4e-3):
    def mu(t):
        return betas[0] * (1 - 0.5 * 0.96 ** (t * momentum_decay))

    def step(w, g, state, t):
        g = g + weight_decay * w
        m = state["m"] = betas[0] * state.get("m", 0.0) + (1 - betas[0]) * g
        v = state["v"] = betas[1] * state.get("v", 0.0) + (1 - betas[1]) * g * g
        product = np.prod([mu(i) for i in range(1, t + 1)])
        size = np.sqrt(v / (1 - betas[1] ** t)) + eps
        w = w - lr * (1 - mu(t)) / (1 - product) * g / size
        return w - lr * mu(t + 1) / (1 - product * mu(t + 1)) * m / size

    return step


def adamax(lr, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0):
    def step(w, g, state, t):
        g = g + weight_decay * w
        m = state["m"] = betas[0] * state.get("m", 0.0) + (1 - betas[0]) * g
        u = state["u"] = np.maximum(betas[1] * state.get("u", 0.0), np.abs(g) + eps)
        return w - lr / (1 - betas[0] ** t) * m / u

    return step


def radam(lr, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0):
    def step(w, g, state, t):
        g = g + weight_decay * w
        m = state["m"] = betas[0] * state.get("m", 0.0) + (1 - betas[0]) * g
        v = state["v"] = betas[1] * state.get("v", 0.0) + (1 - betas[1]) * g * g
        rho = 2 / (1 - betas[1]) - 1
        now = rho - 2 * t * betas[1] ** t / (1 - betas[1] ** t)
        m = m / (1 - betas[0] ** t)
        if now <= 5:
            return w - lr * m
        r = np.sqrt((now - 4) * (now - 2) * rho / ((rho - 4) * (rho - 2) * now))
        return w - lr * m * r * np.sqrt(1 - betas[1] ** t) / (np.sqrt(v) + eps)

    return step


def adadelta(lr=1.0, rho=0.9, eps=1e-6, weight_decay=0.0):
    def step(w, g, state, t):
        g = g + weight_decay * w
        v = state["v"] = rho * state.get("v", 0.0) + (1 - rho) * g**2
        d = np.sqrt(state.get("u", 0.0) + eps) / np.sqrt(v + eps) * g
        state["u"] = rho * state.get("u", 0.0) + (1 - rho) * d**2
        return w - lr * d

    return step


def adamw(lr, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01):
    plain = adam(lr, betas, eps)
    return lambda w, g, state, t: plain(w - lr * weight_decay * w, g, state, t)


def rmsprop(lr, alpha=0.99, eps=1e-8, weight_decay=0.0, momentum=0.0, centered=False):
    def step(w, g, state, t):
        g = g + weight_decay * w
        v = state["v"] = alpha * state.get("v", 0.0) + (1 - alpha) * g**2
        m = state["m"] = alpha * state.get("m", 0.0) + (1 - alpha) * g
        size = np.sqrt(v - m**2 if centered else v) + eps
        b = state["b"] = momentum * state.get("b", 0.0) + g / size
        return w - lr * b

    return step


def adagrad(lr, eps=1e-10, weight_decay=0.0, initial=0.0):
    def step(w, g, state, t):
        g = g + weight_decay * w
        v = state["v"] = state.get("v", initial) + g**2
        return w - lr * g / (np.sqrt(v) + eps)

    return step


def lion(lr, betas=(0.9, 0.99), weight_decay=0.0):
    def step(w, g, state, t):
        m = state.get("m", np.zeros_like(g))
        state["m"] = betas[1] * m + (1 - betas[1]) * g
        return w - lr * (np.sign(betas[0] * m + (1 - betas[0]) * g) + weight_decay * w)

    return step


RULES = [
    (optim.SGD, sgd, {"lr": 0.1}),
    (optim.SGD, sgd, {"lr": 0.1, "momentum": 0.9}),
    (optim.SGD, sgd, {"lr": 0.1, "weight_decay": 0.3}),
    (optim.SGD, sgd, {"lr": 0.1, "momentum": 0.5, "weight_decay": 0.1, "nesterov": True}),
    (optim.Adam, adam, {"lr": 0.01}),
    (optim.Adam, adam, {"lr": 0.01, "betas": (0.5, 0.9), "eps": 1e-3, "weight_decay": 0.1}),
    (optim.AdamW, adamw, {"lr": 0.01}),
    (optim.AdamW, adamw, {"lr": 0.1, "betas": (0.5, 0.9), "eps": 1e-3, "weight_decay": 0.3}),
    (optim.Adam, amsgrad, {"lr": 0.1, "betas": (0.5, 0.6), "weight_decay": 0.1, "amsgrad": True}),
    (optim.AdamW, decoupled_amsgrad, {"lr": 0.1, "weight_decay": 0.3, "amsgrad": True}),
    (optim.NAdam, nadam, {"lr": 0.01}),
    (optim.NAdam, nadam, {"lr": 0.1, "betas": (0.5, 0.9), "momentum_decay": 0.5}),
    (optim.NAdam, nadam, {"lr": 0.1, "eps": 1e-3, "weight_decay": 0.3}),
    (optim.Adamax, adamax, {"lr": 0.01}),
    (optim.Adamax, adamax, {"lr": 0.1, "betas": (0.5, 0.6), "eps": 1e-2, "weight_decay": 0.3}),
    (optim.RAdam, radam, {"lr": 0.01}),
    (optim.RAdam, radam, {"lr": 0.1, "betas": (0.5, 0.9), "eps": 1e-3, "weight_decay": 0.3}),
    (optim.Adadelta, adadelta, {}),
    (optim.Adadelta, adadelta, {"lr": 0.5, "rho": 0.5, "eps": 1e-3, "weight_decay": 0.3}),
    (optim.RMSprop, rmsprop, {"lr": 0.01}),
    (optim.RMSprop, rmsprop, {"lr": 0.01, "alpha": 0.9, "weight_decay": 0.1, "momentum": 0.5}),
    (optim.RMSprop, rmsprop, {"lr": 0.01, "eps": 1e-2, "momentum": 0.9, "centered": True}),
    (optim.Adagrad, adagrad, {"lr": 0.01}),
    (optim.Adagrad, adagrad, {"lr": 0.1, "eps": 1e-3, "weight_decay": 0.1, "initial": 0.1}),
    (optim.Lion, lion, {"lr": 0.01}),
    (optim.Lion, lion, {"lr": 0.01, "betas": (0.5, 0.9), "weight_decay": 0.3}),
]


def run(kind, options, dtype, jit):
    """The parameters after five updates."""
    starts = [np.full(s, 0.5).astype(dtype) for s in SHAPES]
    params = [ml.Parameter(w, name=f"w{i}") for i, w in enumerate(starts)]
    opt = kind(params, **options)

    def update(*grads):
        opt.update(grads)

    compiled = ml.jit(update)
    for grads in GRADS:
        with ml.context(jit=jit):
            compiled(*[ml.Tensor(g.astype(dtype)) for g in grads])
    assert all(p.dtype == dtype for p in params)
    return [p.asnumpy().astype(np.float64) for p in params]


@pytest.mark.parametrize("jit", [True, False])
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(np.float64, 1e-13), (np.float32, 2e-6), (bfloat16, 3e-2)]
)
@pytest.mark.parametrize(("kind", "rule", "options"), RULES)
def test_updates_follow_the_rule(kind, rule, options, dtype, tolerance, jit):
    step = rule(**options)
    for i, value in enumerate(run(kind, options, dtype, jit)):
        w, state = np.full(SHAPES[i], 0.5), {}
        for t, grads in enumerate(GRADS, 1):
            w = step(w, grads[i], state, t)
        assert np.allclose(value, w, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("jit", [True, False])
@pytest.mark.parametrize("kind", [optim.SGD, optim.Adam, optim.Lion, optim.LBFGS])
@pytest.mark.parametrize("dtypes", ["f", "d", "fd", "df", "e"])
def test_the_rate_is_as_exact_as_the_parameters(kind, dtypes, jit):
    wide = np.float64 if "d" in dtypes else np.float32
    rates = np.random.default_rng(0).uniform(1e-4, 1e-1, 3)

    def rate(step):
        return rates[0] / (1.0 + step)

    for lr, expected in ((rates[0], rates[:1]), (rate, rates[0] / np.arange(1.0, 4.0))):
        params = [ml.Parameter(np.ones(3).astype(d), name=d) for d in dtypes]
        grads = [ml.Tensor(np.ones(3).astype(d)) for d in dtypes]
        opt = kind(params, lr=lr)
        with ml.context(jit=jit):
            update = ml.jit(lambda *grads, to=opt: to.update(grads))
            for value in expected:
                update(*grads)
                assert float(opt.lr) == wide(value)
        assert opt.lr.dtype == wide
        if not callable(lr):
            opt.lr = rates[1]
            assert float(opt.lr) == wide(rates[1])


@pytest.mark.parametrize("value", ["0.1", b"0.1", True, np.True_, None, [0.1], "lr"])
def test_settings_are_numbers_not_text(value):
    calls = {
        "lr": [optim.SGD, optim.Adam, optim.AdamW, optim.RMSprop, optim.Adagrad, optim.Lion],
        "weight_decay": [optim.Adam, optim.Lion],
        "eps": [optim.Adam, optim.RMSprop, optim.Adagrad],
        "alpha": [optim.RMSprop],
        "momentum": [optim.SGD, optim.RMSprop],
    }
    for name, kinds in calls.items():
        for kind in kinds:
            options = {"lr": 0.1, name: value}
            with pytest.raises(
                MinimlError, match=rf"{kind.__name__} got {name}=.*; expected a num"
            ):
                kind([P], **options)
    opt = optim.SGD([P], lr=0.1)
    with pytest.raises(MinimlError, match=r"SGD got lr=.*; expected a number"):
        opt.lr = value
    for schedule in (optim.cosine, optim.polynomial, optim.one_cycle):
        with pytest.raises(MinimlError, match=rf"{schedule.__name__} got lr=.*; expected a number"):
            schedule(value, 5)


def test_plain_sgd_is_three_operations_a_parameter():
    params = [ml.Parameter(np.ones(3, np.float32)), ml.Parameter(np.ones((2, 2), np.float32))]
    opt = optim.SGD(params, lr=0.1)
    graph = ml.trace(lambda *g: opt.update(g), *[np.ones(p.shape, np.float32) for p in params])
    names = [node.primitive.name for node in graph.nodes]
    assert names == ["Mul", "Sub", "Mul", "Sub", "Assign", "Assign"]


def test_the_learning_rate_changes_without_compiling_anew():
    p = ml.Parameter(np.zeros(2, np.float32))
    opt = optim.SGD([p], lr=1.0)
    step = ml.jit(lambda g: opt.update([g]))
    g = np.ones(2, np.float32)
    step(g)
    opt.lr = 0.25
    step(g)
    assert p.tolist() == [-1.25, -1.25]
    assert len(step.recompilations) == 1
    assert float(opt.lr) == 0.25
    opt.weight_decay = 1.0  # a number of the rule does
    step(g)
    assert np.allclose(p.asnumpy(), -1.25 - 0.25 * (1 - 1.25))
    assert len(step.recompilations) == 2


class Factors(optim.Optimizer):
    """Its settings are in containers, which change without an assignment."""

    def __init__(self, params):
        super().__init__(params, lr=1.0)
        self.listed, self.named = [1.0], {"scale": {"by": 1.0}}

    def rule(self, w, g, lr, scalars, old):
        return w - self.listed[0] * self.named["scale"]["by"] * g, ()


@pytest.mark.parametrize(
    "wrap", [lambda opt: opt, optim.Groups, lambda opt: optim.Accumulate(opt, 1)]
)
def test_settings_in_containers_take_part_in_the_program(wrap):
    p = ml.Parameter(np.zeros(1, np.float32))
    inner = Factors([p])
    opt = wrap(inner)
    step = ml.jit(lambda g: opt.update([g]))
    for change in (lambda: None, lambda: inner.listed.__setitem__(0, 10.0),
                   lambda: inner.named["scale"].update(by=2.0)):  # fmt: skip
        change()
        expected = float(p.asnumpy()[0]) - inner.listed[0] * inner.named["scale"]["by"]
        step(np.ones(1, np.float32))
        assert p.tolist() == [expected]
    step(np.ones(1, np.float32))
    assert len(step.recompilations) == 3


def test_state_has_names_and_adam_counts():
    params = [ml.Parameter(np.zeros(2, np.float32), name=n) for n in ("a", "b", "a")]
    opt = optim.Adam(params)
    assert list(opt.parameters_dict()) == [
        "lr", "step", "sum.a", "sum.b", "sum.a#2", "square_sum.a", "square_sum.b", "square_sum.a#2",
    ]  # fmt: skip
    opt.update([ml.Tensor(np.ones(2, np.float32))] * 3)
    assert opt.parameters_dict()["step"].item() == 1
    assert not any(p.requires_grad for p in opt.parameters_dict().values())


COUNTS = ml.Parameter(np.zeros(2, np.int32), name="n")


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: optim.SGD([], lr=0.1), GradientArgumentError, "SGD got no parameters"),
        (lambda: optim.SGD([P, P], lr=0.1), GradientArgumentError, "parameter 'w' twice"),
        (lambda: optim.Adam([np.ones(2)]), GradientArgumentError, "Adam got ndarray as parameter"),
        (lambda: optim.SGD([P], lr=-1), ValueRefusedError, "lr=-1; expected a number >= 0"),
        (lambda: optim.SGD([P], lr=float("nan")), ValueRefusedError, "lr=nan"),
        (lambda: optim.SGD([P], lr=1, momentum=1.0), ValueRefusedError, "momentum=1.0; .* < 1"),
        (lambda: optim.SGD([P], lr=1, nesterov=True), MinimlError, "nesterov=True without"),
        (lambda: optim.Adam([P], betas=(0.9, 1.0)), ValueRefusedError, r"betas\[1\]=1\.0"),
        (lambda: optim.SGD([P], lr=1).update([]), ArityError, "1 parameters; got 0 gradients"),
        (lambda: optim.SGD([P], lr=1).update(P), GradientArgumentError, "one for each parameter"),
        (lambda: optim.Optimizer([P], lr=1).update([P]), MinimlError, "Optimizer defines no rule"),
        (lambda: optim.Adam([P], betas=0.9), AttributeRefusedError, "betas=0.9; expected two num"),
        (lambda: optim.Adam([P], betas=(0.9,)), ValueRefusedError, r"betas=\(0.9,\); expected two"),
        (
            lambda: optim.SGD([P], lr="1e-3x"),
            AttributeRefusedError,
            "lr='1e-3x'; expected a number",
        ),
        (
            lambda: optim.SGD([P], lr=1, momentum=None),
            AttributeRefusedError,
            "momentum=None; expec",
        ),
        (lambda: optim.Adam([P], betas=("a", 0.9)), AttributeRefusedError, r"betas\[0\]='a'; exp"),
        (lambda: optim.SGD([COUNTS], lr=1), GradientArgumentError, "'n' of int32; only floats l"),
        (lambda: optim.clip_by_value(P, 1.0), GradientArgumentError, "one Tensor; give a seq"),
        (lambda: optim.clip_by_global_norm(P, 1.0), GradientArgumentError, "one Tensor; give a"),
    ],
)
def test_what_makes_no_sense_is_refused(make, error, message):
    with pytest.raises(error, match=message):
        make()
    opt = optim.SGD([P], lr=1.0)
    with pytest.raises(MinimlError, match="lr=inf"):
        opt.lr = float("inf")
    assert float(opt.lr) == 1.0


def test_a_gradient_of_another_shape_changes_nothing():
    params = [ml.Parameter(np.zeros(n, np.float32), name="ab"[n - 2]) for n in (2, 3)]
    opt = optim.SGD(params, lr=1.0)
    grads = [ml.Tensor(np.ones(2, np.float32)), ml.Tensor(np.ones((2, 3), np.float32))]
    with pytest.raises(ShapeError, match=r"float32\[2, 3\] for the gradient of 'b'"):
        opt.update(grads)
    assert not any(p.asnumpy().any() for p in params)
