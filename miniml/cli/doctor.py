"""`doctor`: the packages, compilers and GPUs of this machine, and how to get missing ones."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import platform
import sys
import warnings
from argparse import ArgumentParser
from collections.abc import Iterator
from importlib import metadata
from typing import Literal, NamedTuple

import threadpoolctl

from ..backends.cc import units
from ..backends.cc.units import Source
from ..backends.compiled import Toolchain
from ..backends.cuda.sim import unit
from ..backends.device import cpu_threads
from ..core.errors import MinimlError

MARKS = {"on": "ok", "off": "--", "wrong": "!!"}


class Finding(NamedTuple):
    """One line: the thing, its state, details of it, and how to get it."""

    what: str
    state: Literal["on", "off", "wrong"]
    found: str
    advice: str = ""


def add(command: ArgumentParser) -> None:
    command.set_defaults(run=lambda o: run())


def run() -> int:
    """Print every finding; returns 1 if something that miniml needs is wrong."""
    findings = [*core(), *extras(), *tools(), *gpu()]
    width = max(len(f.what) for f in findings)
    for f in findings:
        print(f"{MARKS[f.state]}  {f.what:<{width}}  {f.found}")
        if f.advice:
            print(f"    {'':<{width}}  -> {f.advice}")
    missing = sum(f.state == "off" for f in findings)
    wrong = sum(f.state == "wrong" for f in findings)
    print()
    if wrong:
        print(f"{wrong} of what miniml needs is missing or too old (marked !!).")
    else:
        print(f"miniml can run here; {missing} optional things are absent (marked --).")
    return 1 if wrong else 0


def core() -> Iterator[Finding]:
    """Python, miniml, the packages that it needs, processor and BLAS."""
    yield Finding("python", "on", f"{platform.python_version()} at {sys.executable}")
    yield _package("miniml", "run `make setup` in the checkout, or `pip install .` there", True)
    for name in ("numpy", "scipy", "ml_dtypes", "optree", "safetensors", "threadpoolctl"):
        yield _package(name, f"pip install {name}", True)
    yield Finding("processor", "on", f"{_processor()}, {cpu_threads()} of its threads for miniml")
    libraries = [
        f"{info['internal_api']} {info.get('version') or ''}, {info['num_threads']} threads".strip()
        for info in threadpoolctl.threadpool_info()
        if info["user_api"] == "blas"
    ]
    if libraries:
        yield Finding("BLAS", "on", "; ".join(libraries))
    else:
        yield Finding("BLAS", "off", "none found", "pip install --force-reinstall numpy")
    threads = {
        n: os.environ[n] for n in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS") if n in os.environ
    }
    if threads:
        shown = ", ".join(f"{n}={v}" for n, v in threads.items())
        yield Finding("thread limits", "on", shown)


def extras() -> Iterator[Finding]:
    """The packages of the demo, of the notebooks and of ONNX."""
    for name in ("scikit-learn", "tqdm", "matplotlib"):
        yield _package(name, "the demo needs it: pip install 'miniml[demo]'")
    for name in ("jupytext", "nbclient", "ipykernel"):
        yield _package(name, "the notebooks need it: pip install 'miniml[notebooks]'")
    yield _package("onnx", "models in ONNX need it: pip install 'miniml[onnx]'")


def tools() -> Iterator[Finding]:
    """The compilers of the system, and the folders of their caches."""
    yield _compiler(units.TOOLS, "faster CPU kernels")
    if units.TOOLS.find():
        yield native()
    yield _compiler(unit.TOOLS, "the CUDA simulator")
    yield from compiled_files()
    yield nvrtc()


def _compiler(tools: Toolchain, use: str) -> Finding:
    """A compiler: its version, or the reason why it does not run."""
    what, advice = f"{tools.language} compiler", f"for {use}, optional: {tools.where}"
    if not tools.find():
        return Finding(what, "off", tools.absence(), advice)
    try:
        version = tools.run(["--version"]).partition("\n")[0]
    except (MinimlError, OSError) as error:
        return Finding(what, "off", str(error).partition("\n")[0], advice)
    return Finding(what, "on", f"{' '.join(tools.find())} ({version})")


def native() -> Finding:
    """A trial kernel in C: it compiles and loads, or the reason why not."""
    try:
        with warnings.catch_warnings(action="ignore"):  # a line below tells of the folder
            units.load([Source("void KERNEL(char *const *at) { (void)at; }")])
    except MinimlError as error:
        return Finding("C kernels", "off", str(error), "NumPy's kernels take their place")
    return Finding("C kernels", "on", "a first one compiles and loads")


def compiled_files() -> Iterator[Finding]:
    """The folders of the compile caches."""
    for cache in (units.CACHE, unit.CACHE):
        problem = cache.problem()
        if problem:
            advice = "a temporary folder takes its place; set MINIML_CACHE to a folder of your own"
            yield Finding("compile cache", "off", f"{cache.folder}: {problem}", advice)
            continue
        used, limit = sum(e.nbytes for e in cache.entries()) / 2**20, cache.limit / 2**20
        found = f"{cache.folder}, {used:.0f} of {limit:.0f} MB"
        yield Finding("compile cache", "on", found)


def nvrtc() -> Finding:
    """NVIDIA's compiler, which `nvrtc` and the tests of CUDA sources use without a GPU."""
    versions = filter(None, map(_version, ("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12")))
    version = next(versions, None)
    if version:
        return Finding("NVRTC", "on", version)
    advice = "to compile CUDA sources without a GPU, on Linux: pip install 'miniml[sim]'"
    return Finding("NVRTC", "off", "not installed", advice)


def gpu() -> Iterator[Finding]:
    """The NVIDIA driver and its GPUs, and cupy."""
    devices = _gpus()
    if devices is None:
        yield Finding(
            "NVIDIA driver", "off", "none found", "only for GPUs: install NVIDIA's driver"
        )
    elif not devices:
        yield Finding("GPU", "off", "the driver is there and sees no GPU")
    for name in devices or ():
        yield Finding("GPU", "on", name)
    versions = [v for v in map(_version, ("cupy-cuda13x", "cupy-cuda12x", "cupy")) if v]
    if versions or importlib.util.find_spec("cupy"):
        yield Finding("cupy", "on", versions[0] if versions else "without a package record")
    else:
        advice = "for an NVIDIA GPU: pip install 'miniml[cuda13]', or [cuda12] for older drivers"
        yield Finding("cupy", "off", "not installed", advice)


def _package(name: str, advice: str, needed: bool = False) -> Finding:
    version = _version(name)
    if version:
        return Finding(name, "on", version)
    return Finding(name, "wrong" if needed else "off", "not installed", advice)


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = [
                line.partition(":")[2].strip() for line in file if line.startswith("model name")
            ]
    except OSError:
        names = []
    return names[0] if names else platform.processor() or platform.machine()


def _gpus() -> list[str] | None:
    """The names of the GPUs from the driver; None without a driver."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    count = ctypes.c_int(0)
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return []
    names = []
    for i in range(count.value):
        text = ctypes.create_string_buffer(100)
        driver.cuDeviceGetName(text, 100, i)
        names.append(text.value.decode(errors="replace"))
    return names
