"""Lion: steps of one size, in the direction of the signs of a running mean."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .. import ops
from ..parameter import Parameter
from ..tensor import Tensor
from .arguments import Schedule, in_betas
from .optimizer import Optimizer


class Lion(Optimizer):
    """w - lr * (sign(b1 * m + (1 - b1) * g) + weight_decay * w), then m becomes
    b2 * m + (1 - b2) * g.

    Source: Chen and others 2023, "Symbolic discovery of optimization algorithms", algorithm 2;
    it suggests an lr 3 to 10 times smaller than AdamW's, with a weight_decay as much larger.
    """

    decoupled = True

    def __init__(
        self,
        params: Iterable[Parameter],
        lr: float | Schedule = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
    ):
        super().__init__(params, lr, weight_decay)
        self.betas = in_betas("Lion", betas)
        self.slots("mean")

    def rule(
        self, w: Tensor, g: Tensor, lr: Tensor, scalars: Sequence[Tensor], old: Sequence[Tensor]
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The rule, after weight decay."""
        ahead, m = (ops.add(ops.mul(b, old[0]), ops.mul(1.0 - b, g)) for b in self.betas)
        return ops.sub(w, ops.mul(lr, ops.sign(ahead))), (m,)
