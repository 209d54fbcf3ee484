"""Checks of a run: data are batches, labels classes, weights finite, and files those of the run."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence, Sized
from typing import Any

import numpy as np
import optree

from ..core.errors import CheckpointError, MinimlError, OutOfRangeError, ShapeError
from ..core.files import PathLike, short
from ..core.parameter import Parameter
from ..core.tensor import Array
from ..data import DataLoader
from ..graph.tracing import trace
from ..nn import Cell, NLLLoss


def check_batches(who: str, data: Any, epochs: int) -> None:
    """MinimlError for arrays that are not in batches, and for a generator for several epochs."""
    if isinstance(data, (np.ndarray, tuple)) or not hasattr(data, "__iter__"):
        raise MinimlError(
            f"{who} got a {type(data).__name__}, which is not a series of batches; give "
            "data.DataLoader(x, labels, size=64, seed=0)"
        )
    if isinstance(data, Iterator) and epochs > 1:
        raise MinimlError(
            f"{who} got a {type(data).__name__}, which can be read once only, for {epochs} epochs; "
            "give a data.DataLoader, a list, or an object whose __iter__ begins anew"
        )


def check_listed(name: str, values: object, kind: type, example: str) -> None:
    """MinimlError unless the values are a series of objects of that kind."""
    if isinstance(values, kind) or not isinstance(values, Iterable):
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
    """The rows of a batch (x, *labels): the extent of axis 0 that all leaves of its labels have,
    since a loss is the mean over these; where there are none, or they differ, that of x."""
    x, *labels = batch
    trees: tuple[Any, Any] = tuple(labels), x
    for tree in trees:
        extents = set(_extents(tree))
        if len(extents) == 1:
            return extents.pop()
    shapes = [np.shape(leaf) for tree in (x, *labels) for leaf in _leaves(tree)]
    raise ShapeError(
        f"evaluate weights batches with their rows, and got one of shapes {shapes}, in which "
        "neither the labels nor the inputs agree on the extent of axis 0; give the labels with the "
        "rows first"
    )


def _extents(tree: Any) -> Iterator[int]:
    """The extents of axis 0 of the leaves that have one."""
    return (len(leaf) for leaf in _leaves(tree) if np.shape(leaf))


def _leaves(tree: Any) -> list[Any]:
    return optree.tree_leaves(tree, is_leaf=_is_array)


def _is_array(node: Any) -> bool:
    """True for a list that stands for an array of numbers."""
    first = node
    while isinstance(first, list) and first:
        first = first[0]
    return first is not node and isinstance(first, (int, float, np.number))


def check_labels(net: Cell, loss: Callable[..., Any], data: Any) -> None:
    """OutOfRangeError for a label outside the classes of CrossEntropyLoss or NLLLoss, among all
    labels of an array in a DataLoader, or of a list of batches."""
    if not isinstance(loss, NLLLoss):
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


def is_finite(parameter: Parameter) -> bool:
    """True if all elements are finite: their sum tells, unless it overflows."""
    host = parameter.device == "cpu"
    values = np.asarray(parameter) if host else parameter.asnumpy()
    return bool(np.isfinite(values.sum()) or np.isfinite(values).all())


def manifest(data: Any) -> dict[str, int]:
    """The numbers that identify the data of a run."""
    if not isinstance(data, DataLoader):
        return {}
    seed = -1 if data.seed is None else data.seed
    found = {"data.rows": data.rows, "data.size": data.size, "data.seed": seed}
    return {**found, "data.batches": len(data)}


def check_manifest(path: PathLike, state: Mapping[str, Any], data: Any) -> None:
    """CheckpointError if the loaded state is that of a run on other data."""
    own, batches = manifest(data), len(data) if isinstance(data, Sized) else math.inf
    other = [f"{k} {state[k]} in the file, {v} here" for k, v in own.items() if state[k] != v]
    behind = {key: state[key] for key in ("epoch", "done", "steps")}
    if min(behind.values()) < 0 or behind["done"] > batches:
        other.append(f"{behind} in the file, {batches} batches here")
    if other:
        raise CheckpointError(
            f"{short(path)} is of a run on other data: {', '.join(other)} (seed -1: no "
            "shuffling); give the same DataLoader, or another file; nothing was loaded"
        )
