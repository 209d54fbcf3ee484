"""The machine's C++ compiler, and the folder where what it has compiled is kept."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from ....errors import CompileError, DeviceError

HERE = Path(__file__).parent
INCLUDE = HERE / "include"
_RUNTIME = HERE / "runtime"
LIMIT = 256 << 20  # bytes of the folder of compiled files: some thousand units


@cache
def compiler() -> tuple[str, ...]:
    """The command of the C++ compiler: $CXX, g++, c++ or clang++; DeviceError without one."""
    if sys.platform != "linux":
        raise DeviceError(
            "device 'cuda-sim' runs on Linux only, on x86-64 and aarch64; elsewhere use a "
            "container, or WSL on Windows"
        )
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
    said = subprocess.run([*compiler(), "--version"], capture_output=True, text=True)
    return "clang" in said.stdout


def cache_folder() -> Path:
    """$MINIML_CACHE, or miniml in the user's cache folder; its part for compiled CUDA sources.

    It may be emptied at any time. Beyond LIMIT bytes, what has not been used for longest goes.
    """
    chosen = os.environ.get("MINIML_CACHE")
    if not chosen:
        user = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        chosen = os.path.join(user, "miniml")
    folder = Path(chosen) / "cuda-sim"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def is_there(target: Path) -> bool:
    """True for a file that has been compiled before; it counts as read now."""
    try:
        os.utime(target, ns=(time.time_ns(), target.stat().st_mtime_ns))
    except FileNotFoundError:
        return False
    return True


def trim(folder: Path, limit: int = 0) -> None:
    """Remove the files read longest ago until the folder has no more than `limit` bytes (LIMIT).

    What was read within the last hour stays: another process may be about to load it.
    """
    files = []
    for path in folder.iterdir():
        try:
            stat = path.stat()
        except FileNotFoundError:  # another process trims, too
            continue
        files.append((stat.st_atime, stat.st_size, path))
    excess, now = sum(size for _, size, _ in files) - (limit or LIMIT), time.time()
    for used, size, path in sorted(files):
        if excess <= 0 or now - used < 3600:
            return
        path.unlink(missing_ok=True)
        excess -= size


def digest(*parts: str) -> str:
    """A name for a compiled file: the same contents and compiler give the same name."""
    return hashlib.sha256("\0".join((*parts, _identity())).encode()).hexdigest()[:32]


@cache
def _identity() -> str:
    """What a compiled file depends on besides its source: the compiler, and our own C++ text."""
    path = os.path.realpath(compiler()[0])
    stat = os.stat(path)
    own = sorted([*INCLUDE.rglob("*"), *_RUNTIME.glob("*")])
    texts = "".join(f"{p.name}\n{p.read_text()}" for p in own if p.is_file())
    return f"{compiler()} {path} {stat.st_size} {stat.st_mtime_ns} {platform.machine()}\n{texts}"


def run(arguments: Sequence[str], text: str | None = None) -> str:
    """What the compiler prints, with `text` as its input; CompileError with its log."""
    return _completed(arguments, text).stdout


def _completed(arguments: Sequence[str], text: str | None) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([*compiler(), *arguments], input=text, capture_output=True, text=True)
    if done.returncode:
        raise CompileError(done.stderr.strip())
    return done


def build(target: Path, arguments: Sequence[str], text: str | None = None) -> str:
    """Compiles to a temporary file and moves it into place: others see all of it or nothing.

    What the compiler says though it succeeds, its warnings, is returned.
    """
    temporary = target.with_name(f"{target.name}.{os.getpid()}.{os.urandom(4).hex()}.tmp")
    try:
        log = _completed([*arguments, "-o", str(temporary)], text).stderr
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
    trim(target.parent)
    return log


@cache
def takes(flag: str) -> bool:
    """True when this version of the compiler knows a flag."""
    try:
        run([flag, "-x", "c++", "-E", "-"], "")
    except CompileError:
        return False
    return True


@cache
def runtime_library() -> Path:
    """The compiled runtime: fibers, barriers, the checker."""
    flags = [
        "-std=c++17", "-O2", "-g1", "-fPIC", "-shared", "-fvisibility=hidden", "-fno-exceptions",
        "-fno-rtti", "-fno-omit-frame-pointer",
    ]  # fmt: skip
    target = cache_folder() / f"runtime-{digest(*flags)}.so"
    if not is_there(target):
        # Units name it by its soname and find it beside them, wherever the folder is moved.
        build(target, [*flags, f"-Wl,-soname,{target.name}", str(_RUNTIME / "all.cpp")])
    return target
