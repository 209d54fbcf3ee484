"""Reverse mode: walk recorded nodes backwards and let each bprop turn dout into input gradients."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from .. import ops
from ..abstract import Abstract
from ..bprop import Bprop, bprop_getters
from ..dtype import is_float
from ..errors import BpropError
from ..graph.ir import Graph, Node, Var, interleave
from ..location import pinned, point_at
from ..primitive import Primitive
from ..tensor import Tensor
from ..trace import current_trace
from .blame import note_bprop


def backward(
    nodes: Sequence[Node], values: dict[Var, Any], cotangents: dict[Var, Any]
) -> dict[Var, Any]:
    """Gradients of every Var that the seeds reach, by the chain rule.

    nodes: in program order. values: what each Var stands for in the current trace, in which the
    gradients are computed too. cotangents: the seeds, by output Var; it is extended and returned.
    Raises BpropNotFoundError or BpropError, pointing at the forward call.
    """
    with pinned() as pin:
        for node in reversed(nodes):
            if cotangents.keys().isdisjoint(node.outputs):
                continue
            pin.move(node.where)
            try:
                gradients = _pull(node, values, cotangents)
            except Exception as error:
                point_at(error, node.where, f"{node.primitive.name} was called")
                note_bprop(error, node.primitive)
                raise
            for var, gradient in zip(node.inputs, gradients, strict=True):
                if gradient is not None:
                    known = cotangents.get(var)
                    cotangents[var] = gradient if known is None else ops.add(known, gradient)
    return cotangents


def _pull(node: Node, values: dict[Var, Any], cotangents: dict[Var, Any]) -> list[Any]:
    """One gradient per tensor input of the node, None where none passes."""
    primitive = node.primitive
    bprop = bprop_getters.get(primitive)
    inputs: Sequence[Any] = [values[v] for v in node.inputs]
    if node.consts:
        inputs = interleave(primitive, list(inputs), dict(node.consts))
    out: Any
    dout: Any
    if primitive._single:
        (var,) = node.outputs
        out, dout = values[var], cotangents[var]
    else:
        out = tuple([values[v] for v in node.outputs])
        dout = Cotangents(node.outputs, cotangents)
    try:
        gradients: Any = bprop(*inputs, out, dout)
    except TypeError:
        _check_arguments(primitive, bprop, len(inputs))
        raise
    if not isinstance(gradients, tuple):
        raise BpropError(
            f"{primitive.name} bprop returned {_what(gradients)}; return a tuple with one gradient "
            f"per input, {len(inputs)} here, as (dx,)"
        )
    if len(gradients) != len(inputs):
        raise BpropError(
            f"{primitive.name} bprop returned {len(gradients)} gradients for {len(inputs)} inputs; "
            "return one per input, None where there is none"
        )
    if node.consts:
        const = {i for i, _ in primitive._const}
        gradients = [g for i, g in enumerate(gradients) if i not in const]
    return [
        _fitted(node, i, gradient, var.abstract)
        for i, (gradient, var) in enumerate(zip(gradients, node.inputs, strict=True))
    ]


def _check_arguments(primitive: Primitive, bprop: Bprop, count: int) -> None:
    """BpropError for a bprop that does not take the inputs, out and dout, or is no function."""
    if not callable(bprop):
        raise BpropError(
            f"{primitive.name} has a getter that returned {_what(bprop)}; it returns the bprop: "
            "def get_bprop(self): return lambda x, out, dout: (dx,)"
        )
    taken = inspect.signature(bprop)
    try:
        taken.bind(*range(count + 2))
    except TypeError:
        named = primitive.input_names or [f"x{i}" for i in range(count)]
        raise BpropError(
            f"{primitive.name} bprop takes {taken}; it gets ({', '.join(named)}, out, dout)"
        ) from None


class Cotangents(tuple[Any, ...]):
    """The cotangents of a node's outputs, which knows which of them something has given."""

    used: tuple[bool, ...]

    def __new__(cls, outputs: Sequence[Var], cotangents: dict[Var, Any]) -> Cotangents:
        made = super().__new__(cls, [_cotangent(v, cotangents) for v in outputs])
        made.used = tuple([v in cotangents for v in outputs])
        return made


def used(dout: tuple[Any, ...], index: int) -> bool:
    """False where nothing uses that output, so that its cotangent is zeros and terms can go."""
    return dout.used[index] if isinstance(dout, Cotangents) else True


def _cotangent(var: Var, cotangents: dict[Var, Any]) -> Any:
    """dout of one output: zeros where nothing uses a float output, None for an integer one."""
    if var in cotangents:
        return cotangents[var]
    abstract = var.abstract
    return ops.zeros(abstract.shape, abstract.dtype) if is_float(abstract.dtype) else None


def _fitted(node: Node, index: int, gradient: Any, wanted: Abstract) -> Any:
    """The gradient in the input's shape: summed down where it has the output's broadcast shape."""
    if gradient is None or not is_float(wanted.dtype):
        return None
    if isinstance(gradient, Tensor) and gradient._abstract is wanted:
        return gradient
    if not isinstance(gradient, Tensor):
        raise BpropError(
            f"{node.primitive.name} bprop returned {_what(gradient)} for input {index}; return a "
            f"tensor {wanted}, or None"
        )
    if gradient.dtype != wanted.dtype:
        raise BpropError(
            f"{node.primitive.name} bprop returned {_what(gradient)} for input {index}, which is "
            f"{wanted}; cast the gradient to {wanted.dtype.name}"
        )
    if gradient.shape == wanted.shape:
        return gradient
    if gradient.shape == node.outputs[0].abstract.shape and _broadcasts(
        wanted.shape, gradient.shape
    ):
        return ops.sum_to(gradient, wanted.shape)
    raise BpropError(
        f"{node.primitive.name} bprop returned {_what(gradient)} for input {index}, which is "
        f"{wanted}; a gradient has its input's shape (or the output's, if that input was broadcast)"
    )


def _broadcasts(small: tuple[int, ...], large: tuple[int, ...]) -> bool:
    tail = large[len(large) - len(small) :]
    return len(small) <= len(large) and all(s in (1, t) for s, t in zip(small, tail, strict=True))


def _what(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"{value.dtype.name}[{', '.join(map(str, value.shape))}]"
    return (
        f"{type(value).__name__} {value!r}"
        if isinstance(value, (int, float))
        else type(value).__name__
    )


def pull_graph(graph: Graph, inputs: Sequence[Any], douts: Sequence[Any]) -> list[Any]:
    """Gradients of a graph without state, in the current trace: one per input, zeros where none
    passes and None for integers. The graph is computed again for its inner values."""
    values: dict[Var, Any] = dict(zip(graph.inputs, inputs, strict=True))
    values.update((v, Tensor(v.abstract.value)) for v in graph.constants)
    trace = current_trace()
    depends, recorded = set(graph.inputs), []
    with pinned() as pin:
        for node in graph.nodes:
            given = interleave(node.primitive, [values[v] for v in node.inputs], dict(node.consts))
            pin.move(node.where)
            outs = trace.bind(node.primitive, given)
            values.update(zip(node.outputs, outs, strict=True))
            if node.primitive.differentiable and not depends.isdisjoint(node.inputs):
                depends.update(node.outputs)
                recorded.append(node)
    cotangents: dict[Var, Any] = {}
    for var, dout in zip(graph.outputs, douts, strict=True):
        if dout is not None:
            cotangents[var] = ops.add(cotangents[var], dout) if var in cotangents else dout
    backward(recorded, values, cotangents)
    return [_cotangent(v, cotangents) for v in graph.inputs]
