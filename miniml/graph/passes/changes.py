"""What a pass leaves as it was: the rules of graphs, inputs, outputs and effects."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...abstract import listed
from ...errors import GraphError
from ..ir import Graph, Node, Var
from ..state import versions
from ..verify import verify


def check(name: str, before: Graph, after: Graph) -> None:
    """GraphError that names the pass, if the graph it made breaks a rule of graphs, or has other
    inputs, outputs or effects than before."""
    try:
        verify(after)
        for what, (of, same, shown) in _KEPT.items():
            if same(before) != same(after):
                raise GraphError(
                    f"graph {after.name!r} has other {what} than before: {shown(of(after))}; it "
                    f"had {shown(of(before))}"
                )
    except GraphError as error:
        broken = GraphError(
            f"pass {name!r} broke a rule of graphs: {error}; disabled_passes={name!r} switches it "
            "off"
        )
        broken.__notes__ = list(error.__notes__)  # of the node, not the runner
        raise broken from error


def _types(variables: Sequence[Var]) -> str:
    return listed(v.abstract for v in variables)


def _effects(graph: Graph) -> list[Node]:
    """The nodes with an effect, in order."""
    return [n for n in graph.nodes if n.primitive.effect != "pure"]


def _writes(graph: Graph) -> list[tuple[object, ...]]:
    """Which primitive writes which parameter, in order."""
    writes = versions(graph).writes
    return [(n.primitive, n.consts, id(writes.get(n))) for n in _effects(graph)]


def _calls(nodes: Sequence[Node]) -> str:
    return ", ".join(n.primitive.name for n in nodes) or "none"


# What of a graph stays, what must be equal of it, and how a message shows it.
_KEPT: dict[str, tuple[Callable[[Graph], Any], Callable[[Graph], object], Callable[..., str]]] = {
    "inputs": (lambda g: g.inputs, lambda g: _types(g.inputs), _types),
    "outputs": (lambda g: g.outputs, lambda g: _types(g.outputs), _types),
    "effects": (_effects, _writes, _calls),
}
