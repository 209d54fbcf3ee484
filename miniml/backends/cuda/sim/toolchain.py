"""The machine's C++ compiler, and the folder where what it has compiled is kept."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from ....errors import CompileError, DeviceError

HERE = Path(__file__).parent
INCLUDE = HERE / "include"
_RUNTIME = HERE / "runtime"


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
    """$MINIML_CACHE, or miniml in the user's cache folder; its part for compiled CUDA sources."""
    chosen = os.environ.get("MINIML_CACHE")
    if not chosen:
        user = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        chosen = os.path.join(user, "miniml")
    folder = Path(chosen) / "cuda-sim"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def digest(*parts: str) -> str:
    """A name for a compiled file: the same contents and compiler give the same name."""
    return hashlib.sha256("\0".join((*parts, _identity())).encode()).hexdigest()[:32]


@cache
def _identity() -> str:
    """What a compiled file depends on besides its source: the compiler, and our own C++ text."""
    path = os.path.realpath(compiler()[0])
    stat = os.stat(path)
    own = sorted([*INCLUDE.glob("*.h"), *_RUNTIME.glob("*")])
    texts = "".join(f"{p.name}\n{p.read_text()}" for p in own if p.is_file())
    return f"{compiler()} {path} {stat.st_size} {stat.st_mtime_ns} {platform.machine()}\n{texts}"


def run(arguments: Sequence[str], text: str | None = None) -> str:
    """What the compiler prints, with `text` as its input; CompileError with its log."""
    done = subprocess.run([*compiler(), *arguments], input=text, capture_output=True, text=True)
    if done.returncode:
        raise CompileError(done.stderr.strip())
    return done.stdout


def build(target: Path, arguments: Sequence[str], text: str | None = None) -> None:
    """Compiles to a temporary file and moves it into place: others see all of it or nothing."""
    temporary = target.with_name(f"{target.name}.{os.getpid()}.{os.urandom(4).hex()}.tmp")
    try:
        run([*arguments, "-o", str(temporary)], text)
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


@cache
def runtime_library() -> Path:
    """The compiled runtime: fibers, barriers, the checker."""
    flags = [
        "-std=c++17", "-O2", "-g1", "-fPIC", "-shared", "-fvisibility=hidden", "-fno-exceptions",
        "-fno-rtti", "-fno-omit-frame-pointer",
    ]  # fmt: skip
    target = cache_folder() / f"runtime-{digest(*flags)}.so"
    if not target.exists():
        # Units name it by its soname and find it beside them, wherever the folder is moved.
        build(target, [*flags, f"-Wl,-soname,{target.name}", str(_RUNTIME / "all.cpp")])
    return target
