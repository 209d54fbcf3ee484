"""Optimizers made of others: groups of parameters, accumulated gradients, averaged weights.

Then loss scaling for gradients in float16, and the clipping of gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial, reduce
from typing import Any

import numpy as np

from .. import ops
from ..core.abstract import wide
from ..core.access import Access
from ..core.errors import GradientArgumentError, GraphError, MinimlError
from ..core.options import count, flag, integer, number
from ..core.parameter import Parameter, UndoLog, publish
from ..core.scope import Layer, layers
from ..core.tensor import Tensor
from ..core.trace import computes_at_once
from ..nn import Cell
from .optimizer import Optimizer, in_dtype

__all__ = [
    "Accumulate", "EMA", "Groups", "LossScale", "SWA", "clip_by_global_norm", "clip_by_value",
]  # fmt: skip

Clip = float | Callable[[Sequence[Tensor]], Sequence[Tensor]]


class Wrapper(Optimizer):
    """Base of optimizers of all parameters of others, with their state; `new_values` uses theirs.

    prefixes: those of the names of their state.
    """

    def __init__(self, inner: Sequence[Optimizer], prefixes: Sequence[str] = ("",)):
        for i, opt in enumerate(inner):
            if not isinstance(opt, Optimizer):
                raise MinimlError(
                    f"{type(self).__name__} got {type(opt).__name__} as argument {i}; expected an "
                    "optimizer, such as optim.SGD(params, lr=0.1)"
                )
        self._hold([p for opt in inner for p in opt.params])
        self._inner, self._prefixes = tuple(inner), tuple(prefixes)
        for opt, prefix in zip(inner, prefixes, strict=True):
            self._state.update({prefix + name: p for name, p in opt._state.items()})

    @property
    def lr(self) -> Parameter:
        """The learning rate of the optimizer inside."""
        return self._inner[0].lr

    @lr.setter
    def lr(self, value: float) -> None:
        self._inner[0].lr = value

    @property
    def signature(self) -> tuple[object, ...]:
        """Changes with every assignment of an attribute, here or inside."""
        return *super().signature, *(opt.signature for opt in self._inner)

    @property
    def silent(self) -> bool:  # type: ignore[override]
        """True where that of an optimizer inside may change in place."""
        return any(opt.silent for opt in self._inner)

    def parameters_dict(self) -> dict[str, Parameter]:
        """The state by name, that of the optimizers inside included."""
        pairs = zip(self._inner, self._prefixes, strict=True)
        found = {f + name: p for opt, f in pairs for name, p in opt.parameters_dict().items()}
        return {**found, **self._state}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self._inner))})"


class Groups(Wrapper):
    """Parameter groups: several optimizers as one, each with its parameters, rule and settings.

    `Groups(SGD(body, lr=0.01), AdamW(head, lr=schedule))[0].lr = 0.001` sets one rate. The state of
    the first has names that begin with "0.", and so on. A parameter belongs to one of them.
    """

    def __init__(self, *optimizers: Optimizer):
        super().__init__(optimizers, [f"{i}." for i in range(len(optimizers))])

    def __getitem__(self, index: int) -> Optimizer:
        return self._inner[index]

    def parts(self) -> tuple[Optimizer, ...]:
        """The optimizers."""
        return self._inner

    @property
    def lr(self) -> Parameter:
        """Refused with a MinimlError, gives nothing: each group has its own."""
        raise MinimlError("Groups has a learning rate for each group; read and set groups[0].lr")

    @lr.setter
    def lr(self, value: float) -> None:
        raise MinimlError(f"Groups got lr={value!r}; set that of one group, groups[0].lr = {value}")

    def new_values(self, grads: Sequence[Tensor]) -> tuple[list[Tensor], dict[str, Tensor]]:
        """The new values of each group."""
        values: list[Tensor] = []
        state: dict[str, Tensor] = {}
        for opt, prefix in zip(self._inner, self._prefixes, strict=True):
            done = len(values)
            new, its = opt.new_values(grads[done : done + len(opt.params)])
            values += new
            state.update({prefix + name: value for name, value in its.items()})
        return values, state


class Accumulate(Wrapper):
    """Gradient accumulation: `every` updates of this are one of the optimizer, with their mean.

    The others only add to sums, which are state, in float32 for gradients of 16 bits. So `every`
    steps on parts of a batch, of equal size, do the same as one step on all of it, for a loss that
    is a mean. `every` may be set at any time. A schedule counts the updates of the optimizer. clip:
    as in `train_step`, but for the means: that of `train_step` is for the gradients of each part.
    """

    def __init__(self, optimizer: Optimizer, every: int, clip: Clip | None = None):
        super().__init__([optimizer])
        self.every = count("Accumulate", "every", every)
        self._clip = clipping("Accumulate", clip)
        self._done = self.keep("micro_steps", np.int64(0))
        self._sums = self.slots("gradient_sum")

    def new_values(self, grads: Sequence[Tensor]) -> tuple[list[Tensor], dict[str, Tensor]]:
        """The new values of the optimizer at every update that is due, else the present ones."""
        done = ops.add(self._done, 1)
        ready = ops.greater_equal(done, self.every)  # more where `every` is less than before
        old = [self._state[name] for name in self._sums]
        sums = [ops.add(s, in_dtype(g, s.dtype)) for s, g in zip(old, grads, strict=True)]
        means = self._clip([ops.div(total, in_dtype(done, total.dtype)) for total in sums])
        values, state = self._inner[0].kept(ready, *self._inner[0].new_values(means))
        state["micro_steps"] = ops.where(ready, ops.zeros_like(done), done)
        for name, total in zip(self._sums, sums, strict=True):
            state[name] = ops.where(ready, ops.zeros_like(total), total)
        return values, state


class Averaging(Wrapper):
    """Base of averages of the weights: state, in float32 for parameters of 16 bits, which starts
    with the present weights. A subclass says which share of the difference each moves by."""

    def __init__(self, optimizer: Optimizer):
        super().__init__([optimizer])
        self._averages = [f"average.{name}" for name in self._names]
        for name, p in zip(self._averages, self.params, strict=True):
            self.keep(name, p.asnumpy().astype(wide(p.dtype)))

    def share(self) -> tuple[float | Tensor, dict[str, Tensor]]:
        """The share, and new state of the subclass."""
        raise NotImplementedError

    def new_values(self, grads: Sequence[Tensor]) -> tuple[list[Tensor], dict[str, Tensor]]:
        """The new values of the optimizer, and the averages."""
        values, state = self._inner[0].new_values(grads)
        share, own = self.share()
        for name, value in zip(self._averages, values, strict=True):
            old = self._state[name]
            change = ops.sub(in_dtype(value, old.dtype), old)
            part = in_dtype(share, old.dtype) if isinstance(share, Tensor) else share
            state[name] = ops.add(old, ops.mul(part, change))
        return values, {**state, **own}

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """A block in which the parameters have the values of the averages; after it, whatever
        happened in it, they have their old values. GraphError inside a compiled step."""
        if not computes_at_once():
            who = type(self).__name__
            raise GraphError(f"{who}.averaged cannot happen inside a compiled step; do it outside")
        weights, averages = UndoLog(), [self._state[name] for name in self._averages]
        Access(type(self).__name__, self.params, averages).run(self._exchange, weights, averages)
        try:
            yield
        finally:
            weights.restore(type(self).__name__)

    def _exchange(self, weights: UndoLog, averages: Sequence[Parameter]) -> None:
        weights.note(*self.params)
        pairs = zip(self.params, averages, strict=True)
        publish([(p, in_dtype(average, p.dtype)._data) for p, average in pairs])


class EMA(Averaging):
    """Exponential moving average of the weights: after each update of the optimizer, each average a
    becomes a + (1 - decay) * (w - a). It starts with the present weights.

    `with ema.averaged(): ...` evaluates, or saves, the network with the averages as its weights.
    Averages are state, in float32 for parameters of 16 bits. Inside `Accumulate`, as in
    Accumulate(EMA(opt), every=4), it counts whole updates. Source: Polyak, Juditsky 1992, with
    the weights of PyTorch's get_ema_multi_avg_fn.
    """

    def __init__(self, optimizer: Optimizer, decay: float = 0.999):
        super().__init__(optimizer)
        self.decay = number("EMA", "decay", decay, 0, below=1)

    def share(self) -> tuple[float | Tensor, dict[str, Tensor]]:
        """1 - decay, always."""
        return 1.0 - self.decay, {}


class SWA(Averaging):
    """Stochastic weight averaging: the mean of the weights after update number `start` and then
    after each `every`-th one; before it, the weights themselves.

    `with swa.averaged(): ...` as in `EMA`; for batch norms, whose running statistics are those of
    the weights, call the network in training on some batches inside that block. Source: Izmailov
    et al. 2018, "Averaging weights leads to wider optima and better generalization".
    """

    def __init__(self, optimizer: Optimizer, start: int, every: int = 1):
        super().__init__(optimizer)
        self.start, self.every = count("SWA", "start", start), count("SWA", "every", every)
        self._done = self.keep("averaged_updates", np.int64(0))

    def share(self) -> tuple[float | Tensor, dict[str, Tensor]]:
        """1 / n for the n-th of the weights, 1 before the first of them, 0 in between."""
        done = ops.add(self._done, 1)
        since = ops.cast(ops.sub(done, self.start), np.float64)
        number = ops.floor(ops.div(since, float(self.every)))
        due = ops.equal(ops.mul(number, float(self.every)), since)
        mean = ops.where(due, ops.reciprocal(ops.maximum(ops.add(number, 1.0), 1.0)), 0.0)
        return ops.where(ops.less(since, 0.0), 1.0, mean), {"averaged_updates": done}


# --- Loss scaling ---------------------------------------------------------------------------------


_MOST = 2.0**126  # twice this is still a float32


class LossScale(Cell):
    """The factor of a loss, which its gradients are divided by again before an update.

    `train_step(net, loss, opt, loss_scale=LossScale())` does all of it: a step with a gradient that
    is not finite changes nothing but the scale. dynamic: after such a step the scale is divided by
    `factor`, down to 1, and after `every` steps in a row without one it is multiplied by it. A
    static scale stays. Scale and count of good steps are Parameters: save this with the net and the
    optimizer. With powers of two no gradient within range changes its bits.

    In a step of your own: `scaled = scale(loss)`; `grads, finite = scale.unscaled(grads)`;
    `opt.update(grads, where=finite)`; `scale.update(finite)`.
    """

    def __init__(
        self, scale: float = 2.0**15, dynamic: bool = True, every: int = 2000, factor: float = 2.0
    ):
        self.dynamic = flag("LossScale", "dynamic", dynamic)
        start = number("LossScale", "scale", scale, 1 if dynamic else 2.0**-126, _MOST)
        self.every = integer("LossScale", "every", every, 1, 2**62)
        self.factor = number("LossScale", "factor", factor, 1.0 + 2.0**-10, 2**20)
        self.scale = Parameter(np.float32(start), requires_grad=False)
        self.good_steps = Parameter(np.int64(0), requires_grad=False)

    def construct(self, loss: Any) -> Any:
        """The loss times the scale, at least in float32."""
        return ops.mul(in_dtype(loss, wide(loss.dtype)), self.scale)

    def unscaled(self, grads: Sequence[Tensor]) -> tuple[tuple[Tensor, ...], Tensor]:
        """The gradients of the loss itself, and whether all that is in them is finite."""
        smaller = ops.reciprocal(self.scale)
        found = tuple(_scaled(g, smaller) for g in grads)
        return found, reduce(ops.logical_and, (ops.all(ops.isfinite(g)) for g in found))

    def update(self, finite: Tensor) -> None:
        """Adapt a dynamic scale to a step whose gradients were finite or not."""
        if not self.dynamic:
            return
        good = ops.add(self.good_steps, 1)
        grows = ops.greater_equal(good, self.every)
        more = ops.where(grows, ops.minimum(ops.mul(self.scale, self.factor), _MOST), self.scale)
        less = ops.maximum(ops.div(self.scale, self.factor), 1.0)
        none = ops.zeros_like(self.good_steps)
        count = ops.where(ops.logical_and(finite, ops.logical_not(grows)), good, none)
        scale = ops.where(finite, more, less)
        ops.assign(self.good_steps, count)
        ops.assign(self.scale, scale)

    def describe(self) -> str:
        """The constructor call, with the present scale."""
        now = f"{float(self.scale):g}"
        rest = f", every={self.every}, factor={self.factor:g}" if self.dynamic else ""
        return f"LossScale({now}, dynamic={self.dynamic}{rest})"


# --- Clipping -------------------------------------------------------------------------------------


def clip_by_global_norm(grads: Sequence[Tensor], clip: float) -> tuple[Tensor, ...]:
    """The gradients, of their shapes, times min(1, clip / norm), norm the 2-norm of all together.

    Those of 16 bits are summed and scaled in float32. Gradients within the limit keep their bits;
    with a NaN or an infinity among them all become NaN or 0. A norm beyond the range of its dtype,
    1.8e19 for float32, counts as infinite. ValueRefusedError unless clip is finite and > 0.

    >>> clip_by_global_norm([Tensor([3.0]), Tensor([4.0])], 1.0)[0]
    Tensor([0.6], shape=(1,), dtype=float32)
    """
    limit = number("clip_by_global_norm", "clip", clip, above=0)
    _check_several("clip_by_global_norm", grads)
    if not grads:
        return ()
    with layers.use(lambda: Layer("clip_by_global_norm")):
        norm = ops.sqrt(reduce(ops.add, map(_sum_of_squares, grads)))
        factor = ops.div(limit, ops.maximum(norm, limit))
        return tuple(_scaled(g, factor) for g in grads)


def _sum_of_squares(grad: Tensor) -> Tensor:
    g = in_dtype(grad, wide(grad.dtype))
    return ops.sum(ops.mul(g, g))


def _scaled(grad: Tensor, factor: Tensor) -> Tensor:
    dtype = wide(grad.dtype)
    return in_dtype(ops.mul(in_dtype(grad, dtype), in_dtype(factor, dtype)), grad.dtype)


def clip_by_value(grads: Sequence[Tensor], clip: float) -> tuple[Tensor, ...]:
    """Each number of the gradients between -clip and clip; NaN stays NaN.

    Of the same shapes. ValueRefusedError unless clip is finite and > 0.

    >>> clip_by_value([Tensor([3.0, -0.5])], 1.0)[0]
    Tensor([ 1. , -0.5], shape=(2,), dtype=float32)
    """
    limit = number("clip_by_value", "clip", clip, above=0)
    _check_several("clip_by_value", grads)
    return tuple(ops.clip(g, -limit, limit) for g in grads)


def _check_several(owner: str, grads: object) -> None:
    """GradientArgumentError for one Tensor, which would be clipped row by row, and no sequence."""
    if isinstance(grads, Tensor) or not isinstance(grads, Collection):
        raise GradientArgumentError(f"{owner} got one {type(grads).__name__}; give several, as [g]")


def clipping(owner: str, clip: Clip | None) -> Callable[[Sequence[Tensor]], Sequence[Tensor]]:
    """The function that clips gradients: `clip` itself, or by that global norm; for None, none."""
    if clip is None:
        return tuple
    if callable(clip):
        return clip
    return partial(clip_by_global_norm, clip=number(owner, "clip", clip, above=0))
