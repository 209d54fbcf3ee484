"""Faults of kernels: the findings of the runtime, in words, with lines of the user's own text."""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from ....errors import KernelFaultError
from .unit import NAME

# In the order of runtime.h.
KINDS = (
    "race", "out-of-bounds", "misaligned", "uninitialised", "const-write", "divergent-barrier",
    "warp-mask", "overflow", "shift", "conversion", "division", "shared-limit", "illegal-access",
    "stack-overflow", "assert", "trap", "hang",
)  # fmt: skip
# The Python side finds "overrun", "unwritten" and "leak".

_Index = ctypes.c_uint * 3
_LINE = re.compile(r'^\s*#\s*(?:line\s+)?(\d+)(?:\s+"([^"]*)")?')


# Copies that a compiler writes for a structure, whose line is the structure's.
_COPIES = re.compile(r"(C\d|aS)E(RK|O)S\d*_$")


class RawFault(ctypes.Structure):
    """struct Fault of runtime.h."""

    _fields_ = (
        ("kind", ctypes.c_int), ("line", ctypes.c_int), ("block", _Index), ("thread", _Index),
        ("pc", ctypes.c_uint64), ("other_pc", ctypes.c_uint64), ("callers", ctypes.c_uint64 * 2),
        ("file", ctypes.c_char * 120), ("text", ctypes.c_char * 240),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault; the place is a file (as #line directives name it), a line and its text.

    other: the place of the other access of a race, "" if there is none.
    """

    kind: str
    kernel: str
    text: str
    block: tuple[int, int, int] | None = None
    thread: tuple[int, int, int] | None = None
    file: str = ""
    line: int = 0
    source: str = ""
    other: str = ""

    def __str__(self) -> str:
        message = f"{self.kind} in kernel {self.kernel}"
        if self.block is not None:
            message += f", block {self.block} thread {self.thread}"
        if self.line:
            message += f", {self.file}:{self.line}"
        message += f": {self.text}"
        if self.other:
            message += f" at {self.other}"
        return message + (f"\n    {self.source.strip()}" if self.source else "")


def error(faults: Iterable[Fault]) -> KernelFaultError:
    """The exception for what a launch did wrong; the first fault is its first line."""
    found = tuple(faults)
    raised = KernelFaultError("\n".join(map(str, found)))
    raised.faults = found
    return raised


def explain(
    raw: Iterable[RawFault], kernel: str, code: str, library: Path, base: int
) -> list[Fault]:
    """Faults in words; `base` is the load address of the library."""
    raws = list(raw)
    lines = source_lines(code)
    all_pcs = [a for r in raws for a in (r.pc, r.other_pc, *r.callers)]
    addresses = tuple(a - base - 1 for a in all_pcs if a > base)
    places = _places(str(library), addresses, frozenset(f for f, _ in lines)) if addresses else {}
    faults = []
    for r in raws:
        other = places.get(r.other_pc - base - 1) if r.other_pc else None
        # The innermost place in the user's text: `pc` may be in a function of our headers.
        known = (places[a - base - 1] for a in (r.pc, *r.callers) if a - base - 1 in places)
        file, line = next(known, ("", 0)) if r.pc else (r.file.decode(), r.line)
        faults.append(
            Fault(
                KINDS[r.kind], kernel, r.text.decode(), tuple(r.block), tuple(r.thread),
                file, line, lines.get((file, line), ""), f"{other[0]}:{other[1]}" if other else "",
            )
        )  # fmt: skip
    return faults


@lru_cache(16)
def source_lines(code: str) -> dict[tuple[str, int], str]:
    """The lines of a text by the name and number that a compiler gives them."""
    lines = {}
    file, number = NAME, 1
    for text in code.splitlines():
        directive = _LINE.match(text)
        if directive:
            number, file = int(directive.group(1)), directive.group(2) or file
            continue
        lines[file, number] = text
        number += 1
    return lines


def _places(
    library: str, addresses: tuple[int, ...], known: frozenset[str]
) -> dict[int, tuple[str, int]]:
    """Files and lines of addresses in a library: the innermost frames in the user's text."""
    command = ["addr2line", "-a", "-f", "-i", "-e", library, *map(hex, addresses)]
    try:
        answer = subprocess.run(command, capture_output=True, text=True).stdout
    except FileNotFoundError:  # binutils comes with g++, but not with every clang
        return {}
    places: dict[int, tuple[str, int]] = {}
    names = {Path(name).name: name for name in known}
    for block in re.split(r"^(?=0x)", answer, flags=re.MULTILINE)[1:]:
        first, *frames = block.splitlines()  # then, innermost first, a function and its place
        for function, place in zip(frames[::2], frames[1::2], strict=False):
            path, _, line = place.partition(" (")[0].rpartition(":")
            name = path if path in known else names.get(Path(path).name)
            if name is not None and line.isdigit():
                places[int(first, 16)] = (name, int(line))
                if not _COPIES.search(function):
                    break
    return places
