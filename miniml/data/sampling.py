"""Orders of rows for a DataLoader: weighted, stratified and bucketed; and Stream, for samples that
come one after the other.

An order is a function (size of a batch, NumPy generator) that gives the row numbers of an epoch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from ..core.errors import MinimlError, ShapeError, ValueRefusedError
from ..core.hints import Constructed
from ..core.options import count, flag, integer
from ..core.tensor import Array
from .loader import Batches, Sampler, prefetched, stacked

Draw = np.random.Generator


def weighted(weights: Any) -> Sampler:
    """Rows drawn with replacement, as many as there are, with these probabilities (N,) up to a
    factor. For classes as often as each other: `weighted(class_weights(labels)[labels])`.
    ValueRefusedError for a negative one, or all 0."""
    p = np.asarray(weights, np.float64)
    if p.ndim != 1 or not (np.isfinite(p).all() and (p >= 0).all() and p.sum() > 0):
        raise ValueRefusedError(
            f"weighted got weights of shape {p.shape}; expected (N,) finite numbers >= 0, not all 0"
        )
    return partial(_weighted, p / p.sum())


def _weighted(p: Array, size: int, draw: Draw) -> Array:
    return draw.choice(len(p), len(p), p=p)


def class_weights(labels: Any, classes: int | None = None) -> Array:
    """N / (classes * rows of the class), (classes,) of float32, and 0 for one without rows: for
    `weight=` of losses and, by labels, for `weighted`. labels: (N,) ints; classes: by default those
    that there are. ValueRefusedError for a label beyond them.

    >>> class_weights([0, 0, 0, 1]).tolist()
    [0.6666666865348816, 2.0]
    """
    counts = np.bincount(_labels("class_weights", labels), minlength=classes or 0)
    if classes is not None and len(counts) > count("class_weights", "classes", classes):
        raise ValueRefusedError(
            f"class_weights got label {len(counts) - 1} for {classes} classes; labels are 0 to "
            f"{classes - 1}"
        )
    found = counts.sum() / (len(counts) * np.maximum(counts, 1))
    return np.where(counts > 0, found, 0.0).astype(np.float32)


def stratified(labels: Any) -> Sampler:
    """All rows once, shuffled so that each batch has of each class (N,) its share of all rows, up
    to a row or two."""
    return partial(_stratified, np.unique(_labels("stratified", labels), return_inverse=True)[1])


def _stratified(classes: Array, size: int, draw: Draw) -> Array:
    order = draw.permutation(len(classes))
    counts = np.bincount(classes)
    first = draw.random(len(counts))  # where in its stride a class begins
    places = np.empty(len(classes))
    for number in range(len(counts)):
        own = np.flatnonzero(classes[order] == number)
        places[own] = (np.arange(len(own)) + first[number]) / counts[number]
    return order[np.argsort(places, kind="stable")]


def bucketed(lengths: Any, pool: int = 50) -> Sampler:
    """All rows once, those of like length (N,) in a batch: shuffled rows are sorted in pools of
    `pool` batches, and these batches shuffled, so that little is padded. ShapeError for other
    lengths."""
    lengths = np.asarray(lengths)
    if lengths.ndim != 1 or lengths.dtype.kind not in "iuf":
        raise ShapeError(
            f"bucketed got lengths {lengths.dtype}{list(lengths.shape)}; expected (N,) numbers"
        )
    return partial(_bucketed, lengths, count("bucketed", "pool", pool))


def _bucketed(lengths: Array, pool: int, size: int, draw: Draw) -> Array:
    shuffled = draw.permutation(len(lengths))
    pools = np.split(shuffled, range(pool * size, len(lengths), pool * size))
    order = np.concatenate([rows[np.argsort(lengths[rows], kind="stable")] for rows in pools])
    whole = len(order) // size * size  # the rest, a smaller batch, stays last
    batches = draw.permutation(order[:whole].reshape(-1, size))
    return np.concatenate([batches.reshape(-1), order[whole:]])


def _labels(who: str, labels: Any) -> Array:
    found = np.asarray(labels)
    if found.ndim != 1 or found.dtype.kind not in "iu" or found.min(initial=0) < 0:
        raise ShapeError(
            f"{who} got labels {found.dtype}{list(found.shape)}; expected (N,) ints >= 0"
        )
    return found


# --- Streams --------------------------------------------------------------------------------------


class Stream(Constructed):
    """Batches of samples that come one after the other, as from files: for `fit` and loops.

    samples: an iterable that begins anew each time, or a function of the epoch that gives one; a
    sample is a tuple of fields (x, *labels), or x alone. size: samples of a batch. buffer: so many
    samples are held, and one of them drawn in turn by (seed, epoch), which shuffles; 0 keeps the
    order. drop_last, collate and prefetch: as in DataLoader. Each iteration is the next epoch;
    `batches(epoch, start)` reads up to where it starts. MinimlError for what can be read once only.

    >>> stream = Stream(lambda epoch: range(10 * epoch, 10 * epoch + 5), size=2, drop_last=False)
    >>> [x.tolist() for x, in stream.batches(1)]
    [[10, 11], [12, 13], [14]]
    """

    def __init__(
        self,
        samples: Iterable[Any] | Callable[[int], Iterable[Any]],
        *,
        size: int,
        buffer: int = 0,
        seed: int = 0,
        drop_last: bool = True,
        collate: Callable[[list[Any]], Any] | None = None,
        prefetch: int = 0,
    ) -> None:
        if isinstance(samples, Iterator) or not (callable(samples) or hasattr(samples, "__iter__")):
            raise MinimlError(
                f"Stream got a {type(samples).__name__}; give an iterable that begins anew each "
                "time, or a function of the epoch that gives one"
            )
        self.samples, self.collate, self.epoch = samples, collate, 0
        self.size, self.buffer = count("Stream", "size", size), count("Stream", "buffer", buffer, 0)
        self.seed = integer("Stream", "seed", seed, 0, math.inf)
        self.drop_last = flag("Stream", "drop_last", drop_last)
        self.prefetch = count("Stream", "prefetch", prefetch, 0)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        epoch, self.epoch = self.epoch, self.epoch + 1
        return self.batches(epoch)

    def batches(self, epoch: int, start: int = 0) -> Batches:
        """The batches of an epoch, from batch number `start` on."""
        found = self._batches(epoch, start)
        return prefetched(found, self.prefetch) if self.prefetch else found

    def _batches(self, epoch: int, start: int) -> Batches:
        order = self._shuffled(epoch)
        for _ in islice(order, start * self.size):
            pass
        while items := list(islice(order, self.size)):
            if len(items) < self.size and self.drop_last:
                return
            batch = stacked(items) if self.collate is None else self.collate(items)
            yield batch if isinstance(batch, tuple) else (batch,)

    def _shuffled(self, epoch: int) -> Iterator[Any]:
        source = iter(self.samples(epoch) if callable(self.samples) else self.samples)
        held = list(islice(source, self.buffer))
        draw = np.random.default_rng((self.seed, epoch))
        for sample in source if self.buffer else ():
            at = int(draw.integers(len(held)))
            yield held[at]
            held[at] = sample
        draw.shuffle(held)
        yield from held
        yield from source
