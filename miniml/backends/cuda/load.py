"""Lookup of this machine's CUDA device: a GPU through cupy, or the simulator."""

from __future__ import annotations

from functools import partial
from typing import Any

from ...core.errors import DeviceError
from . import emulator as emucupy
from . import kernels as kernels  # registers the library's kernels
from .device import Cuda
from .sim import memory, unit

NO_DEVICE = 100  # cudaErrorNoDevice
NO_GPU = "device 'cuda' is not available: there is no GPU; use device_target='cuda-sim'"


def device(name: str, sim: str) -> Cuda:
    """The device "cuda" or "cuda-sim"; DeviceError, with a remedy, if it is absent."""
    return simulator(sim) if name == "cuda-sim" else gpu()


def gpu() -> Cuda:
    """The first GPU that cupy finds."""
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
    return Cuda("cuda", cupy)


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


def simulator(sim: str) -> Cuda:
    """The simulator, in mode "check" or "fast"."""
    unit.identity()  # DeviceError if nothing can be compiled and nothing is cached
    return Cuda("cuda-sim", emucupy, partial(memory.using, mode=sim), sim == "check")
