"""scikit-learn: a network that is trained by `train.Model`, as an estimator.

In order: what both have in common; `Classifier`; `Regressor`.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, Self

import numpy as np

from .. import data, nn, optim
from ..core.abstract import float64
from ..core.parameter import default_generator
from ..nn.cell import Cell
from ..train import Model
from .foreign import package

package("sklearn", "miniml.interop's estimators")

from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin  # noqa: E402
from sklearn.utils import check_random_state  # noqa: E402
from sklearn.utils.multiclass import check_classification_targets  # noqa: E402
from sklearn.utils.validation import check_is_fitted, validate_data  # noqa: E402

Array = np.ndarray[Any, Any]


class _Network(BaseEstimator):  # type: ignore[misc]
    """The arguments, the training and the outputs of both estimators."""

    def __init__(
        self,
        net: Callable[[int, int], Cell] | None = None,
        *,
        hidden: tuple[int, ...] = (64,),
        lr: float = 0.01,
        weight_decay: float = 0.0,
        batch_size: int = 32,
        epochs: int = 100,
        standardize: bool = True,
        random_state: Any = None,
    ):
        self.net = net
        self.hidden = hidden
        self.lr = lr
        self.weight_decay = weight_decay
        self.batch_size = batch_size
        self.epochs = epochs
        self.standardize = standardize
        self.random_state = random_state

    def _trained(self, x: Array, y: Array, outputs: int, loss: Any) -> Self:
        """Make a network and train it on rows x and labels y."""
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        self.mean_ = x.mean(0) if self.standardize else np.zeros(x.shape[1], x.dtype)
        scale = x.std(0) if self.standardize else np.ones(x.shape[1], x.dtype)
        self.scale_ = np.where(scale > 0, scale, 1).astype(x.dtype)
        before = default_generator.state.asnumpy()
        try:  # the network's first weights and its dropout are those of the seed
            default_generator.manual_seed(seed)
            self.net_ = (self.net or self._layers)(x.shape[1], outputs)
            learnt = self.net_.trainable_params()
            optimizer = optim.AdamW(learnt, lr=self.lr, weight_decay=self.weight_decay)
            model = Model(self.net_, loss, optimizer)
            size = min(self.batch_size, len(x))
            rows = data.DataLoader(self._scaled(x), y, size=size, seed=seed)
            self.history_ = model.fit(rows, epochs=self.epochs, show=False)
        finally:
            default_generator.state.set_data(before)
        # Rows are predicted in float64, so that to rounding they do not depend on each other.
        self.net_.set_train(False).to(float64)
        self.model_ = Model(self.net_, loss)
        self.n_iter_ = self.epochs
        return self

    def _layers(self, inputs: int, outputs: int) -> Cell:
        """Dense layers with ReLU between them."""
        sizes = (inputs, *self.hidden)
        cells: list[Cell] = []
        for before, after in pairwise(sizes):
            cells += [nn.Dense(before, after), nn.ReLU()]
        return nn.Sequential(*cells, nn.Dense(sizes[-1], outputs))

    def _scaled(self, x: Array) -> Array:
        return np.asarray((x - self.mean_) / self.scale_, np.float32)

    def _outputs(self, x: Any) -> Array:
        """The outputs of the network for rows."""
        check_is_fitted(self)
        rows = validate_data(self, x, reset=False, dtype=np.float64)
        found: Array = self.model_.predict(self._scaled(rows).astype(np.float64))
        return found


class Classifier(ClassifierMixin, _Network):  # type: ignore[misc]
    """A network that classifies rows, as an estimator of scikit-learn.

    net: a function of the numbers of features and of classes that makes the Cell, whose outputs are
    logits; by default Dense layers of the widths `hidden`, with ReLU. It is trained with AdamW on
    the cross-entropy, for `epochs` epochs of batches of `batch_size` rows. standardize: features
    get mean 0 and variance 1. random_state: an int, or a RandomState, from which first weights,
    dropout and the order of rows come. Fitted, it has `classes_`, `net_`, `model_` and `history_`.

    >>> from sklearn.datasets import load_iris
    >>> x, y = load_iris(return_X_y=True)
    >>> Classifier(epochs=20, random_state=0).fit(x, y).score(x, y) > 0.9
    True
    """

    def fit(self, X: Any, y: Any) -> Classifier:
        """Train a new network on rows X and their classes y, ValueError for one class alone;
        returns the estimator."""
        x, labels = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(labels)
        self.classes_, index = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"Classifier got one class, {self.classes_[0]}; it needs two")
        found: Classifier = self._trained(x, index, len(self.classes_), nn.CrossEntropyLoss())
        return found

    def predict_proba(self, X: Any) -> Array:
        """The probability of each class, for each row."""
        logits = self._outputs(X).astype(np.float64)
        powers = np.exp(logits - logits.max(1, keepdims=True))
        found: Array = powers / powers.sum(1, keepdims=True)
        return found

    def predict(self, X: Any) -> Array:
        """The most probable class of each row."""
        outputs = self._outputs(X)
        found: Array = self.classes_[outputs.argmax(1)]
        return found


class Regressor(RegressorMixin, _Network):  # type: ignore[misc]
    """A network that predicts numbers for rows, as an estimator of scikit-learn.

    The arguments are those of Classifier; the loss is the mean squared error, of targets that are
    standardized like the features. y may have several columns.

    >>> x = np.linspace(-1, 1, 100)[:, None]
    >>> Regressor(epochs=50, random_state=0).fit(x, 3 * x[:, 0]).score(x, 3 * x[:, 0]) > 0.95
    True
    """

    def fit(self, X: Any, y: Any) -> Regressor:
        """Train a new network on rows X and their targets y, numbers or rows of them; returns the
        estimator."""
        x, targets = validate_data(self, X, y, dtype=np.float64, multi_output=True, y_numeric=True)
        self._flat = targets.ndim == 1
        rows = np.asarray(targets, np.float64).reshape(len(x), -1)
        self.target_mean_, spread = rows.mean(0), rows.std(0)
        self.target_scale_ = np.where(spread > 0, spread, 1.0)
        scaled = ((rows - self.target_mean_) / self.target_scale_).astype(np.float32)
        found: Regressor = self._trained(x, scaled, rows.shape[1], nn.MSELoss())
        return found

    def predict(self, X: Any) -> Array:
        """The targets of each row, one number where it was trained on one."""
        outs = self._outputs(X).astype(np.float64)
        found: Array = outs * self.target_scale_ + self.target_mean_
        return found[:, 0] if self._flat else found

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
