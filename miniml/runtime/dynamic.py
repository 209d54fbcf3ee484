"""Dynamic axes: which extents of the arguments of a compiled function are expected to vary."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import Signature
from typing import Any

import optree

from ..abstract import Abstract, Shape
from ..dtype import DType
from ..errors import GraphError, ShapeError
from ..graph.names import signature_of
from ..graph.trees import Rebuild

Types = tuple[tuple[Shape, DType], ...]
Axes = dict[int, tuple[int, ...]]  # by the position of a tensor among those of a call
SIZES = 8  # programs that are kept for one function and kind of arguments


class Leaf:
    """What stands in the place of a tensor while the arguments are named."""

    __slots__ = ("position",)

    def __init__(self, position: int):
        self.position = position


class Dynamic:
    """The axes that vary, by the names of arguments, as in {"x": (0,)}.

    An argument may be a tree: then it is these axes of each tensor in it. GraphError for a name
    that the function does not have, and for axes that are not integers.
    """

    def __init__(self, name: str, fn: Callable[..., Any], axes: object):
        self.name = name
        self.signature = _signature(name, fn)
        self.axes = self._checked(axes)

    def _checked(self, axes: object) -> dict[str, tuple[int, ...]]:
        if not isinstance(axes, Mapping) or not axes:
            raise GraphError(
                f"jit of {self.name} got dynamic={axes!r}; give the axes that vary by the name of "
                "the argument, as in {'x': (0,)}"
            )
        return {name: self._one(name, axes[name]) for name in axes}

    def _one(self, name: object, axes: object) -> tuple[int, ...]:
        if name not in self.signature.parameters:
            known = ", ".join(self.signature.parameters) or "none"
            raise GraphError(
                f"jit of {self.name} got dynamic axes of {name!r}, which is not among its "
                f"arguments: {known}"
            )
        given = (axes,) if isinstance(axes, int) else axes
        if not isinstance(given, (tuple, list)) or {*map(type, given)} != {int}:
            raise GraphError(
                f"jit of {self.name} got {axes!r} as the dynamic axes of {name}; give integers, "
                "as in (0,)"
            )
        return tuple(given)

    def general(self, rebuild: Rebuild, types: Types) -> object:
        """The types with None for the extents that vary: equal for calls in other sizes only.

        rebuild: gives (args, named) with values in the places of the tensors. GraphError for an
        argument without a tensor, other than None, and ShapeError for an axis that one lacks.
        """
        places = self._found(rebuild, len(types))
        return tuple(
            (self._open(shape, dtype, places.get(i, ())), dtype)
            for i, (shape, dtype) in enumerate(types)
        )

    def _found(self, rebuild: Rebuild, count: int) -> Axes:
        args, named = rebuild([Leaf(i) for i in range(count)])
        try:
            given = self.signature.bind(*args, **named).arguments
        except TypeError:
            return {}  # the call that is traced says what is wrong
        found: Axes = {}
        for name, axes in self.axes.items():
            value: Any = given.get(name)
            leaves = [a for a in optree.tree_leaves(value) if isinstance(a, Leaf)]
            if not leaves and value is not None:
                raise GraphError(
                    f"{self.name} got {value!r} for {name}, whose axes {axes} are dynamic; pass a "
                    "Tensor, or leave it out of dynamic="
                )
            found |= {leaf.position: axes for leaf in leaves}
        return found

    def _open(self, shape: Shape, dtype: DType, axes: Sequence[int]) -> tuple[int | None, ...]:
        for axis in axes:
            if not -len(shape) <= axis < len(shape):
                raise ShapeError(
                    f"{self.name} has the dynamic axis {axis} in an argument that is "
                    f"{Abstract(shape, dtype)}; name axes that it has"
                )
        varies = {axis % len(shape) for axis in axes}
        return tuple(None if i in varies else n for i, n in enumerate(shape))


def _signature(name: str, fn: Any) -> Signature:
    try:
        return signature_of(fn)
    except (TypeError, ValueError):
        raise GraphError(
            f"jit of {name} cannot name its arguments; wrap it in a function for dynamic="
        ) from None
