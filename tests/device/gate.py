"""The compiler gate: what NVRTC makes of a text, asked once per text, compiler and options."""

from __future__ import annotations

import hashlib
import json
import os
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from miniml.backends.cuda.device import Cuda
from miniml.backends.cuda.driver import Compiled, Usage, compiler
from miniml.backends.kernel import KernelEntry

FOLDER = Path(__file__).parents[2] / ".cache" / "nvrtc"


def compiled(text: str, architecture: int, *more: str) -> Compiled:
    """The compiler's report, kept on disk; CompileError is raised anew each time."""
    nvrtc = compiler()
    options = [o for o in nvrtc.options(architecture) if o[:2] != "-I"]  # their place is no matter
    parts = (text, nvrtc.identity, *options, *more)
    path = FOLDER / f"{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:32]}.json"
    if path.exists():
        kernels, warnings = json.loads(path.read_text())
        return Compiled(tuple(Usage(*k) for k in kernels), tuple(warnings))
    report = nvrtc.compile(text, architecture, *more)
    FOLDER.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    temporary.write_text(json.dumps(report))
    os.replace(temporary, path)  # other test processes see all of it or nothing
    return report


class Offline:
    """The driver of a GPU of one architecture that is not there: texts are compiled and never
    launched."""

    name, module, checks, cublas = "cuda", None, False, None

    def __init__(self, architecture: int):
        self._architecture = architecture

    def load(self, code: str, options: tuple[str, ...]) -> Any:
        return SimpleNamespace(function=lambda entry: compiled(code, self._architecture))


@cache
def _device(architecture: int) -> Cuda:
    return Cuda(Offline(architecture))


def runs_on(entry: KernelEntry, architecture: int) -> bool:
    """True where a GPU of the architecture has what the kernel requires."""
    return all(_device(architecture).has(feature) for feature in entry.requires)
