"""The drivers of a CUDA device: all that it asks of a GPU, through cupy, or of the simulator.

Parts: the driver; cupy's; cuBLAS; translation of cupy's and the CUDA driver's errors into miniml's;
the simulator's driver. Last NVIDIA's run-time compiler by itself, which compiles CUDA C without GPU
or driver: a wheel (pip install 'miniml[sim]'). Programs are compiled as cupy compiles them for
`RawModule`, so what passes here compiles on a GPU too; and the assembler's report lists the
registers and the memory that each kernel needs.
"""

from __future__ import annotations

import ctypes
import importlib.util
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache, cached_property
from pathlib import Path
from threading import Lock
from types import SimpleNamespace
from typing import Any, NamedTuple, NoReturn, Protocol

import numpy as np

from ...core.errors import CompileError, DeviceError, DeviceLostError, LaunchError, MinimlError
from .sim import unit
from .sim.memory import STREAM, DeviceAllocation, Memory, no_room, occupied, recording
from .sim.module import DYNAMIC_SHARED, Module
from .text.source import OPTIONS, STATIC_SHARED, check, parameters

HostArray = np.ndarray[Any, Any]


class Driver(Protocol):
    """The interface of a GPU, or of the simulator of one, to the device.

    Memory is what kernels are given: flat arrays `a`, of which the backend uses a[low:high],
    a.view(dtype), a.fill(number) and a.dtype. name: the device's. module: what kernels of users
    may use besides: cupy. checks: launches are synchronous and checked.
    """

    name: str
    module: Any
    checks: bool

    @property
    def stream(self) -> Any:
        """The stream on which everything is launched, in order."""

    @property
    def capability(self) -> str:
        """The compute capability: "90"."""

    @property
    def shared_limit(self) -> int:
        """Bytes of shared memory that a block may have."""

    @property
    def cublas(self) -> CublasLibrary | None:
        """cuBLAS; None where it is absent."""

    def allocate(self, nbytes: int) -> Any:
        """Memory of bytes, at a multiple of 256. DeviceMemoryError: there is no room."""

    def occupied(self) -> tuple[int, int]:
        """The bytes in use, and those there are."""

    def read(self, memory: Any) -> HostArray:
        """A copy on the host, after all launches."""

    def write(self, memory: Any, array: HostArray) -> None:
        """Overwrite memory with a host array of its shape and dtype."""

    def synchronize(self) -> None:
        """Wait until all launches are done."""

    def load(self, code: str, options: Sequence[str]) -> Any:
        """A text: its function(entry) is called as f(grid, block, args, shared_mem=0),
        f.get_global(name) is the address of a variable, f.max_dynamic_shared_size_bytes what
        launches may ask for. CompileError, with the compiler's log."""

    def capture(self, launches: Callable[[], object]) -> Callable[[], None]:
        """A function that repeats the launches of `launches` on the current stream, with the
        present arguments; recording runs nothing. An error when `launches` does anything else."""


# --- cupy -----------------------------------------------------------------------------------------


NO_DEVICE = 100  # cudaErrorNoDevice
NO_GPU = "device 'cuda' is not available: there is no GPU; use device_target='cuda-sim'"


class Cupy:
    """The driver of a GPU. module: cupy."""

    name, checks = "cuda", False

    def __init__(self, module: Any):
        self.module = module

    @property
    def stream(self) -> Any:
        return self.module.cuda.get_current_stream()

    @property
    def capability(self) -> str:
        return str(self.module.cuda.Device().compute_capability)

    @property
    def shared_limit(self) -> int:
        return int(self.module.cuda.Device().attributes["MaxSharedMemoryPerBlockOptin"])

    @cached_property
    def cublas(self) -> CublasLibrary | None:
        """The library that cupy has loaded; cupy raises ImportError where there is none."""
        try:
            _ = self.module.cuda.cublas
            version = self.module.cuda.runtime.runtimeGetVersion() // 1000
            return CublasLibrary(ctypes.CDLL(f"libcublas.so.{version}"), int(self.capability))
        except (AttributeError, ImportError, OSError):
            return None

    def allocate(self, nbytes: int) -> Any:
        try:
            return self.module.empty(nbytes, np.uint8)
        except Exception as error:
            raise_as(no_memory(error, self, nbytes), error)

    def occupied(self) -> tuple[int, int]:
        pool = self.module.get_default_memory_pool()
        size = pool.get_limit() or self.module.cuda.Device().mem_info[1]
        return pool.used_bytes(), size

    def read(self, memory: Any) -> HostArray:
        with self._doing("a copy to the host"):
            array: HostArray = memory.get()
        return array

    def write(self, memory: Any, array: HostArray) -> None:
        with self._doing("a copy from the host"):
            memory.set(array)

    def synchronize(self) -> None:
        with self._doing("waiting for the stream"):
            self.stream.synchronize()

    def load(self, code: str, options: Sequence[str]) -> CupyUnit:
        return CupyUnit(self, code, self.module.RawModule(code=code, options=tuple(options)))

    def capture(self, launches: Callable[[], object]) -> Callable[[], None]:
        stream = self.module.cuda.Stream(non_blocking=True)  # the default stream has no capture
        with stream, recording():
            stream.begin_capture()
            try:
                launches()
            except BaseException:
                with suppress(Exception):
                    stream.end_capture()
                raise
            graph = stream.end_capture()

        def again() -> None:
            with self._doing("the launch of a CUDA graph"):
                graph.launch()

        return again

    @contextmanager
    def _doing(self, what: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            raise_as(explained(error, self, what), error)


class CupyUnit:
    """A text that cupy compiles when its first function is requested, and keeps on disk."""

    def __init__(self, driver: Cupy, code: str, loaded: Any):
        self.driver, self.code, self.loaded = driver, code, loaded

    def function(self, entry: str) -> CupyFunction:
        try:
            return CupyFunction(self, entry, self.loaded.get_function(entry))
        except Exception as error:
            clear = not_loaded(error, self.driver, entry)
            if clear is error and "Compile" in type(error).__name__:
                clear = CompileError(f"the kernel {entry} does not compile:\n{error}")
            raise_as(clear, error)


class CupyFunction:
    """A kernel. cupy compares no arguments with its parameters, so they are compared with its text
    at the first launch."""

    def __init__(self, unit: CupyUnit, entry: str, function: Any):
        self._unit, self._entry, self._function = unit, entry, function
        self._unchecked = parameters(unit.code, entry)

    def __call__(self, grid: Any, block: Any, args: Any, shared_mem: int = 0) -> None:
        if self._unchecked is not None:
            check(self._entry, self._unchecked, args)
            self._unchecked = None
        try:
            self._function(grid, block, args, shared_mem=shared_mem)
        except Exception as error:
            driver, entry = self._unit.driver, self._entry
            raise_as(not_launched(error, driver, entry, grid, block, shared_mem), error)

    def get_global(self, name: str) -> Any:
        return self._unit.loaded.get_global(name)

    @property
    def max_dynamic_shared_size_bytes(self) -> int:
        size: int = self._function.max_dynamic_shared_size_bytes
        return size

    @max_dynamic_shared_size_bytes.setter
    def max_dynamic_shared_size_bytes(self, nbytes: int) -> None:
        self._function.max_dynamic_shared_size_bytes = nbytes


def gpu() -> Cupy:
    """The first GPU that cupy finds; DeviceError, with a remedy, if there is none."""
    try:
        import cupy
    except ImportError as error:
        raise DeviceError(
            f"device 'cuda' is not available: it needs cupy, which is missing ({error}); "
            "pip install 'miniml[cuda13]', or use device_target='cuda-sim'"
        ) from None
    runtime = cupy.cuda.runtime
    try:
        count = runtime.getDeviceCount()
    except Exception as error:
        if getattr(error, "status", None) == NO_DEVICE:
            raise DeviceError(NO_GPU) from None
        what = f"NVIDIA's driver does not answer ({error}); install a newer one"
        if runtime.driverGetVersion() == 0:
            what = "cupy is here, NVIDIA's driver is not; install it where there is a GPU"
        raise DeviceError(
            f"device 'cuda' is not available: {what}, or use device_target='cuda-sim'"
        ) from None
    if not count:
        raise DeviceError(NO_GPU)
    check_architecture(cupy)
    return Cupy(cupy)


def check_architecture(cupy: Any) -> None:
    """DeviceError for a GPU that is older than cupy's compiler supports."""
    toolkit = cupy.cuda.runtime.runtimeGetVersion() // 1000
    oldest = 75 if toolkit >= 13 else 50
    capability = int(cupy.cuda.Device().compute_capability)
    if capability < oldest:
        raise DeviceError(
            f"device 'cuda' is not available: the GPU has compute capability "
            f"{capability / 10}, and CUDA {toolkit} compiles for {oldest / 10} and newer; "
            "pip install 'miniml[cuda12]', or use device_target='cuda-sim'"
        )


# --- cuBLAS ---------------------------------------------------------------------------------------


class CUBLASError(RuntimeError):
    """A call that cuBLAS refused, by the name of its status."""


class CublasLibrary:
    """cuBLAS by its C interface, since cupy lets none of its calls be recorded in a CUDA graph.

    All threads share one handle behind a lock, as a call only launches: a handle of each thread
    would be made, which takes memory of the device, when that thread records for the first time.
    library: the loaded library. scratch: the bytes of memory that a call is given, those that
    NVIDIA recommends for the architecture; cuBLAS's own are allocated where a graph is recorded.
    """

    # No TensorFloat-32, and no sums in 16 bits where work is split: float32 means float32.
    EXACT = 16  # CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION, without any other mode

    def __init__(self, library: Any, capability: int):
        self.scratch = (32 if capability >= 90 else 4) * 2**20
        self._library, self._lock = library, Lock()
        self._handle: ctypes.c_void_p | None = None
        pointer, number, size, step = (
            ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t, ctypes.c_longlong,
        )  # fmt: skip
        library.cublasGetStatusName.restype = ctypes.c_char_p
        library.cublasSetStream_v2.argtypes = pointer, pointer
        library.cublasSetWorkspace_v2.argtypes = pointer, pointer, size
        matrix = pointer, number, number, step
        library.cublasGemmStridedBatchedEx.argtypes = (
            pointer, number, number, number, number, number, pointer, *matrix, *matrix, pointer,
            *matrix, number, number, number,
        )  # fmt: skip

    def gemm(self, stream: int, scratch: int, *arguments: int) -> None:
        """cublasGemmStridedBatchedEx on a stream, with memory at an address of its own; after the
        handle come its arguments. CUBLASError, where it is refused."""
        with self._lock:
            handle = self._handle = self._handle or self._made()
            self._call("cublasSetStream_v2", handle, stream)
            self._call("cublasSetWorkspace_v2", handle, scratch, self.scratch)
            self._call("cublasGemmStridedBatchedEx", handle, *arguments)

    def _made(self) -> ctypes.c_void_p:
        handle = ctypes.c_void_p()
        self._call("cublasCreate_v2", ctypes.byref(handle))
        self._call("cublasSetMathMode", handle, self.EXACT)
        return handle

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._library, name)(*arguments)
        if status:
            raise CUBLASError(self._library.cublasGetStatusName(status).decode())


# --- Errors of CUDA -------------------------------------------------------------------------------


# By the names of both interfaces: cudaErrorIllegalAddress and CUDA_ERROR_ILLEGAL_ADDRESS.
FAULTS = frozenset(
    (
        "illegaladdress", "misalignedaddress", "illegalinstruction", "invalidaddressspace",
        "invalidpc", "hardwarestackerror", "assert", "launchfailure", "launchfailed",
        "launchtimeout", "eccuncorrectable", "tensormemoryleak", "unknown",
    )
)  # fmt: skip
TOO_LARGE = frozenset(("launchoutofresources", "invalidconfiguration", "invalidvalue"))
WRONG_ARCHITECTURE = frozenset(
    (
        "nokernelimagefordevice", "nobinaryforgpu", "invalidptx", "unsupportedptxversion",
        "invaliddevicefunction",
    )
)  # fmt: skip
NO_MEMORY = frozenset(("memoryallocation", "outofmemory"))
_OF_CUDA = ("CUDARuntimeError", "CUDADriverError", "CUBLASError", "NVRTCError", "OutOfMemoryError")


def raise_as(clear: Exception, error: Exception) -> NoReturn:
    """Raise the clear error from the original one; if they are the same, re-raise it."""
    if clear is error:
        raise error
    raise clear from error


def kind_of(error: BaseException) -> str:
    """The error's name without cudaError or CUDA_ERROR_, in lower case; "" for others' errors."""
    if type(error).__name__ == "OutOfMemoryError":
        return "outofmemory"
    if type(error).__name__ not in _OF_CUDA:
        return ""
    name = str(error).partition(":")[0].strip()
    return name.removeprefix("cudaError").removeprefix("CUDA_ERROR_").replace("_", "").lower()


def explained(error: Exception, driver: Any, doing: str) -> Exception:
    """The error to raise for one that occurred while `doing` something; itself if it is not
    CUDA's."""
    kind = kind_of(error)
    if not kind or isinstance(error, MinimlError):
        return error
    if kind in FAULTS:
        return DeviceLostError(
            f"device {driver.name!r} is lost: a kernel launched before faulted ({error}), and "
            "nothing that is there can be used any more; start the process anew, and run the same "
            "with device_target='cuda-sim', which names the kernel, the thread and the line"
        )
    return DeviceError(f"device {driver.name!r} failed at {doing}: {error}")


def no_memory(error: Exception, driver: Any, nbytes: int) -> Exception:
    """The error to raise when an allocation fails."""
    if kind_of(error) not in NO_MEMORY:
        return explained(error, driver, f"an allocation of {nbytes} bytes")
    return no_room(driver.name, nbytes, *driver.occupied())


def not_launched(
    error: Exception, driver: Any, entry: str, grid: Any, block: Any, shared: int
) -> Exception:
    """The error to raise when a launch is refused."""
    kind = kind_of(error)
    if kind in TOO_LARGE:
        return LaunchError(
            f"kernel {entry} cannot be launched with grid {tuple(grid)}, block {tuple(block)} and "
            f"{shared} bytes of dynamic shared memory ({error}); fewer threads a block need fewer "
            "registers, and __launch_bounds__ makes the compiler save some"
        )
    return not_loaded(error, driver, entry)


def not_loaded(error: Exception, driver: Any, entry: str) -> Exception:
    """The error to raise when a kernel cannot be loaded."""
    if kind_of(error) in WRONG_ARCHITECTURE or "--gpu-architecture" in str(error):
        capability = driver.capability
        return DeviceError(
            f"kernel {entry} cannot be compiled for this GPU, of compute capability "
            f"{capability[:-1]}.{capability[-1]} ({error}); use a cupy of another version of CUDA: "
            "pip install 'miniml[cuda12]' for older GPUs, 'miniml[cuda13]' for newer ones"
        )
    return explained(error, driver, f"the launch of kernel {entry}")


# --- The simulator --------------------------------------------------------------------------------


class Simulator:
    """The driver of the simulator of a GPU, with the figures of an H100, in one mode."""

    name, capability, shared_limit, cublas = "cuda-sim", "90", DYNAMIC_SHARED, None
    stream, occupied = STREAM, staticmethod(occupied)

    def __init__(self, mode: str):
        unit.identity()  # DeviceError if nothing can be compiled and nothing is cached
        self.mode, self.checks = mode, mode == "check"
        # Of cupy's names, those with which kernels set the constants of their texts.
        self.module = SimpleNamespace(ndarray=placed)

    def allocate(self, nbytes: int) -> Memory:
        return Memory(DeviceAllocation(nbytes), 0, (nbytes,), np.dtype(np.uint8))

    def read(self, memory: Memory) -> Any:
        return memory.get()

    def write(self, memory: Memory, array: Any) -> None:
        memory.set(array)

    def synchronize(self) -> None:
        STREAM.synchronize()

    def load(self, code: str, options: Sequence[str]) -> Module:
        return Module(code, options, self.mode)

    def capture(self, launches: Callable[[], object]) -> Callable[[], None]:
        with recording() as kept:
            launches()

        def run() -> None:
            for launch in kept:
                launch()

        return lambda: STREAM.do(run)


def placed(shape: int | Sequence[int], dtype: Any, memory: Memory) -> Memory:
    """An array in the memory of a variable, as cupy's ndarray(shape, dtype, memptr)."""
    found = Memory(
        memory.allocation, 0, (shape,) if isinstance(shape, int) else shape, np.dtype(dtype)
    )
    if found.nbytes > memory.nbytes:
        raise ValueError(f"{found.nbytes} bytes do not fit {memory.nbytes} of memory")
    return found


# --- NVRTC by itself, on a machine without GPU ----------------------------------------------------

ARCHITECTURES = (75, 80, 90, 100, 120)

_ENTRY = re.compile(r"Compiling entry function '(\w+)'")
_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")
_WARNING = re.compile(r"^.*\bwarning\s*[#:].*", re.MULTILINE | re.IGNORECASE)
_OF_CCCL = re.compile(r'cannot open source file "(?:nv/|cub/|cuda/|thrust/)')


class Usage(NamedTuple):
    """The resources of one kernel: a thread's registers, bytes of stack, and bytes of registers
    spilled to and loaded from memory; a block's bytes of static shared memory."""

    kernel: str
    registers: int
    shared: int
    stack: int
    stores: int
    loads: int


class Compiled(NamedTuple):
    """A text that compiles: its kernels, and the lines of the log that warn."""

    kernels: tuple[Usage, ...]
    warnings: tuple[str, ...]

    def faults(self) -> list[str]:
        """The faults of a text that compiles: warnings, spilled registers, and more static shared
        memory than a block may have."""
        found = list(self.warnings)
        for k in self.kernels:
            if k.stores or k.loads:
                found.append(
                    f"{k.kernel} spills registers: {k.stores} bytes of stores, {k.loads} of loads"
                )
            if k.shared > STATIC_SHARED:
                found.append(
                    f"{k.kernel} has {k.shared} bytes of static shared memory; a block may have "
                    f"{STATIC_SHARED}"
                )
        return found


class Nvrtc:
    """The compiler in one shared library, with the folder of CUDA's headers."""

    def __init__(self, library: Path, headers: Path):
        for part in library.parent.glob("libnvrtc-builtins.so.*"):
            ctypes.CDLL(str(part))  # NVRTC looks for it by name later, among loaded libraries only
        self.path, self.headers = library, headers
        self._library = ctypes.CDLL(str(library))
        self._library.nvrtcGetErrorString.restype = ctypes.c_char_p

    @property
    def version(self) -> str:
        """Major and minor version, as in "13.0"."""
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._call("nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
        return f"{major.value}.{minor.value}"

    @property
    def architectures(self) -> list[int]:
        """The architectures it compiles for."""
        count = ctypes.c_int()
        self._call("nvrtcGetNumSupportedArchs", ctypes.byref(count))
        found = (ctypes.c_int * count.value)()
        self._call("nvrtcGetSupportedArchs", found)
        return list(found)

    @cached_property
    def identity(self) -> str:
        """The compiler and its headers, on which a result depends besides text and options."""
        sizes = sorted((p.name, p.stat().st_size) for p in self.headers.glob("*.h*"))
        return f"NVRTC {self.version} {self.path.stat().st_size} {sizes}"

    def options(self, architecture: int) -> tuple[str, ...]:
        """The options that cupy passes for a GPU of that architecture: 90 stands for sm_90."""
        return (
            *OPTIONS, f"-I{self.headers}", "-ftz=true", f"-arch=sm_{architecture}",
            "--device-as-default-execution-space",
        )  # fmt: skip

    def compile(self, text: str, architecture: int, *more: str) -> Compiled:
        """The resources of a text's kernels, compiled with cupy's options and `more`.

        CompileError, with the compiler's log, for a text that does not compile; DeviceError for an
        architecture that the compiler does not know.
        """
        if architecture not in self.architectures:
            raise DeviceError(
                f"NVRTC {self.version} compiles for {', '.join(map(str, self.architectures))}; "
                f"got {architecture}"
            )
        program = ctypes.c_void_p()
        source = text.encode()
        self._call("nvrtcCreateProgram", ctypes.byref(program), source, b"kernel.cu", 0, None, None)
        try:
            given = (*self.options(architecture), "--ptxas-options=-v", *more)
            flags = (ctypes.c_char_p * len(given))(*[flag.encode() for flag in given])
            failed = self._library.nvrtcCompileProgram(program, len(given), flags)
            log = self._log(program)
            if failed:
                faults = Compiled(tuple(usages(log)), ()).faults()  # an error of the assembler's
                message = "; ".join(faults) or self._library.nvrtcGetErrorString(failed).decode()
                if _OF_CCCL.search(log):
                    message += (
                        "; cooperative_groups.h, cub and cuda/std need CCCL's headers: "
                        f"pip install 'nvidia-cuda-cccl=={self.version.partition('.')[0]}.*'"
                    )
                raise CompileError(
                    f"a text does not compile for sm_{architecture} (NVRTC {self.version}): "
                    f"{message}\n{log}"
                )
        finally:
            self._library.nvrtcDestroyProgram(ctypes.byref(program))
        return Compiled(tuple(usages(log)), tuple(_WARNING.findall(log)))

    def _log(self, program: ctypes.c_void_p) -> str:
        size = ctypes.c_size_t()
        self._call("nvrtcGetProgramLogSize", program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        self._call("nvrtcGetProgramLog", program, log)
        return log.value.decode()

    def _call(self, name: str, *args: Any) -> None:
        failed = getattr(self._library, name)(*args)
        if failed:
            message = self._library.nvrtcGetErrorString(failed).decode()
            raise DeviceError(f"{name} of NVRTC failed: {message}")


def usages(log: str) -> list[Usage]:
    """The assembler's report: one kernel after the other, each with the functions it calls."""
    found = []
    _, *parts = _ENTRY.split(log)
    for name, message in zip(parts[::2], parts[1::2], strict=True):
        frames = [tuple(map(int, numbers)) for numbers in _FRAME.findall(message)]
        stack, stores, loads = map(sum, zip(*frames, strict=True)) if frames else (0, 0, 0)
        registers, shared = _number(_REGISTERS, message), _number(_SHARED, message)
        found.append(Usage(name, registers, shared, stack, stores, loads))
    return found


def _number(pattern: re.Pattern[str], text: str) -> int:
    match = pattern.search(text)
    return int(match[1]) if match else 0


@cache
def folders_of_cccl() -> tuple[str, ...]:
    """Options for the headers of cub, cuda/std and cooperative groups: of their own wheel, or of
    cupy's; () where neither is installed."""
    for package, parts in (
        ("nvidia", ("*/include/cccl",)),
        ("cupy", [f"_core/include/cupy/_cccl/{p}" for p in ("libcudacxx", "cub", "thrust")]),
    ):
        spec = importlib.util.find_spec(package)
        roots = [Path(p) for p in spec.submodule_search_locations or ()] if spec else []
        found = [p for root in roots for part in parts for p in sorted(root.glob(part))]
        if found:
            return tuple(f"-I{p}" for p in found)
    return ()


@cache
def compiler() -> Nvrtc:
    """The compiler that is installed as a wheel; DeviceError, with the remedy, if absent."""
    spec = importlib.util.find_spec("nvidia")
    roots = [Path(p) for p in spec.submodule_search_locations or ()] if spec else []
    libraries = sorted(p for root in roots for p in root.glob("*/lib/libnvrtc.so.*"))
    headers = [p.parent for root in roots for p in root.glob("*/include/cuda_fp16.h")]
    if not libraries or not headers:
        raise DeviceError(
            "NVIDIA's compiler is not installed; pip install 'miniml[sim]' (for Linux on x86-64 "
            "and aarch64)"
        )
    return Nvrtc(libraries[-1], headers[-1])
