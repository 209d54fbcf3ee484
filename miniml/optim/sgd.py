"""Stochastic gradient descent, with momentum and weight decay."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .. import ops
from ..errors import MinimlError
from ..parameter import Parameter
from ..tensor import Tensor
from .arguments import Schedule, in_range
from .optimizer import Optimizer


class SGD(Optimizer):
    """w - lr * g; with momentum, w - lr * v where v becomes momentum * v + g.

    weight_decay: g is first g + weight_decay * w. nesterov: w - lr * (g + momentum * v) instead.
    Source: Sutskever, Martens, Dahl, Hinton 2013, in the form without (1 - momentum).
    """

    def __init__(
        self,
        params: Iterable[Parameter],
        lr: float | Schedule,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
    ):
        super().__init__(params, lr, weight_decay)
        self.momentum = in_range("SGD", "momentum", momentum, 1.0)
        self.nesterov = nesterov
        if nesterov and not momentum:
            raise MinimlError("SGD got nesterov=True without momentum; give momentum > 0")
        if momentum:
            self.slots("velocity")

    def rule(
        self, w: Tensor, g: Tensor, lr: Tensor, scalars: Sequence[Tensor], old: Sequence[Tensor]
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """w - lr * g, or its form with momentum."""
        if not old:
            return ops.sub(w, ops.mul(lr, g)), ()
        v = ops.add(ops.mul(self.momentum, old[0]), g)
        g = ops.add(g, ops.mul(self.momentum, v)) if self.nesterov else v
        return ops.sub(w, ops.mul(lr, g)), (v,)
