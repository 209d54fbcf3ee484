"""Groups of ranks: what each can do with arrays, and those that this thread or process has joined.

A Group moves bytes in four ways, which a transport implements; reductions are made of these here,
once for all transports: the ranks' parts are added in the order of the ranks, so that results are
equal on all of them, in every run, whatever moves the bytes. Before they move any, the ranks agree
on the call, so that ranks which do different things end with a sentence instead of wrong numbers.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..core.abstract import DType, float32
from ..core.errors import DistributedError, MinimlError
from ..core.options import integer
from .kernel import Array

_SMALL = 4096  # bytes of which every rank gets all parts, in one move instead of two
Pairs = Sequence[tuple[int, int]]


class Group(ABC):
    """Ranks that compute together, as one of them sees them.

    name: the same on all ranks; programs know the group by it. rank: its own number, from 0. size:
    the number of ranks. The collectives are called by all ranks in the same order, each with arrays
    of one shape and dtype, x in row-major order, and fill `out`. DistributedError, on every rank,
    where ranks call different things, or where one does not come within `timeout` seconds.

    A transport implements `agree`, `gather`, `swap`, `spread` and `exchange`, and `parts` for
    `split`.
    """

    def __init__(self, name: str, rank: int, size: int, timeout: float):
        self.name, self.rank, self.size, self.timeout = name, rank, size, timeout
        self._splits = 0

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy is the group that whoever makes it has joined under this name."""
        return found, ("a copy of a group", self.name, self.size)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, rank {self.rank} of {self.size})"

    # What a transport implements.

    @abstractmethod
    def agree(self, call: str) -> None:
        """Return when all ranks are at this call; DistributedError for another one, or none."""

    @abstractmethod
    def gather(self, x: Array, out: Array) -> None:
        """out[r] = the x of rank r; out has shape (size, *x.shape)."""

    @abstractmethod
    def swap(self, x: Array, out: Array) -> None:
        """out[r] = x[rank] of rank r; both have shape (size, ...)."""

    @abstractmethod
    def spread(self, x: Array, root: int) -> None:
        """x = the x of rank `root`."""

    @abstractmethod
    def exchange(self, x: Array, to: int | None, out: Array, source: int | None) -> None:
        """Send x to one rank and receive out from one, None for nobody."""

    @abstractmethod
    def part(self, name: str, members: Sequence[int]) -> Group:
        """The group of these ranks, of which this is one, in their order."""

    # What kernels call.

    def direct(self, device: Any) -> Any:
        """The collectives below on arrays of this device, where the group has them; None: the
        arrays pass through the host."""
        return None

    def all_reduce(self, x: Array, out: Array, op: str = "sum") -> None:
        """out = the sum, mean or max of x over the ranks."""
        self.agree(said(f"all_reduce {op}", x))
        flat, result = x.reshape(-1), out.reshape(-1)
        if x.nbytes <= _SMALL or self.size <= 2:  # for two ranks that is no more to move
            every = np.empty((self.size, x.size), x.dtype)
            self.gather(flat, every)
            result[:] = in_order(every, op)
            return
        rows = -(-x.size // self.size)  # of each rank; the last one has fewer
        filled = rows * self.size == x.size
        mine = (
            flat if filled else np.concatenate([flat, np.zeros(rows * self.size - x.size, x.dtype)])
        )
        parts = np.empty((self.size, rows), x.dtype)
        self.swap(mine.reshape(parts.shape), parts)
        whole = result.reshape(parts.shape) if filled else np.empty(parts.shape, x.dtype)
        self.gather(in_order(parts, op), whole)
        if not filled:
            result[:] = whole.reshape(-1)[: x.size]

    def reduce(self, x: Array, out: Array, root: int) -> None:
        """out = the sum of x over the ranks on rank `root`, 0 on the others."""
        self.agree(said(f"reduce to {root}", x))
        every = np.empty((self.size, *x.shape), x.dtype)
        self.gather(x, every)
        out[...] = in_order(every, "sum") if self.rank == root else 0

    def reduce_scatter(self, x: Array, out: Array) -> None:
        """out = the sum over the ranks of their blocks `rank` of x."""
        self.agree(said("reduce_scatter", x))
        parts = np.empty((self.size, *out.shape), x.dtype)
        self.swap(x.reshape(parts.shape), parts)
        out[...] = in_order(parts, "sum")

    def all_gather(self, x: Array, out: Array) -> None:
        """out = the x of all ranks, along the first axis."""
        self.agree(said("all_gather", x))
        self.gather(x, out.reshape(self.size, *x.shape))

    def all_to_all(self, x: Array, out: Array) -> None:
        """Block r of out = block `rank` of the x of rank r."""
        self.agree(said("all_to_all", x))
        shape = (self.size, x.shape[0] // self.size, *x.shape[1:])
        self.swap(x.reshape(shape), out.reshape(shape))

    def broadcast(self, x: Array, out: Array, root: int = 0) -> None:
        """out = the x of rank `root`."""
        self.agree(said(f"broadcast from {root}", x))
        if self.rank == root:
            out[...] = x
        self.spread(out, root)

    def send_recv(self, x: Array, out: Array, pairs: Pairs) -> None:
        """out = the x of the rank that sends to this one by one of the pairs (from, to), else 0."""
        self.agree(said(f"send_recv {list(pairs)}", x))
        to = next((to for source, to in pairs if source == self.rank), None)
        source = next((source for source, to in pairs if to == self.rank), None)
        if source is None:
            out[...] = 0
        if to == self.rank:
            out[...] = x
            to = source = None
        self.exchange(x, to, out, source)

    def split(self, color: int, key: int = 0) -> Group:
        """The group of all ranks that give this `color`, in the order of their keys, then ranks.

        All ranks call it; the new group is joined, so that programs find it.
        """
        color, key = integer("split", "color", color), integer("split", "key", key)
        self.agree("split")
        every = np.empty((self.size, 2), np.int64)
        self.gather(np.array([color, key]), every)
        chosen = [(int(k), rank) for rank, (c, k) in enumerate(every) if c == color]
        self._splits += 1
        name = f"{self.name}/{self._splits}:{color}"
        return join(self.part(name, [rank for _, rank in sorted(chosen)]))


def in_order(parts: Array, op: str) -> Array:
    """The sum, mean or max of parts[0], parts[1], ..., taken in this order; floats of 16 bits are
    added in float32."""
    if op == "max":
        largest: Array = np.maximum.reduce(parts, axis=0)
        return largest
    with np.errstate(all="ignore"):
        total = parts[0].astype(_wide(parts.dtype))
        for part in parts[1:]:
            total += part
        if op == "mean":
            total /= len(parts)
    narrowed: Array = total.astype(parts.dtype, copy=False)
    return narrowed


def _wide(dtype: DType) -> DType:
    low = dtype.itemsize == 2 and dtype.kind not in "iu"
    return float32 if low else dtype


def disagreement(name: str, calls: Sequence[str]) -> str:
    """The sentence about ranks that are at different calls; "" if all are at the same."""
    if len(set(calls)) == 1:
        return ""
    at: dict[str, list[int]] = {}
    for rank, call in enumerate(calls):
        at.setdefault(call, []).append(rank)
    listed = "; ".join(f"{ranks_named(ranks)}: {call}" for call, ranks in at.items())
    return (
        f"the ranks of {name!r} do not do the same: {listed}; every rank calls the same "
        "collectives, in the same order, with the same shapes and dtypes"
    )


def ranks_named(ranks: Sequence[int]) -> str:
    """`rank 1`, or `ranks 0, 2`."""
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"


def said(call: str, x: Any) -> str:
    """A call in the words on which ranks agree."""
    return f"{call} of {x.dtype.name}[{', '.join(map(str, x.shape))}]"


# --- The group of one -----------------------------------------------------------------------------


class Self(Group):
    """The group of this process alone, which is always there."""

    def __init__(self, name: str = "self"):
        super().__init__(name, 0, 1, 0.0)

    def agree(self, call: str) -> None:
        pass

    def gather(self, x: Array, out: Array) -> None:
        out[0] = x

    def swap(self, x: Array, out: Array) -> None:
        out[...] = x

    def spread(self, x: Array, root: int) -> None:
        pass

    def exchange(self, x: Array, to: int | None, out: Array, source: int | None) -> None:
        pass

    def part(self, name: str, members: Sequence[int]) -> Group:
        return Self(name)


# --- Groups that have been joined -----------------------------------------------------------------


_of_process: dict[str, Group] = {"self": Self()}


class _OfThread(threading.local):
    """Groups of a thread that is a rank of its own; None in other threads."""

    groups: dict[str, Group] | None = None


_of_thread = _OfThread()


def join(group: Group) -> Group:
    """Have kernels of this process find the group under its name; those of this thread alone where
    it is a rank of its own."""
    groups = _of_process if _of_thread.groups is None else _of_thread.groups
    groups[group.name] = group
    return group


def joined(name: str) -> Group | None:
    """The group that was joined under a name, if there is one."""
    own = _of_thread.groups
    found = None if own is None else own.get(name)
    return _of_process.get(name) if found is None else found


def thread_is_rank(group: Group | None) -> None:
    """Have this thread be a rank, of this group; with None it is part of the process again."""
    _of_thread.groups = None if group is None else {group.name: group}


def of_several(who: str, group: object) -> Group | None:
    """The group; None for one of a single rank, which needs none. MinimlError for what is none."""
    if group is not None and not isinstance(group, Group):
        raise MinimlError(
            f"{who} got group={group!r} of type {type(group).__name__}; give what "
            "ml.distributed.init() returned, or None for this process alone"
        )
    return None if group is None or group.size == 1 else group


def found(who: str, name: str, size: int) -> Group:
    """The group of a call; DistributedError if it was not joined or has another number of ranks."""
    group = joined(name)
    if group is None:
        raise DistributedError(
            f"{who} is for the group {name!r} of {size}, which this process has not joined; call "
            "ml.distributed.init() first"
        )
    if group.size != size:
        raise DistributedError(
            f"{who} was made for {size} ranks, and the group {name!r} has {group.size}; make it "
            f"with size={group.size}"
        )
    return group
