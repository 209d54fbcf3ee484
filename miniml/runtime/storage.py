"""Where every value of a program lives: an input, a constant, a parameter, or the arena."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from ..abstract import Abstract
from ..graph.ir import Graph, Node, Var
from ..tensor import Parameter
from .direct import direct_targets
from .launch import BoundKernel
from .planner import Lifetime, Plan, plan
from .schedule import Schedule

Kind = Literal["input", "constant", "parameter", "arena"]


@dataclass(eq=False, slots=True)
class Storage:
    """One piece of memory; several Vars share it when they are views or computed in place.

    start, end: the steps of its first write and last read, for the arena.
    """

    kind: Kind
    nbytes: int = 0
    parameter: Parameter | None = None
    start: int = 0
    end: int = 0


@dataclass(eq=False)
class Layout:
    """Where the values of a scheduled graph live: the storage of every Var, the arena's plan, and
    which writes of state need no copy.

    whole: Vars that a node computed, rather than views of them. workspaces: scratch
    storages of each node. direct: Vars computed straight into the buffer of their parameter.
    """

    graph: Graph
    prepared: Mapping[Node, BoundKernel]
    order: Schedule
    storage: dict[Var, Storage] = field(default_factory=dict)
    whole: set[Var] = field(default_factory=set)
    workspaces: dict[Node, tuple[Storage, ...]] = field(default_factory=dict)
    direct: set[Var] = field(default_factory=set)
    plan: Plan = field(default_factory=lambda: Plan((), 0, 0))
    offsets: dict[Storage, int] = field(default_factory=dict)

    def computed_in_parameter(self, var: Var) -> bool:
        """True for a new value, or a view of one, that was computed where a parameter lives."""
        storage = self.storage[var]
        return any(v is var or self.storage[v] is storage for v in self.direct)


def lay_out(graph: Graph, prepared: Mapping[Node, BoundKernel], order: Schedule) -> Layout:
    """Decide where each value of a scheduled graph lives and plan the arena."""
    layout = Layout(graph, prepared, order)
    for var in graph.inputs:
        layout.storage[var] = Storage("input")
    for var in graph.constants:
        layout.storage[var] = Storage("constant")
    held = {id(p): Storage("parameter", v.abstract.nbytes, p) for p, v in graph.state}
    for parameter, var in graph.state:
        layout.storage[var] = held[id(parameter)]
    reads = _last_reads(graph, prepared, order)
    targets = direct_targets(graph, order, prepared, held)
    for step, node in enumerate(order.order):
        _place(layout, node, step, prepared[node], reads, targets)
    arena = _arena(layout)
    layout.plan = plan([Lifetime(s.nbytes, s.start, s.end) for s in arena])
    layout.offsets = dict(zip(arena, layout.plan.offsets, strict=True))
    return layout


def _last_reads(
    graph: Graph, prepared: Mapping[Node, BoundKernel], order: Schedule
) -> dict[Var, int]:
    """The last step at which a Var, or a view of it, is read; past the end where it is kept."""
    last: dict[Var, int] = {}
    steps = order.order
    for var in (*graph.outputs, *(v for _, v in order.writes)):
        last[var] = len(steps)
    for step in range(len(steps) - 1, -1, -1):
        node = steps[step]
        view = prepared[node].entry.view
        through = last.get(node.outputs[0], step) if view is not None else step
        for i, var in enumerate(node.inputs):
            until = through if i == view else step
            last[var] = max(last.get(var, step), until)
    return last


def _place(
    layout: Layout,
    node: Node,
    step: int,
    prepared: BoundKernel,
    reads: dict[Var, int],
    targets: dict[Var, Storage],
) -> None:
    view = prepared.entry.view
    if view is not None:
        layout.storage[node.outputs[0]] = layout.storage[node.inputs[view]]
        return
    if prepared.instance is not None:
        layout.workspaces[node] = tuple(
            Storage("arena", Abstract(w.shape, w.dtype).nbytes, None, step, step)
            for w in prepared.instance.workspace()
        )
    for var in node.outputs:
        reused = _reusable(layout, node, step, prepared, reads)
        if var in targets:
            layout.storage[var] = targets[var]
            layout.direct.add(var)
        elif reused is not None and len(node.outputs) == 1:
            layout.storage[var] = reused
        else:
            layout.storage[var] = Storage("arena", var.abstract.nbytes, None, step, step)
        layout.whole.add(var)
        storage = layout.storage[var]
        storage.end = max(storage.end, reads.get(var, step))


def _reusable(
    layout: Layout, node: Node, step: int, prepared: BoundKernel, reads: dict[Var, int]
) -> Storage | None:
    """The storage of an input that dies here and that the kernel may overwrite with its output."""
    out = node.outputs[0].abstract
    for i in prepared.entry.inplace:
        var = node.inputs[i]
        storage = layout.storage[var]
        alone = all(
            j in prepared.entry.inplace and v in layout.whole
            for j, v in enumerate(node.inputs)
            if layout.storage[v] is storage
        )
        dies = storage.kind == "arena" and storage.end <= step
        if dies and alone and var in layout.whole and _same(var.abstract, out):
            return storage
    return None


def _same(a: Abstract, b: Abstract) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype


def _arena(layout: Layout) -> list[Storage]:
    found = dict.fromkeys(s for s in layout.storage.values() if s.kind == "arena")
    for scratch in layout.workspaces.values():
        found.update(dict.fromkeys(scratch))
    return list(found)
