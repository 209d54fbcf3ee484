"""What every test run has in common: threads, budgets, seeds, and which skips are honest."""

import ctypes
import functools
import gc
import importlib.metadata
import inspect
import math
import os
import platform
import shutil
import signal
import sys
import time

# Before NumPy is imported: the BLAS of each test process computes on one thread, loops in C on what
# there is, as OMP_NUM_THREADS would say it of both.
for _name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
os.environ.pop("OMP_NUM_THREADS", None)
os.environ["MPLBACKEND"] = "Agg"
# Hundreds of processes import miniml, which takes twice as long from source.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

import hypothesis
import numpy as np
import pytest
import threadpoolctl
from _pytest.doctest import DoctestModule

DEEP = os.environ.get("MINIML_DEEP", "") not in ("", "0")
RATES = os.environ.get("MINIML_RATES", "") not in ("", "0")
NO_SKIPS = os.environ.get("MINIML_NO_SKIPS", "") not in ("", "0")
# After so many minutes a process begins no further test: a build server stops at some time.
MINUTES = float(os.environ.get("MINIML_MINUTES") or "inf")
BEGUN = time.monotonic()

_COMMON = {"deadline": None, "derandomize": True, "database": None, "print_blob": True}
hypothesis.settings.register_profile("small", max_examples=20, **_COMMON)
hypothesis.settings.register_profile("deep", max_examples=400, **_COMMON)
hypothesis.settings.load_profile("deep" if DEEP else "small")


def _has_driver() -> bool:
    """True where NVIDIA's driver is installed, with or without a GPU."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def _gpu_count() -> int:
    """How many GPUs there are, asked of the NVIDIA driver itself: no package needed."""
    if not _has_driver():
        return 0
    driver = ctypes.CDLL("libcuda.so.1")
    count = ctypes.c_int(0)
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return 0
    return count.value


@functools.cache
def _distributions() -> frozenset[str]:
    return frozenset(d.metadata["Name"] for d in importlib.metadata.distributions())


def _installed(*packages: str) -> bool:
    """True where one of these packages is."""
    return not _distributions().isdisjoint(packages)


GPUS = _gpu_count()

# Where the simulator looks for a C++ compiler.
CXX = os.environ.get("CXX", "").split()[:1] or ["g++", "c++", "clang++"]
HAS_CXX = any(map(shutil.which, CXX))

# Where provider "cc" looks for a C compiler: a wheel brings one, too.
CC = os.environ.get("CC", "").split()[:1]
HAS_CC = any(map(shutil.which, CC or ["gcc", "clang", "cc"])) or (not CC and _installed("ziglang"))

# NVIDIA's compiler and cupy are wheels, which exist for these machines only; make installs them.
WHEELS_OF_CUDA = platform.machine() in ("x86_64", "aarch64") and platform.libc_ver()[0] == "glibc"

# What opens pages.
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")

# mpi4py, and the launcher that the wheel of an MPI library puts beside Python.
HAS_MPI = _installed("mpi4py") and os.path.exists(
    os.path.join(os.path.dirname(sys.executable), "mpiexec")
)

# How a reason for skipping may begin, and whether it is true of this machine.
HONEST_SKIPS = {
    "no time": math.isfinite(MINUTES),
    "no GPU": GPUS == 0,
    "a driver is here": _has_driver(),
    "no C compiler": not HAS_CC,
    "no cupy": not WHEELS_OF_CUDA,
    "no torch": not _installed("torch"),
    "no jax": not _installed("jax"),
    "no onnx": not _installed("onnx"),
    "no mpi4py": not HAS_MPI,
    "no NVRTC": not WHEELS_OF_CUDA,
    "no cuBLAS": not _installed("nvidia-cublas", "nvidia-cublas-cu12"),
    "no C++ compiler": not HAS_CXX,
    "no browser": not any(map(shutil.which, BROWSERS)),
    "no AVX2": platform.machine() not in ("x86_64", "AMD64"),
    "no zig": not _installed("ziglang"),
    "no WebAssembly compiler": not (shutil.which("clang") and shutil.which("wasm-ld"))
    and not _installed("ziglang"),
    "no node": not shutil.which("node"),
    "no aarch64": not all(map(shutil.which, ("aarch64-linux-gnu-g++", "qemu-aarch64"))),
}


def _is_honest(reason: str) -> bool:
    return any(reason.startswith(start) and true for start, true in HONEST_SKIPS.items())


_LIMITS = pytest.StashKey[threadpoolctl.threadpool_limits]()


def pytest_configure(config: pytest.Config) -> None:
    # Where a shell started the tests in the background, Ctrl-C is ignored: tests of it need it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    config.stash[_LIMITS] = threadpoolctl.threadpool_limits(1)
    gc.disable()  # nearly all that a collection of tests makes is still there at its end


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deep tests and rates leave the list unless asked for, tests on a GPU where there is none;
    those of Hypothesis, which do more in a deep run, are marked.

    Deep ones come first: they take long, and at the end no process is left with one."""
    asked_for = {"deep": DEEP, "rates": RATES, "gpu": GPUS > 0}
    unwanted = {marker for marker, expected in asked_for.items() if not expected}
    first, then, left_out = list[pytest.Item](), list[pytest.Item](), list[pytest.Item]()
    for item in items:
        marks = {mark.name for mark in item.iter_markers()}
        if "hypothesis" in marks:
            item.add_marker("larger")
        left = not unwanted.isdisjoint(marks)
        (left_out if left else first if "deep" in marks else then).append(item)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
    items[:] = first + then


def _refuse_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Under MINIML_NO_SKIPS a skip whose reason does not hold here becomes a failure."""
    if not (NO_SKIPS and report.skipped) or hasattr(report, "wasxfail"):
        return
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    reason = reason.removeprefix("Skipped: ")
    if not _is_honest(reason):
        report.outcome = "failed"
        report.longrepr = f"skipped, though this machine could run it: {reason}"


def pytest_runtest_setup() -> None:
    if time.monotonic() - BEGUN > 60 * MINUTES:
        pytest.skip(f"no time: {MINUTES:g} minutes are over")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    _refuse_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path, parent):
    """No doctests of the tests, which have none: to look for them would import each again."""
    found = yield
    return [made for made in found if not isinstance(made, DoctestModule)]


def pytest_collection_finish() -> None:
    """Take what is there before the first test out of the garbage collector's sight: it need not
    go through the modules and the list of tests again, each time that a test calls it."""
    gc.enable()
    gc.collect()
    gc.freeze()
    units = sys.modules.get("miniml.backends.cc.units")
    if units and int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")) > 1:
        units._PROCESSES = 1  # of the compiler, in each test process: to divide a text takes time


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    report = yield
    _refuse_skip(report)
    return report


@pytest.fixture(autouse=True)
def _as_if_alone():
    """Every test starts from the same seed, and gives the settings back as it found them.

    NumPy's own too: a signal inside its printing of an array leaves those of that function behind.
    """
    with np.errstate():
        yield from _from_one_seed()


def _from_one_seed():
    ml = sys.modules.get("miniml")
    if not hasattr(ml, "manual_seed"):  # the test does not use miniml
        yield
        return
    ml.manual_seed(0)
    if not ml.core.settings.current().providers:
        # NumPy's kernels, which are the definition: C would be compiled for every jit of the suite.
        ml.set_context(providers=("miniml",))
    before = ml.core.settings.current()
    yield
    if ml.core.settings.current() != before:
        given = {k: getattr(before, k) for k in inspect.signature(ml.set_context).parameters}
        ml.set_context(**given | {"autocast": before.autocast or False})
