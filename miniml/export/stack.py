"""The stack that an exported program needs: its deepest chain of calls, as gcc finds it."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from ..backends.cc.units import TOOLS
from ..core.errors import MinimlError

# As the comment at the top of the file has them.
FLAGS = tuple("-std=c11 -O3 -ffp-contract=off -fno-math-errno -fno-trapping-math".split())
_NODE = re.compile(r'node: { title: "([^"]+)" label: "[^"]*?\\n(\d+) bytes \(([\w,]+)\)')
_EDGE = re.compile(r'edge: { sourcename: "([^"]+)" targetname: "([^"]+)"')
_POINTER = "__indirect_call"  # gcc's name of what is called through a pointer


def deepest(texts: Mapping[str, str], options: Sequence[str]) -> int | None:
    """Bytes of stack of the deepest chain of calls in the C file among these texts, which are by
    their file names: as the compiler that is found compiles it, and without libm's own.

    `options` go after those of the file's own comment. None where that compiler cannot say it (gcc
    can), or where there is no bound.
    """
    with tempfile.TemporaryDirectory() as folder:
        for name, text in texts.items():
            Path(folder, name).write_text(text, "utf-8")
        (source,) = (Path(folder, name) for name in texts if name.endswith(".c"))
        made = source.with_suffix(".o")
        try:
            TOOLS.run([*FLAGS, *options, "-fcallgraph-info=su", "-c", str(source), "-o", str(made)])
            graph = made.with_suffix(".ci").read_text("utf-8")
        except (MinimlError, OSError):  # another compiler: it knows no such option
            return None
    return chain(graph)


def chain(graph: str) -> int | None:
    """Bytes of the deepest chain in a call graph of `gcc -fcallgraph-info=su`; None without bound.

    A call through a pointer reaches any function of the file that none calls by its name.
    """
    nodes = _NODE.findall(graph)
    frames = {name: int(size) for name, size, _ in nodes}
    calls: dict[str, set[str]] = {}
    for caller, callee in _EDGE.findall(graph):
        calls.setdefault(caller, set()).add(callee)
    named = set().union(*calls.values())
    calls[_POINTER] = {name for name in frames if ":" in name and name not in named}
    if any(kind == "dynamic" for _, _, kind in nodes) or _circular(calls):
        return None

    @cache
    def below(name: str) -> int:
        return frames.get(name, 0) + max(map(below, calls.get(name, ())), default=0)

    return max(map(below, frames), default=None)


def _circular(calls: Mapping[str, set[str]]) -> bool:
    """True where a function may call itself, through others or not."""
    left = dict(calls)
    while left:
        leaves = [name for name, callees in left.items() if not callees & left.keys()]
        if not leaves:
            return True
        for name in leaves:
            del left[name]
    return False
