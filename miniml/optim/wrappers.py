"""Optimizers made of others: groups of parameters, accumulated gradients, averaged weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from .. import ops
from ..access import Access
from ..errors import GraphError, MinimlError
from ..parameter import Parameter
from ..tensor import Tensor
from ..trace import computes_at_once
from ..undo import UndoLog, publish
from .arguments import count, in_range
from .clip import Clip, clipping
from .optimizer import Optimizer, in_dtype, wide


class Wrapper(Optimizer):
    """Base: an optimizer of all parameters of others, with their state; `new_values` uses theirs.

    prefixes: what the names of their state begin with.
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

    @property
    def lr(self) -> Parameter:
        """Refused: each group has its own."""
        raise MinimlError("Groups has a learning rate for each group; read and set groups[0].lr")

    @lr.setter
    def lr(self, value: float) -> None:
        raise MinimlError(f"Groups got lr={value!r}; set that of one group, groups[0].lr = {value}")

    def new_values(self, grads: Sequence[Tensor]) -> tuple[list[Tensor], dict[str, Tensor]]:
        """Those of each group."""
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

    The other ones only add to sums, which are state, in float32 for gradients of 16 bits. So
    `every` steps on parts of a batch, of equal size, do what one step on the whole does, for a
    loss that is a mean. A schedule counts the updates of the optimizer. clip: as in
    `train_step`, but for the means: that of `train_step` is for the gradients of each part.
    """

    def __init__(self, optimizer: Optimizer, every: int, clip: Clip | None = None):
        super().__init__([optimizer])
        self.every = count("Accumulate", "every", every)
        self._clip = clipping("Accumulate", clip)
        self._done = self.keep("micro_steps", np.int64(0))
        self._sums = self.slots("gradient_sum")

    def new_values(self, grads: Sequence[Tensor]) -> tuple[list[Tensor], dict[str, Tensor]]:
        """Those of the optimizer when enough gradients are summed; before that, those of now."""
        done = ops.add(self._done, 1)
        ready = ops.equal(done, self.every)
        old = [self._state[name] for name in self._sums]
        sums = [ops.add(s, in_dtype(g, s.dtype)) for s, g in zip(old, grads, strict=True)]
        values, state = self._inner[0].kept(ready, *self._inner[0].new_values(self._means(sums)))
        state["micro_steps"] = ops.where(ready, ops.zeros_like(done), done)
        for name, total in zip(self._sums, sums, strict=True):
            state[name] = ops.where(ready, ops.zeros_like(total), total)
        return values, state

    def _means(self, sums: Sequence[Tensor]) -> Sequence[Tensor]:
        return self._clip([ops.div(total, self.every) for total in sums])


class EMA(Wrapper):
    """Exponential moving average of the weights: after each update of the optimizer, each average a
    becomes a + (1 - decay) * (w - a). It starts with the weights of now.

    `with ema.averaged(): ...` evaluates, or saves, the network with the averages as its weights.
    Averages are state, in float32 for parameters of 16 bits. Inside `Accumulate`, as in
    Accumulate(EMA(opt), every=4), it counts whole updates. Source: Polyak, Juditsky 1992, with
    the weights of PyTorch's get_ema_multi_avg_fn.
    """

    def __init__(self, optimizer: Optimizer, decay: float = 0.999):
        super().__init__([optimizer])
        self.decay = in_range("EMA", "decay", decay, 1.0)
        self._averages = [f"average.{name}" for name in self._names]
        for name, p in zip(self._averages, self.params, strict=True):
            self.keep(name, p.asnumpy().astype(wide(p.dtype)))

    def new_values(self, grads: Sequence[Tensor]) -> tuple[list[Tensor], dict[str, Tensor]]:
        """Those of the optimizer, and the averages."""
        values, state = self._inner[0].new_values(grads)
        for name, value in zip(self._averages, values, strict=True):
            old = self._state[name]
            change = ops.sub(in_dtype(value, old.dtype), old)
            state[name] = ops.add(old, ops.mul(1.0 - self.decay, change))
        return values, state

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """In the block the parameters have the values of the averages; after it those that they
        had before, whatever happened in it."""
        if not computes_at_once():
            raise GraphError("EMA.averaged cannot happen inside a compiled step; do it outside")
        weights, averages = UndoLog(), [self._state[name] for name in self._averages]
        Access("EMA", self.params, averages).run(self._exchange, weights, averages)
        try:
            yield
        finally:
            weights.restore("EMA")

    def _exchange(self, weights: UndoLog, averages: Sequence[Parameter]) -> None:
        weights.note(*self.params)
        pairs = zip(self.params, averages, strict=True)
        publish([(p, in_dtype(average, p.dtype)._data) for p, average in pairs])
