"""Steps as one straight-line Python function over the arrays of a Memory."""

from __future__ import annotations

import keyword
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from functools import partial
from operator import call
from typing import Any, NamedTuple

import numpy as np

from ...backends.device import Array
from ...graph.ir import Node, Var
from ...uninterrupted import consume, is_native, uninterrupted
from ..finite import check_finite
from ..launch import BoundKernel
from ..steps import Copy, FiniteCheck, KernelLaunch, Publish, Stage, Step, Steps, View
from .memory import Memory

# NumPy warns of a third positional argument of these, as of a mistake.
_KEYWORD_OUT = (np.maximum, np.minimum)


class Function(NamedTuple):
    """The compiled function: `run(*arrays)` gives fresh output arrays. nodes: of the lines of
    source."""

    run: Callable[..., list[Array]]
    source: str
    nodes: Mapping[int, Node]

    def nodes_of(self, error: Exception) -> Iterator[Node]:
        """The nodes whose steps were running when the error was raised."""
        trace, code = error.__traceback__, self.run.__code__
        while trace is not None:
            if trace.tb_frame.f_code is code and trace.tb_lineno in self.nodes:
                yield self.nodes[trace.tb_lineno]
            trace = trace.tb_next


def write(steps: Steps, memory: Memory, name: str, inputs: Sequence[Var] | None = None) -> Function:
    """The function that takes the steps.

    inputs: those whose values are its arguments; None where they, and parameters of the host, are
    in the memory already.
    """
    writer = _Writer(memory)
    if inputs is not None:
        writer.receive(inputs)
    for step in steps.compute:
        writer.compute(step)
    writer.publish(steps.publish)
    writer.line(f"return [{', '.join(writer.outputs)}]")
    arguments = ", ".join([f"x{i}" for i in range(len(inputs or ()))])
    source = "\n    ".join([f"def program({arguments}):", *writer.lines]) + "\n"
    exec(compile(source, f"<miniml program {name}>", "exec"), writer.names)
    run = writer.names.pop("program")  # no ring: a program that is dropped frees its memory at once
    return Function(run, source, writer.nodes)


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
    """The lines written so far, and the values behind the names in them."""

    def __init__(self, memory: Memory):
        self.memory, self.device = memory, memory.device
        self.names: dict[str, Any] = {
            "call": call, "consume": consume, "partial": partial, "uninterrupted": uninterrupted,
            "device": memory.device, "ndarray": np.ndarray,
        }  # fmt: skip
        self.lines: list[str] = []
        self.nodes: dict[int, Node] = {}
        self.outputs: list[str] = []
        self._named: dict[int, str] = {id(...): "...", id(None): "None"}
        self._moving: dict[Var, _Text] = {}

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
        if isinstance(step, Copy):
            self.outputs.append(f"out{len(self.outputs)}")
            made = _Call(self.device.copy, (self._value(step.source),), stem="copy")
            self.line(f"{self.outputs[-1]} = {self._source(made)}")
            return
        for made in self._calls(step):
            self._write(made, step)

    def publish(self, steps: Sequence[Step]) -> None:
        """Write the steps that happen wholly or not at all: as one C call if all are C functions,
        so that no signal handler runs in between, else with all handlers held back."""
        made = [(c, step) for step in steps for c in self._calls(step)]
        if not made:
            return
        if all(is_native(partial(c.function)) for c, _ in made):
            self.line(f"consume(map(call, {self._thunks([c for c, _ in made])}))")
            return
        self.line("with uninterrupted():")
        for c, step in made:
            self._write(c, step, "    ")

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
            case FiniteCheck(node):
                inputs = tuple(map(self._value, node.inputs))
                name, to_host = node.primitive.name, self.device.to_host
                yield _Call(check_finite, (name, inputs, self._targets(node), to_host))
            case Stage(source, target):
                yield self._copied(self.memory.targets[target], self._value(source))
            case Publish(parameter, source):
                yield self._copied(parameter._buffer, self._value(source))

    def _value(self, var: Var) -> Any:
        array = self.memory.arrays.get(var)
        return self._moving[var] if array is None else array

    def _targets(self, node: Node) -> tuple[Any, ...]:
        return tuple(map(self.memory.targets.__getitem__, node.outputs))

    def _view(self, node: Node, kernel: BoundKernel) -> Iterator[_Call]:
        if node in self.memory.copies:
            yield self._copied(*self.memory.copies[node])
        elif node.outputs[0] not in self.memory.arrays:
            name = self._moving[node.outputs[0]] = _Text(f"v{len(self.lines)}")
            given = tuple(map(self._value, node.inputs))
            self.line(f"{name} = {self._source(_Call(kernel.function, given, stem='view'))}", node)

    def _operands(self, node: Node, kernel: BoundKernel) -> Generator[_Call, None, tuple[Any, ...]]:
        """The inputs as the kernel gets them: copies in row-major order if it requires that."""
        given = []
        strided = self.device.takes_strides(kernel.entry)
        for var in node.inputs:
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
