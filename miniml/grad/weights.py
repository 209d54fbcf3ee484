"""weights: the Parameters that a gradient is with respect to, and the structure it comes in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from ..dtype import is_float
from ..errors import GradientArgumentError
from ..parameter import Parameter


@runtime_checkable
class Trainable(Protocol):
    """What has parameters to train: a Cell."""

    def trainable_params(self) -> list[Parameter]:
        """The parameters, in order."""


Given = Trainable | Parameter | Sequence[Parameter] | Mapping[str, Parameter]


@dataclass(frozen=True, eq=False)
class Weights:
    """Parameters, one bare (`names` is None), by name, or in order (by number)."""

    parameters: tuple[Parameter, ...]
    names: tuple[Any, ...] | range | None

    @staticmethod
    def of(given: Given) -> Weights:
        """The weights that somebody asks for; GradientArgumentError for anything else."""
        if isinstance(given, Parameter):
            return Weights(_checked((given,)), None)
        if isinstance(given, Mapping):
            return Weights(_checked(given.values()), tuple(given))
        if isinstance(given, Trainable) and not isinstance(given, type):
            given = given.trainable_params()
        if not isinstance(given, (list, tuple, Iterator)):
            raise GradientArgumentError(f"weights is {_what(given)}; {_INSTEAD}")
        parameters = _checked(given)
        return Weights(parameters, range(len(parameters)))

    def arranged(self, gradients: tuple[Any, ...]) -> Any:
        """One gradient per parameter in the structure they were given in; lists give tuples."""
        if self.names is None:
            return gradients[0]
        if isinstance(self.names, range):
            return gradients
        return dict(zip(self.names, gradients, strict=True))

    def key(self) -> tuple[object, ...]:
        """Equal for the same parameters in the same structure."""
        return *map(id, self.parameters), self.names


_INSTEAD = (
    "give a Cell, a float Parameter, or a list or dict of them, such as net.trainable_params()"
)


def _what(given: object) -> str:
    if callable(given) and hasattr(given, "__name__"):
        return f"the function {given.__name__}, which nobody has called"
    return f"{given!r} of type {type(given).__name__}"


def _checked(given: Any) -> tuple[Parameter, ...]:
    parameters = tuple(given)
    for weight in parameters:
        if not (isinstance(weight, Parameter) and is_float(weight.dtype)):
            raise GradientArgumentError(f"weights holds {weight!r}; {_INSTEAD}")
        if sum(weight is other for other in parameters) > 1:
            raise GradientArgumentError(
                f"weights holds parameter {weight.name!r} twice; name each once"
            )
    return parameters
