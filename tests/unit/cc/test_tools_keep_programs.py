"""Tools that look, or that only change how a program is computed, over random programs: nothing
that they are given breaks, and no result is another."""

from contextlib import nullcontext

import numpy as np
import optree
import pytest

import miniml as ml
from miniml import nn, ops, optim
from miniml.grad import grad
from tests.frame.compilers import optimized
from tests.frame.native import needs_compiler

from .neighbours import NEIGHBOURS

pytestmark = needs_compiler

DRAWS = list(dict.fromkeys(NEIGHBOURS.values()))


class Net(nn.Cell):
    """A random program, one of whose float arguments is a parameter."""

    def __init__(self, fn, args, place):
        super().__init__()
        self.fn, self.place = fn, place
        self.weight = ml.Parameter(args[place])

    def construct(self, *others):
        given = list(others)
        given.insert(self.place, self.weight)
        made = optree.tree_leaves(self.fn(*given))
        return sum(
            (ops.sum(ops.sin(ops.cast(y, ml.float64))) for y in made),
            start=ops.zeros((), ml.float64),
        )


def inputs_read(graph):
    """For each input, True if an output depends on it."""
    makers, needed = graph.makers(), dict.fromkeys(graph.outputs)
    stack = list(needed)
    while stack:
        node = makers.get(stack.pop())
        new = [v for v in (node.inputs if node else ()) if v not in needed]
        needed |= dict.fromkeys(new)
        stack += new
    return [v in needed for v in graph.inputs]


class Case:
    """A random program, as a function with its gradient and as the training step of a net.

    around: the block in which both run; wrapped: what is done to the function and the net first.
    """

    def __init__(self, draw, seed):
        self.fn, self.args = draw(np.random.default_rng((seed, 77)))
        read = inputs_read(ml.trace(self.fn, *self.args))  # one may be of no use
        self.place = next(i for i, a in enumerate(self.args) if a.dtype.kind == "f" and read[i])

    def loss(self, *given):
        made = optree.tree_leaves(self.fn(*given))
        return sum(
            (ops.sum(ops.sin(ops.cast(y, ml.float64))) for y in made),
            start=ops.zeros((), ml.float64),
        )

    def function(self, wrapped=lambda fn: fn):
        fn, loss = wrapped(self.fn), wrapped(self.loss)
        return ml.jit(lambda *given: (fn(*given), grad(loss, self.place)(*given)))

    def step(self, wrapped=lambda net: net):
        net = wrapped(Net(self.fn, self.args, self.place))
        others = [a for i, a in enumerate(self.args) if i != self.place]
        opt = optim.SGD(net.trainable_params(), lr=1e-3, momentum=0.9)
        made = ml.train_step(net, lambda out, target: out * ops.sum(target), opt)
        # A label of one row: steps refuse batches without any, and random arrays may be empty.
        return net, lambda: made((*others,), np.ones(1))

    def results(self, function, net, step, around):
        """What both give, run twice in the block: the first time compiles."""
        found = []
        for _ in range(2):
            with around():
                found += [*optree.tree_leaves(function(*self.args)), step()]
        return [np.asarray(t.asnumpy()) for t in (*found, *net.trainable_params())]


def compare(draw, seed, around=nullcontext, wrapped=lambda fn: fn, exact=True):
    case = Case(draw, seed)
    net, step = case.step()
    expected = case.results(case.function(), net, step, nullcontext)
    net, step = case.step(wrapped)
    got = case.results(case.function(wrapped), net, step, around)
    for one, two in zip(got, expected, strict=True):
        assert (one.shape, one.dtype) == (two.shape, two.dtype)
        if exact:
            np.testing.assert_array_equal(one, two, f"{draw.__name__}, seed {seed}")
        else:
            np.testing.assert_allclose(one, two, 1e-9, 1e-11, err_msg=f"{draw.__name__} {seed}")


def profile(draw, seed):
    profiles = []

    def around():
        profiles.append(ml.profile())
        return profiles[-1]

    compare(draw, seed, around)
    shown = profiles[-1].watcher
    assert "by layer" in str(shown)
    assert sum(row.seconds for row in shown.rows) > 0


def hooks(draw, seed):
    seen = []
    note = lambda call: seen.append((str(call), [t.asnumpy().sum() for t in call.inputs]))  # noqa: E731
    compare(draw, seed, lambda: ml.hooks(before=note, after=note), exact=False)
    assert seen


def explain(draw, seed):
    case = Case(draw, seed)
    fn = case.function()
    for text in (False, True):
        assert "arena" in str(ml.explain(fn, *case.args, text=text))
    before = [t.asnumpy() for t in optree.tree_leaves(fn(*case.args))]
    again = [t.asnumpy() for t in optree.tree_leaves(case.function()(*case.args))]
    for one, two in zip(before, again, strict=True):
        np.testing.assert_array_equal(one, two)


def debug_nans(draw, seed):
    compare(draw, seed, ml.debug_nans, exact=False)


def recompute(draw, seed):
    compare(draw, seed, wrapped=ml.recompute, exact=False)


def autocast(draw, seed):
    """What is computed in 16 bits differs; dtypes and shapes of results do not, and the compiled
    program gives what the calls one by one give, in 16 bits."""
    case = Case(draw, seed)
    plain = optree.tree_leaves(case.function()(*case.args))
    with ml.context(autocast=ml.float16):
        compiled = optree.tree_leaves(case.function()(*case.args))
        with ml.context(jit=False):
            eager = optree.tree_leaves(case.function()(*map(ml.Tensor, case.args)))
    for one, two, three in zip(compiled, eager, plain, strict=True):
        assert (one.shape, one.dtype, one.shape) == (two.shape, two.dtype, three.shape)
        scale = np.abs(two.asnumpy()).max(initial=1.0)
        assert np.abs(one.asnumpy() - two.asnumpy()).max(initial=0.0) <= 2e-2 * scale, seed


def dynamic(draw, seed):
    case = Case(draw, seed)
    plain = [t.asnumpy() for t in optree.tree_leaves(case.function()(*case.args))]
    named = ml.jit(lambda x: case.function()(*x), dynamic={"x": (0,)} if _has_axes(case) else None)
    for _ in range(2):
        made = [t.asnumpy() for t in optree.tree_leaves(named(case.args))]
        for one, two in zip(made, plain, strict=True):
            np.testing.assert_allclose(one, two, 1e-9, 1e-11, err_msg=f"{draw.__name__} {seed}")


def _has_axes(case):
    return all(a.ndim for a in case.args)


TOOLS = (profile, hooks, explain, debug_nans, recompute, autocast, dynamic)


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.__name__)
def test_a_tool_changes_nothing(tool):
    for i, draw in enumerate(DRAWS):
        with ml.context(providers=("miniml",)):
            tool(draw, i)
    with ml.context(providers=("cc",)):
        tool(DRAWS[0], 50)


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.__name__)
def test_a_tool_changes_nothing_in_many_programs(tool, seed):
    """One of fourteen of each kind by C kernels, and the rest by NumPy's: of the same functions."""
    with optimized("-O1" if seed else "-O3"):
        for draw in DRAWS:
            for number in range(14):
                by_c = number == 0
                with ml.context(providers=("cc",) if by_c else ("miniml",)):
                    tool(draw, 1000 * (seed + 1) + number)
