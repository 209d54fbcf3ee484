"""The part of cupy that the CUDA backend uses (listed in its tests), on the simulator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from ..limits import MAX_THREADS
from ..sim import memory
from ..sim.module import DYNAMIC_SHARED, Module, SimKernel
from ..sim.settings import current
from .array import Address as Address
from .array import MemoryPointer as MemoryPointer
from .array import asarray as asarray
from .array import empty as empty
from .array import forget as forget
from .array import ndarray as ndarray
from .array import unwritten as unwritten
from .array import zeros as zeros
from .streams import CUDARuntimeError, Event, Graph, Stream, current_stream, elapsed


class RawModule:
    """CUDA C text; compiled when its first function is requested."""

    def __init__(self, *, code: str, options: Sequence[str] = ()):
        self._module = Module(code, options)

    def get_function(self, name: str) -> RawKernel:
        return RawKernel(self._module.kernel(name))

    def get_global(self, name: str) -> MemoryPointer:
        """The address of a variable or constant of the text; ndarray(shape, dtype, it) sets it."""
        mode = current().mode
        return MemoryPointer(memory.Borrowed(*self._module.loaded(mode).place_of(name)))


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
            queue._keep(self._repeated(grid, block, args, shared_mem))
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
        """Runs what this context's streams have queued."""
        current_stream().synchronize()
        Stream.null.synchronize()

    def use(self) -> None:
        """Does nothing: there is one device."""

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class MemoryPool:
    """The statistics of the simulator's memory; freed memory is not kept."""

    def used_bytes(self) -> int:
        """The bytes of all allocations alive."""
        return memory.used_bytes()

    def total_bytes(self) -> int:
        """The same as used_bytes: freed memory is not kept."""
        return memory.used_bytes()

    def free_all_blocks(self) -> None:
        """Does nothing: freed memory is not kept."""

    def get_limit(self) -> int:
        """The size of the device's memory in bytes; 0: no limit."""
        return memory.limit() or 0

    def set_limit(self, size: int | None = None) -> None:
        """Makes the device's memory that large; None or 0: no limit."""
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
