"""scaled_dot_product_attention, composed and in blocks, against the formula in float64."""

import tracemalloc

import numpy as np
import pytest

import miniml as ml
from miniml import ops
from miniml.backends.cpu import attention as kernels
from miniml.errors import AttributeRefusedError, DTypeError, ShapeError, ValueRefusedError
from miniml.grad import grad, value_and_grad
from miniml.ops import attention
from miniml.testing import gradcheck
from tests.frame.native import needs_compiler

RNG = np.random.default_rng(0)
attend = ops.scaled_dot_product_attention
FORMS = {"composed": (2**40, 2**16), "blocks": (-1, 2**16), "small blocks": (-1, 7)}


@pytest.fixture(params=FORMS)
def form(request, monkeypatch):
    """Composed, or in blocks of so many scores."""
    limit, block = FORMS[request.param]
    monkeypatch.setattr(attention, "COMPOSED", limit)
    monkeypatch.setattr(kernels, "BLOCK", block)


def drawn(lead, t, s, e, f):
    return [RNG.normal(size=(*lead, *n)) for n in ((t, e), (s, e), (s, f))]


def expected(q, k, v, mask=None, causal=False, scale=None):
    scores = q @ np.swapaxes(k, -1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    seen = np.ones(scores.shape, bool)
    if mask is not None and mask.dtype == bool:
        seen = seen & mask
    elif mask is not None:
        scores = scores + mask
    seen = seen & (np.tri(*scores.shape[-2:], dtype=bool) | (not causal))
    weights = np.where(seen, np.exp(np.where(seen, scores, 0)), 0)
    total = weights.sum(-1, keepdims=True)
    return np.divide(weights, total, out=np.zeros_like(weights), where=total > 0) @ v


def masks(lead, t, s):
    yield None
    for shape in ((), (s,), (t, 1), (1, s), (*lead[:1], *(1,) * len(lead[1:]), t, s)):
        yield np.asarray(RNG.random(shape) < 0.6)
        yield np.where(RNG.random(shape) < 0.4, -np.inf, RNG.normal(size=shape))


@pytest.mark.parametrize(
    ("lead", "sizes"),
    [((2, 3), (3, 5, 4, 2)), ((), (4, 2, 1, 3)), ((2,), (1, 6, 2, 2)), ((3,), (2, 0, 2, 1)),
     ((2, 1), (0, 2, 2, 2)), ((1, 2, 2), (5, 5, 3, 1))],
)  # fmt: skip
def test_it_is_the_formula_for_every_mask(lead, sizes, form):
    q, k, v = drawn(lead, *sizes)
    for mask in masks(lead, *sizes[:2]):
        for causal in (False, True):
            got = attend(q, k, v, mask, is_causal=causal, scale=0.4).asnumpy()
            wanted = expected(q, k, v, mask, causal, 0.4)
            np.testing.assert_allclose(got, wanted, atol=1e-12, err_msg=f"{mask} {causal}")


def test_it_has_the_numbers_of_pytorch(form):
    waves = [np.sin(np.arange(12.0) * 0.7 + i).reshape(1, n, -1) for i, n in enumerate((3, 4, 4))]
    q, k, v = waves[0][..., :3], *waves[1:]

    def loss(q, bias):
        out = attend(q, k, v, bias)
        return ops.sum(out**3), out

    (_, out), (dq, dbias) = value_and_grad(loss, (0, 1), True)(
        q, np.linspace(-1, 1, 12).reshape(3, 4)
    )
    wanted = (
        [[0.5945, 0.3493, -0.0603], [-0.0431, -0.1526, -0.1903], [0.2672, 0.2780, 0.1580]],
        [[0.1846, 0.2238, 0.1578], [-0.0140, 0.0174, 0.0407], [0.0178, 0.0616, 0.0764]],
        [[0.0981, -0.1403, -0.1195, 0.1617], [0.0051, -0.0510, 0.0377, 0.0082],
         [0.0240, -0.0852, 0.0218, 0.0393]],
    )  # fmt: skip
    for got, numbers in zip((out[0], dq[0], dbias), wanted, strict=True):
        np.testing.assert_allclose(np.asarray(got), numbers, atol=6e-5)


def test_leading_axes_broadcast_and_dtypes_are_promoted(form):
    q, k, v = drawn((2, 1), 3, 4, 2, 2)
    k = np.broadcast_to(k, (2, 3, 4, 2)).astype(np.float32)
    out = attend(q, k, v[0, 0], np.zeros((3, 4), np.float16))
    assert out.dtype == ml.float64
    np.testing.assert_allclose(out.asnumpy(), expected(q, k, v[0, 0]), atol=1e-6)
    assert attend([[1, 2]], [[1, 0]], [[3, 4]]).tolist() == [[3.0, 4.0]]


@pytest.mark.parametrize("dtype", [ml.float16, ml.bfloat16])
def test_sums_of_16_bits_are_taken_in_float32(dtype, form):
    """2,000 weights of 1 / 2,000 make 1."""
    q, k, v = np.zeros((1, 8)), np.zeros((2000, 8)), np.ones((2000, 1))
    out = attend(*(x.astype(dtype) for x in (q, k, v)))
    assert out.dtype == dtype
    assert abs(float(out.asnumpy()[0, 0]) - 1) < 0.01


@pytest.mark.parametrize("cast", [True, False])
@pytest.mark.parametrize(("dtype", "eps"), [(ml.float16, 2**-10), (ml.bfloat16, 2**-7)])
def test_scores_of_16_bits_are_not_rounded(dtype, eps, cast):
    """Even if they are few, and in autocast: the result is the formula's, rounded once."""
    q, k, v = (x.astype(dtype) for x in drawn((2,), 32, 32, 64, 4))
    q, k = q * np.asarray(3, dtype), k * np.asarray(3, dtype)
    exact = expected(*(x.astype(np.float64) for x in (q, k, v)))
    if cast:
        got = attend(q, k, v)
    else:
        with ml.context(autocast=dtype):
            got = attend(*(x.astype(np.float32) for x in (q, k, v)))
    np.testing.assert_allclose(got.asnumpy().astype(np.float64), exact, eps, eps)


def test_of_no_queries_keys_get_a_gradient_of_zeros(form):
    q, k, v = drawn((2,), 0, 3, 2, 2)
    slopes = grad(lambda q, k, v: ops.sum(attend(q, k, v)), argnums=(0, 1, 2))(q, k, v)
    assert [s.shape for s in slopes] == [q.shape, k.shape, v.shape]
    assert not any(s.asnumpy().any() for s in slopes)


@pytest.mark.parametrize("shape", [(1,), (2, 1), (2, 1, 1)])
def test_masks_of_no_keys_get_a_gradient_of_zeros(shape, form):
    q, k, v = drawn((2,), 2, 0, 2, 2)
    slope = grad(lambda mask: ops.sum(attend(q, k, v, mask)))(np.ones(shape))
    np.testing.assert_array_equal(slope.asnumpy(), np.zeros(shape))


def test_gradients_of_both_orders(form):
    q, k, v = drawn((2,), 3, 4, 2, 2)
    bias, seen = RNG.normal(size=(3, 1)), np.array([[1, 1, 0, 0], [0, 0, 0, 0], [1, 0, 1, 1]], bool)
    gradcheck(lambda *xs: attend(*xs, is_causal=True), q, k, v, bias, order=2)
    gradcheck(lambda *xs: attend(*xs, seen), q, k, v, order=2)


def test_what_dropout_keeps_is_the_same_everywhere(monkeypatch):
    q, k, v = drawn((2, 3), 5, 7, 2, 2)
    bias = RNG.normal(size=(3, 1, 7))

    def loss(q, k, v, bias):
        return ops.sum(attend(q, k, v, bias, 0.4, True) ** 2)

    found = []
    for limit, block in FORMS.values():
        monkeypatch.setattr(attention, "COMPOSED", limit)
        monkeypatch.setattr(kernels, "BLOCK", block)
        for compiled in (False, True):
            f = value_and_grad(loss, (0, 1, 2, 3))
            ml.manual_seed(5)
            value, slopes = (ml.jit(f) if compiled else f)(q, k, v, bias)
            found.append([value, *slopes, ml.random_state.tolist()])
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            np.testing.assert_allclose(np.asarray(a), np.asarray(b), atol=1e-10)
    x = np.ones((1, 64), np.float32)
    kept = attend(x[:, :1], x.T, np.eye(64, dtype=np.float32), None, 0.25).asnumpy() * 64
    assert set(np.round(kept, 4).ravel().tolist()) == {0.0, np.float32(1.3333)}
    assert 36 <= np.count_nonzero(kept) <= 60
    assert not attend(x.T, x.T, x.T, None, 1.0).asnumpy().any()


@pytest.mark.parametrize(
    ("compiled", "dropout", "provider"),
    [
        (False, 0.1, "miniml"), (True, 0.0, "miniml"),
        pytest.param(True, 0.1, "cc", marks=needs_compiler),
    ],
)  # fmt: skip
def test_no_array_has_all_scores(compiled, dropout, provider):
    """8 and 16 MB of scores; q has 64 and 128 KB, a block 256 KB, and drawing for it takes 2 MB. In
    C eight parts have 128 KB of sums and 100 KB of blocks each."""

    def loss(q, k, v, bias):
        return ops.sum(attend(q, k, v, bias, dropout) ** 2)

    peaks = []
    for rows in (2048, 4096):
        q, k, v = (ops.zeros((n, 8)) for n in (rows, 1024, 1024))
        f = value_and_grad(loss, (0, 1, 2, 3))
        f = ml.jit(f) if compiled else f
        with ml.context(providers=(provider, "miniml")):
            f(q, k, v, ops.zeros(1024))  # what first calls cache is not measured
        tracemalloc.start()
        try:
            with ml.context(providers=(provider, "miniml")):
                f(q, k, v, ops.zeros(1024))
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    assert peaks[0] < 2**22
    assert peaks[1] - peaks[0] < 2**19


def test_nan_and_infinity_pass_and_what_is_not_seen_is_zero(form):
    q, k, v = drawn((), 3, 3, 2, 2)
    q[0, 0] = np.nan
    v[2, 1] = np.inf
    out = attend(q, k, v).asnumpy()
    assert np.isnan(out[0]).all()
    assert np.isfinite(out[1:, 0]).all()
    assert np.isposinf(out[1:, 1]).all()
    for nothing in (np.zeros((3, 3), bool), np.full((1, 3), -np.inf)):
        slope = value_and_grad(lambda q, seen=nothing: ops.sum(attend(q, k, k, seen)))
        out, dq = slope(np.ones((3, 2)))
        assert out.item() == 0
        assert not dq.asnumpy().any()


def test_a_mask_that_is_not_differentiated_costs_nothing(monkeypatch):
    monkeypatch.setattr(attention, "COMPOSED", 0)
    called = []
    bind = ops.ScaledDotProductAttentionMaskGrad.__call__
    monkeypatch.setattr(
        ops.ScaledDotProductAttentionMaskGrad,
        "__call__",
        lambda self, *xs: called.append(1) or bind(self, *xs),
    )
    q, k, v = drawn((), 2, 2, 2, 2)
    bias = np.zeros((2, 2))
    grad(lambda q: ops.sum(attend(q, k, v, bias)))(q)
    assert not called
    grad(lambda b: ops.sum(attend(q, k, v, b)))(bias)
    assert called


X = np.ones((2, 3), np.float32)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: attend(X[0], X, X), ShapeError, r"q of shape \(3,\).*expected \(\.\.\., T, E\)"),
        (lambda: attend(X, X[:, :2], X), ShapeError, r"k of \(2, 2\)"),
        (lambda: attend(X, X, X[:1]), ShapeError, r"v of \(1, 3\)"),
        (lambda: attend(X[None], np.ones((2, 2, 3)), np.ones((3, 2, 3))), ShapeError, "broadcast"),
        (lambda: attend(X, X, X, np.ones((3, 2), bool)), ShapeError, r"mask of shape \(3, 2\)"),
        (lambda: attend(X, X, X, np.ones((2, 2), int)), DTypeError, "mask of int64; expected bool"),
        (lambda: attend(X, X, X, dropout=1.5), ValueRefusedError, "dropout=1.5"),
        (lambda: attend(X, X, X, scale=np.nan), ValueRefusedError, "scale=nan"),
        (lambda: attend(X, X, X, is_causal=X), AttributeRefusedError, "is_causal=.*True or False"),
        (
            lambda: attend(X, X, X, scale=ml.Tensor(1.0)),
            AttributeRefusedError,
            "scale=Tensor.*; expected a number",
        ),
    ],
)
def test_what_does_not_fit_is_refused(call, error, message):
    with pytest.raises(error, match=f"(?s)scaled_dot_product_attention.*{message}"):
        call()
