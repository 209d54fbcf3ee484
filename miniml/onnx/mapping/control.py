"""ONNX's control flow and recurrent layers.

Parts: branches, loops and scans, whose bodies are graphs; RNN, GRU and LSTM as scans.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ... import ops
from ...core.abstract import Abstract, bool_, int64
from ...core.errors import MinimlError, OnnxError
from ...core.tensor import Tensor
from ..operators import Floats, Ints, Strings, Subgraph, register_operator, register_writer
from ..reader import Node
from ..tensors import counted, extent, number
from .elementwise import hard_sigmoid, leaky_relu, thresholded_relu

# --- Branches, loops and scans --------------------------------------------------------------------


@register_operator("", "If", (1, None))
def branch(cond: Any, *, then_branch: Subgraph, else_branch: Subgraph, node: Node) -> Any:
    if isinstance(cond, np.ndarray):  # known: the other branch may have other shapes
        return node.run(then_branch if cond.item() else else_branch)
    try:
        return ops.cond(
            ops.reshape(cond, ()), lambda: _tensors(node.run(then_branch)),
            lambda: _tensors(node.run(else_branch)),
        )  # fmt: skip
    except MinimlError as error:  # probably in the branch that no call of the user's takes
        if not node.may_be_known or node.to_know in str(error):
            raise
        raise OnnxError(
            f"{error}; both branches were read, since the condition {node.inputs[0]!r} is not "
            f"known: {node.to_know}, and only the branch taken is read"
        ) from error


def _tensors(values: Any) -> tuple[Any, ...]:
    """Values as tensors, as branches and loops must return them."""
    return tuple(Tensor(v) if isinstance(v, np.ndarray) else v for v in values)


@register_operator("", "Loop", (1, None))
def loop(count: Any = None, cond: Any = None, *carried: Any, body: Subgraph, node: Node) -> Any:
    """With a known count a scan, whose rows are the scan outputs; else a while loop, without rows.
    A loop whose body must know its inputs is unrolled."""
    always = cond is None or (isinstance(cond, np.ndarray) and bool(cond.item()))
    count = number(count) if isinstance(count, np.ndarray) else count
    if not node.scope.constants.isdisjoint(v.name for v in body.input):
        return _unrolled(count, np.array(True) if cond is None else cond, carried, body, node)
    if always and count is None and _goes_on(body):
        raise OnnxError("never ends: it has neither a count nor a condition that changes")
    if always and isinstance(count, int) and _goes_on(body):
        return _counted(count, carried, body, node)
    if len(body.output) > 1 + len(carried):
        raise OnnxError(
            "gives one row of scan outputs a turn, and how many turns there are is not known when "
            f"the model is read; {node.to_know}"
        )
    return _while(count, cond, carried, body, node)


def _goes_on(body: Any) -> bool:
    """True where a body passes its condition on unchanged."""
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


def _unrolled(count: Any, going: Any, carried: Any, body: Any, node: Node) -> Any:
    turn = 0
    rows: list[list[Any]] = [[] for _ in body.output[1 + len(carried) :]]
    while True:
        if not isinstance(going, np.ndarray) or not isinstance(count, int | None):
            raise OnnxError(
                "has a body that must be read turn by turn, and an end that is not known when the "
                f"model is read; {node.to_know}"
            )
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
    """A scan over axis 1 for each index of axis 0."""
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


# --- Recurrent layers -----------------------------------------------------------------------------


Function = Callable[[Any], Any]
Step = Callable[[Any, Any, Any, list[Function]], Any]


@register_operator("", "RNN", (7, None))
def rnn(
    x: Any, w: Any, r: Any, b: Any = None, sequence_lens: Any = None, initial_h: Any = None, *,
    activation_alpha: Floats | None = None, activation_beta: Floats | None = None,
    activations: Strings = ("Tanh", "Tanh"), clip: float | None = None,
    direction: str = "forward", hidden_size: int | None = None, layout: int = 0,
) -> Any:  # fmt: skip
    """h' = f(x w^T + h r^T + b)."""
    _checked(hidden_size, r)

    def step(row: Any, states: Any, weights: Any, functions: list[Function]) -> Any:
        wx, wh, bias = weights
        bx, bh = _biases(bias)
        total = ops.add(_product(row, wx, bx), _product(states[0], wh, bh))
        return (functions[0](_clipped(total, clip)),)

    functions = _functions(activations[: r.shape[0]], activation_alpha, activation_beta)
    weights, states = [w, r, b], [initial_h]
    return _directions(step, x, weights, states, sequence_lens, functions, direction, layout)


@register_operator("", "GRU", (7, None))
def gru(
    x: Any, w: Any, r: Any, b: Any = None, sequence_lens: Any = None, initial_h: Any = None, *,
    activation_alpha: Floats | None = None, activation_beta: Floats | None = None,
    activations: Strings | None = None, clip: float | None = None, direction: str = "forward",
    hidden_size: int | None = None, layout: int = 0, linear_before_reset: int = 0,
) -> Any:  # fmt: skip
    """h' = (1 - z) n + z h, with update gate z, reset gate r and new state n, in this order."""
    _checked(hidden_size, r)

    def step(row: Any, states: Any, weights: Any, functions: list[Function]) -> Any:
        (h,), (wx, wh, bias) = states, weights
        bx, bh = _biases(bias)
        f, g = functions
        xz, xr, xn = ops.split(_product(row, wx, bx), 3, -1)
        wz, wr, wn = ops.split(wh, 3, 0)
        bz, br, bn = (None,) * 3 if bh is None else ops.split(bh, 3, 0)
        z = f(_clipped(ops.add(xz, _product(h, wz, bz)), clip))
        reset = f(_clipped(ops.add(xr, _product(h, wr, br)), clip))
        if linear_before_reset:
            inner = ops.mul(reset, _product(h, wn, bn))
        else:
            inner = _product(ops.mul(reset, h), wn, bn)
        new = g(_clipped(ops.add(xn, inner), clip))
        return (ops.add(ops.mul(ops.sub(1.0, z), new), ops.mul(z, h)),)

    names = activations or ("Sigmoid", "Tanh") * r.shape[0]
    functions = _functions(names, activation_alpha, activation_beta)
    weights, states = [w, r, b], [initial_h]
    return _directions(step, x, weights, states, sequence_lens, functions, direction, layout)


@register_operator("", "LSTM", (7, None))
def lstm(
    x: Any, w: Any, r: Any, b: Any = None, sequence_lens: Any = None, initial_h: Any = None,
    initial_c: Any = None, peepholes: Any = None, *, activation_alpha: Floats | None = None,
    activation_beta: Floats | None = None, activations: Strings | None = None,
    clip: float | None = None, direction: str = "forward", hidden_size: int | None = None,
    input_forget: int = 0, layout: int = 0,
) -> Any:  # fmt: skip
    """c' = f c + i n and h' = o tanh(c'), with gates input, output, forget and cell n, in this
    order; peepholes add p c to the gates."""
    return lstm_of(
        x, w, r, b, sequence_lens, initial_h, initial_c, peepholes, activation_alpha,
        activation_beta, activations, clip, direction, hidden_size, input_forget, layout,
    )  # fmt: skip


def lstm_of(
    x: Any, w: Any, r: Any, b: Any, sequence_lens: Any, initial_h: Any, initial_c: Any,
    peepholes: Any, alpha: Floats | None, beta: Floats | None, activations: Strings | None,
    clip: float | None, direction: str, hidden_size: int | None, input_forget: int, layout: int,
    seen: Callable[[Any], Any] = lambda h: h,
) -> tuple[Any, ...]:  # fmt: skip
    """An LSTM. seen: what its products take the hidden state for."""
    _checked(hidden_size, r)

    def step(row: Any, states: Any, weights: Any, functions: list[Function]) -> Any:
        (h, c), (wx, wh, bias, peep) = states, weights
        bx, bh = _biases(bias)
        f, g, last = functions
        total = ops.add(_product(row, wx, bx), _product(seen(h), wh, bh))
        i, o, forget, new = ops.split(total, 4, -1)
        pi, po, pf = (None,) * 3 if peep is None else ops.split(peep, 3, 0)
        i = f(_clipped(_peeped(i, pi, c), clip))
        forget = ops.sub(1.0, i) if input_forget else f(_clipped(_peeped(forget, pf, c), clip))
        after = ops.add(ops.mul(forget, c), ops.mul(i, g(_clipped(new, clip))))
        return ops.mul(f(_clipped(_peeped(o, po, after), clip)), last(after)), after

    names = activations or ("Sigmoid", "Tanh", "Tanh") * r.shape[0]
    functions = _functions(names, alpha, beta)
    weights, states = [w, r, b, peepholes], [initial_h, initial_c]
    return _directions(step, x, weights, states, sequence_lens, functions, direction, layout)


def _peeped(gate: Any, p: Any, c: Any) -> Any:
    return gate if p is None else ops.add(gate, ops.mul(p, c))


def _checked(hidden_size: int | None, r: Any) -> None:
    if len(r.shape) != 3 or hidden_size not in (None, r.shape[-1]):
        raise OnnxError(f"has hidden_size {hidden_size} and recurrent weights {tuple(r.shape)}")


def _product(x: Any, w: Any, bias: Any) -> Any:
    out = ops.matmul(x, w, transpose_y=True)
    return out if bias is None else ops.add(out, bias)


def _clipped(x: Any, clip: float | None) -> Any:
    return x if clip is None else ops.clip(x, -clip, clip)


def _biases(b: Any) -> tuple[Any, Any]:
    return (None, None) if b is None else tuple(ops.split(b, 2, 0))  # type: ignore[return-value]


def _functions(names: Strings, alpha: Floats | None, beta: Floats | None) -> list[Function]:
    """Activations by name; those with parameters take the next of the given numbers."""
    given = {"alpha": list(alpha or ()), "beta": list(beta or ())}
    made: list[Function] = []
    for name in names:
        if name.lower() not in _ACTIVATIONS:
            raise OnnxError(f"activation {name!r} is unknown; known are {', '.join(_ACTIVATIONS)}")
        function, takes = _ACTIVATIONS[name.lower()]
        made.append(partial(function, **{k: given[k].pop(0) for k in takes if given[k]}))
    return made


def _affine(x: Any, alpha: float = 1.0, beta: float = 0.0) -> Any:
    return ops.add(ops.mul(x, alpha), beta)


def _scaled_tanh(x: Any, alpha: float = 1.0, beta: float = 1.0) -> Any:
    return ops.mul(ops.tanh(ops.mul(x, beta)), alpha)


_ACTIVATIONS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "relu": (ops.relu, ()),
    "tanh": (ops.tanh, ()),
    "sigmoid": (ops.sigmoid, ()),
    "softsign": (ops.softsign, ()),
    "softplus": (ops.softplus, ()),
    "affine": (_affine, ("alpha", "beta")),
    "leakyrelu": (leaky_relu, ("alpha",)),
    "thresholdedrelu": (thresholded_relu, ("alpha",)),
    "scaledtanh": (_scaled_tanh, ("alpha", "beta")),
    "hardsigmoid": (hard_sigmoid, ("alpha", "beta")),
    "elu": (ops.elu, ("alpha",)),
}


def _directions(
    step: Step,
    x: Any,
    weights: list[Any],
    states: list[Any],
    lengths: Any,
    functions: list[Function],
    direction: str,
    layout: int,
) -> tuple[Any, ...]:
    """All rows of the first state, (T, D, N, H), and the final value of each state, (D, N, H).

    step(row, states, weights, functions) returns the next states. weights, of which the second are
    the recurrent ones, and states, None for zeros: with the direction as first axis. layout 1:
    batches first, in arguments and results.
    """
    if direction not in ("forward", "reverse", "bidirectional"):
        raise OnnxError(f"direction {direction!r} is not forward, reverse or bidirectional")
    ways = {"forward": (False,), "reverse": (True,)}.get(direction, (False, True))
    if layout:
        x = ops.swapaxes(x, 0, 1)
        states = [None if s is None else ops.swapaxes(s, 0, 1) for s in states]
    shape = (weights[1].shape[0], extent(x, 1), weights[1].shape[-1])
    states = [ops.zeros(shape, x.dtype) if s is None else s for s in states]
    per_way = len(functions) // len(ways)
    found = [
        _one_way(
            step, x, [_at(w, d) for w in weights], [_at(s, d) for s in states], lengths,
            functions[d * per_way : (d + 1) * per_way], back,
        )
        for d, back in enumerate(ways)
    ]  # fmt: skip
    rows = ops.stack([rows for rows, _ in found], 1)
    finals = [ops.stack(list(parts), 0) for parts in zip(*(f for _, f in found), strict=True)]
    if layout:
        rows = ops.transpose(rows, (2, 0, 1, 3))
        finals = [ops.swapaxes(f, 0, 1) for f in finals]
    return (rows, *finals)


def _at(x: Any, d: int) -> Any:
    return None if x is None else ops.squeeze(ops.slice(x, d, d + 1), 0)


def _one_way(
    step: Step, x: Any, weights: list[Any], states: list[Any], lengths: Any,
    functions: list[Function], back: bool,
) -> tuple[Any, tuple[Any, ...]]:  # fmt: skip
    """One direction; beyond a sequence's length a state does not change, and its rows are 0."""
    turns = counted(extent(x, 0))
    limit = None if lengths is None else ops.reshape(ops.cast(lengths, int64), (-1, 1))

    def advance(carry: Any, item: Any) -> Any:
        row, turn = item
        after = step(row, carry, weights, functions)
        if limit is None:
            return tuple(after), after[0]
        inside = ops.less(turn, limit)
        kept = tuple(ops.where(inside, a, b) for a, b in zip(after, carry, strict=True))
        return kept, ops.where(inside, after[0], ops.zeros_like(after[0]))

    rows, final = ops.scan(advance, tuple(states), (x, turns), reverse=back)
    return rows, final


# --- The way back ---------------------------------------------------------------------------------


@register_writer(ops.Cond)
def write_cond(emit: Any, node: Any, pred: Any, *operands: Any) -> Any:
    p = node.primitive

    def branch(graph: Any, takes: Any) -> Any:
        return emit.subgraph(graph.name, lambda: emit.inline(graph, [operands[i] for i in takes]))

    yes, no = branch(p.on_true, p.true_takes), branch(p.on_false, p.false_takes)
    return emit.several(len(node.outputs), "If", pred, then_branch=yes, else_branch=no)


@register_writer(ops.WhileLoop)
def write_while(emit: Any, node: Any, *inputs: Any) -> Any:
    """As Loop, whose body computes the next condition; the first stands in front of it."""
    p, count = node.primitive, len(node.outputs)

    def going(values: Any) -> Any:
        return emit.inline(p.condition, [values[i] for i in p.condition_takes])

    def body(turn: Any, before: Any, *carried: Any) -> Any:
        values = (*carried, *inputs[count:])
        after = emit.inline(p.body, [values[i] for i in p.body_takes])
        return (*going((*after, *inputs[count:])), *after)

    types = [Abstract((), int64), Abstract((), bool_), *(v.abstract for v in node.outputs)]
    loop = emit.subgraph(p.body.name, body, types)
    most = None if p.most is None else np.array(p.most, np.int64)
    return emit.several(count, "Loop", most, *going(inputs), *inputs[:count], body=loop)


@register_writer(ops.Scan)
def write_scan(emit: Any, node: Any, *inputs: Any) -> Any:
    """As Scan, which takes its number of steps from rows; or, where there are none, as Loop."""
    p, count = node.primitive, len(node.outputs)
    own = p.carried + p.scanned
    types = [v.abstract for v in p.body.inputs[:own]]
    if not p.scanned:
        return _written_as_loop(emit, node, inputs, types)
    body = emit.subgraph(
        p.body.name, lambda *own: emit.inline(p.body, (*own, *inputs[len(own) :])), types
    )
    way = int(p.reverse)
    return emit.several(
        count, "Scan", *inputs[:own], body=body, num_scan_inputs=p.scanned,
        scan_input_directions=(way,) * p.scanned,
        scan_output_directions=(way,) * (count - p.carried),
    )  # fmt: skip


def _written_as_loop(emit: Any, node: Any, inputs: Any, types: Any) -> Any:
    p = node.primitive
    if p.reverse and len(node.outputs) > p.carried:
        raise OnnxError("a scan in reverse over no rows is not written; scan over ops.arange(n)")
    kinds = [Abstract((), int64), Abstract((), bool_), *types]

    def body(turn: Any, going: Any, *carried: Any) -> Any:
        return (going, *emit.inline(p.body, (*carried, *inputs[p.carried :])))

    steps = emit("Squeeze", emit.extents(p.length), np.array([0], np.int64))
    loop = emit.subgraph(p.body.name, body, kinds)
    carried = inputs[: p.carried]
    return emit.several(len(node.outputs), "Loop", steps, np.array(True), *carried, body=loop)
