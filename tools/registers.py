"""What CUDA kernels take of a GPU, by NVIDIA's compiler: `python -m tools.registers`, make nvrtc.

Compiles every text of the library for every architecture and writes the table of docs/cuda.md.
"""

import os
import sys
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from datetime import date
from itertools import product
from pathlib import Path

from miniml.backends.kernel import Expression, KernelEntry
from miniml.errors import CompileError
from tests.device.gate import compiled, runs_on
from tests.device.nvrtc import ARCHITECTURES, Usage, compiler
from tests.device.units import all_units

DOCUMENT = Path(__file__).parents[1] / "docs" / "cuda.md"
MARKS = "<!-- registers -->\n", "<!-- end of registers -->\n"


class Row:
    """One C function in all its variants, or all expressions of one kind."""

    def __init__(self) -> None:
        self.primitives: set[str] = set()
        self.variants: set[tuple[str, str]] = set()
        self.usages: dict[int, list[Usage]] = {a: [] for a in ARCHITECTURES}

    def cells(self) -> Iterable[object]:
        """Primitives and variants; the most registers by architecture; the most bytes."""
        names = sorted(self.primitives)
        yield ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        yield len(self.variants)
        yield from (max((u.registers for u in self.usages[a]), default="-") for a in ARCHITECTURES)
        every = [u for usages in self.usages.values() for u in usages]
        yield max(u.shared for u in every)
        yield max(u.stack for u in every)
        yield max(u.stores + u.loads for u in every)


def outcome(job: tuple[str, int]) -> tuple[list[Usage], list[str]]:
    """What the kernels of a text take, and what is wrong with them."""
    try:
        report = compiled(*job)
    except CompileError as error:
        return [], [str(error)]
    return list(report.kernels), report.faults()


def label(entries: list[KernelEntry], kernel: str) -> str:
    """The name of the row that a kernel counts in."""
    body = entries[0].body
    if isinstance(body, Expression):
        return f"expressions: {body.unit.split()[0]}"
    return f"`{kernel}`"


def measured() -> tuple[dict[str, Row], list[str]]:
    """The rows by their names, and all faults."""
    units = all_units()
    every = product(units, ARCHITECTURES)
    jobs = [(text, a) for text, a in every if all(runs_on(e, a) for e in units[text])]
    print(f"{len(units)} texts for {len(ARCHITECTURES)} architectures ...", flush=True)
    processes = int(os.environ.get("JOBS") or os.cpu_count() or 1)
    with ProcessPoolExecutor(processes) as pool:
        outcomes = list(pool.map(outcome, jobs, chunksize=8))
    rows: dict[str, Row] = {}
    faults = []
    for (text, architecture), (usages, wrong) in zip(jobs, outcomes, strict=True):
        entries = units[text]
        faults += [f"{entries[0].name} for sm_{architecture}: {said}" for said in wrong]
        for usage in usages:
            row = rows.setdefault(label(entries, usage.kernel), Row())
            row.primitives |= {e.name for e in entries}
            row.variants.add((text, usage.kernel))
            row.usages[architecture].append(usage)
    return rows, faults


def table(rows: dict[str, Row]) -> list[str]:
    """The rows in Markdown, in alphabetical order, expressions first."""
    head = ["kernel", "of", "variants", *(f"sm_{a}" for a in ARCHITECTURES)]
    head += ["shared", "stack", "spilled"]
    order = sorted(rows, key=lambda name: (name.startswith("`"), name))
    body = [[name, *map(str, rows[name].cells())] for name in order]
    rule = ["---", "---", *["--:"] * (len(head) - 2)]
    return [f"| {' | '.join(cells)} |" for cells in (head, rule, *body)]


def main() -> int:
    rows, faults = measured()
    print("\n".join(faults))
    variants = sum(len(row.variants) for row in rows.values())
    lines = [
        f"Measured on {date.today():%d %B %Y} with NVRTC {compiler().version}: {variants} kernels "
        f"for {len(ARCHITECTURES)} architectures, "
        + (f"{len(faults)} faults." if faults else "no warning, no spill."),
        "",
        *table(rows),
    ]
    text = DOCUMENT.read_text("utf-8")
    before, rest = text.split(MARKS[0])
    after = rest.split(MARKS[1])[1]
    DOCUMENT.write_text(before + MARKS[0] + "\n".join(lines) + "\n" + MARKS[1] + after, "utf-8")
    print(f"{DOCUMENT.name}: {len(rows)} rows, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
