"""Every pass against itself switched off, over programs near what it looks for."""

import numpy as np
import optree
import pytest

import miniml as ml
from miniml import ops
from miniml.grad import grad
from miniml.graph.passes import PIPELINE
from miniml.runtime.jit import Jit
from miniml.runtime.lowering import LOWERING
from tests.frame.compilers import optimized
from tests.frame.native import needs_compiler

from .neighbours import NEIGHBOURS
from .programs import load_all

pytestmark = needs_compiler

NATIVE = {
    "selections",
    "narrow",
    "decompose",
    "movement",
    "checks",
    "turn",
    "formats",
    "placed",
    "fuse",
}  # of C kernels alone


def test_every_pass_that_can_be_left_out_has_neighbours():
    assert {p.name for p in (*PIPELINE, *LOWERING)} - set(NEIGHBOURS) == {"legalize"}


def with_gradient(fn, args):
    """Its results and the gradients of their sum, for the arguments that are floats."""
    floats = tuple(i for i, a in enumerate(args) if a.dtype.kind == "f")

    def loss(*given):
        made = optree.tree_leaves(fn(*given))
        return sum((ops.sum(ops.sin(y)) for y in made), start=ops.zeros((), ml.float64))

    return lambda *given: (fn(*given), grad(loss, argnums=floats)(*given))


def leaves(made):
    return [leaf.asnumpy() for leaf in optree.tree_leaves(made)]


def check(name, seeds):
    """Each program as the pass leaves it, without the pass, and eager; gives how many of them the
    pass changed."""
    provider = ("cc",) if name in NATIVE else ("miniml",)
    cases, changed = [], 0
    for seed in seeds:
        fn, args = NEIGHBOURS[name](np.random.default_rng((seed, len(name))))
        fn = with_gradient(fn, args)
        programs = []
        for off in ((), (name,)):
            with ml.context(providers=provider, disabled_passes=off, verify_passes=True):
                jit = Jit(fn)
                programs.append((jit, jit.compiled(*args).program))
        changed += str(programs[0][1].graph) != str(programs[1][1].graph)
        cases.append((seed, fn, args, programs))
    load_all([program for *_, pair in cases for _, program in pair])
    for seed, fn, args, programs in cases:
        expected = leaves(fn(*map(ml.Tensor, args)))
        for (jit, _), off in zip(programs, ((), (name,)), strict=True):
            with ml.context(providers=provider, disabled_passes=off, verify_passes=True):
                got = leaves(jit(*args))
            for one, two in zip(got, expected, strict=True):
                assert (one.shape, one.dtype) == (two.shape, two.dtype), seed
                said = f"{name}, seed {seed}, without {off}"
                least = 1e-11 + 1e-12 * np.abs(two).max(initial=0.0)  # what cancels
                np.testing.assert_allclose(one, two, rtol=1e-9, atol=least, err_msg=said)
    return changed


@pytest.mark.parametrize("name", NEIGHBOURS)
def test_a_pass_changes_no_result(name):
    assert check(name, range(4)) > 0 or name == "prune"  # which every pass does for itself


@pytest.mark.deep
@pytest.mark.parametrize("start", range(100, 150, 25))
@pytest.mark.parametrize("name", NEIGHBOURS)
def test_a_pass_changes_no_result_of_many(name, start):
    with optimized("-O3" if start == 100 else "-O1"):
        assert check(name, range(start, start + 25)) > 0 or name == "prune"
