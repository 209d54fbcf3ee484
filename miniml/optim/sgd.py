"""Stochastic gradient descent, with momentum and weight decay."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .. import ops
from ..errors import MinimlError
from ..parameter import Parameter
from ..tensor import Tensor
from .optimizer import Optimizer, in_dtype, in_range, wide


class SGD(Optimizer):
    """w - lr * g; with momentum, w - lr * v where v becomes momentum * v + g.

    weight_decay: g is first g + weight_decay * w. nesterov: w - lr * (g + momentum * v) instead.
    Source: Sutskever, Martens, Dahl, Hinton 2013, in the form without (1 - momentum).
    """

    def __init__(
        self,
        params: Iterable[Parameter],
        lr: float,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
    ):
        super().__init__(params, lr)
        self.momentum = in_range("SGD", "momentum", momentum, 1.0)
        self.weight_decay = in_range("SGD", "weight_decay", weight_decay)
        self.nesterov = nesterov
        if nesterov and not momentum:
            raise MinimlError("SGD got nesterov=True without momentum; give momentum > 0")
        self._velocity = self.slots("velocity") if momentum else []

    def new_values(self, grads: Sequence[Tensor]) -> tuple[list[Tensor], dict[str, Tensor]]:
        """w - lr * g, or its form with momentum."""
        rates = {d: in_dtype(self.lr, d) for d in self.dtypes()}
        values: list[Tensor] = []
        state: dict[str, Tensor] = {}
        for i, (p, grad) in enumerate(zip(self.params, grads, strict=True)):
            dtype = wide(p.dtype)
            w, g = in_dtype(p, dtype), in_dtype(grad, dtype)
            if self.weight_decay:
                g = ops.add(g, ops.mul(self.weight_decay, w))
            if self._velocity:
                name = self._velocity[i]
                v = state[name] = ops.add(ops.mul(self.momentum, self._state[name]), g)
                g = ops.add(g, ops.mul(self.momentum, v)) if self.nesterov else v
            step = ops.mul(rates[dtype], g)
            values.append(in_dtype(ops.sub(w, step), p.dtype))
        return values, state
