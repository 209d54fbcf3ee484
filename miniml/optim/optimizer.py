"""Optimizer: parameters, their state, a learning rate, and one update of them all."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import epoch, ops
from ..abstract import typed
from ..access import Access
from ..dtype import DType, bfloat16, float16, float32
from ..errors import ArityError, DTypeError, GradientArgumentError, MinimlError, ShapeError
from ..hints import unknown
from ..location import Layer, layers
from ..parameter import Parameter
from ..runtime.staged import together
from ..tensor import Tensor
from ..trace import Guarded, current_trace, is_tracing
from ..tracebacks import hides_frames


class Optimizer(Guarded):
    """Base of optimizers: a subclass defines `new_values` and makes its state with `slots`.

    params: the Parameters to update, as `net.trainable_params()` gives them. lr: the learning
    rate, kept as a Parameter, so that `opt.lr = 0.01` changes it without compiling anew. State is
    kept in float32 for parameters of 16 bits.
    """

    _changes = 0

    def __init__(self, params: Iterable[Parameter], lr: float):
        self.params = _checked(type(self).__name__, params)
        self._names = _unique_names(self.params)
        self._state: dict[str, Parameter] = {}
        self._lr = self.keep("lr", np.float32(self._rate(lr)))

    def new_values(self, grads: Sequence[Tensor]) -> tuple[list[Tensor], dict[str, Tensor]]:
        """The rule: new values of the params, in order, and of the state, by name."""
        raise MinimlError(f"{type(self).__name__} defines no new_values; say how it updates")

    @hides_frames
    def update(self, grads: Sequence[Tensor], where: Tensor | None = None) -> None:
        """Update every parameter with its gradient: all new values first, then all assignments,
        which happen wholly or not at all.

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
        """All that an update writes: the params and the state."""
        return (*self.params, *self._state.values())

    def _update(self, grads: Sequence[Tensor], where: Tensor | None) -> None:
        values, state = self.new_values(grads)
        if where is not None:
            values = [ops.where(where, v, p) for v, p in zip(values, self.params, strict=True)]
            state = {name: ops.where(where, v, self._state[name]) for name, v in state.items()}
        together(self._assign, values, state)

    def _assign(self, values: Sequence[Tensor], state: dict[str, Tensor]) -> None:
        for name, value in state.items():
            ops.assign(self._state[name], value)
        for parameter, value in zip(self.params, values, strict=True):
            ops.assign(parameter, value)

    def _check(self, grads: Sequence[Tensor]) -> None:
        """Before anything is assigned: one gradient per parameter, of its shape and dtype."""
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
        """The learning rate, a float32 Parameter of shape ()."""
        return self._lr

    @lr.setter
    def lr(self, value: float) -> None:
        self._lr.set_data(np.float32(self._rate(value)))

    def parameters_dict(self) -> dict[str, Parameter]:
        """The state by name: "lr", and such as "velocity.0.weight"; checkpoints hold it."""
        return dict(self._state)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name in self.__dict__:  # lr is not: it is state, which programs read anew
            self.__dict__["_changes"] = self._changes + 1
            epoch.bump("cells")

    if not TYPE_CHECKING:  # it would hide misspelt names from the checker

        def __getattr__(self, name: str) -> Any:
            raise unknown(type(self).__name__, name, self)

    @property
    def signature(self) -> tuple[str, int]:
        """Changes with every assignment of an attribute but lr, which is state."""
        return type(self).__name__, self._changes

    def outgrown(self, signature: object) -> bool:
        """True for every signature but the present one."""
        return signature != self.signature

    def keep(self, name: str, value: Any) -> Parameter:
        """Make a piece of state."""
        self._state[name] = Parameter(
            value, name=name, requires_grad=False, device=self.params[0].device
        )
        return self._state[name]

    def slots(self, kind: str) -> list[str]:
        """Make zeros beside every parameter; gives their names, "kind.name of the parameter"."""
        names = [f"{kind}.{name}" for name in self._names]
        for name, p in zip(names, self.params, strict=True):
            self.keep(name, np.zeros(p.shape, wide(p.dtype)))
        return names

    def dtypes(self) -> list[DType]:
        """The dtypes in which the parameters are updated, each once."""
        return list(dict.fromkeys(wide(p.dtype) for p in self.params))

    def _rate(self, lr: float) -> float:
        value = float(lr)
        if not (math.isfinite(value) and value >= 0.0):
            raise MinimlError(f"{type(self).__name__} got lr={value}; expected a number >= 0")
        return value

    def __repr__(self) -> str:
        count = sum(p.size for p in self.params)
        return f"{type(self).__name__}({len(self.params)} parameters, {count:,} numbers)"


def wide(dtype: DType) -> DType:
    """The dtype in which an update of parameters of `dtype` is computed."""
    return float32 if dtype in (float16, bfloat16) else dtype


def in_dtype(value: Tensor, dtype: DType) -> Tensor:
    """The value in a dtype; itself if it has it."""
    return value if value.dtype == dtype else ops.cast(value, dtype)


def in_range(owner: str, name: str, value: float, high: float = math.inf) -> float:
    """The value as a float; MinimlError unless 0 <= value < high."""
    if not 0.0 <= float(value) < high:
        raise MinimlError(f"{owner} got {name}={value}; expected 0 <= {name} < {high:g}")
    return float(value)


def _checked(owner: str, params: Iterable[Parameter]) -> tuple[Parameter, ...]:
    if not isinstance(params, Iterable):
        raise GradientArgumentError(
            f"{owner} got {type(params).__name__} for its parameters; give it "
            "net.trainable_params()"
        )
    given = tuple(params)
    if not given:
        raise GradientArgumentError(
            f"{owner} got no parameters; give it net.trainable_params() of a net that has some"
        )
    for i, p in enumerate(given):
        if not isinstance(p, Parameter):
            raise GradientArgumentError(
                f"{owner} got {type(p).__name__} as parameter {i}; expected Parameters, such as "
                "net.trainable_params()"
            )
        if any(p is other for other in given[:i]):
            raise GradientArgumentError(f"{owner} got parameter {p.name!r} twice; give it once")
    return given


def _unique_names(params: Sequence[Parameter]) -> list[str]:
    """The parameters' names, told apart by "#2", "#3", ... where several are equal."""
    names: list[str] = []
    for p in params:
        same = sum(other.name == p.name for other in params[: len(names)])
        names.append(p.name if not same else f"{p.name}#{same + 1}")
    return names
