"""Graphs inside graphs: how branches and loop bodies are traced, joined and compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import optree

from ...abstract import Shape
from ...dtype import FLOATS, bool_, float32
from ...errors import DTypeError, ShapeError, TracedValueError
from ...holes import Holes, holes
from ...settings import current
from ...trace import current_trace
from ..arithmetic import cast
from ..create import full
from ..shape import reshape

Tree = Any


@dataclass(frozen=True)
class Traced:
    """A function as a graph; `structure` is that of what it returned. blocks: those that it draws
    of each generator."""

    graph: Any
    captures: list[Any]
    blocks: dict[Any, int]
    structure: Any


def traced(fn: Callable[..., Tree], leaves: Sequence[Any], name: str) -> Traced:
    """The function of tensors as a graph of the current trace."""
    structures: list[Any] = []

    def body(*tensors: Any) -> list[Any]:
        found, structure = optree.tree_flatten(fn(*tensors))
        structures.append(structure)
        return found

    body.__name__ = name
    return Traced(*current_trace().graph_of(body, leaves), structures[0])


def merged(leaves: list[Any], *parts: Traced) -> tuple[list[Any], list[tuple[int, ...]]]:
    """The leaves and all captures, each once, and which of them each part takes."""
    inputs, place = list(leaves), {}
    takes = []
    for part in parts:
        for value in part.captures:
            if id(value) not in place:
                place[id(value)] = len(inputs)
                inputs.append(value)
        takes.append((*range(len(leaves)), *(place[id(v)] for v in part.captures)))
    return inputs, takes


def tensor_leaves(tree: Tree) -> Holes:
    """The tree, with holes where it has tensors and arrays."""
    return holes(tree, lambda leaf: hasattr(leaf, "dtype"))


def known_truth(name: str, pred: Any) -> bool | None:
    """The truth of a bool of one element, None while a graph is traced that computes it."""
    shape = np.shape(pred)
    if any(n != 1 for n in shape):
        raise ShapeError(
            f"{name} needs a condition of one element; got shape {shape}; reduce it, as with .all()"
        )
    if not isinstance(pred, (bool, np.bool_)) and getattr(pred, "dtype", None) != bool_:
        raise DTypeError(
            f"{name} needs a bool as its condition; got {_kind(pred)}; compare it with something, "
            "as in x > 0"
        )
    try:
        return bool(pred)
    except TracedValueError:
        return None


def _kind(value: Any) -> str:
    if hasattr(value, "dtype"):
        return f"{value.dtype}[{', '.join(map(str, np.shape(value)))}]"
    return f"{type(value).__name__} {value!r}"


def truth(pred: Any) -> Any:
    """The condition, a bool of one element, as one of shape ()."""
    return pred if np.shape(pred) == () else reshape(pred, ())


def tensors(name: str, tree: Tree) -> Tree:
    """The tree with Python numbers as tensors, and parameters as the values they have now;
    DTypeError for leaves that are no tensors."""

    def tensor(value: Any) -> Any:
        if hasattr(value, "set_data"):
            return current_trace().stand_in(value)
        if hasattr(value, "dtype"):
            return value
        if not isinstance(value, (bool, int, float)):
            raise DTypeError(
                f"{name} got {value!r} of type {type(value).__name__} among its values; they are "
                "tensors, arrays and numbers; what does not change belongs in the functions"
            )
        return full((), value)

    return optree.tree_map(tensor, tree)


def kept(name: str, what: str, before: Tree, after: Tree) -> Tree:
    """What the body of a loop gave back for what it took: the same types; of floats that autocast
    brought to 16 bits, cast back. ShapeError or DTypeError, naming the leaf of `what`, otherwise.
    """
    if current().autocast and optree.tree_structure(before) == optree.tree_structure(after):
        after = optree.tree_map(_as_before, before, after)
    keeps(name, what, before, after)
    return after


def _as_before(before: Any, after: Any) -> Any:
    narrowed = after.dtype == current().autocast and before.dtype in FLOATS
    return cast(after, before.dtype) if narrowed and before.dtype != after.dtype else after


def outcome(name: str, tree: Tree) -> Tree:
    """The results of a branch, as tensors; in autocast 16 bits come out as float32, so that
    branches agree whichever of them multiplies."""
    found, low = tensors(name, tree), current().autocast
    if not low:
        return found
    return optree.tree_map(lambda x: cast(x, float32) if x.dtype == low else x, found)


def keeps(name: str, what: str, before: Tree, after: Tree) -> None:
    """ShapeError or DTypeError, naming the leaf of `what`, unless both have the same types."""
    left, structure = optree.tree_flatten(before)
    right, other = optree.tree_flatten(after)
    if structure != other:
        raise ShapeError(
            f"{name} body returns {other} for {structure}; it keeps the structure of its {what}"
        )

    def leaf(i: int) -> str:
        return optree.tree_accessors(before)[i].codify(what)

    agree(name, "the loop", list(map(typed, left)), "body", list(map(typed, right)), leaf)


def typed(value: Any) -> tuple[str, Shape]:
    """The dtype's name and the shape."""
    return value.dtype.name, tuple(value.shape)


def types(variables: Any) -> list[tuple[str, Shape]]:
    """The dtypes' names and the shapes of a graph's values."""
    return [typed(v.abstract) for v in variables]


def agree(
    name: str,
    left: str,
    ours: Sequence[Any],
    right: str,
    theirs: Sequence[Any],
    leaf: Callable[[int], str] = "value {}".format,
) -> None:
    """ShapeError or DTypeError for the first difference between two lists of types; leaf: what to
    call the value at an index."""
    if len(ours) != len(theirs):
        raise ShapeError(f"{name} {left} has {len(ours)} values and {right} {len(theirs)}")
    for i, (one, two) in enumerate(zip(ours, theirs, strict=True)):
        if one != two:
            shown = [f"{dtype}[{', '.join(map(str, shape))}]" for dtype, shape in (one, two)]
            raise (DTypeError if one[1] == two[1] else ShapeError)(
                f"{name} {leaf(i)} is {shown[0]} in {left} and {shown[1]} in {right}; make them "
                "equal, as with ops.cast or ops.reshape"
            )


def feeds(
    name: str, label: str, graph: Any, takes: tuple[int, ...], given: tuple[Any, ...]
) -> None:
    """ShapeError or DTypeError unless `given` (shapes, or dtypes) has what the graph takes."""
    if len(takes) != len(graph.inputs) or any(not 0 <= i < len(given) for i in takes):
        raise ShapeError(
            f"{name} {label} takes {len(graph.inputs)} inputs, from positions {takes} of the "
            f"{len(given)} given; give a position for each"
        )
    for i, var in zip(takes, graph.inputs, strict=True):
        got = given[i]
        by_shape = isinstance(got, tuple)
        if got != (var.abstract.shape if by_shape else var.abstract.dtype):
            raise (ShapeError if by_shape else DTypeError)(
                f"{name} {label} was traced for {var.abstract} at position {i}; got "
                f"{got if by_shape else got.name}; trace it for that"
            )
