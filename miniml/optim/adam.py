"""Adam: steps scaled by running means of the gradient and of its square."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from .. import ops
from ..dtype import float64
from ..errors import MinimlError
from ..parameter import Parameter
from ..tensor import Tensor
from .optimizer import Optimizer, in_dtype, in_range, wide


class Adam(Optimizer):
    """w - lr * m' / (sqrt(v') + eps), m' and v' running means of g and g^2 without start bias.

    m becomes b1 * m + (1 - b1) * g, v becomes b2 * v + (1 - b2) * g^2; after t updates
    m' = m / (1 - b1^t) and v' = v / (1 - b2^t). weight_decay: g is first g + weight_decay * w.
    Source: Kingma, Ba 2015, "Adam: a method for stochastic optimization".
    """

    def __init__(
        self,
        params: Iterable[Parameter],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ):
        super().__init__(params, lr)
        if np.shape(betas) != (2,):
            raise MinimlError(f"Adam got betas={betas!r}; expected two numbers, as (0.9, 0.999)")
        b1, b2 = (in_range("Adam", f"betas[{i}]", b, 1.0) for i, b in enumerate(betas))
        self.betas = b1, b2
        self.eps = in_range("Adam", "eps", eps)
        self.weight_decay = in_range("Adam", "weight_decay", weight_decay)
        self._step = self.keep("step", np.int64(0))
        self._sum, self._squares = self.slots("sum"), self.slots("square_sum")

    def new_values(self, grads: Sequence[Tensor]) -> tuple[list[Tensor], dict[str, Tensor]]:
        """The rule, on the sums m / (1 - b1) and v / (1 - b2): fewer passes over the arrays.

        The factors left out, and the bias corrections, go into two scalars of the whole step:
        scale * sum / (sqrt(square_sum) + shift).
        """
        b1, b2 = self.betas
        count = ops.add(self._step, 1)
        t = ops.cast(count, float64)  # 1 - 0.999 would have only four digits in float32
        root = ops.sqrt(ops.div(1.0 - b2, ops.sub(1.0, ops.pow(b2, t))))
        rate = ops.mul(self.lr, ops.div(1.0 - b1, ops.sub(1.0, ops.pow(b1, t))))
        scale, shift = ops.div(rate, root), ops.div(self.eps, root)
        scalars = {d: (in_dtype(scale, d), in_dtype(shift, d)) for d in self.dtypes()}
        values: list[Tensor] = []
        state = {"step": count}
        for i, (p, grad) in enumerate(zip(self.params, grads, strict=True)):
            dtype = wide(p.dtype)
            scale, shift = scalars[dtype]
            w, g = in_dtype(p, dtype), in_dtype(grad, dtype)
            if self.weight_decay:
                g = ops.add(g, ops.mul(self.weight_decay, w))
            m = state[self._sum[i]] = ops.add(ops.mul(b1, self._state[self._sum[i]]), g)
            v = ops.add(ops.mul(b2, self._state[self._squares[i]]), ops.mul(g, g))
            state[self._squares[i]] = v
            step = ops.mul(scale, ops.div(m, ops.add(ops.sqrt(v), shift)))
            values.append(in_dtype(ops.sub(w, step), p.dtype))
        return values, state
