"""Compiled programs: kernel selection, buffer assignment and execution of a graph.

Layouts: the strides of views of the program's memory, which kernels in C read without a copy.
Shared kernels: the programs of one function for several sizes share their kernel objects.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from threading import RLock
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary, WeakSet, ref

import numpy as np

from ..backends.cc.player import Call
from ..backends.cc.units import load_with_services, warn_without
from ..backends.device import CPU, Array
from ..backends.kernel import KernelNode
from ..backends.registry import NATIVE
from ..backends.selection import Target
from ..core.access import Access
from ..core.errors import (
    CompileError,
    DeviceError,
    InUseError,
    KernelNotFoundError,
    PerformanceWarning,
    point_at,
    warn_user,
)
from ..core.parameter import keep_readings
from ..core.primitive import key
from ..core.settings import Watchers, current, in_context
from ..graph.ir import Graph, Node, Var
from ..ops.control import Fused
from .executors.cuda_graph import Capture, CudaGraph, obstacle
from .executors.python import Function, write
from .launch import BoundKernel, OwnedKernel, Strides, note_kernel, prepare, program_target
from .lowering import lower
from .lowering.legalize import WHY, in_c, too_small
from .memory import BufferAssignment, Memory, Plan, Schedule, assign_buffers, read_only, schedule
from .observe import Executable, WatchedProgram, bound, finding_nan
from .steps import LookAt, Steps, steps

_LOG = 1000  # characters of a compiler's log in a warning


class Program:
    """A compiled graph: `program(*arrays)` returns a list of fresh arrays; if made with `fills`,
    `program.fill(arrays, outputs)` writes to arrays of the caller, which overlap no input.

    It may run in several threads at once, with an arena each; a call that writes parameters runs
    alone. A step is atomic: parameters change at the very end.

    others: programs of the same function for other sizes; None if its sizes are fixed. The first
    with the same operations shares kernels with this one: those of equal calls, and those that can
    be resized. `shared` says which, in one sentence.
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
        if self._objects is not None:  # a resize may move what recorded launches point to
            why_not = why_not or "kernels are resized for other sizes"
        self.capture = Capture(why_not)
        self._written = tuple(p for p, _ in self.schedule.writes)
        self._access = self._accessed()
        self._idle: list[Executable] = [self._executable()]
        self._others = None  # they may be dropped before this one
        self._watched: dict[bool, WatchedProgram] = {}

    @property
    def sibling(self) -> Sibling:
        """This program, for programs of the same function for other sizes to share with."""
        return Sibling(self.graph, self.prepared, self._objects)

    def arranged(self, watched: bool) -> tuple[Schedule, BufferAssignment]:
        """The order of the nodes and the memory of all values. watched: the inputs and outputs of
        each kernel are looked at, which may raise."""
        order = schedule(self.graph, self.prepared, watched)
        name, direct = self.device.name, self._direct
        return order, assign_buffers(self.graph, self.prepared, order, name, not watched, direct)

    @property
    def filled(self) -> Sequence[Var]:
        """The outputs, if they are computed in arrays of the caller."""
        return self.graph.outputs if self._direct else ()

    @property
    def checks(self) -> list[LookAt]:
        """Checks of the outputs of each kernel and of members of groups, if the settings ask for
        them."""
        if not self.settings.check_nan:
            return []
        target = self.target.without(NATIVE)  # capturing self would make a reference cycle
        members = cache(lambda node: Program(node.primitive.attributes["body"], target))
        return [finding_nan(self.device.to_host, members)]

    @property
    def plan(self) -> Plan:
        """The arena: offsets, size and the peak of live bytes."""
        return self.buffers.plan

    @property
    def source(self) -> str:
        """The straight-line function that a call runs."""
        return self._executor().source

    def _lower(self, graph: Graph, target: Target) -> None:
        """Choose and prepare the kernels; those in C are compiled together. Where that fails, a
        warning says so, and the kernels are NumPy's."""
        settings, self.target = self.settings, target
        self.graph = lower(graph, target, settings.disabled_passes, settings.verify_passes)
        self.prepared: dict[Node, BoundKernel] = {}
        sharing = Sharing(self.graph, self.prepared, self._others)
        sharing.prepare(partial(self._prepare_all, sharing))
        self.shared, self._objects = sharing.sentence, sharing.objects
        natives = [p.native for p in self.prepared.values() if p.native is not None]
        sources = [native.source for native in natives if native.source is not None]
        if sources:
            try:
                load_with_services(sources)
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
        """The kernel of a node. A group that a device's compiler rejects runs its members one by
        one, with a warning. CompileError if a member is rejected."""
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
        executor: Function | CudaGraph
        if self.capture.why_not:
            memory, graph = Memory(self.buffers, self.device), self.graph
            threads = self.settings.threads
            executor = write(self.steps, memory, graph.name, graph.inputs, self.filled, threads)
        else:
            memory = Memory(self.buffers, self.device, own_inputs=True)
            executor = CudaGraph(self.steps, memory, self.graph, self.capture)
        return bound(executor, self.settings, None, [])

    @property
    def launched(self) -> str:
        """Sentence on how kernels are launched, or why none is in C; "" for NumPy's by choice."""
        varies = f"sizes vary: no kernels in C, whose text holds them; {self.shared}"
        return "\n".join(filter(None, (varies * bool(self.shared), self._launched())))

    def _launched(self) -> str:
        if self._small:
            return WHY
        if self.device.name == "cpu":
            kernels = sum(p.native is not None for p in self.prepared.values())
            executor = self._executor()
            runs = executor.native_runs if isinstance(executor, Function) else 0
            calls = "one call" if runs == 1 else f"{runs} calls"
            return f"kernels in C: {kernels}, in {calls}" if runs else ""
        if self.capture.why_not:
            return f"launched one by one: {self.capture.why_not}"
        return "launched one by one at the first call, as one CUDA graph from then on"

    def _accessed(self) -> Access | None:
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
        """Run once and write the results to `outputs`."""
        if self._direct:
            self(*arrays, *outputs)
            return
        for target, result in zip(outputs, self(*arrays), strict=True):
            self.device.copy_into(target, result)

    def calls(self) -> list[Call] | None:
        """The native calls that make up `fill`, on memory of their own; their arguments are the
        inputs, then the outputs. None if it needs Python."""
        if not self._direct:
            return None
        executable = self._idle.pop() if self._idle else self._executable()
        executor = executable.executor
        if not isinstance(executor, Function) or executor.whole is None:
            self._idle.append(executable)
            return None
        count, filled = len(self.graph.inputs), len(self.graph.outputs)
        names = [*(f"x{i}" for i in range(count)), *(f"y{i}" for i in range(filled))]
        return executor.whole.calls_on(names)

    def _take(self) -> Executable:
        """An idle executable."""
        try:
            return self._idle.pop()
        except IndexError:
            return self._executable()

    def _executor(self) -> Function | CudaGraph:
        """One of the executors, to look at."""
        executable = self._take()
        self._idle.append(executable)
        return executable.executor

    def _stateful(self, arrays: tuple[Array, ...]) -> list[Array]:
        keep_readings(self._written)
        return self._run(arrays)

    def _run(self, arrays: tuple[Array, ...]) -> list[Array]:
        if self._guarded:
            arrays = tuple(map(read_only, arrays))
        if in_context() is not None and (by := current().watchers):
            return self._run_watched(arrays, by)
        executable = self._take()
        try:
            return self._resized(executable, arrays)
        except Exception as error:
            self._point_at_nodes(error, executable)
            raise
        finally:
            self._idle.append(executable)

    def _run_watched(self, arrays: tuple[Array, ...], by: Watchers) -> list[Array]:
        values = by.see_values
        watched = self._watched.get(values) or self._watch(values)
        executable = watched.take(by)
        try:
            result = self._resized(executable, arrays)
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

    def _resized(self, executable: Executable, arrays: tuple[Array, ...]) -> list[Array]:
        """Run once, with shared kernels resized to this program's sizes."""
        if self._objects is None:
            return executable.run(*arrays)
        return self._objects.run(self.graph, self.prepared, executable.run, *arrays)

    def _point_at_nodes(self, error: Exception, executable: Executable) -> None:
        """Point at the user's lines of the nodes that were running."""
        for node in executable.executor.nodes_of(error):
            note_kernel(error, self.prepared[node])
            point_at(error, node.where)


@cache
def warn_refused(group: str, log: str) -> None:
    """Warn, once, that a group runs kernel by kernel, since its text does not compile."""
    warn_user(
        PerformanceWarning(
            f"the fused group {group} runs kernel by kernel, which is slower, because its text "
            f"does not compile: {log[:_LOG]}"
        )
    )


# --- Layouts --------------------------------------------------------------------------------------


class Layouts:
    """Strides of views of a program's own memory, followed while its kernels are prepared in order.

    Inputs and outputs, which are the caller's arrays, may have other strides at each call.
    """

    def __init__(self, graph: Graph):
        self._unknown = {*graph.inputs, *graph.outputs}
        self._arrays: dict[Var, Array] = {p: parameter._data for parameter, p in graph.state}
        self._arrays |= {v: np.asarray(v.abstract.value) for v in graph.constants}
        self._views: set[Var] = set()

    def follow(self, node: Node, kernel: BoundKernel) -> None:
        """Apply a view to arrays that stand in for its inputs; the result of a user's view stays
        unknown."""
        view, (out, *_) = kernel.entry.view, (*node.outputs, None)
        if view is None or out is None:
            return
        if node.inputs[view] in self._unknown or not kernel.entry.built_in:
            self._unknown.add(out)
            return
        seen, copied = CPU().seen(kernel.function, [self._array(v) for v in node.inputs])
        if not copied:
            self._arrays[out] = seen
            self._views.add(out)

    def strides(self, var: Var) -> Strides:
        """The strides of a view in elements; None where it is in row-major order, or unknown."""
        if var not in self._views:
            return None
        array: Any = self._arrays[var]
        if array.flags.c_contiguous or any(s % array.itemsize for s in array.strides):
            return None
        return tuple(s // array.itemsize for s in array.strides)

    def _array(self, var: Var) -> Array:
        known = self._arrays.get(var)
        return np.empty(var.abstract.stored, var.abstract.dtype) if known is None else known


# --- Kernels shared between sizes -----------------------------------------------------------------


T = TypeVar("T")
Prepared = Mapping[Node, BoundKernel]


class SharedObjects:
    """Kernel objects that several programs share. They have the sizes of one program at a time,
    and while it runs no other may."""

    def __init__(self) -> None:
        self._lock, self._busy = RLock(), False
        self._of: ref[Graph] | None = None  # the program whose sizes all have, if there is one
        # The size of each object.
        self._at: WeakKeyDictionary[OwnedKernel, KernelNode] = WeakKeyDictionary()
        _all.add(self)

    def prepare(self, graph: Graph, call: Callable[[], Iterable[BoundKernel]]) -> None:
        """Run `call()`, which prepares and resizes kernels for a new program and returns them."""
        with self._lock:
            self._refuse(graph.name)
            before, self._of, self._at = self._at, None, WeakKeyDictionary()
            now = {k.owned: k.node for k in call() if k.owned is not None}
            self._at = WeakKeyDictionary({**before, **now})  # unless `call` raised midway

    def run(self, graph: Graph, prepared: Prepared, call: Callable[..., T], *args: Any) -> T:
        """`call(*args)`, with the objects of that program's sizes, while no other program runs."""
        with self._lock:
            self._refuse(graph.name)
            self._busy = True
            try:
                if self._of is None or self._of() is not graph:
                    self._resize(graph, prepared)
                return call(*args)
            finally:
                self._busy = False

    def _resize(self, graph: Graph, prepared: Prepared) -> None:
        self._of = None
        for node, kernel in prepared.items():
            owned, instance = kernel.owned, kernel.instance
            if owned is None or instance is None or not instance.follows:
                continue
            if self._at.pop(owned, None) is not kernel.node:
                try:
                    instance.resize(kernel.node)
                except Exception as error:
                    note_kernel(error, kernel)
                    point_at(error, node.where)
                    raise
            self._at[owned] = kernel.node
        self._of = ref(graph)

    def _refuse(self, name: str) -> None:
        """InUseError for a call from inside a call, which would resize kernels that run."""
        if self._busy:
            raise InUseError(
                f"{name} is called inside a call of itself, by a handler or a kernel, while its "
                "kernels are at work; set a flag there, and call it afterwards"
            )

    def free(self) -> None:
        """Reset in the child of a fork, where the thread that held the objects does not exist."""
        self._lock, self._busy, self._of = RLock(), False, None
        self._at.clear()


_all: WeakSet[SharedObjects] = WeakSet()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: _free(_all))


def _free(every: Iterable[SharedObjects]) -> None:
    for objects in every:
        objects.free()


class Sibling(NamedTuple):
    """A program of a function for some sizes, as seen by those for other sizes."""

    graph: Graph
    prepared: Prepared
    objects: SharedObjects | None


class Sharing:
    """Kernels that the program of a graph shares with others of the same function: with the first
    that has the same operations, the kernels of equal calls and the objects that can be resized.
    others: None if the sizes are fixed.

    objects: the shared objects, if any. sentence: what is shared; "" if the sizes are fixed.
    """

    def __init__(
        self, graph: Graph, prepared: dict[Node, BoundKernel], others: Sequence[Sibling] | None
    ):
        self._graph, self._prepared, self._others = graph, prepared, others
        self.objects: SharedObjects | None = None
        self.sentence = ""
        self._like: dict[Node, BoundKernel] = {}
        self._kept: set[Node] = set()
        if others is not None:
            self._find(others)

    def _find(self, others: Sequence[Sibling]) -> None:
        # Programs of empty arrays launch nothing, so they have no objects to share.
        able = sorted(others, key=lambda o: o.objects is None)
        like = next((o for o in able if not difference(self._graph, o.graph)), None)
        self.objects = (like and like.objects) or SharedObjects()
        if like is None:
            return
        for node, other in zip(self._graph.nodes, like.graph.nodes, strict=True):
            self._like[node] = like.prepared[other]
            if is_same(node, other):
                self._kept.add(node)

    def kernel(self, node: Node) -> tuple[BoundKernel | None, BoundKernel | None]:
        """The kernel of an equal call, which serves this one, and that of the same call in another
        size."""
        like = self._like.get(node)
        return like if node in self._kept else None, like

    def prepare(self, call: Callable[[], object]) -> None:
        """Run `call()`, which prepares the kernels; if it raises, those that no other program has
        are released in reverse order."""
        try:
            if self.objects is None:
                call()
            else:
                self.objects.prepare(self._graph, lambda: self._resized(call))
                self._settle()
        except BaseException:
            others = {kernel.owned for kernel in self._like.values()}
            for owned in [k.owned for k in self._prepared.values()][::-1]:
                if owned is not None and owned not in others:
                    owned.end()
            raise

    def _resized(self, call: Callable[[], object]) -> list[BoundKernel]:
        call()
        return [k for n, k in self._prepared.items() if n not in self._kept and follows(k)]

    def _settle(self) -> None:
        """Set the sentence on sharing, and drop the shared objects if there are none."""
        following = {n for n, k in self._prepared.items() if follows(k)}
        self.objects = self.objects if following else None
        if not self._others:
            self.sentence = "no other size yet"
        elif not self._like and self._graph.nodes:
            why = difference(self._graph, self._others[0].graph)
            self.sentence = f"nothing is shared with other sizes: {why}"
        else:
            kept, resized = len(self._kept), len(following - self._kept)
            self.sentence = (
                f"shared with other sizes: {kept} kernels as they are, {resized} that are resized; "
                f"{len(self._prepared) - kept - resized} are this size's own"
            )


def follows(kernel: BoundKernel) -> bool:
    """True for a kernel object that is resized for other sizes."""
    return kernel.instance is not None and kernel.instance.follows


def difference(graph: Graph, other: Graph) -> str:
    """The first difference of two graphs other than sizes, as a clause; "" if there is none."""
    for a, b in zip(graph.nodes, other.nodes, strict=False):
        if type(a.primitive) is not type(b.primitive):
            return f"{a.primitive.name} stands where {b.primitive.name} stood"
        if _types(a) != _types(b):
            return f"{a.primitive.name} has other dtypes"
    if len(graph.nodes) != len(other.nodes):
        return f"it has {len(graph.nodes)} operations, not {len(other.nodes)}"
    return ""


def _types(node: Node) -> Sequence[object]:
    return [
        [(v.abstract.dtype, v.abstract.format) for v in vs] for vs in (node.inputs, node.outputs)
    ]


def is_same(node: Node, other: Node) -> bool:
    """True for calls that need the same kernel, prepared alike."""
    pairs = zip(node.inputs, other.inputs, strict=True)
    return (
        node.primitive == other.primitive
        and _consts(node) == _consts(other)
        and _shapes(node) == _shapes(other)
        and all(a.abstract.value is b.abstract.value for a, b in pairs)
    )


def _consts(node: Node) -> Sequence[object]:
    return [(name, key(value)) for name, value in node.consts]


def _shapes(node: Node) -> Sequence[object]:
    return [[v.abstract.shape for v in vs] for vs in (node.inputs, node.outputs)]
