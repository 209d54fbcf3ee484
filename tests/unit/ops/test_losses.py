"""Losses as functions: SciPy's and NumPy's numbers, ends, reductions, derivatives, refusals."""

import numpy as np
import pytest
from scipy import special

import miniml as ml
from miniml import nn, ops, optim
from miniml.errors import DTypeError, MinimlError, OutOfRangeError, ShapeError, ValueRefusedError
from miniml.grad import grad
from miniml.testing import gradcheck

X = np.array([[-2.5, -0.4, 0.3], [0.7, 1.2, 4.0]])
PROBS = special.expit(X)
SIGNS = np.array([[1.0, -1, 1], [-1, 1, 1]])
SHARES = np.array([[0.2, 0.0, 0.8], [1.0, 0.5, 0.3]])
LABELS = np.array([2, 0])


def cross(t, p):
    return -special.xlogy(t, p) - special.xlog1py(1 - t, -p)


# name: the function of a prediction and a reduction, its terms in NumPy, a prediction
LOSSES = {
    "bce": (lambda x, *r: ops.bce(x, SHARES, *r), lambda x: cross(SHARES, x), PROBS),
    "bce_with_logits": (
        lambda x, *r: ops.bce_with_logits(x, SHARES, *r),
        lambda x: cross(SHARES, special.expit(x)),
        X,
    ),
    "l1_loss": (lambda x, *r: ops.l1_loss(x, SHARES, *r), lambda x: np.abs(x - SHARES), X),
    "huber_loss": (
        lambda x, *r: ops.huber_loss(x, SHARES, *r), lambda x: special.huber(1, x - SHARES), X
    ),
    "huber_loss 2": (
        lambda x, *r: ops.huber_loss(x, SHARES, *(r or ["mean"]), 2),
        lambda x: special.huber(2, x - SHARES),
        X,
    ),
    "kl_div": (
        lambda x, *r: ops.kl_div(x, SHARES, *r),
        lambda x: special.rel_entr(SHARES, np.exp(x)),
        np.log(PROBS),
    ),
    "hinge": (
        lambda x, *r: ops.hinge(x, SIGNS, *r), lambda x: np.maximum(0, 1 - SIGNS * x), X
    ),
    "nll_loss": (
        lambda x, *r: ops.nll_loss(x, LABELS, *r), lambda x: -x[np.arange(2), LABELS], X
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LOSSES)
def test_losses(name):
    fn, terms, x = LOSSES[name]
    expected = terms(x)
    np.testing.assert_allclose(fn(x, "none").asnumpy(), expected, 1e-12)
    np.testing.assert_allclose(fn(x).item(), expected.mean(), 1e-12)
    np.testing.assert_allclose(fn(x, "sum").item(), expected.sum(), 1e-12)
    np.testing.assert_allclose(ml.jit(fn)(x).item(), fn(x).item(), 1e-13)
    assert gradcheck(fn, x, order=2).ok
    assert np.isnan(fn(np.full_like(x, np.nan)).item())
    with pytest.raises(ValueRefusedError, match=f"{name.split()[0]} got reduction='men'; exp"):
        fn(x, "men")
    with pytest.raises(ShapeError, match=f"{name.split()[0]} got .*shape"):
        fn(x[:, :2] if name != "nll_loss" else x[:1])


@pytest.mark.parametrize(
    "fn", [ops.bce, ops.bce_with_logits, ops.l1_loss, ops.huber_loss, ops.kl_div, ops.hinge]
)
def test_dtypes_gradient_of_the_target_and_what_is_empty(fn):
    assert np.isnan(fn(np.zeros((0, 3)), np.zeros((0, 3))).item())
    assert fn(np.zeros((0, 3)), np.zeros((0, 3)), "sum").item() == 0
    assert fn(0.5, 1.0).shape == ()
    assert fn(np.array([1]), np.array([1])).dtype == ml.float32
    assert fn(ml.Tensor([0.5], dtype=ml.float16), ml.Tensor([0.25], dtype=ml.float16)).dtype == "e"
    assert fn(np.array(0.5), 0.3).dtype == fn(np.array([0.5]), np.array([1])).dtype == ml.float64
    assert gradcheck(fn, np.array([0.3, 0.6]), np.array([0.5, 0.2]), order=2).ok


def test_ends():
    inf = np.inf
    assert ops.bce([0.0, 1.0, 0.0, 1.0], [0.0, 1.0, 1.0, 0.0], "none").tolist() == [0, 0, inf, inf]
    far = np.array([800.0, -800.0, 50.0])
    got = ops.bce_with_logits(far, np.array([0.0, 0, 1]), "none").asnumpy()
    np.testing.assert_allclose(got, [800, 0, np.exp(-50)], 1e-14)
    assert ops.kl_div([-inf, -inf], [0.0, 0.5], "none").tolist() == [0, inf]
    assert ops.huber_loss([inf, -inf], [0.0, 0.0], "none").tolist() == [inf, inf]


@pytest.mark.parametrize(
    ("fn", "x", "t", "expected"),
    [
        (ops.l1_loss, 1.0, 1.0, 0),
        (ops.huber_loss, 1.0, 0.0, 1),
        (ops.huber_loss, 0.0, 0.0, 0),
        (ops.hinge, 1.0, 1.0, 0),
        (ops.bce_with_logits, 0.0, 1.0, -0.5),
        (ops.bce_with_logits, 800.0, 0.0, 1),
        (ops.kl_div, -np.inf, 0.0, 0),
    ],
)
def test_gradients_where_losses_bend_or_end(fn, x, t, expected):
    assert grad(fn)(np.array(x), np.array(t)).item() == expected


def test_the_second_derivative_of_huber_is_1_inside():
    assert grad(grad(ops.huber_loss))(np.array(0.0), np.array(0.0)).item() == 1


def test_nll_loss_is_cross_entropy_after_log_softmax():
    for reduction in ("mean", "sum", "none"):
        got = ops.nll_loss(ops.log_softmax(X), LABELS, reduction)
        wanted = ops.cross_entropy(X, LABELS, reduction)
        np.testing.assert_allclose(got.asnumpy(), wanted.asnumpy(), 1e-13)
    assert np.isnan(ops.nll_loss(np.zeros((0, 3)), np.zeros(0, np.int32)).item())
    for wrong in ([0, 3], [-1, 0], [0, -3]):
        with pytest.raises(OutOfRangeError):
            ops.nll_loss(X, np.array(wrong))
    with pytest.raises(DTypeError, match="labels of an integer dtype"):
        ops.nll_loss(X, [0.0, 1.0])


@pytest.mark.parametrize("delta", [0, -1, np.nan])
def test_huber_needs_a_delta_above_0(delta):
    with pytest.raises(ValueRefusedError, match="huber_loss got delta"):
        ops.huber_loss(X, X, delta=delta)


# The similarity of vectors


@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_cosine_similarity(axis):
    y = np.array([[1.0], [-2.0]])
    lengths = np.linalg.norm(X, axis=axis) * np.linalg.norm(np.broadcast_to(y, X.shape), axis=axis)
    got = ops.cosine_similarity(X, y, axis).asnumpy()
    np.testing.assert_allclose(got, (X * y).sum(axis) / lengths, 1e-14)
    np.testing.assert_allclose(
        ml.jit(lambda a, b: ops.cosine_similarity(a, b, axis))(X, y).asnumpy(), got, 1e-14
    )
    assert gradcheck(lambda a, b: ops.cosine_similarity(a, b, axis), X, y, order=2).ok


def test_cosine_similarity_of_zeros_nothing_and_other_dtypes():
    zeros, y = np.zeros(3), np.array([0.0, 3.0, 4.0])
    assert ops.cosine_similarity(zeros, y).item() == 0
    slope = grad(ops.cosine_similarity)(zeros, y).asnumpy()
    np.testing.assert_allclose(slope, [0, 0.6e8, 0.8e8])
    assert ops.cosine_similarity(np.zeros((2, 0)), np.zeros((2, 0))).tolist() == [0, 0]
    assert np.isnan(ops.cosine_similarity([np.nan, 1.0], [1.0, 1.0]).item())
    narrow = ml.Tensor([300.0, 400.0], dtype=ml.float16)  # squares leave float16's range
    same = ops.cosine_similarity(narrow, narrow)
    assert (same.item(), same.dtype) == (1, ml.float16)
    assert ops.cosine_similarity([3, 4], [3, 4]).dtype == ml.float32
    with pytest.raises(ShapeError, match="cosine_similarity got axis 0 of a tensor of rank 0"):
        ops.cosine_similarity(1.0, 2.0, 0)
    with pytest.raises(ShapeError, match="cosine_similarity cannot broadcast"):
        ops.cosine_similarity(X, X[:, :2])


@pytest.mark.parametrize(
    "fn", [ops.bce, ops.bce_with_logits, ops.mse_loss, ops.l1_loss, ops.huber_loss, ops.kl_div,
           ops.hinge]
)  # fmt: skip
def test_whole_targets_leave_the_dtype_of_the_prediction(fn):
    x, t = np.array([0.25, 0.5, 0.75], np.float16), np.array([1, 0, 1], np.uint8)
    got, expected = fn(x, t), fn(x.astype(np.float64), t)
    assert got.dtype == ml.float16
    np.testing.assert_allclose(got.asnumpy(), expected.asnumpy(), 2e-3)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("jit", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_probabilities_outside_of_0_to_1_are_refused_and_change_nothing(seed, jit, dtype):
    draw = np.random.default_rng(seed)
    shape = tuple(draw.integers(1, 5, draw.integers(1, 4)))
    x, t = (draw.uniform(0.1, 0.9, shape).astype(dtype) for _ in range(2))
    w = ml.Parameter(np.ones(shape, dtype))
    net = ml.nn.Sequential(Scaled(w))
    optimizer = ml.optim.SGD([w], lr=0.0)
    step = ml.train_step(net, ml.nn.BCELoss(), optimizer)
    index = draw.integers(x.size)
    with ml.context(jit=jit):
        assert float(step(x, t)) >= 0.0
        for value in (-0.5, np.nextafter(dtype(1), dtype(2)), 3.0, -np.inf, np.inf):
            bad, where = x.copy(), ", ".join(map(str, np.unravel_index(index, shape)))
            bad.flat[index] = value
            with pytest.raises(ValueRefusedError, match=rf"probs\[{where}\]; .*BCEWithLogitsLoss"):
                step(bad, t)
            assert (w.asnumpy() == 1).all()
        bad.flat[index] = np.nan
        assert np.isnan(float(step(bad, t)))


class Scaled(ml.nn.Cell):
    def __init__(self, w):
        self.w = w

    def construct(self, x):
        return x * self.w


@pytest.mark.parametrize("axis", [-1, 0, 2])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_classes_on_another_axis(axis, reduction):
    draw = np.random.default_rng(3)
    logits, labels = draw.normal(size=(2, 3, 4)), draw.integers(0, 3, (2, 4))
    shares, weight = draw.dirichlet(np.ones(3), (2, 4)), np.array([1.0, 2.0, 0.5])
    moved = np.moveaxis(logits, 1, axis)
    options = {"reduction": reduction, "weight": weight}
    for fn, more in ((ops.cross_entropy, {"label_smoothing": 0.1}), (ops.nll_loss, {})):
        for other in ({}, {"ignore_index": 1}):
            given = {**options, **more, **other}
            expected = fn(logits, labels, **given).asnumpy()
            got = fn(moved, labels, **given, axis=axis).asnumpy()
            np.testing.assert_allclose(got, expected, 1e-12)
    expected = ops.cross_entropy(logits, np.moveaxis(shares, -1, 1), reduction).asnumpy()
    got = ops.cross_entropy(moved, np.moveaxis(shares, -1, axis), reduction, axis=axis).asnumpy()
    np.testing.assert_allclose(got, expected, 1e-12)
    for layer in (nn.CrossEntropyLoss, nn.NLLLoss):
        found = layer(weight, reduction=reduction, axis=axis)
        assert f"axis={axis}" in repr(found)
        same = layer(weight, reduction=reduction)(logits, labels).asnumpy()
        np.testing.assert_allclose(found(moved, labels).asnumpy(), same, 1e-12)
    assert gradcheck(lambda x: ops.cross_entropy(x, labels, axis=axis), moved).ok


def test_an_axis_that_there_is_not_and_one_that_would_do():
    with pytest.raises(MinimlError, match="axis"):
        ops.cross_entropy(X, LABELS, axis=2)
    with pytest.raises(ShapeError, match="axis=-1 of the loss has the classes there"):
        ops.cross_entropy(np.zeros((2, 4, 3)), np.zeros((2, 4), int))


def test_batchmean_is_the_mean_divergence_of_the_rows():
    logs = np.log(np.stack([PROBS, PROBS[::-1]]))
    shares = np.stack([SHARES, SHARES])
    expected = special.rel_entr(shares, np.exp(logs)).sum() / 2
    assert ops.kl_div(logs, shares, "batchmean").item() == pytest.approx(expected, rel=1e-12)
    assert nn.KLDivLoss("batchmean")(logs, shares).item() == pytest.approx(expected, rel=1e-12)
    with pytest.raises(ValueRefusedError, match="'sum', 'none', 'batchmean'"):
        nn.KLDivLoss("batchmeans")


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_losses_of_weighted_rows(reduction):
    draw = np.random.default_rng(4)
    logits, labels = draw.normal(size=(5, 3, 2)), draw.integers(0, 3, (5, 2))
    weight = draw.uniform(0.0, 2.0, 5)
    logs = logits - special.logsumexp(logits, 1, keepdims=True)
    losses = -np.take_along_axis(logs, labels[:, None], 1)[:, 0] * weight[:, None]
    expected = {"none": losses, "sum": losses.sum(), "mean": losses.sum() / (2 * weight.sum())}
    for loss in (
        nn.CrossEntropyLoss(reduction="none"),
        lambda o, y: ops.cross_entropy(o, y, "none"),
    ):
        found = nn.SampleWeighted(loss, reduction)(logits, labels, weight)
        np.testing.assert_allclose(found.asnumpy(), expected[reduction], 1e-12)


def test_weighted_rows_learn_as_rows_that_stand_there_as_often():
    x, y = np.random.default_rng(5).normal(size=(3, 2)).astype(np.float32), np.array([0, 1, 1])
    weight, repeated = np.float32([1, 0, 3]), [0, 2, 2, 2]
    found = []
    for loss, batch in (
        (nn.SampleWeighted(nn.CrossEntropyLoss(reduction="none")), (x, y, weight)),
        (nn.CrossEntropyLoss(), (x[repeated], y[repeated])),
    ):
        ml.manual_seed(0)
        net = nn.Dense(2, 2)
        row = ml.train.Model(net, loss, optim.SGD(net.trainable_params(), lr=0.1))
        (row,) = row.fit(*batch, epochs=1, show=False)
        found.append((row["loss"], *net.weight.asnumpy().ravel()))
    np.testing.assert_allclose(found[0], found[1], 1e-5)
    loss = nn.SampleWeighted(nn.MSELoss())
    with pytest.raises(ShapeError, match=r"losses of shape \(\) .*reduction='none'"):
        loss(x, x, weight)
    with pytest.raises(MinimlError, match=r"SampleWeighted got .*'mse'"):
        nn.SampleWeighted("mse")
