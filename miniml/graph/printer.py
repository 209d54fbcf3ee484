"""Graphs as text: one line per node, typed, with parameters and small constants by name."""

from __future__ import annotations

import linecache
import os
import re
from collections.abc import Iterable, Iterator
from itertools import chain

import numpy as np

from ..attributes import show
from ..dtype import bool_, float32, int64
from .ir import Graph, Node, Var, print_by

_WIDTH = 100
_SHOWN = 8  # constants of at most this many elements are written out


def text(graph: Graph, where: bool = False) -> str:
    """The graph as text; `where` adds the user's line to each node, as a comment.

    Scalar constants are written where they are used: `1.0` is a float32[], `1` an int64[], `True` a
    bool[], others say their dtype. Graphs inside attributes are printed below their node.
    """
    return "\n".join(_lines(graph, where))


class Names:
    """The names of a graph's Vars in its text; `%?` is a Var that the graph does not define."""

    def __init__(self, graph: Graph):
        self._names: dict[Var, str] = {}
        taken: set[str] = set()
        for parameter, var in graph.state:
            self._names[var] = _unused(parameter.name, taken)
        listed = [v for v in graph.constants if not is_inline(v)]
        self._names.update((v, _unused(f"c{i}", taken)) for i, v in enumerate(listed))
        self._names.update((v, _scalar(v)) for v in graph.constants if is_inline(v))
        made = (v for n in graph.nodes for v in n.outputs)
        for number, var in enumerate(chain(graph.inputs, made)):
            self._names.setdefault(var, f"%{number}")

    def __getitem__(self, var: Var) -> str:
        return self._names.get(var, "%?")

    def typed(self, var: Var) -> str:
        """Name and type: `%1: float32[2, 3]`."""
        return f"{self[var]}: {var.abstract}"

    def node(self, node: Node) -> str:
        """The line of one node."""
        shown = ", ".join(f"{k}={show(v)}" for k, v in node.attrs.items())
        outputs = ", ".join(map(self.typed, node.outputs))
        inputs = ", ".join(self[v] for v in node.inputs)
        return f"{outputs or '_'} = {node.primitive.name}({shown}) {inputs}".rstrip()


def _lines(graph: Graph, where: bool) -> Iterator[str]:
    names = Names(graph)
    inputs = [names.typed(v) for v in graph.inputs]
    states = [f"state {names.typed(v)}" for _, v in graph.state]
    yield from _head(graph.name, inputs + states)
    for var in graph.constants:
        if not is_inline(var):
            yield f"  {names.typed(var)} = constant{_elements(var)}"
    for node in graph.nodes:
        line = f"  {names.node(node)}"
        yield f"{line}  # {user_line(node)}" if where and node.where else line
        for label, inner in node.subgraphs():
            for i, line in enumerate(_lines(inner, where)):
                yield f"    {line}" if i else f"    {label}: {line}"
    yield f"  return {', '.join(names[v] for v in graph.outputs)}".rstrip()


def _head(name: str, signature: list[str]) -> Iterable[str]:
    line = f"{name}({', '.join(signature)}):"
    if len(line) <= _WIDTH:
        return [line]
    return [f"{name}(", *(f"    {part}," for part in signature), "):"]


def user_line(node: Node) -> str:
    """`file.py:12: y = exp(x)`, the line of the user's source that a node comes from."""
    if node.where is None:
        return ""
    line = node.where.line
    source = linecache.getline(node.where.code.co_filename, line).strip()
    return f"{os.path.basename(node.where.file)}:{line}" + (f": {source}" if source else "")


def _unused(preferred: str, taken: set[str]) -> str:
    """`%preferred`, changed if it looks like a number or is already taken."""
    stem = re.sub(r"[^\w.]", "_", preferred) or "state"
    stem = f"p{stem}" if stem.isdigit() else stem
    name, count = stem, 1
    while name in taken:
        count += 1
        name = f"{stem}_{count}"
    taken.add(name)
    return f"%{name}"


def is_inline(var: Var) -> bool:
    """True for the scalar constants, which the text writes where they are used."""
    value = var.abstract.value
    return value is not None and value.shape == () == var.abstract.shape


def _scalar(var: Var) -> str:
    assert var.abstract.value is not None
    value = var.abstract.value.item()
    plain = {float: float32, int: int64, bool: bool_}[type(value)] == var.abstract.dtype
    shown = _short(var) if isinstance(value, float) else str(value)
    return shown if plain else f"{var.abstract.dtype.name}({shown})"


def _short(var: Var) -> str:
    """The shortest digits that give the same number in the constant's own dtype."""
    assert var.abstract.value is not None
    digits = str(var.abstract.value[()])
    return digits if re.search(r"[.en]", digits) else f"{digits}.0"


def _elements(var: Var) -> str:
    value = var.abstract.value
    if value is None or value.size > _SHOWN:
        return ""
    return " " + re.sub(r"\s+", " ", np.array2string(value, separator=", ", floatmode="unique"))


print_by(text)
