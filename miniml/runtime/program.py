"""Program: a graph with its kernels chosen, its memory planned and its steps written out."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial

from ..access import Access
from ..backends.cc.compiler import warn_without
from ..backends.cc.player import Call
from ..backends.cc.services import load
from ..backends.device import Array
from ..backends.registry import NATIVE
from ..backends.selection import Target
from ..errors import (
    CompileError,
    DeviceError,
    KernelNotFoundError,
    PerformanceWarning,
    warn_user,
)
from ..graph.ir import Graph, Node, Var
from ..location import point_at
from ..ops.control import Fused
from ..settings import Watchers, current, in_context
from ..undo import keep_readings
from .buffers import BufferAssignment, assign_buffers
from .finite import finding_nan
from .launch import BoundKernel, Strides, note_kernel, prepare, program_target
from .layouts import Layouts
from .lowering import lower
from .lowering.native import in_c
from .lowering.small import WHY, too_small
from .planner import Plan
from .players.cuda_graph import Capture, CudaGraph, obstacle
from .players.function import Function, write
from .players.memory import Memory, read_only
from .schedule import Schedule, schedule
from .steps import LookAt, Steps, steps
from .turns import Sharing, Sibling
from .watched import Executable, WatchedProgram, bound

_LOG = 1000  # characters of a compiler's log in a warning


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
        self.settings = settings = current().bare
        target = target or program_target("cpu")
        # A step of a loop runs many times, and in C the whole loop is one call.
        self._small = not (fills or settings.providers) and too_small(graph, target)
        self._lower(graph, target.without(NATIVE) if self._small else target)
        self.device = self.target.device
        # Built-in kernels write to no input; users' functions must not be able to.
        on_cpu = self.device.name == "cpu"
        kept = [p.entry.built_in or p.native is not None for p in self.prepared.values()]
        self._guarded = on_cpu and not all(kept)
        self._direct = fills and on_cpu and not self._guarded
        self.schedule, self.buffers = self.arranged(settings.check_nan)
        self.steps: Steps = steps(self.buffers, after=self.checks)
        why_not = obstacle(self.steps, self.graph, self.device.name, settings.cuda_graphs)
        if self._turns is not None:  # which may move what recorded launches point to
            why_not = why_not or "kernels are resized for other sizes"
        self.capture = Capture(why_not)
        self._written = tuple(p for p, _ in self.schedule.writes)
        self._access = self._used()
        self._idle: list[Executable] = [self._executable()]
        self._others = None  # they may be dropped before this one
        self._watched: dict[bool, WatchedProgram] = {}

    @property
    def sibling(self) -> Sibling:
        """What programs of the same function for other sizes may share."""
        return Sibling(self.graph, self.prepared, self._turns)

    def arranged(self, watched: bool) -> tuple[Schedule, BufferAssignment]:
        """The order of the nodes and the memory of all values. watched: somebody looks at the
        inputs and outputs of each kernel, and may raise."""
        order = schedule(self.graph, self.prepared, watched)
        name, direct = self.device.name, self._direct
        return order, assign_buffers(self.graph, self.prepared, order, name, not watched, direct)

    @property
    def filled(self) -> Sequence[Var]:
        """The outputs, if they are computed in arrays of the caller."""
        return self.graph.outputs if self._direct else ()

    @property
    def checks(self) -> list[LookAt]:
        """What looks at the outputs of each kernel, and of the members of groups, because the
        settings say so."""
        if not self.settings.check_nan:
            return []
        target = self.target.without(NATIVE)  # self would be a ring, which is freed late
        members = cache(lambda node: Program(node.primitive.attributes["body"], target))
        return [finding_nan(self.device.to_host, members)]

    @property
    def plan(self) -> Plan:
        """The arena: offsets, size and the largest sum of bytes alive at once."""
        return self.buffers.plan

    @property
    def source(self) -> str:
        """The straight-line function that a call runs."""
        return self._player().source

    def _lower(self, graph: Graph, target: Target) -> None:
        """Choose and prepare the kernels; those in C are compiled together. Where that fails, a
        warning says so, and the kernels are NumPy's."""
        settings, self.target = self.settings, target
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
        try:
            prepared = self._bound(node, strides, like)
            if prepared.selection.cast is not None:
                raise KernelNotFoundError(
                    f"{node.primitive.name}: {prepared.selection.why} by the pass 'legalize', "
                    "which disabled_passes switches off; cast the inputs"
                )
        except Exception as error:
            point_at(error, node.where)
            raise
        return prepared

    def _bound(
        self, node: Node, strides: Sequence[Strides], like: BoundKernel | None
    ) -> BoundKernel:
        """The kernel of a node; of a group whose text a device's compiler refuses, that which runs
        its members one by one, with a warning. CompileError if the text of a member is refused."""
        call = node.primitive, *node.abstracts, node.attrs
        try:
            return prepare(*call, self.target, strides, like)
        except CompileError as error:
            if not isinstance(node.primitive, Fused):
                raise
            refused = error
        prepared = prepare(*call, self.target.without(NATIVE))
        warn_refused(node.primitive.body.name, str(refused))
        return prepared

    def _executable(self) -> Executable:
        player: Function | CudaGraph
        if self.capture.why_not:
            memory, graph = Memory(self.buffers, self.device), self.graph
            threads = self.settings.threads
            player = write(self.steps, memory, graph.name, graph.inputs, self.filled, threads)
        else:
            memory = Memory(self.buffers, self.device, own_inputs=True)
            player = CudaGraph(self.steps, memory, self.graph, self.capture)
        return bound(player, self.settings, None, [])

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
            player = self._player()
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
        return self._access.run(self._stateful if self._written else self._run, arrays)

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
        executable = self._idle.pop() if self._idle else self._executable()
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

    def _player(self) -> Function | CudaGraph:
        """One of the players, to look at."""
        executable = self._taken()
        self._idle.append(executable)
        return executable.player

    def _stateful(self, arrays: tuple[Array, ...]) -> list[Array]:
        keep_readings(self._written)
        return self._run(arrays)

    def _run(self, arrays: tuple[Array, ...]) -> list[Array]:
        if self._guarded:
            arrays = tuple(map(read_only, arrays))
        if in_context() is not None and (by := current().watchers):
            return self._run_watched(arrays, by)
        executable = self._taken()
        try:
            return self._turned(executable, arrays)
        except Exception as error:
            self._point_at_nodes(error, executable)
            raise
        finally:
            self._idle.append(executable)

    def _run_watched(self, arrays: tuple[Array, ...], by: Watchers) -> list[Array]:
        values = by.see_values
        watched = self._watched.get(values) or self._watch(values)
        executable = watched.taken(by)
        try:
            result = self._turned(executable, arrays)
            for watcher in by:
                watcher.program_ran(executable.marks)
            return result
        except Exception as error:
            self._point_at_nodes(error, executable)
            raise
        finally:
            watched.idle.append(executable)

    def _watch(self, values: bool) -> WatchedProgram:
        buffers = self.arranged(True)[1] if values else self.buffers
        self._watched[values] = made = WatchedProgram(
            buffers, self.device, self.settings, self.filled, self.checks, values
        )
        return made

    def _turned(self, executable: Executable, arrays: tuple[Array, ...]) -> list[Array]:
        """A call, for which the kernels have this program's sizes."""
        if self._turns is None:
            return executable.run(*arrays)
        return self._turns.run(self.graph, self.prepared, executable.run, *arrays)

    def _point_at_nodes(self, error: Exception, executable: Executable) -> None:
        """Point at the user's lines of the nodes that were running."""
        for node in executable.player.nodes_of(error):
            note_kernel(error, self.prepared[node])
            point_at(error, node.where)


@cache
def warn_refused(group: str, log: str) -> None:
    """Tell the user, once, that a group runs one by one, since its text does not compile."""
    warn_user(
        PerformanceWarning(
            f"the fused group {group} runs kernel by kernel, which is slower, because its text "
            f"does not compile: {log[:_LOG]}"
        )
    )
