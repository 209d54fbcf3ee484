"""DataLoader: batches of one size, in an order fixed by seed and epoch.

In order: the loader; how a batch is made, here or in a worker process; checks of sources; worker
processes; prefetching; orders of rows, weighted, stratified and bucketed, which are functions (size
of a batch, NumPy generator) that give the row numbers of an epoch; and Stream, for samples that
come one after the other.
"""

from __future__ import annotations

import math
import pickle
import random
import signal
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from inspect import signature
from itertools import islice
from multiprocessing import get_context
from queue import SimpleQueue
from threading import Thread
from types import SimpleNamespace
from typing import Any, TypeVar

import numpy as np
import optree

from ..backends.group import Group, of_several
from ..core.access import uninterrupted
from ..core.errors import MinimlError, ShapeError, ValueRefusedError
from ..core.hints import Constructed
from ..core.options import count, flag, integer
from ..core.tensor import Array, Tensor
from .sets import Draw, Transform

__all__ = [
    "DataLoader", "Stream", "bucketed", "class_weights", "minibatches", "stratified", "weighted",
]  # fmt: skip

Batches = Generator[tuple[Any, ...], None, None]
Sampler = Callable[[int, Draw], Array]  # (size, draw): the row numbers of an epoch
T = TypeVar("T")


class DataLoader(Constructed):
    """Batches of arrays or sequences of equal length: tuples with the same rows of each source.

    sources: arrays, Tensors, tables with `to_numpy`, or anything else with `len` and `[i]`, whose
    items are stacked (of a tuple or dict field by field; those of a single source are the
    batch, so that a dataset of pairs gives (x, y)). A source may be a tree of these, tuples and
    dicts: DataLoader((a, b), y, size=32) gives ((a, b), y), for a network of two inputs, and
    DataLoader({"u": a, "v": b}, y, size=32) gives ({"u": a, "v": b}, y). size: rows of a batch.
    seed: shuffles, in an order fixed by (seed, epoch); None keeps the order. drop_last leaves out
    the rows that fill no whole batch, different ones in each epoch: a step is then compiled for one
    shape only.

    sampler: the order of an epoch in place of a shuffled one, as `data.weighted(weights)`,
    `stratified(labels)` or `bucketed(lengths)` give it, or a function (size, generator) of yours.
    collate: makes the batch of a list of samples (the rows of each source as a tuple; of a single
    source its items), where they cannot be stacked: a tuple (x, *labels).

    transform: called with the first source's rows of a batch and a NumPy Generator, fixed by (seed,
    epoch, number of the batch), returns the rows to use instead; see `random_crop`. mix: called
    with the whole batch, then, and such a Generator, returns another one; see `mixup`.

    prefetch: a thread makes up to this many batches ahead, the same in the same order, while the
    program computes. workers: so many processes take items of sources that are no arrays, collate,
    transform and mix, where these take longer than a step; prefetch is then twice as many unless
    given. They are spawned at the first batch, and anew if what they are given, which has to
    pickle, has changed, so a script needs its `if __name__ == "__main__":`; batches stay the same,
    since `np.random` and `random` are seeded for each, too. An error in one is raised here with
    its traceback. They end with the loader, and leave Ctrl-C to this process.

    group: the ranks that share each batch, as `ml.distributed.init()` gives it. size is then that
    of the whole batch, which the ranks divide among them in equal parts, in the order of the rows:
    rank r of n gets the r-th n-th, so that n ranks see together what one sees alone, and training
    may go on with another n. With drop_last=False a last batch that n does not divide is filled up
    with rows from its own beginning, which then count twice. transform and mix see a rank's part,
    with numbers of its own. ValueRefusedError for a size that n does not divide.

    Each iteration is the next epoch, from `epoch` on. `batches` gives any epoch from any batch on,
    so these two numbers are the whole state. ShapeError for unequal lengths and for no rows,
    ValueRefusedError for a size beyond them.
    """

    def __init__(
        self,
        *sources: Any,
        size: int,
        seed: int | None = None,
        drop_last: bool = True,
        transform: Transform | None = None,
        prefetch: int = 0,
        sampler: Sampler | None = None,
        collate: Callable[[list[Any]], Any] | None = None,
        mix: Transform | None = None,
        workers: int = 0,
        group: Group | None = None,
    ) -> None:
        self.sources: tuple[Any, ...] = tuple(
            [optree.tree_map(_as_rows, s, is_leaf=_is_leaf, none_is_leaf=True) for s in sources]
        )
        self.rows = _rows(self.sources)
        one = self.sources[0] if len(self.sources) == 1 else {}
        of_items = not isinstance(one, (np.ndarray, tuple, dict))
        self.of_tuples = of_items and isinstance(one[0], tuple)  # its samples, of fields
        self.size = integer(f"DataLoader of {self.rows} rows", "size", size, 1, self.rows)
        self.seed = None if seed is None else integer("DataLoader", "seed", seed, 0, math.inf)
        self.drop_last = flag("DataLoader", "drop_last", drop_last)
        self.prefetch = count("DataLoader", "prefetch", prefetch, 0)
        self.sampler, self.epoch = sampler, 0
        self.transform, self.collate, self.mix = transform, collate, mix
        for name in ("transform", "mix", "sampler"):
            if getattr(self, name) is not None:
                _check_called(name, getattr(self, name))
        self.workers = count("DataLoader", "workers", workers, 0)
        self._pool: Pool | None = None
        self.group = of_several("DataLoader", group)
        if self.group is not None and self.size % self.group.size:
            raise ValueRefusedError(
                f"DataLoader got size={self.size}, which {self.group.size} ranks cannot divide in "
                f"equal parts; give a multiple of {self.group.size}"
            )
        if workers:
            _pickled(self._making())

    def __repr__(self) -> str:
        return f"DataLoader({self.rows:,} rows, size={self.size}, {len(self):,} batches)"

    def __len__(self) -> int:
        """The number of batches in an epoch."""
        return self.rows // self.size if self.drop_last else -(-self.rows // self.size)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        epoch, self.epoch = self.epoch, self.epoch + 1
        return self.batches(epoch)

    def batches(self, epoch: int, start: int = 0) -> Batches:
        """The batches of an epoch, from batch number `start` on."""
        return self._ahead(self._order(epoch), range(start, len(self)), epoch)

    def _order(self, epoch: int) -> Array:
        order, draw = np.arange(self.rows), np.random.default_rng((self.seed or 0, epoch))
        if self.sampler is not None:
            order = np.asarray(self.sampler(self.size, draw))
            if order.shape != (self.rows,) or order.dtype.kind not in "iu":
                raise ShapeError(
                    f"DataLoader got {order.dtype}{list(order.shape)} from the sampler; expected "
                    f"{self.rows} row numbers, as many as there are rows"
                )
        elif self.seed is not None:
            draw.shuffle(order)
        return order

    def every_row(self) -> Batches:
        """All rows once, in their own order, those that drop_last leaves out included; of a group,
        those of the parts that this rank gets, which differ by a row where they cannot be equal,
        and are left out where they have none."""
        return self._ahead(np.arange(self.rows), range(-(-self.rows // self.size)), 0, False)

    def _ahead(self, order: Array, numbers: range, epoch: int, fills: bool = True) -> Batches:
        """Batches of these numbers, made ahead if that is asked for."""
        calls = self._calls(order, numbers, epoch, fills)
        if not self.workers:
            making = self._making()
            batches = (making(*call) for call in calls)
            return prefetched(batches, self.prefetch) if self.prefetch else batches
        given = _pickled(making := self._making())
        if self._pool is None or self._pool.broken or self._pool.given != given:
            self._pool = Pool(self.workers, making, given)
        return self._pool.made(calls, max(self.prefetch or 2 * self.workers, self.workers))

    def _calls(
        self, order: Array, numbers: range, epoch: int, fills: bool
    ) -> Iterator[tuple[Any, ...]]:
        """The arguments of `Making` for each batch: its rows of arrays, and numbers. fills: equal
        parts for all ranks, with rows that count twice."""
        takes = [_taker(leaf) for leaf in self._leaves()[0]]
        rank, ranks = (0, 1) if self.group is None else (self.group.rank, self.group.size)
        for number in numbers:
            rows = order[number * self.size : (number + 1) * self.size]
            if ranks > 1:
                whole = np.resize(rows, -(-len(rows) // ranks) * ranks) if fills else rows
                rows = np.array_split(whole, ranks)[rank]
                if not len(rows):
                    continue
            yield [take and take(rows) for take in takes], rows, epoch, number * ranks + rank

    def _leaves(self) -> tuple[list[Any], Any]:
        sources: Any = self.sources
        return optree.tree_flatten(sources, is_leaf=_is_leaf, none_is_leaf=True)

    def _making(self) -> Making:
        leaves, spec = self._leaves()
        datasets = [None if isinstance(leaf, np.ndarray) else leaf for leaf in leaves]
        seed = self.seed or 0
        return Making(datasets, spec, self.of_tuples, seed, self.transform, self.collate, self.mix)

    def __getstate__(self) -> dict[str, Any]:
        """Copies and pickles have worker processes of their own."""
        return {**vars(self), "_pool": None}


def minibatches(
    *arrays: Any, size: int, seed: int | None = None, epoch: int = 0, drop_last: bool = True
) -> Iterator[tuple[Array, ...]]:
    """One epoch of `DataLoader(*arrays, size=size, seed=seed, drop_last=drop_last)`, for training
    loops of your own."""
    loader = DataLoader(*map(np.asarray, arrays), size=size, seed=seed, drop_last=drop_last)
    return loader.batches(epoch)


# --- How a batch is made --------------------------------------------------------------------------


@dataclass(frozen=True)
class Making:
    """Makes a batch of rows of arrays, and of items of datasets, which are None for arrays."""

    datasets: list[Any]
    spec: Any
    of_tuples: bool
    seed: int
    transform: Transform | None
    collate: Callable[[list[Any]], Any] | None
    mix: Transform | None

    def __call__(self, given: list[Any], rows: Array, epoch: int, number: int) -> tuple[Any, ...]:
        pairs = zip(given, self.datasets, strict=True)
        items = [part if d is None else [d[int(row)] for row in rows] for part, d in pairs]
        batch = self._collated(items)
        if self.transform is None and self.mix is None:
            return batch
        draw = np.random.default_rng((self.seed, epoch, number))
        if self.transform is not None:
            batch = (self.transform(batch[0], draw), *batch[1:])
        return batch if self.mix is None else _batch("mix", self.mix(batch, draw))

    def _collated(self, leaves: list[Any]) -> tuple[Any, ...]:
        if self.collate is not None:
            samples = [self.spec.unflatten(row) for row in zip(*leaves, strict=True)]
            single = [sample[0] for sample in samples] if len(samples[0]) == 1 else samples
            return _batch("collate", self.collate(single))
        parts = [stacked(leaf) if isinstance(leaf, list) else leaf for leaf in leaves]
        batch: Any = self.spec.unflatten(parts)
        return batch[0] if self.of_tuples else batch  # type: ignore[no-any-return]


def _batch(name: str, batch: Any) -> tuple[Any, ...]:
    """The batch; MinimlError unless it is a tuple."""
    if isinstance(batch, (tuple, list)) and batch:
        return tuple(batch)
    raise MinimlError(
        f"DataLoader got a {type(batch).__name__} from {name}; a batch is a tuple (x, *labels)"
    )


def stacked(items: Sequence[Any]) -> Any:
    """Items of a batch as arrays: of trees of tuples and dicts a tree, an array for each leaf."""
    if not _is_leaf(items[0]):
        spec: Any = optree.tree_structure(items[0], is_leaf=_is_leaf)
        try:
            fields = zip(*map(spec.flatten_up_to, items), strict=True)
        except ValueError as error:
            raise ShapeError(f"DataLoader got items that differ ({error}); give collate=") from None
        return spec.unflatten(map(stacked, fields))
    rows = [np.asarray(item) for item in items]
    shapes = list(dict.fromkeys(row.shape for row in rows))
    if len(shapes) > 1:
        raise ShapeError(
            f"DataLoader got rows of shapes {shapes[0]} and {shapes[1]} for one batch; give rows "
            "of one shape, as data.pad_sequences makes them of sequences, or collate="
        )
    return np.stack(rows)


# --- Checks of sources and of what is called ------------------------------------------------------


_CALLED = {
    "transform": "with a batch of the first source and a NumPy Generator, as in lambda rows, draw: "
    "rows / 255",
    "mix": "with a batch and a NumPy Generator, as data.mixup(10) is",
    "sampler": "with the size of a batch and a NumPy Generator, as data.weighted(weights) is",
}


def _check_called(name: str, function: Any) -> None:
    """MinimlError for what cannot be called with two arguments."""
    try:
        signature(function).bind(None, None)
    except ValueError:  # a C function without a signature
        return
    except TypeError:
        raise MinimlError(
            f"DataLoader got {name}={function!r}; it is called {_CALLED[name]}"
        ) from None


def _pickled(making: Making) -> bytes:
    """A hash of what workers are given, which may change between epochs."""
    found = blake2b()
    try:
        pickle.Pickler(SimpleNamespace(write=found.update)).dump(making)
        return found.digest()
    except Exception as error:
        raise MinimlError(
            f"DataLoader got workers=, and what they need does not pickle ({error}); give "
            "datasets, transforms and functions that are defined at the top of a module"
        ) from None


def _is_leaf(node: Any) -> bool:
    """True for all but tuples and dicts."""
    return not isinstance(node, (tuple, dict)) or hasattr(node, "to_numpy")


def _as_rows(source: Any) -> Any:
    """A leaf as an array or a sequence; MinimlError for what has no rows."""
    if isinstance(source, Tensor):
        return source.asnumpy()
    if isinstance(source, list) and source and isinstance(source[0], (int, float, np.number)):
        return np.asarray(source)
    if hasattr(source, "to_numpy"):
        return source.to_numpy()  # the [i] of a pandas Series is a label, not a row
    has_rows = hasattr(source, "__len__") and hasattr(source, "__getitem__")
    if isinstance(source, Mapping) or not has_rows:
        raise MinimlError(
            f"DataLoader got a {type(source).__name__}, which has no length or no rows; give "
            "arrays or sequences, or tuples and dicts of these; what only yields batches goes to "
            "fit as it is"
        )
    return source


def _rows(sources: Any) -> int:
    """The length of all sources; ShapeError unless they have the same one, above 0."""
    flat = optree.tree_leaves(sources, is_leaf=_is_leaf)
    if any(isinstance(part, np.ndarray) and part.ndim == 0 for part in flat):
        raise ShapeError("DataLoader got an array of shape (), which has no rows")
    lengths = [len(part) for part in flat]
    if len(set(lengths)) > 1:
        raise ShapeError(
            f"DataLoader got sources of {lengths} rows; they need equally many, a row a sample"
        )
    if not sum(lengths):
        raise ShapeError("DataLoader got no rows; give arrays or sequences with at least one")
    return lengths[0]


def _taker(source: Any) -> Callable[[Array], Any] | None:
    """The function that gathers rows of an array; None for a dataset."""
    if not isinstance(source, np.ndarray):
        return None
    if source.flags.c_contiguous:
        return partial(source.take, axis=0)
    return lambda rows: np.ascontiguousarray(source[rows])  # `take` would copy all of it first


# --- Worker processes -----------------------------------------------------------------------------


class Pool:
    """Processes that make batches; they end when this is dropped."""

    def __init__(self, workers: int, making: Making, given: bytes) -> None:
        self.broken, self.given = False, given
        self._executor = ProcessPoolExecutor(
            workers, get_context("spawn"), initializer=_begin, initargs=(making,)
        )

    def made(self, calls: Iterator[tuple[Any, ...]], ahead: int) -> Batches:
        """The batches in their order, at most `ahead` of them before they are taken."""
        waiting: deque[Future[tuple[Any, ...]]] = deque()
        try:
            for call in calls:
                waiting.append(self._submitted(call))
                if len(waiting) >= ahead:
                    yield waiting.popleft().result()
            yield from (future.result() for future in waiting)
        except BrokenProcessPool:
            self.broken = True
            raise MinimlError(
                "a worker process of the DataLoader ended; a script that has workers begins its "
                "work below if __name__ == '__main__':, and memory has to do for all of them"
            ) from None
        finally:
            for future in waiting:
                future.cancel()

    def _submitted(self, call: tuple[Any, ...]) -> Future[tuple[Any, ...]]:
        """A call on its way, which may start a process: one that inherits that Ctrl-C is held."""
        if not hasattr(signal, "pthread_sigmask"):  # Windows inherits nothing
            return self._executor.submit(_made, call)
        held = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT,))
        try:
            return self._executor.submit(_made, call)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, held)


_making: Making  # of a worker process


def _begin(making: Making) -> None:
    global _making
    _making = making


def _made(call: tuple[Any, ...]) -> tuple[Any, ...]:
    """A batch, in a worker process, whose global streams are seeded as the batch is numbered."""
    seeds = np.random.SeedSequence((_making.seed, *call[2:])).generate_state(2)
    np.random.seed(seeds[0])  # noqa: NPY002 - for transforms that draw from it
    random.seed(int(seeds[1]))
    return _making(*call)


# --- Prefetching ----------------------------------------------------------------------------------


def prefetched(items: Iterator[T], ahead: int) -> Generator[T, None, None]:
    """The items in their order, made by a thread, at most `ahead` of them before they are taken.

    An error is raised where its item would be. The thread runs in a copy of the context, is
    started by the first `next`, and has ended when this iterator is exhausted, closed or dropped:
    this waits for an item in the making.
    """
    made: SimpleQueue[tuple[T, None] | tuple[None, BaseException]] = SimpleQueue()
    # A token for each item that may be made. A queue in C: a signal handler that raises inside one
    # of threading's own classes leaves their locks held.
    room: SimpleQueue[bool] = SimpleQueue()
    for _ in range(ahead):
        room.put(True)
    stopped: list[bool] = []

    def make() -> None:
        while room.get() and not stopped:
            try:
                made.put((next(items), None))
            except BaseException as error:
                made.put((None, error))
                return

    thread = Thread(target=copy_context().run, args=(make,), name="miniml prefetch", daemon=True)
    try:
        with uninterrupted():
            thread.start()
        while True:
            item, error = made.get()
            if isinstance(error, StopIteration):
                return
            if error is not None:
                raise error
            room.put(True)
            yield item  # type: ignore[misc]
    finally:
        stopped.append(True)
        room.put(True)
        if thread.is_alive():
            thread.join()


# --- Orders of rows -------------------------------------------------------------------------------


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
