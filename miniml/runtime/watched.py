"""Watched runs: what a Program and an eager call do for hooks and profiles, which see each kernel.

A watcher of `settings.watchers` has `sees_values`, and these methods:

    before(call), after(call)                   of each kernel, if it sees values: a `Call`
    program_ran(marks)                          when a Program has run
    call_ran(name, where, nbytes, begin, end)   when an eager call has run, in nanoseconds
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import Context
from functools import partial
from typing import Any, NamedTuple

from ..backends.device import Array, Device
from ..backends.devices import get_device
from ..graph.ir import Node, Var
from ..location import Location, user_location
from ..primitive import Primitive
from ..settings import Settings, enter, unwatched
from ..tensor import Tensor
from .buffers import BufferAssignment
from .players.cuda_graph import CudaGraph
from .players.function import Function, write
from .players.marks import Marks, clock_of
from .players.memory import Memory
from .quiet import ignore_errors
from .steps import LookAt, steps


class Call(NamedTuple):
    """One run of a primitive's kernel: of a call, or of a node of a compiled program.

    primitive: its name and attributes. inputs, outputs: Tensors; no outputs before it runs. where:
    the call on the user's own line, or None; `where.layer` is what made it, such as "layer 0
    (Dense)", and `where.gradient` says that it belongs to the gradient of that call.
    """

    primitive: Primitive
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    where: Location | None

    def __str__(self) -> str:
        at = self.where
        if at is None:
            return self.primitive.name
        layer = f" in {at.layer}" if at.layer else ""
        return f"{self.primitive.name}{layer} at {at}"


class Executable(NamedTuple):
    """A player with arrays of its own, and its `run` under the settings of compilation; it serves
    one call at a time. by: the watchers of that call."""

    run: Callable[..., list[Array]]
    player: Function | CudaGraph
    marks: Marks | None
    by: list[Any]


def bound(
    player: Function | CudaGraph, settings: Settings, marks: Marks | None, by: list[Any]
) -> Executable:
    """The executable of a player. Its context has these settings, and in it NumPy gives no
    floating-point warnings: cheaper to enter than errstate."""
    context = Context()
    context.run(ignore_errors)
    context.run(enter, settings)
    return Executable(partial(context.run, player.run), player, marks, by)


class WatchedProgram:
    """The kernels of a Program, run one by one for watchers; values: these see what is computed,
    so that nothing is overwritten where it was read, and no kernel comes after the last check."""

    def __init__(
        self, buffers: BufferAssignment, device: Device, settings: Settings, filled: Sequence[Var],
        checks: Sequence[LookAt], values: bool,
    ):  # fmt: skip
        self.buffers, self.device, self.settings = buffers, device, settings
        self.filled, self.checks, self.values = filled, checks, values
        self.idle: list[Executable] = []

    def taken(self, by: Sequence[Any]) -> Executable:
        """An executable that serves no call, for these watchers."""
        try:
            executable = self.idle.pop()
        except IndexError:
            executable = self._made()
        if self.values:
            executable.by[:] = by
        return executable

    def _made(self) -> Executable:
        by: list[Any] = []
        before = [_showing("before", self.device, by)] if self.values else []
        after = [*self.checks, *([_showing("after", self.device, by)] if self.values else [])]
        marks, memory = Marks(self.device), Memory(self.buffers, self.device)
        taken = steps(self.buffers, before, after)
        graph, threads = self.buffers.graph, self.settings.threads
        player = write(taken, memory, graph.name, graph.inputs, self.filled, threads, marks)
        return bound(player, self.settings, marks, by)


def _showing(when: str, device: Device, by: Sequence[Any]) -> LookAt:
    """What shows copies of the inputs and outputs of a node to those of `by` that look at them."""

    def copies(arrays: tuple[Any, ...]) -> tuple[Tensor, ...]:
        return tuple([Tensor(device.to_host(a), device=device.name) for a in arrays])

    def show(node: Node, inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> None:
        given = outputs if when == "after" else ()
        call = Call(node.primitive, copies(inputs), copies(given), node.where)
        for watcher in by:
            if watcher.sees_values:
                getattr(watcher, when)(call)

    return show


def watching_call(
    primitive: Primitive,
    device: str,
    by: Sequence[Any],
    run: Callable[[Sequence[Tensor]], tuple[Tensor, ...]],
) -> Callable[[Sequence[Tensor]], tuple[Tensor, ...]]:
    """A call plan, for tensors of the same kinds each time, that these watchers see."""
    clock = clock_of(get_device(device))
    seeing = [w for w in by if w.sees_values]
    nbytes: int | None = None

    def watched(tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        nonlocal nbytes
        where = user_location(passed=2)
        if seeing:
            show("before", Call(primitive, tuple(tensors), (), where))
        begin = clock()
        outputs = run(tensors)
        end = clock()
        if seeing:
            show("after", Call(primitive, tuple(tensors), outputs, where))
        if nbytes is None:
            nbytes = sum(t._abstract.nbytes for t in (*tensors, *outputs))
        for watcher in by:
            watcher.call_ran(primitive.name, where, nbytes, begin, end)
        return outputs

    def show(when: str, call: Call) -> None:
        with unwatched():
            for watcher in seeing:
                getattr(watcher, when)(call)

    return watched
