"""Learner: a network with what it learns from, to be evaluated and asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

import numpy as np
import optree

from ..constructor import Constructed
from ..data import DataLoader
from ..errors import MinimlError, ShapeError
from ..nn import Cell
from ..optim import LossScale, Optimizer
from ..runtime.jit import jit
from ..tensor import Array, Tensor
from ..tracebacks import hides_frames
from .checks import batches_of, check_batches, check_labels, check_listed
from .metrics import Metric, Row
from .step import TrainStep


class Learner(Constructed):
    """A network, its loss and its optimizer: `evaluate`, `predict`.

    net, loss, optimizer, clip, loss_scale: those of `train_step`; an optimizer is for `fit` alone.
    metrics: as `train.accuracy()`; they compare the network's output with the first of the labels.
    """

    def __init__(
        self,
        net: Cell,
        loss: Callable[..., Any],
        optimizer: Optimizer | None = None,
        metrics: Sequence[Metric] = (),
        clip: float | None = None,
        loss_scale: LossScale | None = None,
    ) -> None:
        self.net, self.loss = net, loss
        self.metrics = _checked(net, loss, metrics)
        learnt = _WithOutput(loss) if self.metrics else loss
        if optimizer is None:
            self._step = None
        else:
            self._step = TrainStep(net, learnt, optimizer, clip, loss_scale)
        self._predicted = jit(net)
        self._judged = jit(_Judged(net, loss))

    def __repr__(self) -> str:
        loss = getattr(self.loss, "__name__", self.loss)
        optimizer = None if self._step is None else self._step.optimizer
        metrics = ", ".join(metric.name for metric in self.metrics)
        return f"{type(self).__name__}({self.net}, {loss}, {optimizer}, metrics=[{metrics}])"

    @property
    def step(self) -> TrainStep:
        """The training step; MinimlError without an optimizer."""
        if self._step is None:
            raise MinimlError(
                "Model has no optimizer, so it can evaluate and predict, not fit; give it one, as "
                "Model(net, loss, optim.Adam(net.trainable_params()))"
            )
        return self._step

    @property
    def optimizer(self) -> Optimizer:
        """What the training step updates with."""
        return self.step.optimizer

    @hides_frames
    def evaluate(self, data: DataLoader | Iterable[Any]) -> Row:
        """The loss and the metrics of all rows, with the network in evaluation mode.

        The loss is the mean over batches, weighted with their rows; of a DataLoader all rows count,
        also those that drop_last leaves out.
        """
        check_batches("evaluate", data, 1)
        check_labels(self.net, self.loss, data)
        total, rows, sums = 0.0, 0, self.zeros()
        every = batches_of(data.every_row() if isinstance(data, DataLoader) else data)
        with evaluating(self.net), closing(every) as batches:
            for x, *labels in batches:
                loss, out = self._judged(x, *labels)
                count = len(x[0] if isinstance(x, tuple) else x)
                total, rows = total + float(loss) * count, rows + count
                self.count(sums, out, labels)
        if not rows:
            raise MinimlError("evaluate got no batches; give data with at least one")
        return {"loss": total / rows, **self.results(sums)}

    @hides_frames
    def predict(self, x: Any, size: int = 256) -> Any:
        """The network's outputs for all rows of x, as NumPy arrays, in evaluation mode.

        x: an array, or a tuple of several inputs; `size` rows of it at a time are computed.
        ShapeError for several such batches whose outputs have no row for each.
        """
        if isinstance(x, DataLoader):
            raise MinimlError(
                "predict got a DataLoader; give it the inputs, an array, without labels"
            )
        inputs = x if isinstance(x, tuple) else (x,)
        count = max(min(size, len(inputs[0])), 1)
        loader = DataLoader(*map(_array, inputs), size=count, drop_last=False)
        with evaluating(self.net):
            outs: list[Any] = [self._predicted(*b) for b in loader.every_row()]
        if len(outs) > 1:
            _check_rows(outs[0], count)
        return optree.tree_map(lambda *parts: np.concatenate([*map(_array, parts)]), *outs)

    def zeros(self) -> list[Array]:
        """Sums of the metrics before the first batch."""
        return [np.zeros(metric.shape) for metric in self.metrics]

    def count(self, sums: list[Array], out: Any, labels: Sequence[Any]) -> None:
        """Add a batch to the sums of the metrics."""
        if self.metrics and not labels:
            raise MinimlError("metrics compare outputs with labels; got batches without labels")
        if self.metrics:
            if not isinstance(out, Tensor):
                raise MinimlError(
                    f"metrics compare one output with labels; the network gives a "
                    f"{type(out).__name__}; compute them in the loss, which may return (loss, aux)"
                )
            host = _array(out), _array(labels[0])
            for total, metric in zip(sums, self.metrics, strict=True):
                total += metric.count(*host)

    def results(self, sums: list[Array]) -> Row:
        """The values of the metrics, by name."""
        return {m.name: m.result(total) for m, total in zip(self.metrics, sums, strict=True)}


class _WithOutput(Cell):
    """A loss, with the output beside it."""

    def __init__(self, loss: Callable[..., Any]) -> None:
        self.loss = loss

    def construct(self, out: Any, *labels: Any) -> Any:
        return _only(self.loss(out, *labels)), out


class _Judged:
    """The loss and the output of a network."""

    def __init__(self, net: Cell, loss: Callable[..., Any]) -> None:
        self.net, self.loss, self.__name__ = net, loss, "evaluate"

    def __call__(self, x: Any, *labels: Any) -> Any:
        out = self.net(*x) if isinstance(x, tuple) else self.net(x)
        return _only(self.loss(out, *labels)), out


def _only(loss: Any) -> Any:
    """The loss, without what a loss function may return beside it."""
    return loss[0] if isinstance(loss, tuple) else loss


def _check_rows(out: Any, rows: int) -> None:
    """ShapeError for an output of a batch that cannot be joined to others by its rows."""
    for leaf in optree.tree_leaves(out):
        if np.shape(leaf)[:1] != (rows,):
            raise ShapeError(
                f"predict got an output of shape {np.shape(leaf)} for a batch of {rows} rows; it "
                "joins batches by the first axis, which has the rows: give size= all rows of x, or "
                "a network whose outputs have the batch first"
            )


@contextmanager
def evaluating(net: Cell) -> Iterator[None]:
    """The network in evaluation mode; afterwards each layer is in its own mode again."""
    modes = [(cell, cell.training) for cell in net.cells()]
    try:
        net.set_train(False)
        yield
    finally:
        for cell, mode in modes:
            cell.training = mode


def _array(value: Any) -> Array:
    return value.asnumpy() if isinstance(value, Tensor) else np.asarray(value)


def _checked(net: object, loss: object, metrics: Sequence[Metric]) -> tuple[Metric, ...]:
    """The metrics; MinimlError for what is none, for two of one name, for a net that is no Cell,
    for a loss that is no function."""
    if not callable(loss):
        raise MinimlError(
            f"Model got {type(loss).__name__} for the loss; it takes a net, a loss function and "
            "an optimizer"
        )
    if not isinstance(net, Cell):
        raise MinimlError(f"Model got a {type(net).__name__} for the network; give an nn.Cell")
    check_listed("metrics", metrics, Metric, "train.accuracy()")
    names = [m.name for m in metrics]
    if len({*names, "loss"}) <= len(names):
        raise MinimlError(f"Model got metrics named {names}; names differ, and none is 'loss'")
    return tuple(metrics)
