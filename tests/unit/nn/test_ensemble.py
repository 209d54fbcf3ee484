"""Networks as functions of their parameters, and ensembles of them under vmap."""

import numpy as np
import pytest

import miniml as ml
from miniml import nn, ops
from miniml.errors import AttributeRefusedError, GraphError, ShapeError
from miniml.grad import custom_bprop, grad, jvp, value_and_grad

RNG = np.random.default_rng(0)
X = RNG.normal(size=(6, 4)).astype(np.float32)
LABELS = np.arange(6) % 3
CLOSE = {"rtol": 1e-4, "atol": 1e-6}


def network(seed):
    ml.manual_seed(seed)
    return nn.Sequential(nn.Dense(4, 8), nn.Tanh(), nn.Dense(8, 3))


NETS = [network(seed) for seed in range(3)]


def member(weights, x):
    return nn.functional_call(NETS[0], weights, x)


def loss(weights, x, labels):
    return nn.CrossEntropyLoss()(member(weights, x), labels)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "jit"])
def test_an_ensemble_is_its_networks_one_by_one(compiled):
    made = ml.jit if compiled else lambda f: f
    weights = nn.stack_weights(NETS)
    out = made(ml.vmap(member, (0, None)))(weights, X)
    np.testing.assert_allclose(out.asnumpy(), [net(X).asnumpy() for net in NETS], **CLOSE)
    found = made(ml.vmap(grad(loss), (0, None, None)))(weights, X, LABELS)
    for i, net in enumerate(NETS):
        one = value_and_grad(lambda n=net: nn.CrossEntropyLoss()(n(X), LABELS), None, weights=net)
        for name, expected in zip(weights, one()[1]):
            np.testing.assert_allclose(found[name].asnumpy()[i], expected.asnumpy(), **CLOSE)


def test_values_stand_for_parameters_and_leave_them_alone():
    net = NETS[0]
    before = {name: p.asnumpy() for name, p in net.parameters_dict().items()}
    other = NETS[1].parameters_dict()
    np.testing.assert_array_equal(member(other, X).asnumpy(), NETS[1](X).asnumpy())
    half = member({"2.bias": np.zeros(3)}, X).asnumpy()  # the rest is the network's own
    np.testing.assert_allclose(half, net(X).asnumpy() - before["2.bias"], rtol=1e-6)
    for name, p in net.parameters_dict().items():
        np.testing.assert_array_equal(p.asnumpy(), before[name])


def test_tangents_pass_through_the_values():
    weights = {name: p.asnumpy().astype(float) for name, p in NETS[0].parameters_dict().items()}
    towards = {name: RNG.normal(size=w.shape) for name, w in weights.items()}
    x = X.astype(float)
    _, tangent = jvp(lambda w: member(w, x), (weights,), (towards,))
    near = [
        member({n: w + h * towards[n] for n, w in weights.items()}, x).asnumpy()
        for h in (1e-6, -1e-6)
    ]
    np.testing.assert_allclose(tangent.asnumpy(), (near[0] - near[1]) / 2e-6, rtol=1e-6, atol=1e-8)


class Branching(nn.Cell):
    """A parameter read inside a loop, a branch, a recomputed function and a custom gradient."""

    def __init__(self):
        self.weight = ml.Parameter(np.array([2.0, 3.0]))

    def construct(self, x):
        x = ops.scan(lambda c, row: (c * self.weight + row, c), x[0], x)[1]
        x = ops.cond(ops.sum(x) > 0, lambda v: v * self.weight, lambda v: v, x)
        x = ml.recompute(lambda v: ops.sin(v * self.weight))(x)
        return custom_bprop(lambda x, out, dout: (dout * self.weight,))(lambda v: v * self.weight)(
            x
        )


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "jit"])
def test_reads_inside_of_loops_and_own_gradients_get_the_values(compiled):
    net, other, x = Branching(), Branching(), RNG.uniform(size=(3, 2))
    other.weight.set_data(np.array([0.5, 0.7]))
    run = lambda w, x: nn.functional_call(net, {"weight": w}, x)  # noqa: E731
    out = (ml.jit(run) if compiled else run)(other.weight.asnumpy(), x)
    np.testing.assert_allclose(out.asnumpy(), other(x).asnumpy(), rtol=1e-12)
    found = grad(lambda x: ops.sum(run(other.weight.asnumpy(), x)))(x)
    np.testing.assert_allclose(
        found.asnumpy(), grad(lambda x: ops.sum(other(x)))(x).asnumpy(), rtol=1e-12
    )


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: member({"no": X}, X), AttributeRefusedError,
         "params 'no', which Sequential lacks; its parameters are 0.weight, 0.bias, 2.weight"),
        (lambda: member([X], X), AttributeRefusedError, "got list for params; give a dict"),
        (lambda: nn.functional_call(ops.sin, {}, X), AttributeRefusedError, "give a Cell"),
        (lambda: member(nn.stack_weights(NETS), X), ShapeError,
         r"got float32\[3, 4, 8\] for 0.weight, which is float32\[4, 8\]; values of several netw"),
        (lambda: member({"2.bias": np.zeros(3, int)}, X), ShapeError, r"got int64\[3\] for 2.bias"),
        (lambda: nn.stack_weights([]), AttributeRefusedError, "got no networks; give a list"),
        (lambda: nn.stack_weights(NETS[0]), AttributeRefusedError, "got Sequential; give a list"),
        (lambda: nn.stack_weights([NETS[0], X]), AttributeRefusedError, "ndarray; give a Cell"),
        (lambda: nn.stack_weights([nn.Dense(2, 3), nn.Dense(2, 3, bias=False)]), ShapeError,
         r"bias is float32\[3\] in the first and missing in number 1"),
    ],
)  # fmt: skip
def test_refusals(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_a_value_that_the_network_assigns_is_refused_and_one_left_out_is_assigned():
    norm, x = nn.BatchNorm2d(2), RNG.normal(size=(3, 2, 4, 4)).astype(np.float32)
    given = norm.parameters_dict()
    with pytest.raises(GraphError, match="Parameter 'running_mean', which the network assigns"):
        nn.functional_call(norm, given, x)
    before = norm.running_mean.asnumpy()
    nn.functional_call(norm, {"weight": np.ones(2)}, x)
    assert (norm.running_mean.asnumpy() != before).all()
    norm.set_train(False)
    assert nn.functional_call(norm, given, x).shape == x.shape
