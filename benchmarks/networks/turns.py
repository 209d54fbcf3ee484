"""All libraries that are installed, in turns: A B C A B C, medians, and ratios to miniml.

`python -m benchmarks.networks.turns [--threads 1,2] [--rounds 5] [--only TEXT] [--json FILE]`
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.networks.problems import TRAINED

LIBRARIES = ("miniml", "torch", "jax")
KINDS = ("training", "inference")
SECONDS = 0.3  # of one library's turn


class Process:
    """A worker in a process of its own, which ends with the block. module: that answers requests;
    interpreter: that runs it."""

    def __init__(
        self,
        library: str,
        threads: int,
        module: str = "benchmarks.networks.worker",
        interpreter: str = sys.executable,
    ):
        self.library = library
        limits = {f"{n}_NUM_THREADS": str(threads) for n in ("OMP", "OPENBLAS", "MKL")}
        self._process = subprocess.Popen(
            [interpreter, "-m", module, library, str(threads)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ | limits, text=True,
        )  # fmt: skip

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.communicate()  # the end of its input is its end

    def ask(self, **request: Any) -> dict[str, Any]:
        """The answer to one request."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.library} ended at {request}")
        return dict(json.loads(line))


class Row(NamedTuple):
    """One network in one library. seconds: of a call; first: of the first one."""

    kind: str
    name: str
    threads: int
    library: str
    seconds: float
    first: float
    kilobytes: int
    result: float


def rows(kind: str, name: str, threads: int, rounds: int) -> list[Row]:
    """Every installed library on one network, in turns; fresh processes, so that memory counts."""
    installed = [n for n in LIBRARIES if find_spec(n)]
    with ExitStack() as stack:
        workers = [stack.enter_context(Process(n, threads)) for n in installed]
        made = [w.ask(make=[kind, name]) for w in workers]
        times: list[list[float]] = [[] for _ in workers]
        for _ in range(rounds):
            for worker, found in zip(workers, times, strict=True):
                found.append(worker.ask(time=SECONDS)["seconds"])
    results = [m["result"] for m in made]
    name = name if kind == "training" else re.sub(r"batch \d+", "batch 1", name)
    assert max(results) - min(results) < 1e-3 * max(1.0, abs(results[0])), (name, results)
    return [
        Row(kind, name, threads, m["is"], statistics.median(t), m["first"], m["kilobytes"], r)
        for m, t, r in zip(made, times, results, strict=True)
    ]


def lines(found: Sequence[Row]) -> Iterator[str]:
    """One line for a network: the time in each library, and miniml's over the best peer's."""
    ours, *theirs = found
    times = ", ".join(f"{r.library} {shown(r.seconds)} (first {r.first:.2f} s)" for r in found)
    best = min((r.seconds for r in theirs), default=float("nan"))
    head = f"{ours.kind}, {ours.name}, {ours.threads} threads"
    yield f"{head}: {times}; {ours.seconds / best:.2f} x the best peer"


def shown(seconds: float) -> str:
    """A time as people read it."""
    return f"{seconds * 1e3:.2f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.1f} us"


def every(
    kinds: Sequence[str], threads: Sequence[int], only: str = "", rounds: int = 5
) -> Iterator[list[Row]]:
    """The rows of each network whose name has the text, for each kind and number of threads."""
    for kind in kinds:
        for name in [n for n in TRAINED if only.lower() in n.lower()]:
            for count in threads:
                yield rows(kind, name, count, rounds)


def main() -> None:
    """Time everything, print a line for each network, and keep the rows as JSON if asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", default="1,2", help="thread counts, such as 1,2")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="networks whose name has this text")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    kept: list[Row] = []
    counts = [*map(int, given.threads.split(","))]
    for found in every(given.kinds.split(","), counts, given.only, given.rounds):
        kept += found
        print(*lines(found), sep="\n", flush=True)
        if given.json:
            given.json.write_text(json.dumps([r._asdict() for r in kept], indent=1) + "\n")


if __name__ == "__main__":
    main()
