"""Buffer assignment: where every value of a program lives, and the plan of the arena."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Literal

from ..backends.signature import ArraySpec
from ..dtype import DType
from ..graph.ir import Graph, Node, Var
from ..parameter import Parameter
from .donation import donations
from .launch import BoundKernel
from .planner import Lifetime, Plan, plan
from .schedule import Schedule

Kind = Literal["input", "output", "constant", "parameter", "upload", "arena", "block"]


@dataclass(eq=False, slots=True)
class Allocation:
    """One piece of memory; several Vars share it when they are views or computed in place.

    kind "output": an array that the caller gives at each call. "upload": a copy, on the device, of
    a parameter that stays on the host. "block": a part of another allocation, `inside`, from a byte
    of it on. start, end: the steps of its first write and last read, for the arena.
    """

    kind: Kind
    nbytes: int = 0
    parameter: Parameter | None = None
    start: int = 0
    end: int = 0
    inside: tuple[Allocation, int] | None = None

    @property
    def whole(self) -> Allocation:
        """The allocation that it is a part of, or itself."""
        return self if self.inside is None else self.inside[0]


@dataclass(eq=False)
class BufferAssignment:
    """Where the values of a scheduled graph live, and which writes of state need no copy.

    allocation: of every Var. whole: Vars that a node computed, rather than views of them. donated:
    Vars computed straight into the buffer of their parameter. staged: old values of parameters that
    are written to other parameters, each with the Var that keeps it while its own parameter is
    overwritten.
    workspaces: scratch memory of each node's kernel. offsets: in the arena, by `plan`.
    """

    graph: Graph
    prepared: Mapping[Node, BoundKernel]
    order: Schedule
    allocation: dict[Var, Allocation] = field(default_factory=dict)
    whole: set[Var] = field(default_factory=set)
    donated: set[Var] = field(default_factory=set)
    staged: dict[Var, Var] = field(default_factory=dict)
    workspaces: dict[Node, list[tuple[Allocation, ArraySpec]]] = field(default_factory=dict)
    plan: Plan = field(default_factory=lambda: Plan((), 0, 0))
    offsets: dict[Allocation, int] = field(default_factory=dict)

    def computed_in_parameter(self, var: Var) -> bool:
        """True for a new value, or a view of one, that was computed in a parameter's buffer."""
        return any(self.allocation[v] is self.allocation[var] for v in self.donated)

    def is_there(self, parameter: Parameter, var: Var) -> bool:
        """True for a new value that was computed in the buffer of its own parameter."""
        allocation = self.allocation[var]
        own = allocation.kind == "parameter" and allocation.parameter is parameter
        return own and self.computed_in_parameter(var)


def assign_buffers(
    graph: Graph,
    prepared: Mapping[Node, BoundKernel],
    order: Schedule,
    device: str,
    reuse: bool,
    fills: bool = False,
) -> BufferAssignment:
    """Decide where each value of a scheduled graph lives and plan the arena.

    reuse: kernels may overwrite inputs that nothing reads later. fills: kernels write outputs into
    arrays of the caller.
    """
    buffers = BufferAssignment(graph, prepared, order)
    held = _given(buffers, device)
    reads = _last_reads(graph, prepared, order)
    targets = donations(graph, order, prepared, held) if order.updates else {}
    if fills:
        targets |= {var: Allocation("output") for var in graph.outputs}
    targets |= _blocks(order, prepared, reads, targets)
    for step, node in enumerate(order.order):
        _assign(buffers, node, step, reads, targets, reuse)
    _stage(buffers)
    arena = _arena(buffers)
    buffers.plan = plan([Lifetime(a.nbytes, a.start, a.end) for a in arena])
    buffers.offsets = dict(zip(arena, buffers.plan.offsets, strict=True))
    for block in buffers.allocation.values():
        if block.inside is not None:
            whole, first = block.inside
            buffers.offsets[block] = buffers.offsets[whole] + first
    return buffers


def _given(buffers: BufferAssignment, device: str) -> dict[int, Allocation]:
    """Allocate the values that exist when the program begins; the parameters' allocations, by
    id."""
    graph = buffers.graph
    buffers.allocation.update({var: Allocation("input") for var in graph.inputs})
    buffers.allocation.update({var: Allocation("constant") for var in graph.constants})
    held = {}
    for parameter, var in graph.state:
        kind: Kind = "parameter" if parameter.device == device else "upload"
        held[id(parameter)] = Allocation(kind, var.abstract.nbytes, parameter)
        buffers.allocation[var] = held[id(parameter)]
    return held


def _last_reads(
    graph: Graph, prepared: Mapping[Node, BoundKernel], order: Schedule
) -> dict[Var, int]:
    """The last step at which a Var, or a view of it, is read; past the end if it is kept."""
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


def _blocks(
    order: Schedule,
    prepared: Mapping[Node, BoundKernel],
    reads: Mapping[Var, int],
    taken: Mapping[Var, Allocation],
) -> dict[Var, Allocation]:
    """Memory for the inputs of each Concat in C of whole blocks inside that of its output: what is
    computed there need not be copied."""
    computed = [(i, n) for i, n in enumerate(order.order) if prepared[n].entry.view is None]
    made = {v: i for i, n in computed for v in n.outputs}
    found: dict[Var, Allocation] = {}
    for node in order.order:
        if node.primitive.name != "Concat" or prepared[node].native is None:
            continue
        (out,), axis = node.outputs, node.attrs["axis"] % len(node.outputs[0].abstract.shape)
        if out in taken or out in found or prod(out.abstract.shape[:axis]) != 1:
            continue
        whole, first = Allocation("arena", out.abstract.nbytes), 0
        for var in node.inputs:
            size = var.abstract.nbytes
            if var in made and var not in taken and var not in found and size:
                found[var] = Allocation("block", size, inside=(whole, first))
            first += size
        parts = [v for v in node.inputs if v in found and found[v].whole is whole]
        whole.start = min(made[v] for v in (*parts, out))
        whole.end = max(reads.get(v, 0) for v in (*parts, out))
        found[out] = whole
    return found


def _assign(
    buffers: BufferAssignment,
    node: Node,
    step: int,
    reads: dict[Var, int],
    targets: dict[Var, Allocation],
    reuse: bool,
) -> None:
    kernel, allocation = buffers.prepared[node], buffers.allocation
    if kernel.entry.view is not None:
        allocation[node.outputs[0]] = allocation[node.inputs[kernel.entry.view]]
        return
    scratch = [(_in_arena(w.shape, w.dtype, step), w) for w in kernel.workspace]
    if scratch:
        buffers.workspaces[node] = scratch
    for var in node.outputs:
        reused = _reusable(buffers, node, step, reads) if reuse else None
        if var in targets:
            allocation[var] = targets[var]
            if targets[var].parameter is not None:
                buffers.donated.add(var)
        elif reused is not None and len(node.outputs) == 1:
            allocation[var] = reused
        else:
            allocation[var] = _in_arena(var.abstract.stored, var.abstract.dtype, step)
        buffers.whole.add(var)
        allocation[var].end = max(allocation[var].end, reads.get(var, step))


def _in_arena(shape: tuple[int, ...], dtype: DType, step: int) -> Allocation:
    return Allocation("arena", prod(shape) * dtype.itemsize, None, step, step)


def _reusable(
    buffers: BufferAssignment, node: Node, step: int, reads: dict[Var, int]
) -> Allocation | None:
    """The memory of an input that dies here and that the kernel may overwrite with its output."""
    inplace, out = buffers.prepared[node].inplace, node.outputs[0].abstract
    for i in inplace:
        var = node.inputs[i]
        allocation = buffers.allocation[var]
        alone = all(
            j in inplace and v in buffers.whole
            for j, v in enumerate(node.inputs)
            if buffers.allocation[v].whole is allocation
        )
        dies = allocation.kind == "arena" and allocation.end <= step
        same = var.abstract.stored == out.stored and var.abstract.dtype == out.dtype
        if dies and alone and var in buffers.whole and same:
            return allocation
    return None


def _stage(buffers: BufferAssignment) -> None:
    """Find the new values that are old values of parameters, and allocate memory to stage them."""
    end = len(buffers.order.order)
    for _, var in buffers.order.writes:
        old = buffers.allocation[var].kind == "parameter" and not buffers.computed_in_parameter(var)
        if old and var not in buffers.staged:
            kept = buffers.staged[var] = Var(var.abstract)
            buffers.allocation[kept] = _in_arena(kept.abstract.shape, kept.abstract.dtype, end)


def _arena(buffers: BufferAssignment) -> list[Allocation]:
    scratch = [allocation for found in buffers.workspaces.values() for allocation, _ in found]
    every = dict.fromkeys((*buffers.allocation.values(), *scratch))
    return [allocation for allocation in every if allocation.kind == "arena"]
