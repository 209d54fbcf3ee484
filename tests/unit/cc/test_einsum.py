"""Einstein sums in compiled programs: transposes, sums and products, against NumPy."""

import numpy as np
import pytest

import miniml as ml
from miniml import ops
from miniml.grad import grad
from tests.frame.native import needs_compiler

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


@pytest.mark.parametrize("equation", [*SEPARATED, *WHOLE])
def test_einstein_sums_and_their_gradients(equation):
    xs = operands(equation, np.float64)

    def fn(*xs):
        return ops.einsum(equation, *xs)

    def loss(*xs):
        return ops.sum(ops.sin(fn(*xs)))

    at = tuple(range(len(xs)))
    given = [*map(ml.Tensor, xs)]
    with ml.context(providers=("cc", "miniml")):
        out = ml.jit(fn)(*xs)
        slopes = ml.jit(grad(loss, at))(*xs)
    with ml.context(providers=("cc",)):
        whole = "Einsum" in str(ml.explain(fn, *xs))
    np.testing.assert_allclose(out, np.einsum(equation, *xs), rtol=1e-12, atol=1e-12)
    for got, expected in zip(slopes, grad(loss, at)(*given), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-11, atol=1e-11)
    assert whole == (equation in WHOLE)


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
