"""The names of `cupy.cuda.nccl` that a group uses, between threads that are ranks, each of which
has a simulated GPU of its own: the double of cupy with several devices.

A call is checked as NCCL does not: memory is this rank's GPU's, written where it is read and large
enough; the stream is the current one; all ranks make the same call.
"""

from __future__ import annotations

import queue
import threading
from collections import defaultdict
from types import SimpleNamespace
from weakref import WeakKeyDictionary

import numpy as np

import miniml as ml
from tests.device import emucupy

# In the order of nccl.h, from 0.
DTYPES = "int8 uint8 int32 uint32 int64 uint64 float16 float32 float64 bfloat16".split()
OPS = "SUM PROD MAX MIN AVG".split()
ERRORS = {
    2: "NCCL_ERROR_SYSTEM_ERROR: unhandled system error (run with NCCL_DEBUG=INFO for details)",
    5: "NCCL_ERROR_INVALID_USAGE: invalid usage (run with NCCL_DEBUG=WARN for details)",
}
LIMIT = 5.0  # seconds that a rank waits for another: NCCL would for ever


class _OfThread(threading.local):
    """A thread's current GPU, as cupy has it."""

    gpu = 0


_current = _OfThread()


class NcclError(RuntimeError):
    """As cupy has it: the name, a colon, NCCL's words; and the number."""

    def __init__(self, status):
        super().__init__(ERRORS[status])
        self.status = status


class Machine:
    """Several GPUs and NCCL between them, put into a double of cupy.

    calls: (rank, method, count, dtype) of each call. failing: by rank, the status with which its
    next call, or the start, fails; late: of what fails unseen. aborted: the ranks that gave up.
    """

    def __init__(self, cupy, gpus):
        self.calls, self.failing, self.late, self.aborted = [], {}, {}, []
        self._gpu_of, self._lock = WeakKeyDictionary(), threading.Lock()
        self._posts, self._pending = defaultdict(queue.SimpleQueue), threading.local()
        cupy.empty = self._empty
        cupy.cuda.Device = Device
        cupy.cuda.runtime.getDeviceCount = lambda: gpus
        cupy.cuda.nccl = SimpleNamespace(
            available=True,
            NcclError=NcclError,
            NcclCommunicator=lambda size, id, rank: Communicator(self, size, id, rank),
            get_unique_id=lambda: tuple(range(-64, 64)),  # C's chars
            groupStart=lambda: setattr(self._pending, "moves", []),
            groupEnd=self._group_end,
            **{f"NCCL_{name.upper()}": i for i, name in enumerate(DTYPES)},
            **{f"NCCL_{name}": i for i, name in enumerate(OPS)},
        )

    def _empty(self, shape, dtype=np.float32):
        array = emucupy.empty(shape, dtype)
        with self._lock:
            self._gpu_of[array.allocation] = _current.gpu
        return array

    def _found(self, address, nbytes):
        """The allocation of the current GPU that has these bytes, and where in it they begin."""
        with self._lock:
            every = list(self._gpu_of.items())
        for allocation, gpu in every:
            offset = address - allocation.address
            if offset >= 0 and offset + nbytes <= allocation.nbytes:
                assert gpu == _current.gpu, "memory of another GPU"
                return allocation, offset
        raise AssertionError(f"{nbytes} bytes at {address} are no memory of a GPU")

    def read(self, address, nbytes):
        allocation, offset = self._found(address, nbytes)
        assert not allocation.unwritten(offset, nbytes), "memory that nobody has written"
        return allocation.bytes[offset : offset + nbytes].copy()

    def write(self, address, array):
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        allocation, offset = self._found(address, data.size)
        allocation.bytes[offset : offset + data.size] = data
        allocation.mark(offset, data.size, True)

    def post(self, *to, value):
        self._posts[to].put(value)

    def received(self, *by):
        return self._posts[by].get(timeout=LIMIT)

    def within_group(self, first, move):
        """Do it when the group of calls ends: sends first, as all are under way at once."""
        self._pending.moves.append((first, move))

    def _group_end(self):
        moves, self._pending.moves = self._pending.moves, None
        for _, move in sorted(moves, key=lambda m: m[0]):
            move()


class Device(emucupy.Device):
    """One of several, of which each thread has a current one."""

    def __init__(self, number=None):
        self.id = _current.gpu if number is None else number

    @property
    def pci_bus_id(self):
        return f"0000:{self.id:02x}:00.0"

    def use(self):
        _current.gpu = self.id


class Communicator:
    """NCCL's, of one rank."""

    def __init__(self, machine, size, id, rank):
        assert [type(n) for n in id] == [int] * 128
        self._machine, self._size, self._id, self._rank = machine, size, id, rank
        self._fail()
        if len(set(self._every(("start", size), _current.gpu))) < size:
            raise NcclError(5)  # two ranks on a GPU

    def check_async_error(self):
        if self._rank in self._machine.late:
            raise NcclError(self._machine.late[self._rank])

    def abort(self):
        self._machine.aborted.append(self._rank)

    def allReduce(self, send, receive, count, dtype, op, stream):
        parts = self._called("allReduce", send, count, dtype, stream, op)
        self._machine.write(receive, reduced(parts, op))

    def reduce(self, send, receive, count, dtype, op, root, stream):
        parts = self._called("reduce", send, count, dtype, stream, op, root)
        if self._rank == root:
            self._machine.write(receive, reduced(parts, op))

    def reduceScatter(self, send, receive, count, dtype, op, stream):
        parts = self._called("reduceScatter", send, count, dtype, stream, op, times=self._size)
        total = reduced(parts, op)
        self._machine.write(receive, total[self._rank * count : (self._rank + 1) * count])

    def allGather(self, send, receive, count, dtype, stream):
        parts = self._called("allGather", send, count, dtype, stream)
        self._machine.write(receive, np.concatenate(parts))

    def broadcast(self, send, receive, count, dtype, root, stream):
        parts = self._called("broadcast", send, count, dtype, stream, root)
        self._machine.write(receive, parts[root])

    def send(self, at, count, dtype, peer, stream):
        self._noted("send", count, dtype, stream)
        key = self._id, "send", self._rank, peer
        data = (count, dtype), self._machine.read(at, count * kind(dtype).itemsize)
        self._machine.within_group(0, lambda: self._machine.post(*key, value=data))

    def recv(self, at, count, dtype, peer, stream):
        self._noted("recv", count, dtype, stream)

        def move():
            sent, data = self._machine.received(self._id, "send", peer, self._rank)
            assert sent == (count, dtype)
            self._machine.write(at, data)

        self._machine.within_group(1, move)

    def _noted(self, name, count, dtype, stream):
        assert stream == emucupy.current_stream().ptr
        self._fail()
        self._machine.calls.append((self._rank, name, count, DTYPES[dtype]))

    def _called(self, name, send, count, dtype, stream, *options, times=1):
        """What all ranks send, in a call that is the same on all."""
        self._noted(name, count, dtype, stream)
        data = self._machine.read(send, count * times * kind(dtype).itemsize)
        return self._every((name, count, dtype, *options), data.view(kind(dtype)))

    def _every(self, call, data):
        for rank in range(self._size):
            self._machine.post(self._id, "all", self._rank, rank, value=(call, data))
        found = [self._machine.received(self._id, "all", r, self._rank) for r in range(self._size)]
        assert {other for other, _ in found} == {call}
        return [part for _, part in found]

    def _fail(self):
        status = self._machine.failing.get(self._rank)
        if status is not None:
            raise NcclError(status)


def kind(dtype):
    """The dtype of a number of NCCL's."""
    return np.dtype(getattr(ml, DTYPES[dtype]))


def reduced(parts, op):
    """The reduction over ranks; NaN is no maximum, and 16 bits are added in 16 bits, as NCCL has
    it."""
    if OPS[op] == "MAX":
        return np.fmax.reduce(parts)
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return (total / len(parts)).astype(total.dtype) if OPS[op] == "AVG" else total
