"""The part of cupy that the CUDA backend uses (surface.py), on the simulator."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from math import prod
from types import SimpleNamespace
from typing import Any

import numpy as np

from .sim import memory
from .sim.arguments import Pointer
from .sim.memory import Allocation
from .sim.module import DYNAMIC_SHARED, MAX_THREADS, Kernel, Module
from .sim.settings import current

Shape = int | Sequence[int]


class ndarray:
    """A C-contiguous array in the simulator's device memory."""

    __slots__ = ("_allocation", "_offset", "shape", "dtype")

    def __init__(
        self,
        shape: Shape,
        dtype: Any = np.float32,
        _allocation: Allocation | None = None,
        _offset: int = 0,
    ):
        self.shape = (shape,) if isinstance(shape, int) else tuple(int(n) for n in shape)
        self.dtype = np.dtype(dtype)
        self._allocation = Allocation(self.nbytes) if _allocation is None else _allocation
        self._offset = _offset

    @property
    def size(self) -> int:
        """The number of elements."""
        return prod(self.shape)

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def itemsize(self) -> int:
        """The bytes of an element."""
        return int(self.dtype.itemsize)

    @property
    def nbytes(self) -> int:
        """The bytes of all elements."""
        return self.size * self.itemsize

    @property
    def data(self) -> Any:
        """data.ptr is the address of the first element, 0 where there is none."""
        return SimpleNamespace(ptr=self._allocation.address + self._offset if self.size else 0)

    def reshape(self, *shape: Any) -> ndarray:
        """The same elements in another shape of as many; one extent may be -1."""
        wanted = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
        return self._as(np.empty(self.shape, np.bool_).reshape(wanted).shape, self.dtype, 0)

    def view(self, dtype: Any) -> ndarray:
        """The same bytes as elements of another dtype; the last axis changes with its size."""
        wanted = np.dtype(dtype)
        if wanted.itemsize == self.itemsize:
            return self._as(self.shape, wanted, 0)
        last, left = divmod((self.shape[-1] if self.shape else 1) * self.itemsize, wanted.itemsize)
        if left or not self.shape:
            raise ValueError(
                f"{self.shape} elements of {self.dtype} are not whole ones of {wanted}"
            )
        return self._as((*self.shape[:-1], last), wanted, 0)

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
        """Copies from another device array of that shape, or fills with a number."""
        target = self[index]
        if not isinstance(value, ndarray):
            target.fill(value)
            return
        if value.shape != target.shape or value.dtype != target.dtype:
            raise ValueError(
                f"{value.shape} {value.dtype} do not fit {target.shape} {target.dtype}"
            )
        cuda.get_current_stream().synchronize()
        target._bytes()[...] = value._bytes()
        known = value._allocation.initialised
        own = target._allocation.initialised
        if own is not None:
            here = slice(target._offset, target._offset + target.nbytes)
            own[here] = True if known is None else known[value._offset :][: value.nbytes]

    def get(self, stream: Any = None) -> Any:
        """A NumPy array with the contents, after all launches of the stream."""
        (stream or cuda.get_current_stream()).synchronize()
        return self._bytes().copy().view(self.dtype).reshape(self.shape)

    def set(self, array: Any, stream: Any = None) -> None:
        """Copies a NumPy array of this shape and dtype in."""
        array = np.asarray(array)
        if array.shape != self.shape or array.dtype != self.dtype:
            raise ValueError(f"{array.shape} {array.dtype} do not fit {self.shape} {self.dtype}")
        (stream or cuda.get_current_stream()).synchronize()
        self._host()[...] = array
        self._allocation.mark(self._offset, self.nbytes, True)

    def fill(self, value: Any) -> None:
        """Sets every element to a number."""
        cuda.get_current_stream().synchronize()
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
        return ndarray(shape, dtype, self._allocation, self._offset + offset)

    def _bytes(self) -> Any:
        return self._allocation.bytes[self._offset : self._offset + self.nbytes]

    def _host(self) -> Any:
        return self._bytes().view(self.dtype).reshape(self.shape)

    def _pointer(self) -> Pointer:
        return Pointer(self._allocation, self._offset, self.nbytes, self.dtype)


def forget(array: ndarray) -> None:
    """Makes memory that is used again as good as new: poison that counts as uninitialised.

    Not in cupy: for what owns an arena, in check mode.
    """
    array._allocation.forget(array._offset, array.nbytes)


def unwritten(array: ndarray) -> int:
    """How many bytes nothing has written since they were allocated or forgotten (check mode).

    Not in cupy: tells whether a kernel has filled its output.
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


class RawModule:
    """CUDA C text; compiled when the first of its functions is asked for."""

    def __init__(self, *, code: str, options: Sequence[str] = ()):
        self._module = Module(code, options)

    def get_function(self, name: str) -> RawKernel:
        """A kernel by its name."""
        return RawKernel(self._module.kernel(name))


class RawKernel:
    """A kernel: function(grid, block, args, shared_mem=0, stream=None)."""

    def __init__(self, kernel: Kernel):
        self._kernel = kernel
        self.name = kernel.name

    @property
    def max_dynamic_shared_size_bytes(self) -> int:
        """The dynamic shared memory that a launch may have: 48 KiB unless more is asked for."""
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
        settings = current()
        passed = [a._pointer() if isinstance(a, ndarray) else a for a in args]
        if not settings.deferred:
            self._kernel.launch(grid, block, passed, shared_mem, settings)
            return
        self._kernel.sizes(grid, block, shared_mem)  # a GPU refuses these at once, too
        queue = stream or cuda.get_current_stream()
        queue._later(lambda: self._kernel.launch(grid, block, passed, shared_mem, settings))


class Stream:
    """A queue of launches. They run at once, unless the settings say `deferred`."""

    null: Stream

    def __init__(self, null: bool = False, non_blocking: bool = False):
        self._queue: list[Callable[[], None]] = []
        self._tokens: list[Any] = []
        self.ptr = 0 if null else id(self)

    def _later(self, launch: Callable[[], None]) -> None:
        self._queue.append(launch)

    def synchronize(self) -> None:
        """Runs what is queued; its errors surface here."""
        while self._queue:
            self._queue.pop(0)()

    def __enter__(self) -> Stream:
        self._tokens.append(_stream.set(self))
        return self

    def __exit__(self, *_: object) -> None:
        _stream.reset(self._tokens.pop())

    def record(self, event: Event | None = None) -> Event:
        """Marks this point of the stream in an event."""
        marked = event or Event()
        marked.record(self)
        return marked

    def wait_event(self, event: Event) -> None:
        """Lets what follows wait for an event of another stream."""
        event.synchronize()


class Event:
    """A point in a stream, with its time."""

    def __init__(self, disable_timing: bool = False):
        self._stream: Stream | None = None
        self.time = 0.0

    def record(self, stream: Stream | None = None) -> None:
        """Takes the time when all that was launched before has run."""
        self._stream = stream or cuda.get_current_stream()
        self.synchronize()
        self.time = time.perf_counter()

    def synchronize(self) -> None:
        """Waits for the point."""
        if self._stream is not None:
            self._stream.synchronize()


class Device:
    """The simulated device, with the figures of an H100."""

    compute_capability = "90"

    def __init__(self, device: int | None = None):
        self.id = device or 0
        if self.id:
            raise CUDARuntimeError("cudaErrorInvalidDevice: the simulator has one device, number 0")

    @property
    def attributes(self) -> dict[str, int]:
        """Limits, by cupy's names."""
        return {
            "MultiProcessorCount": 4,
            "MaxSharedMemoryPerBlockOptin": DYNAMIC_SHARED,
            "MaxThreadsPerBlock": MAX_THREADS,
            "WarpSize": 32,
        }

    def synchronize(self) -> None:
        """Runs what this context's streams have queued."""
        cuda.get_current_stream().synchronize()
        Stream.null.synchronize()

    def use(self) -> None:
        """Nothing: there is one device."""

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class CUDARuntimeError(RuntimeError):
    """What cupy raises for errors of the CUDA runtime."""


class MemoryPool:
    """The figures of the simulator's memory; it keeps nothing that is freed."""

    def used_bytes(self) -> int:
        """The bytes of all allocations alive."""
        return memory.used_bytes()

    def total_bytes(self) -> int:
        """The same: nothing is kept for later."""
        return memory.used_bytes()

    def free_all_blocks(self) -> None:
        """Nothing, for the same reason."""

    def get_limit(self) -> int:
        """The size of the device's memory in bytes; 0: no limit."""
        return memory.limit() or 0

    def set_limit(self, size: int | None = None) -> None:
        """Makes the device's memory that large; None or 0: no limit."""
        memory.set_limit(size or None)


_pool = MemoryPool()
Stream.null = Stream(null=True)
_stream: ContextVar[Stream] = ContextVar("miniml_emucupy_stream", default=Stream.null)


def get_default_memory_pool() -> MemoryPool:
    """The memory of the device."""
    return _pool


def _elapsed(start: Event, end: Event) -> float:
    """Milliseconds between two events."""
    return (end.time - start.time) * 1e3


cuda = SimpleNamespace(
    Stream=Stream,
    Event=Event,
    Device=Device,
    MemoryPool=MemoryPool,
    get_current_stream=_stream.get,
    get_elapsed_time=_elapsed,
    memory=SimpleNamespace(OutOfMemoryError=memory.OutOfMemoryError),
    runtime=SimpleNamespace(
        getDeviceCount=lambda: 1,
        driverGetVersion=lambda: 13000,
        runtimeGetVersion=lambda: 13000,
        CUDARuntimeError=CUDARuntimeError,
    ),
)
