"""The corpus of tests/faults given to every gradient checker that is installed; a table of it."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from benchmarks import peer_opcheck
from benchmarks.measure import machine
from benchmarks.peer_gradcheck import SYSTEMS, Checker, ask, checkers, present, versions
from tests.faults.gradients import CONTRACTS, FACTORS, KINDS, PLACES
from tests.faults.rows import Pair, WrongPair
from tests.faults.shaped import SHAPED
from tests.faults.smooth import KINKS, SMOOTH

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "checking.md"
BEGIN, END = "<!-- checkers: begin -->", "<!-- checkers: end -->"
SINGLES = 200

WRONG = {
    "by a factor": FACTORS,
    "in one place": PLACES,
    "in a way that has a name": KINDS,
    "in layout, form or memory": CONTRACTS,
}


class Count(NamedTuple):
    """Counts: of those tried, how many were found, and how many of those named the element."""

    found: int
    tried: int
    named: int

    def __str__(self) -> str:
        return f"{self.found} of {self.tried}" if self.tried else "-"


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


def milliseconds(checker: Checker) -> str:
    """The median time of a check over the small correct rows of float64, where it takes any."""
    rows = [r for r in correct()["smooth, float64"] if "100" not in r.name]
    said = [ask(checker, row, 0) for row in rows]
    seconds = [s.seconds for s in said if s is not None]
    return f"{1e3 * median(seconds):.1f}" if seconds else "-"


def column(checker: Checker) -> list[str]:
    """The numbers of one checker, one for each row of the table."""
    cells = [str(count(checker, rows)) for rows in WRONG.values()]
    named = count(checker, [r for r in PLACES if r.index is not None])
    alone = count(checker, singles())
    cells += [f"{named.named} of {named.tried}", str(alone), f"{alone.named} of {alone.tried}"]
    cells += [str(count(checker, rows)) for rows in correct().values()]
    return [*cells, milliseconds(checker)]


def table() -> str:
    """The table, as Markdown: a row for each measurement, a column for each checker."""
    names = [f"wrong {name}: found" for name in WRONG]
    names += ["the element named", "one element in 2 to 500 wrong by 1 %: found", "and named"]
    names += [f"correct, {name}: alarms" for name in correct()]
    names.append("milliseconds for a small correct function, median")
    every = checkers()
    rows = zip(names, *map(column, every), strict=True)
    head = ["", *(checker.name for checker in every)]
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


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


def others() -> bool:
    """True where a checker to compare with is installed."""
    return any(map(present, SYSTEMS))


def run() -> None:
    """Print the tables, and store them where every system is installed, so that none is lost."""
    found = text()
    print(found)
    if all(map(present, SYSTEMS)):
        store(found)
        print(f"stored in {DOCUMENT.name}")
    else:
        print(f"not stored: that takes {', '.join(SYSTEMS)}")


if __name__ == "__main__":
    run()
