"""The world, which is the group of all ranks, and the collectives as functions of tensors.

Then the groups: the loop-back one, threads of one process as ranks, for tests, without MPI; that of
processes under MPI, by mpi4py; and with a GPU each, by NCCL.
"""

from __future__ import annotations

import atexit
import ctypes
import json
import os
import platform
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from importlib.util import find_spec
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
import threadpoolctl

from .. import ops
from ..backends.group import (
    Group,
    Pairs,
    Self,
    disagreement,
    join,
    joined,
    ranks_named,
    said,
    thread_is_rank,
)
from ..backends.kernel import Array
from ..backends.selection import get_device
from ..core.abstract import is_float
from ..core.errors import DeviceError, DistributedError, DTypeError
from ..core.options import choice, count, number
from ..core.tensor import Tensor

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
    ranks = launched(_WORLD, limit)
    return join(ranks if chosen == "mpi" else over_gpus(ranks, required=chosen == "nccl"))


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


# --- Processes, by MPI ----------------------------------------------------------------------------

# Before any bytes move, the ranks tell each other what they are about to call, in a short message
# to each other one that is waited for with a time limit: by it a rank that does something else, has
# ended or does not come is named. Data then move by MPI's own collectives, as bytes. A rank that
# ends tells the others too.
_TEXT = 184  # bytes of a call in words
_TAG = 24  # of these messages
_SPIN, _NAP = 0.002, 5e-5  # seconds of busy waiting, and of a pause after that


def launched(name: str, timeout: float) -> Group:
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
            if error is not None and not isinstance(error, DistributedError):
                time.sleep(1)  # the others say what they waited for, and end all
            self._comm.Abort(1)


def _bytes(x: Array) -> Array:
    """The array as bytes, which MPI moves whatever the dtype is."""
    return x.reshape(-1).view(np.uint8)


# --- GPUs, by NCCL --------------------------------------------------------------------------------

# NCCL (`cupy.cuda.nccl`) moves and adds arrays on "cuda", from GPU to GPU. All that is on the CPU
# goes through another group of the same ranks, the host, as that of MPI: arrays of the CPU, the
# number by which NCCL finds its ranks, and their agreement on each call before NCCL is called,
# which compares nothing and would wait for ever.
_ID = 128  # numbers of an id
_TOLD = 2048  # bytes in which a rank tells of its GPUs


# --- A GPU for each rank --------------------------------------------------------------------------


def over_gpus(host: Group, required: bool) -> Group:
    """The ranks of a group, each with a GPU of its own, which becomes cupy's current one.

    Where one of them has none, or no NCCL: DistributedError if it is required, else the group
    itself; on all ranks alike.
    """
    if not required and host.size == 1:
        return host
    seats, refusal = _seats(_told(host, required))
    if not refusal:
        cupy = _cupy()
        cupy.cuda.Device(seats[host.rank].gpu).use()
        return NcclGroup(host, cupy)
    if required:
        raise DistributedError(f"init(backend='nccl'): {refusal}; init(backend='mpi') does without")
    return host


class _Told(NamedTuple):
    """Words of a rank about its GPUs: the bus addresses of those that it sees, or why it has none
    for NCCL."""

    host: str
    gpus: list[str]
    refusal: str


class _Seat(NamedTuple):
    """The GPU of a rank: its number there, and its bus address."""

    host: str
    gpu: int
    bus: str


def _told(host: Group, required: bool) -> list[_Told]:
    """The words of all ranks."""
    gpus, refusal = _found(required)
    own = json.dumps(_Told(platform.node(), gpus, refusal[: _TOLD // 2])).encode()
    padded = np.zeros(_TOLD, np.uint8)
    padded[: len(own)] = np.frombuffer(own, np.uint8)
    every = np.empty((host.size, _TOLD), np.uint8)
    host.gather(padded, every)
    return [_Told(*json.loads(bytes(row).rstrip(b"\0"))) for row in every]


def _found(required: bool) -> tuple[list[str], str]:
    """The bus addresses of the GPUs that cupy sees, and why NCCL cannot be used here. Where it is
    not required, cupy, which takes long to import, is not unless there may be a GPU."""
    if not required and not _may_have_gpu():
        return [], "there is no GPU for cupy"
    try:
        cupy = _cupy()
    except DeviceError as error:
        return [], str(error)
    import cupy.cuda.nccl as nccl

    if not nccl.available:
        return [], "cupy finds no NCCL: pip install nvidia-nccl-cu13, or -cu12 with CUDA 12"
    count = cupy.cuda.runtime.getDeviceCount()
    return [str(cupy.cuda.Device(gpu).pci_bus_id) for gpu in range(count)], ""


def _cupy() -> Any:
    """cupy, where it finds a GPU; DeviceError, with a remedy, if it does not."""
    device: Any = get_device("cuda")
    return device.module


def _may_have_gpu() -> bool:
    """True where cupy and NVIDIA's driver are installed."""
    if "cupy" in sys.modules:
        return True
    try:
        return find_spec("cupy") is not None and bool(ctypes.CDLL("libcuda.so.1"))
    except OSError:
        return False


def _seats(told: Sequence[_Told]) -> tuple[list[_Seat], str]:
    """Each rank's GPU: the ranks of a host take those that they see in turn. And the sentence about
    a rank that has none, or not alone."""
    seats, of_host = list[_Seat](), Counter[str]()
    for rank, (host, gpus, refusal) in enumerate(told):
        if not gpus:
            return [], f"rank {rank} has no GPU for NCCL: {refusal}"
        gpu = of_host[host] % len(gpus)
        of_host[host] += 1
        seats.append(_Seat(host, gpu, gpus[gpu]))
    for first, seat in enumerate(seats):
        same = [r for r, s in enumerate(seats) if (s.host, s.bus) == (seat.host, seat.bus)]
        if same != [first]:
            return [], (
                f"{ranks_named(same)} would share the GPU {seat.bus} of {seat.host!r}, and NCCL "
                "takes one rank for each GPU; start fewer there"
            )
    return seats, ""


# --- The group ------------------------------------------------------------------------------------


class NcclGroup(Group):
    """The ranks of another group, `host`, whose arrays on "cuda" do not pass through it."""

    def __init__(self, host: Group, cupy: Any):
        super().__init__(host.name, host.rank, host.size, host.timeout)
        self._host, self._cupy, self._broken = host, cupy, ""
        self._on_gpu = _OnGpu(self, cupy)

    def direct(self, device: Any) -> _OnGpu | None:
        return self._on_gpu if device.name == "cuda" else None

    def break_at(self, call: str, error: Exception) -> DistributedError:
        """The error for one of NCCL's, after which the group cannot be used."""
        self._broken = (
            f"NCCL failed on rank {self.rank} of {self.name!r} at {call}: {error}; with "
            "NCCL_DEBUG=INFO in the environment it says why"
        )
        return DistributedError(self._broken)

    def agree(self, call: str) -> None:
        if self._broken:
            raise DistributedError(
                f"the group {self.name!r} cannot go on at {call}: {self._broken}"
            )
        self._host.agree(call)

    def gather(self, x: Array, out: Array) -> None:
        self._host.gather(x, out)

    def swap(self, x: Array, out: Array) -> None:
        self._host.swap(x, out)

    def spread(self, x: Array, root: int) -> None:
        self._host.spread(x, root)

    def exchange(self, x: Array, to: int | None, out: Array, source: int | None) -> None:
        self._host.exchange(x, to, out, source)

    def part(self, name: str, members: Sequence[int]) -> Group:
        return NcclGroup(self._host.part(name, members), self._cupy)


class _OnGpu:
    """The collectives of a group on arrays of its GPU, in row-major order: launches on the current
    stream, that nobody waits for.

    Elements that are only moved are moved as bytes, whatever their dtype is.
    """

    def __init__(self, group: NcclGroup, cupy: Any):
        self._group, self._cupy, self._nccl = group, cupy, cupy.cuda.nccl
        own = self._nccl.get_unique_id() if group.rank == 0 else (0,) * _ID
        group.agree("the start of NCCL")
        number = np.array(own, np.int64)
        group.spread(number, 0)
        try:
            self._comm = self._nccl.NcclCommunicator(group.size, tuple(number.tolist()), group.rank)
        except self._nccl.NcclError as error:
            raise group.break_at("its start", error) from error

    def all_reduce(self, x: Any, out: Any, op: str = "sum") -> None:
        if op == "max" and is_float(x.dtype):  # NCCL's maximum of NaN and 1 is 1
            largest = np.empty(x.shape, x.dtype)
            self._group.all_reduce(x.device.to_host(x), largest, op)
            x.device.copy_into(out, largest)
            return
        kind = {"sum": "NCCL_SUM", "mean": "NCCL_AVG", "max": "NCCL_MAX"}[op]
        with self._calling(f"all_reduce {op}", x) as stream:
            self._comm.allReduce(
                _at(x), _at(out), x.size, self._dtype(x), getattr(self._nccl, kind), stream
            )

    def reduce(self, x: Any, out: Any, root: int) -> None:
        with self._calling(f"reduce to {root}", x) as stream:
            if self._group.rank != root:
                out.flat.fill(0)
            self._comm.reduce(
                _at(x), _at(out), x.size, self._dtype(x), self._nccl.NCCL_SUM, root, stream
            )

    def reduce_scatter(self, x: Any, out: Any) -> None:
        with self._calling("reduce_scatter", x) as stream:
            self._comm.reduceScatter(
                _at(x), _at(out), out.size, self._dtype(x), self._nccl.NCCL_SUM, stream
            )

    def all_gather(self, x: Any, out: Any) -> None:
        with self._calling("all_gather", x) as stream:
            self._comm.allGather(_at(x), _at(out), x.nbytes, self._nccl.NCCL_UINT8, stream)

    def broadcast(self, x: Any, out: Any, root: int = 0) -> None:
        with self._calling(f"broadcast from {root}", x) as stream:
            self._comm.broadcast(_at(x), _at(out), x.nbytes, self._nccl.NCCL_UINT8, root, stream)

    def all_to_all(self, x: Any, out: Any) -> None:
        block = x.nbytes // self._group.size
        with self._calling("all_to_all", x) as stream:
            peers = range(self._group.size)
            sends, receives = ([(r, _at(a) + r * block) for r in peers] for a in (x, out))
            self._exchange(sends, receives, block, stream)

    def send_recv(self, x: Any, out: Any, pairs: Pairs) -> None:
        with self._calling(f"send_recv {list(pairs)}", x) as stream:
            rank = self._group.rank
            sends = [(to, _at(x)) for source, to in pairs if source == rank]
            receives = [(source, _at(out)) for source, to in pairs if to == rank]
            if not receives:
                out.flat.fill(0)
            self._exchange(sends, receives, x.nbytes, stream)

    def _exchange(self, sends: Pairs, receives: Pairs, nbytes: int, stream: int) -> None:
        """Send to and receive from ranks, as many bytes each, at addresses; all at once, else those
        that send to each other would both wait."""
        self._nccl.groupStart()
        try:
            for rank, at in sends:
                self._comm.send(at, nbytes, self._nccl.NCCL_UINT8, rank, stream)
            for rank, at in receives:
                self._comm.recv(at, nbytes, self._nccl.NCCL_UINT8, rank, stream)
        finally:
            self._nccl.groupEnd()

    def _dtype(self, x: Any) -> int:
        """NCCL's name for the dtype of what is added up; DTypeError for one that it lacks."""
        found: int | None = getattr(self._nccl, f"NCCL_{x.dtype.name.upper()}", None)
        if found is None:
            raise DTypeError(
                f"NCCL, which adds the arrays of {self._group.name!r} on 'cuda', has no "
                f"{x.dtype.name}; cast it first, as to int32, or compute it with .to('cpu')"
            )
        return found

    @contextmanager
    def _calling(self, call: str, x: Any) -> Iterator[int]:
        """The block of a call of NCCL, with the current stream: all ranks are at it, with arrays of
        a GPU. DistributedError where NCCL refuses it, or has failed before."""
        call = f"{said(call, x)} on cuda"
        self._group.agree(call)
        try:
            self._comm.check_async_error()
            yield self._cupy.cuda.get_current_stream().ptr
        except self._nccl.NcclError as error:
            self._comm.abort()  # launches that wait for others end
            raise self._group.break_at(call, error) from error


def _at(array: Any) -> int:
    """The address of an array on a GPU."""
    address: int = array.flat.data.ptr
    return address
