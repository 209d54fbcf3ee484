"""The loop-back group: threads of one process as ranks, for tests, without MPI."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextvars import copy_context
from typing import Any, TypeVar

from ..backends.group import Group, disagreement, ranks_named, thread_is_rank
from ..backends.kernel import Array
from ..core.errors import DistributedError
from ..core.options import count, number

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
