"""The first call of a training step: trace, passes, plan and code, with an empty cache and again.

`python -m benchmarks.first` measures miniml, and JAX where it is installed, in turns, each first
call in a process of its own; with --write the table goes into docs/performance.md. Such a process
is started with LIBRARY NAME COMPILE and prints its seconds and those of the processors, for it and
what it starts: the machine may be busy. JAX scans where miniml unrolls.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import miniml as ml
from benchmarks.measure import machine
from benchmarks.networks.problems import TRAINED

EMPTY, FULL = 0.5, 0.1  # of JAX's wall time, the aims with an empty cache and with a full one
DOCUMENT = Path(__file__).parents[1] / "docs" / "performance.md"
BEGIN, END = "<!-- first calls: written by benchmarks.first -->", "<!-- end of first calls -->"


class First(NamedTuple):
    """Seconds of a first call, and those that processors spent on it."""

    wall: float
    cpu: float

    def __str__(self) -> str:
        return f"{self.wall:.2f} ({self.cpu:.2f})"


Found = Mapping[str, First]


def calls(name: str, rounds: int = 3) -> Found:
    """The quickest of several first calls each: "empty" and "full" caches, an empty one in the
    "background", and "JAX" where there is one."""
    found: dict[str, list[First]] = {}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as cache, tempfile.TemporaryDirectory() as other:
            for label, folder in (("empty", cache), ("full", cache), ("background", other)):
                how = "background" if label == "background" else "at once"
                found.setdefault(label, []).append(_call("miniml", name, folder, how))
            if find_spec("jax"):
                found.setdefault("JAX", []).append(_call("jax", name, cache))
    return {label: First(*map(min, zip(*made))) for label, made in found.items()}


def lines(names: Sequence[str] = tuple(TRAINED), rounds: int = 3) -> Iterator[str]:
    """One line of a table for each network: seconds of the clock, of processors in brackets."""
    columns = "empty cache", "full cache", '`compile="background"`, empty', "JAX", "ratios to JAX"
    yield f"| training step | {' | '.join(columns)} |"
    yield "|---|---|---|---|---|---|"
    for name in names:
        found = calls(name, rounds)
        cells = [name, *map(str, found.values()), *[""] * (4 - len(found))]
        if "JAX" in found:
            cells.append(_ratios(found))
        yield f"| {' | '.join(cells)} |"


def _ratios(found: Found) -> str:
    """Those of the times by the clock to JAX's, against the aims."""
    jax, parts = found["JAX"].wall, []
    for label, aim in (("empty", EMPTY), ("full", FULL), ("background", EMPTY)):
        ratio = found[label].wall / jax
        parts.append(f"{ratio:.2f}{'' if ratio <= aim else ' (missed)'}")
    return ", ".join(parts)


def _call(library: str, name: str, cache: str, how: str = "at once") -> First:
    command = [sys.executable, "-m", "benchmarks.first", library, name, how]
    environment = os.environ | {"MINIML_CACHE": cache}
    made = subprocess.run(command, check=True, env=environment, stdout=subprocess.PIPE, text=True)
    return First(*map(float, made.stdout.split()))


def _measure(library: str, name: str, how: str) -> First:
    made = import_module(f"benchmarks.networks.in_{library}")
    made.inference(TRAINED["MLP 8-64-64-10, batch 32"](0))  # not called: starts the library
    step = made.training(TRAINED[name](0))
    ml.set_context(compile=how)
    begin, before = time.perf_counter(), _spent()
    step()
    return First(time.perf_counter() - begin, _spent() - before)


def _spent() -> float:
    every = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(used.ru_utime + used.ru_stime for used in every)


def _write(table: str) -> None:
    """Put the table into the document."""
    peer = f", JAX {version('jax')}" if find_spec("jax") else ""
    text = DOCUMENT.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    head = f"{machine()}{peer}; {date.today()}."
    DOCUMENT.write_text(f"{before}{BEGIN}\n{head}\n\n{table}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) == 4:
        print(*_measure(*sys.argv[1:]))
    else:
        table = []
        for line in lines():
            print(line, flush=True)
            table.append(line)
        if "--write" in sys.argv:
            _write("\n".join(table))
