"""Compiled programs: kernel selection, buffer assignment and execution of a graph.

Small programs: too small for C. Background compilation: a thread makes a program in C while one of
NumPy's kernels runs. Layouts: the strides of views of the program's memory, which kernels in C read
without a copy. CUDA graphs: an executor that captures launches once and replays them with one call.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import cache, partial
from threading import Thread
from typing import Any

import numpy as np

from ..backends.cc.native import Call, Texts, compiled_together, share_texts
from ..backends.cc.units import NotCached, cached_only, warn_without
from ..backends.compiled import end_compilers
from ..backends.kernel import CPU, Array, Expression, KernelEntry, RawSource, read_only
from ..backends.registry import NATIVE
from ..backends.selection import Target
from ..core.access import Access, at_fork, uninterrupted
from ..core.errors import (
    CompileError,
    DeviceError,
    KernelNotFoundError,
    MinimlWarning,
    PerformanceWarning,
    keep_warnings,
    point_at,
    warn_user,
)
from ..core.parameter import keep_readings
from ..core.settings import Settings, current, enter, in_context
from ..graph.ir import Graph, Node, Var
from ..ops.control import Fused
from .executor import Executable, Executor, Function, Marks, calls_of, executable_of, write
from .launch import (
    BoundKernel,
    Sharing,
    Sibling,
    Strides,
    in_c,
    note_kernel,
    prepare,
    program_target,
    select,
)
from .lowering import lower
from .memory import (
    BufferAssignment,
    Copy,
    KernelLaunch,
    Look,
    LookAt,
    Memory,
    Plan,
    Publish,
    Schedule,
    Stage,
    Step,
    Steps,
    assign_buffers,
    schedule,
    steps,
)
from .nest import FREE, kind_of
from .observe import finding_nan, showing

_LOG = 1000  # characters of a compiler's log in a warning


class Program:
    """A compiled graph: `program(*arrays)` returns a list of fresh arrays; if made with `fills`,
    `program.fill(arrays, outputs)` writes to arrays of the caller, which overlap no input.

    It may run in several threads at once, with an arena each; a call that writes parameters runs
    alone. A step is atomic: parameters change at the very end.

    others: programs of the same function for other sizes; None if its sizes are fixed. The first
    with the same operations shares kernels with this one: those of equal calls, and those that can
    be resized. `shared` says which, in one sentence. texts: of the function's kernels in
    C, which programs for other sizes share.
    """

    def __init__(
        self,
        graph: Graph,
        target: Target | None = None,
        fills: bool = False,
        others: Sequence[Sibling] | None = None,
        texts: Texts | None = None,
    ):
        self._others = others
        self.settings = settings = current().bare
        target = target or program_target("cpu")
        # A step of a loop runs many times, and in C the whole loop is one call.
        self._small = not (fills or settings.providers) and too_small(graph, target)
        self._fills = fills
        target = target.without(NATIVE) if self._small else target
        size = tuple([v.abstract.shape for v in graph.inputs])
        try:
            with texts.program(size) if texts else nullcontext(), compiled_together():
                self._make(graph, target)
        except (CompileError, DeviceError) as error:
            if not in_c(target):
                raise
            warn_without(error)
            self._make(graph, target.without(NATIVE))
        self._watched: dict[bool, list[Executable]] = {}  # idle, by whether watchers see values

    def _make(self, graph: Graph, target: Target) -> None:
        """Choose the kernels and the memory, and compile what the cache lacks; a part of control
        flow is compiled with the program that it is a part of."""
        self._lower(graph, target)
        self.device = self.target.device
        # Built-in kernels write to no input; users' functions must not be able to.
        on_cpu = self.device.name == "cpu"
        kept = [p.entry.built_in or p.native is not None for p in self.prepared.values()]
        self._guarded = on_cpu and not all(kept)
        # `fill` computes in the caller's arrays themselves; else it copies results to them.
        self._direct = self._fills and on_cpu and (self._in_c or not self._guarded)
        self._arrange()
        if self._direct and self._guarded and not self._ready:
            self._direct = False  # Python would give users' functions the caller's arrays
            self._arrange()
        self._others = None  # they may be dropped before this one

    def _arrange(self) -> None:
        """Order the nodes, assign memory, and make the first calls in C or executable."""
        settings = self.settings
        self.schedule, self.buffers = self.arranged(settings.check_nan)
        self.steps: Steps = steps(self.buffers, after=self.checks)
        why_not = obstacle(self.steps, self.graph, self.device.name, settings.cuda_graphs)
        if self._objects is not None:  # a resize may move what recorded launches point to
            why_not = why_not or "kernels are resized for other sizes"
        self.capture = Capture(why_not)
        self._written = tuple(p for p, _ in self.schedule.writes)
        self._access = self._accessed()
        self._idle: list[Executable] = []
        self._ready = [] if (calls := self._calls()) is None else [calls]
        if calls is None:
            self.bind()

    def bind(self) -> None:
        """Make an executable, and compile what it needs."""
        if not self._idle:
            self._idle.append(self._executable())

    @property
    def _in_c(self) -> bool:
        """True for a part of control flow in C, which calls back what has no kernel there."""
        return self._fills and in_c(self.target)

    @property
    def sibling(self) -> Sibling:
        """This program, for programs of the same function for other sizes to share with."""
        return Sibling(self.graph, self.prepared, self._objects)

    def arranged(self, watched: bool, direct: bool = True) -> tuple[Schedule, BufferAssignment]:
        """The order of the nodes and the memory of all values. watched: the inputs and outputs of
        each kernel are looked at, which may raise. direct: outputs are computed in the caller's
        memory where that is possible."""
        order = schedule(self.graph, self.prepared, watched)
        name, outputs = self.device.name, self._outputs_in_place() if direct else ()
        given = self.graph, self.prepared, order, name, not watched, outputs, self._copied
        return order, assign_buffers(*given)

    def _outputs_in_place(self) -> Sequence[Var]:
        """The outputs that may be computed in arrays of the caller, or that it receives: users'
        functions, which may keep an array, or write to it, do not get them, nor views of them."""
        if self._direct or self.device.name != "cpu":
            return self.filled
        ours, theirs = set[Var](), set[Var]()
        for node, kernel in reversed(self.prepared.items()):
            view = kernel.entry.view is not None
            users = not (kernel.entry.built_in or kernel.native)
            if users or (view and not theirs.isdisjoint(node.outputs)):
                theirs.update(node.inputs)
            ours.update(() if users or view else node.outputs)
        return [v for v in self.graph.outputs if v in ours - theirs]

    @property
    def filled(self) -> Sequence[Var]:
        """The outputs, if they are computed in arrays of the caller."""
        return self.graph.outputs if self._direct else ()

    @property
    def checks(self) -> list[LookAt]:
        """Checks of outputs of kernels and of members of groups, if the settings ask for them."""
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
        """Choose and prepare the kernels."""
        settings, self.target = self.settings, target
        self.graph = lower(graph, target, settings.disabled_passes, settings.verify_passes)
        self.prepared: dict[Node, BoundKernel] = {}
        sharing = Sharing(self.graph, self.prepared, self._others)
        sharing.prepare(partial(self._prepare_all, sharing))
        self.shared = sharing.sentence
        self._objects = sharing.objects  # of kernels that programs for other sizes resize
        share_texts([p.native for p in self.prepared.values() if p.native is not None])
        made = {v: p for n, p in self.prepared.items() for v in n.outputs}
        viewed = (v for v in self.graph.outputs if v in made and made[v].entry.view is not None)
        self._copies = in_c(self.target) and any(viewed)

    def _prepare_all(self, sharing: Sharing) -> None:
        layouts, strided = Layouts(self.graph), in_c(self.target)
        for node in self.graph.nodes:
            kept, like = sharing.kernel(node)
            strides = tuple(map(layouts.strides, node.inputs)) if strided else ()
            self.prepared[node] = kept or self._prepare(node, strides, like)
            if self.target.home == "cpu":
                layouts.follow(node, self.prepared[node])
        self._copied = layouts.copied

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
        executor: Executor
        if self.capture.why_not:
            memory, graph = Memory(self.buffers, self.device), self.graph
            threads = self.settings.threads
            steps, filled, in_c = self.steps, self.filled, self._in_c and self._direct
            executor = write(
                steps, memory, graph.name, graph.inputs, filled, threads, None, in_c, self._copies
            )
        else:
            memory = Memory(self.buffers, self.device, own_inputs=True)
            executor = CudaGraph(self.steps, memory, self.graph, self.capture)
        return executable_of(executor, self.settings, None, [])

    @property
    def launched(self) -> str:
        """Sentence on how kernels are launched, or why none is in C; "" for NumPy's by choice."""
        varies = f"sizes vary: {self.shared}"
        return "\n".join(filter(None, (varies * bool(self.shared), self._launched())))

    def _launched(self) -> str:
        if self._small:
            return WHY
        if self.device.name == "cpu":
            natives = [p.native for p in self.prepared.values() if p.native is not None]
            kernels, shared = len(natives), sum(n.for_sizes for n in natives)
            executor = self._executor()
            runs = executor.native_runs if isinstance(executor, Function) else 0
            calls = "one call" if runs == 1 else f"{runs} calls"
            what = f"kernels in C: {kernels}" if kernels else "copies in C"
            what += f" ({shared} of them serve other sizes, too)" * bool(shared)
            return f"{what}, in {calls}" if runs else ""
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
        return self.run(arrays)

    def run(self, arrays: Sequence[Array]) -> list[Array]:
        """`program(*arrays)`."""
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
        return self._ready.pop() if self._ready else self._calls()

    def _calls(self) -> list[Call] | None:
        if not (self._direct and self._in_c):
            return None
        memory = Memory(self.buffers, self.device)
        return calls_of(self.steps, memory, self.graph.inputs, self.filled)

    def _executor(self) -> Executor:
        """One of the executors, to look at."""
        executable = next(iter(self._idle), None) or self._executable()
        return executable.executor

    def _stateful(self, arrays: Sequence[Array]) -> list[Array]:
        keep_readings(self._written)
        return self._run(arrays)

    def _run(self, arrays: Sequence[Array]) -> list[Array]:
        if self._guarded:
            count = len(self.graph.inputs)  # behind them are arrays to be filled
            arrays = (*map(read_only, arrays[:count]), *arrays[count:])
        by = current().watchers if in_context() is not None else ()
        idle = self._watched.setdefault(by.see_values, []) if by else self._idle
        try:
            executable = idle.pop()
        except IndexError:
            executable = self._observed(by.see_values) if by else self._executable()
        try:
            if by:
                executable.by[:] = [w for w in by if w.sees_values]
            if self._objects is None:
                result = executable.run(*arrays)
            else:  # kernels are resized to this program's sizes
                run = executable.run
                result = self._objects.run(self.graph, self.prepared, run, *arrays)
            for watcher in by:
                watcher.program_ran(executable.marks)
            return result
        except Exception as error:
            for node in executable.executor.nodes_of(error):
                note_kernel(error, self.prepared[node])
                point_at(error, node.where)
            raise
        finally:
            idle.append(executable)

    def _observed(self, values: bool) -> Executable:
        """The kernels run one by one for the watchers `Executable.by`; values: they see arrays."""
        device, by, marks = self.device, list[Any](), Marks(self.device)
        # So that no kernel overwrites its inputs, and none runs after the last check.
        buffers = self.arranged(True)[1] if values else self.buffers
        before = [showing("before", device, by)] if values else []
        after = [*self.checks, *([showing("after", device, by)] if values else [])]
        made, memory = steps(buffers, before, after), Memory(buffers, device)
        executor = write(
            made, memory, self.graph.name, self.graph.inputs, self.filled, self.settings.threads,
            marks, copies=self._copies,
        )  # fmt: skip
        return executable_of(executor, self.settings, marks, by)


@cache
def warn_refused(group: str, log: str) -> None:
    """Warn, once, that a group runs kernel by kernel, since its text does not compile."""
    warn_user(
        PerformanceWarning(
            f"the fused group {group} runs kernel by kernel, which is slower, because its text "
            f"does not compile: {log[:_LOG]}"
        )
    )


# --- Small programs -------------------------------------------------------------------------------


# A C kernel of two such calls takes 50 ms to compile and saves at most 1 of their 3 us: it pays
# after tens of thousands of calls. Three save 1.4 us, ten 8; what NumPy computes in several passes,
# or SciPy, saves up to 600.
CALLS, ELEMENTS = 2, 1024
WHY = f"too small for kernels in C: at most {CALLS} ufuncs of NumPy on {ELEMENTS} elements"


def too_small(graph: Graph, target: Target) -> bool:
    """True for a program for which NumPy's kernels are about as fast as those in C."""
    if NATIVE not in target.providers:
        return False
    calls = (n for n in graph.nodes if kind_of(n) not in FREE)
    if any(v.abstract.size > ELEMENTS and v not in graph.inputs for v in graph.outputs):
        return False  # of views NumPy would copy it element by element
    return all(i < CALLS and _small(n, target.without(NATIVE)) for i, n in enumerate(calls))


def _small(node: Node, numpy: Target) -> bool:
    """True for an expression of few elements, computed by a ufunc of NumPy, with vectors."""
    few = all(v.abstract.size <= ELEMENTS for v in (*node.inputs, *node.outputs))
    slow = type(node.primitive).by_element
    few = few and not any(v.abstract.dtype.char in slow for v in node.inputs)
    body = select(node, numpy).entry.body if few and kind_of(node) == "elements" else None
    return isinstance(body, np.ufunc) and body is getattr(np, body.__name__, None)


# --- Background compilation -----------------------------------------------------------------------


def begun(graph: Graph, target: Target, texts: Texts) -> tuple[Program, Pending | None]:
    """A program that runs at once. Where the cache lacks kernels in C it is one of NumPy's, and a
    thread makes the other one."""
    try:
        with cached_only():
            return Program(graph, target, texts=texts), None
    except NotCached:
        return Program(graph, target.without(NATIVE)), Pending(graph, target, texts)


class Pending:
    """A program that a thread of its own makes, under the settings in force."""

    def __init__(self, graph: Graph, target: Target, texts: Texts):
        self._make = partial(Program, graph, target, texts=texts)
        self._made: Program | None = None
        self._warnings: Sequence[MinimlWarning] = ()
        thread = Thread(target=self._run, args=(current().bare,), name="miniml compiles")
        thread.daemon = True  # `_end_threads` ends it
        self._thread = thread
        _threads.add(thread)
        thread.start()

    def _run(self, settings: Settings) -> None:
        enter(settings)
        self._warnings = keep_warnings()
        try:
            with suppress(Exception):  # `program` tries again, where a line of the user's runs
                self._made = self._make()
        finally:
            _threads.discard(self._thread)

    def program(self, wait: bool = False) -> Program | None:
        """The program; None as long as the thread runs. It warns, and raises, what making it at
        once would; so it does in a forked child, where the thread does not exist."""
        if wait:
            self._thread.join()
        if self._thread.is_alive():
            return None
        for warning in self._warnings:
            warn_user(warning)
        self._warnings = ()
        return self._made or self._make()


_threads: set[Thread] = set()
at_fork(after_in_child=_threads.clear)


@atexit.register
def _end_threads() -> None:
    """Let no thread and no compiler outlive the interpreter."""
    if _threads:
        end_compilers()
    for thread in list(_threads):
        thread.join()


# --- Layouts --------------------------------------------------------------------------------------


class Layouts:
    """Strides of views of a program's own memory, followed while its kernels are prepared in order.

    Inputs and outputs, which are the caller's arrays, may have other strides at each call. copied:
    the views that no strides can describe.
    """

    def __init__(self, graph: Graph):
        self._unknown = {*graph.inputs, *graph.outputs}
        self._arrays: dict[Var, Array] = {p: parameter._data for parameter, p in graph.state}
        self._arrays |= {v: np.asarray(v.abstract.value) for v in graph.constants}
        self._views: set[Var] = set()
        self.copied: set[Node] = set()

    def follow(self, node: Node, kernel: BoundKernel) -> None:
        """Apply a view to stand-ins for its inputs; the result of a user's view stays unknown."""
        view, (out, *_) = kernel.entry.view, (*node.outputs, None)
        if view is None or out is None:
            return
        if node.inputs[view] in self._unknown or not kernel.entry.built_in:
            self._unknown.add(out)
            return
        seen = self._seen(node, kernel)
        if seen is None:
            self.copied.add(node)
        else:
            self._arrays[out] = seen
            self._views.add(out)

    def _seen(self, node: Node, kernel: BoundKernel) -> Array | None:
        """The view of arrays that stand in for the inputs; None if it has to be a copy."""
        given = [self._array(v) for v in node.inputs]
        if type(node.primitive).view == "reshape":  # asked without a copy, which is as large as x
            try:
                return given[0].reshape(node.outputs[0].abstract.stored, copy=False)
            except ValueError:
                return None
        seen, copied = CPU().seen(kernel.function, given)
        return None if copied and seen.size else seen

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


# --- CUDA graphs ----------------------------------------------------------------------------------


# A launch from Python takes some microseconds, in which a GPU copies a few MiB.
BYTES_PER_LAUNCH = 4 << 20

Run = Callable[..., list[Any]]


@dataclass(slots=True)
class Capture:
    """State shared by the executables of a program. why_not: the reason why it does not run as a
    CUDA graph."""

    why_not: str


def obstacle(steps: Steps, graph: Graph, device: str, cuda_graphs: str) -> str:
    """Reason why the launches of a program cannot become a CUDA graph; "" if they can."""
    if device == "cpu":
        return "the CPU has no launches"
    if cuda_graphs == "off":
        return "cuda_graphs='off'"
    if cuda_graphs == "auto" and device != "cuda":
        return "the simulator makes a CUDA graph only with cuda_graphs='on'"
    if any(isinstance(step, Look) for step in steps.compute):
        return "check_nan looks at the outputs of each kernel"
    launched = [s for s in (*steps.compute, *steps.publish) if isinstance(s, KernelLaunch)]
    for step in launched:
        if not repeats(step.kernel.entry):
            return f"{step.node.primitive.name} runs Python of its own at each call"
    count, copies = len(launched), len(graph.inputs)
    if count < 2 or count <= copies:
        return f"a graph of {count} launches saves nothing when {copies} inputs are copied first"
    nbytes = sum(v.abstract.nbytes for v in graph.inputs)
    if nbytes > BYTES_PER_LAUNCH * count:
        return f"copying {nbytes} bytes of inputs first costs more than {count} launches"
    return ""


def repeats(entry: KernelEntry) -> bool:
    """True if a kernel makes the same launches at each call, so that its Python can be skipped."""
    if isinstance(entry.body, (Expression, RawSource)):
        return True
    capturable = getattr(entry.body, "capturable", None)
    return entry.built_in if capturable is None else bool(capturable)


class CudaGraph:
    """The steps of a program, recorded once and repeated with one launch.

    Inputs are copied into buffers of its own, so one graph serves all calls: the first call
    launches step by step, so that kernels compiled at their first launch are compiled; the second
    records, and from then on a call copies the inputs, launches the graph once, and copies the
    outputs, whose memory is allocated first. State that stays on the host is read before the graph
    and written after it.
    """

    def __init__(self, steps: Steps, memory: Memory, graph: Graph, capture: Capture):
        self.steps, self.memory, self.graph, self.capture = steps, memory, graph, capture
        self.device = memory.device
        self.one_by_one = self._written(steps, graph.inputs)
        self.recorded: Run | None = None
        self.warm = False

    @property
    def source(self) -> str:
        """The function that launches step by step."""
        return self.one_by_one.source

    def nodes_of(self, error: Exception) -> Iterator[Node]:
        """The nodes whose steps were running when the error was raised."""
        return self.one_by_one.nodes_of(error)

    def run(self, *arrays: Any) -> list[Any]:
        if self.warm and self.recorded is None and not self.capture.why_not:
            self._record()
        if self.recorded is not None:
            return self.recorded(*arrays)
        outs = self.one_by_one.run(*arrays)
        self.warm = True
        return outs

    def _record(self) -> None:
        """Record the steps, or note why that is impossible."""
        compute = [s for s in self.steps.compute if not isinstance(s, Copy)]
        kept = {v: self._keep(v) for v in self.graph.outputs if self._changes(v)}
        compute += [Stage(source, target) for source, target in kept.items()]
        publish = [s for s in self.steps.publish if not self._is_hosted(s)]
        launches = self._written(Steps(tuple(compute), tuple(publish)))
        try:
            replay = self.device.capture(launches.run)
        except Exception as error:
            names = [node.primitive.name for node in launches.nodes_of(error)]
            self.capture.why_not = f"{names[0] if names else 'it'} could not be recorded ({error})"
        else:
            results = [self.memory.arrays[kept.get(v, v)] for v in self.graph.outputs]
            self.recorded = self._repeated(replay, results)

    def _repeated(self, replay: Callable[[], None], results: list[Any]) -> Run:
        """A call that launches the graph. results: where the graph leaves the outputs."""
        device = self.device
        receive = self._written(Steps(), self.graph.inputs).run
        hosted = tuple(s for s in self.steps.publish if self._is_hosted(s))
        hand_over = self._written(Steps((), hosted)).run
        writes = bool(self.steps.publish)

        def run(*arrays: Any) -> list[Any]:
            outs = [device.empty(r.shape, r.dtype) for r in results]
            receive(*arrays)
            with uninterrupted() if writes else nullcontext():
                replay()
                hand_over()
            for out, result in zip(outs, results, strict=True):
                device.copy_into(out, result)
            return outs

        return run

    def _written(self, steps: Steps, inputs: Sequence[Var] | None = None) -> Function:
        return write(steps, self.memory, self.graph.name, inputs)

    def _is_hosted(self, step: Step) -> bool:
        return isinstance(step, Publish) and step.parameter.device != self.device.name

    def _changes(self, var: Var) -> bool:
        """True for an output in the memory of a parameter, which publishing may overwrite."""
        kind = self.memory.buffers.allocation[var].kind
        return bool(self.steps.publish) and kind in ("parameter", "upload")

    def _keep(self, var: Var) -> Var:
        """Memory for an output, to which it is copied before the parameter changes."""
        kept = Var(var.abstract)
        array = self.device.empty(var.abstract.shape, var.abstract.dtype)
        self.memory.targets[kept] = self.memory.arrays[kept] = array
        return kept
