"""Adam and AdamW: steps scaled by running means of the gradient and of its square."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .. import ops
from ..parameter import Parameter
from ..tensor import Tensor
from .arguments import Schedule, in_betas, in_range
from .optimizer import Optimizer


class Adam(Optimizer):
    """w - lr * m' / (sqrt(v') + eps), m' and v' running means of g and g^2 without start bias.

    m becomes b1 * m + (1 - b1) * g, v becomes b2 * v + (1 - b2) * g^2; after t updates
    m' = m / (1 - b1^t) and v' = v / (1 - b2^t). weight_decay: g is first g + weight_decay * w.
    Source: Kingma, Ba 2015, "Adam: a method for stochastic optimization".
    """

    def __init__(
        self,
        params: Iterable[Parameter],
        lr: float | Schedule = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ):
        super().__init__(params, lr, weight_decay)
        self.betas = in_betas(type(self).__name__, betas)
        self.eps = in_range(type(self).__name__, "eps", eps)
        self.keep_count()
        self.slots("sum")
        self.slots("square_sum")

    def scalars(self, lr: Tensor, t: Tensor | None) -> tuple[Tensor, ...]:
        """Two numbers of the whole step, in float64: 1 - 0.999 would have only four digits in
        float32."""
        b1, b2 = self.betas
        root = ops.sqrt(ops.div(1.0 - b2, ops.sub(1.0, ops.pow(b2, t))))
        rate = ops.mul(lr, ops.div(1.0 - b1, ops.sub(1.0, ops.pow(b1, t))))
        return ops.div(rate, root), ops.div(self.eps, root)

    def rule(
        self, w: Tensor, g: Tensor, lr: Tensor, scalars: Sequence[Tensor], old: Sequence[Tensor]
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The rule, on the sums m / (1 - b1) and v / (1 - b2): fewer passes over the arrays.

        The factors left out, and the bias corrections, are in the scalars:
        scale * sum / (sqrt(square_sum) + shift).
        """
        scale, shift = scalars
        m = ops.add(ops.mul(self.betas[0], old[0]), g)
        v = ops.add(ops.mul(self.betas[1], old[1]), ops.mul(g, g))
        step = ops.mul(scale, ops.div(m, ops.add(ops.sqrt(v), shift)))
        return ops.sub(w, step), (m, v)


class AdamW(Adam):
    """Adam of w - lr * weight_decay * w, with the gradient as it is: decoupled weight decay.

    Source: Loshchilov, Hutter 2019, "Decoupled weight decay regularization", with lr for both of
    its factors, as in PyTorch's AdamW.
    """

    decoupled = True

    def __init__(
        self,
        params: Iterable[Parameter],
        lr: float | Schedule = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
    ):
        super().__init__(params, lr, betas, eps, weight_decay)
