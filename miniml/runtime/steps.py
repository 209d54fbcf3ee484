"""Steps of a program at each call, as plain records that executors compile or record."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..core.parameter import Parameter
from ..graph.ir import Node, Var
from .launch import BoundKernel
from .memory import BufferAssignment

LookAt = Callable[[Node, tuple[Any, ...], tuple[Any, ...]], None]


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """The node's output is a view of its inputs, without a copy where strides can describe it."""

    node: Node
    kernel: BoundKernel


@dataclass(frozen=True, slots=True, eq=False)
class KernelLaunch:
    """The kernel fills the outputs of the node."""

    node: Node
    kernel: BoundKernel


@dataclass(frozen=True, slots=True, eq=False)
class Look:
    """`look(node, inputs, outputs)`, before the node's kernel runs or after it; it may raise."""

    node: Node
    look: LookAt


@dataclass(frozen=True, slots=True, eq=False)
class Copy:
    """The next output of the call: a copy of the value that the caller owns."""

    source: Var


@dataclass(frozen=True, slots=True, eq=False)
class Stage:
    """A parameter's old value is copied to `target`, because it would be overwritten before its
    use."""

    source: Var
    target: Var


@dataclass(frozen=True, slots=True, eq=False)
class Publish:
    """The new value is copied into its parameter."""

    parameter: Parameter
    source: Var


Step = View | KernelLaunch | Look | Copy | Stage | Publish


class Steps(NamedTuple):
    """compute: steps that may fail and have no visible effect. publish: steps that cannot fail;
    they change parameters, atomically."""

    compute: tuple[Step, ...] = ()
    publish: tuple[Step, ...] = ()


def steps(
    buffers: BufferAssignment, before: Sequence[LookAt] = (), after: Sequence[LookAt] = ()
) -> Steps:
    """The steps of a scheduled graph whose buffers are assigned.

    before, after: functions that look at each node with a kernel to run.
    """
    order, staged = buffers.order, buffers.staged
    main = [step for node in order.main for step in _of_node(buffers, node, before, after)]
    updates = [step for node in order.updates for step in _of_node(buffers, node)]
    stages = [Stage(source, target) for source, target in staged.items()]
    writes = [Publish(p, staged.get(v, v)) for p, v in order.writes if not buffers.is_there(p, v)]
    return Steps((*main, *map(Copy, buffers.graph.outputs)), (*updates, *stages, *writes))


def _of_node(
    buffers: BufferAssignment,
    node: Node,
    before: Sequence[LookAt] = (),
    after: Sequence[LookAt] = (),
) -> Iterator[Step]:
    kernel = buffers.prepared[node]
    if kernel.entry.view is not None:
        yield View(node, kernel)
    elif not kernel.empty:
        yield from (Look(node, look) for look in before)
        yield KernelLaunch(node, kernel)
        yield from (Look(node, look) for look in after)
