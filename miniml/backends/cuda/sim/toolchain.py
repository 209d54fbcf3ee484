"""The machine's C++ compiler: its identity, how it is run, and the cache of its output."""

from __future__ import annotations

import ctypes
import errno
import hashlib
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

from ....errors import CompileError, DeviceError
from ...cache import Cache, content_of

HERE = Path(__file__).parent
INCLUDE = HERE / "include"
_RUNTIME = HERE / "runtime"
CACHE = Cache("cuda-sim", 256 << 20)  # bytes: some thousand units
SECONDS = 300.0  # seconds after which a compiler counts as hung; a large unit takes ten
_LOG = 20_000  # characters of a compiler's log in an error
_SIZE = 8  # bytes for the length of a log in a file
_OTHER = "set CXX to another, or reinstall it: apt install --reinstall g++"
# How the drivers of g++ and clang++ report that a signal ended their subprocess.
_KILLED = re.compile(r"signal terminated program|Killed signal|unable to execute command: \w+")
_FULL = {os.strerror(code): code for code in (errno.ENOSPC, errno.EDQUOT)}


@cache
def compiler() -> tuple[str, ...]:
    """The command of the C++ compiler: $CXX, g++, c++ or clang++; DeviceError without one."""
    named = os.environ.get("CXX", "").split()
    candidates = [named] if named else [["g++"], ["c++"], ["clang++"]]
    for command in candidates:
        path = shutil.which(command[0])
        if path:
            return (path, *command[1:])
    raise DeviceError(
        f"device 'cuda-sim' needs a C++ compiler, and there is none ({' '.join(named) or 'g++'}); "
        "install one: apt install g++"
    )


@cache
def is_clang() -> bool:
    """True when the compiler is clang, whose flags differ."""
    return "clang" in run(["--version"])


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
    try:
        command = compiler()
    except DeviceError:
        runtime = CACHE.newest(f"runtime-{_hash(_own_text(), *_RUNTIME_FLAGS)}-*.so")
        if runtime is None:
            raise
        return runtime.stem.rpartition("-")[2]
    path = os.path.realpath(command[0])
    status = os.stat(path)
    return _hash(repr(command), path, str(status.st_size), str(status.st_mtime_ns))


@cache
def _own_text() -> str:
    """Our own C++ text, on which compiled files depend besides their source and the compiler."""
    own = sorted([*INCLUDE.rglob("*"), *_RUNTIME.glob("*")])
    texts = "".join(f"{p.name}\n{p.read_text()}" for p in own if p.is_file())
    return f"{platform.machine()}\n{texts}"


def _hash(*parts: str) -> str:
    text = "\0".join(parts).encode(errors="surrogatepass")
    return hashlib.sha256(text).hexdigest()[:32]


def file_name(kind: str, *parts: str) -> str:
    """The name of a compiled file: equal for equal parts, equal texts of our own, and equal
    compilers."""
    return f"{kind}-{_hash(_own_text(), *parts)}-{identity()}.so"


def run(arguments: Sequence[str], text: str = "") -> str:
    """The compiler's output, with `text` as its input.

    CompileError with its log if it refuses the text; DeviceError if it fails itself; OSError if the
    disk is full.
    """
    return _run(arguments, text)[0]


def _run(arguments: Sequence[str], text: str = "", scratch: Path | None = None) -> tuple[str, str]:
    """The compiler's output and its log; `scratch` is for its temporary files."""
    command = [*compiler(), *arguments]
    environment = os.environ | {"LC_ALL": "C.UTF-8"}
    if scratch is not None:
        environment["TMPDIR"] = str(scratch)
    try:
        process = subprocess.Popen(
            command, stdin=-1, stdout=-1, stderr=-1, env=environment, process_group=0
        )
    except OSError as error:
        raise _failed(f"cannot be run ({error.strerror})") from None
    output, log = _communicate(process, text)
    if process.returncode:
        raise _error(process.returncode, log)
    return output, log


def _communicate(process: subprocess.Popen[bytes], text: str) -> tuple[str, str]:
    """The process's output; it and its children do not outlive this call."""
    with process:
        try:
            streams = process.communicate(text.encode(errors="surrogatepass"), SECONDS)
        except subprocess.TimeoutExpired:
            _kill(process)
            raise _failed(f"did not end within {SECONDS:g} seconds") from None
        except BaseException:  # Ctrl-C
            _kill(process)
            raise
    output, log = (stream.decode(errors="replace") for stream in streams)
    return output, log


def _kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _error(code: int, log: str) -> Exception:
    """The error for a compiler that ended with a code other than 0."""
    log = log.strip()[:_LOG]
    for reason, number in _FULL.items():
        if reason in log:
            return OSError(number, reason)
    if code < 0 or _KILLED.search(log):
        by = f"by signal {-code}" if code < 0 else f"by a signal:\n{log}"
        return _failed(f"was ended {by}", "it may have been short of memory")
    return CompileError(log) if log else _failed(f"ended with {code} and printed no reason")


def _failed(what: str, advice: str = _OTHER) -> DeviceError:
    return DeviceError(f"the C++ compiler {compiler()[0]} {what}; {advice}")


def build(name: str, arguments: Sequence[str], text: str = "") -> Path:
    """Compiles to a file of the cache; the log is appended to the library, see `log_of`."""

    def compiled(scratch: Path) -> bytes:
        output = scratch / "unit.so"
        _, log = _run([*arguments, "-o", str(output)], text, scratch)
        content = output.read_bytes() if output.is_file() else b""
        if not content.startswith(b"\x7fELF"):
            raise _failed(f"reported success and wrote no library but {len(content)} bytes")
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
        run([flag, "-x", "c++", "-E", "-"], "")
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


def load(path: Path) -> ctypes.CDLL:
    """A compiled file, loaded into this process; DeviceError says why loading failed."""
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise DeviceError(
            f"what the C++ compiler made cannot be loaded ({error}); remove the file, or set "
            "MINIML_CACHE to a folder from which programs may run"
        ) from None
