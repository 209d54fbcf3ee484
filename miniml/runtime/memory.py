"""Memory of a program, and what is done in it: order, buffers, donation, arena, steps, and arrays.

Order: nodes that may fail run first, updates of state, which cannot fail, run last. Assignment:
where each value lives. Donation: new values of state that are computed in the buffers of their
parameters. Planning: lifetimes of buffers become offsets in one arena. Steps: plain records, which
executors compile or record. Arrays: those of one executable, for values whose address is the same
at every call; and those in which its kernels keep what they have packed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np

from ..backends.cc.native import Held
from ..backends.kernel import Array, Device, once, read_only
from ..core.abstract import ArraySpec, DType
from ..core.parameter import Parameter, last_write
from ..graph.ir import Graph, Node, Var, only_for_state, versions
from .launch import BoundKernel

LookAt = Callable[[Node, tuple[Any, ...], tuple[Any, ...]], None]
Storage = Literal["input", "output", "constant", "parameter", "upload", "arena", "block"]


def schedule(graph: Graph, prepared: Mapping[Node, BoundKernel], watched: bool = False) -> Schedule:
    """Split a graph's nodes into those that run first and the updates that come last.

    watched: the outputs of every node are checked, which may raise.
    """
    final = versions(graph).final
    if watched or not final:
        return Schedule(graph.nodes, (), graph.nodes, final)
    late = only_for_state(graph, lambda node: prepared[node].cannot_fail)
    main = tuple([n for n in graph.nodes if n not in late])
    updates = tuple([n for n in graph.nodes if n in late])
    return Schedule(main, updates, main + updates, final)


@dataclass(frozen=True, slots=True)
class Schedule:
    """Execution order of a graph.

    main: nodes that run first, in program order. updates: nodes that only serve new values of
    parameters and whose kernels cannot fail; they run after everything else. order: all of them.
    writes: per parameter, the Var that is its value when the program ends.
    """

    main: tuple[Node, ...]
    updates: tuple[Node, ...]
    order: tuple[Node, ...]
    writes: tuple[tuple[Parameter, Var], ...]


# --- Buffer assignment ----------------------------------------------------------------------------


def assign_buffers(
    graph: Graph,
    prepared: Mapping[Node, BoundKernel],
    order: Schedule,
    device: str,
    reuse: bool,
    direct: Sequence[Var] = (),
    copied: Collection[Node] = (),
) -> BufferAssignment:
    """Decide where each value of a scheduled graph lives and plan the arena.

    reuse: kernels may overwrite inputs that nothing reads later. direct: outputs that kernels may
    write into arrays of the caller. copied: views that no strides can describe.
    """
    inside = frozenset(n for n in copied if n.outputs[0] not in graph.outputs)
    buffers = BufferAssignment(graph, prepared, order, inside)
    held = _given(buffers, device)
    reads = _last_reads(buffers)
    targets = donations(graph, order, prepared, held) if order.updates else {}
    targets |= _blocks(order, prepared, reads, targets)
    for var in direct:
        targets.setdefault(var, Allocation("output"))
    for step, node in enumerate(order.order):
        _assign(buffers, node, step, reads, targets, reuse)
    _stage(buffers)
    scratch = [allocation for found in buffers.workspaces.values() for allocation, _ in found]
    every = dict.fromkeys((*buffers.allocation.values(), *scratch))
    arena = [allocation for allocation in every if allocation.kind == "arena"]
    buffers.plan = plan([Lifetime(a.nbytes, a.start, a.end) for a in arena])
    buffers.offsets = dict(zip(arena, buffers.plan.offsets, strict=True))
    for block in buffers.allocation.values():
        if block.inside is not None:
            whole, first = block.inside
            buffers.offsets[block] = buffers.offsets[whole] + first
    return buffers


@dataclass(eq=False)
class BufferAssignment:
    """Assignment of a scheduled graph's values to memory, and the writes of state without a copy.

    copied: views that are copies, in memory of their own; those of which the caller alone gets the
    elements are not. allocation: of every Var. whole: Vars that a node computed, rather than views
    of them. donated:
    Vars computed straight into the buffer of their parameter. staged: old values of parameters that
    are written to other parameters, each with the Var that keeps it while its own parameter is
    overwritten. workspaces: scratch memory of each node's kernel. offsets: in the arena, by `plan`.
    """

    graph: Graph
    prepared: Mapping[Node, BoundKernel]
    order: Schedule
    copied: frozenset[Node] = frozenset()
    allocation: dict[Var, Allocation] = field(default_factory=dict)
    whole: set[Var] = field(default_factory=set)
    donated: set[Var] = field(default_factory=set)
    staged: dict[Var, Var] = field(default_factory=dict)
    workspaces: dict[Node, list[tuple[Allocation, ArraySpec]]] = field(default_factory=dict)
    plan: Plan = field(default_factory=lambda: Plan((), 0, 0))
    offsets: dict[Allocation, int] = field(default_factory=dict)

    def view(self, node: Node) -> int | None:
        """The input that a node's output shares its memory with, if there is one."""
        return None if node in self.copied else self.prepared[node].entry.view

    def computed_in_parameter(self, var: Var) -> bool:
        """True for a new value, or a view of one, that was computed in a parameter's buffer."""
        return any(self.allocation[v] is self.allocation[var] for v in self.donated)

    def is_there(self, parameter: Parameter, var: Var) -> bool:
        """True for a new value that was computed in the buffer of its own parameter."""
        allocation = self.allocation[var]
        own = allocation.kind == "parameter" and allocation.parameter is parameter
        return own and self.computed_in_parameter(var)


@dataclass(eq=False, slots=True)
class Allocation:
    """A piece of memory; several Vars share it when they are views or computed in place.

    kind "output": an array that the caller passes at each call, or receives. "upload": a copy, on
    the device, of a parameter that stays on the host. "block": a part of another allocation;
    `inside` holds that and the byte offset. start, end: the steps of its first write and last read,
    in the arena.
    """

    kind: Storage
    nbytes: int = 0
    parameter: Parameter | None = None
    start: int = 0
    end: int = 0
    inside: tuple[Allocation, int] | None = None

    @property
    def whole(self) -> Allocation:
        """The allocation that this is part of, or itself."""
        return self if self.inside is None else self.inside[0]


def _given(buffers: BufferAssignment, device: str) -> dict[int, Allocation]:
    """Allocate what exists when the program begins; the parameters' allocations, by id."""
    graph = buffers.graph
    buffers.allocation.update({var: Allocation("input") for var in graph.inputs})
    buffers.allocation.update({var: Allocation("constant") for var in graph.constants})
    held = {}
    for parameter, var in graph.state:
        kind: Storage = "parameter" if parameter.device == device else "upload"
        held[id(parameter)] = Allocation(kind, var.abstract.nbytes, parameter)
        buffers.allocation[var] = held[id(parameter)]
    return held


def _last_reads(buffers: BufferAssignment) -> dict[Var, int]:
    """The last step at which a Var, or a view of it, is read; past the end if it is kept."""
    last: dict[Var, int] = {}
    steps = buffers.order.order
    for var in (*buffers.graph.outputs, *(v for _, v in buffers.order.writes)):
        last[var] = len(steps)
    for step in range(len(steps) - 1, -1, -1):
        node = steps[step]
        view = buffers.view(node)
        through = last.get(node.outputs[0], step) if view is not None else step
        for i, var in enumerate(node.inputs):
            last[var] = max(last.get(var, step), through if i == view else step)
    return last


def _blocks(
    order: Schedule,
    prepared: Mapping[Node, BoundKernel],
    reads: Mapping[Var, int],
    taken: Mapping[Var, Allocation],
) -> dict[Var, Allocation]:
    """Memory for the inputs of a Concat in C, as contiguous blocks of its output's: inputs computed
    there need no copy."""
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
        if not parts:
            continue
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
    kernel, allocation, view = buffers.prepared[node], buffers.allocation, buffers.view(node)
    if view is not None:
        allocation[node.outputs[0]] = allocation[node.inputs[view]]
        return
    scratch = [(_in_arena(w.shape, w.dtype, step), w) for w in kernel.workspace]
    if scratch:
        buffers.workspaces[node] = scratch
    for var in node.outputs:
        reused = _reusable(buffers, node, step) if reuse else None
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


def _reusable(buffers: BufferAssignment, node: Node, step: int) -> Allocation | None:
    """The memory of an input that is dead after this step and that the kernel may overwrite."""
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
    """Allocate staging memory for the new values that are old values of parameters."""
    end = len(buffers.order.order)
    for _, var in buffers.order.writes:
        old = buffers.allocation[var].kind == "parameter" and not buffers.computed_in_parameter(var)
        if old and var not in buffers.staged:
            kept = buffers.staged[var] = Var(var.abstract)
            buffers.allocation[kept] = _in_arena(kept.abstract.shape, kept.abstract.dtype, end)


def _in_arena(shape: tuple[int, ...], dtype: DType, step: int) -> Allocation:
    return Allocation("arena", prod(shape) * dtype.itemsize, None, step, step)


# --- Donation -------------------------------------------------------------------------------------

S = TypeVar("S")


def donations(
    graph: Graph, order: Schedule, prepared: Mapping[Node, BoundKernel], held: Mapping[int, S]
) -> dict[Var, S]:
    """Vars that may be computed directly in a parameter's buffer, and that buffer.

    Such a Var is made by an update and is the parameter's final value, and nothing that runs later,
    nor any copy at the end, reads the parameter's old value. held: a token for the buffer of each
    parameter, by the parameter's id.
    """
    made = {v: n for n in order.updates for v in n.outputs}
    root = _origins(order.order, prepared)
    position = {n: i for i, n in enumerate(order.updates)}
    readers: dict[Var, list[Node]] = {}
    for node in order.updates:
        for var in node.inputs if prepared[node].entry.view is None else ():
            readers.setdefault(root.get(var, var), []).append(node)
    copied = {root.get(v, v) for _, v in order.writes}
    values = _origins([n for n in order.order if n.writes], prepared)  # of assignments
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
    """For every Var that these nodes make as a view, the Var whose memory it aliases."""
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


# --- Arena planning -------------------------------------------------------------------------------

ALIGNMENT = 64
_EXACT_LIMIT = 2000


class Lifetime(NamedTuple):
    """A buffer of `nbytes`, written at step `start` and last read at step `end`."""

    nbytes: int
    start: int
    end: int


class Plan(NamedTuple):
    """Offset of each buffer; `size` bytes hold them all, of which `peak` are live at once."""

    offsets: tuple[int, ...]
    size: int
    peak: int


def plan(lifetimes: Sequence[Lifetime]) -> Plan:
    """Offsets for buffers such that no two with overlapping lifetimes overlap.

    Two greedy orders: by time with best fit, and, where that exceeds the peak and there are few
    enough buffers, by size, largest first (Pisarchyk and Lee 2020, "Efficient memory management for
    deep neural net inference"). The smaller arena is taken.
    """
    sized = [Lifetime(rounded(b.nbytes), b.start, b.end) for b in lifetimes]
    peak = peak_bytes(sized)
    best = Plan(*_by_time(sized), peak)
    if best.size > peak and len(sized) <= _EXACT_LIMIT:
        other = Plan(*_by_size(sized), peak)
        best = min(best, other, key=lambda p: p.size)
    return best


def rounded(nbytes: int) -> int:
    """The bytes a buffer takes in the arena."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def peak_bytes(lifetimes: Sequence[Lifetime]) -> int:
    """The largest sum of bytes live at one step: no arena can be smaller."""
    change: dict[int, int] = {}
    for nbytes, start, end in lifetimes:
        change[start] = change.get(start, 0) + nbytes
        change[end + 1] = change.get(end + 1, 0) - nbytes
    live = peak = 0
    for step in sorted(change):
        live += change[step]
        peak = max(peak, live)
    return peak


def _by_time(lifetimes: Sequence[Lifetime]) -> tuple[tuple[int, ...], int]:
    offsets = [0] * len(lifetimes)
    free = _FreeList()
    ending = sorted(range(len(lifetimes)), key=lambda i: lifetimes[i].end)
    freed = 0
    for i in sorted(
        range(len(lifetimes)), key=lambda i: (lifetimes[i].start, -lifetimes[i].nbytes)
    ):
        while lifetimes[ending[freed]].end < lifetimes[i].start:
            done = ending[freed]
            free.release(offsets[done], lifetimes[done].nbytes)
            freed += 1
        offsets[i] = free.take(lifetimes[i].nbytes)
    return tuple(offsets), free.top


class _FreeList:
    """The free ranges below `top`: (start, size), in order, no two of them adjacent."""

    def __init__(self) -> None:
        self.top = 0
        self._free: list[tuple[int, int]] = []

    def take(self, nbytes: int) -> int:
        """The start of a range of that size: in the smallest one that fits, else at the top."""
        if not nbytes:
            return 0
        fitting = [(size, start) for start, size in self._free if size >= nbytes]
        if fitting:
            size, start = min(fitting)
            self._free.remove((start, size))
            self.release(start + nbytes, size - nbytes)
            return start
        below = bool(self._free) and sum(self._free[-1]) == self.top
        start = self._free.pop()[0] if below else self.top  # one below the top grows with it
        self.top = start + nbytes
        return start

    def release(self, start: int, nbytes: int) -> None:
        """Free a range, joined with its neighbours."""
        if not nbytes:
            return
        i = bisect_left(self._free, (start, 0))
        if i < len(self._free) and self._free[i][0] == start + nbytes:
            nbytes += self._free.pop(i)[1]
        if i and sum(self._free[i - 1]) == start:
            i -= 1
            start, before = self._free.pop(i)
            nbytes += before
        self._free.insert(i, (start, nbytes))


def _by_size(lifetimes: Sequence[Lifetime]) -> tuple[tuple[int, ...], int]:
    order = sorted(range(len(lifetimes)), key=lambda i: (-lifetimes[i].nbytes, lifetimes[i].start))
    nbytes, start, end = np.array([lifetimes[i] for i in order], np.int64).reshape(-1, 3).T
    at = np.zeros(len(order), np.int64)
    for i in range(len(order)):
        beside = np.flatnonzero((start[:i] <= end[i]) & (start[i] <= end[:i]))
        beside = beside[np.argsort(at[beside])]
        # Between the top of all that start lower and the next one there may be a gap.
        tops = np.maximum.accumulate(np.append(0, at[beside] + nbytes[beside]))
        gaps = np.flatnonzero(at[beside] - tops[:-1] >= nbytes[i])
        at[i] = tops[gaps[0] if gaps.size else -1]
    offsets = dict(zip(order, at.tolist(), strict=True))
    return tuple(offsets[i] for i in range(len(order))), int((at + nbytes).max(initial=0))


# --- Steps ----------------------------------------------------------------------------------------


def steps(
    buffers: BufferAssignment, before: Sequence[LookAt] = (), after: Sequence[LookAt] = ()
) -> Steps:
    """The steps of a scheduled graph whose buffers are assigned.

    before, after: functions that look at each node with a kernel to run.
    """
    order, staged = buffers.order, buffers.staged
    main = [step for node in order.main for step in _of_node(buffers, node, before, after)]
    updates = [step for node in order.updates for step in _of_node(buffers, node)]
    stages = [Stage(source, target) for source, target in staged.items()]
    writes = [Publish(p, staged.get(v, v)) for p, v in order.writes if not buffers.is_there(p, v)]
    return Steps((*main, *map(Copy, buffers.graph.outputs)), (*updates, *stages, *writes))


def _of_node(
    buffers: BufferAssignment,
    node: Node,
    before: Sequence[LookAt] = (),
    after: Sequence[LookAt] = (),
) -> Iterator[Step]:
    kernel = buffers.prepared[node]
    if kernel.entry.view is not None:
        yield View(node, kernel)
    elif not kernel.empty:
        yield from (Look(node, look) for look in before)
        yield KernelLaunch(node, kernel)
        yield from (Look(node, look) for look in after)


class View(NamedTuple):
    """The node's output is a view of its inputs, without a copy where strides can describe it."""

    node: Node
    kernel: BoundKernel


class KernelLaunch(NamedTuple):
    """The kernel fills the outputs of the node."""

    node: Node
    kernel: BoundKernel


class Look(NamedTuple):
    """`look(node, inputs, outputs)`, before the node's kernel runs or after it; it may raise."""

    node: Node
    look: LookAt


class Copy(NamedTuple):
    """The next output of the call: a copy of the value that the caller owns."""

    source: Var


class Stage(NamedTuple):
    """A parameter's old value is copied to `target`: it would be overwritten before its use."""

    source: Var
    target: Var


class Publish(NamedTuple):
    """The new value is copied into its parameter."""

    parameter: Parameter
    source: Var


Step = View | KernelLaunch | Look | Copy | Stage | Publish


class Steps(NamedTuple):
    """compute: steps that may fail and have no visible effect. publish: steps that cannot fail;
    they change parameters, atomically."""

    compute: tuple[Step, ...] = ()
    publish: tuple[Step, ...] = ()


# --- Arrays ---------------------------------------------------------------------------------------


class Memory:
    """An arena and the arrays in it.

    arrays: what kernels read. Missing Vars may be a different array at each call: the inputs,
    unless the memory has buffers for them (`own_inputs`), outputs that are computed in arrays of
    the caller, and views of both. targets: what kernels write. copies: (to, from) of a View that no
    strides can describe, so that each call copies. uploads: device buffers of parameters that stay
    on the host: the states of random streams.
    """

    def __init__(self, buffers: BufferAssignment, device: Device, own_inputs: bool = False):
        self.buffers, self.device = buffers, device
        self.arena = device.arena(buffers.plan.size)
        self.arrays: dict[Var, Any] = {}
        self.targets: dict[Var, Any] = {}
        self.copies: dict[Node, tuple[Any, Any]] = {}
        self.uploads: dict[Allocation, Any] = {}
        self._dense: dict[Var, Any] = {}
        self._bind_given(own_inputs)
        for node in buffers.order.order:
            self._bind(node)
        for var in buffers.staged.values():
            self._fill(var)

    def is_given(self, var: Var) -> bool:
        """True for an output that is computed in an array of the caller, or for a view of one."""
        return self.buffers.allocation[var].kind == "output"

    def scratch(self, node: Node) -> tuple[Any, ...]:
        """The workspace of a node's kernel."""
        found = self.buffers.workspaces.get(node, ())
        return tuple(self._carve(space, spec.shape, spec.dtype) for space, spec in found)

    def dense(self, var: Var) -> Any:
        """Memory for a row-major copy of a value that has other strides."""
        if var not in self._dense:
            self._dense[var] = self.device.empty(var.abstract.stored, var.abstract.dtype)
        return self._dense[var]

    def _bind_given(self, own_inputs: bool) -> None:
        graph, device = self.buffers.graph, self.device
        for var in graph.inputs if own_inputs else ():
            self.arrays[var] = device.empty(var.abstract.shape, var.abstract.dtype)
        for var in graph.constants:
            host = np.asarray(var.abstract.value)
            on_cpu = device.name == "cpu"
            self.arrays[var] = read_only(host if on_cpu else once(host, device.from_host))
        for parameter, var in graph.state:
            allocation, self.arrays[var] = self.buffers.allocation[var], parameter._data
            if allocation.kind == "upload":
                self.arrays[var] = self.uploads[allocation] = device.from_host(parameter._data)

    def _bind(self, node: Node) -> None:
        if self.buffers.prepared[node].entry.view is None:
            for var in node.outputs:
                self._fill(var)
        elif all(v in self.arrays for v in node.inputs):
            self._view(node)

    def _fill(self, var: Var) -> None:
        if self.is_given(var):
            return
        allocation = self.buffers.allocation[var]
        array = self._carve(allocation, var.abstract.stored, var.abstract.dtype)
        self.targets[var], self.arrays[var] = array, read_only(array)

    def _carve(self, allocation: Allocation, shape: tuple[int, ...], dtype: Any) -> Any:
        if allocation.kind == "upload":
            return self.uploads[allocation]
        if allocation.parameter is not None:
            return allocation.parameter._buffer
        return self.device.carve(self.arena, self.buffers.offsets[allocation], shape, dtype)

    def _view(self, node: Node) -> None:
        """Make a view, once; a reshape that cannot be one is copied."""
        kernel = self.buffers.prepared[node]
        given = [self.arrays[v] for v in node.inputs]
        if node in self.buffers.copied:
            (out,), source = node.outputs, given[kernel.entry.view or 0]
            self._fill(out)
            self.copies[node] = self.targets[out].reshape(source.shape), source
            return
        seen, copied = self.device.seen(kernel.function, given)
        self.arrays[node.outputs[0]] = read_only(seen)
        if copied and seen.size:
            source = given[kernel.entry.view or 0]
            self.copies[node] = seen.reshape(source.shape), source


# --- What kernels keep ----------------------------------------------------------------------------


class Kept:
    """The memory in which the kernels of a run keep what they pack of values that stay the same.

    The first call, and each after a change, packs for itself, as all of a training loop do; the
    second one packs for those that follow.
    """

    def __init__(self) -> None:
        self._of: dict[Node, Sequence[tuple[Parameter | None, Held]]] = {}
        self._calls = 0  # since the last change
        self._seen: tuple[object, list[object]] = None, []  # the last write, those of parameters

    def note(self, node: Node, held: Sequence[tuple[Parameter | None, Held]]) -> None:
        """Have this, of parameters or constants, for what a node keeps."""
        self._of.pop(node, None)
        self._of |= {node: held} if held else {}

    def around(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """The run, before which kernels are told what they have kept."""

        def looked(*arrays: Array) -> Any:
            if self._calls <= 2 or self._seen[0] is not last_write():
                self._look()
            outs = run(*arrays)
            self._calls += 1
            return outs

        return looked if self._of else run

    def _look(self) -> None:
        every = [found for of in self._of.values() for found in of]
        last, writes = last_write(), [p._changed for p, _ in every if p is not None]
        shared = None in writes
        if shared or writes != self._seen[1]:
            self._calls = 0
        self._seen = None if shared else last, writes
        for _, held in every:
            held.words[0] = min(self._calls, 2)  # as Keeping says
