"""Reverse mode: walk recorded nodes backwards and let each bprop turn dout into input gradients."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

from .. import ops
from ..abstract import typed
from ..bprop import Bprop, bprop_getters
from ..dtype import is_float
from ..errors import BpropError
from ..graph.ir import Graph, Var, interleave
from ..graph.record import Call
from ..location import pinned, point_at
from ..ops.shape import broadcasts_to
from ..primitive import Primitive
from ..settings import context, current
from ..tensor import Tensor
from ..trace import current_trace
from .blame import note_bprop


def backward(calls: Sequence[Call], cotangents: dict[Var, Any]) -> dict[Var, Any]:
    """Gradients of every Var that the seeds reach, by the chain rule.

    calls: in the order they were made; their values belong to the current trace, in which the
    gradients are computed too, without autocast: in the dtypes of the calls. cotangents: the seeds,
    by output Var; it is extended and returned.
    Raises BpropNotFoundError or BpropError, pointing at the forward call.
    """
    plainly = nullcontext() if current().autocast is None else context(autocast=False)
    with plainly, pinned() as pin:
        for call in reversed(calls):
            if cotangents.keys().isdisjoint(call.outputs):
                continue
            pin.move(call.where)
            try:
                _pull(call, cotangents)
            except Exception as error:
                point_at(error, call.where)
                note_bprop(error, call.primitive)
                raise
    return cotangents


def _pull(call: Call, cotangents: dict[Var, Any]) -> None:
    """Add the gradients of the recorded inputs of a call; all that its bprop gives is checked."""
    gradients = _gradients(call, cotangents)
    for i, (gradient, x, var) in enumerate(zip(gradients, call.given, call.inputs, strict=True)):
        if gradient is None:
            continue
        if var is None or type(gradient) is not Tensor or gradient._kind is not x._kind:
            gradient = _fitted(call, i, gradient, x)
        elif not x._kind.is_float:
            continue
        if var is not None and gradient is not None:
            known = cotangents.get(var)
            cotangents[var] = gradient if known is None else known + gradient


def _gradients(call: Call, cotangents: dict[Var, Any]) -> tuple[Any, ...]:
    """What the bprop of a call returns, one for each input."""
    primitive, given = call.primitive, call.given
    bprop = bprop_getters.get(primitive)
    out: Any = call.outs
    dout: Any
    if primitive._single:
        (out,), (var,) = call.outs, call.outputs
        dout = cotangents[var]
    else:
        dout = Cotangents(call.outputs, cotangents, call.inputs)
    try:
        gradients: Any = bprop(*given, out, dout)
    except TypeError:
        _check_arguments(primitive, bprop, len(given))
        raise
    if not isinstance(gradients, tuple):
        raise BpropError(
            f"{primitive.name} bprop returned {_what(gradients)}; return a tuple with one gradient "
            f"per input, {len(given)} here, as (dx,)"
        )
    if len(gradients) != len(given):
        raise BpropError(
            f"{primitive.name} bprop returned {len(gradients)} gradients for {len(given)} inputs; "
            "return one per input, None where there is none"
        )
    return gradients


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
    """The cotangents of a node's outputs, which knows which of them something has given, and which
    inputs are differentiated."""

    used: tuple[bool, ...]
    needed: tuple[bool, ...]

    def __new__(
        cls, outputs: Sequence[Var], cotangents: dict[Var, Any], inputs: Sequence[Var | None]
    ) -> Cotangents:
        made = super().__new__(cls, [_cotangent(v, cotangents) for v in outputs])
        made.used = tuple([v in cotangents for v in outputs])
        made.needed = tuple([v is not None for v in inputs])
        return made


def used(dout: tuple[Any, ...], index: int) -> bool:
    """False where nothing uses that output, so that its cotangent is zeros and terms can go."""
    return dout.used[index] if isinstance(dout, Cotangents) else True


def needed(dout: tuple[Any, ...], index: int) -> bool:
    """False where that input is not differentiated, so that its gradient need not be computed."""
    return dout.needed[index] if isinstance(dout, Cotangents) else True


def _cotangent(var: Var, cotangents: dict[Var, Any]) -> Any:
    """dout of one output: zeros where nothing uses a float output, None for an integer one."""
    if var in cotangents:
        return cotangents[var]
    abstract = var.abstract
    return ops.zeros(abstract.shape, abstract.dtype) if is_float(abstract.dtype) else None


def _fitted(call: Call, index: int, gradient: Any, x: Any) -> Any:
    """The gradient in the input's shape: summed down where it has the output's broadcast shape."""
    if not isinstance(x, Tensor) or not is_float(x.dtype):  # a const input, or integers
        return None
    wanted = x._abstract
    if not isinstance(gradient, Tensor):
        raise BpropError(
            f"{call.primitive.name} bprop returned {_what(gradient)} for input {index}; return a "
            f"tensor {wanted}, or None"
        )
    if gradient.dtype != wanted.dtype:
        raise BpropError(
            f"{call.primitive.name} bprop returned {_what(gradient)} for input {index}, which is "
            f"{wanted}; cast the gradient to {wanted.dtype.name}"
        )
    if gradient.shape == wanted.shape:
        return gradient
    if gradient.shape == call.outs[0].shape and broadcasts_to(wanted.shape, gradient.shape):
        return ops.sum_to(gradient, wanted.shape)
    raise BpropError(
        f"{call.primitive.name} bprop returned {_what(gradient)} for input {index}, which is "
        f"{wanted}; a gradient has its input's shape (or the output's, if that input was broadcast)"
    )


def _what(value: Any) -> str:
    if isinstance(value, Tensor):
        return typed(value)
    return (
        f"{type(value).__name__} {value!r}"
        if isinstance(value, (int, float))
        else type(value).__name__
    )


def pull_graph(graph: Graph, inputs: Sequence[Any], douts: Sequence[Any]) -> list[Any]:
    """Gradients of a graph without state, in the current trace: one per input, zeros where none
    passes and None for integers. The graph is computed again for its inner values."""
    found = pull_values(graph, dict(zip(graph.inputs, inputs, strict=True)), douts)
    return [_cotangent(v, found) for v in graph.inputs]


def pull_values(graph: Graph, known: dict[Var, Any], douts: Sequence[Any]) -> dict[Var, Any]:
    """The gradients of all Vars of a graph without state that any reaches, in the current trace.

    known: the values of the inputs, and of those inner Vars that need not be computed again.
    douts: one per output, None where there is none.
    """
    values = dict(known)
    values.update((v, Tensor(v.abstract.value)) for v in graph.constants)
    trace = current_trace()
    depends, calls = set(graph.inputs), []
    with pinned() as pin:
        for node in graph.nodes:
            given = interleave(node.primitive, [values[v] for v in node.inputs], dict(node.consts))
            pin.move(node.where)
            if any(v not in values for v in node.outputs):
                outs = trace.bind(node.primitive, given)
                values.update(zip(node.outputs, outs, strict=True))
            outs = tuple([values[v] for v in node.outputs])
            if node.primitive.differentiable and not depends.isdisjoint(node.inputs):
                varying: list[Any] = [v if v in depends else None for v in node.inputs]
                to = interleave(node.primitive, varying, dict.fromkeys(dict(node.consts)))
                depends.update(node.outputs)
                calls.append(Call(node.primitive, given, to, outs, node.outputs, node.where))
    cotangents: dict[Var, Any] = {}
    for var, dout in zip(graph.outputs, douts, strict=True):
        if dout is not None:
            cotangents[var] = ops.add(cotangents[var], dout) if var in cotangents else dout
    return backward(calls, cotangents)
