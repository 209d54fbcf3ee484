"""Calls op by op of many elements are in C where NumPy would compute one element after another."""

import numpy as np
import pytest

import miniml as ml
from miniml import ops
from miniml.backends.cc import units
from miniml.backends.cc.native import NativeKernel
from tests.frame.native import needs_compiler

pytestmark = needs_compiler
MANY = 1 << 18  # elements from which on they are in C
RNG = np.random.default_rng(7)
NORMAL = RNG.standard_normal((3, MANY // 3 + 11)).astype("f")
OTHER = RNG.standard_normal(NORMAL.shape).astype("f")

# Each with the largest difference from NumPy, in units of the last digit of float32.
ELEMENTWISE = {
    "gelu": (ops.gelu, 8), "erf": (ops.erf, 4), "erfc": (ops.erfc, 4), "lgamma": (ops.lgamma, 64),
    "erfinv": (lambda x: ops.erfinv(ops.tanh(x)), 4), "sign": (ops.sign, 0),
    "mod": (lambda x: ops.mod(x, 0.7), 0), "floor_div": (lambda x: ops.floor_div(x, 0.7), 0),
    "hypot": (lambda x: ops.hypot(x, OTHER[:, :1]), 4), "half": (lambda x: x.astype(ml.float16), 0),
}  # fmt: skip
ROWS = {
    "cummax": lambda x: ops.cummax(x, -1)[0],
    "cumprod": lambda x: ops.cumprod(x, 0),
    "sort": lambda x: ops.sort(x, 0),
    "argsort": lambda x: ops.argsort(x, -1, descending=True),
    "topk": lambda x: ops.topk(x, 5)[1],
}


def by_numpy(fn, *args):
    with ml.context(providers=("miniml",)):
        return fn(*args).asnumpy()


@pytest.fixture(scope="module", autouse=True)
def compiled():
    """The kernels of all cases, which further sizes find there."""
    with ml.context(providers=()):
        for fn in (*(fn for fn, _ in ELEMENTWISE.values()), *ROWS.values()):
            fn(ml.Tensor(NORMAL))


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_they_agree_with_kernels_of_numpy(name):
    (fn, units_off), x = ELEMENTWISE[name], ml.Tensor(NORMAL)
    with ml.context(providers=()):
        found = fn(x).asnumpy()
    expected = by_numpy(fn, x)
    if units_off == 0:
        np.testing.assert_array_equal(found, expected)
    else:
        bound = units_off * np.finfo("f").eps
        np.testing.assert_allclose(found, expected, rtol=bound, atol=bound * (name == "lgamma"))


@pytest.mark.parametrize("name", [*ELEMENTWISE, *ROWS])
def test_many_elements_run_in_c_and_fewer_do_not(name, monkeypatch):
    """Else these tests would compare NumPy with itself."""
    launched, launch = [], NativeKernel.launch
    monkeypatch.setattr(
        NativeKernel, "launch", lambda self, *args: launched.append(self) or launch(self, *args)
    )
    fn = ELEMENTWISE[name][0] if name in ELEMENTWISE else ROWS[name]
    with ml.context(providers=()):
        fn(ml.Tensor(NORMAL[:, : MANY // 4]))
        assert not launched
        fn(ml.Tensor(NORMAL))
    assert launched


@pytest.mark.parametrize("name", ROWS)
def test_rows_have_the_bits_of_kernels_of_numpy(name):
    x = ml.Tensor(NORMAL)
    with ml.context(providers=()):
        found = ROWS[name](x).asnumpy()
    np.testing.assert_array_equal(found, by_numpy(ROWS[name], x))


@pytest.mark.parametrize("name", [*ELEMENTWISE, "cumprod"])
def test_further_extents_compile_nothing(name):
    fn = ELEMENTWISE[name][0] if name in ELEMENTWISE else ROWS[name]
    x = ml.Tensor(np.concatenate([NORMAL, NORMAL[:, :1234]], 1))
    with ml.context(providers=()), units.cached_only():
        found = fn(x).asnumpy()
        np.testing.assert_array_equal(found[:, : NORMAL.shape[1]], fn(ml.Tensor(NORMAL)).asnumpy())


def test_views_and_gradients_of_them():
    x = ml.Tensor(NORMAL)

    def loss(x):
        return ops.sum(ops.gelu(x.T))

    with ml.context(providers=()):
        found = ml.grad.grad(loss)(x).asnumpy()
    np.testing.assert_allclose(found, by_numpy(ml.grad.grad(loss), x), rtol=1e-5, atol=1e-6)


def test_few_elements_and_other_providers_are_computed_by_numpy(monkeypatch):
    monkeypatch.setattr(units, "load_with_services", lambda sources: pytest.fail("compiles"))
    few, many = ml.Tensor(NORMAL[:, :999] + 1), ml.Tensor(NORMAL + 1)
    with ml.context(providers=()):
        part = ops.erf(few).asnumpy()
    np.testing.assert_array_equal(part, by_numpy(ops.erf, many)[:, :999])


def test_the_number_of_threads_is_that_of_the_settings():
    seen = []
    for threads in (0, 1, 2):
        with ml.context(providers=(), threads=threads):
            seen.append(ops.gelu(ml.Tensor(NORMAL)).asnumpy())
    np.testing.assert_array_equal(seen[0], seen[1])
    np.testing.assert_array_equal(seen[0], seen[2])
