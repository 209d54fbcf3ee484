"""Functions of arrays with their pull-backs, and the arguments and gradients of these."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...dtype import DType, is_float
from ...errors import GradientArgumentError
from ...tensor import Tensor
from .rounding import Step

Array = np.ndarray[Any, Any]
Arrays = list[Array]
Pull = Callable[[Arrays], list[Any]]
Name = tuple[int | None, str, str]


class WrongGradientForm(Exception):
    """A gradient has a shape that no gradient of its input can have."""

    def __init__(self, leaf: int, message: str):
        super().__init__(message)
        self.leaf = leaf


@dataclass(frozen=True, slots=True)
class Leaf:
    """One float array among the arguments: which, and where it stands in the long vector."""

    argnum: int | None
    path: str
    argument: str
    shape: tuple[int, ...]
    dtype: DType
    start: int

    @property
    def size(self) -> int:
        """Elements."""
        return math.prod(self.shape)

    @property
    def part(self) -> slice:
        """Its elements in the long vector."""
        return slice(self.start, self.start + self.size)

    def has(self, position: int) -> bool:
        """Whether an element of the long vector is one of its."""
        return self.start <= position < self.start + self.size

    def index(self, position: int) -> tuple[int, ...]:
        """The index in the array of an element of the long vector."""
        return tuple(int(i) for i in np.unravel_index(position - self.start, self.shape))


@dataclass(frozen=True, slots=True)
class Map:
    """A function of float arrays to float arrays, and its linearization at a point.

    run(arrays): the outputs. linearize(arrays): the pull-back, from cotangents to gradients;
    each is a list, in the order of `names`, (argnum, path, shown name) of each input.
    rounding(step, rng): inside it, operations of both that can be seen are off by `step`.
    """

    name: str
    run: Callable[[Arrays], Arrays]
    linearize: Callable[[Arrays], Pull]
    names: tuple[Name, ...]
    rounding: Callable[[Step, np.random.Generator], AbstractContextManager[Any]]


class Saved:
    """Arrays and tensors that a pull-back reads, and may not write to."""

    def __init__(self, values: Sequence[Any], what: str):
        self.values = [v for v in values if not isinstance(v, Tensor) or v.device == "cpu"]
        self.what, self.kept = what, self._bytes()

    def _bytes(self) -> list[bytes]:
        return [np.asarray(v).tobytes() for v in self.values]

    def after(self, result: Any) -> Any:
        """The result of a pull-back; WrongGradientForm if it wrote to one of them."""
        if self._bytes() != self.kept:
            raise WrongGradientForm(-1, f"the pull-back writes into {self.what}")
        return result


def floats_of(name: str, leaves: Sequence[Any]) -> list[Any]:
    """The float ones among the outputs of a function; GradientArgumentError if there is none."""
    floats = [leaf for leaf in leaves if is_float_leaf(leaf)]
    if not floats:
        shown = ", ".join(map(shown_leaf, leaves)) or "nothing"
        raise GradientArgumentError(
            f"{name} returns {shown}; a gradient is checked of functions that return floats"
        )
    return floats


def is_float_leaf(leaf: Any) -> bool:
    """True for tensors, arrays and Python scalars that carry gradients."""
    if isinstance(leaf, (Tensor, np.ndarray, np.generic)):
        return is_float(leaf.dtype)
    return isinstance(leaf, float)


def shown_leaf(value: Any) -> str:
    """A value in a sentence: dtype and shape of arrays, else type and value."""
    if isinstance(value, (Tensor, np.ndarray, np.generic)):
        return f"{value.dtype.name}{list(value.shape)}"
    return f"{type(value).__name__} {value!r}"
