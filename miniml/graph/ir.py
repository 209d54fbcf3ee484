"""The graph: a typed, single-assignment program as a frozen value."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ..abstract import Abstract
from ..attributes import key
from ..location import Location
from ..primitive import Primitive
from ..tensor import Parameter
from .printer import text


class Var:
    """One value of a graph, told apart by identity; a constant if its abstract has a value."""

    __slots__ = ("abstract",)

    def __init__(self, abstract: Abstract):
        self.abstract = abstract

    def __repr__(self) -> str:
        return f"Var({self.abstract})"


@dataclass(frozen=True, eq=False, slots=True)
class Node:
    """One call of a primitive: tensors by position, const inputs by name."""

    primitive: Primitive
    inputs: tuple[Var, ...]
    outputs: tuple[Var, ...]
    consts: tuple[tuple[str, Any], ...] = ()
    where: Location | None = None

    @property
    def attrs(self) -> dict[str, Any]:
        """Attributes and const inputs together: what the kernel gets by keyword."""
        return {**self.primitive.attributes, **dict(self.consts)}

    @property
    def writes(self) -> bool:
        """True where the node makes a new version of what its first input is a version of."""
        return self.primitive.effect == "state" and bool(self.inputs)

    def rule_inputs(self) -> tuple[Any, ...]:
        """Inputs in the order of the primitive's rules: Abstracts, with const values in place."""
        return interleave(self.primitive, [v.abstract for v in self.inputs], dict(self.consts))


@dataclass(frozen=True, eq=False)
class Graph:
    """inputs -> nodes, in program order -> outputs.

    constants: the Vars that carry a value. state: (Parameter, Var) pairs, the values parameters
    have when the graph starts; a node whose primitive has effect "state" and whose first input is
    a version of a parameter gives its next version as first output.
    """

    inputs: tuple[Var, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[Var, ...]
    constants: tuple[Var, ...] = ()
    state: tuple[tuple[Parameter, Var], ...] = ()
    name: str = field(default="graph")

    @cached_property
    def key(self) -> tuple[object, ...]:
        """The graph up to the names of its Vars and the places its nodes came from.

        Vars that nothing defines, in a graph that `verify` would refuse, stand for themselves.
        """
        number: dict[Var, int] = {}
        for var in self.definitions():
            number.setdefault(var, len(number))
        body = tuple(
            (n.primitive, key(n.consts), tuple(number.get(v, v) for v in n.inputs))
            for n in self.nodes
        )
        return (
            tuple(v.abstract.key() for v in self.inputs),
            tuple(v.abstract.key() for v in self.constants),
            tuple((id(p), v.abstract.key()) for p, v in self.state),
            body,
            tuple(number.get(v, v) for v in self.outputs),
        )

    def definitions(self) -> Iterator[Var]:
        """Every Var in the order in which it gets its value."""
        yield from self.inputs
        yield from (v for _, v in self.state)
        yield from self.constants
        for node in self.nodes:
            yield from node.outputs

    def __str__(self) -> str:
        return text(self)

    def __repr__(self) -> str:
        return f"<Graph {self.name}: {len(self.nodes)} nodes>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Graph) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


def interleave(primitive: Primitive, tensors: list[Any], consts: dict[str, Any]) -> tuple[Any, ...]:
    """Tensors and const values in the order of the primitive's inputs."""
    if not consts:
        return tuple(tensors)
    places = {i: consts[name] for i, name in primitive._const}
    rest = iter(tensors)
    count = len(tensors) + len(places)
    return tuple(places[i] if i in places else next(rest) for i in range(count))
