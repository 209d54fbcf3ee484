"""Recurrent layers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ... import ops
from ...dtype import int64
from ...errors import OnnxError
from ..known import counted, extent
from ..operators import Floats, Strings, register_operator
from .activation import elu, hard_sigmoid, leaky_relu, thresholded_relu

Function = Callable[[Any], Any]


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
    "elu": (elu, ("alpha",)),
}


def _functions(names: Strings, alpha: Floats | None, beta: Floats | None) -> list[Function]:
    """Activations by name; each that takes numbers takes the next of those given."""
    given = {"alpha": list(alpha or ()), "beta": list(beta or ())}
    made: list[Function] = []
    for name in names:
        if name.lower() not in _ACTIVATIONS:
            raise OnnxError(f"activation {name!r} is unknown; known are {', '.join(_ACTIVATIONS)}")
        function, takes = _ACTIVATIONS[name.lower()]
        made.append(partial(function, **{k: given[k].pop(0) for k in takes if given[k]}))
    return made


Step = Callable[[Any, Any, Any, list[Function]], Any]


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
    """All rows of the first state, (T, D, N, H), and the last of each state, (D, N, H).

    step(row, states, weights, functions) gives the next states. weights, states: with the
    direction as first axis. layout 1: batches first, in arguments and results.
    """
    if direction not in ("forward", "reverse", "bidirectional"):
        raise OnnxError(f"direction {direction!r} is not forward, reverse or bidirectional")
    ways = {"forward": (False,), "reverse": (True,)}.get(direction, (False, True))
    if layout:
        x, states = ops.swapaxes(x, 0, 1), [ops.swapaxes(s, 0, 1) for s in states]
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
    """One direction: a state stays as it is, and its rows are 0, beyond a sequence's length."""
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


def _product(x: Any, w: Any, bias: Any) -> Any:
    out = ops.matmul(x, w, transpose_y=True)
    return out if bias is None else ops.add(out, bias)


def _clipped(x: Any, clip: float | None) -> Any:
    return x if clip is None else ops.clip(x, -clip, clip)


def _zeros(x: Any, r: Any, layout: int) -> Any:
    batch = extent(x, 0 if layout else 1)
    shape = (batch, r.shape[0]) if layout else (r.shape[0], batch)
    return ops.zeros((*shape, r.shape[-1]), x.dtype)


def _biases(b: Any) -> tuple[Any, Any]:
    return (None, None) if b is None else tuple(ops.split(b, 2, 0))  # type: ignore[return-value]


def _checked(hidden_size: int | None, r: Any) -> None:
    if len(r.shape) != 3 or hidden_size not in (None, r.shape[-1]):
        raise OnnxError(f"has hidden_size {hidden_size} and recurrent weights {tuple(r.shape)}")


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

    names = activations[: r.shape[0]]
    functions = _functions(names, activation_alpha, activation_beta)
    state = _zeros(x, r, layout) if initial_h is None else initial_h
    return _directions(step, x, [w, r, b], [state], sequence_lens, functions, direction, layout)


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
    state = _zeros(x, r, layout) if initial_h is None else initial_h
    return _directions(step, x, [w, r, b], [state], sequence_lens, functions, direction, layout)


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
    _checked(hidden_size, r)

    def step(row: Any, states: Any, weights: Any, functions: list[Function]) -> Any:
        (h, c), (wx, wh, bias, peep) = states, weights
        bx, bh = _biases(bias)
        f, g, last = functions
        total = ops.add(_product(row, wx, bx), _product(h, wh, bh))
        i, o, forget, new = ops.split(total, 4, -1)
        pi, po, pf = (None,) * 3 if peep is None else ops.split(peep, 3, 0)
        i = f(_clipped(_peeped(i, pi, c), clip))
        forget = ops.sub(1.0, i) if input_forget else f(_clipped(_peeped(forget, pf, c), clip))
        after = ops.add(ops.mul(forget, c), ops.mul(i, g(_clipped(new, clip))))
        return ops.mul(f(_clipped(_peeped(o, po, after), clip)), last(after)), after

    names = activations or ("Sigmoid", "Tanh", "Tanh") * r.shape[0]
    functions = _functions(names, activation_alpha, activation_beta)
    states = [_zeros(x, r, layout) if s is None else s for s in (initial_h, initial_c)]
    weights = [w, r, b, peepholes]
    return _directions(step, x, weights, states, sequence_lens, functions, direction, layout)


def _peeped(gate: Any, p: Any, c: Any) -> Any:
    return gate if p is None else ops.add(gate, ops.mul(p, c))
