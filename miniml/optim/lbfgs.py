"""L-BFGS: curvature estimated from the last gradients."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import ml_dtypes
import numpy as np

from .. import ops
from ..core.dtype import promote
from ..core.options import count
from ..core.parameter import Parameter
from ..core.tensor import Tensor
from .optimizer import Optimizer, Schedule, in_dtype


class LBFGS(Optimizer):
    """w - lr * H g, where H estimates the inverse Hessian from the last `history` pairs of changes:
    s of w and y of g, by the two-loop recursion.

    One update is one iteration: there is no line search, and each update needs the gradient of the
    same function, so give whole data and not batches. Where steps are too long take a smaller lr,
    or `scipy.optimize.minimize`, which searches, with what `value_and_grad` gives. A pair with
    y . s <= eps y . y is left out, where PyTorch has 1e-10 for eps y . y, and so learns no
    curvature near a minimum. The first step is lr * min(1, 1 / sum(|g|)) * g. All parameters are
    one vector here.
    Source: Nocedal, Wright 2006, "Numerical optimization", algorithms 7.4 and 7.5, with the
    first step of PyTorch's LBFGS, whose `step` with max_iter=1 is this update.
    """

    def __init__(self, params: Iterable[Parameter], lr: float | Schedule = 1.0, history: int = 10):
        super().__init__(params, lr)
        self.history = count("LBFGS", "history", history)
        self._dtype = promote(*self.dtypes())
        self._eps = float(ml_dtypes.finfo(self._dtype).eps)  # type: ignore[no-untyped-call]
        self.keep_count()
        size = sum(p.size for p in self.params)
        for name in ("steps", "changes"):
            self.keep(name, np.zeros((self.history, size), self._dtype))
        for name in ("last_step", "last_gradient"):
            self.keep(name, np.zeros(size, self._dtype))
        self.keep("inverse_products", np.zeros(self.history, self._dtype))
        self.keep("scale", np.ones((), self._dtype))

    def new_values(self, grads: Sequence[Tensor]) -> tuple[list[Tensor], dict[str, Tensor]]:
        """The rule, on all parameters as one vector."""
        state, g = self._advanced(), self._flat(grads)
        state.update(self._remembered(g))
        direction = self._product(g, state)
        first = ops.equal(self._state["step"], 0)
        shrink = ops.reciprocal(ops.maximum(ops.sum(ops.abs(g)), 1.0))
        rate = in_dtype(state.get("lr", self._lr), self._dtype)
        step = ops.mul(ops.mul(ops.neg(rate), ops.where(first, shrink, 1.0)), direction)
        state.update(last_step=step, last_gradient=g)
        w = ops.add(self._flat(self.params), step)
        return self._parts(w), state

    def _remembered(self, g: Tensor) -> dict[str, Tensor]:
        """The pairs, where that of the last step replaces the oldest if it has curvature; that of
        the first update is 0 and has none."""
        s, y = self._state["last_step"], ops.sub(g, self._state["last_gradient"])
        product, square = ops.sum(ops.mul(y, s)), ops.sum(ops.mul(y, y))
        curved = ops.greater(product, ops.mul(square, self._eps))
        inverse = ops.reciprocal(ops.where(curved, product, 1.0))
        found = {}
        for name, new in {"steps": s, "changes": y, "inverse_products": inverse}.items():
            old = self._state[name]
            pushed = ops.concat([old[1:], ops.expand_dims(new, 0)], 0)
            found[name] = ops.where(curved, pushed, old)
        scale = ops.div(product, ops.where(curved, square, 1.0))
        found["scale"] = ops.where(curved, scale, self._state["scale"])
        return found

    def _product(self, g: Tensor, state: dict[str, Tensor]) -> Tensor:
        """H g; rows without a pair are 0 and change nothing."""
        pairs = [
            (state["steps"][i], state["changes"][i], state["inverse_products"][i])
            for i in range(self.history)
        ]
        shares = []
        for s, y, inverse in reversed(pairs):
            shares.append(ops.mul(inverse, ops.sum(ops.mul(s, g))))
            g = ops.sub(g, ops.mul(shares[-1], y))
        g = ops.mul(state["scale"], g)
        for (s, y, inverse), share in zip(pairs, reversed(shares), strict=True):
            other = ops.mul(inverse, ops.sum(ops.mul(y, g)))
            g = ops.add(g, ops.mul(ops.sub(share, other), s))
        return g

    def _flat(self, tensors: Sequence[Tensor]) -> Tensor:
        return ops.concat([ops.reshape(in_dtype(t, self._dtype), (-1,)) for t in tensors], 0)

    def _parts(self, vector: Tensor) -> list[Tensor]:
        ends = np.cumsum([p.size for p in self.params]).tolist()
        return [
            in_dtype(ops.reshape(vector[end - p.size : end], p.shape), p.dtype)
            for p, end in zip(self.params, ends, strict=True)
        ]
