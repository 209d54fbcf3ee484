"""Learner: a network with its loss, optimizer and metrics; evaluates and predicts.

Then the checks of what it is given: data are batches, labels classes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import optree

from ..backends.group import Group, Self, of_several
from ..core.access import uninterrupted
from ..core.errors import MinimlError, OutOfRangeError, ShapeError
from ..core.hints import Constructed, hides_frames, renamed
from ..core.options import brief, count
from ..core.tensor import Array, Tensor
from ..data import DataLoader
from ..graph.tracing import trace
from ..nn import Cell, CrossEntropyLoss, NLLLoss, SampleWeighted
from ..optim import LossScale, Optimizer
from ..runtime.jit import jit
from .metrics import Metric, Row, named
from .ranks import Ranks, leaves, rows_in
from .step import OfParts, OwnStep, TrainStep, parted
from .weights import Weighted, labels_weighed, weights_of_rows

Metrics = Sequence[Metric | str] | Mapping[Any, Sequence[Metric | str]]
_ONLY = None  # the head of a network with one output


class Learner(OfParts, Constructed):
    """Base of Model: what it does besides `fit`, with the arguments that are described there."""

    _parts = "net", "loss", "metrics", "group"

    def __init__(
        self,
        net: Cell,
        loss: Callable[..., Any],
        optimizer: Optimizer | None = None,
        metrics: Metrics = (),
        clip: float | None = None,
        loss_scale: LossScale | None = None,
        group: Group | None = None,
        weighted_metrics: Metrics = (),
    ) -> None:
        self.net, self.loss = net, loss
        self.group = group = of_several("Model", group)
        self.ranks = Ranks(self.group or Self())
        _check_parts(net, loss)
        self._heads, self.metrics, self._plain_metrics = _both(metrics, weighted_metrics)
        self._taken = {"loss", "epoch", "seconds", *(metric.name for metric in self.metrics)}
        learnt = _WithOutput(loss) if self.metrics else loss
        self._step: TrainStep | None = None
        if optimizer is not None:
            self._step = self._plain = TrainStep(net, learnt, optimizer, clip, loss_scale, group)
            self.ranks = self._plain.ranks or self.ranks
        if optimizer is not None and type(self).training_step is not Learner.training_step:
            ranks = self._plain.ranks
            self._step = OwnStep(self.training_step, net, learnt, optimizer, ranks)
        self._predicted = jit(net)
        self._evaluated = jit(_Evaluated(net, loss))
        self._weighted: dict[Any, Any] = {}

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

    def training_step(self, x: Any, *labels: Any) -> Any:
        """One step of `fit`, compiled with all that it calls: a subclass may override it, as for
        networks that learn in turns, each with an optimizer of `optim.Groups(...)`.

        It updates parameters, by `self.optimizer[0].update(gradients)`, and returns the loss or
        (loss, aux), aux a dict of numbers for the rows; with metrics (loss, (output, aux)). This
        one, which an override may call, is `train_step`; clip and loss_scale are its alone. With a
        group an override averages gradients, loss and aux itself, as by
        `ml.distributed.all_reduce(gradient, "mean", self.group)`.
        """
        return self._plain(x, *labels)

    def weighted_step(self, classes: tuple[float, ...], rows: bool) -> TrainStep:
        """The training step with weights of classes, and those of rows behind the labels;
        MinimlError for a step of the user's own."""
        if self.step is not self._plain:
            raise MinimlError(
                f"fit got class_weight or sample_weight, and {type(self).__name__} has a "
                "training_step of its own; give weights behind the labels, as fit(x, y, weights), "
                "and apply them there"
            )
        if (classes, rows) not in self._weighted:
            loss: Cell = Weighted(self.loss, classes, rows)
            learnt = _WithOutput(loss) if self.metrics else loss
            plain = self._plain
            options = plain.clip, plain.loss_scale, self.group
            self._weighted[classes, rows] = TrainStep(self.net, learnt, plain.optimizer, *options)
        return self._weighted[classes, rows]  # type: ignore[no-any-return]

    @property
    def optimizer(self) -> Optimizer:
        """The optimizer of the training step."""
        return self.step.optimizer

    @hides_frames
    def evaluate(
        self, data: Any, *labels: Any, batch_size: int | None = None, sample_weight: Any = None
    ) -> Row:
        """The loss and the metrics of all rows, with the network in evaluation mode.

        data, labels: as in `fit`; batch_size: of arrays, by default 256. The loss is the mean over
        batches, weighted with their rows: the extent of axis 0 of all
        leaves of the labels or, without labels, of x (ShapeError where neither agree). Of a
        DataLoader all rows count, also those that drop_last leaves out.

        sample_weight: of arrays, the weight of each row (N,): the loss is the sum of the weighted
        losses of rows over their number; of the metrics, `weighted_metrics=` take them, too.

        With a group all ranks call it, each computes a part of the rows, and all get the result of
        all rows. Batches that are no DataLoader's are each rank's own.
        """
        weighs = sample_weight is not None
        data, labels = with_weights("evaluate", data, labels, sample_weight)
        data = in_batches("evaluate", data, labels, batch_size, 256, group=self.group)
        check_batches("evaluate", data, 1)
        check_labels(self.net, self.loss, data)
        return self.judged(data, weighs)

    def judged(self, data: Iterable[Any], weighs: bool) -> Row:
        """The loss and metrics of batches, with weights of rows behind the labels if `weighs`;
        MinimlError for no batches."""
        total, rows, sums, aux = 0.0, 0, self.zeros(), dict[str, float]()
        evaluated = self._weighted_evaluation() if weighs else self._evaluated
        every = batches_of(data.every_row() if isinstance(data, DataLoader) else data)
        with evaluating(self.net), closing(every) as batches:
            for x, *own in batches:
                loss, out, beside = evaluated(x, *own)
                count = rows_of((x, *own))
                aux = self.added(aux, beside, not rows, count)
                total, rows = total + float(loss) * count, rows + count
                self.count(sums, out, own, weighs)
        found = self.ranks.summed("evaluate", {"rows": rows, **self.counted(total, aux, sums)})
        if not found["rows"]:
            raise MinimlError("evaluate got no batches; give data with at least one")
        return self.means(found, float(found["rows"]))

    def _weighted_evaluation(self) -> Callable[..., Any]:
        if "evaluate" not in self._weighted:
            self._weighted["evaluate"] = jit(_Evaluated(self.net, Weighted(self.loss, (), True)))
        return self._weighted["evaluate"]  # type: ignore[no-any-return]

    @hides_frames
    @renamed("0.2", size="batch_size")
    def predict(self, x: Any, batch_size: int = 256) -> Any:
        """The network's outputs for all rows of x, as NumPy arrays, in evaluation mode.

        x: an array, a tuple of several inputs, or any tree of tuples and dicts of arrays with
        equally many rows; `batch_size` of these at a time are computed. ShapeError for inputs of
        unequal lengths, and for several batches whose outputs have no row for each. With a group
        all ranks call it with the same x, each computes a part of the rows, and all get all.
        MinimlError for a DataLoader.
        """
        if isinstance(x, DataLoader):
            raise MinimlError(
                "predict got a DataLoader; give it the inputs, an array, without labels"
            )
        inputs: Any = optree.tree_map(_array, x, is_leaf=lambda node: isinstance(node, list))
        rows = _rows_of_inputs(inputs)
        first, end = self.ranks.part_of(rows)
        size = max(min(count("predict", "batch_size", batch_size), end - first), 1)
        outs: list[Any] = []
        with evaluating(self.net):
            for start in range(first, max(end, first + 1), size):
                own = slice(start, min(start + size, end))
                part: Any = optree.tree_map(lambda a, own=own: a[own], inputs)
                outs.append(self._predicted(*inputs_of(part)))
        if len(outs) > 1 or end - first < rows:
            _check_rows(outs[0], size)
        found = optree.tree_map(lambda *parts: np.concatenate([*map(_array, parts)]), *outs)
        return self.ranks.joined("predict", found, rows)

    def zeros(self) -> list[Array]:
        """Sums of the metrics before the first batch."""
        return [np.zeros(metric.shape) for metric in self.metrics]

    def count(
        self,
        sums: list[Array],
        out: Any,
        labels: Sequence[Any],
        rows: bool = False,
        classes: tuple[float, ...] = (),
    ) -> None:
        """Add a batch to the sums of the metrics; rows: weights of rows are behind the labels,
        classes: the weight of each class, as in Weighted. MinimlError for no labels."""
        if not self.metrics:
            return
        own = labels[:-1] if rows else labels
        if not own:
            raise MinimlError("metrics compare outputs with labels; got batches without labels")
        compared = {head: _compared(head, out, own) for head in dict.fromkeys(self._heads)}
        counted = list(zip(sums, self.metrics, self._heads, strict=True))
        plain = self._plain_metrics
        for total, metric, head in counted[:plain]:
            total += metric.count(*compared[head])
        weights = self._weights(labels, rows, classes) if counted[plain:] else ()
        for total, metric, head in counted[plain:]:
            total += metric.count(*compared[head], *weights)

    def _weights(
        self, labels: Sequence[Any], rows: bool, classes: tuple[float, ...]
    ) -> tuple[Array, ...]:
        """The weights of a batch's rows, if it has any: behind its labels, and of their classes."""
        rows = rows or isinstance(self.loss, SampleWeighted)
        found = [np.asarray(_array(labels[-1]), np.float64)] if rows else []
        if classes:
            of_labels = labels_weighed(classes, labels[0])
            shape = (-1,) + (1,) * (of_labels.ndim - 1)
            found = [of_labels * (found[0].reshape(shape) if found else 1.0)]
        return tuple(found)

    def added(self, sums: Mapping[str, float], aux: Any, first: bool, count: int = 1) -> Row:
        """The sums of the aux of losses, with that of a batch added `count` times; MinimlError for
        other names than before, unless it is the first."""
        if type(aux) is dict and not aux and not sums:  # true of most losses
            return {}
        found = _numbers(aux, self._taken)
        if not first and sums.keys() != found.keys():
            raise MinimlError(
                f"the loss returned aux with the names {', '.join(found) or 'of nothing'} after "
                f"one with {', '.join(sums) or 'none'}; give the same ones for all batches"
            )
        return {name: sums.get(name, 0.0) + value * count for name, value in found.items()}

    def parts(self, result: Any) -> tuple[Tensor, Any, Any]:
        """The result of a step as the loss, the output if there are metrics, and aux; MinimlError
        where there are metrics and no output."""
        loss, beside = result if isinstance(result, tuple) else (result, {})
        if not self.metrics:
            return loss, None, beside
        if not isinstance(beside, tuple) or len(beside) != 2:
            raise MinimlError(
                f"metrics need the output of the network, and training_step returned a "
                f"{type(beside).__name__} beside the loss; return loss, (output, {{}}), with the "
                "numbers for the rows in the dict"
            )
        return loss, *beside

    def counted(self, total: float, aux: Mapping[str, float], sums: list[Array]) -> dict[str, Any]:
        """Sums of the loss, of aux and of the metrics, by names that tell them apart."""
        found = {"loss": total, **{f"aux.{name}": value for name, value in aux.items()}}
        metrics = zip(self.metrics, sums, strict=True)
        return found | {f"metric.{metric.name}": own for metric, own in metrics}

    def means(self, found: Mapping[str, Array], count: float) -> Row:
        """The loss, aux and the metrics of such sums, the first two divided by count."""
        names = [name for name in found if name.startswith("aux.")]
        row = {name.removeprefix("aux."): float(found[name]) / count for name in ("loss", *names)}
        return row | {m.name: m.result(found[f"metric.{m.name}"]) for m in self.metrics}


class _WithOutput(Cell):
    """A loss that also returns the output, with its aux, if any."""

    def __init__(self, loss: Callable[..., Any]) -> None:
        self.loss = loss

    def construct(self, out: Any, *labels: Any) -> Any:
        who = f"Model's loss function {getattr(self.loss, '__name__', type(self.loss).__name__)}"
        loss, *aux = parted(who, self.loss(out, *labels))
        return loss, (out, aux[0] if aux else {})


class _Evaluated:
    """The function that `evaluate` compiles: the loss, the output of a network, and aux."""

    def __init__(self, net: Cell, loss: Callable[..., Any]) -> None:
        self.net, self.learnt, self.__name__ = net, _WithOutput(loss), "evaluate"

    def __call__(self, x: Any, *labels: Any) -> Any:
        loss, beside = self.learnt.construct(self.net(*inputs_of(x)), *labels)
        return loss, *beside


def _numbers(aux: Any, taken: Set[str]) -> dict[str, float]:
    """Aux as floats by name; MinimlError for anything but a dict of numbers, and for a name that
    the row has for another number."""
    got = f"a {type(aux).__name__}"
    if isinstance(aux, Mapping):
        odd = {k: v for k, v in aux.items() if not isinstance(k, str) or np.size(v) != 1}
        if not odd and taken.isdisjoint(aux):
            return {name: float(value) for name, value in aux.items()}
        key, value = next(iter((odd or {k: v for k, v in aux.items() if k in taken}).items()))
        shape = f"an array of shape {np.shape(value)}" if key in odd else "a name that is taken"
        got = f"a dict with {shape} at {key!r}"
    raise MinimlError(
        f"Model averages the aux of a loss that returns (loss, aux) and puts it into the rows: a "
        f"dict of numbers by names of their own; got {got}; ml.train_step takes any aux, and "
        "returns it as it is"
    )


def _compared(head: Any, out: Any, labels: Sequence[Any]) -> tuple[Array, Array]:
    """An output and its labels, for the metrics of this head."""
    if head is not _ONLY:
        given = labels[0] if len(labels) == 1 else tuple(labels)
        several = isinstance(given, (Mapping, tuple))
        own = _of_head(head, given, "labels are") if several else given
        return _array(_of_head(head, out, "network gives")), _array(own)
    if not isinstance(out, Tensor):
        heads = [*out] if isinstance(out, Mapping) else [*range(len(out))]
        raise MinimlError(
            f"a list of metrics compares one output with labels; the network gives a "
            f"{type(out).__name__}; give a list for each output, as "
            f"metrics={{{', '.join(f'{head!r}: [train.accuracy()]' for head in heads)}}}"
        )
    return _array(out), _array(labels[0])


def _of_head(head: Any, tree: Any, what: str) -> Any:
    """The entry of a dict or tuple for a head; MinimlError if there is none."""
    if isinstance(tree, (Mapping, tuple, list)):
        try:
            return tree[head]
        except (KeyError, IndexError, TypeError):
            pass
    keys = f" of {', '.join(map(repr, tree))}" if isinstance(tree, Mapping) else ""
    size = f" of {len(tree)}" if isinstance(tree, (tuple, list)) else ""
    raise MinimlError(
        f"metrics are given for the output {head!r}; the {what} a {type(tree).__name__}{keys}"
        f"{size}; outputs and labels are dicts with this key, or tuples and it an index"
    )


def _rows_of_inputs(inputs: Any) -> int:
    """The rows of a tree of arrays; ShapeError unless all have equally many."""
    shapes = [array.shape for array in optree.tree_leaves(inputs)]
    rows = {shape[:1] for shape in shapes}
    if len(rows) != 1 or rows == {()}:
        raise ShapeError(
            f"predict got inputs of shapes {shapes}; it takes an array, or a tree of arrays, with "
            "equally many rows on axis 0"
        )
    return int(rows.pop()[0])


def _check_rows(out: Any, rows: int) -> None:
    """ShapeError for an output of a batch that cannot be joined to others by its rows."""
    for leaf in optree.tree_leaves(out):
        if np.shape(leaf)[:1] != (rows,):
            raise ShapeError(
                f"predict got an output of shape {np.shape(leaf)} for a batch of {rows} rows; it "
                "joins batches by the first axis, which has the rows: give batch_size= all rows "
                "of x, or a network whose outputs have the batch first"
            )


@contextmanager
def evaluating(net: Cell) -> Iterator[None]:
    """A block with the network in evaluation mode; after it each layer is in its own mode again."""
    modes = [(cell, cell.training) for cell in net.cells()]
    try:
        net.set_train(False)
        yield
    finally:
        with uninterrupted():
            for cell, mode in modes:
                cell.training = mode


def _array(value: Any) -> Array:
    return value.asnumpy() if isinstance(value, Tensor) else np.asarray(value)


def _check_parts(net: object, loss: object) -> None:
    """MinimlError unless the net is a Cell and the loss a function."""
    if not callable(loss):
        raise MinimlError(
            f"Model got {type(loss).__name__} for the loss; it takes a net, a loss function and "
            "an optimizer"
        )
    if not isinstance(net, Cell):
        raise MinimlError(f"Model got a {type(net).__name__} for the network; give an nn.Cell")


def _both(metrics: Metrics, weighted: Metrics) -> tuple[tuple[Any, ...], tuple[Metric, ...], int]:
    """The heads and their metrics, the weighted ones last, and the number of the others;
    MinimlError for anything but metrics, for two of one name, and for one that takes no weights."""
    plain, last = _by_head("metrics", metrics), _by_head("weighted_metrics", weighted)
    taken = {m.name for _, m in plain}
    for _, metric in last:
        _check_takes_weights(metric)
    last = [
        (head, replace(m, name=f"weighted_{m.name}") if m.name in taken else m) for head, m in last
    ]
    pairs = plain + last
    names = [m.name for _, m in pairs]
    if len({*names, "loss"}) <= len(names):
        raise MinimlError(f"Model got metrics named {names}; names differ, and none is 'loss'")
    return tuple(head for head, _ in pairs), tuple(m for _, m in pairs), len(plain)


def _by_head(name: str, metrics: Metrics) -> list[tuple[Any, Metric]]:
    """Each metric, named as its value, with its head."""
    if not isinstance(metrics, Mapping):
        return [(_ONLY, m) for m in _found(name, metrics)]
    return [
        (head, replace(m, name=f"{head}_{m.name}"))
        for head, listed in metrics.items()
        for m in _found(f"{name}[{head!r}]", listed)
    ]


def _check_takes_weights(metric: Metric) -> None:
    """MinimlError unless its count takes weights as a third argument."""
    try:
        inspect.signature(metric.count).bind(None, None, None)
    except (TypeError, ValueError):
        raise MinimlError(
            f"weighted_metrics got {metric.name!r}, whose count takes no weights; expected "
            "count(output, labels, weights=None), or train.mean(name, values)"
        ) from None


def _found(name: str, metrics: Any) -> list[Metric]:
    """The metrics of a list, those given by name included."""
    if isinstance(metrics, (list, tuple)):
        metrics = [named(m) if isinstance(m, str) else m for m in metrics]
    check_listed(name, metrics, Metric, "train.accuracy()")
    return list(metrics)


# --- Checks of a run ------------------------------------------------------------------------------


def with_weights(
    who: str, data: Any, labels: tuple[Any, ...], weights: Any
) -> tuple[Any, tuple[Any, ...]]:
    """The data and labels with the weights of rows behind them, if there are any; MinimlError for
    data in batches, which have their weights in them."""
    if weights is None:
        return data, labels
    if not labels and not (type(data) is tuple and len(data) > 1):
        raise MinimlError(
            f"{who} got sample_weight beside a {type(data).__name__}; give arrays, as {who}(x, y, "
            "sample_weight=w), or batches (x, y, w) and a loss of nn.SampleWeighted"
        )
    found = weights_of_rows(who, weights)
    if (rows := rows_in((data, *labels) if labels else data)) not in (None, len(found)):
        raise ShapeError(f"{who} got {len(found)} weights for {rows} rows; expected one for each")
    return (data, (*labels, found)) if labels else ((*data, found), ())


def in_batches(
    who: str,
    data: Any,
    labels: tuple[Any, ...],
    batch_size: int | None,
    default: int,
    seed: int | None = None,
    group: Group | None = None,
) -> Any:
    """The data in batches: arrays by a DataLoader, by default of so many rows each; what is in
    batches already as it is, which MinimlError refuses beside labels and a batch_size, and where a
    DataLoader has another group."""
    arrays = isinstance(data, (tuple, Mapping)) or hasattr(data, "__array__")
    if not labels and not arrays:
        if batch_size is not None:
            raise MinimlError(
                f"{who} got batch_size={brief(batch_size)} beside a {type(data).__name__}, which "
                "has batches of its own; give arrays, as (x, y), or leave it out"
            )
        if isinstance(data, DataLoader):
            _check_group(who, data.group, group)
        return data
    if isinstance(data, (DataLoader, Iterator)):
        raise MinimlError(
            f"{who} got a {type(data).__name__} and {len(labels)} more; a series of batches has "
            "the labels in it, and what is beside them goes by keywords, as epochs=3"
        )
    size = count(who, "batch_size", default if batch_size is None else batch_size)
    sources = data if type(data) is tuple and not labels else (data, *labels)
    try:
        loader = DataLoader(*sources, size=1, seed=seed)
    except MinimlError as error:
        error.add_note(f"{who} of arrays, as (x, y), makes a DataLoader of them")
        raise
    loader.size, loader.group = min(size, loader.rows), group
    return loader


def _check_group(who: str, of_data: Group | None, own: Group | None) -> None:
    """MinimlError for a DataLoader whose batches other ranks share than those that train."""
    if of_data is own:
        return
    if own is None:
        raise MinimlError(
            f"{who} got a DataLoader of {of_data}, whose ranks it would train apart; give the "
            "group to the Model as well, as in Model(..., group=group)"
        )
    raise MinimlError(
        f"{who} got a DataLoader of {of_data or 'no group'}, and the Model has {own}: each rank "
        "would learn from all rows of each batch; make it as DataLoader(..., group=group)"
    )


def check_batches(who: str, data: Any, epochs: int) -> None:
    """MinimlError for what is not a series of batches, and for a generator for several epochs."""
    if not hasattr(data, "__iter__"):
        raise MinimlError(
            f"{who} got a {type(data).__name__}, which is neither arrays, as (x, y), nor a series "
            "of batches, as data.DataLoader(x, y, size=64, seed=0)"
        )
    if isinstance(data, Iterator) and epochs > 1:
        raise MinimlError(
            f"{who} got a {type(data).__name__}, which can be read once only, for {epochs} epochs; "
            "give a data.DataLoader, a list, or an object whose __iter__ begins anew"
        )


def check_listed(name: str, values: object, kind: type, example: str) -> None:
    """MinimlError unless the values are a series of objects of that kind."""
    if isinstance(values, (kind, str)) or not isinstance(values, Iterable):
        raise MinimlError(
            f"{name} got a {type(values).__name__}; give a list, as {name}=[{example}]"
        )
    for value in values:
        if isinstance(value, type):
            raise MinimlError(
                f"{name} got the class {value.__name__}; make one: {value.__name__}(...)"
            )
        if not isinstance(value, kind):
            raise MinimlError(
                f"{name} got a {type(value).__name__}; expected a {kind.__name__}, such as "
                f"{example} makes"
            )


def batches_of(data: Iterable[Any]) -> Generator[Any, None, None]:
    """The batches, each checked; must be closed, as a thread may prefetch them."""
    for batch in data:
        yield _checked(batch)


def _checked(batch: Any) -> Any:
    """The batch; MinimlError unless it is (x, *labels)."""
    if isinstance(batch, (tuple, list)) and batch:
        return batch
    raise MinimlError(
        f"a batch is a tuple (x, *labels); got a {type(batch).__name__}; give (x,) where there "
        "are no labels"
    )


def inputs_of(x: Any) -> tuple[Any, ...]:
    """The arguments to call a network with: a plain tuple is several inputs."""
    return x if type(x) is tuple else (x,)


def rows_of(batch: Sequence[Any]) -> int:
    """The rows of a batch (x, *labels) by which evaluate weights it; ShapeError where neither the
    labels nor the inputs agree on them."""
    rows = rows_in(batch)
    if rows is not None:
        return rows
    shapes = [np.shape(leaf) for tree in batch for leaf in leaves(tree)]
    raise ShapeError(
        f"evaluate weights batches with their rows, and got one of shapes {shapes}, in which "
        "neither the labels nor the inputs agree on the extent of axis 0; give the labels with the "
        "rows first"
    )


def check_labels(net: Cell, loss: Callable[..., Any], data: Any) -> None:
    """OutOfRangeError for a label outside the classes of CrossEntropyLoss or NLLLoss, among all
    labels of an array in a DataLoader, or of a list of batches."""
    if not isinstance(loss, (CrossEntropyLoss, NLLLoss)):
        return
    if isinstance(data, DataLoader) and len(data.sources) < 2 and not data.of_tuples:
        raise MinimlError(
            "CrossEntropyLoss compares with labels, and the DataLoader has one source only; give "
            "data.DataLoader(x, labels, size=64), inputs of the network as a tuple"
        )
    found = _all_labels(data)
    if found is None:
        return
    x, labels, extents = found
    scores = trace(net, *inputs_of(x)).outputs[0].abstract.shape
    if len(scores) < 2 or scores[2:] != extents:
        return  # the loss refuses these
    classes = scores[1]
    wrong = (labels < 0) | (labels >= classes)
    if loss.ignore_index is not None:
        wrong &= labels != loss.ignore_index
    if wrong.any():
        row, first = np.argwhere(wrong)[0][0], labels[wrong][0]
        raise OutOfRangeError(
            f"the data hold {int(wrong.sum())} labels outside of the {classes} classes of the "
            f"network, the first in row {row}: {first}; labels are 0 to "
            f"{classes - 1}, and ignore_index= of the loss names one that counts nowhere"
        )


def _all_labels(data: Any) -> tuple[Any, Array, tuple[int, ...]] | None:
    """An input of the network, all labels and the shape of those of one row, if they are integers
    that can be seen at once."""
    if isinstance(data, DataLoader):
        labels = data.sources[1] if len(data.sources) > 1 else None
        if isinstance(labels, np.ndarray) and labels.dtype.kind in "iu":
            return next(data.batches(0))[0], labels, labels.shape[1:]
    elif isinstance(data, list) and data and all(isinstance(b, tuple) and len(b) > 1 for b in data):
        parts = [b[1] for b in data]
        if all(isinstance(p, np.ndarray) and p.dtype.kind in "iu" and p.ndim for p in parts):
            return data[0][0], np.concatenate([np.ravel(p) for p in parts]), parts[0].shape[1:]
    return None
