"""L-BFGS: curvature estimated from the last gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from .. import ops
from ..core.abstract import promote
from ..core.errors import MinimlError
from ..core.options import count
from ..core.parameter import Parameter
from ..core.tensor import Tensor
from ..core.trace import current_trace
from ..grad import value_and_grad
from ..runtime.eager import together
from .optimizer import Optimizer, Schedule, in_dtype

__all__ = ["LBFGS"]


class LBFGS(Optimizer):
    """w - lr * H g, where H estimates the inverse Hessian from the last `history` pairs of changes:
    s of w and y of g, by the two-loop recursion.

    One update is one iteration, and each needs the gradient of the same function, so give whole
    data and not batches. line_search: the most times that an update computes the loss and its
    gradient anew, at w - t H g for t from lr on, doubled or bisected until both of Wolfe's
    conditions hold, f(t) <= f(0) + 1e-4 t f'(0) and f'(t) >= 0.9 f'(0); where none does in the end,
    the largest t with the first of them is taken, or 0. It is for `ml.train_step`, which knows the
    loss; a network with dropout, or batch norm in training, has none to search. 0: no search, and
    where steps are too long a smaller lr. A pair with
    y . s <= eps y . y is left out, where PyTorch has 1e-10 for eps y . y, and so learns no
    curvature near a minimum. The first step is lr * min(1, 1 / sum(|g|)) * g. All parameters are
    one vector here.
    Source: Nocedal, Wright 2006, "Numerical optimization", algorithms 7.4 and 7.5, with the
    first step of PyTorch's LBFGS, whose `step` with max_iter=1 is this update; the search is that
    of Lewis, Overton 2013, "Nonsmooth optimization via quasi-Newton methods", algorithm 2.6.
    """

    def __init__(
        self,
        params: Iterable[Parameter],
        lr: float | Schedule = 1.0,
        history: int = 10,
        line_search: int = 0,
    ):
        super().__init__(params, lr)
        self.line_search = count("LBFGS", "line_search", line_search, 0)
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
        """The rule, on all parameters as one vector; MinimlError for a line search without the
        loss."""
        if self.line_search:
            raise MinimlError(
                "LBFGS with line_search got gradients alone, and needs the loss; give it itself, "
                "in no other optimizer, to ml.train_step(net, loss_fn, opt)"
            )
        direction, rate, state = self._direction(self._flat(grads))
        return self._moved(ops.mul(rate, direction), state)

    def search(self, loss: Callable[[list[Tensor]], tuple[Tensor, Any]]) -> Any:
        """One update of a compiled step: loss is a function of the values of params that gives
        (loss, aux); returns the aux at the present ones."""
        current_trace().guard(self, self.signature)
        at = value_and_grad(loss, has_aux=True)
        values = [current_trace().stand_in(p) for p in self.params]
        (first, aux), grads = at(values)
        g = self._flat(grads)
        direction, rate, state = self._direction(g)
        w = self._flat(values)

        def along(t: Tensor) -> tuple[Tensor, Tensor]:
            (value, _), slopes = at(self._parts(ops.add(w, ops.mul(t, direction))))
            return in_dtype(value, self._dtype), ops.sum(ops.mul(self._flat(slopes), direction))

        slope = ops.sum(ops.mul(g, direction))
        t = self._searched(along, in_dtype(first, self._dtype), slope, rate)
        together(self._assign, *self._moved(ops.mul(t, direction), state))
        return aux

    def _searched(
        self,
        along: Callable[[Tensor], tuple[Tensor, Tensor]],
        first: Tensor,
        slope: Tensor,
        rate: Tensor,
    ) -> Tensor:
        """The t at which Wolfe's conditions hold for a function along a direction."""

        def going(carry: Any) -> Tensor:
            _, _, _, found, done = carry
            return ops.logical_and(ops.logical_not(found), ops.less(done, self.line_search))

        def body(carry: Any) -> Any:
            t, low, high, _, done = carry
            value, its = along(t)
            limit = ops.add(first, ops.mul(ops.mul(1e-4, t), slope))
            lower = ops.less_equal(value, limit)  # False for NaN
            flat = ops.greater_equal(its, ops.mul(0.9, slope))
            found = ops.logical_and(lower, flat)
            low, high = ops.where(lower, t, low), ops.where(lower, high, t)
            middle = ops.mul(0.5, ops.add(low, high))
            following = ops.where(ops.isfinite(high), middle, ops.mul(2.0, t))
            return ops.where(found, t, following), low, high, found, ops.add(done, 1)

        zero = ops.zeros_like(rate)
        never = ops.less(zero, zero)
        start = rate, zero, ops.full_like(rate, np.inf), never, ops.cast(zero, np.int64)
        t, low, _, found, _ = ops.while_loop(going, body, start)
        return ops.where(found, t, low)

    def _direction(self, g: Tensor) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """- H g, the first rate along it, and new state."""
        state = self._advanced()
        state.update(self._remembered(g), last_gradient=g)
        first = ops.equal(self._state["step"], 0)
        shrink = ops.reciprocal(ops.maximum(ops.sum(ops.abs(g)), 1.0))
        rate = in_dtype(state.get("lr", self._lr), self._dtype)
        return ops.neg(self._product(g, state)), ops.mul(rate, ops.where(first, shrink, 1.0)), state

    def _moved(
        self, step: Tensor, state: dict[str, Tensor]
    ) -> tuple[list[Tensor], dict[str, Tensor]]:
        """New values of params and state after a step."""
        w = ops.add(self._flat(self.params), step)
        return self._parts(w), {**state, "last_step": step}

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
