"""Results that `turns` kept, as the table in docs/performance.md and one picture of the ratios.

`python -m benchmarks.networks.report FILE.json`
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from datetime import date
from itertools import groupby
from pathlib import Path

from benchmarks.measure import machine
from benchmarks.networks.turns import Row, shown

DOCS = Path(__file__).parents[2] / "docs"
BEGIN, END = "<!-- networks: written by benchmarks.networks.report -->", "<!-- end of networks -->"
# The aims, as ratios to the best peer: of training steps by the beginning of their names.
AIMS = {
    "MLP 8-64": 0.35, "MLP 784-128": 0.75, "MLP 784-512": 0.95, "LeNet": 0.3, "ResNet": 0.7,
    "char-LSTM": 0.5, "transformer": 0.8,
}  # fmt: skip
INFERENCE = 0.3
FIRST = 0.5  # of a first call, against JAX


class Group:
    """One network, kind and number of threads, in every library."""

    def __init__(self, rows: Sequence[Row]):
        self.ours, *self.peers = rows

    @property
    def best(self) -> Row:
        """The quickest peer."""
        return min(self.peers, key=lambda r: r.seconds)

    @property
    def ratio(self) -> float:
        """Our time over the quickest peer's; NaN without a peer."""
        return self.ours.seconds / self.best.seconds if self.peers else float("nan")

    @property
    def aim(self) -> float | None:
        """The most that the ratio should be; None where nothing is asked."""
        if self.ours.kind == "inference":
            return INFERENCE
        return next((v for k, v in AIMS.items() if self.ours.name.startswith(k)), None)

    def line(self) -> str:
        """The row of the table."""
        verdict = "" if self.aim is None else f"{self.aim} ({self.verdict})"
        cells = [
            f"{self.ours.name}, {self.ours.kind}", str(self.ours.threads), shown(self.ours.seconds),
            *(shown(r.seconds) for r in self.peers), f"**{self.ratio:.2f}**", verdict,
            " / ".join(f"{r.first:.2f}" for r in (self.ours, *self.peers)),
            " / ".join(f"{r.kilobytes / 1024:.0f}" for r in (self.ours, *self.peers)),
        ]  # fmt: skip
        return f"| {' | '.join(cells)} |"

    @property
    def verdict(self) -> str:
        return "met" if self.aim is None or self.ratio <= self.aim else "missed"


def groups(rows: Sequence[Row]) -> list[Group]:
    """The rows by kind, name and threads, in the order of the run."""
    return [Group([*g]) for _, g in groupby(rows, key=lambda r: (r.kind, r.name, r.threads))]


def table(found: Sequence[Group]) -> Iterator[str]:
    """The lines between the markers."""
    peers = [r.library for r in found[0].peers]
    yield f"{machine()}; {', '.join(peers)}; {date.today()}. Times of one call, medians."
    yield ""
    names = [r.split()[0] for r in peers]
    head = ["network", "threads", "miniml", *names, "ratio to the best", "aim"]
    three = " / ".join(["miniml", *names])
    yield f"| {' | '.join([*head, f'first call, s: {three}', f'memory, MB: {three}'])} |"
    yield f"|{'---|' * (len(head) + 2)}"
    yield from (g.line() for g in found)


THREADS = {1: ("#2a7f62", "1 thread"), 2: ("#8cc5ad", "2 threads")}


def picture(found: Sequence[Group], path: Path) -> None:
    """The ratios as bars to the left of 1, or to the right: those of a network below its name."""
    import matplotlib.pyplot as plt  # noqa: PLC0415 - slow, and only this needs it

    names = list(dict.fromkeys((g.ours.name, g.ours.kind) for g in found))
    fig, ax = plt.subplots(figsize=(5, 0.55 * len(names) + 0.9), layout="constrained")
    left, right = 0.8 * min(g.ratio for g in found), 1.25 * max(1, *(g.ratio for g in found))
    for g in found:
        colour, label = THREADS[g.ours.threads]
        at = names.index((g.ours.name, g.ours.kind))
        y = at + (0.0 if g.ours.threads == 1 else 0.28)
        ax.barh(y, g.ratio - 1, 0.26, left=1, color=colour, label="" if at else label)
        ax.annotate(f"{g.ratio:.2f}", (max(g.ratio, 1), y), (3, 0), textcoords="offset points",
                    va="center", fontsize=8)  # fmt: skip
        if g.aim is not None:
            ax.plot([g.aim] * 2, [at - 0.13, at + 0.41], color="black", linewidth=1,
                    label="" if at or g.ours.threads > 1 else "the aim")  # fmt: skip
    for at, name in enumerate(names):
        ax.text(left * 1.02, at - 0.3, ", ".join(name), va="center", fontsize=9)
    ax.set(xscale="log", xlabel="time of miniml / time of the best peer", yticks=[])
    ax.set(xlim=(left, right), ylim=(len(names) - 0.4, -0.6))
    ticks = [t for t in (0.02, 0.05, 0.1, 0.2, 0.5, 1, 2) if left <= t <= right]
    ax.set_xticks(ticks, [str(t) for t in ticks])
    ax.minorticks_off()
    ax.axvline(1, color="grey", linewidth=0.8)
    fig.legend(loc="outside upper left", ncols=3, fontsize=9, frameon=False)
    fig.savefig(path, dpi=130)


def main(file: str) -> None:
    """Put the table into the document and the picture beside it."""
    found = groups([Row(**row) for row in json.loads(Path(file).read_text())])
    document = DOCS / "performance.md"
    text = document.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    lines = "\n".join(table(found))
    document.write_text(f"{before}{BEGIN}\n{lines}\n{END}{after}", encoding="utf-8")
    picture(found, DOCS / "performance.png")


if __name__ == "__main__":
    main(sys.argv[1])
