"""Networks as estimators of scikit-learn."""

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import miniml as ml
from miniml import nn
from miniml.interop import Classifier, Regressor


@pytest.mark.deep
@pytest.mark.parametrize("estimator", [Classifier(epochs=20), Regressor(epochs=20)], ids=str)
@pytest.mark.filterwarnings("ignore")
def test_scikit_learns_own_checks_pass(estimator):
    rows = check_estimator(estimator, on_fail=None, on_skip=None)
    assert [r["check_name"] for r in rows if r["status"] == "failed"] == []
    assert sum(r["status"] == "passed" for r in rows) >= 50


def test_classifier_in_a_pipeline():
    x, y = load_iris(return_X_y=True)
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    model = make_pipeline(StandardScaler(), Classifier(epochs=60, hidden=(8,), random_state=0))
    assert cross_val_score(model, x, names, cv=2).mean() > 0.9
    model.fit(x, names)
    np.testing.assert_allclose(model.predict_proba(x).sum(1), 1.0)
    assert set(model.predict(x)) == set(names)


def test_own_network_and_equal_seeds():
    x = np.random.default_rng(0).normal(size=(60, 2))
    y = np.stack([x[:, 0] * 2, x[:, 1]], 1)
    before = ml.random_state.tolist()

    def made():
        return Regressor(nn.Dense, epochs=40, lr=0.05, random_state=3).fit(x, y)

    first, second = made(), made()
    np.testing.assert_array_equal(first.predict(x), second.predict(x))
    assert first.score(x, y) > 0.98
    assert first.predict(x).shape == (60, 2)
    assert ml.random_state.tolist() == before


def test_one_class_is_refused():
    with pytest.raises(ValueError, match="got one class, 1; it needs two"):
        Classifier(epochs=1).fit(np.ones((4, 2)), np.ones(4, int))
