"""debug_nans: which call made the first NaN or infinity, of what, and where it stands."""

import gc
import weakref

import numpy as np
import pytest

import miniml as ml
from miniml import nn, ops, optim
from miniml.errors import NonFiniteError
from miniml.grad import grad
from miniml.runtime.program import Program
from tests.frame.native import needs_compiler

BAD = np.array([1, -1, 2], np.float32)
MODES = pytest.mark.parametrize(
    "compiled",
    [
        (lambda f: f, ("miniml",)),
        (ml.jit, ("miniml",)),
        pytest.param((ml.jit, ("cc",)), marks=needs_compiler),
    ],
    ids=["eager", "numpy", "cc"],
)


def found(fn, *args):
    """What is said of the first NaN or infinity: the message, then the notes."""
    with ml.debug_nans(), pytest.raises(NonFiniteError) as caught:
        fn(*args)
    return "\n".join([str(caught.value), *caught.value.__notes__])


class Deep(nn.Cell):
    """A square root that falls below zero, in a network in a network."""

    def __init__(self):
        self.body = nn.Sequential(nn.Dense(3, 3), Root())

    def construct(self, x):
        return ops.sum(self.body(x))


class Root(nn.Cell):
    def construct(self, x):
        return ops.sqrt(x - 1e6)


@MODES
def test_the_first_call_its_inputs_and_its_line(compiled):
    wrap, providers = compiled

    def fn(x):
        return ops.exp(ops.sum(ops.log(x * 2.0)) + 1.0)

    with ml.context(providers=providers):
        said = found(wrap(fn), BAD)
    assert said.startswith("Log made NaN; its inputs were float32[3] in [-2, 4]\n")
    assert "Log was called at" in said
    assert "ops.log(x * 2.0)" in said
    assert "test_debug_nans" in said


@MODES
def test_the_backward_of_a_call_is_named_with_its_layer(compiled):
    wrap, providers = compiled

    class Layer(nn.Cell):
        def construct(self, x):
            return ops.sqrt(x)

    net = nn.Sequential(nn.Identity(), Layer())
    with ml.context(providers=providers):
        said = found(wrap(grad(lambda x: ops.sum(net(x)))), np.array([4, 0], np.float32))
    assert "made an infinity in the backward of Sqrt; its inputs were " in said
    assert "in layer 1 (Layer)" in said
    assert "in the backward of Sqrt, which was called at" in said
    assert "ops.sqrt(x)" in said


@MODES
def test_a_training_step_names_the_layer_and_changes_nothing(compiled):
    wrap, providers = compiled
    net = Deep()
    step = ml.train_step(net, lambda out: out, optim.SGD(net.trainable_params(), lr=0.1))
    before = net.body[0].weight.asnumpy()
    with ml.context(providers=providers, jit=wrap is ml.jit):
        said = found(step, BAD[None])
    assert "Sqrt made NaN" in said
    assert "in layer body.1 (Root)" in said
    assert "ops.sqrt(x - 1e6)" in said
    np.testing.assert_array_equal(net.body[0].weight.asnumpy(), before)


@MODES
def test_a_scan_says_at_which_step(compiled):
    wrap, providers = compiled

    def run(x):
        return ops.scan(lambda carry, row: (carry + row, ops.log(3.0 - carry)), x[0], x)[0]

    with ml.context(providers=providers):
        said = found(wrap(run), np.ones(5, np.float32))
    assert "Log made an infinity; its inputs were float32[] in [0, 0]" in said
    assert "in step 2 of the scan" in said
    assert "ops.log(3.0 - carry)" in said


@MODES
def test_a_while_loop_says_at_which_step(compiled):
    wrap, providers = compiled

    def run(x):
        return ops.while_loop(lambda v: v > 0, lambda v: ops.log(v - 1.0), x)

    with ml.context(providers=providers):
        said = found(wrap(run), np.float32(3.0))
    assert "Log made NaN" in said
    assert "in step 1 of the loop" in said


@MODES
def test_a_value_that_is_dropped_later_counts_too(compiled):
    wrap, providers = compiled
    with ml.context(providers=providers):
        said = found(wrap(lambda x: ops.where(x > 0, ops.log(x), 0.0) + 1.0), BAD)
    assert said.startswith("Log made NaN")


@MODES
def test_infinities_that_were_given_pass(compiled):
    wrap, providers = compiled
    mask = np.array([[0, -np.inf], [0, 0]], np.float32)

    def fn(x):
        rows, _ = ops.scan(lambda carry, row: (carry, ops.where(row > 0, row, -np.inf)), 0.0, x)
        return ops.softmax(rows + mask)

    with ml.context(providers=providers), ml.debug_nans():
        out = wrap(fn)(np.array([[1, -2], [3, -4]], np.float32)).asnumpy()
        assert np.isneginf(ops.full((2,), -np.inf).asnumpy()).all()
    np.testing.assert_array_equal(out, [[1, 0], [1, 0]])


@MODES
def test_what_they_turn_into_is_named(compiled):
    wrap, providers = compiled
    with ml.context(providers=providers):
        said = found(wrap(lambda x: x - ops.max(x)), np.full(3, -np.inf, np.float32))
    assert "Sub made NaN; its inputs were float32[3] without a number but for 3 infinite" in said


@MODES
def test_a_nan_that_was_given_is_not_said_to_be_made(compiled):
    wrap, providers = compiled
    with ml.context(providers=providers):
        said = found(wrap(lambda x: ops.exp(x) + 1.0), np.array([0, np.nan, 2], np.float32))
    assert said.startswith("Exp got NaN; its inputs were float32[3] in [0, 2] but for 1 NaN of 3")


@MODES
def test_constants_that_would_be_folded_and_recomputed_calls_are_named_too(compiled):
    wrap, providers = compiled
    with ml.context(providers=providers):
        said = found(wrap(lambda x: x + ops.log(ml.Tensor(-1.0))), BAD)
        assert said.startswith("Log made NaN; its inputs were float32[] in [-1, -1]")
        said = found(wrap(grad(lambda x: ops.sum(ml.recompute(ops.sqrt)(x)))), np.zeros(2, "f"))
        assert said.startswith("Div made an infinity in the backward of Sqrt")


@needs_compiler
def test_the_kernels_that_run_are_looked_at_and_groups_stay_fused():
    graph = ml.trace(lambda x: ops.log(x * 2.0) + 1.0, BAD)
    with ml.context(providers=("cc",)), ml.debug_nans():
        program = Program(graph)
        assert [n.primitive.name for n in program.graph.nodes] == ["Fused"]
        program(np.ones(3, np.float32))
        with pytest.raises(NonFiniteError, match="Log made NaN"):
            program(BAD)
        gc.disable()
        try:
            gone = weakref.ref(program)
            del program
            assert gone() is None
        finally:
            gc.enable()


def test_narrow_floats_and_integers():
    with ml.debug_nans():
        ops.cast(ml.Tensor([3.0]), ml.int32)
    said = found(lambda: ops.cast(ml.Tensor([1e6]), ml.float16))
    assert "Cast made an infinity; its inputs were float32[1] in [1e+06, 1e+06]" in said
    said = found(lambda: ops.log(ops.cast(ml.Tensor([-1.0, 2.0]), ml.bfloat16)))
    assert "Log made NaN; its inputs were bfloat16[2] in [-1, 2]" in said


def test_outside_of_the_block_nothing_is_looked_at():
    with ml.debug_nans():
        pass
    assert np.isnan(ops.log(ml.Tensor([-1.0])).asnumpy()).all()
