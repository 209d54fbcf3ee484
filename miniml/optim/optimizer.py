"""Optimizers: parameters, their state, a learning rate, and one update of them all.

Optimizer: the base. Then the rules: SGD, Adam, AdamW, NAdam, RAdam, RMSprop, Adagrad, Adadelta and
Lion; and the checks of the arguments of optimizers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from .. import ops
from ..core.abstract import DType, float32, float64, is_float, promote, typed, wide
from ..core.access import Access
from ..core.errors import (
    ArityError,
    AttributeRefusedError,
    DTypeError,
    GradientArgumentError,
    MinimlError,
    ShapeError,
    ValueRefusedError,
)
from ..core.hints import Constructed, hides_frames, unknown
from ..core.options import flag, number
from ..core.parameter import Parameter
from ..core.scope import Layer, epoch, layers
from ..core.tensor import Tensor
from ..core.trace import Guarded, current_trace, is_tracing
from ..nn.cell import Cell, changes_silently, contents
from ..runtime.eager import together

__all__ = [
    "Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "Lion", "NAdam", "Optimizer", "RAdam",
    "RMSprop", "SGD",
]  # fmt: skip

Schedule = Callable[[Any], Any]
Several = Sequence[Tensor]
Ruled = tuple[Tensor, tuple[Tensor, ...]]


class Optimizer(Constructed, Guarded):
    """Base of optimizers: a subclass makes its state with `slots` and defines `rule`, the update
    of one parameter, or `new_values`, the update of them all.

    params: the Parameters to update, as `net.trainable_params()` gives them. lr: the learning
    rate, kept as a Parameter, so that `opt.lr = 0.01` changes it without compiling anew; or a
    schedule, a function of the number of updates before this one, which is a float64 Tensor of
    shape (), that gives the learning rate, made of `ops`. weight_decay: weight_decay * w is added
    to the gradient; where `decoupled`, w first becomes w - lr * weight_decay * w instead. State is
    kept in float32 for parameters of 16 bits.
    """

    decoupled: ClassVar[bool] = False
    _changes = 0

    def __init__(self, params: Iterable[Parameter], lr: float | Schedule, weight_decay: float = 0):
        self._hold(params)
        who = type(self).__name__
        self._schedule = lr if callable(lr) else None
        first = first_rate(who, lr) if callable(lr) else lr
        dtype = promote(float32, *self.dtypes())
        self._lr = self.keep("lr", np.asarray(checked_rate(who, first), dtype))
        if isinstance(lr, Cell):
            lr.to(self.params[0].device)
        if self._schedule:
            self.keep_count()
        self.weight_decay = number(who, "weight_decay", weight_decay, 0)

    def _hold(self, params: Iterable[Parameter]) -> None:
        self.params = checked_params(type(self).__name__, params)
        self._names = unique_names(self.params)
        self._state: dict[str, Parameter] = {}
        self._slots: list[list[str]] = []

    def new_values(self, grads: Sequence[Tensor]) -> tuple[list[Tensor], dict[str, Tensor]]:
        """The new values of the params, in order, and of the state, by name: `rule` for each."""
        state = self._advanced()
        lr = state.get("lr", self._lr)
        t = ops.cast(state["step"], float64) if "step" in state else None
        found = (lr, *self.scalars(lr, t))
        scalars = {d: [in_dtype(s, d) for s in found] for d in self.dtypes()}
        values: list[Tensor] = []
        for p, grad, *names in zip(self.params, grads, *self._slots, strict=True):
            dtype = wide(p.dtype)
            lr, *own = scalars[dtype]
            w, g = self._decayed(in_dtype(p, dtype), in_dtype(grad, dtype), lr)
            w, new = self.rule(w, g, lr, own, [self._state[n] for n in names])
            values.append(in_dtype(w, p.dtype))
            state.update(zip(names, new, strict=True))
        return values, state

    def rule(self, w: Tensor, g: Tensor, lr: Tensor, scalars: Several, old: Several) -> Ruled:
        """The new value of a parameter w with gradient g, and of its slots, whose values are
        `old`, in the order in which they were made; all in one dtype, that of the update.
        MinimlError in a class that defines none."""
        raise MinimlError(f"{type(self).__name__} defines no rule; say how it updates a parameter")

    def scalars(self, lr: Tensor, t: Tensor | None) -> tuple[Tensor, ...]:
        """Numbers that the rule needs and that are the same for all parameters. t: the number of
        this update, 1, 2, ..., in float64; None unless `keep_count` was called."""
        return ()

    def _advanced(self) -> dict[str, Tensor]:
        """The count of updates after this one, and the learning rate of this one."""
        state: dict[str, Tensor] = {}
        if "step" in self._state:
            state["step"] = ops.add(self._state["step"], 1)
        if self._schedule:
            rate, own = self._schedule(ops.cast(self._state["step"], float64)), self._lr
            known = isinstance(rate, Tensor)
            state["lr"] = in_dtype(rate, own.dtype) if known else ops.full_like(own, rate)
        return state

    def _decayed(self, w: Tensor, g: Tensor, lr: Tensor) -> tuple[Tensor, Tensor]:
        if not self.weight_decay:
            return w, g
        if self.decoupled:
            return ops.sub(w, ops.mul(ops.mul(lr, self.weight_decay), w)), g
        return w, ops.add(g, ops.mul(self.weight_decay, w))

    @hides_frames
    def update(self, grads: Sequence[Tensor], where: Tensor | None = None) -> None:
        """Update every parameter with its gradient: all new values first, then all assignments,
        which are atomic: all of them happen or none.

        grads: one tensor per parameter, in the order of `params`, of its shape and dtype. where: a
        bool of shape (); where it is False, parameters and state stay as they are.
        """
        self._check(grads)
        current_trace().guard(self, self.signature)
        if is_tracing():
            with layers.use(lambda: Layer(type(self).__name__)):
                self._update(grads, where)
        else:
            Access(type(self).__name__, self.written()).run(self._update, grads, where)

    def written(self) -> tuple[Parameter, ...]:
        """The parameters that an update writes: the params and the state."""
        return (*self.params, *self._state.values())

    def _update(self, grads: Sequence[Tensor], where: Tensor | None) -> None:
        values, state = self.new_values(grads)
        if where is not None:
            values, state = self.kept(where, values, state)
        together(self._assign, values, state)

    def kept(
        self, where: Tensor, values: Sequence[Tensor], state: dict[str, Tensor]
    ) -> tuple[list[Tensor], dict[str, Tensor]]:
        """The new values of params and state where a bool is True, else the present ones."""
        new = [ops.where(where, v, p) for v, p in zip(values, self.params, strict=True)]
        return new, {name: ops.where(where, v, self._state[name]) for name, v in state.items()}

    def _assign(self, values: Sequence[Tensor], state: dict[str, Tensor]) -> None:
        for name, value in state.items():
            ops.assign(self._state[name], value)
        for parameter, value in zip(self.params, values, strict=True):
            ops.assign(parameter, value)

    def _check(self, grads: Sequence[Tensor]) -> None:
        """Refuse anything but one gradient per parameter, of its shape and dtype."""
        if isinstance(grads, Tensor):
            raise GradientArgumentError(
                f"{type(self).__name__}.update takes gradients, one for each parameter; got "
                f"{typed(grads)}; grad.value_and_grad(f, None, weights=opt.params) gives them of a "
                "loss, and ml.train_step(net, loss_fn, opt) does all of it"
            )
        if len(grads) != len(self.params):
            raise ArityError(
                f"{type(self).__name__} has {len(self.params)} parameters; got {len(grads)} "
                "gradients; give one for each, in the order of .params"
            )
        for p, g in zip(self.params, grads, strict=True):
            if g.shape != p.shape or g.dtype != p.dtype:
                raise (ShapeError if g.shape != p.shape else DTypeError)(
                    f"{type(self).__name__} got {typed(g)} for the gradient of "
                    f"{p.name!r}, which is {typed(p)}; they must be equal"
                )

    @property
    def lr(self) -> Parameter:
        """The learning rate, a Parameter of shape () and of float32, or float64 beside parameters
        of float64; of a schedule, that of the last update."""
        return self._lr

    @lr.setter
    def lr(self, value: float) -> None:
        if self._schedule:
            raise MinimlError(
                f"{type(self).__name__} got lr={value!r}, but its learning rate follows a "
                "schedule; make it with a number for lr to set it between steps"
            )
        self._lr.set_data(np.asarray(checked_rate(type(self).__name__, value), self._lr.dtype))

    def parameters_dict(self) -> dict[str, Parameter]:
        """The state by name: "lr", and such as "velocity.0.weight"; checkpoints hold it."""
        own = self._schedule.parameters_dict() if isinstance(self._schedule, Cell) else {}
        return {**self._state, **{f"schedule.{name}": p for name, p in own.items()}}

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name in self.__dict__:  # lr is not in it: it is state, which programs read at each call
            self.__dict__["_changes"] = self._changes + 1
            epoch.bump("cells")

    if not TYPE_CHECKING:  # it would hide misspelt names from the checker

        def __getattr__(self, name: str) -> Any:
            raise unknown(type(self).__name__, name, self)

    @property
    def signature(self) -> tuple[object, ...]:
        """Changes with every attribute but lr, which is state, and in lists, dicts and sets."""
        own = [v for n, v in vars(self).items() if n[0] != "_" and n != "params"]
        return type(self).__name__, self._changes, *map(contents, filter(changes_silently, own))

    @property
    def silent(self) -> bool:  # type: ignore[override]
        """True with a list, dict or set among the attributes, which may change in place."""
        return len(self.signature) > 2

    def keep(self, name: str, value: Any) -> Parameter:
        """Make a piece of state, and return it; MinimlError where there is one of this name."""
        if name in self._state:
            raise MinimlError(
                f"{type(self).__name__} has a piece of state {name!r} already, its own or of an "
                "optimizer inside it"
            )
        self._state[name] = Parameter(
            value, name=name, requires_grad=False, device=self.params[0].device
        )
        return self._state[name]

    def keep_count(self) -> None:
        """Make the count of updates, "step", if there is none yet."""
        if "step" not in self._state:
            self.keep("step", np.int64(0))

    def slots(self, kind: str, fill: float = 0.0) -> list[str]:
        """Make a slot for every parameter: state of its shape, which `rule` takes and returns
        anew. Returns their names, "kind.name of the parameter"."""
        names = [f"{kind}.{name}" for name in self._names]
        for name, p in zip(names, self.params, strict=True):
            self.keep(name, np.full(p.shape, fill, wide(p.dtype)))
        self._slots.append(names)
        return names

    def dtypes(self) -> list[DType]:
        """The dtypes in which the parameters are updated, each once."""
        return list(dict.fromkeys(wide(p.dtype) for p in self.params))

    def __repr__(self) -> str:
        count = sum(p.size for p in self.params)
        return f"{type(self).__name__}({len(self.params)} parameters, {count:,} numbers)"


def in_dtype(value: Tensor, dtype: DType) -> Tensor:
    """The value in a dtype; itself if it has it."""
    return value if value.dtype == dtype else ops.cast(value, dtype)


def running(decay: float, old: Tensor, new: Tensor) -> Tensor:
    """The running mean after one more value."""
    return ops.add(ops.mul(decay, old), ops.mul(1.0 - decay, new))


# --- SGD ------------------------------------------------------------------------------------------


class SGD(Optimizer):
    """w - lr * g; with momentum, w - lr * v where v becomes momentum * v + g.

    weight_decay: g is first g + weight_decay * w. nesterov: w - lr * (g + momentum * v) instead,
    ValueRefusedError for it without momentum.
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

    def rule(self, w: Tensor, g: Tensor, lr: Tensor, scalars: Several, old: Several) -> Ruled:
        """w - lr * g, or its form with momentum."""
        if not old:
            return ops.sub(w, ops.mul(lr, g)), ()
        v = ops.add(ops.mul(self.momentum, old[0]), g)
        g = ops.add(g, ops.mul(self.momentum, v)) if self.nesterov else v
        return ops.sub(w, ops.mul(lr, g)), (v,)


# --- Adam and its kind: scaled by running means of the gradient and of its square -----------------


class Moments(Optimizer):
    """Base of optimizers with running means of the gradient and of its size, and their count."""

    _kinds: ClassVar[tuple[str, ...]] = ("mean", "square_mean")

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
        for kind in self._kinds:
            self.slots(kind)


class Adam(Moments):
    """w - lr * m' / (sqrt(v') + eps), m' and v' running means of g and g^2 without start bias.

    m becomes b1 * m + (1 - b1) * g, v becomes b2 * v + (1 - b2) * g^2; after t updates
    m' = m / (1 - b1^t) and v' = v / (1 - b2^t). weight_decay: g is first g + weight_decay * w.
    amsgrad: the largest v so far takes v's place in v' (Reddi, Kale, Kumar 2018).
    Source: Kingma, Ba 2015, "Adam: a method for stochastic optimization".
    """

    _kinds = "sum", "square_sum"

    def __init__(
        self,
        params: Iterable[Parameter],
        lr: float | Schedule = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
    ):
        super().__init__(params, lr, betas, eps, weight_decay)
        self.amsgrad = flag(type(self).__name__, "amsgrad", amsgrad)
        if self.amsgrad:
            self.slots("largest_square_sum")

    def scalars(self, lr: Tensor, t: Tensor | None) -> tuple[Tensor, ...]:
        """The scale and the shift of the step, in float64: 1 - 0.999 has only four digits in
        float32."""
        b1, b2 = self.betas
        root = ops.sqrt(ops.div(1.0 - b2, ops.sub(1.0, ops.pow(b2, t))))
        rate = ops.mul(lr, ops.div(1.0 - b1, ops.sub(1.0, ops.pow(b1, t))))
        return ops.div(rate, root), ops.div(self.eps, root)

    def rule(self, w: Tensor, g: Tensor, lr: Tensor, scalars: Several, old: Several) -> Ruled:
        """The rule, on the sums m / (1 - b1) and v / (1 - b2): fewer passes over the arrays.

        The scalars hold the factors left out and the bias corrections:
        scale * sum / (sqrt(square_sum) + shift).
        """
        scale, shift = scalars
        m = ops.add(ops.mul(self.betas[0], old[0]), g)
        v = ops.add(ops.mul(self.betas[1], old[1]), ops.mul(g, g))
        largest = [ops.maximum(old[2], v)] if self.amsgrad else []
        size = ops.sqrt([v, *largest][-1])
        return ops.sub(w, ops.mul(scale, ops.div(m, ops.add(size, shift)))), (m, v, *largest)


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
        amsgrad: bool = False,
    ):
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad)


class NAdam(Moments):
    """Adam with Nesterov's momentum: w - lr * (p * g / (1 - P) + q * m / (1 - P q)) / (sqrt(v') +
    eps), where p = 1 - mu_t, q = mu_(t+1) and P is the product of mu_1 to mu_t.

    mu_t = b1 (1 - 0.96^(t * momentum_decay) / 2); m, v and v' as in `Adam`. weight_decay: g is
    first g + weight_decay * w. Source: Dozat 2016, "Incorporating Nesterov momentum into Adam", as
    in PyTorch's NAdam.
    """

    def __init__(
        self,
        params: Iterable[Parameter],
        lr: float | Schedule = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum_decay: float = 4e-3,
    ):
        super().__init__(params, lr, betas, eps, weight_decay)
        self.momentum_decay = number("NAdam", "momentum_decay", momentum_decay, 0)
        self.keep("momentum_product", np.float64(1.0))

    def _momentum(self, t: Any) -> Tensor:
        share = ops.mul(0.5, ops.pow(0.96, ops.mul(t, self.momentum_decay)))
        return ops.mul(self.betas[0], ops.sub(1.0, share))

    def _advanced(self) -> dict[str, Tensor]:
        state = super()._advanced()
        mu = self._momentum(ops.cast(state["step"], float64))
        return {**state, "momentum_product": ops.mul(self._state["momentum_product"], mu)}

    def scalars(self, lr: Tensor, t: Tensor | None) -> tuple[Tensor, ...]:
        """The factors of g and of m, and that of sqrt(v)."""
        mu, ahead = self._momentum(t), self._momentum(ops.add(t, 1.0))
        product = ops.mul(self._state["momentum_product"], mu)
        of_g = ops.div(ops.sub(1.0, mu), ops.sub(1.0, product))
        of_m = ops.div(ahead, ops.sub(1.0, ops.mul(product, ahead)))
        root = ops.reciprocal(ops.sqrt(ops.sub(1.0, ops.pow(self.betas[1], t))))
        return ops.mul(lr, of_g), ops.mul(lr, of_m), root

    def rule(self, w: Tensor, g: Tensor, lr: Tensor, scalars: Several, old: Several) -> Ruled:
        """The rule, with the factors of `scalars`."""
        of_g, of_m, root = scalars
        m, v = moments(self.betas, g, old)
        step = ops.add(ops.mul(of_g, g), ops.mul(of_m, m))
        return ops.sub(w, ops.div(step, ops.add(ops.mul(ops.sqrt(v), root), self.eps))), (m, v)


class Adamax(Moments):
    """w - lr * m' / u, u a decaying maximum of |g|: Adam by the largest absolute value.

    m and m' as in `Adam`; u becomes max(b2 * u, |g| + eps), from 0 on. weight_decay: g is first
    g + weight_decay * w. Source: Kingma, Ba 2015, "Adam: a method for stochastic optimization",
    section 7.1, with eps as in PyTorch's Adamax.
    """

    _kinds = "mean", "largest"

    def __init__(
        self,
        params: Iterable[Parameter],
        lr: float | Schedule = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ):
        super().__init__(params, lr, betas, eps, weight_decay)

    def scalars(self, lr: Tensor, t: Tensor | None) -> tuple[Tensor, ...]:
        """The rate of m / u."""
        return (ops.div(lr, ops.sub(1.0, ops.pow(self.betas[0], t))),)

    def rule(self, w: Tensor, g: Tensor, lr: Tensor, scalars: Several, old: Several) -> Ruled:
        """The rule, with the rate of `scalars`."""
        m = running(self.betas[0], old[0], g)
        u = ops.maximum(ops.mul(self.betas[1], old[1]), ops.add(ops.abs(g), self.eps))
        return ops.sub(w, ops.mul(scalars[0], ops.div(m, u))), (m, u)


class RAdam(Moments):
    """w - lr * m' * r * sqrt(1 - b2^t) / (sqrt(v) + eps), r the rectification of the variance; and
    w - lr * m' in the first updates, as long as rho_t <= 5.

    rho_t = rho - 2 t b2^t / (1 - b2^t) with rho = 2 / (1 - b2) - 1, and r^2 = (rho_t - 4)
    (rho_t - 2) rho / ((rho - 4) (rho - 2) rho_t); m, m' and v as in `Adam`. weight_decay: g is
    first g + weight_decay * w. Source: Liu et al. 2020, "On the variance of the adaptive learning
    rate and beyond", as in PyTorch's RAdam.
    """

    def scalars(self, lr: Tensor, t: Tensor | None) -> tuple[Tensor, ...]:
        """The rate of m, the factor of 1 / (sqrt(v) + eps), and 1 where this is to be used."""
        b1, b2 = self.betas
        rho, power = 2.0 / (1.0 - b2) - 1.0, ops.pow(b2, t)
        left = ops.sub(1.0, power)
        now = ops.sub(rho, ops.div(ops.mul(ops.mul(2.0, t), power), left))
        used = ops.greater(now, 5.0)
        safe = ops.where(used, now, 6.0)
        above = ops.mul(ops.mul(ops.sub(safe, 4.0), ops.sub(safe, 2.0)), rho)
        below = ops.mul((rho - 4.0) * (rho - 2.0), safe)
        factor = ops.sqrt(ops.mul(ops.div(above, below), left))
        rate = ops.div(lr, ops.sub(1.0, ops.pow(b1, t)))
        return rate, factor, ops.cast(used, float64)

    def rule(self, w: Tensor, g: Tensor, lr: Tensor, scalars: Several, old: Several) -> Ruled:
        """The rule, with the factors of `scalars`."""
        rate, factor, used = scalars
        m, v = moments(self.betas, g, old)
        adapted = ops.div(factor, ops.add(ops.sqrt(v), self.eps))
        size = ops.where(ops.greater(used, 0.5), adapted, ops.ones_like(adapted))
        return ops.sub(w, ops.mul(ops.mul(rate, m), size)), (m, v)


def moments(betas: tuple[float, float], g: Tensor, old: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """The running means of g and of g^2."""
    return running(betas[0], old[0], g), running(betas[1], old[1], ops.mul(g, g))


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

    def rule(self, w: Tensor, g: Tensor, lr: Tensor, scalars: Several, old: Several) -> Ruled:
        """The rule, with the slots in use."""
        state = dict(zip(self._kinds, old, strict=True))
        v = state["square_mean"] = running(self.alpha, state["square_mean"], ops.mul(g, g))
        if "mean" in state:
            m = state["mean"] = running(self.alpha, state["mean"], g)
            v = ops.maximum(ops.sub(v, ops.mul(m, m)), 0.0)  # rounding can make it negative
        step = ops.div(g, ops.add(ops.sqrt(v), self.eps))
        if "velocity" in state:
            step = state["velocity"] = ops.add(ops.mul(self.momentum, state["velocity"]), step)
        return ops.sub(w, ops.mul(lr, step)), tuple(state.values())


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

    def rule(self, w: Tensor, g: Tensor, lr: Tensor, scalars: Several, old: Several) -> Ruled:
        """w - lr * g / (sqrt(v) + eps), and v."""
        v = ops.add(old[0], ops.mul(g, g))
        return ops.sub(w, ops.mul(lr, ops.div(g, ops.add(ops.sqrt(v), self.eps)))), (v,)


class Adadelta(Optimizer):
    """w - lr * d, where d = sqrt(u + eps) / sqrt(v + eps) * g, and v and u are running means of g^2
    and, after the update, of d^2: v becomes rho * v + (1 - rho) * g^2.

    weight_decay: g is first g + weight_decay * w. Source: Zeiler 2012, "ADADELTA: an adaptive
    learning rate method", with lr as in PyTorch's Adadelta.
    """

    def __init__(
        self,
        params: Iterable[Parameter],
        lr: float | Schedule = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0.0,
    ):
        super().__init__(params, lr, weight_decay)
        self.rho = number("Adadelta", "rho", rho, 0, below=1)
        self.eps = number("Adadelta", "eps", eps, above=0)
        self.slots("square_mean")
        self.slots("change_mean")

    def rule(self, w: Tensor, g: Tensor, lr: Tensor, scalars: Several, old: Several) -> Ruled:
        """w - lr * d, v and u."""
        v = running(self.rho, old[0], ops.mul(g, g))
        d = ops.mul(ops.sqrt(ops.div(ops.add(old[1], self.eps), ops.add(v, self.eps))), g)
        return ops.sub(w, ops.mul(lr, d)), (v, running(self.rho, old[1], ops.mul(d, d)))


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

    def rule(self, w: Tensor, g: Tensor, lr: Tensor, scalars: Several, old: Several) -> Ruled:
        """The update by the sign, and the new mean; weight decay is done before."""
        ahead, m = (running(b, old[0], g) for b in self.betas)
        return ops.sub(w, ops.mul(lr, ops.sign(ahead))), (m,)


# --- Checks of arguments --------------------------------------------------------------------------


def in_betas(owner: str, betas: Any) -> tuple[float, float]:
    """The betas as floats; refused unless they are two numbers from 0 to below 1."""
    if not isinstance(betas, (tuple, list)) or len(betas) != 2:
        kind = ValueRefusedError if isinstance(betas, (tuple, list)) else AttributeRefusedError
        raise kind(f"{owner} got betas={betas!r}; expected two numbers, as (0.9, 0.999)")
    first, second = (number(owner, f"betas[{i}]", b, 0, below=1) for i, b in enumerate(betas))
    return first, second


def checked_params(owner: str, params: Iterable[Parameter]) -> tuple[Parameter, ...]:
    """The parameters; GradientArgumentError for an empty list, a duplicate or anything else."""
    if isinstance(params, Parameter):
        raise GradientArgumentError(
            f"{owner} got one Parameter, {params.name!r}; give it a list, as [net.weight], or "
            "net.trainable_params()"
        )
    if not isinstance(params, Iterable):
        raise GradientArgumentError(
            f"{owner} got {type(params).__name__} for its parameters; give it "
            "net.trainable_params()"
        )
    given = tuple(params)
    if not given:
        raise GradientArgumentError(
            f"{owner} got no parameters; give it net.trainable_params() of a net that has some "
            "and in which they are not all frozen: net.unfreeze() undoes net.freeze()"
        )
    for i, p in enumerate(given):
        if not isinstance(p, Parameter):
            raise GradientArgumentError(
                f"{owner} got {type(p).__name__} as parameter {i}; expected Parameters, such as "
                "net.trainable_params(); for groups of them give optim.Groups an optimizer each"
            )
        if not is_float(p.dtype):
            raise GradientArgumentError(
                f"{owner} got parameter {p.name!r} of {p.dtype}; only floats learn: make it with "
                "requires_grad=False"
            )
        if any(p is other for other in given[:i]):
            raise GradientArgumentError(f"{owner} got parameter {p.name!r} twice; give it once")
    return given


def checked_rate(owner: str, lr: Any) -> float:
    """The learning rate, a number or a Tensor of shape (), as a finite float >= 0."""
    return number(owner, "lr", lr.item() if getattr(lr, "shape", None) == () else lr, 0)


def first_rate(owner: str, schedule: Schedule) -> Any:
    """The learning rate of step 0; MinimlError unless the schedule gives one number."""
    found = schedule(np.float64(0.0))
    if np.shape(found) == () and isinstance(found, (Tensor, int, float, np.number)):
        return found
    got = typed(found) if isinstance(found, Tensor) else repr(found)
    raise MinimlError(
        f"{owner} got a schedule that gives {got} for step 0; expected one number, or a Tensor of "
        "shape ()"
    )


def unique_names(params: Sequence[Parameter]) -> list[str]:
    """The parameters' names, equal ones made unique by "#2", "#3", ..."""
    names: list[str] = []
    for p in params:
        same = sum(other.name == p.name for other in params[: len(names)])
        names.append(p.name if not same else f"{p.name}#{same + 1}")
    return names
