"""What optimizers are given: the checks, and the names of parameters."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from ..abstract import typed
from ..dtype import is_float
from ..errors import GradientArgumentError, MinimlError
from ..parameter import Parameter
from ..tensor import Tensor

Schedule = Callable[[Any], Any]


def number(owner: str, name: str, value: Any) -> float:
    """The value as a float; MinimlError for what is no number."""
    try:
        return float(value)
    except (TypeError, ValueError):
        raise MinimlError(f"{owner} got {name}={value!r}; expected a number") from None


def in_range(owner: str, name: str, value: Any, high: float = math.inf) -> float:
    """The value as a float; MinimlError unless 0 <= value < high."""
    found = number(owner, name, value)
    if not 0.0 <= found < high:
        raise MinimlError(f"{owner} got {name}={value}; expected 0 <= {name} < {high:g}")
    return found


def count(owner: str, name: str, value: Any) -> int:
    """The value as an int; MinimlError unless it is an integer >= 1."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise MinimlError(f"{owner} got {name}={value!r}; expected an int >= 1")
    return int(value)


def in_betas(owner: str, betas: tuple[float, float]) -> tuple[float, float]:
    """Two numbers from 0 to below 1; MinimlError for others."""
    if np.shape(betas) != (2,):
        raise MinimlError(f"{owner} got betas={betas!r}; expected two numbers, as (0.9, 0.999)")
    return (
        in_range(owner, "betas[0]", betas[0], 1.0),
        in_range(owner, "betas[1]", betas[1], 1.0),
    )


def checked_params(owner: str, params: Iterable[Parameter]) -> tuple[Parameter, ...]:
    """The parameters; GradientArgumentError for none, for other things, and for one twice."""
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
    """The learning rate as a float; MinimlError unless it is finite and >= 0."""
    value = number(owner, "lr", lr)
    if not (math.isfinite(value) and value >= 0.0):
        raise MinimlError(f"{owner} got lr={value}; expected a number >= 0")
    return value


def first_rate(owner: str, schedule: Schedule) -> Any:
    """What the schedule gives for step 0; MinimlError unless it is one number."""
    found = schedule(np.float64(0.0))
    if np.shape(found) == () and isinstance(found, (Tensor, int, float, np.number)):
        return found
    got = typed(found) if isinstance(found, Tensor) else repr(found)
    raise MinimlError(
        f"{owner} got a schedule that gives {got} for step 0; expected one number, or a Tensor of "
        "shape ()"
    )


def unique_names(params: Sequence[Parameter]) -> list[str]:
    """The parameters' names, told apart by "#2", "#3", ... where several are equal."""
    names: list[str] = []
    for p in params:
        same = sum(other.name == p.name for other in params[: len(names)])
        names.append(p.name if not same else f"{p.name}#{same + 1}")
    return names
