"""The bodies of fused nodes."""

from __future__ import annotations

from collections.abc import Sequence

from ...graph.ir import Graph, Node, Var
from .members import kind_of, literal


def body_of(nodes: Sequence[Node], outputs: tuple[Var, ...]) -> Graph:
    """The graph of a group, named by what it computes."""
    read = read_by(nodes)
    constants = tuple(v for v in read if literal(v))
    inputs = tuple(v for v in read if not literal(v))
    named = (
        n.primitive.name.lower() for n in nodes if kind_of(n) not in ("view", "created", "window")
    )
    return Graph(inputs, tuple(nodes), outputs, constants, (), "_".join(dict.fromkeys(named))[:60])


def read_by(nodes: Sequence[Node]) -> list[Var]:
    """The values that these nodes read and do not make."""
    made = {v for n in nodes for v in n.outputs}
    return [v for v in dict.fromkeys(v for n in nodes for v in n.inputs) if v not in made]
