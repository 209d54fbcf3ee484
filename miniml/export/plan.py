"""Plan of a C program: a Program's steps as plain data, on addresses that need no memory yet.

Regions are pieces of memory with a name in C. Steps are calls of kernels, copies, checks of inputs
and loops. The planner binds a Program to arrays, as an executor does, and finds for each array the
region that it lies in; what an executor keeps beside the arena gets a part of the arena here.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Literal, NamedTuple

import numpy as np

from ..backends.cc.native import NativeKernel, neighbours
from ..backends.cc.scalars import register_bytes
from ..backends.cc.units import Source
from ..backends.kernel import start_of
from ..core.errors import ExportError, point_at
from ..core.parameter import Parameter
from ..core.settings import current
from ..core.tensor import Array
from ..graph.ir import Graph, Node, Var
from ..graph.passes import run_passes
from ..ops.control import Cond, Scan, WhileLoop
from ..runtime.launch import BoundKernel
from ..runtime.memory import (
    BufferAssignment,
    Copy,
    KernelLaunch,
    Memory,
    Publish,
    Stage,
    Step,
    View,
    rounded,
)
from ..runtime.program import Program
from . import linalg as linalg  # its loops are registered
from .loops import check_of, loop_of

# --- Plain data -----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, slots=True)
class Region:
    """A piece of memory. text: its start, an expression of type `char *` in C. array: its contents
    where these are known, of a constant or a parameter, else what has its size."""

    kind: Literal["arena", "input", "output", "state", "constant", "room"]
    text: str
    array: Array


class Address(NamedTuple):
    """A region, and the offset from its start in bytes."""

    region: Region
    offset: int = 0


class Run(NamedTuple):
    """A call of a kernel. refuses: it returns 1 for inputs that it refuses."""

    source: Source
    operands: tuple[Address, ...]
    node: Node
    refuses: bool = False


class Move(NamedTuple):
    """A copy to memory in row-major order; extents and strides, in bytes, are the source's."""

    target: Address
    source: Address
    itemsize: int
    extents: tuple[int, ...]
    strides: tuple[int, ...]


class Row(NamedTuple):
    """A pointer inside a loop: to a row of a region that moves by `stride` bytes with each step."""

    region: Region
    start: Address
    stride: int


class Repeat(NamedTuple):
    """A loop of at most `length` steps, None for any number. rows: pointers that each step sets
    first. condition: steps before each, which compute the bool `flag`: whether it is made."""

    length: int | None
    rows: tuple[Row, ...]
    steps: tuple[Planned, ...]
    node: Node
    condition: tuple[Planned, ...] = ()
    flag: Address | None = None


class Choice(NamedTuple):
    """One of two branches, by a bool."""

    flag: Address
    on_true: tuple[Planned, ...]
    on_false: tuple[Planned, ...]
    node: Node


Planned = Run | Move | Repeat | Choice
SCRATCH = Region("room", "scratch", np.empty(0, np.uint8))


@dataclass(slots=True)
class Plan:
    """Everything that is printed. constants: those that a step reads. size: bytes of the arena.
    written: the parameters that a call changes. scratch: where in the arena one kernel after the
    other has its room, by vectors of up to `vector` bytes; None where none needs any."""

    graph: Graph
    inputs: list[Region]
    outputs: list[Region]
    state: dict[int, tuple[Parameter, Region]]
    constants: list[Region]
    steps: list[Planned]
    size: int
    written: tuple[Parameter, ...]
    scratch: int | None
    vector: int


# --- Planner --------------------------------------------------------------------------------------


def plan(program: Program, place: Callable[[Parameter], str], prefix: str) -> Plan:
    """The plan of a program on the CPU. place: the text of a parameter's region. prefix: of the
    names of constants. ExportError for a step that has no C, at the user's line."""
    buffers = _assigned(program)
    vector = register_bytes(program.target.masked)
    common = _Common(prefix, place, rounded(buffers.plan.size), vector)
    graph = program.graph
    shared = np.empty(common.size, np.uint8)
    arena = Region("arena", "a", shared)
    inputs = [Region("input", f"(char *)in{i}", _like(v)) for i, v in enumerate(graph.inputs)]
    outputs = [Region("output", f"(char *)out{i}", _like(v)) for i, v in enumerate(graph.outputs)]
    given, targets = [*map(Address, inputs)], [*map(Address, outputs)]
    planner = _Planner(program, buffers, common, arena, 0, given, targets)
    steps = [*planner.planned()]
    written = tuple(dict.fromkeys(p for p, _ in program.schedule.writes))
    read = set(_read(steps))
    constants = [region for region in common.constants if region in read]
    scratch = common.room(common.scratch) if common.scratch else None
    return Plan(
        graph, inputs, outputs, common.state, constants, steps, common.size, written, scratch,
        vector,
    )  # fmt: skip


def _read(steps: Sequence[Planned]) -> Iterator[Region]:
    """The regions that the steps name."""
    for step in steps:
        match step:
            case Run():
                yield from (operand.region for operand in step.operands)
            case Move():
                yield from (step.target.region, step.source.region)
            case Repeat():
                yield from (row.start.region for row in step.rows)
                yield from _read((*step.condition, *step.steps))
            case Choice():
                yield step.flag.region
                yield from _read((*step.on_true, *step.on_false))


def _like(var: Var) -> Array:
    return np.empty(var.abstract.shape, var.abstract.dtype)


@dataclass(slots=True)
class _Common:
    """State that the program and the bodies of its loops share. size: bytes of the arena so far.
    vector: bytes of the widest vectors."""

    prefix: str
    place: Callable[[Parameter], str]
    size: int
    vector: int
    state: dict[int, tuple[Parameter, Region]] = field(default_factory=dict)
    constants: list[Region] = field(default_factory=list)
    loops: int = 0
    scratch: int = 0

    def room(self, nbytes: int) -> int:
        """The offset of so many more bytes of the arena."""
        offset, self.size = self.size, self.size + rounded(max(nbytes, 1))
        return offset

    def work(self, source: Source) -> tuple[Address, ...]:
        """Where a kernel has the room that it would have on the stack."""
        self.scratch = max(self.scratch, source.room)
        return (Address(SCRATCH),) if source.room else ()

    def parameter(self, parameter: Parameter) -> Region:
        """The region of a parameter."""
        known = self.state.get(id(parameter))
        if known is None:
            region = Region("state", self.place(parameter), parameter._buffer)
            known = self.state[id(parameter)] = parameter, region
        return known[1]

    def constant(self, array: Array) -> Region:
        """A new region with the elements of an array, as they lie in memory."""
        whole = array
        if not array.flags.c_contiguous:  # as broadcasting leaves them: steps of 0 and more
            last = sum((n - 1) * s for n, s in zip(array.shape, array.strides, strict=True))
            count = last // array.itemsize + 1
            whole = np.lib.stride_tricks.as_strided(array, (count,), (array.itemsize,))
        name = f"(char *){self.prefix}c{len(self.constants)}"
        self.constants.append(Region("constant", name, whole))
        return self.constants[-1]


def _assigned(program: Program) -> BufferAssignment:
    """Memory of a program's values without that of the caller, which may pass one array as an input
    and as an output."""
    return program.arranged(watched=False, direct=False)[1]


class _Planner:
    """The steps of one program.

    inputs: where they are. outputs: where copies of the outputs go. begin: of its arena, in the
    arena of the whole.
    """

    def __init__(
        self,
        program: Program,
        buffers: BufferAssignment,
        common: _Common,
        arena: Region,
        begin: int,
        inputs: Sequence[Address],
        outputs: Sequence[Address],
    ):
        self.program, self.common, self.arena = program, common, arena
        self.outputs = outputs
        self.memory = memory = Memory(buffers, program.device, own_inputs=True)
        self._starts: list[tuple[int, int, Address]] = []
        self._cut: list[int] = []
        self._dense: set[Var] = set()
        self._add(memory.arena, Address(arena, begin))
        for var, address in zip(program.graph.inputs, inputs, strict=True):
            self._add(memory.arrays[var], address)
        for parameter, _ in program.graph.state:
            self._add(parameter._buffer, Address(common.parameter(parameter)))
        for var in program.graph.constants:
            self._constant(memory.arrays[var])

    def planned(self) -> Iterator[Planned]:
        """The steps in order; checks and copies of outputs stand before what changes state."""
        outputs = iter(self.outputs)
        for step in (*self.program.steps.compute, *self.program.steps.publish):
            target = next(outputs) if isinstance(step, Copy) else None
            yield from self._of(step, target)

    def _of(self, step: Step, output: Address | None) -> Iterator[Planned]:
        memory = self.memory
        match step:
            case View(node):
                if node in memory.copies:
                    target, source = memory.copies[node]
                    at = self._found(target) or self._own(target)  # in the arena, or beside it
                    yield _moved(at, self.address(source), source)
            case KernelLaunch(node, kernel):
                yield from self._launch(node, kernel)
            case Copy(source):
                assert output is not None
                yield _moved(output, self.address(memory.arrays[source]), memory.arrays[source])
            case Stage(source, target):
                yield self._copied(memory.targets[target], memory.arrays[source])
            case Publish(parameter, source):
                yield self._copied(parameter._buffer, memory.arrays[source])

    def _launch(self, node: Node, kernel: BoundKernel) -> Iterator[Planned]:
        match node.primitive:
            case Scan():
                yield from self._scan(node)
            case WhileLoop():
                yield from self._while(node)
            case Cond():
                yield from self._choice(node)
            case _:
                yield from self._kernel(node, kernel)

    def _kernel(self, node: Node, kernel: BoundKernel) -> Iterator[Planned]:
        check = check_of(node)
        if check is not None:
            outs = [self.memory.targets[v] for v in node.outputs]
            given = yield from self._operands(node, kernel.node.strides)
            yield Run(check, tuple(map(self.address, (*given, *outs))), node, True)
            return
        native = kernel.native
        if native is None:
            yield from self._plain(node)
            return
        given = yield from self._operands(node, kernel.node.strides)
        outs = [self.memory.targets[v] for v in node.outputs]
        yield from self._calls(node, native, (*given, *outs, *self.memory.scratch(node)))

    def _plain(self, node: Node) -> Iterator[Planned]:
        loop = loop_of(node)
        if loop is None:
            raise _no_c(node)
        given = yield from self._operands(node)
        outs = [self.memory.targets[v] for v in node.outputs]
        at = [*map(self.address, (*given, *outs))]
        if loop.scratch:
            at.append(Address(self.arena, self.common.room(loop.scratch)))
        refuses = loop.text.startswith("int ")
        yield Run(Source(loop.text, loop.shared), tuple(at), node, refuses)

    def _calls(
        self, node: Node, native: NativeKernel, operands: tuple[Array, ...]
    ) -> Iterator[Planned]:
        for array in native.own:
            if array.size and self._found(array) is None:
                self._constant(array)
        for call in native.calls_on(operands):
            given: list[Array] = [o for o in call.operands if isinstance(o, np.ndarray)]
            if not isinstance(call.kernel, Source) or len(given) < len(call.operands):
                raise _no_c(node)
            kernel = call.kernel
            if self.common.vector > 16 and kernel.wide:
                kernel = kernel._replace(room=kernel.wide)
            at = (*map(self.address, given), *self.common.work(kernel))
            yield Run(kernel, at, node)

    def _operands(
        self, node: Node, strides: Sequence[object] = ()
    ) -> Generator[Planned, None, list[Array]]:
        """Yield the copies that make inputs row-major, but for those whose strides a kernel has;
        return the inputs."""
        given = []
        for var, taken in zip_longest(node.inputs, strides):
            array = self.memory.arrays[var]
            if taken is None and not array.flags.c_contiguous:
                dense = self.memory.dense(var)
                target = self.address(dense) if var in self._dense else self._own(dense)
                self._dense.add(var)
                yield _moved(target, self.address(array), array)
                array = dense
            given.append(array)
        return given

    # Addresses.

    def address(self, array: Array) -> Address:
        """The address of an array in one of the regions."""
        if not array.size:
            return Address(self.arena)
        found = self._found(array)
        assert found is not None, "memory that no region has"
        return found

    def _found(self, array: Array) -> Address | None:
        start = start_of(array)
        slot = bisect_right(self._cut, start) - 1
        if slot < 0:
            return None
        begin, end, of = self._starts[slot]
        return Address(of.region, of.offset + start - begin) if start < end else None

    def _add(self, array: Array, at: Address) -> Address:
        """Make an array's memory known under an address."""
        begin = start_of(array)
        if array.size:
            extents = zip(array.shape, array.strides, strict=True)
            end = begin + sum((n - 1) * s for n, s in extents) + array.itemsize
            self._starts.append((begin, end, at))
            self._starts.sort(key=lambda known: known[0])
            self._cut = [start for start, _, _ in self._starts]
        return at

    def _own(self, array: Array) -> Address:
        """An address in the arena for an array that an executor keeps beside it."""
        return self._add(array, Address(self.arena, self.common.room(array.nbytes)))

    def _constant(self, array: Array) -> None:
        if array.size:
            self._add(array, Address(self.common.constant(array)))

    def _copied(self, target: Array, source: Array) -> Move:
        return _moved(self.address(target), self.address(source), source)

    # Control flow.

    def _inner(
        self, graph: Graph, inputs: Sequence[Address], outputs: Sequence[Address]
    ) -> tuple[Planned, ...]:
        """The steps of a branch, condition or body, which copy its outputs at their end."""
        settings = current().bare
        passed = run_passes(graph, settings.disabled_passes, settings.verify_passes)
        program = Program(passed, self.program.target, fills=True)  # in C, however small
        buffers = _assigned(program)
        begin = self.common.room(buffers.plan.size)
        inner = _Planner(program, buffers, self.common, self.arena, begin, inputs, outputs)
        return tuple(inner.planned())

    def _places(
        self, node: Node
    ) -> Generator[Planned, None, tuple[list[Address], list[Address], list[int]]]:
        """Where the inputs and outputs are, and the bytes of the inputs."""
        given = yield from self._operands(node)
        outs = [self.memory.targets[v] for v in node.outputs]
        return [*map(self.address, given)], [*map(self.address, outs)], [a.nbytes for a in given]

    def _carried(
        self, sizes: Sequence[int], first: Sequence[Address]
    ) -> tuple[list[Address], list[Address], list[Planned], list[Planned]]:
        """Where carried values are now, and where the next ones go, since one may be made of
        another's old value; the copies before the loop, and those at the end of each step."""
        now, after = ([Address(self.arena, self.common.room(n)) for n in sizes] for _ in range(2))
        begin = [_whole(*move) for move in zip(now, first, sizes, strict=True)]
        end = [_whole(*move) for move in zip(now, after, sizes, strict=True)]
        return now, after, [*begin], [*end]

    def _scan(self, node: Node) -> Iterator[Planned]:
        attrs, body = node.attrs, node.attrs["body"]
        carried, scanned, length = attrs["carried"], attrs["scanned"], attrs["length"]
        order = range(length)[::-1] if attrs["reverse"] else range(length)
        given, outs, sizes = yield from self._places(node)
        now, after, begin, end = self._carried(sizes[:carried], given[:carried])
        self.common.loops += 1
        prefix = f"s{self.common.loops}"
        rows = [
            _row(f"{prefix}_x{i}", at, var, order)
            for i, (at, var) in enumerate(zip(given, body.inputs, strict=True))
            if carried <= i < carried + scanned
        ]
        made = zip(outs[carried:], body.outputs[carried:], strict=True)
        rows_out = [_row(f"{prefix}_y{i}", at, var, order) for i, (at, var) in enumerate(made)]
        inputs = [*now, *(Address(r.region) for r in rows), *given[carried + scanned :]]
        steps = self._inner(body, inputs, [*after, *(Address(r.region) for r in rows_out)])
        yield from begin
        if length:
            yield Repeat(length, (*rows, *rows_out), (*steps, *end), node)
        yield from (_whole(*m) for m in zip(outs[:carried], now, sizes[:carried], strict=True))

    def _while(self, node: Node) -> Iterator[Planned]:
        attrs, count = node.attrs, len(node.outputs)
        given, outs, sizes = yield from self._places(node)
        now, after, begin, end = self._carried(sizes[:count], given[:count])
        values, flag = [*now, *given[count:]], Address(self.arena, self.common.room(1))
        tested = [values[i] for i in attrs["condition_takes"]]
        condition = self._inner(attrs["condition"], tested, [flag])
        steps = self._inner(attrs["body"], [values[i] for i in attrs["body_takes"]], after)
        yield from begin
        yield Repeat(attrs["most"], (), (*steps, *end), node, condition, flag)
        yield from (_whole(*move) for move in zip(outs, now, sizes[:count], strict=True))

    def _choice(self, node: Node) -> Iterator[Planned]:
        attrs = node.attrs
        (flag, *given), outs, _ = yield from self._places(node)
        branches = [
            self._inner(attrs[name], [given[i] for i in attrs[takes]], outs)
            for name, takes in (("on_true", "true_takes"), ("on_false", "false_takes"))
        ]
        yield Choice(flag, branches[0], branches[1], node)


def _row(name: str, start: Address, var: Var, order: range) -> Row:
    """The pointer to one row after another of an array in row-major order. var: of a row."""
    region = Region("room", name, _like(var))
    first = Address(start.region, start.offset + region.array.nbytes * order.start)
    return Row(region, first, region.array.nbytes * order.step)


def _whole(target: Address, source: Address, nbytes: int) -> Move:
    return Move(target, source, 1, (nbytes,), (1,))


def _moved(target: Address, source: Address, like: Array) -> Move:
    """A copy of an array."""
    extents, strides = neighbours(like)
    return Move(target, source, like.itemsize, tuple(extents), tuple(strides))


def _no_c(node: Node) -> ExportError:
    """The error for a node whose kernel is Python."""
    names = ", ".join(f"{v.abstract}" for v in node.inputs)
    why = (
        "whose kernel is NumPy's; compute it before the call, or with operations that ml.explain "
        "shows in C"
    )
    if "group" in node.attrs:
        why = f"which {node.attrs['size']} ranks compute; export it where there is one"
    error = ExportError(
        f"export_c has no C for {node.primitive.name} of {names or 'nothing'}, {why}"
    )
    point_at(error, node.where)
    return error
