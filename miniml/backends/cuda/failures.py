"""The meaning of errors of cupy and of NVIDIA's driver, each in one sentence."""

from __future__ import annotations

from typing import Any, NoReturn

from ...errors import DeviceError, DeviceLostError, DeviceMemoryError, LaunchError, MinimlError

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


def explained(error: Exception, device: Any, doing: str) -> Exception:
    """The error to raise for one that occurred while `doing` something; itself if it is not
    CUDA's."""
    kind = kind_of(error)
    if not kind or isinstance(error, MinimlError):
        return error
    if kind in FAULTS:
        return DeviceLostError(
            f"device {device.name!r} is lost: a kernel launched before faulted ({error}), and "
            "nothing that is there can be used any more; start the process anew, and run the same "
            "with device_target='cuda-sim', which names the kernel, the thread and the line"
        )
    return DeviceError(f"device {device.name!r} failed at {doing}: {error}")


def no_memory(error: Exception, device: Any, nbytes: int) -> Exception:
    """The error to raise when an allocation fails."""
    if kind_of(error) not in NO_MEMORY:
        return explained(error, device, f"an allocation of {nbytes} bytes")
    pool = device.module.get_default_memory_pool()
    size = pool.get_limit() or device.module.cuda.Device().mem_info[1]
    return DeviceMemoryError(
        f"device {device.name!r} has no room for {nbytes} more bytes: {pool.used_bytes()} of "
        f"{size} are in use; smaller batches take less, and tensors that nothing refers to any "
        "more give theirs back"
    )


def not_launched(
    error: Exception, device: Any, entry: str, grid: Any, block: Any, shared: int
) -> Exception:
    """The error to raise when a launch is refused."""
    kind = kind_of(error)
    if kind in TOO_LARGE:
        return LaunchError(
            f"kernel {entry} cannot be launched with grid {tuple(grid)}, block {tuple(block)} and "
            f"{shared} bytes of dynamic shared memory ({error}); fewer threads a block need fewer "
            "registers, and __launch_bounds__ makes the compiler save some"
        )
    return not_loaded(error, device, entry)


def not_loaded(error: Exception, device: Any, entry: str) -> Exception:
    """The error to raise when a kernel cannot be loaded."""
    if kind_of(error) in WRONG_ARCHITECTURE or "--gpu-architecture" in str(error):
        capability = device.module.cuda.Device().compute_capability
        return DeviceError(
            f"kernel {entry} cannot be compiled for this GPU, of compute capability "
            f"{capability[:-1]}.{capability[-1]} ({error}); use a cupy of another version of CUDA: "
            "pip install 'miniml[cuda12]' for older GPUs, 'miniml[cuda13]' for newer ones"
        )
    return explained(error, device, f"the launch of kernel {entry}")
