"""Draws from a generator given by `generator=`: its own stream, in every mode and every body."""

import copy
import pickle

import numpy as np
import pytest

import miniml as ml
from miniml import nn, ops, optim
from miniml.core.parameter import default_generator
from miniml.errors import DTypeError, GraphError
from miniml.grad import grad
from miniml.testing import gradcheck

X = np.linspace(0.5, 1.5, 6).astype(np.float32)
DRAWS = {
    "uniform": lambda g: ops.uniform((3,), generator=g),
    "normal": lambda g: ops.normal((3, 2), generator=g),
    "bernoulli": lambda g: ops.bernoulli((9,), generator=g),
    "dropout": lambda g: ops.dropout(X, 0.4, g),
    "gumbel": lambda g: ops.gumbel((3,), generator=g),
    "truncated_normal": lambda g: ops.truncated_normal((3,), generator=g),
    "randint": lambda g: ops.randint((5,), -3, 9, generator=g),
    "permutation": lambda g: ops.permutation(X, generator=g),
    "categorical": lambda g: ops.categorical(X, (4,), g),
    "choice": lambda g: ops.choice(X, (4,), generator=g),
    "choice by weight": lambda g: ops.choice(6, 4, False, X, generator=g),
    "shuffle": lambda g: ops.shuffle(X, generator=g),
    "exponential": lambda g: ops.exponential(None, X, generator=g),
    "laplace": lambda g: ops.laplace((3,), 0.0, 2.0, generator=g),
    "cauchy": lambda g: ops.cauchy((3,), generator=g),
    "gamma": lambda g: ops.gamma(None, X, generator=g),
    "beta": lambda g: ops.beta(None, X, 2.0, generator=g),
    "dirichlet": lambda g: ops.dirichlet(X, generator=g),
    "student_t": lambda g: ops.student_t(None, X, generator=g),
    "poisson": lambda g: ops.poisson(None, 9.0 * X, generator=g),
}


def every_draw(g, h):
    return lambda x: tuple(draw(s) for draw in DRAWS.values() for s in (g, h, None))


def in_a_scan(g, h):
    def scanned(x):
        scale = x.sum() + ops.uniform((), generator=g)

        def step(carry, row):
            more = row * ops.uniform((), generator=g) * scale  # captures: of g, scale, of h
            return carry + more, ops.randint((2,), 0, 99, generator=h)

        return *ops.scan(step, 0.0, x), ops.uniform((2,), generator=g), ops.uniform((2,))

    return scanned


def in_nested_scans(g, h):
    def inner(carry, row):
        return carry + ops.uniform((), generator=g) + ops.uniform(()), row

    def step(carry, row):
        return carry + ops.scan(inner, row, X)[1] * ops.normal((), generator=h), carry

    return lambda x: ops.scan(step, 0.0, x, reverse=True)


def in_a_cond(g, h):
    def branch(op):
        return lambda x: op(x, ops.uniform((6,), generator=g)) + ops.uniform((6,), generator=h)

    def chosen(x):
        x = ops.dropout(x, 0.1, g)  # the branches' draws come behind
        return ops.cond(x.sum() > 0, branch(ops.mul), branch(ops.add), x), x

    return chosen


def under_a_gradient(g, h):
    def loss(x):
        return ops.sum(ops.dropout(x * x, 0.5, g) * ops.normal((6,), generator=h))

    return lambda x: (grad(loss)(x), grad(lambda x: ops.sum(ml.recompute(loss)(x)))(x))


def outcome(make, compiled):
    """What two calls give, and the three streams afterwards."""
    ml.manual_seed(7)
    g, h = ml.Generator(1), ml.Generator(2)
    fn = make(g, h)
    fn = ml.jit(fn) if compiled else fn
    outs = [t.asnumpy() for _ in range(2) for t in fn(ml.Tensor(X))]
    return outs, [s.state.tolist() for s in (g, h, default_generator)]


@pytest.mark.parametrize(
    "make", [every_draw, in_a_scan, in_nested_scans, in_a_cond, under_a_gradient]
)
def test_eager_and_compiled_give_equal_bits(make):
    (eager, streams), (compiled, others) = outcome(make, False), outcome(make, True)
    assert streams == others
    assert [o.tobytes() for o in eager] == [o.tobytes() for o in compiled]


@pytest.mark.parametrize("name", DRAWS)
def test_a_generator_has_a_stream_of_its_own(name):
    draw = DRAWS[name]
    g, before = ml.Generator(5), default_generator.state.tolist()
    first, second = draw(g).tolist(), draw(g).tolist()
    assert default_generator.state.tolist() == before
    assert draw(g.manual_seed(5)).tolist() == first
    assert draw(copy.deepcopy(g)).tolist() == second != first
    ml.manual_seed(5)
    assert draw(None).tolist() == first


def test_a_generator_may_be_an_argument():
    f, g, h = ml.jit(lambda x, s: ops.dropout(x, 0.5, s)), ml.Generator(1), ml.Generator(2)
    for s in (g, h, g):
        expected = ops.dropout(X, 0.5, copy.deepcopy(s)).tolist()
        assert f(X, s).tolist() == expected


def test_a_saved_graph_goes_on_with_the_stream(tmp_path):
    g = ml.Generator(11)
    ml.save_graph(lambda x: x + ops.uniform((6,), generator=g), tmp_path / "graph", X)
    loaded = ml.load_graph(tmp_path / "graph")
    for _ in range(2):
        assert loaded(ml.Tensor(X)).tolist() == (X + ops.uniform((6,), generator=g)).tolist()


def test_a_checkpoint_keeps_the_stream(tmp_path):
    g, h = ml.Generator(11), ml.Generator(0)
    ops.uniform((3,), generator=g)
    ml.save_checkpoint({"stream": g.state}, tmp_path / "file")
    ml.load_checkpoint(tmp_path / "file", {"stream": h.state})
    assert h.state.tolist() == g.state.tolist()


class Noisy(nn.Cell):
    def __init__(self):
        super().__init__()
        self.dense, self.generator = nn.Dense(3, 2), ml.Generator(4)

    def construct(self, x):
        return ops.dropout(self.dense(x), 0.5, self.generator)


def trained(**settings):
    ml.manual_seed(0)
    net = Noisy()
    step = ml.train_step(net, nn.MSELoss(), optim.SGD(net.trainable_params(), lr=0.1))
    x, y = np.ones((4, 3), np.float32), np.ones((4, 2), np.float32)
    with ml.context(**settings):
        return [step(x, y).item() for _ in range(3)], net.generator.state.tolist()


def test_steps_draw_from_it():
    (losses, state), (others, same) = trained(), trained(jit=False)
    assert state == same == [4, 6]
    np.testing.assert_allclose(losses, others, 1e-6)


def test_a_step_that_raises_takes_nothing_from_it():
    g = ml.Generator(4)

    def failing(x):
        return ops.gather(x, ops.randint((2,), 8, 9, generator=g))

    with pytest.raises(IndexError):
        ml.jit(failing)(X)
    assert g.state.tolist() == [4, 0]


def test_gradcheck_sees_equal_draws():
    g = ml.Generator(3)
    assert gradcheck(lambda x: ops.dropout(x, 0.5, g) * x, np.arange(1.0, 5.0)).ok


def test_branches_draw_equally_much_of_each():
    g, h = ml.Generator(1), ml.Generator(2)

    def branch(generator):
        return lambda x: x + ops.uniform((6,), generator=generator)

    with pytest.raises(GraphError, match=r"draw 2 and 0 blocks.*equally many of each generator"):
        ml.jit(lambda x: ops.cond(x.sum() > 0, branch(g), lambda x: x, x))(X)
    with pytest.raises(GraphError, match=r"draw 2 and 2 blocks .* equally many of each generator"):
        ml.jit(lambda x: ops.cond(x.sum() > 0, branch(g), branch(h), x))(X)
    with pytest.raises(GraphError, match="WhileLoop draws random numbers in its body"):
        ml.jit(lambda x: ops.while_loop(lambda x: x.sum() < 9, branch(g), x))(X)


@pytest.mark.parametrize("wrong", [np.random.default_rng(0), 3, "seed"])
def test_what_is_no_generator_is_refused(wrong):
    for draw in DRAWS.values():
        with pytest.raises(DTypeError, match=r"got generator=.*it takes an ml.Generator"):
            draw(wrong)


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda g: pickle.loads(pickle.dumps(g))]
)
def test_a_copy_claims_its_own_state_in_a_draw(copied):
    g = ml.Generator(3)
    assert g._section.writes == g._section.uses == {id(g.state)}  # as where two sections meet
    h = copied(g)
    assert h._section.writes == h._section.uses == {id(h.state)}
