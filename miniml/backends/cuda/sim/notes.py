"""Local variables that a kernel may read before it writes them: the compiler sees them, and a
launch in check mode says so as a KernelWarning, since the compiler may be too careful."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from ....errors import KernelWarning
from .toolchain import log_of

Place = tuple[str, int]

_shown: dict[
    str | tuple[str, type[Warning], int], int
] = {}  # in which Python records the warnings shown

_FUNCTION = re.compile(r"In function [‘'`](.*?)[’'](?:[,:]|$)", re.IGNORECASE)
_READ = re.compile(
    r"^(?P<file>[^\n]+?):(?P<line>\d+):\d+: warning: (?:variable )?[‘'`](?P<name>\w+)[’'].*"
    r"\[-W\w*-?uninitialized\]$"
)
_NAME = re.compile(r"(\w+)\s*(?:\(|$)")


class Note(NamedTuple):
    """A variable, the place where it may be read too early, and the function, "" if not known."""

    file: str
    line: int
    variable: str
    function: str


def read(path: Path) -> tuple[Note, ...]:
    """The notes on a unit."""
    return tuple(_found(log_of(path)))


def warn(
    notes: Iterable[Note], kernel: str, kernels: tuple[str, ...], lines: Mapping[Place, str]
) -> None:
    """Warns of a kernel's notes: those on itself, and on functions that are not kernels.

    kernels: all of the unit. lines: those of the text; notes on other lines concern our headers.
    """
    for note in notes:
        source = lines.get((note.file, note.line))
        if source is None or (note.function != kernel and note.function in kernels):
            continue
        message = (
            f"kernel {kernel}: the variable {note.variable} may be read before it is written in "
            f"{source.strip()!r}"
        )
        warnings.warn_explicit(message, KernelWarning, note.file, note.line, registry=_shown)


def _found(log: str) -> Iterator[Note]:
    function = ""
    for line in log.splitlines():
        header = _FUNCTION.search(line)
        if header:
            names = _NAME.findall(header[1])
            function = names[0] if names else ""
        seen = _READ.match(line)
        if seen:
            yield Note(seen["file"], int(seen["line"]), seen["name"], function)
