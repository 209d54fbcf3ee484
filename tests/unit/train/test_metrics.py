"""Metrics, added up over batches, are those of scikit-learn on all rows."""

from functools import partial

import numpy as np
import pytest

from miniml import train
from miniml.errors import DTypeError, MinimlError, OutOfRangeError, ShapeError

sklearn = pytest.importorskip("sklearn.metrics")
DRAW = np.random.default_rng(0)
OUT = DRAW.normal(size=(50, 4)).astype(np.float32)
Y = DRAW.integers(0, 4, 50)


def value(metric, out=OUT, y=Y):
    total = sum(metric.count(out[i : i + 7], y[i : i + 7]) for i in range(0, 50, 7))
    return metric.result(total)


def test_metrics_of_classes():
    found = OUT.argmax(1)
    assert value(train.accuracy()) == pytest.approx(sklearn.accuracy_score(Y, found))
    assert value(train.top_k(2)) == pytest.approx(sklearn.top_k_accuracy_score(Y, OUT, k=2))
    expected = sklearn.confusion_matrix(Y, found, labels=range(5))
    wide = np.pad(OUT, ((0, 0), (0, 1)), constant_values=-9)
    assert np.array_equal(value(train.confusion_matrix(5), wide), expected)
    assert value(train.f1(4)) == pytest.approx(sklearn.f1_score(Y, found, average="macro"))
    powers = np.exp(OUT.astype(np.float64))
    shares = powers / powers.sum(1, keepdims=True)
    surprise = sklearn.log_loss(Y, shares, labels=range(4))
    assert value(train.perplexity()) == pytest.approx(np.exp(surprise), rel=1e-5)


def test_weights_of_rows_are_those_of_scikit_learn():
    w = DRAW.uniform(0.0, 0.02, 50)  # sums below 1, too
    w[::5] = 0.0

    def weighed(metric, out=OUT, y=Y):
        parts = [slice(i, i + 7) for i in range(0, 50, 7)]
        return metric.result(sum(metric.count(out[p], y[p], w[p]) for p in parts))

    found, two = OUT.argmax(1), (Y > 1).astype(int)
    right = sklearn.accuracy_score(Y, found, sample_weight=w)
    assert weighed(train.accuracy()) == pytest.approx(right)
    top = sklearn.top_k_accuracy_score(Y, OUT, k=2, sample_weight=w)
    assert weighed(train.top_k(2)) == pytest.approx(top)
    table = sklearn.confusion_matrix(Y, found, sample_weight=w)
    np.testing.assert_allclose(weighed(train.confusion_matrix(4)), table)
    for average in ("macro", "micro", "weighted"):
        f1 = sklearn.f1_score(Y, found, average=average, sample_weight=w)
        assert weighed(train.f1(4, average=average)) == pytest.approx(f1)
    area = sklearn.roc_auc_score(two, OUT[:, 0], sample_weight=w)
    assert weighed(train.auc(), OUT[:, 0], two) == pytest.approx(area, abs=2e-3)
    r2 = sklearn.r2_score(OUT[:, :2], OUT[:, 2:], sample_weight=w)
    assert weighed(train.r2(2), OUT[:, 2:], OUT[:, :2]) == pytest.approx(r2)
    mae = sklearn.mean_absolute_error(OUT[:, :2], OUT[:, 2:], sample_weight=w)
    assert weighed(train.mean_absolute_error(), OUT[:, 2:], OUT[:, :2]) == pytest.approx(mae)


def test_weights_of_rows_are_those_of_all_their_labels():
    w, y = np.arange(5.0), np.where(Y == 2, -100, Y).reshape(5, 10)
    out, kept = OUT.reshape(5, 10, 4), y != -100
    found = train.accuracy(ignore_index=-100).count(out, y, w)
    right, wide = out.argmax(-1) == y, np.broadcast_to(w[:, None], y.shape)
    np.testing.assert_allclose(found, [wide[right & kept].sum(), wide[kept].sum()])
    with pytest.raises(ShapeError, match=r"weights of shape \(4,\) for values of shape \(5, 10\)"):
        train.accuracy().count(out, Y.reshape(5, 10), w[:4])


OF_CLASSES = [
    train.accuracy,
    train.perplexity,
    partial(train.top_k, 2),
    partial(train.f1, 4),
    partial(train.confusion_matrix, 4),
]


@pytest.mark.parametrize("metric", OF_CLASSES)
def test_ignored_labels_count_nowhere(metric):
    y = np.where(Y == 2, -100, Y).reshape(5, 10)
    found = metric(ignore_index=-100).count(OUT.reshape(5, 10, 4), y)
    assert np.array_equal(found, metric().count(OUT[Y != 2], Y[Y != 2]))


@pytest.mark.parametrize("shape", [(50,), (5, 10), (5, 2, 5)])
@pytest.mark.parametrize("metric", OF_CLASSES)
def test_classes_may_be_on_any_axis(metric, shape):
    out, y = OUT.reshape(*shape, 4), Y.reshape(shape)
    for axis in range(-out.ndim, out.ndim):
        found = metric(axis=axis).count(np.moveaxis(out, -1, axis), y)
        assert np.array_equal(found, metric().count(OUT, Y))
    for axis in (-out.ndim - 1, out.ndim):
        with pytest.raises(ShapeError, match=f"classes on axis {axis}"):
            metric(axis=axis).count(out, y)
    if len(shape) > 1:
        with pytest.raises(ShapeError, match=r"axis=1 of the metric has the classes there"):
            metric().count(np.moveaxis(out, -1, 1), y)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint64"])
def test_labels_of_few_bits_count_as_those_of_many(dtype):
    classes = 100
    labels = np.arange(classes).astype(dtype)
    counts = train.confusion_matrix(classes).count(np.eye(classes, dtype=np.float32), labels)
    assert np.array_equal(counts, np.eye(classes))


def test_the_first_one_is_accuracy_for_equal_outputs_too():
    pair = np.ones((2, 3), np.float32), np.array([0, 1])
    assert np.array_equal(train.top_k(1).count(*pair), train.accuracy().count(*pair))


def test_a_label_whose_output_is_nan_is_not_among_the_largest():
    assert train.top_k(2).count(np.full((1, 3), np.nan), np.array([0]))[0] == 0


def test_perplexity_of_16_bits_is_computed_in_32():
    out, y = (30 * OUT).astype(np.float16), Y
    exact = value(train.perplexity(), out.astype(np.float64), y)
    assert value(train.perplexity(), out, y) == pytest.approx(exact, rel=1e-5)


def test_mean_errors():
    target = DRAW.normal(size=OUT.shape)
    of = (target, OUT)
    assert value(train.mean_absolute_error(), OUT, target) == pytest.approx(
        sklearn.mean_absolute_error(*of)
    )
    assert value(train.mean_squared_error(), OUT, target) == pytest.approx(
        sklearn.mean_squared_error(*of)
    )


def test_what_does_not_fit_is_refused():
    with pytest.raises(ShapeError, match=r"outputs \(7, 4\) and labels \(7, 1\)"):
        train.accuracy().count(OUT[:7], Y[:7, None])
    with pytest.raises(OutOfRangeError, match="a metric of 3 classes got outputs of 4"):
        train.f1(3).count(OUT, Y)
    with pytest.raises(ShapeError, match="one shape"):
        train.mean_squared_error().count(OUT, Y)
    with pytest.raises(MinimlError, match="k=0"):
        train.top_k(0)
    with pytest.raises(MinimlError, match=r"top_k got k=1.5; expected an int >= 1"):
        train.top_k(1.5)
    with pytest.raises(MinimlError, match="f1 got classes=0"):
        train.f1(0)
    for metric in OF_CLASSES:
        with pytest.raises(OutOfRangeError, match="labels from -1 to 3 for 4 classes; ignore_ind"):
            metric().count(OUT, Y - (Y == 0))
        with pytest.raises(DTypeError, match="labels of float64; expected ints"):
            metric().count(OUT, Y / 2)


AVERAGES = ["macro", "micro", "weighted", "none"]


@pytest.mark.parametrize("average", AVERAGES)
@pytest.mark.parametrize("name", ["precision", "recall", "f1"])
def test_shares_of_classes_are_those_of_scikit_learn(name, average):
    metric, theirs = getattr(train, name), getattr(sklearn, f"{name}_score")
    out = np.concatenate([OUT, np.zeros((len(OUT), 1))], 1) - [0, 0, 0, 0, 50]  # never taken for 4
    for taken in (out, -out):
        options = {"labels": range(5), "zero_division": 0}
        options["average"] = None if average == "none" else average
        expected = theirs(Y, taken.argmax(1), **options)
        parts = [metric(5, average=average).count(taken[i::3], Y[i::3]) for i in range(3)]
        np.testing.assert_allclose(metric(5, average=average).result(sum(parts)), expected, 1e-12)
    nothing = metric(5, average=average)
    assert np.all(nothing.result(np.zeros(nothing.shape)) == 0.0)
    with pytest.raises(MinimlError, match=f"{name} got average='binary'; expected one of 'macro'"):
        metric(2, average="binary")


def coarse(scores):
    """The scores with the first 8 binary digits alone, rounded towards 0."""
    return (np.float32(scores).view(np.int32) >> 16 << 16).view(np.float32)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e6])
def test_area_under_the_curve_is_that_of_scikit_learn(scale):
    labels = (DRAW.random(200) < 0.3).astype(int)
    scores = scale * (DRAW.normal(size=200) + labels)
    scores[:9] = [0.0, -0.0, 1, 1, -1, -1, np.inf, -np.inf, 1e-40]
    metric = train.auc()
    finite = np.nan_to_num(coarse(scores), posinf=1e30, neginf=-1e30)
    expected = sklearn.roc_auc_score(labels, finite)
    pairs = np.stack([-scores / 2, scores / 2], 1)
    pairs[6:8] = [[-1e30, 1e30], [1e30, -1e30]]
    for out, y in ((scores, labels), (scores[:, None], labels[:, None]), (pairs, labels)):
        total = sum(metric.count(out[i::3], y[i::3]) for i in range(3))
        assert metric.result(total) == pytest.approx(expected, abs=1e-3 if out is pairs else 1e-12)
    assert abs(expected - sklearn.roc_auc_score(labels, np.nan_to_num(scores))) < 4e-3
    assert np.isnan(value(metric, scores, np.ones(200, int)))
    assert np.isnan(value(metric, np.array([0.0, np.nan]), np.array([0, 1])))
    with pytest.raises(ShapeError, match=r"auc got outputs \(2, 3\)"):
        metric.count(np.zeros((2, 3)), np.array([0, 1]))
    with pytest.raises(OutOfRangeError, match="labels other than 0 and 1"):
        metric.count(np.zeros(2), np.array([1, 2]))


@pytest.mark.parametrize("outputs", [1, 3])
def test_the_share_of_explained_variance(outputs):
    target = 5.0 + DRAW.normal(size=(60, outputs))
    out = target + 0.5 * DRAW.normal(size=(60, outputs))
    metric = train.r2(outputs)
    total = sum(metric.count(out[i::3], target[i::3]) for i in range(3))
    assert metric.result(total) == pytest.approx(sklearn.r2_score(target, out), rel=1e-9)
    one = np.full((4, 1), 3.3)
    for guess in (one, one + 1):
        assert value(train.r2(), guess, one) == sklearn.r2_score(one, guess)


def test_a_mean_over_batches_of_several_sizes_is_that_of_all_rows():
    metric = train.mean("near", lambda out, y: np.abs(out - y) < 0.5, True)
    out, y = DRAW.normal(size=(2, 10))
    total = metric.count(out[:3], y[:3]) + metric.count(out[3:], y[3:])
    assert metric.result(total) == pytest.approx((np.abs(out - y) < 0.5).mean())
    assert (metric.name, metric.larger_is_better) == ("near", True)
