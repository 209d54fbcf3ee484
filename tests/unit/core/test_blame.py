"""Errors in what users write themselves name it: the rule, the kernel, the bprop and its line."""

import numpy as np
import pytest

import miniml as ml
from miniml import Primitive, kernel, nn, ops, view_kernel
from miniml.backends.registry import table
from miniml.errors import (
    BpropError,
    BpropNotFoundError,
    DeclarationError,
    KernelNotFoundError,
    ShapeError,
    TracedValueError,
)
from miniml.grad import bprop_getters, grad

X = np.ones((2, 3), np.float32)


class BlameRules(Primitive):
    """Rules that fail as Python does."""

    axis: int = 0

    def infer_shape(self, x):
        return (x[self.axis],)

    def infer_dtype(self, x):
        return {ml.float32: ml.float32}[x]


class BlameKernel(Primitive):
    """Kernels that fail."""

    def infer_shape(self, x):
        return x

    def infer_dtype(self, x):
        return x


class BlameBprop(BlameKernel):
    """Bprops that fail."""


@kernel("BlameKernel", "cpu", "f->f")
def disagrees(x, *, out):
    np.add(x, np.ones((5, 7), np.float32), out=out)


@kernel("BlameKernel", "cpu", "d->d")
def writes(x, *, out):
    x += 1.0


@kernel("BlameBprop", "cpu", "f->f")
def fills(x, *, out):
    out[...] = x


def notes(error, call):
    with pytest.raises(error) as caught:
        call()
    return caught.value.__notes__


@pytest.mark.parametrize("wrapped", [lambda fn: fn, ml.jit], ids=["eager", "jit"])
class TestRulesAndKernels:
    def test_an_error_of_a_rule_names_it_and_what_it_got(self, wrapped):
        first, second = notes(IndexError, lambda: wrapped(BlameRules(5))(X))
        assert first == "infer_shape of BlameRules(axis=5) got (2, 3)"
        assert second.startswith("BlameRules was called at")
        assert "wrapped(BlameRules(5))(X)" in second
        first, _ = notes(KeyError, lambda: wrapped(BlameRules())(X.astype(int)))
        assert first == "infer_dtype of BlameRules(axis=0) got int64"

    def test_a_kernel_that_disagrees_with_infer_shape_names_both(self, wrapped):
        first, _ = notes(ValueError, lambda: wrapped(BlameKernel())(X))
        assert first == (
            f"kernel disagrees of BlameKernel, f->f (miniml), got {shown('float32')} and fills "
            f"{shown('float32')}, as infer_shape says"
        )

    def test_a_kernel_that_writes_to_its_input_is_told_so(self, wrapped):
        first, _ = notes(ValueError, lambda: wrapped(BlameKernel())(X.astype(float)))
        assert "kernel writes of BlameKernel" in first
        assert f"got {shown('float64')}, which it must not write to, and fills" in first

    def test_a_view_of_another_shape_than_promised_is_refused(self, wrapped):
        class BlameView(Primitive):
            def infer_shape(self, x):
                return x

            def infer_dtype(self, x):
                return x

        key = "BlameView", "cpu"
        table.pop(key, None)
        view_kernel("BlameView", "cpu", "f->f")(lambda x: x[0])
        message = r"BlameView kernel .* a view of shape \(3,\); infer_shape gives \(2, 3\); make"
        with pytest.raises(DeclarationError, match=message):
            wrapped(BlameView())(X)
        del table[key]


def shown(dtype):
    return str(ml.trace(lambda x: x, X.astype(dtype)).inputs[0].abstract)


def test_what_a_rule_refuses_on_purpose_is_left_as_it_is():
    class BlameRefuses(BlameKernel):
        def infer_shape(self, x):
            raise ShapeError("BlameRefuses refuses")

    (note,) = notes(ShapeError, lambda: BlameRefuses()(X))
    assert note.startswith("BlameRefuses was called at")


def test_a_kernel_under_a_misspelt_name_is_named():
    class BlameSpelt(BlameKernel):
        pass

    kernel("BlamSpelt", "cpu", "f->f")(lambda x, *, out: None)
    message = "no primitive is called 'BlamSpelt', for which kernels are registered; "
    with pytest.raises(KernelNotFoundError, match=message):
        BlameSpelt()(X)
    del table["BlamSpelt", "cpu"]
    with pytest.raises(KernelNotFoundError, match="it has none anywhere; register one"):
        BlameSpelt()(X)


def test_a_bprop_under_a_misspelt_name_is_named():
    bprop_getters.register("BlameBpropp")(lambda self: lambda x, out, dout: (dout,))
    with pytest.raises(BpropNotFoundError, match="there is one for 'BlameBpropp', which is no pr"):
        grad(lambda x: ops.sum(BlameBprop()(x)))(X)
    bprop_getters.unregister("BlameBpropp")


def no_tuple(self):
    def bprop(x, out, dout):
        return dout

    return bprop


def fails_inside(self):
    return lambda x, out, dout: (ops.matmul(dout, dout),)


def calls_further(self):
    def bprop(x, out, dout):
        return (helper(dout),)

    return bprop


def helper(dout):
    return ops.matmul(dout, dout)


@pytest.mark.parametrize(
    ("getter", "error", "line"),
    [
        (no_tuple, BpropError, "return dout\n"),
        (fails_inside, ShapeError, "ops.matmul(dout, dout)"),
        (calls_further, ShapeError, "return (helper(dout),)"),
    ],
)
def test_an_error_of_a_bprop_names_its_line_beside_that_of_the_call(getter, error, line):
    bprop_getters.register(BlameBprop)(getter)
    try:
        forward, own = notes(error, lambda: grad(lambda x: ops.sum(BlameBprop()(x)))(X))
    finally:
        bprop_getters.unregister(BlameBprop)
    assert "BlameBprop()(x)" in forward
    assert own.startswith("in the bprop of BlameBprop, at\n")
    assert "test_blame.py" in own
    assert line in own
    assert "^^^" in own


def test_a_bprop_of_miniml_is_not_named():
    found = notes(ShapeError, lambda: grad(lambda x: ops.sum(x @ x))(X))
    assert not any("bprop" in note for note in found)


class MakesLayers(nn.Cell):
    """A layer that would be new at each call."""

    def construct(self, x):
        return nn.Dense(3, 2)(x)


def test_a_layer_made_in_construct_is_said_to_be():
    message = "Parameter on a traced tensor .* make parameters, and layers, .* in __init__ and not"
    for call in (ml.jit(MakesLayers()), lambda x: ml.trace(MakesLayers(), x)):
        with pytest.raises(TracedValueError, match=message) as caught:
            call(X)
        assert "nn.Dense(3, 2)(x)" in "".join(caught.value.__notes__)
