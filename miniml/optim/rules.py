"""Update rules: SGD, Adam, AdamW, RMSprop, Adagrad, Lion and L-BFGS."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import ml_dtypes
import numpy as np

from .. import ops
from ..core.dtype import promote
from ..core.errors import ValueRefusedError
from ..core.options import count, flag, number
from ..core.parameter import Parameter
from ..core.tensor import Tensor
from .optimizer import Optimizer, Schedule, in_betas, in_dtype


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
        self.momentum = number("SGD", "momentum", momentum, 0, below=1)
        self.nesterov = flag("SGD", "nesterov", nesterov)
        if nesterov and not momentum:
            raise ValueRefusedError("SGD got nesterov=True without momentum; give momentum > 0")
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


# --- Adam and AdamW: scaled by running means of the gradient and of its square --------------------


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
        self.eps = number(type(self).__name__, "eps", eps, 0)
        self.keep_count()
        self.slots("sum")
        self.slots("square_sum")

    def scalars(self, lr: Tensor, t: Tensor | None) -> tuple[Tensor, ...]:
        """Scale and shift of the step, in float64: 1 - 0.999 has only four digits in float32."""
        b1, b2 = self.betas
        root = ops.sqrt(ops.div(1.0 - b2, ops.sub(1.0, ops.pow(b2, t))))
        rate = ops.mul(lr, ops.div(1.0 - b1, ops.sub(1.0, ops.pow(b1, t))))
        return ops.div(rate, root), ops.div(self.eps, root)

    def rule(
        self, w: Tensor, g: Tensor, lr: Tensor, scalars: Sequence[Tensor], old: Sequence[Tensor]
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The rule, on the sums m / (1 - b1) and v / (1 - b2): fewer passes over the arrays.

        The scalars hold the factors left out and the bias corrections:
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


# --- RMSprop and Adagrad: scaled by the size of past gradients ------------------------------------


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
        self.alpha = number("RMSprop", "alpha", alpha, 0, below=1)
        self.eps = number("RMSprop", "eps", eps, 0)
        self.momentum = number("RMSprop", "momentum", momentum, 0, below=1)
        self.centered = flag("RMSprop", "centered", centered)
        used = {"square_mean": True, "mean": self.centered, "velocity": self.momentum > 0.0}
        self._kinds = [kind for kind, is_used in used.items() if is_used]
        for kind in self._kinds:
            self.slots(kind)

    def rule(
        self, w: Tensor, g: Tensor, lr: Tensor, scalars: Sequence[Tensor], old: Sequence[Tensor]
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The rule, with the slots in use."""
        state = dict(zip(self._kinds, old, strict=True))
        v = state["square_mean"] = self._mean(state["square_mean"], ops.mul(g, g))
        if "mean" in state:
            m = state["mean"] = self._mean(state["mean"], g)
            v = ops.maximum(ops.sub(v, ops.mul(m, m)), 0.0)  # rounding can make it negative
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
        self.eps = number("Adagrad", "eps", eps, 0)
        self.slots("square_sum", number("Adagrad", "initial", initial, 0))

    def rule(
        self, w: Tensor, g: Tensor, lr: Tensor, scalars: Sequence[Tensor], old: Sequence[Tensor]
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """w - lr * g / (sqrt(v) + eps), and v."""
        v = ops.add(old[0], ops.mul(g, g))
        step = ops.mul(lr, ops.div(g, ops.add(ops.sqrt(v), self.eps)))
        return ops.sub(w, step), (v,)


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
        """The update by the sign, and the new mean; weight decay is done before."""
        ahead, m = (ops.add(ops.mul(b, old[0]), ops.mul(1.0 - b, g)) for b in self.betas)
        return ops.sub(w, ops.mul(lr, ops.sign(ahead))), (m,)


# --- L-BFGS: curvature estimated from the last gradients ------------------------------------------


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
