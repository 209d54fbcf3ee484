"""Commands about this machine: what is installed on it, compiled on it, and how fast it is.

`doctor`: the packages, compilers and GPUs, and how to get missing ones. `cache`: lists the compiled
files on disk, by kind; `--clear` removes them. `nvrtc FILE`: compiles kernels with NVRTC, without a
GPU, and prints their resources. `bench`: runs the benchmarks of a checkout.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import platform
import runpy
import sys
import warnings
from argparse import ArgumentParser
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, NamedTuple

import threadpoolctl

from ..backends import registry
from ..backends.cc import units
from ..backends.cc.units import Source
from ..backends.compiled import Entry, Toolchain
from ..backends.cuda import driver
from ..backends.cuda.device import raw_text
from ..backends.cuda.sim.unit import CACHE, TOOLS
from ..backends.cuda.text.source import unit
from ..backends.kernel import KernelEntry, RawSource, cpu_threads
from ..core.abstract import ALL, ArraySpec
from ..core.errors import CompileError, MinimlError
from . import imported, near, whole

MARKS = {"on": "ok", "off": "--", "wrong": "!!"}


class Finding(NamedTuple):
    """One line: the thing, its state, details of it, and how to get it."""

    what: str
    state: Literal["on", "off", "wrong"]
    found: str
    advice: str = ""


def add_doctor(command: ArgumentParser) -> None:
    command.set_defaults(run=lambda o: run_doctor())


def run_doctor() -> int:
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
    yield _compiler(TOOLS, "the CUDA simulator")
    yield from compiled_files()
    yield compiles_cuda()


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
    for cache in (units.CACHE, CACHE):
        problem = cache.problem()
        if problem:
            advice = "a temporary folder takes its place; set MINIML_CACHE to a folder of your own"
            yield Finding("compile cache", "off", f"{cache.folder}: {problem}", advice)
            continue
        used, limit = sum(e.nbytes for e in cache.entries()) / 2**20, cache.limit / 2**20
        found = f"{cache.folder}, {used:.0f} of {limit:.0f} MB"
        yield Finding("compile cache", "on", found)


def compiles_cuda() -> Finding:
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


# --- `cache`: compiled files on disk --------------------------------------------------------------

CACHES = (units.CACHE, CACHE)
_HOUR, _DAY = 3600, 86400  # seconds


def add_cache(command: ArgumentParser) -> None:
    command.add_argument("--clear", action="store_true", help="remove them; they are compiled anew")
    command.set_defaults(run=lambda o: run_cache(o.clear))


def run_cache(clear: bool) -> int:
    """Print a line for each folder and kind, or remove the files."""
    kinds: dict[tuple[Path, str], list[Entry]] = defaultdict(list)
    for cache in CACHES:
        for entry in cache.entries():
            kinds[entry.path.parent, entry.kind].append(entry)
        if clear:
            cache.clear()
    for (folder, kind), entries in kinds.items():
        print(f"{'removed ' * clear}{folder}  {kind}  {_summary(entries)}")
    if not kinds:
        print(f"nothing is kept in {' or '.join(str(c.folder) for c in CACHES)}")
    return 0


def _summary(entries: list[Entry]) -> str:
    size = sum(e.nbytes for e in entries) / 2**20
    ages = sorted(e.age for e in entries)
    return (
        f"{len(entries)} files, {size:.1f} MB, last used {_span(ages[0])} to {_span(ages[-1])} ago"
    )


def _span(seconds: float) -> str:
    """A time in a suitable unit."""
    if seconds < _HOUR:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / _HOUR:.0f} h" if seconds < _DAY else f"{seconds / _DAY:.0f} days"


# --- `nvrtc`: what NVIDIA's compiler makes of CUDA C ----------------------------------------------

_COLUMNS = "kernel", "registers", "shared", "stack", "spilled"


def add_nvrtc(command: ArgumentParser) -> None:
    command.add_argument(
        "file",
        help="CUDA C as raw_kernel takes it, or path/to/file.py, whose raw kernels are compiled "
        "in each of their signatures",
    )
    command.add_argument(
        "--arch", type=partial(whole, "architecture", 50), nargs="+", default=[90],
        help="of GPUs: 75 for sm_75 and so on; 90 by default",
    )  # fmt: skip
    command.add_argument(
        "-D", dest="defines", action="append", default=[], metavar="NAME=VALUE",
        help="a macro of a text, or, where the value is a dtype of miniml, a type: T=float16",
    )  # fmt: skip
    command.add_argument(
        "--option", dest="options", action="append", default=[],
        help="one more option of NVRTC: --option=--use_fast_math",
    )  # fmt: skip
    command.set_defaults(run=lambda o: run_nvrtc(o.file, o.arch, o.defines, o.options))


def run_nvrtc(
    file: str, architectures: Sequence[int], defines: Sequence[str], more: list[str]
) -> int:
    """Print the resources of the kernels on each architecture, or the compiler's log; returns 1
    if a source does not compile, else 0."""
    compiler, code = driver.compiler(), 0
    found = list(_registered(file) if file.endswith(".py") else _text(file, defines))
    for title, text, own in found:
        options = *driver.folders_of_cccl(), *own, *more
        for architecture in architectures:
            print(f"{title}, sm_{architecture}, NVRTC {compiler.version}")
            try:
                print(_report(compiler.compile(text, architecture, *options)))
            except CompileError as error:
                print(error)
                code = 1
    return code


def _text(file: str, defines: Sequence[str]) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """The unit of a file of CUDA C; errors have the line numbers of the file."""
    path = Path(file)
    if not path.is_file():
        there = [str(p) for p in path.parent.glob("*.cu")]
        raise MinimlError(f"there is no file {file!r}; {near(file, there)}")
    names = dict(_defined(d) for d in defines)
    yield file, unit(f'#line 1 "{path.name}"\n{path.read_text("utf-8")}', **names), ()


def _defined(given: str) -> tuple[str, Any]:
    """A macro and its value, a dtype if it is the name of one."""
    name, _, value = given.partition("=")
    if not name.isidentifier():
        raise MinimlError(f"-D {given!r} defines nothing; give NAME=VALUE, as T=float32 or TILE=16")
    return name, {d.name: d for d in ALL}.get(value, value or "1")


def _registered(file: str) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """The units of the raw kernels that a Python file registers."""
    module = imported(file).__name__
    raws = [
        (entry, entry.body)
        for (_, device), entries in registry.table.items()
        for entry in entries
        if device == "cuda" and entry.module == module and isinstance(entry.body, RawSource)
    ]
    if not raws:
        raise MinimlError(
            f"{file} registers no raw_kernel; give the text of a Kernel class as a file of CUDA C"
        )
    for entry, body in raws:
        yield f"{entry.name} {entry.signature}", raw_text(body, _typed(entry)), body.options


def _typed(entry: KernelEntry) -> Any:
    """A node with the dtypes of an entry, on which alone the source depends."""
    taken, given = (
        tuple(ArraySpec((), d) for d in dtypes if d is not None)
        for dtypes in (entry.signature.inputs, entry.signature.outputs)
    )
    return SimpleNamespace(inputs=taken, outputs=given)


def _report(compiled: driver.Compiled) -> str:
    """A table of kernels, in bytes except for registers; then the warnings."""
    rows = [_COLUMNS] + [
        (k.kernel, *map(str, (k.registers, k.shared, k.stack, k.stores + k.loads)))
        for k in compiled.kernels
    ]
    widths = [max(len(row[i]) for row in rows) for i in range(len(_COLUMNS))]
    lines = [
        "  " + "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])])
        for row in rows
    ]
    return "\n".join([*lines, *(f"  {w}" for w in compiled.warnings)])


# --- `bench`: the benchmarks of a checkout --------------------------------------------------------


def add_bench(command: ArgumentParser) -> None:
    command.description = (
        "Run the benchmarks of a checkout, as `make bench` does: training steps beside NumPy "
        "written by hand, memory beside its lower bound, compile and import times, and the "
        "checkers beside other systems that are installed. Best on an idle machine; some minutes."
    )
    command.set_defaults(run=lambda o: run_bench())


def run_bench() -> int:
    """Run them; returns the exit code."""
    if importlib.util.find_spec("benchmarks") is None:
        print(
            "miniml: the benchmarks are not installed with miniml; run this, or `make bench`, in "
            "the top folder of a checkout",
            file=sys.stderr,
        )
        return 2
    runpy.run_module("benchmarks", run_name="__main__", alter_sys=True)
    return 0
