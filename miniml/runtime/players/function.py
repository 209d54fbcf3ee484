"""Steps as one straight-line Python function over the arrays of a Memory."""

from __future__ import annotations

import keyword
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from functools import partial
from itertools import zip_longest
from operator import call
from typing import Any, NamedTuple

import numpy as np

from ...backends.cc.player import made_usable, unusable
from ...backends.device import Array
from ...graph.ir import Node, Var
from ...uninterrupted import consume, is_native, uninterrupted
from ..launch import BoundKernel
from ..steps import Copy, KernelLaunch, Look, Publish, Stage, Step, Steps, View
from .marks import Marks
from .memory import Memory
from .native import Natives, Part, RunOfCalls, Single, has_native, joined
from .source import NamedValues, SourceCall, Varying

# NumPy warns of a third positional argument of these, as of a mistake.
_KEYWORD_OUT = (np.maximum, np.minimum)


class Function(NamedTuple):
    """The compiled function: `run(*arrays)` gives fresh output arrays. nodes: of the lines of
    source. native_runs: how many calls of the source run native kernels. whole: the native run that
    does all, where there is one."""

    run: Callable[..., list[Array]]
    source: str
    nodes: Mapping[int, Node]
    native_runs: int = 0
    whole: RunOfCalls | None = None

    def nodes_of(self, error: Exception) -> Iterator[Node]:
        """The nodes whose steps were running when the error was raised."""
        trace, code = error.__traceback__, self.run.__code__
        while trace is not None:
            if trace.tb_frame.f_code is code and trace.tb_lineno in self.nodes:
                yield self.nodes[trace.tb_lineno]
            trace = trace.tb_next


def write(
    steps: Steps,
    memory: Memory,
    name: str,
    inputs: Sequence[Var] | None = None,
    filled: Sequence[Var] = (),
    threads: int = 0,
    marks: Marks | None = None,
) -> Function:
    """The function that takes the steps.

    inputs: those whose values are its arguments; None where they, and parameters of the host, are
    in the memory already. filled: the outputs, if they are arrays that it gets as further arguments
    and fills, and not what it returns. threads: the most that a native kernel may use; 0 for all.
    marks: what notes when each step was done, if anything does.
    """
    copies = sum(isinstance(step, Copy) for step in steps.compute)
    given = [f"x{i}" for i in range(len(inputs or ()))]
    targets = [f"y{i}" for i in range(len(filled))]
    made = [f"out{i}" for i in range(copies - len(filled))]
    native = has_native((*steps.compute, *steps.publish))
    natives = Natives(memory, inputs or (), filled) if native else None
    parts, publish = joined(steps, [*targets, *made], natives)
    writer = _Writer(memory, filled, made, threads, marks)
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
    run = values.pop("program")  # no ring: a program that is dropped frees its memory at once
    alone = parts[0] if len(parts) == 1 and not steps.publish else None
    whole = alone if isinstance(alone, RunOfCalls) else None
    return Function(run, source, writer.nodes, writer.native_runs, whole)


class _Writer:
    """The lines written so far, and the values behind the names in them.

    made: the names of outputs that are made and returned. unseen: views of what differs at each
    call, which no line has needed so far.
    """

    def __init__(
        self,
        memory: Memory,
        filled: Sequence[Var],
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
        self._moving = {v: Varying(f"y{i}") for i, v in reversed([*enumerate(filled)])}
        self._unseen: dict[Var, View] = {}

    def line(self, text: str, node: Node | None = None) -> None:
        """Write a line; an error raised in it points at the node."""
        self.lines.append(text)
        if node is not None:
            self.nodes[len(self.lines) + 1] = node

    def receive(self, inputs: Sequence[Var], used: Mapping[Var, str]) -> None:
        """The arguments are the values of inputs; parameters that stay on the host are read. used:
        those that native kernels read, with their names, which are made usable."""
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
        """Write what notes when the first step begins."""
        if self.marks is not None:
            self.names.values |= {"times": self.marks.times, "clock": self.marks.clock}
            self.line("times[0] = clock()")

    def _mark(self, step: Step | None, since: int, indent: str = "") -> None:
        """Write what notes when a step is done, if lines have been written for it."""
        if self.marks is not None and len(self.lines) > since:
            self.line(f"{indent}times[{self.marks.add(step)}] = clock()")

    def _argument(self, var: Var, name: Varying) -> None:
        buffer = self.memory.arrays.get(var)
        if buffer is not None:
            self._write(self._copied(buffer, name))
            return
        self._moving[var] = name
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
                if isinstance(step, Copy) and out in self.made:
                    of = step.source.abstract
                    made = SourceCall(np.empty, (of.shape, of.dtype), stem="empty")
                    self.line(f"{out} = {self.names.call(made)}")
            self._write(self._of_run(part))
        elif isinstance(part.step, Copy):
            self._copy(part.step, part.out)
        else:
            for made in self._calls(part.step):
                self._write(made, part.step)

    def _copy(self, step: Copy, out: str) -> None:
        """Write the copy of an output: to an array of the caller, or to one that is returned."""
        value = self._value(step.source)
        if out in self.made:
            copied = SourceCall(self.device.copy, (value,), stem="copy")
            self.line(f"{out} = {self.names.call(copied)}")
        elif not (isinstance(value, Varying) and value == out):
            self._write(self._copied(Varying(out), value))

    def publish(self, parts: Sequence[Part]) -> None:
        """Write the steps that happen wholly or not at all: as one C call if all are C functions,
        so that no signal handler runs in between, else with all handlers held back."""
        if self.marks is not None:
            self._publish_marked(parts)
            return
        made = [*self._published(parts)]
        if not made:
            return
        if all(is_native(partial(c.function)) for c, _ in made):
            self.line(f"consume(map(call, {self.names.thunks([c for c, _ in made])}))")
            return
        self.line("with uninterrupted():")
        for c, step in made:
            self._write(c, step, "    ")

    def _publish_marked(self, parts: Sequence[Part]) -> None:
        """The same, with a mark after each call."""
        if parts:
            self.line("with uninterrupted():")
        for c, step in self._published(parts):
            since = len(self.lines)
            self._write(c, step, "    ")
            if step is not None:
                self._mark(step, since, "    ")

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

    def _write(self, made: SourceCall, step: Step | None = None, indent: str = "") -> None:
        self.line(indent + self.names.call(made), getattr(step, "node", None))

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
        """Leave a view of what differs at each call to the first line that needs it."""
        (out,) = view.node.outputs
        if out not in self.memory.arrays:
            self._unseen[out] = view

    def _value(self, var: Var) -> Any:
        if var in self._unseen:
            self._see(self._unseen.pop(var))
        array = self.memory.arrays.get(var)
        return self._moving[var] if array is None else array

    def _see(self, view: View) -> None:
        """Write the line that makes a view."""
        node = view.node
        made = SourceCall(view.kernel.function, tuple(map(self._value, node.inputs)), stem="view")
        name = self._moving[node.outputs[0]] = Varying(f"v{len(self.lines)}")
        self.line(f"{name} = {self.names.call(made)}", node)

    def _targets(self, node: Node) -> tuple[Any, ...]:
        targets = self.memory.targets
        return tuple([targets[v] if v in targets else self._moving[v] for v in node.outputs])

    def _operands(
        self, node: Node, kernel: BoundKernel
    ) -> Generator[SourceCall, None, tuple[Any, ...]]:
        """The inputs as the kernel gets them: copies in row-major order if it requires that."""
        given = []
        for var, strides in zip_longest(node.inputs, kernel.node.strides):
            strided = strides is not None or self.device.takes_strides(kernel.entry)
            value = self._value(var)
            if isinstance(value, Varying) and not strided:
                value = Varying(f"device.contiguous({value})")
            elif not strided and not _is_dense(value):
                yield self._copied(self.memory.dense(var), value)
                value = self.memory.dense(var)
            given.append(value)
        return tuple(given)

    def _launch(self, node: Node, kernel: BoundKernel, inputs: tuple[Any, ...]) -> SourceCall:
        outs, name = self._targets(node), node.primitive.name
        stem = f"{name}_" if name.isidentifier() else "kernel_"
        if kernel.instance is not None:
            stream = None if self.device.stream is None else Varying("device.stream")
            scratch = self.memory.scratch(node)
            return SourceCall(kernel.instance.launch, (inputs, scratch, outs, stream), stem=stem)
        function, attrs, entry = kernel.function, kernel.node.attrs, kernel.entry
        out: Any = outs[0] if kernel.single else outs
        if isinstance(function, np.ufunc) and function not in _KEYWORD_OUT:
            return SourceCall(function, (*inputs, out), stem=stem)
        picked = isinstance(function, np.ufunc) or isinstance(entry.body, type)  # by a Kernel class
        if picked or not all(k.isidentifier() and not keyword.iskeyword(k) for k in attrs):
            return SourceCall(function, inputs, {"out": out}, stem)
        # Calling the kernel itself with its attributes is faster than a partial with keywords.
        return SourceCall(entry.body, inputs, {**attrs, "out": out}, stem)

    def _copied(self, target: Any, source: Any) -> SourceCall:
        """A copy into an array; on the host by a C slot, since np.copyto runs Python first."""
        if not isinstance(target, np.ndarray):
            return SourceCall(self.device.copy_into, (target, source), stem="copy")
        if self.device.name != "cpu":  # a parameter that stays on the host
            source = Varying(f"device.to_host({self.names.text(source)})")
        return SourceCall(target.__setitem__, (..., source), stem="copy")


def _is_dense(array: Any) -> bool:
    """True for an array in row-major order, of NumPy or of a device."""
    of_host = isinstance(array, np.ndarray)
    return bool(array.flags.c_contiguous if of_host else array.contiguous)
