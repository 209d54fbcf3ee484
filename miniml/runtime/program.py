"""Program: a graph with its kernels chosen, its memory planned and its steps written out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import Context
from functools import partial
from typing import NamedTuple

from ..access import Access
from ..backends.cc.compiler import warn_without
from ..backends.cc.player import Call
from ..backends.cc.services import load
from ..backends.device import Array
from ..backends.registry import NATIVE
from ..backends.selection import Target
from ..errors import CompileError, DeviceError, KernelNotFoundError
from ..graph.ir import Graph, Node
from ..location import point_at
from ..settings import Settings, current, enter
from ..undo import keep_readings
from .buffers import BufferAssignment, assign_buffers
from .launch import BoundKernel, Strides, note_kernel, prepare, program_target
from .layouts import Layouts
from .lowering import lower
from .lowering.native import in_c
from .lowering.small import WHY, too_small
from .planner import Plan
from .players.cuda_graph import Capture, CudaGraph, obstacle
from .players.function import Function, write
from .players.memory import Memory, read_only
from .quiet import ignore_errors
from .schedule import Schedule, schedule
from .steps import Steps, steps
from .turns import Sharing, Sibling


class Executable(NamedTuple):
    """A player with arrays of its own, and its `run` under the settings of compilation; it serves
    one call at a time."""

    run: Callable[..., list[Array]]
    player: Function | CudaGraph


class Program:
    """A compiled graph: `program(*arrays)` gives a list of fresh arrays; `program.fill(arrays,
    outputs)` of one made with `fills` writes to arrays of the caller, which overlap no input.

    It may run in several threads at once, with an arena each, except that a call that writes
    parameters does so alone. A step happens wholly or not at all: they change at the very end.

    others: programs of the same function for other sizes, of which the first with the same
    operations shares kernels with this one: those of equal calls, and those that follow to other
    sizes. `shared` says what, in one sentence; None: there may be no other sizes.
    """

    def __init__(
        self,
        graph: Graph,
        target: Target | None = None,
        fills: bool = False,
        others: Sequence[Sibling] | None = None,
    ):
        self._others = others
        self._settings = settings = current()
        target = target or program_target("cpu")
        # A step of a loop runs many times, and in C the whole loop is one call.
        self._small = not (fills or settings.providers) and too_small(graph, target)
        self._lower(graph, target.without(NATIVE) if self._small else target)
        self.device = self.target.device
        checked = settings.check_nan
        self.schedule: Schedule = schedule(self.graph, self.prepared, checked)
        # Built-in kernels write to no input; users' functions must not be able to.
        on_cpu = self.device.name == "cpu"
        kept = [p.entry.built_in or p.native is not None for p in self.prepared.values()]
        self._guarded = on_cpu and not all(kept)
        self._direct = fills and on_cpu and not self._guarded
        self.buffers: BufferAssignment = assign_buffers(
            self.graph, self.prepared, self.schedule, self.device.name, not checked, self._direct
        )
        self.steps: Steps = steps(self.buffers, checked)
        why_not = obstacle(self.steps, self.graph, self.device.name, settings.cuda_graphs)
        if self._turns is not None:  # which may move what recorded launches point to
            why_not = why_not or "kernels are resized for other sizes"
        self.capture = Capture(why_not)
        self._written = tuple(p for p, _ in self.schedule.writes)
        self._access = self._used()
        self._idle: list[Executable] = [self._executable()]
        self._others = None  # they may be dropped before this one

    @property
    def sibling(self) -> Sibling:
        """What programs of the same function for other sizes may share."""
        return Sibling(self.graph, self.prepared, self._turns)

    @property
    def plan(self) -> Plan:
        """The arena: offsets, size and the largest sum of bytes alive at once."""
        return self.buffers.plan

    @property
    def source(self) -> str:
        """The straight-line function that a call runs."""
        return self._executable().player.source

    def _lower(self, graph: Graph, target: Target) -> None:
        """Choose and prepare the kernels; those in C are compiled together. Where that fails, a
        warning says so, and the kernels are NumPy's."""
        settings, self.target = self._settings, target
        self.graph = lower(graph, target, settings.disabled_passes, settings.verify_passes)
        self.prepared: dict[Node, BoundKernel] = {}
        sharing = Sharing(self.graph, self.prepared, self._others)
        sharing.prepare(partial(self._prepare_all, sharing))
        self.shared, self._turns = sharing.words, sharing.turns
        natives = [p.native for p in self.prepared.values() if p.native is not None]
        sources = [native.source for native in natives if native.source is not None]
        if sources:
            try:
                load(sources)
            except (CompileError, DeviceError) as error:
                warn_without(error)
                self._lower(graph, target.without(NATIVE))

    def _prepare_all(self, sharing: Sharing) -> None:
        layouts = Layouts(self.graph) if in_c(self.target) else None
        for node in self.graph.nodes:
            kept, like = sharing.kernel(node)
            strides = () if layouts is None else tuple(map(layouts.strides, node.inputs))
            self.prepared[node] = kept or self._prepare(node, strides, like)
            if layouts is not None:
                layouts.follow(node, self.prepared[node])

    def _prepare(
        self, node: Node, strides: Sequence[Strides], like: BoundKernel | None
    ) -> BoundKernel:
        inputs = tuple([v.abstract for v in node.inputs])
        outputs = tuple([v.abstract for v in node.outputs])
        try:
            prepared = prepare(
                node.primitive, inputs, outputs, node.attrs, self.target, strides, like
            )
            if prepared.selection.cast is not None:
                raise KernelNotFoundError(
                    f"{node.primitive.name}: {prepared.selection.why} by the pass 'legalize', "
                    "which disabled_passes switches off; cast the inputs"
                )
        except Exception as error:
            point_at(error, node.where, f"{node.primitive.name} was called")
            raise
        return prepared

    def _executable(self) -> Executable:
        player: Function | CudaGraph
        if self.capture.why_not:
            memory = Memory(self.buffers, self.device)
            filled = self.graph.outputs if self._direct else ()
            threads = self._settings.threads
            player = write(self.steps, memory, self.graph.name, self.graph.inputs, filled, threads)
        else:
            memory = Memory(self.buffers, self.device, own_inputs=True)
            player = CudaGraph(self.steps, memory, self.graph, self.capture)
        return Executable(partial(_context(self._settings).run, player.run), player)

    @property
    def launched(self) -> str:
        """How kernels reach the device, or why none is in C; "" for NumPy's that were asked for."""
        varies = f"sizes vary: no kernels in C, whose text holds them; {self.shared}"
        return "\n".join(filter(None, (varies * bool(self.shared), self._launched())))

    def _launched(self) -> str:
        if self._small:
            return WHY
        if self.device.name == "cpu":
            kernels = sum(p.native is not None for p in self.prepared.values())
            player = self._executable().player if kernels else None
            runs = player.native_runs if isinstance(player, Function) else 0
            calls = "one call" if runs == 1 else f"{runs} calls"
            return f"kernels in C: {kernels}, in {calls}" if runs else ""
        if self.capture.why_not:
            return f"launched one by one: {self.capture.why_not}"
        return "launched one by one at the first call, as one CUDA graph from then on"

    def _used(self) -> Access | None:
        """The parameters that a call writes and reads; None if there are none."""
        writes, reads = self.schedule.writes, self.graph.state
        if not reads:
            return None
        return Access(self.graph.name, [p for p, _ in writes], [p for p, _ in reads])

    def __call__(self, *arrays: Array) -> list[Array]:
        if self._access is None:
            return self._run(arrays)
        return self._access.run(self._stateful, arrays)

    def fill(self, arrays: Sequence[Array], outputs: Sequence[Array]) -> None:
        """One call, whose results are written to `outputs`."""
        if self._direct:
            self(*arrays, *outputs)
            return
        for target, result in zip(outputs, self(*arrays), strict=True):
            self.device.copy_into(target, result)

    def calls(self) -> list[Call] | None:
        """The native calls that `fill` is, on memory of their own; their arguments are the inputs,
        then the outputs. None if it needs Python."""
        if not self._direct:
            return None
        executable = self._taken()
        player = executable.player
        if not isinstance(player, Function) or player.whole is None:
            self._idle.append(executable)
            return None
        count, filled = len(self.graph.inputs), len(self.graph.outputs)
        names = [*(f"x{i}" for i in range(count)), *(f"y{i}" for i in range(filled))]
        return player.whole.calls_on(names)

    def _taken(self) -> Executable:
        """An executable that serves no call."""
        try:
            return self._idle.pop()
        except IndexError:
            return self._executable()

    def _stateful(self, arrays: tuple[Array, ...]) -> list[Array]:
        keep_readings(self._written)
        return self._run(arrays)

    def _run(self, arrays: tuple[Array, ...]) -> list[Array]:
        if self._guarded:
            arrays = tuple(map(read_only, arrays))
        executable = self._taken()
        try:
            if self._turns is None:
                return executable.run(*arrays)
            return self._turns.run(self.graph, self.prepared, executable.run, *arrays)
        except Exception as error:  # point at the user's lines of the nodes that were running
            for node in executable.player.nodes_of(error):
                note_kernel(error, self.prepared[node])
                point_at(error, node.where, f"{node.primitive.name} was called")
            raise
        finally:
            self._idle.append(executable)


def _context(settings: Settings) -> Context:
    """A context with these settings in which NumPy gives no floating-point warnings: cheaper to
    enter than errstate."""
    context = Context()
    context.run(ignore_errors)
    context.run(enter, settings)
    return context
