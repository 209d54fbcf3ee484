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
from .native import Natives, RunOfCalls, has_native

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
    native = has_native((*steps.compute, *steps.publish))
    natives = Natives(memory, inputs or (), filled) if native else None
    writer = _Writer(memory, filled, natives, threads, marks)
    if inputs is not None:
        writer.receive(inputs)
    writer.begin()
    begin = len(writer.lines)
    for step in steps.compute:
        writer.compute(step)
    alone = native and len(writer.lines) == begin and not steps.publish
    whole = writer.run if alone else None
    writer.publish(steps.publish)
    writer.check_inputs()
    writer.line(f"return [{', '.join(writer.outputs)}]")
    given = [*(f"x{i}" for i in range(len(inputs or ()))), *(f"y{i}" for i in range(len(filled)))]
    arguments = ", ".join(given)
    source = "\n    ".join([f"def program({arguments}):", *writer.lines]) + "\n"
    exec(compile(source, f"<miniml program {name}>", "exec"), writer.names)
    if marks is not None:
        marks.finish()
    run = writer.names.pop("program")  # no ring: a program that is dropped frees its memory at once
    return Function(run, source, writer.nodes, writer.native_runs, whole)


class _Text(str):
    """Source text of a value that may differ at each call."""


class _Call(NamedTuple):
    """A call in a line, on constants and _Texts. stem: of the function's name in the source."""

    function: Any
    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any] = {}
    stem: str = "f"

    @property
    def thunk(self) -> Callable[[], object] | None:
        """The call, to be made later; None if it differs at each run."""
        if any(map(_varies, (*self.arguments, *self.keywords.values()))):
            return None
        return partial(self.function, *self.arguments, **self.keywords)


class _Writer:
    """The lines written so far, and the values behind the names in them.

    run: of the native steps that come next. unseen: views that no line has needed so far.
    """

    def __init__(
        self,
        memory: Memory,
        filled: Sequence[Var],
        natives: Natives | None,
        threads: int,
        marks: Marks | None = None,
    ):
        self.marks = marks
        self.memory, self.device = memory, memory.device
        self.natives, self.threads, self.run = natives, threads, RunOfCalls()
        self.native_runs = 0
        self.names: dict[str, Any] = {
            "call": call, "consume": consume, "partial": partial, "uninterrupted": uninterrupted,
            "device": memory.device, "ndarray": np.ndarray,
        }  # fmt: skip
        self.lines: list[str] = []
        self.nodes: dict[int, Node] = {}
        self.outputs: list[str] = []
        self._named: dict[int, str] = {id(...): "...", id(None): "None"}
        self._moving = {v: _Text(f"y{i}") for i, v in reversed([*enumerate(filled)])}
        self._filled = [f"y{i}" for i in range(len(filled))]
        self._unseen: dict[Var, View] = {}

    def line(self, text: str, node: Node | None = None) -> None:
        """Write a line; an error raised in it points at the node."""
        self.lines.append(text)
        if node is not None:
            self.nodes[len(self.lines) + 1] = node

    def receive(self, inputs: Sequence[Var]) -> None:
        """The arguments are the values of inputs; parameters that stay on the host are read."""
        for i, var in enumerate(inputs):
            self._argument(var, _Text(f"x{i}"))
        for allocation, buffer in self.memory.uploads.items():
            assert allocation.parameter is not None
            self._write(self._copied(buffer, allocation.parameter._data))
        self._checked = len(self.lines)
        if self.natives is not None:
            self.line("pass")

    def begin(self) -> None:
        """Write what notes when the first step begins."""
        if self.marks is not None:
            self.names |= {"times": self.marks.times, "clock": self.marks.clock}
            self.line("times[0] = clock()")

    def _mark(self, step: Step | None, since: int, indent: str = "") -> None:
        """Write what notes when a step is done, if lines have been written for it."""
        if self.marks is not None and len(self.lines) > since:
            self.line(f"{indent}times[{self.marks.add(step)}] = clock()")

    def check_inputs(self) -> None:
        """Write the line that makes inputs usable by native kernels, in the place kept for it."""
        if self.natives is not None and self.natives.used:
            specs = [(v.abstract.shape, v.abstract.dtype) for v in self.natives.used]
            names = ", ".join(self.natives.used.values())
            self.names |= {"unusable": unusable(specs), "made_usable": partial(made_usable, specs)}
            self.lines[self._checked] = f"if unusable({names}): [{names}] = made_usable({names})"

    def _argument(self, var: Var, name: _Text) -> None:
        buffer = self.memory.arrays.get(var)
        if buffer is not None:
            self._write(self._copied(buffer, name))
            return
        self._moving[var] = name
        if self.device.name != "cpu":
            self.line(f"if isinstance({name}, ndarray): {name} = device.from_host({name})")

    def compute(self, step: Step) -> None:
        """Write one step that may fail."""
        out = self._output() if isinstance(step, Copy) else ""
        if not self._joins(step, self.run, out):
            self._flush()
            self._compute(step, out)

    def _output(self) -> str:
        """The name of the next output: an array of the caller, or one to make and return."""
        if self._filled:
            return self._filled.pop(0)
        self.outputs.append(f"out{len(self.outputs)}")
        return self.outputs[-1]

    def _compute(self, step: Step, out: str) -> None:
        since = len(self.lines)
        self._write_out(step, out)
        self._mark(step, since)

    def _write_out(self, step: Step, out: str) -> None:
        if isinstance(step, Copy) and out not in self.outputs:
            value, target = self._value(step.source), _Text(out)
            if not (isinstance(value, _Text) and value == target):
                self._write(self._copied(target, value))
            return
        if isinstance(step, Copy):
            made = _Call(self.device.copy, (self._value(step.source),), stem="copy")
            self.line(f"{out} = {self._source(made)}")
            return
        for made in self._calls(step):
            self._write(made, step)

    def publish(self, steps: Sequence[Step]) -> None:
        """Write the steps that happen wholly or not at all: as one C call if all are C functions,
        so that no signal handler runs in between, else with all handlers held back."""
        run = RunOfCalls(self.run)
        if self.natives is not None and all(self._joins(step, run) for step in steps):
            self.run = run
            self._flush()
            return
        self._flush()
        if self.marks is not None:
            self._publish_marked(steps)
            return
        made = [*self._published(steps)]
        if not made:
            return
        if all(is_native(partial(c.function)) for c, _ in made):
            self.line(f"consume(map(call, {self._thunks([c for c, _ in made])}))")
            return
        self.line("with uninterrupted():")
        for c, step in made:
            self._write(c, step, "    ")

    def _publish_marked(self, steps: Sequence[Step]) -> None:
        """The same, with a mark after each call."""
        if steps:
            self.line("with uninterrupted():")
        for c, step in self._published(steps):
            since = len(self.lines)
            self._write(c, step, "    ")
            if step is not None:
                self._mark(step, since, "    ")

    def _joins(self, step: Step, run: RunOfCalls, out: str = "") -> bool:
        """Add a step to a native run; False if it is for Python."""
        if self.natives is None or not self.natives.add(step, run, out):
            return False
        if isinstance(step, View) and step.node.outputs[0] not in self.memory.arrays:
            self._unseen[step.node.outputs[0]] = step
        return True

    def _flush(self) -> None:
        """Write the native run as one call; its steps one by one if there is no kernel among
        them."""
        run, self.run = self.run, RunOfCalls()
        if not run.launches:
            for step, out in run.steps:
                self._compute(step, out)
            return
        for step, out in run.steps:
            if isinstance(step, Copy) and out in self.outputs:
                of = step.source.abstract
                made = _Call(np.empty, (of.shape, of.dtype), stem="empty")
                self.line(f"{out} = {self._source(made)}")
        self._write(self._of_run(run))

    def _of_run(self, run: RunOfCalls) -> _Call:
        self.native_runs += 1
        function = run.function(self.threads)
        if self.marks is not None:
            self.marks.add_run(function, run.made_by)
        return _Call(function, tuple(map(_Text, run.names)), stem="run")

    def _published(self, steps: Sequence[Step]) -> Iterator[tuple[_Call, Step | None]]:
        """The calls of these steps, native runs as one each."""
        run = RunOfCalls()
        for step in (*steps, None):
            if step is not None and self._joins(step, run):
                continue
            if run.launches:
                yield self._of_run(run), None
            else:
                yield from ((c, s) for s, _ in run.steps for c in self._calls(s))
            run = RunOfCalls()
            if step is not None:
                yield from ((c, step) for c in self._calls(step))

    def _write(self, made: _Call, step: Step | None = None, indent: str = "") -> None:
        self.line(indent + self._source(made), getattr(step, "node", None))

    def _thunks(self, calls: Sequence[_Call]) -> str:
        """A tuple of the calls, made once where none of them varies."""
        thunks = [c.thunk for c in calls]
        if None not in thunks:
            return self._text(tuple(thunks), "updates")
        made = zip(thunks, calls, strict=True)
        shown = [self._source(c, "partial") if t is None else self._text(t, "u") for t, c in made]
        return f"({', '.join(shown)},)"

    def _calls(self, step: Step) -> Iterator[_Call]:
        """The calls that make up a step, in order."""
        match step:
            case View(node, kernel):
                yield from self._view(node, kernel)
            case KernelLaunch(node, kernel):
                inputs = yield from self._operands(node, kernel)
                yield self._launch(node, kernel, inputs)
            case Look(node, look):
                inputs = tuple(map(self._value, node.inputs))
                yield _Call(look, (node, inputs, self._targets(node)), stem="look")
            case Stage(source, target):
                yield self._copied(self.memory.targets[target], self._value(source))
            case Publish(parameter, source):
                yield self._copied(parameter._buffer, self._value(source))

    def _value(self, var: Var) -> Any:
        array = self.memory.arrays.get(var)
        if var in self._unseen:
            view = self._unseen.pop(var)
            self._see(view.node, view.kernel)
        return self._moving[var] if array is None else array

    def _targets(self, node: Node) -> tuple[Any, ...]:
        targets = self.memory.targets
        return tuple([targets[v] if v in targets else self._moving[v] for v in node.outputs])

    def _view(self, node: Node, kernel: BoundKernel) -> Iterator[_Call]:
        if node in self.memory.copies:
            yield self._copied(*self.memory.copies[node])
        elif node.outputs[0] not in self.memory.arrays and node.outputs[0] not in self._unseen:
            self._see(node, kernel)

    def _see(self, node: Node, kernel: BoundKernel) -> None:
        """Write the line that makes a view of what differs at each call."""
        given = tuple(map(self._value, node.inputs))
        name = self._moving[node.outputs[0]] = _Text(f"v{len(self.lines)}")
        self.line(f"{name} = {self._source(_Call(kernel.function, given, stem='view'))}", node)

    def _operands(self, node: Node, kernel: BoundKernel) -> Generator[_Call, None, tuple[Any, ...]]:
        """The inputs as the kernel gets them: copies in row-major order if it requires that."""
        given = []
        for var, strides in zip_longest(node.inputs, kernel.node.strides):
            strided = strides is not None or self.device.takes_strides(kernel.entry)
            value = self._value(var)
            if isinstance(value, _Text) and not strided:
                value = _Text(f"device.contiguous({value})")
            elif not strided and not _is_dense(value):
                yield self._copied(self.memory.dense(var), value)
                value = self.memory.dense(var)
            given.append(value)
        return tuple(given)

    def _launch(self, node: Node, kernel: BoundKernel, inputs: tuple[Any, ...]) -> _Call:
        outs, name = self._targets(node), node.primitive.name
        stem = f"{name}_" if name.isidentifier() else "kernel_"
        if kernel.instance is not None:
            stream = None if self.device.stream is None else _Text("device.stream")
            scratch = self.memory.scratch(node)
            return _Call(kernel.instance.launch, (inputs, scratch, outs, stream), stem=stem)
        function, attrs, entry = kernel.function, kernel.node.attrs, kernel.entry
        out: Any = outs[0] if kernel.single else outs
        if isinstance(function, np.ufunc) and function not in _KEYWORD_OUT:
            return _Call(function, (*inputs, out), stem=stem)
        picked = isinstance(function, np.ufunc) or isinstance(entry.body, type)  # by a Kernel class
        if picked or any(map(keyword.iskeyword, attrs)):
            return _Call(function, inputs, {"out": out}, stem)
        # Calling the kernel itself with its attributes is faster than a partial with keywords.
        return _Call(entry.body, inputs, {**attrs, "out": out}, stem)

    def _copied(self, target: Any, source: Any) -> _Call:
        """A copy into an array; on the host by a C slot, since np.copyto runs Python first."""
        if not isinstance(target, np.ndarray):
            return _Call(self.device.copy_into, (target, source), stem="copy")
        if self.device.name != "cpu":  # a parameter that stays on the host
            source = _Text(f"device.to_host({self._text(source)})")
        return _Call(target.__setitem__, (..., source), stem="copy")

    def _source(self, made: _Call, through: str = "") -> str:
        """The call as text; through: a function that is called with the function and its
        arguments."""
        given = [self._text(made.function, made.stem)] if through else []
        given += map(self._text, made.arguments)
        given += [f"{key}={self._text(value, 'a')}" for key, value in made.keywords.items()]
        return f"{through or self._text(made.function, made.stem)}({', '.join(given)})"

    def _text(self, value: Any, stem: str = "b") -> str:
        """The value as text: a name for it, unless it varies."""
        if isinstance(value, _Text):
            return value
        if _varies(value):
            return f"({', '.join(map(self._text, value))},)"
        if id(value) not in self._named:
            name = self._named[id(value)] = f"{stem}{len(self.names)}"
            self.names[name] = value  # which keeps it alive, so that no other value gets its id
        return self._named[id(value)]


def _is_dense(array: Any) -> bool:
    """True for an array in row-major order, of NumPy or of a device."""
    of_host = isinstance(array, np.ndarray)
    return bool(array.flags.c_contiguous if of_host else array.contiguous)


def _varies(value: Any) -> bool:
    return type(value) is _Text or (type(value) is tuple and _Text in map(type, value))
