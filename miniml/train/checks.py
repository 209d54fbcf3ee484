"""What a run looks at: that data are batches, labels classes, weights finite, files its own."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sized
from typing import Any

import numpy as np

from ..archive import PathLike, short
from ..data import DataLoader
from ..errors import CheckpointError, MinimlError, OutOfRangeError
from ..graph.function import trace
from ..nn import Cell, NLLLoss
from ..parameter import Parameter
from ..tensor import Array


def check_batches(who: str, data: Any, epochs: int) -> None:
    """MinimlError for arrays that are no batches yet, and for a generator of several epochs."""
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
    """The batches, each checked; to be closed, since a thread may prefetch them."""
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


def check_labels(net: Cell, loss: Callable[..., Any], data: Any) -> None:
    """OutOfRangeError where labels for CrossEntropyLoss or NLLLoss hold one that is no class: all
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
    scores = trace(net, *(x if isinstance(x, tuple) else (x,))).outputs[0].abstract.shape
    if len(scores) < 2 or scores[2:] != extents:
        return  # which the loss refuses
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
    """True if all elements are: mostly seen by their sum, which may overflow."""
    host = parameter.device == "cpu"
    values = np.asarray(parameter) if host else parameter.asnumpy()
    return bool(np.isfinite(values.sum()) or np.isfinite(values).all())


def manifest(data: Any) -> dict[str, int]:
    """The numbers by which the data of a run are known."""
    if not isinstance(data, DataLoader):
        return {}
    seed = -1 if data.seed is None else data.seed
    found = {"data.rows": data.rows, "data.size": data.size, "data.seed": seed}
    return {**found, "data.batches": len(data)}


def check_manifest(path: PathLike, state: Mapping[str, Any], data: Any) -> None:
    """CheckpointError where the state that was loaded is of a run on other data."""
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
