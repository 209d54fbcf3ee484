"""Graphs inside graphs: the branches and bodies that primitives carry as attributes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ..primitive import Primitive, rebuild

if TYPE_CHECKING:
    from .ir import Graph


def subgraphs(primitive: Primitive) -> Iterator[tuple[str, Graph]]:
    """The graphs among a primitive's attributes, also inside tuples, labelled: `branches[1]`."""
    for name, value in primitive.attributes.items():
        yield from _inside(name, value)


def map_subgraphs(primitive: Primitive, change: Callable[[Graph], Graph]) -> Primitive:
    """The primitive with `change` applied to each of its graphs; itself where it has none."""
    if not any(True for _ in subgraphs(primitive)):
        return primitive
    values = {k: _changed(v, change) for k, v in primitive.attributes.items()}
    return rebuild(type(primitive), values)


def _inside(label: str, value: Any) -> Iterator[tuple[str, Graph]]:
    if _is_graph(value):
        yield label, value
    elif isinstance(value, tuple):
        for i, part in enumerate(value):
            yield from _inside(f"{label}[{i}]", part)


def _changed(value: Any, change: Callable[[Graph], Graph]) -> Any:
    if _is_graph(value):
        return change(value)
    return tuple(_changed(v, change) for v in value) if isinstance(value, tuple) else value


def _is_graph(value: Any) -> bool:
    # By what it has: Graph prints itself, so its module imports the printer, which imports this.
    return hasattr(value, "nodes") and hasattr(value, "outputs")
