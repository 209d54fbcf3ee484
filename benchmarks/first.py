"""The first call of a training step: trace, passes, plan and code, with an empty cache and again.

`python -m benchmarks.first` measures miniml, and JAX where it is installed, in turns. A step is
made in a process of its own, which is started with LIBRARY NAME and prints its seconds and those of
the processors, for it and what it starts: the machine may be busy. JAX scans where miniml unrolls.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import NamedTuple

from benchmarks.networks.problems import TRAINED

# Seconds with an empty cache, and from the cache.
AIMS = {"LeNet-5, batch 64": (1.5, 0.06), "char-LSTM 128, 32 steps, batch 32": (2.5, 0.25)}


class First(NamedTuple):
    """Seconds of a first call, and those that processors spent on it."""

    wall: float
    cpu: float

    def __str__(self) -> str:
        return f"{self.wall:.3f} s ({self.cpu:.3f} s of CPU time)"


def calls(name: str, rounds: int = 3) -> dict[str, First]:
    """The quickest of several first calls each: "cold", "cached", and "JAX" where there is one."""
    found: dict[str, list[First]] = {}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as cache:
            for label in ("cold", "cached"):
                found.setdefault(label, []).append(_call("miniml", name, cache))
            if find_spec("jax"):
                found.setdefault("JAX", []).append(_call("jax", name, cache))
    return {label: min(made, key=lambda f: f.cpu) for label, made in found.items()}


def lines() -> Iterator[str]:
    """One line for each network that has aims."""
    for name, (cold, cached) in AIMS.items():
        found = calls(name)
        line = f"first call, {name}: cold {found['cold']}, aim {cold} s; "
        line += f"from the cache {found['cached']}, aim {cached} s"
        if "JAX" in found:
            line += f"; JAX {found['JAX']}, ratio {found['cold'].cpu / found['JAX'].cpu:.2f}"
        yield line


def _call(library: str, name: str, cache: str) -> First:
    command = [sys.executable, "-m", "benchmarks.first", library, name]
    environment = os.environ | {"MINIML_CACHE": cache}
    made = subprocess.run(command, check=True, env=environment, stdout=subprocess.PIPE, text=True)
    return First(*map(float, made.stdout.split()))


def _measure(library: str, name: str) -> First:
    made = import_module(f"benchmarks.networks.in_{library}")
    made.inference(TRAINED["MLP 8-64-64-10, batch 32"](0))  # not called: starts the library
    step = made.training(TRAINED[name](0))
    begin, before = time.perf_counter(), _spent()
    step()
    return First(time.perf_counter() - begin, _spent() - before)


def _spent() -> float:
    every = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(used.ru_utime + used.ru_stime for used in every)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(*_measure(*sys.argv[1:]))
    else:
        for line in lines():
            print(line)
