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
