"""The world, which is the group of all ranks, and the collectives as functions of tensors.

Last the loop-back group: threads of one process as ranks, for tests, without MPI.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Sequence
from contextvars import copy_context
from typing import Any, Literal, TypeVar

from .. import ops
from ..backends.group import Group, Self, disagreement, join, joined, ranks_named, thread_is_rank
from ..backends.kernel import Array
from ..core.errors import DistributedError
from ..core.options import choice, count, number
from ..core.tensor import Tensor
from . import processes

_WORLD = "world"
_BACKENDS = ("auto", "nccl", "mpi", "self")
# What launchers of MPI set: Hydra (MPICH, Intel MPI) and srun with PMI, Open MPI, PMIx.
_LAUNCHED = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK")


def init(backend: Literal["auto", "nccl", "mpi", "self"] = "auto", timeout: float = 300.0) -> Group:
    """Join the group of all ranks, and return it. Called again, it returns the same group.

    backend: "mpi" for processes that `mpiexec -n 2 python -m mpi4py train.py` starts, by mpi4py;
    "nccl" for such processes that have a GPU each, where arrays on "cuda" go from GPU to GPU by the
    NCCL of cupy, and arrays of the CPU by MPI; "self" for a group of one, this process; "auto" is,
    where a launcher of MPI has started the process, "nccl" if every rank finds cupy, NCCL and a GPU
    of its own, and else "mpi"; without one it is "self". timeout: the seconds that a rank waits for
    the others in a collective before it raises DistributedError, which names those that have not
    come. DistributedError too where mpi4py, an MPI library or what NCCL needs is missing.
    """
    chosen = choice("init", "backend", backend, _BACKENDS)
    limit = number("init", "timeout", timeout, above=0)
    known = joined(_WORLD)
    if known is not None:
        return known
    if chosen == "self" or (chosen == "auto" and not _launched()):
        return join(Self(_WORLD))
    ranks = processes.world(_WORLD, limit)
    return join(ranks if chosen == "mpi" else processes.over(ranks, required=chosen == "nccl"))


def _launched() -> bool:
    """True in a process that a launcher of MPI has started, or that uses MPI already."""
    return "mpi4py.MPI" in sys.modules or any(name in os.environ for name in _LAUNCHED)


def world() -> Group:
    """The group of all ranks; `init()` is called if it has not been."""
    return joined(_WORLD) or init()


def rank() -> int:
    """The number of this rank in the world, from 0."""
    return world().rank


def size() -> int:
    """The number of ranks in the world."""
    return world().size


# --- Collectives ----------------------------------------------------------------------------------


def all_reduce(
    x: Any, op: Literal["sum", "mean", "max"] = "sum", group: Group | None = None
) -> Tensor:
    """The sum of x over all ranks, on every rank; or the mean, or the maximum.

    x has the same shape and dtype on all ranks. The terms are added in the order of the ranks, so
    the result is the same on every rank and in every run, to the bit; by NCCL in an order of its
    own. The gradient that arrives at x is the sum (the mean) of those that arrive at the results of
    all ranks; of a maximum it goes to the rank that has it. group: by default the world.

    >>> all_reduce([1.0, 2.0]).tolist()  # alone
    [1.0, 2.0]
    """
    return ops.AllReduce(op, *_named("all_reduce", group))(x)


def all_gather(x: Any, group: Group | None = None) -> Tensor:
    """The x of all ranks, of shape (n, ...) each, as one tensor of shape (n * size, ...), in the
    order of the ranks. Its gradient is `reduce_scatter`."""
    return ops.AllGather(*_named("all_gather", group))(x)


def reduce_scatter(x: Any, group: Group | None = None) -> Tensor:
    """The sum of x over all ranks, of which rank r keeps the r-th of `size` equal blocks of the
    first axis. ShapeError where that has no such blocks. Its gradient is `all_gather`."""
    return ops.ReduceScatter(*_named("reduce_scatter", group))(x)


def broadcast(x: Any, root: int = 0, group: Group | None = None) -> Tensor:
    """The x of rank `root`, on every rank; the others give one of the same shape and dtype. The
    gradient is the sum over the ranks on `root`, and zeros on the others."""
    return ops.Broadcast(root, *_named("broadcast", group))(x)


def all_to_all(x: Any, group: Group | None = None) -> Tensor:
    """The blocks that the ranks sent to this one, in their order: block r of the first axis of x
    goes to rank r. Its gradient is an `all_to_all` too."""
    return ops.AllToAll(*_named("all_to_all", group))(x)


def send_recv(x: Any, pairs: Sequence[tuple[int, int]], group: Group | None = None) -> Tensor:
    """The x of the rank that sends to this one, of the same shape; zeros where none does.

    pairs: (from, to) of all that send, the same on every rank, each of which sends at most once and
    receives at most once: [(0, 1), (1, 2)] is a pipeline of three, [(0, 1), (1, 0)] swaps. The
    gradient goes the other way.
    """
    listed: Any = pairs
    return ops.SendRecv(listed, *_named("send_recv", group))(x)


def _named(who: str, group: Group | None) -> tuple[str, int]:
    """The name and the size of a group, by default of the world."""
    chosen = world() if group is None else group
    if not isinstance(chosen, Group):
        raise DistributedError(
            f"{who} got {group!r} of type {type(group).__name__} as its group; give what "
            "ml.distributed.init() or group.split() returned, or None for the world"
        )
    return chosen.name, chosen.size


# --- Threads of one process as ranks --------------------------------------------------------------

R = TypeVar("R")


def loopback(fn: Callable[[Group], R], size: int, timeout: float = 60.0) -> list[R]:
    """[fn(group) of rank 0, of rank 1, ...], each computed by a thread that is this rank.

    In it the group is the world, so that code for MPI runs as it is. A rank that raises, ends early
    or does something else than the others ends all of them; the first error is raised here, with a
    note of its rank. timeout: the seconds that a rank waits in a collective for the others.

    The threads share the process: parameters that a step writes must be each rank's own, and a step
    that draws random numbers writes the generator that all share, so it needs real processes.

    >>> from miniml import distributed
    >>> loopback(lambda group: distributed.all_reduce(float(group.rank)).item(), 3)
    [3.0, 3.0, 3.0]
    """
    size, limit = count("loopback", "size", size), number("loopback", "timeout", timeout, above=0)
    meeting = _Meeting(range(size))
    results: list[Any] = [None] * size
    errors: dict[int, BaseException] = {}

    def run(rank: int) -> None:
        thread_is_rank(group := Loopback("world", rank, meeting, limit))
        try:
            results[rank] = fn(group)
            meeting.leave(rank, "has ended")
        except BaseException as error:
            errors[rank] = error
            meeting.leave(rank, f"raised {type(error).__name__}: {error}")

    threads = [
        threading.Thread(target=copy_context().run, args=(run, rank), name=f"rank {rank}")
        for rank in range(size)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        rank = min(errors, key=lambda r: (isinstance(errors[r], DistributedError), r))
        errors[rank].add_note(f"on rank {rank} of {size} of a loop-back group")
        raise errors[rank]
    return results


class Loopback(Group):
    """One rank of a group of threads."""

    def __init__(self, name: str, rank: int, meeting: _Meeting, timeout: float):
        super().__init__(name, rank, len(meeting.members), timeout)
        self._meeting, self._call = meeting, ""

    def agree(self, call: str) -> None:
        self._call = call
        different = disagreement(self.name, self._all(call))
        if different:
            raise DistributedError(different)

    def _all(self, value: Any) -> Sequence[Any]:
        """The values that all ranks bring to this meeting, in their order."""
        return self._meeting.meet(self.rank, value, self)

    def gather(self, x: Array, out: Array) -> None:
        for rank, part in enumerate(self._all(x.copy())):
            out[rank] = part

    def swap(self, x: Array, out: Array) -> None:
        for rank, parts in enumerate(self._all(x.copy())):
            out[rank] = parts[self.rank]

    def spread(self, x: Array, root: int) -> None:
        x[...] = self._all(x.copy() if self.rank == root else None)[root]

    def exchange(self, x: Array, to: int | None, out: Array, source: int | None) -> None:
        every = self._all(None if to is None else x.copy())
        if source is not None:
            out[...] = every[source]

    def part(self, name: str, members: Sequence[int]) -> Group:
        meetings = self._all(_Meeting([self._meeting.members[r] for r in members], self._meeting))
        return Loopback(name, members.index(self.rank), meetings[members[0]], self.timeout)

    def waited(self, missing: Sequence[int]) -> str:
        """The sentence about ranks that have not come in time."""
        return (
            f"rank {self.rank} of {self.name!r} waited {self.timeout:g} s at {self._call} for "
            f"{ranks_named(missing)}; a rank that is only slow needs a longer timeout"
        )


class _Meeting:
    """The place where the threads of a group meet: each brings a value and gets those of all.

    members: the threads' ranks in the world. world: the meeting of all of them, with which it
    shares what is known of those who have left.
    """

    def __init__(self, members: Sequence[int], world: _Meeting | None = None):
        self.members = members
        self._left: dict[int, str] = {} if world is None else world._left
        self._changed: threading.Condition
        self._changed = threading.Condition() if world is None else world._changed
        self._came: dict[int, Any] = {}
        self._values: list[Any] = []
        self._number = 0

    def leave(self, member: int, why: str) -> None:
        """A member of the world will not come again."""
        with self._changed:
            self._left[member] = why
            self._changed.notify_all()

    def meet(self, rank: int, value: Any, group: Loopback) -> Sequence[Any]:
        with self._changed:
            number = self._number
            self._came[rank] = value
            if len(self._came) == len(self.members):
                self._values = [self._came[r] for r in range(len(self.members))]
                self._came, self._number = {}, number + 1
                self._changed.notify_all()
                return self._values
            self._changed.wait_for(lambda: self._number != number or self._gone(), group.timeout)
            if self._number != number:
                return self._values
            gone = self._gone()
            if gone:
                raise DistributedError(
                    f"{'; '.join(gone)}, while rank {group.rank} of {group.name!r} is at "
                    f"{group._call}"
                )
            raise DistributedError(
                group.waited([r for r in range(len(self.members)) if r not in self._came])
            )

    def _gone(self) -> list[str]:
        """A sentence about each member that has left."""
        left = self._left
        return [f"rank {r} {left[m]}" for r, m in enumerate(self.members) if m in left]
