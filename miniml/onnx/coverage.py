"""What a model needs of the table of operators, and what is missing there."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from os import PathLike
from typing import Any

from .model import Model, domain_of
from .operators import find, known, rows


@dataclass(frozen=True)
class Need:
    """One operator of a model: how many nodes use it, and which rows read it."""

    domain: str
    type: str
    version: int
    nodes: int
    versions: str | None  # of the domain, that the row reads; None where there is no row
    others: str  # versions that other rows of the operator read

    def __str__(self) -> str:
        by = f"read (versions {self.versions})" if self.versions else "missing"
        by += f"; read in versions {self.others}" if not self.versions and self.others else ""
        name = f"{self.domain or 'ai.onnx'} {self.type}"
        return f"{name:<40} version {self.version:<4} nodes {self.nodes:<6} {by}"


@dataclass(frozen=True)
class Coverage:
    """The operators that a model needs, by domain and type."""

    needs: tuple[Need, ...]

    @property
    def missing(self) -> tuple[Need, ...]:
        """Those that no row reads: their nodes stay in the graph as ops.Custom."""
        return tuple(n for n in self.needs if n.versions is None)

    def __str__(self) -> str:
        lines = [*map(str, self.needs)]
        count, nodes = len(self.missing), sum(n.nodes for n in self.missing)
        lines.append(
            f"{len(self.needs)} operators; {count} missing, in {nodes} nodes"
            if count
            else f"{len(self.needs)} operators, all of them read"
        )
        return "\n".join(lines)


def coverage(model: str | PathLike[str] | Any) -> Coverage:
    """What the model needs: its operators, those in branches, loops and functions too."""
    found = Model.of(model)
    counts: Counter[tuple[str, str, int]] = Counter()
    for node, versions in found.nodes():
        domain = domain_of(node)
        if (domain, node.op_type) not in found.functions:
            counts[domain, node.op_type, versions.get(domain, 1)] += 1
    return Coverage(tuple(_need(*key, counts[key]) for key in sorted(counts)))


def _need(domain: str, type_: str, version: int, nodes: int) -> Need:
    row = find(domain, type_, version)
    others = ", ".join(r.versions for r in known(domain, type_) if r is not row)
    return Need(domain, type_, version, nodes, row.versions if row else None, others)


def table() -> str:
    """The operators of the standard that are read, and their versions, in Markdown."""
    versions: dict[tuple[str, str], list[str]] = {}
    for row in rows():
        if row.domain in ("", "ai.onnx.ml"):
            versions.setdefault((row.domain, row.type), []).append(row.versions)
    lines = ["| operator | versions |", "|---|---|"]
    for (domain, type_), found in versions.items():
        name = f"{domain}.{type_}" if domain else type_
        lines.append(f"| {name} | {', '.join(found)} |")
    return "\n".join(lines) + "\n"
