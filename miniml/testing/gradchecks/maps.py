"""Functions of arrays with their pull-backs, and their arguments and gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...abstract import typed
from ...dtype import DType, is_float
from ...errors import GradientArgumentError
from ...tensor import Tensor
from .report import NOTHING, WRONG, Array, Arrays, GradFinding, Numbers
from .rounding import Perturbation

Pull = Callable[[Arrays], list[Any]]
Name = tuple[int | None, str, str]


class WrongGradientForm(Exception):
    """A pull-back returned something that cannot be a gradient of its input (`leaf`, if it is
    one)."""

    def __init__(self, message: str, leaf: Leaf | None = None):
        super().__init__(message)
        self.leaf = leaf

    def finding(self, order: int, where: str = "") -> GradFinding:
        """The finding that it is wrong. where: words before the message."""
        message = f"{where}{self}"
        if self.leaf is None:
            return GradFinding(WRONG, order, message, "gradient")
        return self.leaf.finding(WRONG, order, message)


@dataclass(frozen=True, slots=True)
class Leaf:
    """One float array among the arguments, whose elements begin at `start` in the long vector."""

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

    def among(self, positions: Array) -> Array:
        """Its own elements among these of the long vector."""
        return positions[(self.start <= positions) & (positions < self.start + self.size)]

    def finding(
        self,
        verdict: str,
        order: int,
        diagnosis: str,
        position: int | None = None,
        numbers: Numbers = NOTHING,
    ) -> GradFinding:
        """A finding on it: on one element of the long vector, or on all of it."""
        index: tuple[int, ...] | None = None
        if position is not None:
            index = tuple(map(int, np.unravel_index(position - self.start, self.shape)))
        return GradFinding(
            verdict, order, diagnosis, self.argument, self.argnum, self.path, index, *numbers
        )

    def formed(self, gradient: Any) -> Array:
        """Its gradient as an array (None: zeros); WrongGradientForm if it cannot be one."""
        if gradient is None:
            return np.zeros(self.shape)
        array = np.asarray(gradient)
        if array.shape != self.shape:
            message = f"the gradient has shape {array.shape}, the {self.argument} has {self.shape}"
            if array.ndim >= len(self.shape) and _broadcasts(self.shape, array.shape):
                message += "; a sum over the broadcast axes is missing"
            raise WrongGradientForm(message, self)
        if array.dtype != self.dtype:
            message = f"the gradient has dtype {array.dtype.name}, its input {self.dtype.name}"
            raise WrongGradientForm(message, self)
        return array


def _broadcasts(small: tuple[int, ...], large: tuple[int, ...]) -> bool:
    try:
        return np.broadcast_shapes(small, large) == large
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class Map:
    """A function of float arrays to float arrays, and its linearization at a point.

    run(arrays): the outputs. linearize(arrays): the pull-back, from cotangents to gradients;
    each is a list, in the order of `names`, (argnum, path, shown name) of each input.
    rounding(by, rng): inside it, the results of visible operations are perturbed.
    order: of the derivatives that the pull-back gives. following(): once it has run, the Map of the
    next order: this pull-back, as a function of its inputs and of one cotangent for each output.
    """

    name: str
    run: Callable[[Arrays], Arrays]
    linearize: Callable[[Arrays], Pull]
    names: tuple[Name, ...]
    rounding: Callable[[Perturbation, np.random.Generator], AbstractContextManager[Any]]
    order: int = 1
    following: Callable[[], Map] | None = None


class Kept:
    """Arrays that a function may read but must not write to."""

    def __init__(self, values: Sequence[Any]):
        self.values = [v for v in values if not isinstance(v, Tensor) or v.device == "cpu"]
        self.bytes = [np.asarray(v).tobytes() for v in self.values]

    def changed(self) -> list[int]:
        """Which of them have changed."""
        now = [np.asarray(v).tobytes() for v in self.values]
        return [i for i, (a, b) in enumerate(zip(now, self.bytes, strict=True)) if a != b]


def guarded(pull: Pull, values: Sequence[Any]) -> Pull:
    """The pull-back, with WrongGradientForm if it writes to its inputs."""
    kept = Kept(values)

    def checked(douts: Arrays) -> list[Any]:
        gradients = pull(douts)
        if kept.changed():
            raise WrongGradientForm(
                "the pull-back writes into an argument of the function, or its output"
            )
        return gradients

    return checked


def floats_of(name: str, leaves: Sequence[Any]) -> list[Any]:
    """The float outputs of a function; GradientArgumentError if there is none."""
    floats = [leaf for leaf in leaves if is_float_leaf(leaf)]
    if not floats:
        raise GradientArgumentError(
            f"{name} returns {shown(leaves) or 'nothing'}; a gradient is checked of functions that "
            "return floats"
        )
    return floats


def nothing_in(what: str, leaves: Sequence[Any], expected: str) -> GradientArgumentError:
    """The error for arguments without any float array."""
    return GradientArgumentError(
        f"{what} has nothing to differentiate: it got {shown(leaves) or 'no arguments'}; give at "
        f"least one non-empty {expected} of floats"
    )


def is_float_leaf(leaf: Any) -> bool:
    """True for tensors, arrays and Python scalars that carry gradients."""
    if isinstance(leaf, (Tensor, np.ndarray, np.generic)):
        return is_float(leaf.dtype)
    return isinstance(leaf, float)


def shown(values: Sequence[Any]) -> str:
    """Values in a sentence: dtype and shape of arrays, else type and value."""
    return ", ".join(
        typed(v) if isinstance(v, (Tensor, np.ndarray, np.generic)) else f"{type(v).__name__} {v!r}"
        for v in values
    )
