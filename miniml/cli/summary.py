"""`summary`: a network as a tree and its parameters as a table."""

from __future__ import annotations

from ..nn import Cell


def run(net: Cell) -> int:
    """Print the network and its parameters; returns the exit code."""
    print(net)
    print()
    print(table(net))
    return 0


def table(net: Cell) -> str:
    """One line for each parameter: name, shape, dtype, numbers; and their sum."""
    rows = [("parameter", "shape", "dtype", "numbers")]
    parameters = net.parameters_dict()
    for name, p in parameters.items():
        note = "" if p.requires_grad else " (not trained)"
        rows.append((name + note, str(p.shape), p.dtype.name, f"{p.size:,}"))
    rows.append(("together", "", "", f"{sum(p.size for p in parameters.values()):,}"))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join((*map(str.ljust, row[:3], widths), row[3].rjust(widths[3]))) for row in rows]
    rule = "-" * len(lines[0])
    return "\n".join((lines[0], rule, *lines[1:-1], rule, lines[-1]))
