"""Losses of distributions, vectors and scores, and weighted ones: numbers by hand in NumPy."""

import math

import numpy as np
import pytest
from scipy import special, stats

import miniml as ml
from miniml import nn, ops
from miniml.errors import AttributeRefusedError, ShapeError, ValueRefusedError
from miniml.grad import grad
from miniml.testing import gradcheck

rng = np.random.default_rng(0)
X, Y, Z = rng.normal(size=(3, 5, 4))
PROBS, HARD, SOFT = special.expit(X), rng.integers(0, 2, (5, 4)) * 1.0, rng.uniform(size=(5, 4))
SIGNS, COUNTS = 2 * HARD - 1, rng.integers(0, 6, (5, 4)) * 1.0
VARIANCE = rng.uniform(0.1, 2, (5, 4))
WEIGHT, POSITIVE = rng.uniform(size=4), rng.uniform(1, 3, (5, 1))


def cross(t, p, positive=1.0):
    return -positive * t * np.log(p) - (1 - t) * np.log1p(-p)


def distance(a, b, p=2):
    return np.linalg.norm(a - b + 1e-6, p, -1)


def cosine(a, b):
    return (a * b).sum(-1) / np.linalg.norm(a, axis=-1) / np.linalg.norm(b, axis=-1)


def focal(x, t, gamma, alpha=None):
    p = special.expit(x)
    q = p * t + (1 - p) * (1 - t)
    share = 1 if alpha is None else alpha * t + (1 - alpha) * (1 - t)
    return share * (1 - q) ** gamma * cross(t, p)


def triplet(x, margin, p, swap):
    far = np.minimum(distance(x, Z, p), distance(Y, Z, p)) if swap else distance(x, Z, p)
    return np.maximum(0, distance(x, Y, p) - far + margin)


def smooth(d, beta):
    return np.where(np.abs(d) < beta, d * d / (2 * beta), np.abs(d) - beta / 2)


LABEL = SIGNS[:, 0]
# name: the function of a tensor and a reduction, its terms in NumPy, the tensor
LOSSES = {
    "bce": (
        lambda x, *r: ops.bce(x, SOFT, *(r or ["mean"]), WEIGHT),
        lambda x: WEIGHT * cross(SOFT, x), PROBS,
    ),
    "bce_with_logits": (
        lambda x, *r: ops.bce_with_logits(x, SOFT, *(r or ["mean"]), WEIGHT, POSITIVE),
        lambda x: WEIGHT * cross(SOFT, special.expit(x), POSITIVE), X,
    ),
    "smooth_l1_loss": (
        lambda x, *r: ops.smooth_l1_loss(x, Y, *(r or ["mean"]), beta=0.7),
        lambda x: smooth(x - Y, 0.7), X,
    ),
    "smooth_l1_loss 0": (
        lambda x, *r: ops.smooth_l1_loss(x, Y, *(r or ["mean"]), beta=0), lambda x: abs(x - Y), X
    ),
    "focal_loss": (lambda x, *r: ops.focal_loss(x, HARD, *r), lambda x: focal(x, HARD, 2), X),
    "focal_loss soft": (
        lambda x, *r: ops.focal_loss(x, SOFT, *(r or ["mean"]), 0.5, 0.25),
        lambda x: focal(x, SOFT, 0.5, 0.25), X,
    ),
    "gaussian_nll_loss": (
        lambda x, *r: ops.gaussian_nll_loss(x, Y, VARIANCE, *(r or ["mean"]), True),
        lambda x: -stats.norm.logpdf(Y, x, np.sqrt(VARIANCE)), X,
    ),
    "gaussian_nll_loss variance": (
        lambda v, *r: ops.gaussian_nll_loss(X, Y, v, *r),
        lambda v: -stats.norm.logpdf(Y, X, np.sqrt(v)) - math.log(2 * math.pi) / 2, VARIANCE,
    ),
    "poisson_nll_loss": (
        lambda x, *r: ops.poisson_nll_loss(x, COUNTS, *r),
        lambda x: -stats.poisson.logpmf(COUNTS, np.exp(x)) - special.gammaln(COUNTS + 1), X,
    ),
    "poisson_nll_loss rate": (
        lambda x, *r: ops.poisson_nll_loss(x, COUNTS, *(r or ["mean"]), False, eps=0),
        lambda x: -stats.poisson.logpmf(COUNTS, x) - special.gammaln(COUNTS + 1), PROBS,
    ),
    "triplet_margin_loss": (
        lambda x, *r: ops.triplet_margin_loss(x, Y, Z, *r), lambda x: triplet(x, 1, 2, False), X
    ),
    "triplet_margin_loss swap": (
        lambda x, *r: ops.triplet_margin_loss(x, Y, Z, *(r or ["mean"]), 2.0, 3, swap=True),
        lambda x: triplet(x, 2, 3, True), X,
    ),
    "cosine_embedding_loss": (
        lambda x, *r: ops.cosine_embedding_loss(x, Y, LABEL, *(r or ["mean"]), 0.1),
        lambda x: np.where(LABEL > 0, 1 - cosine(x, Y), np.maximum(0, cosine(x, Y) - 0.1)), X,
    ),
    "margin_ranking_loss": (
        lambda x, *r: ops.margin_ranking_loss(x, Y, SIGNS, *(r or ["mean"]), 0.2),
        lambda x: np.maximum(0, 0.2 - SIGNS * (x - Y)), X,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LOSSES)
def test_losses(name):
    fn, terms, x = LOSSES[name]
    expected = terms(x)
    np.testing.assert_allclose(fn(x, "none").asnumpy(), expected, 1e-11, 1e-13)
    np.testing.assert_allclose(fn(x).item(), expected.mean(), 1e-11)
    np.testing.assert_allclose(fn(x, "sum").item(), expected.sum(), 1e-11)
    np.testing.assert_allclose(ml.jit(fn)(x).item(), fn(x).item(), 1e-12)
    assert gradcheck(fn, x, order=2).ok
    assert np.isnan(fn(np.full_like(x, np.nan)).item())
    with pytest.raises(ValueRefusedError, match=f"{name.split()[0]} got reduction='men'; exp"):
        fn(x, "men")
    if not name.endswith("variance"):
        with pytest.raises(ShapeError, match=f"{name.split()[0]} got .*shape"):
            fn(x[:, :2])


PAIRS = {
    "smooth_l1_loss": ops.smooth_l1_loss,
    "focal_loss": ops.focal_loss,
    "poisson_nll_loss": ops.poisson_nll_loss,
    "gaussian_nll_loss": lambda x, t, *r: ops.gaussian_nll_loss(x, t, t, *r),
    "margin_ranking_loss": lambda x, t, *r: ops.margin_ranking_loss(x, t, x, *r),
    "triplet_margin_loss": lambda x, t, *r: ops.triplet_margin_loss(x, t, x, *r),
    "cosine_embedding_loss": lambda x, t, *r: ops.cosine_embedding_loss(
        x, t, np.ones(np.shape(x)[:-1]), *r
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_dtypes_and_what_is_empty(name):
    fn = PAIRS[name]
    assert np.isnan(fn(np.zeros((0, 3)), np.zeros((0, 3))).item())
    assert fn(np.zeros((0, 3)), np.zeros((0, 3)), "sum").item() == 0
    assert fn(np.array([1]), np.array([1])).dtype == ml.float32
    for dtype in (ml.float16, ml.bfloat16, ml.float32, ml.float64):
        x, t = ml.Tensor([0.5, 2.0], dtype=dtype), ml.Tensor([0.25, 1.0], dtype=dtype)
        got = fn(x, t)
        assert got.dtype == dtype
        wide = fn(np.array([0.5, 2.0]), np.array([0.25, 1.0])).item()
        rough = {ml.float16: 2e-3, ml.bfloat16: 2e-2, ml.float32: 1e-5}.get(dtype, 1e-12)
        assert math.isclose(got.item(), wide, rel_tol=rough, abs_tol=rough)
    if name not in ("triplet_margin_loss", "cosine_embedding_loss"):
        assert fn(0.5, 1.0).shape == ()


def test_losses_of_many_examples():
    for name, (fn, terms, x) in LOSSES.items():
        if name.split()[0] in ("smooth_l1_loss", "focal_loss", "poisson_nll_loss"):
            stacked = np.stack([x, x / 2])
            got = ml.vmap(lambda x, fn=fn: fn(x, "sum"))(stacked).asnumpy()
            np.testing.assert_allclose(got, [terms(x).sum(), terms(x / 2).sum()], 1e-11)


def test_full_terms_of_poisson_are_stirling_s():
    full = ops.poisson_nll_loss(X, COUNTS, "none", full=True).asnumpy()
    plain = ops.poisson_nll_loss(X, COUNTS, "none").asnumpy()
    many = np.maximum(COUNTS, 2)
    stirling = many * np.log(many) - many + np.log(2 * np.pi * many) / 2
    np.testing.assert_allclose(full - plain, np.where(COUNTS > 1, stirling, 0), 1e-10, 1e-12)
    slope = grad(lambda t: ops.poisson_nll_loss(X, t, "sum", full=True))(np.zeros_like(X))
    np.testing.assert_allclose(slope.asnumpy(), -X, 1e-12)


def test_a_variance_that_is_too_small_grows_and_one_below_0_is_nan():
    x = np.array([1.0])
    loss = lambda v: ops.gaussian_nll_loss(x, np.array([0.0]), v, eps=0.5)  # noqa: E731
    assert loss(np.array([1e-9])).item() == (math.log(0.5) + 1 / 0.5) / 2
    assert grad(loss)(np.array([1e-9])).item() == (1 / 0.5 - 1 / 0.5**2) / 2
    assert np.isnan(loss(np.array([-1.0])).item())
    one = ops.gaussian_nll_loss(X, Y, VARIANCE[:, :1])
    assert one.item() == ops.gaussian_nll_loss(X, Y, VARIANCE[:, :1].repeat(4, 1)).item()


def test_where_losses_bend_or_end():
    same, far = np.ones((1, 3)), np.array([[1e4, -1e4, 0.0]])
    assert np.isfinite(grad(ops.triplet_margin_loss)(same, same, same).asnumpy()).all()
    assert ops.cosine_embedding_loss(0 * same, same, [1]).item() == 1
    assert np.isnan(ops.cosine_embedding_loss(same, same, [0]).item())
    assert grad(ops.margin_ranking_loss)(1.0, 1.0, 1).item() == 0
    assert grad(ops.smooth_l1_loss)(np.array(1.0), np.array(0.0)).item() == 1
    assert ops.focal_loss(far, [[0.0, 1.0, 1.0]], "none").tolist()[0][:2] == [1e4, 1e4]
    assert ops.focal_loss(far, [[1.0, 0.0, 1.0]], "none").tolist()[0][:2] == [0, 0]
    for gamma in (0, 0.5, 1, 2):
        slope = grad(lambda x, g=gamma: ops.focal_loss(x, [[1.0, 0.0, 1.0]], "sum", g))(far)
        assert slope.asnumpy()[0, :2].tolist() == [0, 0]
    assert ops.poisson_nll_loss([0.0], [0.0], log_input=False).item() == 0
    weights = np.array([0.0, 1.0])
    assert ops.bce_with_logits([5.0, 0.0], [0.0, 1.0], "sum", weights).item() == np.float32(
        np.log(2)
    )


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: ops.bce(PROBS, HARD, weight=np.ones(3)), ShapeError, r"a weight of shape \(3,\)"),
        (lambda: ops.bce_with_logits(X, HARD, pos_weight=X[:2]), ShapeError, "a pos_weight of s"),
        (lambda: ops.gaussian_nll_loss(X, Y, X[0, :3]), ShapeError, r"a variance of shape \(3,\)"),
        (lambda: ops.triplet_margin_loss(1.0, 1.0, 1.0), ShapeError, r"\(\); expected vectors"),
        (lambda: ops.triplet_margin_loss(X, Y, Z[0]), ShapeError, r"shapes .* and \(4,\); a loss"),
        (lambda: ops.triplet_margin_loss(X, Y, Z, margin=0), ValueRefusedError, "margin=0; exp"),
        (lambda: ops.triplet_margin_loss(X, Y, Z, p=0.5), ValueRefusedError, "p=0.5; expected"),
        (lambda: ops.cosine_embedding_loss(X, Y, SIGNS), ShapeError, "a target of 1 or -1"),
        (lambda: ops.focal_loss(X, HARD, alpha=2), ValueRefusedError, "alpha=2; expected"),
        (lambda: ops.poisson_nll_loss(X, Y, log_input=1), AttributeRefusedError, "log_input=1"),
        (lambda: nn.BCELoss(weight=[np.inf]), ValueRefusedError, "BCELoss got weight=.*finite"),
        (lambda: nn.BCEWithLogitsLoss("sum", pos_weight=[np.nan]), ValueRefusedError, "pos_weight"),
        (lambda: nn.FocalLoss(gamma=-1), ValueRefusedError, "FocalLoss got gamma=-1; expected"),
        (lambda: nn.TripletMarginLoss(swap=1), AttributeRefusedError, "swap=1; expected True or"),
    ],
)  # fmt: skip
def test_refusals(call, error, says):
    with pytest.raises(error, match=says):
        call()


LAYERS = [
    (nn.SmoothL1Loss(beta=0.5), (X, Y), ops.smooth_l1_loss(X, Y, beta=0.5), "beta=0.5"),
    (nn.FocalLoss(gamma=1.0, alpha=0.25), (X, HARD), ops.focal_loss(X, HARD, "mean", 1, 0.25),
     "gamma=1.0, alpha=0.25"),
    (nn.GaussianNLLLoss("sum"), (X, Y, VARIANCE), ops.gaussian_nll_loss(X, Y, VARIANCE, "sum"),
     "reduction='sum'"),
    (nn.PoissonNLLLoss(full=True), (X, COUNTS), ops.poisson_nll_loss(X, COUNTS, full=True),
     "full=True"),
    (nn.TripletMarginLoss(swap=True), (X, Y, Z), ops.triplet_margin_loss(X, Y, Z, swap=True),
     "swap=True"),
    (nn.CosineEmbeddingLoss(margin=0.5), (X, Y, LABEL),
     ops.cosine_embedding_loss(X, Y, LABEL, margin=0.5), "margin=0.5"),
    (nn.MarginRankingLoss(), (X, Y, SIGNS), ops.margin_ranking_loss(X, Y, SIGNS), ""),
    (nn.BCELoss(weight=[0.5, 1, 2, 1]), (PROBS, HARD),
     ops.bce(PROBS, HARD, "mean", np.array([0.5, 1, 2, 1])), "weight=[0.5, 1.0, 2.0, 1.0]"),
    (nn.BCEWithLogitsLoss(pos_weight=[2.0]), (X, HARD),
     ops.bce_with_logits(X, HARD, "mean", None, np.array([2.0])), "pos_weight=[2.0]"),
    (nn.BCEWithLogitsLoss("none"), (X, HARD), ops.bce_with_logits(X, HARD, "none"),
     "reduction='none'"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("layer", "given", "expected", "shown"), LAYERS, ids=lambda v: type(v).__name__
)
def test_layers_call_their_functions(layer, given, expected, shown):
    got = layer(*given)
    np.testing.assert_array_equal(got.asnumpy(), expected.asnumpy())
    assert repr(layer) == f"{type(layer).__name__}({shown})"
    assert not layer.trainable_params()
