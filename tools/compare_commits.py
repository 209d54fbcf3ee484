"""Speed of two commits, in turns: `python -m tools.compare_commits OLD [NEW] [--only TEXT]`.

Each commit is checked out into a worktree of its own and runs `benchmarks/cases.py` of this
checkout in a process of its own; without NEW it is this working tree. The two answer the cases in
turns, several times, and the least time of each is taken, since other work on a machine only ever
adds. The ratio is NEW / OLD: run it before whatever may change the path of a call.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
SLOWER = 1.1  # from here on a ratio is marked


class Row(NamedTuple):
    """One case: the least seconds of a call at both commits; None where one cannot run it."""

    name: str
    old: float | None
    new: float | None

    @property
    def ratio(self) -> float | None:
        return None if self.old is None or self.new is None else self.new / self.old

    def __str__(self) -> str:
        old, new = ("-" if s is None else f"{s * 1e6:.2f}" for s in (self.old, self.new))
        ratio = "-" if self.ratio is None else f"{self.ratio:.2f}"
        mark = " slower" if self.ratio is not None and self.ratio >= SLOWER else ""
        return f"{self.name:34}{old:>12}{new:>12}{ratio:>8}{mark}"


@contextmanager
def checkout(commit: str | None) -> Iterator[Path]:
    """The files of a commit, in a worktree that goes with the block; of None, this tree's."""
    if commit is None:
        yield ROOT
        return
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        _git("worktree", "add", "--detach", "--quiet", str(tree), commit)
        try:
            yield tree
        finally:
            _git("worktree", "remove", "--force", str(tree))


def _git(*arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=ROOT, check=True)


class Worker:
    """The process that answers the cases with the package of one tree."""

    def __init__(self, tree: Path):
        script = str(ROOT / "benchmarks" / "cases.py")
        limits = {f"{n}_NUM_THREADS": "1" for n in ("OMP", "OPENBLAS", "MKL")}
        self._process = subprocess.Popen(
            [sys.executable, script], env=os.environ | limits | {"PYTHONPATH": str(tree)},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        package = str(self._answer()["package"])
        if not Path(package).is_relative_to(tree):
            self.__exit__()
            raise RuntimeError(f"the package of {tree} was asked for, {package} was imported")

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.communicate()  # the end of its input is its end; closes both pipes

    def seconds(self, name: str) -> float | None:
        """The seconds of one call of a case; None where this commit cannot run it."""
        assert self._process.stdin is not None
        self._process.stdin.write(name + "\n")
        self._process.stdin.flush()
        answer = self._answer().get("seconds")
        return answer if isinstance(answer, float) else None

    def _answer(self) -> dict[str, object]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("a commit's process ended before it answered")
        return dict(json.loads(line))


def compared(old: str, new: str | None, names: Sequence[str], rounds: int) -> Iterator[Row]:
    """The rows of these cases, each measured in turns."""
    with ExitStack() as stack:
        trees = [stack.enter_context(checkout(commit)) for commit in (old, new)]
        workers = [stack.enter_context(Worker(tree)) for tree in trees]
        for name in names:
            found: list[list[float | None]] = [[], []]
            for turn in range(rounds):
                for side in (0, 1) if turn % 2 else (1, 0):
                    found[side].append(workers[side].seconds(name))
            yield Row(name, *(_least(seconds) for seconds in found))


def _least(seconds: Sequence[float | None]) -> float | None:
    known = [s for s in seconds if s is not None]
    return min(known) if len(known) == len(seconds) else None


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a table; 1 if a case became slower by a tenth or more."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("old")
    parser.add_argument("new", nargs="?")
    parser.add_argument("--only", default="", help="cases whose names contain this")
    parser.add_argument("--rounds", type=int, default=30)
    options = parser.parse_args(arguments)
    from benchmarks.cases import CASES  # noqa: PLC0415 - it imports the package of this tree

    names = [name for name in CASES if options.only in name]
    new = options.new or "this tree"
    print(f"{'microseconds, the least':34}{options.old[:11]:>12}{new[:11]:>12}{'ratio':>8}")
    slower = False
    for row in compared(options.old, options.new, names, options.rounds):
        print(row, flush=True)
        slower |= row.ratio is not None and row.ratio >= SLOWER
    return int(slower)


if __name__ == "__main__":
    sys.exit(main())
