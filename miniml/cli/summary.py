"""`summary`: prints a network as a tree, its parameters, and its layers as a table."""

from __future__ import annotations

import re
from argparse import ArgumentParser
from collections.abc import Sequence
from typing import Any

from ..backends.signature import ArraySpec
from ..core.dtype import as_dtype, float32
from ..core.errors import MinimlError
from ..nn import Cell
from . import demo
from .named import load

Row = tuple[str, str, str, str]


def add(command: ArgumentParser) -> None:
    command.add_argument(
        "net",
        nargs="?",
        help="a network, or what makes one without arguments, as module:net or "
        "path/to/file.py:net (default: the demo's)",
    )
    command.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="TYPE",
        help="the type of an input, such as 32,784 or int64[32, 10]: shows what each layer gives; "
        "once for each input",
    )
    command.set_defaults(run=lambda o: run(o.net, o.input))


def run(address: str | None, inputs: Sequence[str]) -> int:
    """Print the network at `module:net`, the demo's for None, and its layers, for inputs given as
    types such as "float32[32, 784]" with what each gives; returns the exit code."""
    net = demo.network() if address is None else network(address)
    print(net, parameters(net), net.summary(*map(spec, inputs)), sep="\n\n")
    return 0


def network(address: str) -> Cell:
    """The Cell at `module:name`, or the one that a class or a function there makes."""
    found = load(address)
    net = found if isinstance(found, Cell) or not callable(found) else _made(address, found)
    if not isinstance(net, Cell):
        raise MinimlError(
            f"{address} is {net!r} of type {type(net).__name__}; give a Cell, or what makes "
            "one without arguments"
        )
    return net


def _made(address: str, make: Any) -> object:
    try:
        return make()
    except Exception as error:
        raise MinimlError(
            f"{address}() raised {type(error).__name__}: {error}; give a network, or what makes "
            "one without arguments"
        ) from error


def spec(text: str) -> ArraySpec:
    """The type written as "float32[32, 784]", "32,784" or "32x784"."""
    found = re.fullmatch(r"(?:(\w+)\[(.*)\])?|(.*)", text)
    sizes = re.split(r"[,x]", found[2] or found[3] or "") if found else []
    if found is None or not all(size.strip().isdigit() for size in sizes):
        raise MinimlError(f"{text!r} is not a type; write float32[32, 784], int64[32] or 32,784")
    return ArraySpec(tuple(map(int, sizes)), as_dtype(found[1] or float32))


def parameters(net: Cell) -> str:
    """One line for each parameter: name, shape, dtype, numbers; and their sum."""
    found = net.parameters_dict()
    rows = [
        (n if p.requires_grad else f"{n} (not trained)", str(p.shape), p.dtype.name, f"{p.size:,}")
        for n, p in found.items()
    ]
    total = ("together", "", "", f"{sum(p.size for p in found.values()):,}")
    return _table([("parameter", "shape", "dtype", "numbers"), *rows, total])


def _table(rows: Sequence[Row]) -> str:
    """Columns, the last right-aligned, with a rule below the head and above the last row."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join((*map(str.ljust, row[:3], widths), row[3].rjust(widths[3]))) for row in rows]
    rule = "-" * len(lines[0])
    return "\n".join((lines[0], rule, *lines[1:-1], rule, lines[-1]))
