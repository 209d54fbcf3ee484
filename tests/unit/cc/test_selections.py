"""Cheap branches as selections: both are computed, in the loops of what is around them, with the
numbers of the branch that holds; where a branch may fail, acts, or is dear, it stays a branch."""

import numpy as np
import pytest

import miniml as ml
from miniml import Primitive, kernel, ops
from miniml.grad import grad
from miniml.ops import Cond
from tests.frame.native import needs_compiler
from tests.unit.cc.programs import BINARY, UNARY

pytestmark = needs_compiler


def conds(graph):
    """The number of branches in a graph, and in the graphs inside of it."""
    own = sum(isinstance(n.primitive, Cond) for n in graph.nodes)
    return own + sum(conds(g) for n in graph.nodes for _, g in n.subgraphs())


def branches(fn, *given, **settings):
    """The number of branches in the compiled program of a function."""
    with ml.context(providers=("cc",), **settings):
        program = ml.jit(fn)
        program(*given)
        return conds(program.compiled(*given).program.graph)


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("f")


X, YES, NO = numbers(5), np.array(True), np.array(False)


class NatNoted(Primitive):
    """x + 1, in the order of the program."""

    effect = "ordered"
    expression = "x + 1"

    def compute(self, x, *, out):
        np.add(x, 1.0, out=out)


class NatForeign(Primitive):
    """x times 2, by a kernel in Python alone."""

    like = "x"
    inputs = ("x",)


@kernel("NatForeign", "cpu", "f->f", "d->d")
def foreign(x, *, out):
    np.multiply(x, 2.0, out=out)


# --- Which branches ------------------------------------------------------------------------------


def chosen(on_true, on_false=lambda x: x):
    return lambda pred, x: ops.cond(pred, on_true, on_false, x)


DEAR = np.zeros(100_000, "f")
STAY = {
    "another's kernel": (chosen(NatForeign()), X),
    "an effect": (chosen(NatNoted()), X),
    "random numbers": (chosen(lambda x: x * ops.normal((5,)), lambda x: x - ops.normal((5,))), X),
    "an index that may be refused": (chosen(lambda x: ops.gather(x, ops.cast(x, ml.int32), 0)), X),
    "a product": (chosen(lambda x: x @ x[:, None] + x), X),
    "a loop": (chosen(lambda x: ops.scan(lambda h, _: (h + x, ()), x, length=2)[1]), X),
    "a loop that may not end": (
        chosen(lambda x: ops.while_loop(lambda h: ops.sum(h) < 9.0, lambda h: h + 1.0, x)), X,
    ),
    "an expensive function of many elements": (chosen(ops.tanh), numbers(64)),
    "outputs of many elements": (chosen(lambda x: x + 1.0), DEAR),
    "outputs of many elements that nothing computes": (chosen(lambda x: x[::-1]), DEAR),
    "what has no kernel without a cast": (
        chosen(lambda x: ops.cast(NatForeign()(ops.cast(x, ml.float16)), ml.float32)), X,
    ),
    "no elements": (chosen(lambda x: x + 1.0), DEAR[:0]),
}  # fmt: skip


@pytest.mark.parametrize("why", STAY)
def test_they_stay_branches(why):
    fn, x = STAY[why]
    assert branches(fn, YES, x) == 1


GO = {
    "arithmetic": chosen(lambda x: x * 2.0 + 1.0, lambda x: 3.0 - x),
    "views": chosen(lambda x: ops.reshape(x[::-1], (5, 1))[:, 0]),
    "created values": chosen(lambda x: ops.zeros((5,)), lambda x: ops.cast(ops.arange(5), "f")),
    "integers, divided": chosen(lambda x: ops.cast(ops.cast(x, ml.int32) // 3, ml.float32)),
    "an expensive function of few elements": chosen(ops.tanh),
    "one result twice": chosen(lambda x: (x + 1.0, x + 1.0), lambda x: (x, x * 2.0)),
    "equal branches": chosen(lambda x: x),
    "a branch in a branch": chosen(lambda x: ops.cond(x[0] > 0.0, lambda: x, lambda: -x)),
    "halves": chosen(lambda x: ops.cast(ops.cast(x, ml.float16) * 2.0, ml.float32)),
    "complex numbers": chosen(lambda x: x * 2j - 1j, lambda x: ops.cast(x, ml.complex64)),
}


@pytest.mark.parametrize("what", GO)
def test_they_become_selections(what):
    fn = GO[what]
    assert branches(fn, YES, X) == 0
    with ml.context(providers=("cc",)):
        for pred in (YES, NO):
            found, right = (np.asarray(f(pred, X)) for f in (ml.jit(fn), fn))
            np.testing.assert_allclose(found, right, 2e-7)


def test_only_the_branch_inside_stays_one():
    inner = chosen(NatForeign())
    fn = chosen(lambda x: x + inner(x[0] > 0.0, x), lambda x: ops.cond(x[0] > 0.0, ops.neg, abs, x))
    with ml.context(providers=("cc",)):
        program = ml.jit(fn)
        for pred in (YES, NO):
            for x in (X, -X):
                np.testing.assert_array_equal(program(pred, x), fn(pred, x))
        assert conds(program.compiled(YES, X).program.graph) == 2


def test_one_graph_may_be_the_branch_of_several():
    double, same = (ml.trace(f, X) for f in (lambda x: x * 2.0, lambda x: x - 1.0))
    cond = Cond(double, same, (0,), (0,))

    def fn(pred, x):
        (y,) = cond(pred, x)
        return cond(y[0] > 0.0, y)[0] + y

    assert branches(fn, YES, X) == 0
    with ml.context(providers=("cc",)):
        for pred, y in ((YES, X * 2.0), (NO, X - 1.0)):
            right = y + (y * 2.0 if y[0] > 0.0 else y - 1.0)
            np.testing.assert_array_equal(ml.jit(fn)(pred, X), right)


def test_numpy_and_disabled_passes_have_branches():
    fn = GO["arithmetic"]
    assert branches(fn, YES, X, disabled_passes="selections") == 1
    with ml.context(providers=("miniml",)):
        program = ml.jit(fn)
        program(YES, X)
        assert conds(program.compiled(YES, X).program.graph) == 1


def test_they_are_selections_in_loops_after_gradients():
    def fn(x, xs):
        def step(h, x):
            return ops.cond(ops.sum(h) < 1.0, lambda: h + x, lambda: h * x), h[0]

        return ops.sum(ops.scan(step, x, xs)[1])

    assert conds(ml.trace(fn, X, numbers(7, 5))) == 1
    assert branches(grad(fn, argnums=(0, 1)), X, numbers(7, 5)) == 0


# --- Their numbers --------------------------------------------------------------------------------


def test_a_nan_of_the_other_branch_stays_there():
    def fn(x):
        return ops.cond(x > 0.0, ops.log, lambda x: x * 2.0, x)

    x = np.float32(-3.0)
    assert branches(fn, x) == branches(grad(fn), x) == 0
    with ml.context(providers=("cc",)):
        assert ml.jit(fn)(x).item() == -6.0
        assert ml.jit(grad(fn))(x).item() == 2.0
        assert ml.jit(ml.vmap(grad(fn)))(np.array([-3.0, 4.0], "f")).tolist() == [2.0, 0.25]


def test_who_looks_for_a_nan_finds_none_in_the_other_branch():
    fn = chosen(ops.log, lambda x: x * 2.0)
    x = np.float32(-3.0)
    with ml.context(providers=("cc",)), ml.debug_nans():
        program = ml.jit(fn)
        assert program(NO, x).item() == -6.0
        with pytest.raises(FloatingPointError, match="Log"):
            program(YES, x)


def branch(rng, count):
    """Two results of as many values, by calls drawn at random."""
    one, two, three = (UNARY[i] for i in rng.integers(len(UNARY), size=3))
    pair = BINARY[rng.integers(len(BINARY))]
    first, second = rng.integers(count, size=2)
    return lambda *given: (pair(two(one(given[first])), given[second]), three(given[first]))


def walk(seed):
    """A scan whose steps choose between branches, one inside another, for a state of two values."""
    rng = np.random.default_rng(seed)
    first, second, third = (branch(rng, 3) for _ in range(3))
    bounds = rng.normal(size=2)

    def step(state, x):
        a, b = state
        inner = lambda a, b, x: ops.cond(ops.max(b) > bounds[1], second, third, a, b, x)  # noqa: E731
        made = ops.cond(ops.sum(a) > bounds[0], first, inner, a, b, x)
        return tuple(ops.clip(v, -3.0, 3.0) for v in made), made[0] * x

    return lambda a, b, xs: ops.scan(step, (a, b), xs)


def agree(seed, shape):
    """A random walk and its gradient, compiled with selections, beside those op by op."""
    a, b, xs = numbers(*shape, seed=seed), numbers(*shape, seed=seed + 1), numbers(4, *shape)
    fn = walk(seed)

    def total(a, b, xs):
        rows, (last, _) = fn(a, b, xs)
        return ops.sum(rows * rows) + ops.sum(last)

    for f in (fn, grad(total, argnums=(0, 1, 2))):
        with ml.context(providers=("cc",)):
            found = ml.jit(f)(a, b, xs)
        for one, right in zip(leaves(found), leaves(f(a, b, xs)), strict=True):
            np.testing.assert_allclose(one, right, 2e-4, 2e-4, err_msg=f"{seed} {shape}")


def leaves(tree):
    return [x for t in tree for x in leaves(t)] if isinstance(tree, (tuple, list)) else [tree]


@pytest.mark.parametrize("shape", [(), (3,)], ids=str)
def test_random_walks_are_those_op_by_op(shape):
    for seed in range(3):
        agree(seed, shape)


@pytest.mark.deep
@pytest.mark.parametrize("shape", [(), (3,), (2, 9)], ids=str)
def test_many_random_walks_are_those_op_by_op(shape):
    for seed in range(3, 11):
        agree(seed, shape)


def test_newton_by_while_loop_and_by_scan():
    """The bounded loop is a scan of branches where a gradient is asked, of as many steps."""

    def root(a, bound):
        going = lambda x: ops.abs(x * x - a) > 1e-4  # noqa: E731
        return ops.while_loop(going, lambda x: 0.5 * (x + a / x), a, bound)

    a = np.float32(9.0)
    assert branches(grad(lambda a: root(a, 20)), a) == 0
    with ml.context(providers=("cc",)):
        assert ml.jit(lambda a: root(a, None))(a).item() == pytest.approx(3.0, 1e-5)
        assert ml.jit(grad(lambda a: root(a, 20)))(a).item() == pytest.approx(1 / 6, 1e-4)
