"""The machine's C++ compiler as the simulator uses it: its flags, and the cache of its output."""

from __future__ import annotations

import platform
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from ....errors import CompileError, DeviceError
from ...cache import Cache, content_of
from ...toolchain import Job, Toolchain, digest

HERE = Path(__file__).parent
INCLUDE = HERE / "include"
_RUNTIME = HERE / "runtime"
CACHE = Cache("cuda-sim", 256 << 20)  # bytes: some thousand units
TOOLS = Toolchain(
    language="C++",
    variable="CXX",
    names=("g++", "c++", "clang++"),
    user="device 'cuda-sim'",
    where="apt install g++",
    seconds=300.0,  # a large unit takes ten
)
_SIZE = 8  # bytes for the length of a log in a file


@cache
def is_clang() -> bool:
    """True when the compiler is clang, whose flags differ."""
    return "clang" in TOOLS.run(["--version"])


@cache
def identity() -> str:
    """The compiler's identity, for file names; without a compiler, that of the one that filled the
    cache.

    DeviceError if nothing can be compiled and nothing is cached.
    """
    if sys.platform != "linux":
        raise DeviceError(
            "device 'cuda-sim' runs on Linux only, on x86-64 and aarch64; elsewhere use a "
            "container, or WSL on Windows"
        )
    if TOOLS.find():
        return TOOLS.identity()
    runtime = CACHE.newest(f"runtime-{digest(_own_text(), *_RUNTIME_FLAGS)}-*.so")
    return runtime.stem.rpartition("-")[2] if runtime else TOOLS.identity()


@cache
def _own_text() -> str:
    """Our own C++ text, on which compiled files depend besides their source and the compiler."""
    own = sorted([*INCLUDE.rglob("*"), *_RUNTIME.glob("*")])
    texts = "".join(f"{p.name}\n{p.read_text()}" for p in own if p.is_file())
    return f"{platform.machine()}\n{texts}"


def file_name(kind: str, *parts: str) -> str:
    """The name of a compiled file: equal for equal parts, equal texts of our own, and equal
    compilers."""
    return f"{kind}-{digest(_own_text(), *parts)}-{identity()}.so"


def build(name: str, arguments: Sequence[str], text: str = "") -> Path:
    """Compiles to a file of the cache; the log is appended to the library, see `log_of`."""

    def compiled(scratch: Path) -> bytes:
        ((content, log),) = TOOLS.libraries([Job(arguments, text)], scratch)
        kept = log.encode()
        return content + kept + len(kept).to_bytes(_SIZE, "little")

    return CACHE.make(name, compiled)


def log_of(path: Path) -> str:
    """The compiler's log of a compiled file: warnings."""
    content = content_of(path)
    end = len(content) - _SIZE
    return content[end - int.from_bytes(content[end:], "little") : end].decode()


@cache
def takes(flag: str) -> bool:
    """True when this version of the compiler knows a flag."""
    try:
        TOOLS.run([flag, "-x", "c++", "-E", "-"])
    except CompileError:
        return False
    return True


_RUNTIME_FLAGS = (
    "-std=c++17", "-O2", "-g1", "-fPIC", "-shared", "-fvisibility=hidden", "-fno-exceptions",
    "-fno-rtti", "-fno-omit-frame-pointer",
)  # fmt: skip


def runtime_library() -> Path:
    """The compiled runtime: fibers, barriers, the checker."""
    name = file_name("runtime", *_RUNTIME_FLAGS)
    # Units name it by its soname and find it beside them, wherever the folder is moved.
    flags = [*_RUNTIME_FLAGS, f"-Wl,-soname,{name}", str(_RUNTIME / "all.cpp")]
    return CACHE.find(name) or build(name, flags)
