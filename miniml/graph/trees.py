"""Arguments and results of traced functions as trees: leaves that are traced, others static."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import optree

from ..attributes import Same, key
from ..errors import GraphError, MinimlError
from ..holes import holes
from ..parameter import Parameter
from ..reading import Reading
from ..tensor import Array, Tensor, host_array
from ..trace import Guarded

Rebuild = Callable[[Sequence[Any]], Any]
_ARRAYS = Tensor, np.ndarray, np.generic


def flatten_arguments(args: Any) -> tuple[list[Tensor | Array], tuple[object, ...], Rebuild]:
    """(leaves, key, rebuild) of a tree of arguments.

    leaves: the tensors and arrays to trace, these of dtypes that tensors have. key:
    hashable, equal where the structure and all else in the tree are equal; 1, 1.0 and True differ,
    Parameters and objects without a value of their own count by identity. `rebuild(leaves)` puts
    other values in the tensors' places and gives the tree. GraphError for a static leaf that
    cannot be hashed, and for a dataclass of tensors that optree does not know.
    """
    tree = holes(args, is_traced)
    leaves = [_as_leaf(leaf) for leaf in tree.taken()]
    statics = tuple(map(_static_key, tree.left()))
    return leaves, (tree.spec, tuple(tree.positions), statics), tree.filled


def is_result(leaf: Any) -> bool:
    """True for the leaves of a result that become outputs of the graph."""
    return isinstance(leaf, _ARRAYS)


def is_traced(leaf: Any) -> bool:
    """True for the leaves of an argument that become inputs of the graph."""
    return isinstance(leaf, _ARRAYS) and not isinstance(leaf, Parameter)


def _as_leaf(leaf: Any) -> Tensor | Array:
    if isinstance(leaf, Reading):
        leaf.own()  # a program may write to memory that it shares
    return leaf if isinstance(leaf, Tensor) else host_array(leaf, None)


def refuse_dataclass(who: str, leaf: Any, kind: type[MinimlError] = GraphError) -> None:
    """Refuse a leaf that is a dataclass with tensors in its fields, which no trace would see."""
    if not is_dataclass(leaf) or isinstance(leaf, (type, Guarded)):
        return
    held: Any = [getattr(leaf, f.name, None) for f in fields(leaf)]
    if any(map(is_traced, optree.tree_leaves(held))):
        name = type(leaf).__name__
        raise kind(
            f"{who} the dataclass {name}, a leaf whose tensors are not found; declare {name} with "
            '@optree.dataclasses.dataclass(namespace=""), or make it a NamedTuple'
        )


def _static_key(value: Any) -> object:
    if isinstance(value, Tensor):
        return Same(value)
    refuse_dataclass("a traced function got", value)
    try:
        hash(value)
    except TypeError:
        raise GraphError(
            f"a traced function got {value!r} of type {type(value).__name__}, which is neither a "
            "tensor nor hashable; pass Tensors, numbers, strings, or trees of these"
        ) from None
    return key(value)
