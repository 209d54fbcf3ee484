"""Metrics, added up over batches, are those of scikit-learn on all rows."""

import numpy as np
import pytest

from miniml import train
from miniml.errors import MinimlError, OutOfRangeError, ShapeError

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
