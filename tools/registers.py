"""Resources of CUDA kernels by NVIDIA's compiler: `python -m tools.registers`, make nvrtc.

Compiles every text of the library for every architecture, or for those given (`75 90`), and writes
the table of docs/cuda.md.
"""

import os
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import date
from itertools import product
from pathlib import Path

from miniml.backends.cuda.driver import ARCHITECTURES, Usage, compiler
from miniml.backends.kernel import Expression, KernelEntry
from miniml.core.errors import CompileError
from tests.device.gate import compiled, runs_on
from tests.device.units import all_units

DOCUMENT = Path(__file__).parents[1] / "docs" / "cuda.md"
MARKS = "<!-- registers -->\n", "<!-- end of registers -->\n"


class Row:
    """One C function in all its variants, or all expressions of one kind."""

    def __init__(self, architectures: Sequence[int]) -> None:
        self.primitives: set[str] = set()
        self.variants: set[tuple[str, str]] = set()
        self.usages: dict[int, list[Usage]] = {a: [] for a in architectures}

    def cells(self) -> Iterable[object]:
        """Primitives and variants; the most registers by architecture; the most bytes."""
        names = sorted(self.primitives)
        yield ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        yield len(self.variants)
        yield from (max((u.registers for u in us), default="-") for us in self.usages.values())
        every = [u for usages in self.usages.values() for u in usages]
        yield max(u.shared for u in every)
        yield max(u.stack for u in every)
        yield max(u.stores + u.loads for u in every)


def outcome(job: tuple[str, int]) -> tuple[list[Usage], list[str]]:
    """Resources of the kernels of a text, and what is wrong with them."""
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


def measured(architectures: Sequence[int]) -> tuple[dict[str, Row], list[str]]:
    """The rows by their names, and all faults."""
    units = all_units()
    every = product(units, architectures)
    jobs = [(text, a) for text, a in every if all(runs_on(e, a) for e in units[text])]
    print(f"{len(units)} texts for {len(architectures)} architectures ...", flush=True)
    processes = int(os.environ.get("JOBS") or os.cpu_count() or 1)
    with ProcessPoolExecutor(processes) as pool:
        outcomes = list(pool.map(outcome, jobs, chunksize=8))
    rows: dict[str, Row] = {}
    faults = []
    for (text, architecture), (usages, wrong) in zip(jobs, outcomes, strict=True):
        entries = units[text]
        faults += [f"{entries[0].name} for sm_{architecture}: {said}" for said in wrong]
        for usage in usages:
            row = rows.setdefault(label(entries, usage.kernel), Row(architectures))
            row.primitives |= {e.name for e in entries}
            row.variants.add((text, usage.kernel))
            row.usages[architecture].append(usage)
    return rows, faults


def table(rows: dict[str, Row], architectures: Sequence[int]) -> list[str]:
    """The rows in Markdown, in alphabetical order, expressions first."""
    head = ["kernel", "of", "variants", *(f"sm_{a}" for a in architectures)]
    head += ["shared", "stack", "spilled"]
    order = sorted(rows, key=lambda name: (name.startswith("`"), name))
    body = [[name, *map(str, rows[name].cells())] for name in order]
    rule = ["---", "---", *["--:"] * (len(head) - 2)]
    return [f"| {' | '.join(cells)} |" for cells in (head, rule, *body)]


def main() -> int:
    architectures = [int(a) for a in sys.argv[1:]] or ARCHITECTURES
    rows, faults = measured(architectures)
    print("\n".join(faults))
    variants = sum(len(row.variants) for row in rows.values())
    lines = [
        f"Measured on {date.today():%d %B %Y} with NVRTC {compiler().version}: {variants} kernels "
        f"for {len(architectures)} architectures, "
        + (f"{len(faults)} faults." if faults else "no warning, no spill."),
        "",
        *table(rows, architectures),
    ]
    text = DOCUMENT.read_text("utf-8")
    before, rest = text.split(MARKS[0])
    after = rest.split(MARKS[1])[1]
    DOCUMENT.write_text(before + MARKS[0] + "\n".join(lines) + "\n" + MARKS[1] + after, "utf-8")
    print(f"{DOCUMENT.name}: {len(rows)} rows, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
