"""Branches and loops, whose bodies are graphs."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import ops
from ...errors import OnnxError
from ...tensor import Tensor
from ..attributes import Subgraph
from ..known import extent, number
from ..operators import Ints, register_operator
from ..reader import Node


@register_operator("", "If", (1, None))
def branch(cond: Any, *, then_branch: Subgraph, else_branch: Subgraph, node: Node) -> Any:
    if isinstance(cond, np.ndarray):  # known: the other branch may have other shapes
        return node.run(then_branch if cond.item() else else_branch)
    return ops.cond(
        ops.reshape(cond, ()), lambda: _tensors(node.run(then_branch)),
        lambda: _tensors(node.run(else_branch)),
    )  # fmt: skip


def _tensors(values: Any) -> tuple[Any, ...]:
    """Values as tensors, which branches and loops give."""
    return tuple(Tensor(v) if isinstance(v, np.ndarray) else v for v in values)


@register_operator("", "Loop", (1, None))
def loop(count: Any = None, cond: Any = None, *carried: Any, body: Subgraph, node: Node) -> Any:
    """With a count that is known, a scan, whose rows are the scan outputs; else a while loop, which
    has none. A body that needs to know what it is given is run turn by turn."""
    always = cond is None or (isinstance(cond, np.ndarray) and bool(cond.item()))
    count = number(count) if isinstance(count, np.ndarray) else count
    if not node.scope.constants.isdisjoint(v.name for v in body.input):
        return _turn_by_turn(count, np.array(True) if cond is None else cond, carried, body, node)
    if always and count is None and _goes_on(body):
        raise OnnxError("never ends: it has neither a count nor a condition that changes")
    if always and isinstance(count, int) and _goes_on(body):
        return _counted(count, carried, body, node)
    if len(body.output) > 1 + len(carried):
        raise OnnxError(
            "gives one row of scan outputs a turn, and how many turns there are is not known when "
            "the model is read"
        )
    return _while(count, cond, carried, body, node)


def _goes_on(body: Any) -> bool:
    """True where a body passes its condition on as it is."""
    name, given = body.output[0].name, body.input[1].name
    made = {o: n for n in body.node for o in n.output}
    for _ in body.node:
        if name in made and made[name].op_type == "Identity":
            name = made[name].input[0]
    return bool(name == given)


def _counted(count: int, carried: Any, body: Any, node: Node) -> Any:
    going = np.array(True)

    def step(state: Any, _: None) -> Any:
        turn, values = state
        out = _tensors(node.run(body, (turn, going, *values))[1:])
        return (ops.add(turn, 1), out[: len(carried)]), out[len(carried) :]

    rows, (_, final) = ops.scan(step, (Tensor(0), tuple(carried)), length=max(count, 0))
    return (*final, *rows)


def _turn_by_turn(count: Any, going: Any, carried: Any, body: Any, node: Node) -> Any:
    turn = 0
    rows: list[list[Any]] = [[] for _ in body.output[1 + len(carried) :]]
    while True:
        if not isinstance(going, np.ndarray) or not isinstance(count, int | None):
            raise OnnxError("has a body that must be read turn by turn, and an unknown end")
        if not going.item() or turn == count:
            break
        going, *out = node.run(body, (np.array(turn), going, *carried))
        carried, turn = tuple(out[: len(carried)]), turn + 1
        for row, value in zip(rows, out[len(carried) :], strict=True):
            row.append(value)
    if rows and not turn:
        raise OnnxError("has scan outputs and takes no turn, so their shape is unknown")
    return (*carried, *map(ops.stack, rows))


def _while(count: Any, cond: Any, carried: Any, body: Any, node: Node) -> Any:
    first = np.array(True) if cond is None else ops.reshape(cond, ())

    def going(state: Any) -> Any:
        turn, more, _ = state
        return more if count is None else ops.logical_and(more, ops.less(turn, count))

    def step(state: Any) -> Any:
        turn, more, values = state
        after, *out = _tensors(node.run(body, (turn, more, *values)))
        return ops.add(turn, 1), ops.reshape(after, ()), tuple(out)

    return ops.while_loop(going, step, (np.array(0), first, tuple(carried)))[2]


@register_operator("", "Scan", (9, None))
def scan(
    *values: Any, body: Subgraph, num_scan_inputs: int, scan_input_axes: Ints | None = None,
    scan_input_directions: Ints | None = None, scan_output_axes: Ints | None = None,
    scan_output_directions: Ints | None = None, node: Node,
) -> Any:  # fmt: skip
    split = len(values) - num_scan_inputs
    axes = scan_input_axes or (0,) * num_scan_inputs
    backwards = scan_input_directions or (0,) * num_scan_inputs
    rows = tuple(
        ops.moveaxis(ops.flip(x, axis) if back else x, axis, 0)
        for x, axis, back in zip(values[split:], axes, backwards, strict=True)
    )

    def step(carry: Any, row: Any) -> Any:
        out = _tensors(node.run(body, (*carry, *row)))
        return out[:split], out[split:]

    outs, final = ops.scan(step, values[:split], rows)
    axes = scan_output_axes or (0,) * len(outs)
    backwards = scan_output_directions or (0,) * len(outs)
    moved = (ops.moveaxis(y, 0, axis) for y, axis in zip(outs, axes, strict=True))
    turned = (ops.flip(y, a) if b else y for y, a, b in zip(moved, axes, backwards, strict=True))
    return (*final, *turned)


@register_operator("", "Scan", (8, 8))
def scan_batch(
    sequence_lens: Any = None, *values: Any, body: Subgraph, num_scan_inputs: int,
    directions: Ints | None = None, node: Node,
) -> Any:  # fmt: skip
    """Over axis 1, for each index of axis 0 by itself."""
    if sequence_lens is not None:
        raise OnnxError("has sequence_lens, which miniml does not read")
    runs = [
        scan(
            *(ops.squeeze(ops.slice(v, i, i + 1), 0) for v in values), body=body,
            num_scan_inputs=num_scan_inputs, scan_input_directions=directions, node=node,
        )
        for i in range(extent(values[0], 0))
    ]  # fmt: skip
    return tuple(ops.stack(parts) for parts in zip(*runs, strict=True))
