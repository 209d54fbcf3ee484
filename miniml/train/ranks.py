"""Ranks that train together, and what they agree on.

Inside a step: averages, weighted with the rows that each rank has. Between steps: arrays and texts
of all ranks, sums over them, equal weights, and the rank that has a value which is not finite.
Every method that speaks with the others is called by all ranks, in the same order.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
import optree

from .. import ops
from ..backends.group import Group, in_order, ranks_named
from ..core.abstract import DType, wide
from ..core.errors import DistributedError, NonFiniteError
from ..core.parameter import Parameter
from ..core.tensor import Array, Tensor
from ..core.trace import computes_at_once

Held = Sequence[tuple[str, Parameter]]  # parameters with their names


class Ranks:
    """The ranks of a group, of which this is one.

    searching: True while the ranks tell each other, at each average, whether they found a value
    that is not finite.
    """

    def __init__(self, group: Group):
        self.group, self.searching = group, False
        self._equal, self._unit = False, 0.0

    # Inside a step.

    def weight(self, batch: Sequence[Any]) -> float:
        """The weight of this rank's part (x, *labels) of a batch: its rows, by the same unit on all
        ranks; 1 where it has no rows that could be counted. The unit is a power of two, so that it
        changes no bit of an average."""
        rows = rows_in(batch)
        return 1.0 if rows is None else rows / (self._unit or _unit(rows))

    def averaged(self, weighted: Sequence[Tensor], weight: float) -> list[Tensor]:
        """The sum over the ranks of each tensor, which is multiplied by the rank's weight already,
        divided by the sum of the weights; by one collective call for each dtype. Floats of 16 bits
        travel as float32."""
        if self.searching:
            self.heed_others()
        means, by_dtype = list(weighted), dict[DType, list[int]]()
        for i, value in enumerate(weighted):
            if value.size:
                by_dtype.setdefault(wide(value.dtype), []).append(i)
        for dtype, indices in by_dtype.items():
            own = [ops.cast(ops.reshape(weighted[i], (-1,)), dtype) for i in indices]
            flat = ops.concat([*own, ops.full_like(own[0][:1], weight)])
            total = ops.AllReduce("sum", self.group.name, self.group.size)(flat)
            *parts, weights = ops.split(total, tuple([x.size for x in own]) + (1,))
            for i, part in zip(indices, parts):
                mean = ops.cast(part / weights, weighted[i].dtype)
                means[i] = ops.reshape(mean, weighted[i].shape)
        return means

    # Between steps.

    def arrays(self, about: str, own: Any) -> Array:
        """The arrays of all ranks, of one shape and dtype, with an axis of ranks in front."""
        array = np.array(own, order="C")
        self.group.agree(f"{about}, {array.dtype.name}{[*array.shape]}")
        every = np.empty((self.group.size, *array.shape), array.dtype)
        self.group.gather(array, every)
        return every

    def texts(self, about: str, own: str) -> list[str]:
        """The texts of all ranks."""
        data = np.frombuffer(own.encode(), np.uint8)
        lengths = self.arrays(about, np.array([len(data)]))[:, 0]
        padded = np.zeros(lengths.max(), np.uint8)
        padded[: len(data)] = data
        every = self.arrays(about, padded)
        return [bytes(row[:n]).decode() for row, n in zip(every, lengths)]

    def summed(self, about: str, own: Mapping[str, Any]) -> dict[str, Array]:
        """The sums over the ranks of arrays by name, in float64, in the order of the ranks; a name
        that a rank lacks counts as zeros there."""
        if self.group.size == 1:
            return {name: np.asarray(value) for name, value in own.items()}
        shapes: dict[str, list[int]] = {}
        for text in self.texts(about, json.dumps({n: np.shape(v) for n, v in own.items()})):
            shapes |= json.loads(text)
        given = [
            np.ravel(own[n]) if n in own else np.zeros(math.prod(s)) for n, s in shapes.items()
        ]
        total = in_order(self.arrays(about, np.concatenate(given).astype(np.float64)), "sum")
        ends = np.cumsum([part.size for part in given])[:-1]
        return {n: part.reshape(s) for (n, s), part in zip(shapes.items(), np.split(total, ends))}

    def part_of(self, rows: int) -> tuple[int, int]:
        """The first and the last row but one of this rank's part; all of them if there are fewer
        rows than ranks, which is then what each computes."""
        rank, size = self.group.rank, self.group.size
        return (0, rows) if rows < size else (rows * rank // size, rows * (rank + 1) // size)

    def joined(self, about: str, own: Any, rows: int) -> Any:
        """The tree of the parts `part_of` these rows that the ranks have computed, joined along
        the first axis."""
        size = self.group.size
        if rows < size or size == 1:
            return own
        most = -(-rows // size)
        counts = [rows * (r + 1) // size - rows * r // size for r in range(size)]

        def every(part: Array) -> Array:
            padded = np.zeros((most, *part.shape[1:]), part.dtype)
            padded[: len(part)] = part
            found = self.arrays(about, padded)
            return np.concatenate([one[:n] for one, n in zip(found, counts)])

        return optree.tree_map(every, own)

    def check_equal(self, held: Callable[[], Held], batch: Sequence[Any]) -> None:
        """Agree on a unit of rows. DistributedError where ranks begin with other values, or have
        another version of miniml; once, before the first step."""
        if self._equal or not computes_at_once():
            return
        version = sys.modules["miniml"].__version__
        units = self.arrays(f"the first step of miniml {version}", _unit(rows_in(batch) or 1))
        self.compare(
            held(),
            "train_step got",
            "and ranks begin with equal ones; call ml.manual_seed with the same seed on all ranks "
            "before the net is made, or load the same checkpoint",
        )
        self._equal, self._unit = True, float(units[0])

    def compare(self, held: Held, who: str, why: str) -> None:
        """DistributedError that names the first parameter of which the ranks have other values."""
        names, parameters = zip(*held)
        own = np.array([_digest(p.asnumpy()) for p in parameters], np.uint64)
        for name, digests in zip(names, self.arrays(f"hashes of {len(own)} arrays", own).T):
            others = [rank for rank, digest in enumerate(digests) if digest != digests[0]]
            if others:
                raise DistributedError(
                    f"{who} other values of {name} on {ranks_named(others)} than on rank 0, {why}"
                )

    def heed_others(self, error: NonFiniteError | None = None) -> None:
        """Tell the others of this rank's error, if there is one. NonFiniteError, which names the
        rank, where one has found a value that is not finite."""
        found = self.texts("the search for a value that is not finite", str(error or ""))
        for rank, text in enumerate(found):
            if text:
                self.searching = False
                told = NonFiniteError(f"{text} (on rank {rank})")
                own = error is not None and rank == self.group.rank
                told.__notes__ = list(getattr(error, "__notes__", ())) if own else []
                raise told


def rows_in(batch: Sequence[Any]) -> int | None:
    """The rows of a batch (x, *labels): the extent of axis 0 that all leaves of its labels have,
    since a loss is the mean over these; where there are none, or they differ, that of x. None
    where these differ too."""
    x, *labels = batch
    trees: tuple[Any, Any] = tuple(labels), x
    for tree in trees:
        extents = {len(leaf) for leaf in leaves(tree) if np.shape(leaf)}
        if len(extents) == 1:
            return extents.pop()
    return None


def leaves(tree: Any) -> list[Any]:
    """The arrays of a tree of tuples and dicts."""
    return optree.tree_leaves(tree, is_leaf=_is_array)


def _is_array(node: Any) -> bool:
    """True for a list that stands for an array of numbers."""
    first = node
    while isinstance(first, list) and first:
        first = first[0]
    return first is not node and isinstance(first, (int, float, np.number))


def _unit(rows: int) -> float:
    """The power of two that is nearest to this number of rows."""
    return 2.0 ** round(math.log2(max(rows, 1)))


def _digest(array: Array) -> int:
    """64 bits that are equal for equal arrays."""
    text = f"{array.dtype} {array.shape}".encode() + array.tobytes()
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "little")
