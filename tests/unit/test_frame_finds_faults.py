"""The frame itself: a sound primitive passes every check, and each planted fault fails one."""

import numpy as np
import pytest

from miniml import kernel, ops
from miniml.backends import registry
from miniml.bprop import bprop_getters
from miniml.dtype import float32, float64
from miniml.errors import DeclarationError, ShapeError
from miniml.primitive import Primitive, primitives
from miniml.testing import OpInfo, Refusal, Sample
from tests import frame
from tests.frame import completeness
from tests.frame.calls import rng_of
from tests.opinfo.draws import SHAPES, numbers


@pytest.fixture(autouse=True)
def _forget_planted():
    """Throwaway primitives leave no trace in the tables."""
    yield
    for name in [n for n in primitives if n.startswith("Planted")]:
        bprop_getters.unregister(primitives.pop(name))
        registry.specs.pop(name, None)
        registry.table.pop((name, "cpu"), None)


def samples(rng, dtype):
    for shape in SHAPES:
        yield Sample((numbers(rng, shape, dtype), numbers(rng, shape, dtype)))


def product(x, y, *, out):
    np.multiply(x, y, out=out)


def rule(self):
    return lambda x, y, out, dout: (dout * y, dout * x)


def same_shape(self, x, y):
    return x


def same_dtype(self, x, y):
    return x


def plant(
    fn=product, bprop=rule, infer_shape=same_shape, infer_dtype=same_dtype, inplace=(), **row
):
    """The row of a throwaway primitive, x * y unless something is planted in it."""
    body = {"infer_shape": infer_shape, "infer_dtype": infer_dtype, "__doc__": "x * y."}
    primitive = type("Planted", (Primitive,), body)
    letters = ("ee->e", "EE->E", "ff->f", "dd->d")
    kernel("Planted", "cpu", *letters, inplace=inplace)(fn)
    bprop_getters.register(primitive)(bprop)
    return OpInfo(primitive, samples, **{"reference": np.multiply, **row})


def run(check, row, dtype=float64):
    check(row, dtype, rng_of(check.__name__))


def test_a_sound_primitive_passes_every_check():
    for row, dtype, check in frame.cases([plant(inplace=(0, 1))]):
        check(row, dtype, rng_of("sound"))


def swapped(self):
    return lambda x, y, out, dout: (dout * x, dout * y)


def halved(self):
    return lambda x, y, out, dout: (dout * y, 0.5 * dout * x)


def negated(self):
    return lambda x, y, out, dout: (dout * y, -dout * x)


def missing(self):
    return lambda x, y, out, dout: (dout * y, None)


def cut(self):
    return lambda x, y, out, dout: (dout * ops.stop_gradient(y), dout * x)


@pytest.mark.parametrize("bprop", [swapped, halved, negated, missing])
def test_a_wrong_gradient_is_found(bprop):
    with pytest.raises(AssertionError, match=r"the derivative by argument . is .*differences give"):
        run(frame.check_gradient, plant(bprop=bprop))


def test_a_gradient_wrong_only_in_order_two_is_found():
    row = plant(bprop=cut)
    run(frame.check_gradient, row)
    with pytest.raises(AssertionError, match="order 2: the derivative"):
        run(frame.check_second_gradient, row)


def test_a_gradient_wrong_only_in_narrow_dtypes_is_found():
    def narrow(self):
        def bprop(x, y, out, dout):
            factor = 1.0 if x.dtype == float64 else 1.01
            return dout * y * factor, dout * x

        return bprop

    row = plant(bprop=narrow)
    run(frame.check_gradient, row)
    with pytest.raises(AssertionError, match="gradient 0 differs"):
        run(frame.check_narrow_gradient, row, float32)


def test_a_gradient_of_another_dtype_is_found():
    def widened(self):
        return lambda x, y, out, dout: (ops.cast(dout * y, "float64"), dout * x)

    with pytest.raises(Exception, match="cast the gradient to float32"):
        run(frame.check_narrow_gradient, plant(bprop=widened), float32)


def test_inference_off_by_one_is_found():
    def longer(self, x, y):
        return (*x[:-1], x[-1] + 1) if x else x

    def partial(x, y, *, out):
        out[...] = 0
        out.reshape(-1)[: x.size] = (x * y).reshape(-1)

    with pytest.raises(AssertionError, match=r"the rules say .* the reference has shapes"):
        run(frame.check_inference, plant(fn=partial, infer_shape=longer))


def test_a_rule_that_gives_another_dtype_than_the_kernel_is_found():
    def always_double(self, x, y):
        return float64

    with pytest.raises(DeclarationError, match="make the rule and the signature agree"):
        run(frame.check_inference, plant(infer_dtype=always_double), float32)


def test_a_wrong_kernel_of_another_provider_is_found():
    row = plant()

    @kernel("Planted", "cpu", "ff->f", provider="other")
    def rough(x, y, *, out):
        np.multiply(x, y, out=out)
        out *= np.float32(1 + 1e-4)

    with pytest.raises(AssertionError, match=r"output 0 of ff->f \(other\) differs"):
        run(frame.check_kernels, row, float32)


def test_a_kernel_that_rounds_twice_too_often_is_found():
    def rough(x, y, *, out):
        out[...] = (x.astype(np.float16) * y.astype(np.float16)).astype(out.dtype)

    with pytest.raises(AssertionError, match="the call differs"):
        run(frame.check_kernels, plant(fn=rough), float32)


def test_a_kernel_that_ignores_strides_is_found():
    def in_memory_order(x, y, *, out):
        out.reshape(-1)[...] = x.ravel("K") * y.ravel("K")

    with pytest.raises(AssertionError, match="on Fortran-ordered inputs differs"):
        run(frame.check_layouts, plant(fn=in_memory_order))


def test_an_element_left_unwritten_is_found():
    def all_but_one(x, y, *, out):
        np.multiply(x.reshape(-1)[1:], y.reshape(-1)[1:], out=out.reshape(-1)[1:])

    with pytest.raises(AssertionError, match="does not fill output 0"):
        run(frame.check_memory, plant(fn=all_but_one))


def test_a_kernel_that_adds_to_its_output_is_found():
    def accumulate(x, y, *, out):
        np.add(out, x * y, out=out)

    with pytest.raises(AssertionError, match="does not fill output 0, or reads it"):
        run(frame.check_memory, plant(fn=accumulate))


def test_a_kernel_that_writes_into_its_input_is_found():
    def careless(x, y, *, out):
        x *= y
        out[...] = x

    with pytest.raises(AssertionError, match="wrote into input 0"):
        run(frame.check_memory, plant(fn=careless))


def test_a_false_inplace_is_found():
    def reads_late(x, y, *, out):
        out[...] = 1
        np.multiply(out, x, out=out)
        np.multiply(out, y, out=out)

    with pytest.raises(AssertionError, match="says inplace=0"):
        run(frame.check_memory, plant(fn=reads_late, inplace=(0,)))


@pytest.mark.parametrize("swallow", [np.nan_to_num, lambda a: np.clip(a, -10, 10)])
def test_a_swallowed_special_value_is_found(swallow):
    def tame(x, y, *, out):
        out[...] = swallow(x * y)

    with pytest.raises(AssertionError, match="that output 0 lost"):
        run(frame.check_special, plant(fn=tame))


def test_a_swallowed_nan_is_found_without_a_reference():
    def tame(x, y, *, out):
        out[...] = np.nan_to_num(x * y)

    with pytest.raises(AssertionError, match="does not appear"):
        run(frame.check_special, plant(fn=tame, reference=None))


def test_a_call_that_compiles_to_something_else_is_found():
    calls = []

    def drifting(x, y, *, out):
        calls.append(1)
        np.multiply(x, y * len(calls), out=out)

    with pytest.raises(AssertionError, match="compiled: output 0 differs"):
        run(frame.check_graph, plant(fn=drifting))


@pytest.mark.parametrize(
    ("text", "match", "complaint"),
    [
        (None, "shapes", "accepts"),
        ("Planted got two shapes", "ranks", "which lacks"),
        ("two shapes came", "shapes", "does not begin with Planted"),
    ],
)
def test_a_poor_refusal_is_found(text, match, complaint):
    def refusing(self, x, y):
        if text and x != y:
            raise ShapeError(text)
        return x

    def lenient(x, y, *, out):
        out[...] = 0

    refused = (Refusal((np.ones(3), np.ones(2)), match),)
    row = plant(fn=lenient, infer_shape=refusing, refused=refused)
    with pytest.raises(AssertionError, match=complaint):
        run(frame.check_refusals, row)


def whole(**changes):
    """A primitive as the library would define it, but for `changes`."""
    body = {
        "infer_shape": same_shape, "infer_dtype": same_dtype, "__doc__": "x * y.",
        "__module__": __name__, **changes,
    }  # fmt: skip
    return type("PlantedWhole", (Primitive,), body)


def test_completeness_misses_nothing():
    bare = whole()
    assert "PlantedWhole has 0 rows in tests/opinfo, not one" in completeness.lacks(bare, ())
    row = OpInfo(bare, samples, dtypes="d")
    found = completeness.lacks(bare, (row, row))
    assert any("has 2 rows" in f for f in found)
    assert any("neither a bprop nor differentiable = False" in f for f in found)
    assert any("has no CPU kernel for bool" in f for f in found)


def test_completeness_wants_words():
    mute = whole(__doc__="The planted whole.")
    assert any("only restates its name" in f for f in completeness.lacks(mute, ()))


def test_completeness_refuses_a_bprop_that_is_never_used(monkeypatch):
    constant = whole(differentiable=False)
    monkeypatch.setitem(bprop_getters._by_class, constant, rule)  # as a base class may have one
    assert any("keeps from being used" in f for f in completeness.lacks(constant, ()))
