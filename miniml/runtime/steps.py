"""The steps of a program at each call, as plain records: players run them, or write them out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from ..dtype import is_float
from ..graph.ir import Node, Var
from ..parameter import Parameter
from .buffers import BufferAssignment
from .launch import BoundKernel


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
class FiniteCheck:
    """NonFiniteError where an output of the node holds a NaN or an infinity."""

    node: Node


@dataclass(frozen=True, slots=True, eq=False)
class Copy:
    """The next output of the call: a copy of the value that the caller owns."""

    source: Var


@dataclass(frozen=True, slots=True, eq=False)
class Stage:
    """A parameter's old value is copied to `target`, because it is overwritten before it is
    read."""

    source: Var
    target: Var


@dataclass(frozen=True, slots=True, eq=False)
class Publish:
    """The new value is copied into its parameter."""

    parameter: Parameter
    source: Var


Step = View | KernelLaunch | FiniteCheck | Copy | Stage | Publish


class Steps(NamedTuple):
    """compute: steps that may fail and have no visible effect. publish: steps that cannot fail;
    they change parameters, and happen all or not at all."""

    compute: tuple[Step, ...] = ()
    publish: tuple[Step, ...] = ()


def steps(buffers: BufferAssignment, check_nan: bool = False) -> Steps:
    """The steps of a scheduled graph whose values have been given memory."""
    order, staged = buffers.order, buffers.staged
    main = [step for node in order.main for step in _of_node(buffers, node, check_nan)]
    updates = [step for node in order.updates for step in _of_node(buffers, node)]
    stages = [Stage(source, target) for source, target in staged.items()]
    writes = [Publish(p, staged.get(v, v)) for p, v in order.writes if not buffers.is_there(p, v)]
    return Steps((*main, *map(Copy, buffers.graph.outputs)), (*updates, *stages, *writes))


def _of_node(buffers: BufferAssignment, node: Node, check_nan: bool = False) -> Iterator[Step]:
    kernel = buffers.prepared[node]
    if kernel.entry.view is not None:
        yield View(node, kernel)
    elif not kernel.empty:
        yield KernelLaunch(node, kernel)
        if check_nan and any(is_float(v.abstract.dtype) for v in node.outputs):
            yield FiniteCheck(node)
