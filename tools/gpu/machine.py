"""Versions, the device, and one kernel."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import platform
import shutil
import subprocess
from importlib import metadata
from typing import Any

import numpy as np

import miniml as ml
from miniml import ops
from miniml.backends.selection import get_device
from tools.gpu.step import arguments

PACKAGES = (
    "numpy", "scipy", "ml_dtypes", "optree", "cupy-cuda13x", "cupy-cuda12x", "torch", "jax",
    "pytest", "pytest-timeout", "pytest-xdist", "hypothesis", "threadpoolctl",
)  # fmt: skip
QUERY = "name,driver_version,memory.total,clocks.max.sm,clocks.max.memory,power.limit"


def versions() -> dict[str, str]:
    """The versions of what is installed."""
    found = {"python": platform.python_version(), "miniml": ml.__version__}
    for name in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def output_of(*command: str) -> str:
    """Output of a command; "" where there is no such command."""
    if shutil.which(command[0]) is None:
        return ""
    run = subprocess.run(command, capture_output=True, text=True, timeout=20)
    return run.stdout.strip()


def configuration() -> str:
    """Facts that cupy states about itself."""
    if importlib.util.find_spec("cupy") is None:
        return ""
    import cupy  # noqa: PLC0415 - there is none on most machines

    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        cupy.show_config()
    return text.getvalue()


def device_figures(driver: Any) -> dict[str, Any]:
    """Compute capability, memory and shared memory of a block; of a GPU versions of driver and
    runtime, and further limits."""
    found = {
        "compute_capability": driver.capability,
        "memory": driver.occupied()[1],
        "MaxSharedMemoryPerBlockOptin": driver.shared_limit,
    }
    if driver.name == "cuda":
        cuda = driver.module.cuda
        found |= {
            "driver": cuda.runtime.driverGetVersion(),
            "runtime": cuda.runtime.runtimeGetVersion(),
            "memory": cuda.Device().mem_info[1],
        }
        attributes = cuda.Device().attributes
        names = ("MultiProcessorCount", "L2CacheSize", "ClockRate")
        found |= {n: attributes[n] for n in names if n in attributes}
    return found


def main() -> None:
    given = arguments(__doc__)
    found = given.found
    found["versions"] = versions()
    found["system"] = f"{platform.system()} {platform.release()} {platform.machine()}"
    found["commit"] = output_of("git", "rev-parse", "HEAD")
    found["changed"] = bool(output_of("git", "status", "--porcelain", "--untracked-files=no"))
    found.save()
    found["gpu"] = output_of("nvidia-smi", f"--query-gpu={QUERY}", "--format=csv,noheader")
    if given.device == "cuda":
        found["cupy"] = configuration()
    found["device"] = device_figures(get_device(given.device).driver)
    found.save()
    x = np.linspace(-2, 2, 1000).astype(np.float32)
    y = ops.exp(ml.Tensor(x, device=given.device)).asnumpy()
    assert np.allclose(y, np.exp(x), rtol=1e-5), "the first kernel computes something else"
    found["kernel"] = "exp of 1000 numbers is right"
    found.save()


if __name__ == "__main__":
    main()
