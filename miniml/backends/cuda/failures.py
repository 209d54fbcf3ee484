"""Translation of cupy's and the CUDA driver's errors into miniml's; CUDA's limits of a launch, the
arguments that fit a kernel's parameters, and what is refused while a graph is recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NoReturn

import numpy as np

from ...core.errors import (
    CaptureError,
    DeviceError,
    DeviceLostError,
    DeviceMemoryError,
    LaunchError,
    MinimlError,
)

# Limits of a launch that every GPU supported by CUDA allows.
MAX_THREADS = 1024  # of a block
MAX_BLOCK = (1024, 1024, 64)
MAX_GRID = (2**31 - 1, 65535, 65535)
STATIC_SHARED = 48 * 1024  # bytes of shared memory of a block; more must be asked for

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


def no_room(name: str, nbytes: int, used: int, size: int) -> DeviceMemoryError:
    """The error for a device without room for so many more bytes."""
    return DeviceMemoryError(
        f"device {name!r} has no room for {nbytes} more bytes: {used} of "
        f"{size} are in use; smaller batches take less, and tensors that nothing refers to any "
        "more give theirs back"
    )


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


def fits(dtype: np.dtype[Any], kind: str, size: int, array: bool) -> bool:
    """True where a parameter of a NumPy kind (b, i, u or f) and size may get a value of the dtype;
    array: where a pointer to it may get an array.

    A value of an integer may change its sign, as in `size_t n`. An array may not, as C++ converts
    no such pointers: negative numbers would be read as huge ones. A bool is an unsigned byte, too.
    """
    same = dtype.kind == kind or (dtype.kind == "b" and kind == "u")
    signs = not array and {dtype.kind, kind} == {"i", "u"}
    return dtype.itemsize == size and (same or signs)


def misfit(kernel: str, i: int, parameter: object, dtype: Any, array: bool) -> LaunchError:
    """The error for an argument that does not fit."""
    got = f"got an array of {dtype}" if array else f"got a value of {dtype}"
    does = "; a kernel that reads it as another type casts the pointer itself" if array else ""
    return LaunchError(f"argument {i} of {kernel} is {parameter}; {got}{does}")


# --- While a CUDA graph is recorded ---------------------------------------------------------------


class Recording(list[Callable[[], None]]):
    """The simulator's launches meanwhile. refused: the error that spoilt the recording."""

    refused: CaptureError | None = None


_recording: ContextVar[Recording | None] = ContextVar("miniml_cuda_recording", default=None)
recorded = _recording.get  # None while nothing is recorded


@contextmanager
def recording() -> Iterator[Recording]:
    """Record a CUDA graph inside a `with`; CaptureError at its end, too, if a kernel has caught
    one."""
    made = Recording()
    token = _recording.set(made)
    try:
        yield made
    finally:
        _recording.reset(token)
    if made.refused is not None:
        raise made.refused


def refuse_recording(what: str) -> None:
    """CaptureError while a graph is recorded.

    CUDA does not refuse everything: memory of cupy's pool, and copies from the host, would be
    recorded, and would have changed when the graph runs again.
    """
    made = recorded()
    if made is not None:
        message = f"a CUDA graph only launches; got {what} while one was recorded"
        made.refused = CaptureError(message)
        raise made.refused
