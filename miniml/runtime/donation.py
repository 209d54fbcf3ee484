"""Donation: which new values of state are computed in the buffers of their parameters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from ..graph.ir import Graph, Node, Var
from .launch import BoundKernel
from .schedule import Schedule

S = TypeVar("S")


def donations(
    graph: Graph, order: Schedule, prepared: Mapping[Node, BoundKernel], held: Mapping[int, S]
) -> dict[Var, S]:
    """Vars that may be computed straight into a parameter's buffer, and that buffer.

    Such a Var is made by one of the last updates, is what the parameter finally holds, and
    nothing that runs later, nor any copy at the end, reads the parameter's old value.
    held: a token for the buffer of each parameter, by the parameter's id.
    """
    made = {v: n for n in order.updates for v in n.outputs}
    root = _origins(order.order, prepared)
    position = {n: i for i, n in enumerate(order.updates)}
    readers: dict[Var, list[Node]] = {}
    for node in order.updates:
        for var in node.inputs if prepared[node].entry.view is None else ():
            readers.setdefault(root.get(var, var), []).append(node)
    copied = {root.get(v, v) for _, v in order.writes}
    values = _origins([n for n in order.order if n.writes], prepared)  # of what was assigned
    old = {id(p): v for p, v in graph.state}
    targets: dict[Var, S] = {}
    for parameter, var in order.writes:
        value, before = values.get(var, var), old[id(parameter)]
        maker = made.get(value)
        if maker is None or value in targets or before in copied:
            continue
        if prepared[maker].entry.view is not None:
            continue  # a view: its elements are stored elsewhere, in another order
        late = [n for n in readers.get(before, ()) if position[n] >= position[maker]]
        if all(n is maker and _exact(n, before, root, prepared[n]) for n in late):
            targets[value] = held[id(parameter)]
    return targets


def _origins(nodes: Iterable[Node], prepared: Mapping[Node, BoundKernel]) -> dict[Var, Var]:
    """For every Var that these nodes make as a view, the Var whose memory it shares in the end."""
    origins: dict[Var, Var] = {}
    for node in nodes:
        view = prepared[node].entry.view
        if view is not None:
            origins[node.outputs[0]] = origins.get(node.inputs[view], node.inputs[view])
    return origins


def _exact(node: Node, var: Var, root: Mapping[Var, Var], prepared: BoundKernel) -> bool:
    """True when the node reads `var` itself, not a view of it, and only as an input that its kernel
    may overwrite."""
    positions = [i for i, v in enumerate(node.inputs) if root.get(v, v) is var]
    return all(node.inputs[i] is var and i in prepared.inplace for i in positions)
