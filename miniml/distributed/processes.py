"""Groups of processes: under MPI, by mpi4py; and with a GPU each, by NCCL.

Before any bytes move, the ranks tell each other what they are about to call, in a short message to
each other one that is waited for with a time limit: by it a rank that does something else, has
ended or does not come is named. Data then move by MPI's own collectives, as bytes. A rank that ends
tells the others too.

NCCL (`cupy.cuda.nccl`) moves and adds arrays on "cuda", from GPU to GPU. All that is on the CPU
goes through another group of the same ranks, the host, as that of MPI: arrays of the CPU, the
number by which NCCL finds its ranks, and their agreement on each call before NCCL is called, which
compares nothing and would wait for ever.
"""

from __future__ import annotations

import atexit
import ctypes
import json
import os
import platform
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
import threadpoolctl

from ..backends.group import Group, Pairs, disagreement, ranks_named, said
from ..backends.kernel import Array
from ..backends.machine import get_device
from ..core.dtype import is_float
from ..core.errors import DeviceError, DistributedError, DTypeError

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


# --- GPUs, by NCCL --------------------------------------------------------------------------------

_ID = 128  # numbers of an id
_TOLD = 2048  # bytes in which a rank tells of its GPUs


# --- A GPU for each rank --------------------------------------------------------------------------


def over(host: Group, required: bool) -> Group:
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
