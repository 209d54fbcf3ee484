"""Native runs: consecutive steps without Python become one native call over a Memory's arrays."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import NamedTuple

import numpy as np

from ...backends.cc.player import Call, Moving, NativeKernel, Run, copy, native_run
from ...backends.device import Array, start_of
from ...graph.ir import Node, Var
from ..launch import BoundKernel
from ..memory import Memory
from ..steps import Copy, KernelLaunch, Publish, Stage, Step, Steps, View


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
        """True if any of the calls is a kernel: copies alone are as well made by Python."""
        return any(call.kernel != "copy" for call in self.calls)

    @property
    def parts(self) -> Sequence[Part]:
        """The run, or its steps where it launches nothing."""
        return [self] if self.launches else self.steps

    def argument(self, name: str, offset: int = 0) -> Moving:
        """The operand in an array that the source has under that name."""
        if name not in self.names:
            self.names.append(name)
        return Moving(self.names.index(name), offset)

    def calls_on(self, names: Sequence[str]) -> list[Call]:
        """The calls, with the arrays of these names as the arguments."""
        positions = [names.index(name) for name in self.names]

        def moved(operand: Array | Moving) -> Array | Moving:
            if isinstance(operand, Moving):
                return Moving(positions[operand.argument], operand.offset)
            return operand

        return [call._replace(operands=tuple(map(moved, call.operands))) for call in self.calls]

    def function(self, threads: int) -> Run:
        """The run, as a function of the arrays in `names`."""
        return native_run(self.calls, threads)


Part = Single | RunOfCalls


class Natives:
    """Steps that can run natively, and the addresses of all values that have the same one, or the
    same offset from the start of an input, in every call.

    used: the inputs, with the names of their arguments, that runs read; these must be dense, as
    the outputs that the caller gives to be filled are.
    """

    def __init__(self, memory: Memory, inputs: Sequence[Var], filled: Sequence[Var] = ()):
        self.memory, self.device = memory, memory.device
        self.used: dict[Var, str] = {}
        self._inputs = set(inputs)
        given = [(i, v) for i, v in enumerate(filled) if memory.is_given(v)]
        self._names = {var: f"y{i}" for i, var in reversed(given)}
        self._names |= {var: f"x{i}" for i, var in enumerate(inputs)}
        self._addresses: dict[Var, _Address] = {}
        for var in self._names:
            if var not in memory.arrays:
                like = np.empty(var.abstract.shape, var.abstract.dtype)
                self._addresses[var] = _Address(like, var)

    def address(self, var: Var) -> _Address | None:
        """Address of a value; None if it varies otherwise between calls."""
        array = self.memory.arrays.get(var)
        return self._addresses.get(var) if array is None else _Address(array)

    def _follow(self, view: View) -> None:
        """Find the address of a view of an input, unless it needs a copy or is a user's."""
        node, kernel = view.node, view.kernel
        given = [address for v in node.inputs if (address := self.address(v)) is not None]
        if len(given) < len(node.inputs) or not kernel.entry.built_in:
            return
        seen, copied = self.device.seen(kernel.function, [a.layout for a in given])
        of = given[kernel.entry.view or 0]
        if of.base is not None and not copied:
            offset = start_of(seen) - start_of(of.layout) + of.offset if seen.size else 0
            self._addresses[node.outputs[0]] = _Address(seen, of.base, offset)

    def add(self, step: Step, run: RunOfCalls, out: str = "") -> bool:
        """Add the step's calls to a run; False if it cannot be native. out: the name of the array
        that a Copy fills."""
        if isinstance(step, View):
            self._follow(step)
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
                return self._launch(node, kernel, kernel.native, run)
            case View(node) if node in self.memory.copies:
                target, array = self.memory.copies[node]
                return [copy(target, array, array)]
            case View(node):
                found = self.address(node.outputs[0])
                return None if found is None else []
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

    def _launch(
        self, node: Node, kernel: BoundKernel, native: NativeKernel, run: RunOfCalls
    ) -> list[Call] | None:
        if any(self.address(var) is None for var in node.inputs):
            return None
        calls, operands = [], []
        for var, strides in zip_longest(node.inputs, kernel.node.strides):
            address = self.address(var)
            assert address is not None
            operand = self._operand(address, run)
            if not address.dense and strides is None:
                operand = self.memory.dense(var)
                calls.append(copy(operand, self._operand(address, run), address.layout))
            operands.append(operand)
        targets = [self._target(var, run) for var in node.outputs]
        operands += [*targets, *self.memory.scratch(node)]
        return [*calls, *native.calls_on(tuple(operands))]

    def _target(self, var: Var, run: RunOfCalls) -> Array | Moving:
        array = self.memory.targets.get(var)
        return run.argument(self._names[var]) if array is None else array

    def _copy(self, target: Array | Moving, source: Var, run: RunOfCalls) -> list[Call] | None:
        address = self.address(source)
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


def has_native(steps: Sequence[Step]) -> bool:
    """True if a step is a native kernel."""
    return any(isinstance(s, KernelLaunch) and s.kernel.native is not None for s in steps)


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
    return [*compute, *last.parts], [*publish, *end.parts]


def _joined(
    steps: Sequence[Step], outs: Sequence[str], natives: Natives | None
) -> tuple[list[Part], RunOfCalls]:
    """The parts of these steps, and the last run, which others may join."""
    parts: list[Part] = []
    run, names = RunOfCalls(), iter(outs)
    for step in steps:
        out = next(names) if isinstance(step, Copy) else ""
        if natives is None or not natives.add(step, run, out):
            parts += [*run.parts, Single(step, out)]
            run = RunOfCalls()
    return parts, run
