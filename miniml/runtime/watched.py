"""Watched runs: what a Program and an eager call do for hooks and profiles, which see each kernel.

A watcher of `settings.watchers` has `sees_values`, and these methods:

    before(call), after(call)   of each kernel, if it sees values: a `Call`
    program_ran(marks)          when a Program has run
    calls                       a list that gets, of each eager call, what a `TimedCall` has, or
                                None; where it is longer than `most`, fold() is called
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextvars import Context
from functools import partial
from threading import get_ident
from types import CodeType, FrameType
from typing import Any, NamedTuple

from ..backends.device import Array, Device
from ..backends.devices import get_device
from ..graph.ir import Node, Var
from ..location import (
    NOWHERE,
    Location,
    layer_block,
    own_files,
    pin_block,
    user_location,
    user_place,
)
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

Plan = Callable[[Sequence[Any]], tuple[Tensor, ...]]


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


class TimedCall(NamedTuple):
    """When an eager call began and ended, in nanoseconds. what: its name, and the bytes of its
    inputs and outputs. code, lasti, layer, gradient: as of `location.user_place`."""

    what: tuple[str, int]
    code: CodeType | None
    lasti: int
    layer: str
    gradient: bool
    begin: int
    end: int
    thread: int


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
    run: Plan,
) -> Plan:
    """A call plan, for tensors of the same kinds each time, that these watchers see."""
    seeing = [w for w in by if w.sees_values]
    timing = [w for w in by if w.calls is not None]
    timed = _timed(primitive.name, clock_of(get_device(device)), timing, run) if timing else run

    def watched(tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        where = user_location(passed=2)
        show("before", Call(primitive, tuple(tensors), (), where))
        outputs = timed(tensors)
        show("after", Call(primitive, tuple(tensors), outputs, where))
        return outputs

    def show(when: str, call: Call) -> None:
        with unwatched():
            for watcher in seeing:
                getattr(watcher, when)(call)

    return watched if seeing else timed


def _timed(name: str, clock: Callable[[], int], by: Sequence[Any], run: Plan) -> Plan:
    """The plan, of which these watchers note the time.

    A call takes little longer than this: so nothing is called that can be written out, and of what
    is noted there is nothing that the garbage collector has to visit.
    """
    noted = [(w.calls, w.most, w.fold) for w in by]
    frame_of, own, pinned, inside = sys._getframe, own_files, pin_block, layer_block
    thread = get_ident
    what: tuple[str, int] | None = None

    def timed(tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        nonlocal what
        begin = clock()
        outputs = run(tensors)
        end = clock()
        if pinned() is None and inside() is None:
            frame: FrameType | None = frame_of(3)  # past `bind` and the primitive
            while frame is not None and own[frame.f_code.co_filename]:
                frame = frame.f_back
            if frame is None:
                code, lasti, layer, gradient = NOWHERE
            else:
                code, lasti, layer, gradient = frame.f_code, frame.f_lasti, "", False
        else:
            code, lasti, layer, gradient = user_place(2)
        if what is None:
            what = name, sum(t._abstract.nbytes for t in (*tensors, *outputs))
        call = what, code, lasti, layer, gradient, begin, end, thread()
        for calls, most, fold in noted:
            calls += call
            if len(calls) > most:
                fold()
        return outputs

    return timed
