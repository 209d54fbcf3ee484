"""Recurrent layers, as one scan for each layer and direction: RNN, LSTM, GRU; and single steps."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from .. import ops
from ..core.errors import DTypeError
from ..core.options import counts, flag, probability
from ..core.parameter import Parameter
from ..core.tensor import Tensor
from ..ops.checks import composition
from ..ops.composed.losses import checked
from . import init
from .cell import Cell
from .layer import beside, refuse_shape, shape_of
from .linear import affine

__all__ = ["GRU", "GRUCell", "LSTM", "LSTMCell", "RNN", "RNNCell"]


class Recurrent(Cell):
    """Base of layers that carry states of shape (N, n) from step to step."""

    _shown = "n_in", "n"
    gates: ClassVar[int]
    states: ClassVar[int] = 1
    weight_ih_l0: Parameter

    def __init__(
        self,
        n_in: int,
        n: int,
        num_layers: int = 1,
        bidirectional: bool = False,
        batch_first: bool = False,
        dropout: float = 0.0,
        bias: bool = True,
    ):
        """n_in, n: features of the input and of a state. A layer k above 0 reads the output of
        layer k - 1.

        Weights have PyTorch's names and shapes, and start uniform in +-1 / sqrt(n):
        weight_ih_l{k} (gates * n, inputs), weight_hh_l{k} (gates * n, n), bias_ih_l{k} and
        bias_hh_l{k} (gates * n,), and the same with "_reverse" at the end. bias=False: the last
        two are None.

        dropout: in training, the probability with which an output of a layer becomes 0 before the
        next layer reads it, the others being divided by 1 - dropout; those of the last layer stay.
        """
        layer = type(self).__name__
        n_in, n, num_layers = counts(layer, n_in=n_in, n=n, num_layers=num_layers)
        self.n_in, self.n, self.num_layers = n_in, n, num_layers
        self.bidirectional = flag(layer, "bidirectional", bidirectional)
        self.batch_first = flag(layer, "batch_first", batch_first)
        self.dropout = probability(layer, "dropout", dropout)
        self.bias = flag(layer, "bias", bias)
        for k, suffix in self._directions():
            inputs = n_in if k == 0 else n * (1 + self.bidirectional)
            _draw(self, self.gates * n, inputs, n, self.bias, f"_l{k}{suffix}")

    @staticmethod
    @abstractmethod
    def step(x: Any, h: Any, *others: Any) -> tuple[Any, ...]:
        """The next states, of the products of the row (with bias) and of the first state (with
        bias), then the states before."""

    if TYPE_CHECKING:

        def __call__(  # type: ignore[override]
            self, x: Any, state: Any = None, lengths: Any = None
        ) -> tuple[Tensor, Any]: ...

    def construct(self, x: Any, state: Any = None, lengths: Any = None) -> Any:
        """The output of the last layer for each step, and the states after the last step.

        x: (T, N, n_in), or (N, T, n_in) with batch_first; the output has n features, or with
        bidirectional 2 n, the backward direction's after the forward one's. A state has shape
        (layers, N, n), each layer's backward direction after its forward one.

        state: the initial one, of that shape, cast to the output's dtype; zeros by default.
        lengths: the number of valid steps of each sequence, integers of shape (N,) from 0 to T
        (OutOfRangeError; on a GPU more than T count as T, less than 0 as 0); the outputs after
        those are 0, the last state is that at the end of the sequence itself, and the backward
        direction begins there.
        """
        shape = shape_of(self, x)
        if len(shape) != 3 or shape[2] != self.n_in:
            refuse_shape(self, shape, f"({'N, T' if self.batch_first else 'T, N'}, {self.n_in})")
        x = beside(self.weight_ih_l0, x)
        x = ops.swapaxes(x, 0, 1) if self.batch_first else x
        first = self._first(x, state)
        real = None if lengths is None else self._real(x, lengths)
        ends: list[tuple[Any, ...]] = []
        outs: list[Any] = []
        for k, suffix in self._directions():
            if suffix == "" and outs:
                x, outs = _joined(outs), []
                x = ops.dropout(x, self.dropout) if self.training and self.dropout else x
            start = None if first is None else tuple(s[len(ends)] for s in first)
            out, end = self._run(x, f"_l{k}{suffix}", start, real)
            outs.append(out)
            ends.append(end)
        out = _joined(outs)
        last = tuple(ops.stack(parts) for parts in zip(*ends, strict=True))
        out = ops.swapaxes(out, 0, 1) if self.batch_first else out
        return out, last if self.states > 1 else last[0]

    def _directions(self) -> list[tuple[int, str]]:
        """(layer, suffix of its weights' names), in the order in which they run."""
        suffixes = ("", "_reverse") if self.bidirectional else ("",)
        return [(k, suffix) for k in range(self.num_layers) for suffix in suffixes]

    def _run(self, x: Any, suffix: str, start: Any, real: Any) -> tuple[Any, tuple[Any, ...]]:
        """One direction of one layer: its outputs and last states."""
        weights = tuple(getattr(self, name + suffix) for name in _WEIGHTS)
        backwards = suffix.endswith("_reverse")
        return _direction(self.step, self.states, x, weights, start, real, backwards)

    def _first(self, x: Any, state: Any) -> tuple[Any, ...] | None:
        """The given state as a tuple of tensors, checked."""
        if state is None:
            return None
        expected = (len(self._directions()), x.shape[1], self.n)
        given = _checked_states(self, state, self.states, expected)
        return tuple(beside(self.weight_ih_l0, part) for part in given)

    def _real(self, x: Any, lengths: Any) -> Any:
        """(T, N, 1): True where a step is within its sequence's length."""
        steps, batch = x.shape[:2]
        if shape_of(self, lengths) != (batch,):
            refuse_shape(self, shape_of(self, lengths), f"lengths of shape ({batch},)")
        lengths = beside(self.weight_ih_l0, lengths)
        if lengths.dtype.kind not in "iu":
            raise DTypeError(f"{self.describe()} got lengths of {lengths.dtype}; expected integers")
        lengths = checked(self.describe(), "length", lengths, steps + 1)
        position = np.arange(steps).reshape(steps, 1, 1).astype(lengths.dtype)
        return ops.less(position, ops.reshape(lengths, (batch, 1)))


def _draw(cell: Cell, rows: int, inputs: int, n: int, bias: bool, suffix: str = "") -> None:
    """Give a cell the weights of one direction of a layer; None for biases that it has not."""
    shapes = (rows, inputs), (rows, n), (rows,), (rows,)
    for name, shape in zip(_WEIGHTS, shapes, strict=True):
        drawn = bias or name.startswith("weight")
        value = init.symmetric_uniform(shape, 1.0 / math.sqrt(n)) if drawn else None
        setattr(cell, name + suffix, value)


@composition
def _direction(
    step: Any, states: int, x: Any, weights: Any, start: Any, real: Any, reverse: bool
) -> tuple[Any, tuple[Any, ...]]:
    """The outputs and last states of one direction of a layer."""
    w_x, w_h, b_x, b_h = weights
    rows = affine(x, w_x, b_x)  # of all steps at once
    if start is None:
        zero = ops.zeros_like(w_h[0])  # on the device of the weights
        start = (ops.broadcast_to(zero, (x.shape[1], w_h.shape[1])),) * states
    start = tuple(ops.cast(s, rows.dtype) for s in start)

    def body(before: Any, row: Any) -> Any:
        row, going = row if real is not None else (row, None)
        after = step(row, affine(before[0], w_h, b_h), *before)
        if going is None:
            return after, after[0]
        kept = (ops.where(going, a, b) for a, b in zip(after, before, strict=True))
        return tuple(kept), ops.where(going, after[0], 0.0)

    scanned = rows if real is None else (rows, real)
    out, last = ops.scan(body, start, scanned, reverse=reverse)
    return out, last


class RNN(Recurrent):
    """h' = tanh(W_ih x + b_ih + W_hh h + b_hh); `rnn(x, state=None, lengths=None)` gives (out, h).

    Source: Elman 1990, "Finding structure in time".
    Weights: see `__init__`; shapes: see `construct`.
    """

    gates = 1

    @staticmethod
    def step(x: Any, h: Any, *others: Any) -> tuple[Any, ...]:
        return (ops.tanh(x + h),)


class LSTM(Recurrent):
    """c' = f c + i g and h' = o tanh(c'); `lstm(x, state=None, lengths=None)` gives (out, (h, c)).

    i, f, o = sigmoid and g = tanh of their rows of W_ih x + b_ih + W_hh h + b_hh, which are in
    the order i, f, g, o; state: (h, c).
    Source: Hochreiter, Schmidhuber 1997, "Long short-term memory".
    Weights: see `__init__`; shapes: see `construct`.
    """

    gates, states = 4, 2

    @staticmethod
    def step(x: Any, h: Any, *others: Any) -> tuple[Any, ...]:
        i, f, g, o = ops.split(x + h, 4, axis=1)
        c = ops.sigmoid(f) * others[1] + ops.sigmoid(i) * ops.tanh(g)
        return ops.sigmoid(o) * ops.tanh(c), c


class GRU(Recurrent):
    """h' = (1 - z) g + z h; `gru(x, state=None, lengths=None)` gives (out, h).

    r, z = sigmoid of their rows of W_ih x + b_ih + W_hh h + b_hh, and g = tanh(x_g + r h_g), of its
    rows of both products; the rows are those of r, z, g in this order. As in PyTorch r acts after
    the product with h, not on h itself. Source: Cho et al. 2014, "Learning phrase representations
    using RNN encoder-decoder".
    Weights: see `__init__`; shapes: see `construct`.
    """

    gates = 3

    @staticmethod
    def step(x: Any, h: Any, *others: Any) -> tuple[Any, ...]:
        (x_r, x_z, x_g), (h_r, h_z, h_g) = ops.split(x, 3, axis=1), ops.split(h, 3, axis=1)
        z = ops.sigmoid(x_z + h_z)
        g = ops.tanh(x_g + ops.sigmoid(x_r + h_r) * h_g)
        return (g + z * (others[0] - g),)


# --- Single steps ---------------------------------------------------------------------------------


class RecurrentCell(Cell):
    """Base of single steps of a recurrent layer, named as `of`.

    Called as cell(x, state=None) with x (N, n_in) and the state (N, n), zeros by default; gives the
    next one. Weights: weight_ih (gates n, n_in), weight_hh (gates n, n), bias_ih and bias_hh
    (gates n,), or None with bias=False, as the layer has them for its first layer.
    """

    _of: ClassVar[type[Recurrent]]
    _shown = "n_in", "n"

    def __init_subclass__(cls, of: type[Recurrent] | None = None) -> None:
        super().__init_subclass__()
        if of is not None:
            cls._of = of

    def __init__(self, n_in: int, n: int, bias: bool = True):
        self.n_in, self.n = counts(type(self).__name__, n_in=n_in, n=n)
        _draw(self, self._of.gates * n, n_in, n, flag(type(self).__name__, "bias", bias))

    def construct(self, x: Any, state: Any = None) -> Any:
        w_x, w_h, b_x, b_h = (getattr(self, name) for name in _WEIGHTS)
        shape, states = shape_of(self, x), self._of.states
        if len(shape) != 2 or shape[1] != self.n_in:
            refuse_shape(self, shape, f"(N, {self.n_in})")
        row = affine(beside(w_x, x), w_x, b_x)
        before = self._states(state, shape[0], row)
        after = self._of.step(row, affine(before[0], w_h, b_h), *before)
        return after if states > 1 else after[0]

    def _states(self, state: Any, n: int, row: Any) -> list[Any]:
        """The states before, in the dtype of the row."""
        states, expected = self._of.states, (n, self.n)
        if state is None:
            return [ops.zeros_like(row[:, : self.n])] * states
        given = _checked_states(self, state, states, expected)
        return [ops.cast(beside(row, part), row.dtype) for part in given]


class RNNCell(RecurrentCell, of=RNN):
    """One step of `RNN`: cell(x, h) gives h'."""


class LSTMCell(RecurrentCell, of=LSTM):
    """One step of `LSTM`: cell(x, (h, c)) gives (h', c')."""


class GRUCell(RecurrentCell, of=GRU):
    """One step of `GRU`: cell(x, h) gives h'."""


_WEIGHTS = "weight_ih", "weight_hh", "bias_ih", "bias_hh"


def _checked_states(cell: Cell, state: Any, count: int, expected: tuple[int, ...]) -> Any:
    """The parts of a state; DTypeError or ShapeError unless there are so many of that shape."""
    given = state if count > 1 else (state,)
    if not isinstance(given, (tuple, list)) or len(given) != count:
        got = type(state).__name__
        raise DTypeError(f"{cell.describe()} got a state of type {got}; expected (h, c)")
    for part in given:
        if shape_of(cell, part) != expected:
            refuse_shape(cell, shape_of(cell, part), f"a state of shape {expected}")
    return given


def _joined(outs: list[Any]) -> Any:
    """The outputs of a layer's directions side by side."""
    return outs[0] if len(outs) == 1 else ops.concat(outs, axis=2)
