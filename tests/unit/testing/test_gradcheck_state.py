"""Functions that keep something from call to call: called by that name, wherever they keep it."""

import numpy as np
import pytest

from miniml import Primitive, kernel
from miniml.grad import bprop_getters
from miniml.testing import gradcheck, gradcheck_vjp

SHAPES = (3,), (1,), (), (3, 4)


class StatefulRelu(Primitive):
    """max(x, 0), whose mask is that of the last call."""

    def infer_shape(self, x):
        return x

    def infer_dtype(self, x):
        return x


class StatefulReluBack(StatefulRelu):
    """dout where the mask is set."""


MASKS = {}


@kernel("StatefulRelu", "cpu", "f->f", "d->d")
def stateful_relu_cpu(x, *, out):
    MASKS[x.shape] = x > 0
    np.maximum(x, 0, out=out)


@kernel("StatefulReluBack", "cpu", "f->f", "d->d")
def stateful_relu_back_cpu(dout, *, out):
    np.multiply(dout, MASKS[dout.shape], out=out)


@bprop_getters.register(StatefulRelu)
def get_bprop_stateful_relu(self):
    return lambda x, out, dout: (StatefulReluBack()(dout),)


def saved_on_the_function():
    kept = {}

    def relu(x):
        kept["mask"] = x > 0
        return np.maximum(x, 0)

    return relu, lambda x, dout: dout * kept["mask"]


def cached_by_id():
    cache = {}

    def f(x):
        return cache.setdefault(id(x), np.sin(x)).copy()

    return f, lambda x, dout: dout * np.cos(x)


def off_at_times(every):
    calls = [0]

    def f(x):
        calls[0] += 1
        return np.sin(x) * (1.001 if calls[0] % every == 0 else 1.0)

    return f, lambda x, dout: dout * np.cos(x)


def drawn(shape, seed):
    return np.random.default_rng(seed).normal(size=shape)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_mask_of_the_last_call_is_found(shape):
    for seed in range(3):
        x = drawn(shape, seed)
        for report in (
            gradcheck(StatefulRelu(), x, order=1, raise_error=False, seed=seed),
            gradcheck_vjp(*saved_on_the_function(), x, raise_error=False, seed=seed),
        ):
            assert report.wrong, f"seed {seed}:\n{report}"
            assert "depends on later calls" in report.wrong[0].diagnosis


@pytest.mark.parametrize("every", [3, 7, 11])
@pytest.mark.parametrize("shape", SHAPES[:3], ids=str)
def test_a_function_that_is_off_at_times_is_not_repeatable(every, shape):
    for seed in range(2):
        report = gradcheck_vjp(*off_at_times(every), drawn(shape, seed), raise_error=False)
        assert not report.ok, f"seed {seed}:\n{report}"
        assert "earlier calls" in str(report) or "not repeatable" in str(report)


@pytest.mark.parametrize("gone", [0, 1, 7, 50])
def test_a_cache_by_the_place_in_memory_is_called_state(gone):
    """Whatever places arrays that are gone have left."""
    for seed in range(3):
        left = [np.empty(9) for _ in range(gone)]
        del left
        report = gradcheck_vjp(*cached_by_id(), drawn((3, 3), seed), raise_error=False)
        assert not report.ok
        assert "earlier calls" in str(report) or "not repeatable" in str(report)


def test_a_cotangent_in_fortran_order_is_given():
    def in_memory_order(x, dout):
        whole = dout.ravel("K") if dout.flags.f_contiguous else dout
        return (2 * whole.reshape(dout.shape),)

    report = gradcheck_vjp(lambda x: 2 * x, in_memory_order, drawn((3, 4), 0), raise_error=False)
    assert "Fortran-ordered cotangent" in str(report.wrong[0].diagnosis)


@pytest.fixture(params=[np.random.MT19937, np.random.PCG64])
def legacy(request):
    """NumPy's global functions, over its own generator and another one."""
    former = np.random.get_bit_generator()
    np.random.set_bit_generator(request.param(3))
    yield np.random.mtrand
    np.random.set_bit_generator(former)


@pytest.mark.parametrize("waits", [False, True], ids=["", "one normal number waits"])
@pytest.mark.parametrize("draws", ["rand()", "randn()", "randn(3).sum()", "rand(900).sum()"])
def test_draws_of_numpys_global_functions_are_repeated_and_given_back(legacy, draws, waits):
    def factor():
        return 1 + abs(eval(draws, vars(legacy)))

    for _ in range(2):
        if waits:
            legacy.randn()
        before = repr(legacy.get_state(legacy=False))
        assert gradcheck_vjp(lambda x: x * factor(), lambda x, d: (d * factor(),), np.ones(2)).ok
        assert repr(legacy.get_state(legacy=False)) == before


def test_a_normal_number_that_waits_where_none_did_is_given_back(legacy):
    """Two numbers or one of the same seed leave the generator's words alike."""
    for count in (2, 1):
        np.random.set_bit_generator(type(np.random.get_bit_generator())(3))
        legacy.randn(count)
        before = repr(legacy.get_state(legacy=False))
        report = gradcheck_vjp(
            lambda x: x * legacy.rand(), lambda x, d: (d * legacy.rand(),), np.ones(2)
        )
        assert report.ok
        assert repr(legacy.get_state(legacy=False)) == before
