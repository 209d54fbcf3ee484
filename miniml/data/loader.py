"""DataLoader: batches of one size, in an order fixed by seed and epoch; and prefetching."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextvars import copy_context
from functools import partial
from inspect import signature
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

import numpy as np
import optree

from ..backends.group import Group, of_several
from ..core.access import uninterrupted
from ..core.errors import MinimlError, ShapeError, ValueRefusedError
from ..core.hints import Constructed
from ..core.options import count, flag, integer
from ..core.tensor import Array, Tensor
from .sets import Transform

Batches = Generator[tuple[Any, ...], None, None]
T = TypeVar("T")
Made = Callable[[], T]  # returns the item, or raises the error of making it


class DataLoader(Constructed):
    """Batches of arrays or sequences of equal length: tuples with the same rows of each source.

    sources: arrays, Tensors, tables with `to_numpy`, or anything else with `len` and `[i]`, whose
    items are stacked (a tuple of fields gives a tuple of arrays; those of a single source are the
    batch, so that a dataset of pairs gives (x, y)). A source may be a tree of these, tuples and
    dicts: DataLoader((a, b), y, size=32) gives ((a, b), y), for a network of two inputs, and
    DataLoader({"u": a, "v": b}, y, size=32) gives ({"u": a, "v": b}, y). size: rows of a batch.
    seed: shuffles, in an order fixed by (seed, epoch); None keeps the order. drop_last leaves out
    the rows that fill no whole batch, different ones in each epoch: a step is then compiled for one
    shape only.

    transform: called with the first source's rows of a batch and a NumPy Generator, fixed by (seed,
    epoch, number of the batch), returns the rows to use instead; see `random_crop`. prefetch: a
    thread makes up to this many batches ahead, the same in the same order, while the program
    computes: for sources and transforms that take as long as a step.

    group: the ranks that share each batch, as `ml.distributed.init()` gives it. size is then that
    of the whole batch, which the ranks divide among them in equal parts, in the order of the rows:
    rank r of n gets the r-th n-th, so that n ranks see together what one sees alone, and training
    may go on with another n. With drop_last=False a last batch that n does not divide is filled up
    with rows from its own beginning, which then count twice. A transform gets numbers of each
    rank's own. ValueRefusedError for a size that n does not divide.

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
        group: Group | None = None,
    ) -> None:
        self.sources: tuple[Any, ...] = tuple(
            [optree.tree_map(_as_rows, s, is_leaf=_is_leaf, none_is_leaf=True) for s in sources]
        )
        self.rows = _rows(self.sources)
        self.of_tuples = len(self.sources) == 1 and _gives_tuples(self.sources[0])
        self.size = integer(f"DataLoader of {self.rows} rows", "size", size, 1, self.rows)
        self.seed = None if seed is None else integer("DataLoader", "seed", seed, 0, math.inf)
        self.drop_last = flag("DataLoader", "drop_last", drop_last)
        self.prefetch = count("DataLoader", "prefetch", prefetch, 0)
        self.transform, self.epoch = transform, 0
        self.group = of_several("DataLoader", group)
        if self.group is not None and self.size % self.group.size:
            raise ValueRefusedError(
                f"DataLoader got size={self.size}, which {self.group.size} ranks cannot divide in "
                f"equal parts; give a multiple of {self.group.size}"
            )
        if transform is not None:
            _check_transform(transform)

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
        order = np.arange(self.rows)
        if self.seed is not None:
            np.random.default_rng((self.seed, epoch)).shuffle(order)
        return self._ahead(self._cut(order, range(start, len(self)), epoch))

    def every_row(self) -> Batches:
        """All rows once, in their own order, those that drop_last leaves out included; of a group,
        those of the parts that this rank gets."""
        return self._ahead(self._cut(np.arange(self.rows), range(-(-self.rows // self.size)), 0))

    def _own(self, rows: Array) -> Array:
        """The part of a batch that this rank gets."""
        if self.group is None:
            return rows
        each = -(-len(rows) // self.group.size)
        filled = np.resize(rows, each * self.group.size)
        return filled[self.group.rank * each : (self.group.rank + 1) * each]

    def _ahead(self, batches: Batches) -> Batches:
        return prefetched(batches, self.prefetch) if self.prefetch else batches

    def _cut(self, order: Array, numbers: range, epoch: int) -> Batches:
        sources: Any = self.sources
        leaves, spec = optree.tree_flatten(sources, is_leaf=_is_leaf, none_is_leaf=True)
        takes = [_taker(leaf) for leaf in leaves]
        for number in numbers:
            rows = self._own(order[number * self.size : (number + 1) * self.size])
            batch: Any = spec.unflatten([take(rows) for take in takes])
            if self.of_tuples:
                (batch,) = batch
            if self.transform is None:
                yield batch
            else:
                rank = () if self.group is None else (self.group.rank,)
                draw = np.random.default_rng((self.seed or 0, epoch, number, *rank))
                yield (self.transform(batch[0], draw), *batch[1:])


def minibatches(
    *arrays: Any, size: int, seed: int | None = None, epoch: int = 0, drop_last: bool = True
) -> Iterator[tuple[Array, ...]]:
    """One epoch of `DataLoader(*arrays, size=size, seed=seed, drop_last=drop_last)`, for training
    loops of your own."""
    sources = map(np.asarray, arrays)
    return DataLoader(*sources, size=size, seed=seed, drop_last=drop_last).batches(epoch)


def _check_transform(transform: Any) -> None:
    """MinimlError for a transform that cannot be called with rows and a generator."""
    try:
        signature(transform).bind(None, None)
    except ValueError:  # a C function without a signature
        return
    except TypeError:
        raise MinimlError(
            f"DataLoader got transform={transform!r}; it is called with a batch of the first "
            "source and a NumPy Generator, as in lambda rows, draw: rows / 255"
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


def _gives_tuples(source: Any) -> bool:
    """True for a sequence whose samples are tuples of fields."""
    return not isinstance(source, (np.ndarray, tuple, dict)) and isinstance(source[0], tuple)


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


def _taker(source: Any) -> Callable[[Array], Any]:
    """The function that gathers rows of a leaf."""
    if isinstance(source, np.ndarray):
        if source.flags.c_contiguous:
            return partial(source.take, axis=0)
        return lambda rows: np.ascontiguousarray(source[rows])  # `take` would copy all of it first
    return lambda rows: _stacked([source[int(row)] for row in rows])


def _stacked(items: Sequence[Any]) -> Any:
    if isinstance(items[0], tuple):
        return tuple(_stacked(field) for field in zip(*items, strict=True))
    rows = [np.asarray(item) for item in items]
    shapes = list(dict.fromkeys(row.shape for row in rows))
    if len(shapes) > 1:
        raise ShapeError(
            f"DataLoader got rows of shapes {shapes[0]} and {shapes[1]} for one batch; give rows "
            "of one shape, as data.pad_sequences makes them of sequences"
        )
    return np.stack(rows)


# --- Prefetching ----------------------------------------------------------------------------------


def prefetched(items: Iterator[T], ahead: int) -> Generator[T, None, None]:
    """The items in their order, made by a thread, at most `ahead` of them before they are taken.

    An error is raised where its item would be. The thread runs in a copy of the context, is
    started by the first `next`, and has ended when this iterator is exhausted, closed or dropped:
    this waits for an item in the making.
    """
    made: SimpleQueue[Made[T]] = SimpleQueue()
    # A token for each item that may be made. A queue in C: a signal handler that raises inside one
    # of threading's own classes leaves their locks held.
    room: SimpleQueue[bool] = SimpleQueue()
    for _ in range(ahead):
        room.put(True)
    stopped: list[bool] = []

    def make() -> None:
        made_one = True
        while made_one and room.get() and not stopped:
            made_one = _put(items, made)

    thread = Thread(target=copy_context().run, args=(make,), name="miniml prefetch", daemon=True)
    try:
        with uninterrupted():
            thread.start()
        while True:
            try:
                item = made.get()()
            except StopIteration:
                return
            room.put(True)
            yield item
    finally:
        stopped.append(True)
        room.put(True)
        if thread.is_alive():
            thread.join()


def _put(items: Iterator[T], made: SimpleQueue[Made[T]]) -> bool:
    """Make one item, or an error in its place; False after the last."""
    try:
        item = next(items)
    except BaseException as error:
        made.put(_raiser(error))
        return False
    made.put(lambda: item)
    return True


def _raiser(error: BaseException) -> Made[T]:
    def fail() -> T:
        raise error

    return fail
