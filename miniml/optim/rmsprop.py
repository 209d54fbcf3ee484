"""RMSprop and Adagrad: steps scaled by the size that gradients had."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .. import ops
from ..parameter import Parameter
from ..tensor import Tensor
from .arguments import Schedule, in_range
from .optimizer import Optimizer


class RMSprop(Optimizer):
    """w - lr * g / (sqrt(v) + eps), where v becomes alpha * v + (1 - alpha) * g^2.

    centered: v - m^2 in place of v, where m becomes alpha * m + (1 - alpha) * g. momentum:
    w - lr * b, where b becomes momentum * b + g / (sqrt(v) + eps). weight_decay: g is first
    g + weight_decay * w. Source: Tieleman, Hinton 2012, lecture 6.5; centered: Graves 2013,
    arXiv:1308.0850; both with eps and momentum as in PyTorch's RMSprop.
    """

    def __init__(
        self,
        params: Iterable[Parameter],
        lr: float | Schedule = 0.01,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
        centered: bool = False,
    ):
        super().__init__(params, lr, weight_decay)
        self.alpha = in_range("RMSprop", "alpha", alpha, 1.0)
        self.eps = in_range("RMSprop", "eps", eps)
        self.momentum = in_range("RMSprop", "momentum", momentum, 1.0)
        self.centered = bool(centered)
        used = {"square_mean": True, "mean": self.centered, "velocity": self.momentum > 0.0}
        self._kinds = [kind for kind, is_used in used.items() if is_used]
        for kind in self._kinds:
            self.slots(kind)

    def rule(
        self, w: Tensor, g: Tensor, lr: Tensor, scalars: Sequence[Tensor], old: Sequence[Tensor]
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The rule, with the slots that there are."""
        state = dict(zip(self._kinds, old, strict=True))
        v = state["square_mean"] = self._mean(state["square_mean"], ops.mul(g, g))
        if "mean" in state:
            m = state["mean"] = self._mean(state["mean"], g)
            v = ops.maximum(ops.sub(v, ops.mul(m, m)), 0.0)  # rounding makes it negative
        step = ops.div(g, ops.add(ops.sqrt(v), self.eps))
        if "velocity" in state:
            step = state["velocity"] = ops.add(ops.mul(self.momentum, state["velocity"]), step)
        return ops.sub(w, ops.mul(lr, step)), tuple(state.values())

    def _mean(self, old: Tensor, new: Tensor) -> Tensor:
        return ops.add(ops.mul(self.alpha, old), ops.mul(1.0 - self.alpha, new))


class Adagrad(Optimizer):
    """w - lr * g / (sqrt(v) + eps), where v becomes v + g^2, from `initial` on.

    weight_decay: g is first g + weight_decay * w. Source: Duchi, Hazan, Singer 2011, with eps as
    in PyTorch's Adagrad; its lr_decay is a schedule: lr=lambda step: 0.1 / (1 + decay * step).
    """

    def __init__(
        self,
        params: Iterable[Parameter],
        lr: float | Schedule = 0.01,
        eps: float = 1e-10,
        weight_decay: float = 0.0,
        initial: float = 0.0,
    ):
        super().__init__(params, lr, weight_decay)
        self.eps = in_range("Adagrad", "eps", eps)
        self.slots("square_sum", in_range("Adagrad", "initial", initial))

    def rule(
        self, w: Tensor, g: Tensor, lr: Tensor, scalars: Sequence[Tensor], old: Sequence[Tensor]
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The rule."""
        v = ops.add(old[0], ops.mul(g, g))
        step = ops.mul(lr, ops.div(g, ops.add(ops.sqrt(v), self.eps)))
        return ops.sub(w, step), (v,)
