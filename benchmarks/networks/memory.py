"""Peak memory of training steps of larger networks, beside PyTorch's where it is installed.

`python -m benchmarks.networks.memory [THREADS]` prints the table of docs/performance.md. What
counts is how much a process of its own has grown when it has run four steps: weights, batch, code
that was loaded or compiled on the way, and the most that a step holds at once.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec

from benchmarks.measure import machine
from benchmarks.networks.problems import LARGE
from benchmarks.networks.turns import Process, shown

LIBRARIES = ("miniml", "torch")


def main(threads: int = 1) -> None:
    """Print the table."""
    libraries = [name for name in LIBRARIES if find_spec(name)]
    print(f"{machine()}; {threads} thread(s)\n")
    print(f"| network | memory, MB: {' / '.join(libraries)} | ratio | a step |\n|---|---|---|---|")
    for name in LARGE:
        found = []
        for library in libraries:
            with Process(library, threads) as worker:
                found.append(worker.ask(make=["training", name]))
        used = [row["kilobytes"] / 1024 for row in found]
        memory = " / ".join(f"{megabytes:.0f}" for megabytes in used)
        times = " / ".join(shown(row["last"]) for row in found)
        print(f"| {name} | {memory} | {used[0] / used[-1]:.2f} | {times} |", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
