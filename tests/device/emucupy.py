"""The names of cupy that the driver of a GPU uses, and those with which tests write CUDA, on the
simulator: modules, arrays, streams that are captured, the figures of a device."""

from __future__ import annotations

from contextvars import ContextVar
from types import SimpleNamespace

import numpy as np

from miniml.backends.cuda.driver import Simulator, placed
from miniml.backends.cuda.sim.memory import (
    STREAM,
    Borrowed,
    DeviceAllocation,
    Memory,
    occupied,
    recording,
    set_limit,
)
from miniml.backends.cuda.sim.module import Module


class CUDARuntimeError(RuntimeError):
    """As cupy has it: the name, a colon, the driver's words; and the number."""

    def __init__(self, status, text):
        super().__init__(text)
        self.status = status


# --- Arrays ---------------------------------------------------------------------------------------


class ndarray(Memory):
    """Memory with cupy's name for its address."""

    __slots__ = ()

    @property
    def data(self):
        return SimpleNamespace(ptr=self.address)

    flags = SimpleNamespace(c_contiguous=True)

    def reshape(self, shape):
        shape = (int(np.prod(self.shape)),) if shape == -1 else tuple(shape)
        return ndarray(self.allocation, self.offset, shape, self.dtype)

    def copy(self):
        return asarray(self.get())

    def __dlpack_device__(self):
        return 2, 0  # kDLCUDA

    def __dlpack__(self, *, stream=None, **_):
        """The capsule, which says CPU, since that is where the memory is. stream: of who asks."""
        asked.append(stream)
        return self._host().__dlpack__()


asked = []  # the streams of which `__dlpack__` was told


class Lent(Borrowed):
    """The memory of another, which it keeps alive."""

    __slots__ = ("owner",)


def from_dlpack(producer):
    """The array of another on this device, which is told of the current stream (1: the default)."""
    kind, _ = producer.__dlpack_device__()
    if kind != 2:
        raise CUDARuntimeError(1, "cudaErrorInvalidValue: memory of another device")
    capsule = producer.__dlpack__(stream=current_stream().ptr or 1)
    host = np.from_dlpack(SimpleCapsule(capsule))
    if not host.flags.c_contiguous:
        return Strided(host)
    memory = Lent(host.ctypes.data, host.nbytes)
    memory.owner = host
    return ndarray(memory, 0, host.shape, host.dtype)


class Strided:
    """Memory of another that is not in row-major order."""

    flags = SimpleNamespace(c_contiguous=False)

    def __init__(self, host):
        self.host = host

    def copy(self):
        return asarray(np.array(self.host, order="C"))


class SimpleCapsule:
    """A capsule of host memory, for NumPy."""

    def __init__(self, capsule):
        self.capsule = capsule

    def __dlpack__(self, **_):
        return self.capsule

    def __dlpack_device__(self):
        return 1, 0


def empty(shape, dtype=np.float32):
    """Device memory full of NaN poison, which counts as uninitialised."""
    shape, dtype = (shape,) if isinstance(shape, int) else shape, np.dtype(dtype)
    return ndarray(DeviceAllocation(int(np.prod(shape)) * dtype.itemsize), 0, shape, dtype)


def zeros(shape, dtype=np.float32):
    array = empty(shape, dtype)
    array.fill(0)
    return array


def asarray(array, dtype=None):
    """A copy of a NumPy array in device memory."""
    host = np.asarray(array, dtype)
    made = empty(host.shape, host.dtype)
    made.set(host)
    return made


# --- Modules and kernels --------------------------------------------------------------------------


class RawModule:
    """CUDA C text; compiled when its first function is requested."""

    def __init__(self, *, code, options=()):
        self._module = Module(code, options)

    def get_function(self, name):
        return RawKernel(self._module.function(name))

    def get_global(self, name):
        return self._module.get_global(name)


class RawKernel:
    """A kernel: function(grid, block, args, shared_mem=0)."""

    def __init__(self, kernel):
        self._kernel, self.name = kernel, kernel.name

    @property
    def max_dynamic_shared_size_bytes(self):
        return self._kernel.max_dynamic_shared_size_bytes

    @max_dynamic_shared_size_bytes.setter
    def max_dynamic_shared_size_bytes(self, nbytes):
        self._kernel.max_dynamic_shared_size_bytes = nbytes

    def __call__(self, grid, block, args, *, shared_mem=0):
        captured = current_stream().captured
        if captured is None:
            self._kernel(grid, block, args, shared_mem)
            return
        with recording() as kept:
            self._kernel(grid, block, args, shared_mem)
        captured += kept


# --- Streams and graphs ---------------------------------------------------------------------------


class Graph:
    """Launches in their order; made by Stream.end_capture."""

    def __init__(self, launches):
        self._launches = launches

    def launch(self):
        STREAM.do(self._run)

    def _run(self):
        for launch in self._launches:
            launch()


class Stream:
    """A name for the simulator's stream; between begin_capture and end_capture launches of who has
    entered it are kept. The default stream has no capture."""

    def __init__(self, null=False, non_blocking=False, handle=None):
        self.null, self.captured, self.handle = null, None, handle

    @classmethod
    def from_external(cls, owner):
        """The stream of another library, by the protocol of CUDA's own."""
        _, handle = owner.__cuda_stream__()
        return cls(null=handle == 0, handle=handle)

    @property
    def ptr(self):
        return 0 if self.null else self.handle or id(self)

    def begin_capture(self):
        if self.null:
            raise CUDARuntimeError(900, "cudaErrorStreamCaptureUnsupported: the default stream")
        if self.captured is not None:
            raise CUDARuntimeError(401, "cudaErrorIllegalState: the stream is being captured")
        self.captured = []

    def end_capture(self):
        if self.captured is None:
            raise CUDARuntimeError(401, "cudaErrorIllegalState: the stream is not being captured")
        kept, self.captured = self.captured, None
        return Graph(kept)

    def synchronize(self):
        if self.captured is not None:
            raise CUDARuntimeError(900, "cudaErrorStreamCaptureUnsupported: not permitted")
        STREAM.synchronize()

    def __enter__(self):
        _entered.set((*_entered.get(), self))
        return self

    def __exit__(self, *_):
        _entered.set(_entered.get()[:-1])


_entered = ContextVar("streams", default=(Stream(null=True),))


def current_stream():
    """The stream that this thread, or task, has entered last; else the default one."""
    return _entered.get()[-1]


# --- Device and memory pool -----------------------------------------------------------------------


class Device:
    """The device, with the simulator's figures."""

    id = 0
    compute_capability = Simulator.capability
    attributes = {"MaxSharedMemoryPerBlockOptin": Simulator.shared_limit}  # noqa: RUF012

    @property
    def mem_info(self):
        used, size = occupied()
        return size - used, size


class MemoryPool:
    """The simulator's memory; freed memory is not kept."""

    limit = 0

    def used_bytes(self):
        return occupied()[0]

    def free_all_blocks(self):
        pass

    def get_limit(self):
        return self.limit

    def set_limit(self, size):
        self.limit = size or 0
        set_limit(size)


_pool = MemoryPool()


def double():
    """A module in the place of cupy; a test breaks what it wants to break."""
    return SimpleNamespace(
        empty=empty,
        from_dlpack=from_dlpack,
        ndarray=placed,
        RawModule=RawModule,
        get_default_memory_pool=lambda: _pool,
        cuda=SimpleNamespace(
            Device=Device,
            Stream=Stream,
            get_current_stream=current_stream,
            runtime=SimpleNamespace(
                getDeviceCount=lambda: 1,
                driverGetVersion=lambda: 13000,
                runtimeGetVersion=lambda: 13000,
            ),
        ),
    )
