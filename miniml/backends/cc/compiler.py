"""The machine's C compiler, or the one in the wheel `ziglang`, and what its output depends on."""

from __future__ import annotations

import importlib.util
import os
import platform
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from ...errors import CompileError, DeviceError, MinimlError, PerformanceWarning, warn_user
from ...features import CPU
from ..cache import BESIDE, Cache
from ..toolchain import Job, Toolchain, digest
from .source import SERVICES

CACHE = Cache("cc", 256 << 20)
# No contraction: a product and a sum round as NumPy's; kernels that want an fma say so.
FLAGS = (
    "-std=gnu11", "-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math",
    "-ffp-contract=off", "-fPIC", "-shared", "-w",
    # As wide as the vectors of products: compilers shy away from the lower clock that those have
    # already. Every one that knows the vectors' built-in functions knows this flag.
    *(["-mprefer-vector-width=512"] if platform.machine() in ("x86_64", "AMD64") else []),
)  # fmt: skip


# The names that compilers have for features which may be masked. SSE2 is part of x86-64.
_OFF = {
    "sse3": "sse3", "ssse3": "ssse3", "sse41": "sse4.1", "sse42": "sse4.2", "popcnt": "popcnt",
    "avx": "avx", "f16c": "f16c", "fma3": "fma", "avx2": "avx2", "avx512f": "avx512f",
}  # fmt: skip


def _of_wheel() -> tuple[str, ...]:
    """The command of the wheel `ziglang`."""
    wheel = importlib.util.find_spec("ziglang")
    folders = (wheel and wheel.submodule_search_locations) or ()
    paths = (os.path.join(folder, "zig") for folder in folders)
    return next(((path, "cc") for path in paths if os.access(path, os.X_OK)), ())


TOOLS = Toolchain(
    language="C",
    variable="CC",
    names=("gcc", "clang", "cc"),
    user="provider 'cc'",
    where="apt install gcc, or pip install 'miniml[compiler]'",
    seconds=120.0,  # a large unit takes ten; the wheel's first call builds its C library in six
    other=_of_wheel,
)
# What failed by itself is not tried again: it would take its time in every Program.
_given_up: dict[tuple[object, ...], str] = {}


def available() -> bool:
    """True where kernels in C can be compiled, as far as is known without trying."""
    return bool(TOOLS.find()) and _here() not in _given_up


def absence() -> str:
    """Why no kernel in C can be compiled, as a clause; "" where they can."""
    return TOOLS.absence() or _given_up.get(_here(), "")


def give_up(error: DeviceError) -> None:
    """Remember that this compiler and this cache folder do not work, until one is changed."""
    _given_up[_here()] = str(error)


def _here() -> tuple[object, ...]:
    return TOOLS.find(), os.environ.get("MINIML_CACHE")


def key() -> str:
    """Equal where equal texts give equal functions: the compiler, its flags, the processor."""
    return _key(TOOLS.identity())


@cache
def _key(compiler: str) -> str:
    return digest(SERVICES, *FLAGS, compiler, platform.machine(), _features())


def _features() -> str:
    """The instructions that the processor has, which -march=native uses."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            return next((line for line in file if line.startswith(("flags", "Features"))), "")
    except OSError:
        return platform.processor()


def compiled(units: Sequence[tuple[str, tuple[str, ...]]], scratch: Path) -> list[bytes]:
    """The shared libraries of C texts, each without some features of the processor, compiled side
    by side."""
    try:
        return _compiled(units, scratch)
    except CompileError:
        _check(scratch)
        raise


def _check(scratch: Path) -> None:
    """DeviceError if the compiler refuses what is right: headers or the linker are missing."""
    try:
        _compiled([(SERVICES, ())], scratch)
    except CompileError as error:
        reason = str(error).partition("\n")[0]
        raise TOOLS.failed(f"refuses every text ({reason})") from None


def _compiled(units: Sequence[tuple[str, tuple[str, ...]]], scratch: Path) -> list[bytes]:
    jobs = [Job([*FLAGS, *_off(without), "-x", "c", "-", "-lm"], text) for text, without in units]
    return [library for library, _ in TOOLS.libraries(jobs, scratch, _environment(scratch))]


def _off(without: tuple[str, ...]) -> list[str]:
    """The flags that switch features of the processor off."""
    return [f"-mno-{_OFF[f]}" for f in without if f in _OFF and CPU.get(f)]


def _environment(scratch: Path) -> dict[str, str]:
    """zig keeps what it compiles, which nobody asks for again, and the C library that it built."""
    beside = scratch.parent / BESIDE
    beside.mkdir(0o700, exist_ok=True)
    kept = os.environ.get("ZIG_GLOBAL_CACHE_DIR", str(beside))
    return {"ZIG_LOCAL_CACHE_DIR": str(scratch), "ZIG_GLOBAL_CACHE_DIR": kept}


@cache
def _warn(text: str) -> None:
    warn_user(PerformanceWarning(text))


def warn_without(error: MinimlError) -> None:
    """Tell the user, once for each reason, that NumPy's kernels take the place of those in C."""
    reason = str(error).strip().partition("\n")[0]
    _warn(
        f"NumPy's kernels take the place of those in C, which are faster: {reason}; "
        "`python -m miniml doctor` says more, and providers=('miniml',) asks for NumPy's"
    )
