"""Optimizer: parameters, their state, a learning rate, and one update of them all.

Then the checks of the arguments of optimizers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from .. import ops
from ..core import epoch
from ..core.abstract import typed
from ..core.access import Access
from ..core.dtype import DType, bfloat16, float16, float32, float64, is_float, promote
from ..core.errors import (
    ArityError,
    AttributeRefusedError,
    DTypeError,
    GradientArgumentError,
    Layer,
    MinimlError,
    ShapeError,
    ValueRefusedError,
    layers,
)
from ..core.hints import Constructed, hides_frames, unknown
from ..core.options import number
from ..core.parameter import Parameter
from ..core.tensor import Tensor
from ..core.trace import Guarded, current_trace, is_tracing
from ..nn import Cell
from ..runtime.eager import together

Schedule = Callable[[Any], Any]


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
        """New values of the params, in order, and of the state, by name: `rule` for each."""
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

    def rule(
        self, w: Tensor, g: Tensor, lr: Tensor, scalars: Sequence[Tensor], old: Sequence[Tensor]
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The new value of a parameter w with gradient g, and of its slots, whose values are
        `old`, in the order in which they were made; all in one dtype, that of the update."""
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
            state["lr"] = self._scheduled_rate(ops.cast(self._state["step"], float64))
        return state

    def _scheduled_rate(self, step: Any) -> Tensor:
        rate = self._schedule(step)  # type: ignore[misc]
        if isinstance(rate, Tensor):
            return in_dtype(rate, self._lr.dtype)
        return ops.full_like(self._lr, rate)

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
        """New values of params and state where a bool is True, else the present ones."""
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
        """Changes with every assignment of an attribute but lr, which is state."""
        return type(self).__name__, self._changes

    def outgrown(self, signature: object) -> bool:
        """True for every signature but the present one."""
        return signature != self.signature

    def keep(self, name: str, value: Any) -> Parameter:
        """Make a piece of state."""
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


def wide(dtype: DType) -> DType:
    """The dtype in which an update of parameters of `dtype` is computed."""
    return float32 if dtype in (float16, bfloat16) else dtype


def in_dtype(value: Tensor, dtype: DType) -> Tensor:
    """The value in a dtype; itself if it has it."""
    return value if value.dtype == dtype else ops.cast(value, dtype)


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
