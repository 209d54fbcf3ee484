"""Groups of processes under MPI, by mpi4py.

Before any bytes move, the ranks tell each other what they are about to call, in a short message to
each other one that is waited for with a time limit: by it a rank that does something else, has
ended or does not come is named. Data then move by MPI's own collectives, as bytes. A rank that ends
tells the others too.
"""

from __future__ import annotations

import atexit
import os
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import threadpoolctl

from ..backends.group import Group, disagreement, ranks_named
from ..backends.kernel import Array
from ..core.errors import DistributedError

_TEXT = 184  # bytes of a call in words
_TAG = 24  # of these messages
_SPIN, _NAP = 0.002, 5e-5  # seconds of busy waiting, and of a pause after that


def world(name: str, timeout: float) -> Group:
    """The group of all processes of this launch; DistributedError without mpi4py or MPI."""
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:  # RuntimeError: there is no MPI library
        raise DistributedError(
            f"init needs mpi4py and an MPI library ({error}); pip install 'miniml[mpi]' has both, "
            'and init("self") does without'
        ) from None
    group = MpiGroup(name, MPI.COMM_WORLD.Dup(), MPI, timeout)
    _share_cores(MPI.COMM_WORLD.Split_type(MPI.COMM_TYPE_SHARED))
    atexit.register(group.leave)
    return group


def _share_cores(host: Any) -> None:
    """Divide the CPUs that several ranks of a host may use among these, each with threads for its
    own alone. Nothing where the launcher has bound the ranks, or OMP_NUM_THREADS says how many
    threads there are; ranks that are more than the CPUs share them, with a thread each."""
    if "OMP_NUM_THREADS" in os.environ or not hasattr(os, "sched_setaffinity"):
        return
    mine = sorted(os.sched_getaffinity(0))
    sharing = [rank for rank, cores in enumerate(host.allgather(mine)) if cores == mine]
    if len(sharing) == 1:
        return
    each, place = len(mine) // len(sharing), sharing.index(host.Get_rank())
    if each:
        os.sched_setaffinity(0, mine[place * each : (place + 1) * each])
    threadpoolctl.threadpool_limits(max(each, 1))


class MpiGroup(Group):
    """The ranks of an MPI communicator."""

    def __init__(self, name: str, comm: Any, mpi: Any, timeout: float):
        super().__init__(name, comm.Get_rank(), comm.Get_size(), timeout)
        self._comm, self._mpi = comm, mpi
        self._count = 0
        self._broken = ""
        self._others = [rank for rank in range(self.size) if rank != self.rank]
        self._said = np.zeros(8 + _TEXT, np.uint8)
        self._heard = np.zeros((self.size, 8 + _TEXT), np.uint8)
        self._receives = [comm.Recv_init(self._heard[r], r, _TAG) for r in self._others]
        self._sends = [comm.Send_init(self._said, r, _TAG) for r in self._others]

    def agree(self, call: str) -> None:
        if self._broken:
            raise DistributedError(
                f"the group {self.name!r} cannot go on at {call}: {self._broken}"
            )
        self._count += 1
        self._broken = f"{call} was interrupted"  # until it has ended
        self._broken = self._late(call) or disagreement(self.name, self._calls())
        if self._broken:
            raise DistributedError(self._broken)

    def _late(self, call: str) -> str:
        """Exchange the calls that the ranks are at. The sentence about those that do not come
        within `timeout` seconds; "" if all do."""
        self._said[:8].view(np.int64)[0] = self._count
        text = call.encode()[:_TEXT]
        self._said[8:] = 0
        self._said[8 : 8 + len(text)] = np.frombuffer(text, np.uint8)
        requests = [*self._receives, *self._sends]
        self._mpi.Prequest.Startall(requests)
        begun = time.monotonic()
        while not self._mpi.Request.Testall(requests):
            waited = time.monotonic() - begun
            if waited > self.timeout:
                missing = [r for r, q in zip(self._others, self._receives) if not q.Test()]
                return (
                    f"rank {self.rank} of {self.name!r} waited {self.timeout:g} s at {call} for "
                    f"{ranks_named(missing)}; a rank that is only slow needs "
                    "ml.distributed.init(timeout=...)"
                )
            if waited > _SPIN:
                time.sleep(_NAP)
        return ""

    def _calls(self) -> list[str]:
        """The calls of all ranks in words; with its number where that is not this rank's."""
        self._heard[self.rank] = self._said
        if (self._heard == self._said).all():
            return [""]
        numbers = self._heard[:, :8].copy().view(np.int64)[:, 0]
        texts = [bytes(row[8:]).rstrip(b"\0").decode(errors="replace") for row in self._heard]
        return [
            text if n == self._count else f"{text} (its call {n}, not {self._count})"
            for n, text in zip(numbers, texts)
        ]

    def gather(self, x: Array, out: Array) -> None:
        self._comm.Allgather(_bytes(x), _bytes(out))

    def swap(self, x: Array, out: Array) -> None:
        self._comm.Alltoall(_bytes(x), _bytes(out))

    def spread(self, x: Array, root: int) -> None:
        self._comm.Bcast(_bytes(x), root)

    def exchange(self, x: Array, to: int | None, out: Array, source: int | None) -> None:
        nobody = self._mpi.PROC_NULL
        self._comm.Sendrecv(
            _bytes(x), nobody if to is None else to, 0,
            _bytes(out), nobody if source is None else source, 0,
        )  # fmt: skip

    def part(self, name: str, members: Sequence[int]) -> Group:
        of = self._comm.Get_group().Incl(list(members))
        return MpiGroup(name, self._comm.Create_group(of), self._mpi, self.timeout)

    def leave(self) -> None:
        """At the end of the process: tell the others, so that none of them waits for it."""
        error: Any = getattr(sys, "last_value", None)
        try:
            if not self._broken:
                raised = f"raised {type(error).__name__}: {error}"
                self.agree("has ended" if error is None else raised)
        except DistributedError as different:
            if error is None:
                print(f"rank {self.rank}: {different}", file=sys.stderr, flush=True)
        if self._broken:  # MPI would wait for the others, who may never come
            self._comm.Abort(1)


def _bytes(x: Array) -> Array:
    """The array as bytes, which MPI moves whatever the dtype is."""
    return x.reshape(-1).view(np.uint8)
