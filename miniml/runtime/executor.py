"""Executor: a program's steps compiled to one straight-line Python function over a Memory's arrays.

Writer: a line for each step. Marks: the time at which each step was done, for a profile. Native
runs: consecutive steps without Python become one native call.
"""

from __future__ import annotations

import keyword
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import Context
from functools import partial
from itertools import zip_longest
from operator import call
from traceback import walk_tb
from typing import Any, NamedTuple, Protocol

import numpy as np

from ..backends.cc.native import (
    Call,
    Held,
    Moving,
    Run,
    call_back,
    compile_calls,
    copy,
    copy_bounded,
    made_usable,
    native_run,
    note_times,
    shown,
    unusable,
)
from ..backends.kernel import Array, Device, read_only, start_of
from ..core.access import consume, is_native, uninterrupted
from ..core.errors import point_at
from ..core.settings import Settings, enter
from ..graph.ir import Node, Var
from .launch import BoundKernel, NamedValues, SourceCall, Varying, ignore_errors, note_kernel
from .memory import Copy, Kept, KernelLaunch, Look, Memory, Publish, Stage, Step, Steps, View

# --- Writer ---------------------------------------------------------------------------------------


def write(
    steps: Steps,
    memory: Memory,
    name: str,
    inputs: Sequence[Var] | None = None,
    filled: Sequence[Var] = (),
    threads: int = 0,
    marks: Marks | None = None,
    whole: bool = False,
    copies: bool = False,
) -> Function:
    """Compile the steps to a function.

    inputs: those whose values are its arguments; None if they, and parameters of the host, are in
    the memory already. filled: the outputs that it fills, as arrays among its arguments, instead of
    returning them. threads: the most that a native kernel may use; 0 for all. marks: notes when
    each step was done, if given. whole: the steps are a part of control flow, to be one native run
    if they can, which calls back into Python for kernels that are not in C. copies: C copies the
    outputs that are views, also where no kernel is in C.
    """
    count = sum(isinstance(step, Copy) for step in steps.compute)
    given = [f"x{i}" for i in range(len(inputs or ()))]
    targets = [f"y{i}" for i in range(len(filled))]
    made = [f"out{i}" for i in range(count - len(filled))]
    received = _received(steps, [*targets, *made], memory)
    launches = [s for s in (*steps.compute, *steps.publish) if isinstance(s, KernelLaunch)]
    native = whole or copies or any(launch.kernel.native is not None for launch in launches)
    natives = Natives(memory, inputs or (), received, whole) if native else None
    parts, publish = joined(steps, [*targets, *made], natives)
    runs = [part for part in (*parts, *publish) if isinstance(part, RunOfCalls)]
    if runs:
        compile_calls([call for run in runs for call in run.calls])
    writer = _Writer(memory, received, made, threads, marks)
    if inputs is not None:
        writer.receive(inputs, {} if natives is None else natives.used)
    writer.begin()
    for part in parts:
        writer.compute(part)
    writer.publish(publish)
    writer.line(f"return [{', '.join(made)}]")
    source = "\n    ".join([f"def program({', '.join((*given, *targets))}):", *writer.lines]) + "\n"
    values = writer.names.values
    exec(compile(source, f"<miniml program {name}>", "exec"), values)
    if marks is not None:
        marks.finish()
    run = values.pop("program")  # no reference cycle: a dropped program frees its memory at once
    if natives is not None:
        run = natives.kept.around(run)
    return Function(run, source, writer.nodes, writer.native_runs)


def calls_of(
    steps: Steps, memory: Memory, inputs: Sequence[Var], filled: Sequence[Var]
) -> list[Call] | None:
    """The native calls that make up the steps of a part of control flow, with kernels that are not
    in C called back; None if these need Python. Their arguments are the inputs, then the outputs
    that they fill."""
    names = [f"y{i}" for i in range(len(filled))]
    natives = Natives(memory, inputs, _received(steps, names, memory), calls_back=True)
    parts, publish = joined(steps, names, natives)
    alone = parts[0] if len(parts) == 1 and not publish else None
    if not isinstance(alone, RunOfCalls):
        return None
    return alone.calls_on([*(f"x{i}" for i in range(len(inputs))), *names])


def _received(steps: Steps, names: Sequence[str], memory: Memory) -> dict[Var, str]:
    """The outputs that are computed in the caller's arrays, or in those that it receives, and the
    names of these. An output that is a view of another is copied from there."""
    copied = [step.source for step in steps.compute if isinstance(step, Copy)]
    found: dict[Var, str] = {}
    for var, name in zip(copied, names, strict=True):
        if memory.is_given(var) and var in memory.buffers.whole:
            found.setdefault(var, name)
    return found


class Function(NamedTuple):
    """The compiled function: `run(*arrays)` returns fresh output arrays.

    nodes: by line of the source. native_runs: the number of calls in the source that run native
    kernels.
    """

    run: Callable[..., list[Array]]
    source: str
    nodes: Mapping[int, Node]
    native_runs: int = 0

    def nodes_of(self, error: Exception) -> Iterator[Node]:
        """The nodes whose steps were running when the error was raised."""
        for frame, line in walk_tb(error.__traceback__):
            if frame.f_code is self.run.__code__ and line in self.nodes:
                yield self.nodes[line]


class Executable(NamedTuple):
    """An executor with arrays of its own, and its `run` under the settings of compilation; it
    serves one call at a time. by: the watchers of that call that see values."""

    run: Callable[..., list[Array]]
    executor: Executor
    marks: Marks | None
    by: list[Any]


def executable_of(
    executor: Executor, settings: Settings, marks: Marks | None, by: list[Any]
) -> Executable:
    """The executable of an executor. Its context has these settings, and in it NumPy gives no
    floating-point warnings: that is cheaper to enter than errstate."""
    context = Context()
    context.run(ignore_errors)
    context.run(enter, settings)
    return Executable(partial(context.run, executor.run), executor, marks, by)


class Executor(Protocol):
    """Interface of executors: of a Function, and of a CUDA graph of what one launches."""

    @property
    def run(self) -> Callable[..., list[Array]]:
        """The call that returns the outputs."""

    @property
    def source(self) -> str:
        """The straight-line function."""

    def nodes_of(self, error: Exception) -> Iterator[Node]:
        """The nodes whose steps were running when the error was raised."""


class _Writer:
    """The lines written so far, and the values of the names in them.

    received: the names of outputs that are computed where the caller gets them. made: the names of
    those that are made and returned. _varying: names of values that may be other arrays at each
    call. _unseen: views of those, which no line has needed so far.
    """

    def __init__(
        self,
        memory: Memory,
        received: Mapping[Var, str],
        made: Sequence[str],
        threads: int,
        marks: Marks | None = None,
    ):
        self.marks = marks
        self.memory, self.device = memory, memory.device
        self.made, self.threads, self.native_runs = made, threads, 0
        known = {"call": call, "consume": consume, "partial": partial, "ndarray": np.ndarray}
        self.names = NamedValues({**known, "uninterrupted": uninterrupted, "device": memory.device})
        self.lines: list[str] = []
        self.nodes: dict[int, Node] = {}
        self._indent = ""
        self._received = received
        self._varying = {var: Varying(name) for var, name in received.items()}
        self._unseen: dict[Var, View] = {}

    def line(self, text: str, node: Node | None = None) -> None:
        """Write a line; an error raised in it points at the node."""
        self.lines.append(self._indent + text)
        if node is not None:
            self.nodes[len(self.lines) + 1] = node

    def receive(self, inputs: Sequence[Var], used: Mapping[Var, str]) -> None:
        """Bind the arguments to the inputs, and read parameters that stay on the host. used: the
        inputs that native kernels read, with their names, which are made usable."""
        for i, var in enumerate(inputs):
            self._argument(var, Varying(f"x{i}"))
        for allocation, buffer in self.memory.uploads.items():
            assert allocation.parameter is not None
            self._write(self._copied(buffer, allocation.parameter._data))
        if used:
            specs = [(v.abstract.shape, v.abstract.dtype) for v in used]
            names = ", ".join(used.values())
            self.names.values |= {
                "unusable": unusable(specs), "made_usable": partial(made_usable, specs),
            }  # fmt: skip
            self.line(f"if unusable({names}): [{names}] = made_usable({names})")

    def begin(self) -> None:
        """Write the outputs that steps compute in, and the mark of the begin of the first step."""
        for var, name in self._received.items():
            if name in self.made:
                self._empty(name, var)
        if self.marks is not None:
            self.names.values |= {"times": self.marks.times, "clock": self.marks.clock}
            self.line("times[0] = clock()")

    def _mark(self, step: Step | None, since: int) -> None:
        """Write the mark of the end of a step, if lines have been written for it."""
        if self.marks is not None and len(self.lines) > since:
            self.line(f"times[{self.marks.add(step)}] = clock()")

    def _argument(self, var: Var, name: Varying) -> None:
        buffer = self.memory.arrays.get(var)
        if buffer is not None:
            self._write(self._copied(buffer, name))
            return
        self._varying[var] = name
        if self.device.name != "cpu":
            self.line(f"if isinstance({name}, ndarray): {name} = device.from_host({name})")

    def compute(self, part: Part) -> None:
        """Write one step that may fail, or a native run."""
        since = len(self.lines)
        self._compute(part)
        if isinstance(part, Single):
            self._mark(part.step, since)

    def _compute(self, part: Part) -> None:
        if isinstance(part, RunOfCalls):
            for step, out in part.steps:
                if isinstance(step, Copy) and out in self.made and not self._is_there(step, out):
                    self._empty(out, step.source)
            self._write(self._of_run(part))
        elif isinstance(part.step, Copy):
            self._copy(part.step, part.out)
        else:
            for made in self._calls(part.step):
                self._write(made, part.step)

    def _copy(self, step: Copy, out: str) -> None:
        """Write the copy of an output: to an array of the caller, or to one that is returned."""
        if self._is_there(step, out):
            return
        value = self._value(step.source)
        if out in self.made:
            copied = SourceCall(self.device.copy, (value,), stem="copy")
            self.line(f"{out} = {self.names.call(copied)}")
        else:
            self._write(self._copied(Varying(out), value))

    def _is_there(self, step: Copy, out: str) -> bool:
        """True for an output that was computed where it is to be."""
        return self._received.get(step.source) == out

    def _empty(self, out: str, var: Var) -> None:
        """Write the allocation of an output."""
        made = SourceCall(np.empty, (var.abstract.shape, var.abstract.dtype), stem="empty")
        self.line(f"{out} = {self.names.call(made)}")

    def publish(self, parts: Sequence[Part]) -> None:
        """Write the steps that are atomic: as one C call if all are C functions, so that no signal
        handler runs in between, else with all handlers deferred."""
        if self.marks is not None:
            self._publish_marked(parts)
            return
        made = [*self._published(parts)]
        if not made:
            return
        if all(is_native(partial(c.function)) for c, _ in made):
            self.line(f"consume(map(call, {self.names.thunks([c for c, _ in made])}))")
            return
        with self._uninterrupted():
            for c, step in made:
                self._write(c, step)

    def _publish_marked(self, parts: Sequence[Part]) -> None:
        """Write them with a mark after each call."""
        with self._uninterrupted():
            for c, step in self._published(parts):
                since = len(self.lines)
                self._write(c, step)
                if step is not None:
                    self._mark(step, since)

    @contextmanager
    def _uninterrupted(self) -> Iterator[None]:
        """Write lines, those of views included, that run with all handlers deferred."""
        self.line("with uninterrupted():")
        begun, self._indent = len(self.lines), "    "
        yield
        self._indent = ""
        if len(self.lines) == begun:  # views alone, which nothing has read
            self.lines.pop()

    def _published(self, parts: Sequence[Part]) -> Iterator[tuple[SourceCall, Step | None]]:
        """The calls of these parts, native runs as one each."""
        for part in parts:
            if isinstance(part, RunOfCalls):
                yield self._of_run(part), None
            else:
                yield from ((c, part.step) for c in self._calls(part.step))

    def _of_run(self, run: RunOfCalls) -> SourceCall:
        self.native_runs += 1
        for step, _ in run.steps:
            if isinstance(step, View):
                self._view(step)
        function = run.function(self.threads)
        if self.marks is not None:
            self.marks.add_run(function, run.made_by)
        return SourceCall(function, tuple(map(Varying, run.names)), stem="run")

    def _write(self, made: SourceCall, step: Step | None = None) -> None:
        self.line(self.names.call(made), getattr(step, "node", None))

    def _calls(self, step: Step) -> Iterator[SourceCall]:
        """The calls that make up a step, in order."""
        match step:
            case View(node) if node in self.memory.copies:
                yield self._copied(*self.memory.copies[node])
            case View():
                self._view(step)
            case KernelLaunch(node, kernel):
                inputs = yield from self._operands(node, kernel)
                yield self._launch(node, kernel, inputs)
            case Look(node, look):
                inputs = tuple(map(self._value, node.inputs))
                yield SourceCall(look, (node, inputs, self._targets(node)), stem="look")
            case Stage(source, target):
                yield self._copied(self.memory.targets[target], self._value(source))
            case Publish(parameter, source):
                yield self._copied(parameter._buffer, self._value(source))

    def _view(self, view: View) -> None:
        """Leave a view of a varying value to the first line that needs it."""
        (out,) = view.node.outputs
        if out not in self.memory.arrays:
            self._unseen[out] = view

    def _value(self, var: Var) -> Any:
        if var in self._unseen:
            self._see(self._unseen.pop(var))
        array = self.memory.arrays.get(var)
        return self._varying[var] if array is None else array

    def _see(self, view: View) -> None:
        """Write the line that makes a view."""
        node = view.node
        made = SourceCall(view.kernel.function, tuple(map(self._value, node.inputs)), stem="view")
        name = self._varying[node.outputs[0]] = Varying(f"v{len(self.lines)}")
        self.line(f"{name} = {self.names.call(made)}", node)

    def _targets(self, node: Node) -> tuple[Any, ...]:
        targets = self.memory.targets
        return tuple([targets[v] if v in targets else self._varying[v] for v in node.outputs])

    def _operands(
        self, node: Node, kernel: BoundKernel
    ) -> Generator[SourceCall, None, tuple[Any, ...]]:
        """The inputs of a kernel: copies in row-major order if it requires that."""
        given = []
        for var, strides in zip_longest(node.inputs, kernel.node.strides):
            strided = strides is not None or kernel.strided
            value = self._value(var)
            if isinstance(value, Varying) and not strided:
                value = Varying(f"device.contiguous({value})")
            elif not strided and not _is_dense(value):
                yield self._copied(self.memory.dense(var), value)
                value = self.memory.dense(var)
            given.append(value)
        return tuple(given)

    def _launch(self, node: Node, kernel: BoundKernel, inputs: tuple[Any, ...]) -> SourceCall:
        name = node.primitive.name
        stream = None if self.device.stream is None else Varying("device.stream")
        scratch, outs = self.memory.scratch(node), self._targets(node)
        function, given, named = kernel.call(inputs, scratch, outs, stream)
        if isinstance(function, partial) and all(
            key.isidentifier() and not keyword.iskeyword(key) for key in function.keywords
        ):  # calling the kernel itself with its attributes is faster
            given, named = (*function.args, *given), {**function.keywords, **named}
            function = function.func
        return SourceCall(function, given, named, f"{name}_" if name.isidentifier() else "kernel_")

    def _copied(self, target: Any, source: Any) -> SourceCall:
        """A copy into an array; on the host by a slot in C, since np.copyto runs Python first."""
        if not isinstance(target, np.ndarray):
            return SourceCall(self.device.copy_into, (target, source), stem="copy")
        if self.device.name != "cpu":  # a parameter that stays on the host
            source = Varying(f"device.to_host({self.names.text(source)})")
        return SourceCall(target.__setitem__, (..., source), stem="copy")


def _is_dense(array: Any) -> bool:
    """True for an array in row-major order, on the host or a device."""
    return bool(array.flags.c_contiguous if isinstance(array, np.ndarray) else array.contiguous)


# --- Marks ----------------------------------------------------------------------------------------


class Marks:
    """Times of a run in nanoseconds: times[0] is when the first step began, times[i + 1] when
    steps[i] was done. A step of None stands for work that belongs to no step.

    On a device each step is waited for.
    """

    def __init__(self, device: Device):
        self.steps: list[Step | None] = []
        self.times: Array = np.zeros(1, np.int64)
        self.clock = clock_of(device)
        self._runs: list[tuple[Any, int]] = []

    def add(self, step: Step | None) -> int:
        """The index of one more mark."""
        self.steps.append(step)
        return len(self.steps)

    def add_run(self, run: Any, made_by: Sequence[Step]) -> None:
        """The marks of a native run, one for each of its calls."""
        self._runs.append((run, len(self.steps) + 1))
        self.steps += made_by

    def finish(self) -> None:
        """Allocate the times of all marks, and pass them to the native runs."""
        self.times.resize(len(self.steps) + 1, refcheck=False)
        for run, first in self._runs:
            note_times(run, self.times[first:])


def clock_of(device: Device) -> Callable[[], int]:
    """A clock that first waits for all that was launched on the device."""
    if device.stream is None:
        return now

    def waited() -> int:
        device.stream.synchronize()
        return now()

    return waited


# The clock that native runs read; the call without an argument is faster where it is the same.
now: Callable[[], int] = (
    time.monotonic_ns
    if time.get_clock_info("monotonic").implementation == "clock_gettime(CLOCK_MONOTONIC)"
    else partial(time.clock_gettime_ns, time.CLOCK_MONOTONIC)
)


# --- Native runs ----------------------------------------------------------------------------------


class _Address(NamedTuple):
    """Address of a value. layout: an array with its shape, strides and dtype. base: the input whose
    memory it is in, if that varies between calls; None for fixed memory."""

    layout: Array
    base: Var | None = None
    offset: int = 0

    @property
    def dense(self) -> bool:
        """True if it is in row-major order."""
        return self.layout.flags.c_contiguous


class Single(NamedTuple):
    """A step that is written by itself. out: the name of its output, if it is a Copy."""

    step: Step
    out: str = ""


class RunOfCalls:
    """The calls of consecutive steps, each with the name of its output, if it is a Copy.

    names: of the arrays, in the source, that its function takes.
    """

    def __init__(self, before: RunOfCalls | None = None):
        self.steps: list[Single] = [] if before is None else [*before.steps]
        self.calls: list[Call] = [] if before is None else [*before.calls]
        self.names: list[str] = [] if before is None else [*before.names]
        self.made_by: list[Step] = [] if before is None else [*before.made_by]  # by call

    @property
    def launches(self) -> bool:
        """True if any of the calls is a kernel, or a copy of what has other strides: other copies
        alone are as well made by Python."""
        return any(call.kernel != "copy" for call in self.calls)

    def parts(self, always: bool = False) -> Sequence[Part]:
        """The run, or its steps where it launches nothing. always: the run all the same."""
        return [self] if self.launches or (always and self.steps) else self.steps

    def argument(self, name: str, offset: int = 0) -> Moving:
        """The operand in an array that the source has under that name."""
        if name not in self.names:
            self.names.append(name)
        return Moving(self.names.index(name), offset)

    def calls_on(self, names: Sequence[str]) -> list[Call]:
        """The calls, with the arrays of these names as the arguments."""
        positions = [names.index(name) for name in self.names]
        return [call.moved(positions) for call in self.calls]

    def function(self, threads: int) -> Run:
        """The run, as a function of the arrays in `names`."""
        return native_run(self.calls, threads)


Part = Single | RunOfCalls


class Natives:
    """Steps that can run natively, and the addresses of all values that have the same one, or the
    same offset from the start of an input, in every call.

    received: the outputs that are computed where the caller gets them, with their names. used: the
    inputs, with the names of their arguments, that runs read; these must be dense, as the outputs
    are. calls_back: as `whole` in `write`. _uncopied: values that a reshape has to copy and only
    the caller gets, and what it reshapes, which is copied there at once.
    """

    def __init__(
        self,
        memory: Memory,
        inputs: Sequence[Var],
        received: Mapping[Var, str] = {},
        calls_back: bool = False,
    ):
        self.memory, self.device, self.calls_back = memory, memory.device, calls_back
        self.used: dict[Var, str] = {}
        self._inputs = set(inputs)
        self._names = {**received, **{var: f"x{i}" for i, var in enumerate(inputs)}}
        self._addresses: dict[Var, _Address] = {}
        self._uncopied: dict[Var, _Address] = {}
        self._bound = {*memory.arrays}
        self.kept, self._held = Kept(), dict[object, Held]()
        buffers = memory.buffers
        self._read = {v for node in buffers.order.order for v in node.inputs}
        self._read |= {*buffers.staged, *(v for _, v in buffers.order.writes)}
        for var in self._names:
            if var not in memory.arrays:
                like = np.empty(var.abstract.shape, var.abstract.dtype)
                self._addresses[var] = _Address(like, var)

    def address(self, var: Var) -> _Address | None:
        """Address of a value; None if it varies otherwise between calls."""
        array = self.memory.arrays.get(var)
        return self._addresses.get(var) if array is None else _Address(array)

    def _follow(self, view: View, run: RunOfCalls) -> list[Call]:
        """Find the address of a view of an input, unless it is a user's; the calls for what only a
        copy can be."""
        node, kernel = view.node, view.kernel
        given = [address for v in node.inputs if (address := self.address(v)) is not None]
        if len(given) < len(node.inputs) or not kernel.entry.built_in:
            return []
        seen, copied = self.device.seen(kernel.function, [a.layout for a in given])
        of, out = given[kernel.entry.view or 0], node.outputs[0]
        if copied and seen.size:
            return self._reshaped(out, of, self.memory.dense(out), run)
        offset = start_of(seen) - start_of(of.layout) + of.offset if seen.size else 0
        self._addresses[out] = _Address(seen, of.base, offset)
        return []

    def _reshaped(self, out: Var, of: _Address, target: Array, run: RunOfCalls) -> list[Call]:
        """The copy of a value that a reshape has to make; none where only the caller gets it."""
        made = read_only(target.reshape(out.abstract.stored))
        self._addresses[out] = _Address(made)
        if out not in self._read:
            self._uncopied[out] = of
            return []
        self.memory.arrays[out] = made
        return [copy(target, self._operand(of, run), of.layout)]

    def add(self, step: Step, run: RunOfCalls, out: str = "") -> bool:
        """Add the step's calls to a run; False if it cannot be native. out: the name of the array
        that a Copy fills."""
        calls = self._calls(step, run, out)
        if calls is None:
            return False
        run.steps.append(Single(step, out))
        run.calls += calls
        run.made_by += [step] * len(calls)
        return True

    def _calls(self, step: Step, run: RunOfCalls, out: str) -> list[Call] | None:
        match step:
            case KernelLaunch(node, kernel) if kernel.native is not None:
                return self._launch(node, kernel, run)
            case KernelLaunch(node, kernel) if self.calls_back or _is_bounded(node, kernel):
                return self._launch(node, kernel, run)
            case View(node) if node in self.memory.copies:
                target, array = self.memory.copies[node]
                return self._reshaped(node.outputs[0], _Address(array), target, run)
            case View(node):
                calls = [] if node.outputs[0] in self._bound else self._follow(step, run)
                return None if self.address(node.outputs[0]) is None else calls
            case Copy(source) if source not in self._inputs and self._names.get(source) == out:
                return []
            case Copy(source):
                known = self.address(source) is not None  # else the run would not have the argument
                return self._copy(run.argument(out), source, run) if known else None
            case Stage(source, target):
                return self._copy(self.memory.targets[target], source, run)
            case Publish(parameter, source) if parameter._buffer.flags.c_contiguous:
                return self._copy(parameter._buffer, source, run)
            case _:
                return None

    def _launch(self, node: Node, kernel: BoundKernel, run: RunOfCalls) -> list[Call] | None:
        if any(self.address(var) is None for var in node.inputs):
            return None
        calls, inputs = list[Call](), list[_Operand]()
        bounded = _is_bounded(node, kernel)
        any_strides = kernel.native is None and kernel.strided and not bounded
        for var, strides in zip_longest(node.inputs, kernel.node.strides):
            address = self.address(var)
            assert address is not None
            operand, strided = self._operand(address, run), any_strides or strides is not None
            if not (address.dense or strided):
                dense = self.memory.dense(var)
                calls.append(copy(dense, operand, address.layout))
                operand, address = dense, _Address(read_only(dense))
            inputs.append(_Operand(operand, address.layout))
        targets = [_Operand(self._target(v, run), self._layout(v)) for v in node.outputs]
        scratch = self.memory.scratch(node)
        if kernel.native is None:
            called = _called_back(node, kernel, inputs, scratch, targets)
            if bounded:
                (source,), (target,) = inputs, targets
                given = source.operand, source.layout, node.primitive.bounds
                called = copy_bounded(target.operand, *given, called)
            return [*calls, called]
        operands = *(o.operand for o in (*inputs, *targets)), *scratch
        lasting = [i for i, var in enumerate(node.inputs) if self._lasts(var)]
        made = self._sharing(node, kernel.native.calls_on(operands, lasting))
        held = [call.held for call in made if call.held is not None]
        places = [self.memory.buffers.allocation[node.inputs[h.operand]] for h in held]
        self.kept.note(node, [*zip([p.parameter for p in places], held)])
        return [*calls, *made]

    def _sharing(self, node: Node, made: list[Call]) -> list[Call]:
        """The calls, with one memory for a matrix that several products read in one order, such as
        the steps of an unrolled loop."""
        packs, held = made[0], made[0].held
        if held is None or len(made) != 2 or made[1].kernel == "loop":
            return made
        matrix = self.address(node.inputs[held.operand])
        if matrix is None or matrix.base is not None:
            return made
        key = packs.kernel, start_of(matrix.layout), matrix.layout.strides
        shared = self._held.setdefault(key, held)._replace(operand=held.operand)
        packs = packs._replace(operands=(packs.operands[0], shared.words), held=shared)
        operands = tuple([shared.words if o is held.words else o for o in made[1].operands])
        return [packs, made[1]._replace(operands=operands)]

    def _lasts(self, var: Var) -> bool:
        """True for a constant, or a parameter that the program does not write, or a view of one."""
        of, written = self.memory.buffers.allocation[var], self.memory.buffers.order.writes
        lasts = of.kind == "parameter" and all(p is not of.parameter for p, _ in written)
        return not self.calls_back and (lasts or of.kind == "constant")

    def _layout(self, var: Var) -> Array:
        array = self.memory.targets.get(var)
        return self._addresses[var].layout if array is None else array

    def _target(self, var: Var, run: RunOfCalls) -> Array | Moving:
        array = self.memory.targets.get(var)
        return run.argument(self._names[var]) if array is None else array

    def _copy(self, target: Array | Moving, source: Var, run: RunOfCalls) -> list[Call] | None:
        address = self._uncopied.get(source) or self.address(source)
        if address is None:
            return None
        return [copy(target, self._operand(address, run), address.layout)]

    def _operand(self, address: _Address, run: RunOfCalls) -> Array | Moving:
        if address.base is None:
            return address.layout
        name = self._names[address.base]
        if address.base in self._inputs:
            self.used[address.base] = name
        return run.argument(name, address.offset)


class _Operand(NamedTuple):
    """An operand of a call, and an array with its shape, strides and dtype."""

    operand: Array | Moving
    layout: Array

    def shown(self, writeable: bool, moving: list[tuple[Array, Array | Moving]]) -> Array:
        """The array that a Python function gets; one that shows a moving operand joins `moving`."""
        if not isinstance(self.operand, Moving):
            return self.layout
        array = shown(self.layout, writeable)
        moving.append((array, self.operand))
        return array


def _called_back(
    node: Node,
    kernel: BoundKernel,
    inputs: Sequence[_Operand],
    scratch: tuple[Any, ...],
    targets: Sequence[_Operand],
) -> Call:
    """The call of a kernel that is not in C. Its errors point at the node."""
    moving: list[tuple[Array, Array | Moving]] = []
    given = tuple([o.shown(False, moving) for o in inputs])
    outs = tuple([o.shown(True, moving) for o in targets])
    function, taken, named = kernel.call(given, scratch, outs, None)

    def launch() -> None:
        try:
            function(*taken, **named)
        except Exception as error:
            note_kernel(error, kernel)
            point_at(error, node.where)
            raise

    return call_back(launch, moving)


def _is_bounded(node: Node, kernel: BoundKernel) -> bool:
    """True for a copy of integers that C makes where they are in bounds."""
    return node.primitive.bounds is not None and kernel.entry.built_in


def joined(
    steps: Steps, outs: Sequence[str], natives: Natives | None
) -> tuple[Sequence[Part], Sequence[Part]]:
    """The parts of the steps that compute, and of those that publish. All of these join the last
    run if they can, so that a step of kernels in C alone is one call. outs: the names of
    the outputs of Copy steps. natives: None if nothing runs natively.
    """
    compute, last = _joined(steps.compute, outs, natives)
    whole = RunOfCalls(last)
    join = natives is not None and all(natives.add(step, whole) for step in steps.publish)
    if join and whole.launches:
        return [*compute, whole], []
    publish, end = _joined(steps.publish, (), natives)
    always = natives is not None and natives.calls_back
    return [*compute, *last.parts(always)], [*publish, *end.parts()]


def _joined(
    steps: Sequence[Step], outs: Sequence[str], natives: Natives | None
) -> tuple[list[Part], RunOfCalls]:
    """The parts of these steps, and the last run, which others may join."""
    parts: list[Part] = []
    run, names = RunOfCalls(), iter(outs)
    for step in steps:
        out = next(names) if isinstance(step, Copy) else ""
        if natives is None or not natives.add(step, run, out):
            parts += [*run.parts(), Single(step, out)]
            run = RunOfCalls()
    return parts, run
