"""Native kernels by their text: compiled together, kept on disk, loaded once per process."""

from __future__ import annotations

import ctypes
import hashlib
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..cache import Cache
from .source import Source, addresses_of, unit

CACHE = Cache("cc", 256 << 20)
# No contraction: a product and a sum round as NumPy's; kernels that want an fma say so.
FLAGS = (
    "-std=gnu11", "-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math",
    "-ffp-contract=off", "-fPIC", "-shared", "-w",
)  # fmt: skip
Function = Callable[[Any], None]
_loaded: dict[Source, Function] = {}


def load(sources: Sequence[Source]) -> list[Function]:
    """The functions of these kernels; those that are new are compiled as one unit."""
    missing = [s for s in dict.fromkeys(sources) if s not in _loaded]
    if missing:
        library = ctypes.CDLL(str(_compiled(unit(missing))))
        _loaded.update({s: getattr(library, s.name) for s in missing})
    return [_loaded[s] for s in sources]


def run(source: Source, arrays: Sequence[Any]) -> None:
    """Call a kernel once on NumPy arrays: inputs, outputs, workspace."""
    addresses = (ctypes.c_void_p * len(arrays))(*addresses_of(arrays))
    load([source])[0](addresses)


def _compiled(text: str) -> Path:
    name = f"unit-{hashlib.sha256(text.encode()).hexdigest()[:32]}.so"

    def build(scratch: Path) -> bytes:
        output = scratch / "unit.so"
        command = ["gcc", *FLAGS, "-x", "c", "-", "-o", str(output), "-lm"]
        subprocess.run(command, input=text.encode(), check=True, capture_output=True)
        return output.read_bytes()

    return CACHE.find(name) or CACHE.make(name, build)
