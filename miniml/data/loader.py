"""DataLoader: samples, cut into batches of one size, in an order that seed and epoch fix."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from functools import partial
from inspect import signature
from typing import Any

import numpy as np

from ..constructor import Constructed
from ..errors import MinimlError, ShapeError
from ..tensor import Array, Tensor
from .images import Transform
from .prefetch import prefetched

Batches = Generator[tuple[Any, ...], None, None]


class DataLoader(Constructed):
    """Batches of arrays or sequences of equal length: tuples with the same rows of each source.

    sources: arrays, Tensors, tables with `to_numpy`, or anything else with `len` and `[i]`, whose
    items are stacked (a tuple of fields gives a tuple of arrays; those of a single source are the
    batch, so that a dataset of pairs gives (x, y)). A source that is a tuple is several inputs of
    a network: DataLoader((a, b), y, size=32) gives ((a, b), y). size: rows of a batch. seed:
    shuffles, in an order that (seed, epoch) fixes; None keeps the order. drop_last leaves out the
    rows that fill no whole batch, different ones in each epoch: a step is then compiled for one
    shape only.

    transform: called with the first source's rows of a batch and a NumPy Generator, which (seed,
    epoch, number of the batch) fix, gives what takes their place; see `random_crop`. prefetch: a
    thread makes up to so many batches before they are asked for, the same in the same order, while
    the program computes: for sources and transforms that take as long as a step.

    Each iteration is the next epoch, from `epoch` on. `batches` gives any epoch from any batch on,
    so the two numbers are all the state there is. ShapeError for unequal lengths, no rows, or a
    size beyond them.
    """

    def __init__(
        self,
        *sources: Any,
        size: int,
        seed: int | None = None,
        drop_last: bool = True,
        transform: Transform | None = None,
        prefetch: int = 0,
    ) -> None:
        self.sources = tuple(_readable(source) for source in sources)
        self.rows = _rows(self.sources)
        self.of_tuples = len(self.sources) == 1 and _gives_tuples(self.sources[0])
        if not (_is_int(size) and 1 <= size <= self.rows):
            raise ShapeError(
                f"DataLoader got size={size} for {self.rows} rows; expected 1 to {self.rows}"
            )
        for name, value in (("seed", 0 if seed is None else seed), ("prefetch", prefetch)):
            if not (_is_int(value) and value >= 0):
                raise MinimlError(f"DataLoader got {name}={value!r}; expected an int >= 0")
        self.size, self.seed, self.drop_last, self.epoch = size, seed, drop_last, 0
        self.transform, self.prefetch = transform, prefetch
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
        """All rows once, in their own order, those that drop_last leaves out included."""
        return self._ahead(self._cut(np.arange(self.rows), range(-(-self.rows // self.size)), 0))

    def _ahead(self, batches: Batches) -> Batches:
        return prefetched(batches, self.prefetch) if self.prefetch else batches

    def _cut(self, order: Array, numbers: range, epoch: int) -> Batches:
        takes = [_taker(source) for source in self.sources]
        for number in numbers:
            rows = order[number * self.size : (number + 1) * self.size]
            batch = tuple([take(rows) for take in takes])
            if self.of_tuples:
                (batch,) = batch
            if self.transform is None:
                yield batch
            else:
                draw = np.random.default_rng((self.seed or 0, epoch, number))
                yield (self.transform(batch[0], draw), *batch[1:])


def _check_transform(transform: Any) -> None:
    """MinimlError for what cannot be called with rows and a generator."""
    try:
        signature(transform).bind(None, None)
    except ValueError:  # of a function in C that tells nobody what it takes
        return
    except TypeError:
        raise MinimlError(
            f"DataLoader got transform={transform!r}; it is called with a batch of the first "
            "source and a NumPy Generator, as in lambda rows, draw: rows / 255"
        ) from None


def _is_int(value: object) -> bool:
    return isinstance(value, (int, np.integer))


def _readable(source: Any) -> Any:
    """The source as an array, a sequence, or a tuple of these."""
    if isinstance(source, tuple):
        return tuple(_readable(part) for part in source)
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
            "arrays or sequences; what only yields batches goes to fit as it is"
        )
    return source


def _gives_tuples(source: Any) -> bool:
    """True for a sequence whose samples are tuples of fields."""
    return not isinstance(source, (np.ndarray, tuple)) and isinstance(source[0], tuple)


def _rows(sources: tuple[Any, ...]) -> int:
    """The length of all sources; ShapeError unless it is one, and above 0."""
    flat = [part for s in sources for part in (s if isinstance(s, tuple) else (s,))]
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
    """The function that gathers rows of a source."""
    if isinstance(source, np.ndarray):
        if source.flags.c_contiguous:
            return partial(source.take, axis=0)
        return lambda rows: np.ascontiguousarray(source[rows])  # `take` would copy all of it first
    if isinstance(source, tuple):
        takes = [_taker(part) for part in source]
        return lambda rows: tuple([take(rows) for take in takes])
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
