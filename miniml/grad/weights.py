"""weights: the Parameters that a gradient is with respect to, and the structure it comes in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import optree

from ..dtype import is_float
from ..errors import GradientArgumentError
from ..parameter import Parameter


@runtime_checkable
class Trainable(Protocol):
    """What has parameters to train: a Cell."""

    def trainable_params(self) -> list[Parameter]:
        """The parameters, in order."""


Given = Trainable | Parameter | Sequence["Given"] | Mapping[str, "Given"]


@dataclass(frozen=True, eq=False)
class Weights:
    """Parameters, and the structure that they were given in."""

    parameters: tuple[Parameter, ...]
    structure: optree.PyTreeSpec

    @staticmethod
    def of(given: Given) -> Weights:
        """The weights that somebody asks for; GradientArgumentError for anything else."""
        tree = _tree(given)
        known = isinstance(tree, (Parameter, tuple, dict))
        if not known:
            raise GradientArgumentError(f"weights is {_what(given)}; {_INSTEAD}")
        leaves, structure = optree.tree_flatten(tree, none_is_leaf=True)
        return Weights(_checked(leaves), structure)

    def arranged(self, gradients: tuple[Any, ...]) -> Any:
        """One gradient per parameter in that structure; lists and cells give tuples."""
        return self.structure.unflatten(gradients)

    def key(self) -> tuple[object, ...]:
        """Equal for the same parameters in the same structure."""
        return *map(id, self.parameters), self.structure


def _tree(given: Any) -> Any:
    """The parameters of cells, lists and dicts in tuples and dicts; all else as it is."""
    if isinstance(given, Mapping):
        return {name: _tree(value) for name, value in given.items()}
    if isinstance(given, Trainable) and not isinstance(given, (type, Parameter)):
        return tuple(given.trainable_params())
    return tuple(map(_tree, given)) if isinstance(given, (list, tuple, Iterator)) else given


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
