"""`cache`: lists the compiled files on disk, by kind; `--clear` removes them."""

from __future__ import annotations

from argparse import ArgumentParser
from collections import defaultdict
from pathlib import Path

from ..backends.cc import units
from ..backends.compiled import Entry
from ..backends.cuda.sim import unit

CACHES = (units.CACHE, unit.CACHE)
_HOUR, _DAY = 3600, 86400  # seconds


def add(command: ArgumentParser) -> None:
    command.add_argument("--clear", action="store_true", help="remove them; they are compiled anew")
    command.set_defaults(run=lambda o: run(o.clear))


def run(clear: bool) -> int:
    """Print a line for each folder and kind, or remove the files."""
    kinds: dict[tuple[Path, str], list[Entry]] = defaultdict(list)
    for cache in CACHES:
        for entry in cache.entries():
            kinds[entry.path.parent, entry.kind].append(entry)
        if clear:
            cache.clear()
    for (folder, kind), entries in kinds.items():
        print(f"{'removed ' * clear}{folder}  {kind}  {_summary(entries)}")
    if not kinds:
        print(f"nothing is kept in {' or '.join(str(c.folder) for c in CACHES)}")
    return 0


def _summary(entries: list[Entry]) -> str:
    size = sum(e.nbytes for e in entries) / 2**20
    ages = sorted(e.age for e in entries)
    return (
        f"{len(entries)} files, {size:.1f} MB, last used {_span(ages[0])} to {_span(ages[-1])} ago"
    )


def _span(seconds: float) -> str:
    """A time in a suitable unit."""
    if seconds < _HOUR:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / _HOUR:.0f} h" if seconds < _DAY else f"{seconds / _DAY:.0f} days"
