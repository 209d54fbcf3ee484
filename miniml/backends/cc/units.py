"""Native kernels by their text: compiled together, kept on disk, loaded once per process."""

from __future__ import annotations

import ctypes
import hashlib
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ...errors import CompileError, DeviceError
from ..cache import Cache
from . import compiler
from .source import Source, addresses_of, unit

CACHE = Cache("cc", 256 << 20)
# No contraction: a product and a sum round as NumPy's; kernels that want an fma say so.
FLAGS = (
    "-std=gnu11", "-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math",
    "-ffp-contract=off", "-fPIC", "-shared", "-w",
)  # fmt: skip
Function = Callable[[Any], None]
_loaded: dict[Source, Function] = {}
_libraries: list[ctypes.CDLL] = []
_services: ctypes.Structure | None = None


def load(sources: Sequence[Source]) -> list[Function]:
    """The functions of these kernels; those that are new are compiled as one unit.

    CompileError: the compiler refuses a text. DeviceError: there is no compiler, or it fails.
    """
    missing = [s for s in dict.fromkeys(sources) if s not in _loaded]
    if missing:
        library = ctypes.CDLL(str(_compiled(unit(missing))))
        if _services is not None:
            library.miniml_start(ctypes.byref(_services))
        _libraries.append(library)
        _loaded.update({s: getattr(library, s.name) for s in missing})
    return [_loaded[s] for s in sources]


def provide(services: ctypes.Structure) -> None:
    """Give the units that are loaded, and those that will be, a `miniml_services` of source.py."""
    global _services
    _services = services
    for library in _libraries:
        library.miniml_start(ctypes.byref(services))


def run(source: Source, arrays: Sequence[Any]) -> None:
    """Call a kernel once on NumPy arrays: inputs, outputs, workspace."""
    addresses = (ctypes.c_void_p * len(arrays))(*addresses_of(arrays))
    load([source])[0](addresses)


def _compiled(text: str) -> Path:
    name = f"unit-{hashlib.sha256(text.encode()).hexdigest()[:32]}.so"

    def build(scratch: Path) -> bytes:
        output = scratch / "unit.so"
        command = ["gcc", *FLAGS, "-x", "c", "-", "-o", str(output), "-lm"]
        try:
            subprocess.run(command, input=text.encode(), check=True, capture_output=True)
        except subprocess.CalledProcessError as error:
            raise CompileError(error.stderr.decode()) from error
        except OSError as error:
            compiler.give_up(failure := DeviceError(str(error)))
            raise failure from error
        return output.read_bytes()

    return CACHE.find(name) or CACHE.make(name, build)
