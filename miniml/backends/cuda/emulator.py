"""An emulation of cupy on the CUDA simulator: the part that the CUDA backend uses, see its tests.

Parts: arrays; streams, events and graphs; modules and kernels; the device, its memory pool and the
namespace `cuda`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import replace
from math import prod
from types import SimpleNamespace
from typing import Any
from weakref import ref

import numpy as np

from .array import Sized
from .failures import MAX_THREADS
from .sim import memory
from .sim.memory import DeviceAllocation, current
from .sim.module import DYNAMIC_SHARED, Module, Pointer, SimKernel

# --- Arrays ---------------------------------------------------------------------------------------


Shape = int | Sequence[int]


class MemoryPointer:
    """An address in the simulator's memory that an ndarray may be made at, as in cupy."""

    def __init__(self, allocation: DeviceAllocation):
        self._allocation = allocation
        self.ptr = allocation.address


class ndarray(Sized):
    """A C-contiguous array in the simulator's device memory; memptr: in existing memory."""

    __slots__ = ("_allocation", "_offset", "shape", "dtype", "__weakref__")

    def __init__(
        self,
        shape: Shape,
        dtype: Any = np.float32,
        memptr: MemoryPointer | None = None,
        *,
        _allocation: DeviceAllocation | None = None,
        _offset: int = 0,
    ):
        self.shape = (shape,) if isinstance(shape, int) else tuple(int(n) for n in shape)
        self.dtype = np.dtype(dtype)
        if memptr is not None:
            _allocation = memptr._allocation
            if self.nbytes > _allocation.nbytes:
                raise ValueError(f"{self.nbytes} bytes do not fit {_allocation.nbytes} of memory")
        if _allocation is None:
            current_stream()._forbid("an allocation")
            _allocation = DeviceAllocation(self.nbytes)
        self._allocation = _allocation
        self._offset = _offset

    @property
    def data(self) -> Any:
        """data.ptr is the address of the first element, 0 if there is none."""
        return SimpleNamespace(ptr=self._allocation.address + self._offset if self.size else 0)

    def reshape(self, *shape: Any) -> ndarray:
        """The elements in another shape of equal size; one extent may be -1."""
        asked = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
        return self._as(np.empty(self.shape, np.bool_).reshape(asked).shape, self.dtype, 0)

    def view(self, dtype: Any) -> ndarray:
        """A view of the bytes as elements of another dtype; the last axis changes with its size."""
        target = np.dtype(dtype)
        if target.itemsize == self.itemsize:
            return self._as(self.shape, target, 0)
        last, left = divmod((self.shape[-1] if self.shape else 1) * self.itemsize, target.itemsize)
        if left or not self.shape:
            raise ValueError(
                f"{self.shape} elements of {self.dtype} are not whole ones of {target}"
            )
        return self._as((*self.shape[:-1], last), target, 0)

    def __getitem__(self, index: Any) -> ndarray:
        """Consecutive entries of the first axis: a slice without step, an integer, or `...`."""
        if index is Ellipsis:
            return self
        if not self.shape:
            raise IndexError("an array without axes has no entries to choose from")
        row = prod(self.shape[1:]) * self.itemsize
        if isinstance(index, slice):
            start, stop, step = index.indices(self.shape[0])
            if step != 1:
                raise ValueError("the simulator's arrays are contiguous: slices have no step")
            return self._as((max(stop - start, 0), *self.shape[1:]), self.dtype, start * row)
        start = range(self.shape[0])[index]
        return self._as(self.shape[1:], self.dtype, start * row)

    def __setitem__(self, index: Any, value: Any) -> None:
        """Copy from another device array of that shape, or fill with a number."""
        target = self[index]
        if not isinstance(value, ndarray):
            target.fill(value)
            return
        if value.shape != target.shape or value.dtype != target.dtype:
            raise ValueError(
                f"{value.shape} {value.dtype} do not fit {target.shape} {target.dtype}"
            )
        current_stream().synchronize()
        target._bytes()[...] = value._bytes()
        known = value._allocation.initialised
        own = target._allocation.initialised
        if own is not None:
            here = slice(target._offset, target._offset + target.nbytes)
            own[here] = True if known is None else known[value._offset :][: value.nbytes]

    def get(self, stream: Any = None) -> Any:
        """A NumPy array with the contents, after all launches of the stream."""
        (stream or current_stream()).synchronize()
        return self._bytes().copy().view(self.dtype).reshape(self.shape)

    def set(self, array: Any, stream: Any = None) -> None:
        """Copy in a NumPy array of this shape and dtype."""
        array = np.asarray(array)
        if array.shape != self.shape or array.dtype != self.dtype:
            raise ValueError(f"{array.shape} {array.dtype} do not fit {self.shape} {self.dtype}")
        (stream or current_stream()).synchronize()
        self._host()[...] = array
        self._allocation.mark(self._offset, self.nbytes, True)

    def fill(self, value: Any) -> None:
        """Set every element to a number."""
        current_stream().synchronize()
        self._host()[...] = value
        self._allocation.mark(self._offset, self.nbytes, True)

    def copy(self) -> ndarray:
        """The elements in memory of their own."""
        copied = ndarray(self.shape, self.dtype)
        copied[...] = self
        return copied

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of an array without axes")
        return self.shape[0]

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError("a device array does not become a NumPy array by itself; use .get()")

    def _as(self, shape: tuple[int, ...], dtype: Any, offset: int) -> ndarray:
        return ndarray(shape, dtype, _allocation=self._allocation, _offset=self._offset + offset)

    def _bytes(self) -> Any:
        return self._allocation.bytes[self._offset : self._offset + self.nbytes]

    def _host(self) -> Any:
        return self._bytes().view(self.dtype).reshape(self.shape)

    def _pointer(self) -> Pointer:
        return Pointer(self._allocation, self._offset, self.nbytes, self.dtype)


def forget(array: ndarray) -> None:
    """Reset reused memory to poison that counts as uninitialised.

    Not in cupy: called before each launch of a kernel that device.Watched wraps.
    """
    array._allocation.forget(array._offset, array.nbytes)


def unwritten(array: ndarray) -> int:
    """The number of bytes not written since they were allocated or forgotten (check mode).

    Not in cupy: shows whether a kernel has filled its outputs.
    """
    return array._allocation.unwritten(array._offset, array.nbytes)


def empty(shape: Shape, dtype: Any = np.float32) -> ndarray:
    """Device memory full of NaN poison, which counts as uninitialised."""
    return ndarray(shape, dtype)


def zeros(shape: Shape, dtype: Any = np.float32) -> ndarray:
    """Device memory full of zeros."""
    array = ndarray(shape, dtype)
    array.fill(0)
    return array


def asarray(array: Any, dtype: Any = None) -> ndarray:
    """A copy of a NumPy array in device memory; a device array as it is."""
    if isinstance(array, ndarray):
        return array
    host = np.ascontiguousarray(array, dtype).reshape(np.shape(array))
    device = ndarray(host.shape, host.dtype)
    device.set(host)
    return device


# --- Streams, events and graphs -------------------------------------------------------------------


Launch = Callable[[], None]


class CUDARuntimeError(RuntimeError):
    """cupy's exception for errors of the CUDA runtime; status is the error's number."""

    def __init__(self, status: int, text: str):
        super().__init__(text)
        self.status = status


def _unsupported(what: str) -> CUDARuntimeError:
    return CUDARuntimeError(
        900,
        "cudaErrorStreamCaptureUnsupported: operation not permitted when stream is capturing: "
        + what,
    )


class Graph:
    """Launches in their order; made by Stream.end_capture, as in cupy."""

    def __init__(self, launches: list[Launch]):
        self._launches = launches

    def launch(self, stream: Stream | None = None) -> None:
        """Queue all launches; in the simulator they run at once unless launches are deferred."""
        (stream or current_stream())._do(self._run)

    def _run(self) -> None:
        for launch in self._launches:
            launch()


class Stream:
    """A queue of launches. They run at once, unless the settings say `deferred`.

    Between begin_capture and end_capture they are recorded and do not run. An operation that a
    capture forbids raises and invalidates the capture. Memory cannot be allocated meanwhile, which
    is stricter than CUDA: cupy's pool would hand out memory, and reuse it while the graph still
    uses it.
    """

    null: Stream

    def __init__(self, null: bool = False, non_blocking: bool = False):
        self._queue: list[Launch] = []
        self._captured: list[Launch] | None = None
        self._invalidated = False
        self.ptr = 0 if null else id(self)

    def _do(self, launch: Launch) -> None:
        """Run a launch now, or queue it where launches are deferred."""
        self._forbid("a launch of another graph")
        if current().deferred:
            self._queue.append(launch)
        else:
            launch()

    def _capture(self, launch: Launch) -> None:
        assert self._captured is not None
        self._captured.append(launch)

    def begin_capture(self, mode: int | None = None) -> None:
        """Capture launches from now on; the default stream has no capture."""
        if not self.ptr:
            raise _unsupported("capture of the default stream")
        if self._captured is not None:
            raise CUDARuntimeError(401, "cudaErrorIllegalState: the stream is being captured")
        self._captured, self._invalidated = [], False

    def end_capture(self) -> Graph:
        """The launches since begin_capture, as a graph; an error if one of them was forbidden."""
        if self._captured is None:
            raise CUDARuntimeError(401, "cudaErrorIllegalState: the stream is not being captured")
        kept, self._captured = self._captured, None
        if self._invalidated:
            raise CUDARuntimeError(
                901,
                "cudaErrorStreamCaptureInvalidated: operation failed due to a previous error "
                "during capture",
            )
        return Graph(kept)

    def is_capturing(self) -> bool:
        """True between begin_capture and end_capture."""
        return self._captured is not None

    def _forbid(self, what: str) -> None:
        """Raise while the stream is captured, and invalidate the capture."""
        if self._captured is not None:
            self._invalidated = True
            raise _unsupported(what)

    def synchronize(self) -> None:
        """Run the queue; its errors surface here, and launches after a fault never run."""
        self._forbid("waiting for the stream")
        try:
            while self._queue:
                self._queue.pop(0)()
        finally:
            self._queue.clear()

    def __enter__(self) -> Stream:
        _entered.set((*_entered.get(), self))
        return self

    def __exit__(self, *_: object) -> None:
        _entered.set(_entered.get()[:-1])

    def record(self, event: Event | None = None) -> Event:
        """Mark this point of the stream in an event."""
        marked = event or Event()
        marked.record(self)
        return marked

    def wait_event(self, event: Event) -> None:
        """Make later launches wait for an event of another stream."""
        event.synchronize()


class Event:
    """A point in a stream, with its time."""

    def __init__(self, disable_timing: bool = False):
        self._stream: Stream | None = None
        self.time = 0.0

    def record(self, stream: Stream | None = None) -> None:
        """Record the time when all earlier launches have run."""
        self._stream = stream or current_stream()
        self.synchronize()
        self.time = time.perf_counter()

    def synchronize(self) -> None:
        """Wait until the stream has reached the point."""
        if self._stream is not None:
            self._stream.synchronize()


def elapsed(start: Event, end: Event) -> float:
    """Milliseconds between two events."""
    return (end.time - start.time) * 1e3


Stream.null = Stream(null=True)
_entered: ContextVar[tuple[Stream, ...]] = ContextVar("miniml_emucupy_streams", default=())


def current_stream() -> Stream:
    """The stream that this thread, or task, has entered last; else the default one."""
    return (Stream.null, *_entered.get())[-1]


# --- Modules and kernels --------------------------------------------------------------------------


class RawModule:
    """CUDA C text; compiled when its first function is requested."""

    def __init__(self, *, code: str, options: Sequence[str] = ()):
        self._sim_module = Module(code, options)

    def get_function(self, name: str) -> RawKernel:
        return RawKernel(self._sim_module.kernel(name))

    def get_global(self, name: str) -> MemoryPointer:
        """The address of a variable or constant of the text; ndarray(shape, dtype, it) sets it."""
        mode = current().mode
        return MemoryPointer(memory.Borrowed(*self._sim_module.loaded(mode).place_of(name)))


class RawKernel:
    """A kernel: function(grid, block, args, shared_mem=0, stream=None)."""

    def __init__(self, kernel: SimKernel):
        self._kernel = kernel
        self.name = kernel.name

    @property
    def max_dynamic_shared_size_bytes(self) -> int:
        """The dynamic shared memory that a launch may have: 48 KiB unless set higher."""
        return self._kernel.max_dynamic_shared

    @max_dynamic_shared_size_bytes.setter
    def max_dynamic_shared_size_bytes(self, nbytes: int) -> None:
        if not 0 <= nbytes <= DYNAMIC_SHARED:
            raise ValueError(
                f"{nbytes} bytes of dynamic shared memory; a block has {DYNAMIC_SHARED}"
            )
        self._kernel.max_dynamic_shared = nbytes

    def __call__(
        self,
        grid: Sequence[int],
        block: Sequence[int],
        args: Sequence[Any],
        *,
        shared_mem: int = 0,
        stream: Any = None,
    ) -> None:
        queue = stream or current_stream()
        settings = current()
        if queue.is_capturing() or settings.deferred:
            self._kernel.sizes(grid, block, shared_mem)  # a GPU refuses these at once, too
        if queue.is_capturing():
            queue._capture(self._repeated(grid, block, args, shared_mem))
            return
        passed = [a._pointer() if isinstance(a, ndarray) else a for a in args]
        queue._do(lambda: self._kernel.launch(grid, block, passed, shared_mem, settings))

    def _repeated(
        self, grid: Sequence[int], block: Sequence[int], args: Sequence[Any], shared_mem: int
    ) -> Callable[[], None]:
        """The launch as a node of a graph: it holds addresses, but keeps no memory alive."""
        mode = current().mode
        kept = [Address(a) if isinstance(a, ndarray) else a for a in args]

        def launch() -> None:
            passed = [a.pointer() if isinstance(a, Address) else a for a in kept]
            settings = replace(current(), mode=mode)
            self._kernel.launch(grid, block, passed, shared_mem, settings)

        return launch


class Address:
    """The address of an array, without keeping its memory alive, as a CUDA graph holds it."""

    __slots__ = ("_memory", "_range")

    def __init__(self, array: ndarray):
        self._memory = ref(array._allocation)
        self._range = array._offset, array.nbytes, array.dtype

    def pointer(self) -> Pointer:
        """The argument for a launch; an error when the memory has been freed."""
        allocation = self._memory()
        if allocation is None:
            raise CUDARuntimeError(
                700, "cudaErrorIllegalAddress: a graph uses memory that has been freed"
            )
        return Pointer(allocation, *self._range)


# --- Device and memory pool -----------------------------------------------------------------------


class Device:
    """The simulated device, with the figures of an H100."""

    compute_capability = "90"

    def __init__(self, device: int | None = None):
        self.id = device or 0
        if self.id:
            raise CUDARuntimeError(
                101, "cudaErrorInvalidDevice: the simulator has one device, number 0"
            )

    @property
    def attributes(self) -> dict[str, int]:
        """Limits, by cupy's names."""
        return {
            "MultiProcessorCount": 4,
            "MaxSharedMemoryPerBlockOptin": DYNAMIC_SHARED,
            "MaxThreadsPerBlock": MAX_THREADS,
            "WarpSize": 32,
        }

    @property
    def mem_info(self) -> tuple[int, int]:
        """Free bytes and total bytes: 80 GB unless the pool has a limit."""
        total = memory.limit() or 80 * 10**9
        return total - memory.used_bytes(), total

    def synchronize(self) -> None:
        """Run the queues of this context's streams."""
        current_stream().synchronize()
        Stream.null.synchronize()

    def use(self) -> None:
        """Do nothing: there is one device."""

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class MemoryPool:
    """Statistics of the simulator's memory; freed memory is not kept."""

    def used_bytes(self) -> int:
        """The bytes of all live allocations."""
        return memory.used_bytes()

    def total_bytes(self) -> int:
        """Equal to used_bytes: freed memory is not kept."""
        return memory.used_bytes()

    def free_all_blocks(self) -> None:
        """Do nothing: freed memory is not kept."""

    def get_limit(self) -> int:
        """The size of the device's memory in bytes; 0: no limit."""
        return memory.limit() or 0

    def set_limit(self, size: int | None = None) -> None:
        """Set the size of the device's memory; None or 0: no limit."""
        memory.set_limit(size or None)


_pool = MemoryPool()


def get_default_memory_pool() -> MemoryPool:
    """The memory of the device."""
    return _pool


cuda = SimpleNamespace(
    Stream=Stream,
    Event=Event,
    Graph=Graph,
    Device=Device,
    MemoryPool=MemoryPool,
    get_current_stream=current_stream,
    get_elapsed_time=elapsed,
    memory=SimpleNamespace(OutOfMemoryError=memory.OutOfMemoryError),
    runtime=SimpleNamespace(
        getDeviceCount=lambda: 1,
        driverGetVersion=lambda: 13000,
        runtimeGetVersion=lambda: 13000,
        CUDARuntimeError=CUDARuntimeError,
    ),
)
