"""Einstein sums in compiled programs: transposes, sums and products, against NumPy."""

from functools import partial

import numpy as np
import pytest

import miniml as ml
from miniml import ops
from miniml.grad import value_and_grad
from tests.frame.native import needs_compiler

from .programs import in_c

pytestmark = needs_compiler
EXTENTS = {"b": 3, "c": 2, "i": 5, "j": 4, "k": 6, "l": 7}
SEPARATED = [
    "ij->ji", "ij->i", "ij->", "ijk->k", "bij->bji", "i,j->ij", "bi,bj->bij", "ij,ij->i",
    "ij,ij->", "bij,bj->bi", "bj,bij->bi", "ij,jk->ik", "ij,jk->ki", "ji,kj->ik", "bij,bjk->bik",
    "bij,bjk->ibk", "ibj,jkb->bki", "bcij,bcjk->bcik", "bcij,cbkj->bick", "ijk,jkl->il",
    "ijk,kjl->li", "ij,k->kij", "ij,j->i",
    "i,i->", "i,i->i", "bij,ij->b", "ijk,l->", "ij,jk->", "ij,->ji",
    "ij,jk,k->i", "ij,i,j->ij", "ij,jk,kl->il", "bi,icj,bj->bc", "i,j,k->kij", ",i,ij->j",
    "lk,bij,jl,bk->ib",
]  # fmt: skip
WHOLE = ["ii->i", "ij->ij", "iij,j->i"]


def operands(equation, dtype):
    rng = np.random.default_rng(6)
    terms = equation.split("->")[0].split(",")
    return [rng.standard_normal([EXTENTS[c] for c in term]).astype(dtype) for term in terms]


def test_einstein_sums_and_their_gradients():
    equations = [*SEPARATED, *WHOLE]
    calls = [
        (value_and_grad(partial(loss, e), tuple(range(len(xs))), True), xs)
        for e in equations
        for xs in [operands(e, np.float64)]
    ]
    for equation, (fn, xs), ((_, out), slopes) in zip(equations, calls, in_c(calls), strict=True):
        with ml.context(providers=("cc",)):
            whole = "Einsum" in str(ml.explain(partial(ops.einsum, equation), *xs))
        assert whole == (equation in WHOLE), equation
        right = np.einsum(equation, *xs)
        np.testing.assert_allclose(out, right, 1e-12, 1e-12, err_msg=equation)
        for got, right in zip(slopes, fn(*map(ml.Tensor, xs))[1], strict=True):
            np.testing.assert_allclose(got, right, 1e-11, 1e-11, err_msg=equation)


def loss(equation, *xs):
    """Of its gradients only einsum's own products and sums need C."""
    out = ops.einsum(equation, *xs)
    return ops.sum(ops.square(out)), out


@pytest.mark.parametrize("dtype", [ml.float16, ml.bfloat16, ml.int32])
def test_other_dtypes(dtype):
    x, y = (ml.Tensor(np.arange(n, dtype=np.float32).reshape(s), dtype=dtype)
            for n, s in ((12, (3, 4)), (20, (4, 5))))  # fmt: skip

    def fn(x, y):
        return ops.einsum("ij,jk->ki", x, y), ops.einsum("ij->j", x)

    with ml.context(providers=("cc", "miniml")):
        got = ml.jit(fn)(x, y)
    for one, other in zip(got, fn(x, y), strict=True):
        assert one.dtype == other.dtype == dtype
        np.testing.assert_array_equal(one.asnumpy(), other.asnumpy())
