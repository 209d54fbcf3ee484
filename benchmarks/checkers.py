"""The corpus of tests/faults given to every gradient checker that is installed; a table of it."""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from benchmarks import peer_opcheck
from benchmarks.measure import machine
from benchmarks.peer_gradcheck import Checker, ask, checkers, versions
from tests.faults.gradients import CONTRACTS, FACTORS, KINDS, PLACES
from tests.faults.rows import Pair, WrongPair
from tests.faults.shaped import SHAPED
from tests.faults.smooth import KINKS, SMOOTH

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "checking.md"
BEGIN, END = "<!-- checkers: begin -->", "<!-- checkers: end -->"
SINGLES = 200

WRONG = {
    "a factor": FACTORS,
    "one place": PLACES,
    "a kind of mistake": KINDS,
    "layout, contract, memory": CONTRACTS,
}


class Count(NamedTuple):
    """How many of those tried were found, and how many of those named the element."""

    found: int
    tried: int
    named: int

    def __str__(self) -> str:
        return f"{self.found} of {self.tried}"


def width(row: Pair) -> int:
    """The bytes of the narrowest float among a row's inputs."""
    xs = row.draw(np.random.default_rng(0))
    return min(x.dtype.itemsize for x in xs if x.dtype.kind not in "ib")


def correct() -> dict[str, list[Pair]]:
    """The correct rows by what makes them hard."""
    rows = SMOOTH + KINKS + SHAPED
    return {
        "smooth, float64": [r for r in rows if not r.kink and width(r) == 8],
        "smooth, float32": [r for r in rows if not r.kink and width(r) == 4],
        "smooth, 16 bits": [r for r in rows if not r.kink and width(r) == 2],
        "on a kink": [r for r in rows if r.kink],
    }


def singles() -> list[WrongPair]:
    """sin of 2 to 500 elements, one of them with a gradient wrong by 1 %."""
    rng = np.random.default_rng(0)
    return [_single(int(rng.integers(2, 501)), rng) for _ in range(SINGLES)]


def _single(size: int, rng: np.random.Generator) -> WrongPair:
    place = int(rng.integers(size))

    def vjp(x: Any, dout: Any) -> Any:
        d = dout * np.cos(x)
        d[place] *= 1.01
        return (d,)

    return WrongPair("one element", np.sin, vjp, lambda r: (r.normal(size=size),), index=(place,))


def count(checker: Checker, rows: Any) -> Count:
    """The checker's word on each row, at the points of the row's own number."""
    said = [ask(checker, row, i, getattr(row, "index", None)) for i, row in enumerate(rows)]
    tried = [s for s in said if s is not None]
    return Count(sum(s.found for s in tried), len(tried), sum(s.named for s in tried))


def milliseconds(checker: Checker) -> float:
    """The median time of a check over the small correct rows of float64."""
    rows = [r for r in correct()["smooth, float64"] if "100" not in r.name]
    said = [ask(checker, row, 0) for row in rows]
    return 1e3 * median(s.seconds for s in said if s is not None)


def table() -> str:
    """The table, as Markdown."""
    right, one = correct(), singles()
    placed = [r for r in PLACES if r.index is not None]
    head = ["checker", *(f"wrong: {name}" for name in WRONG), "element named"]
    head += [f"one element by 1 %, {SINGLES} draws", *(f"alarms: {name}" for name in right), "ms"]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for checker in checkers():
        cells = [checker.name, *(str(count(checker, rows)) for rows in WRONG.values())]
        named = count(checker, placed)
        cells.append(f"{named.named} of {named.tried}")
        alone = count(checker, one)
        cells.append(f"{alone.found} ({alone.named} named)")
        cells += [str(count(checker, rows)) for rows in right.values()]
        cells.append(f"{milliseconds(checker):.1f}")
        lines.append("| " + " | ".join(cells) + " |")
        print(lines[-1], flush=True)
    return "\n".join(lines)


def text() -> str:
    """The tables with what they were measured on."""
    parts = [f"Measured on {machine()}; {versions()}.", table()]
    of_primitives = peer_opcheck.table()
    return "\n\n".join([*parts, of_primitives] if of_primitives else parts)


def store(new: str) -> None:
    """Put the tables between the markers of docs/checking.md."""
    old = DOCUMENT.read_text("utf-8")
    before, rest = old.split(BEGIN)
    after = rest.split(END)[1]
    DOCUMENT.write_text(f"{before}{BEGIN}\n\n{new}\n\n{END}{after}", "utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"store the tables in {DOCUMENT.name}")
    write = parser.parse_args().write
    found = text()
    print(found)
    if write:
        store(found)


if __name__ == "__main__":
    main()
