"""From Python functions to graphs: arguments and results are trees, of which tensors are traced."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import optree

from ..attributes import Same, key
from ..errors import GraphError, MinimlError
from ..reading import Reading
from ..tensor import Parameter, Tensor, common_device
from ..trace import Guarded
from .ir import Graph
from .tracer import GraphTrace, trace_graph

Rebuild = Callable[[Sequence[Any]], Any]


def trace(fn: Callable[..., Any], *example_args: Any, **named: Any) -> Graph:
    """The graph of `fn` for arguments of these types; nothing is computed and no pass has run.

    Arguments, by position or by keyword, and results are trees (tuples, lists, dicts ...). Tensors
    and arrays in them become inputs and outputs of the graph; Python scalars, strings, None and
    dtypes are part of the program, so pass a Tensor for a number that varies. Parameters are
    state, wherever `fn` meets them.

    >>> from miniml import ops
    >>> print(trace(ops.exp, np.zeros((2, 3), np.float32)))
    Exp(%0: float32[2,3]):
      %1: float32[2,3] = Exp() %0
      return %1
    """
    leaves, _, _ = flatten_arguments((example_args, named))
    graph, _, _ = trace_call(fn, example_args, named, common_device("trace", leaves))
    return graph


def flatten_arguments(args: Any) -> tuple[list[Tensor], tuple[object, ...], Rebuild]:
    """(leaves, key, rebuild) of a tree of arguments.

    leaves: the tensors to trace; arrays become Tensors on the device of the first Tensor. key:
    hashable, equal where the structure and all else in the tree are equal; 1, 1.0 and True differ,
    Parameters and objects without a value of their own count by identity. `rebuild(leaves)` puts
    other values in the tensors' places and gives the tree. GraphError for a static leaf that
    cannot be hashed, and for a dataclass of tensors that optree does not know.
    """
    found, spec = optree.tree_flatten(args)
    places = [i for i, leaf in enumerate(found) if is_traced(leaf)]
    device = next((found[i].device for i in places if isinstance(found[i], Tensor)), None)
    leaves = [_as_leaf(found[i], device) for i in places]
    traced = set(places)
    statics = tuple(_static_key(v) for i, v in enumerate(found) if i not in traced)

    def rebuild(values: Sequence[Any]) -> Any:
        filled = list(found)
        for place, value in zip(places, values, strict=True):
            filled[place] = value
        return optree.tree_unflatten(spec, filled)

    return leaves, (spec, tuple(places), statics), rebuild


def trace_call(
    fn: Callable[..., Any], args: Sequence[Any], named: Mapping[str, Any], device: str
) -> tuple[Graph, Rebuild, GraphTrace]:
    """Trace `fn(*args, **named)`: the graph, `rebuild(output values)`, which gives what fn returned
    with these values in the tensors' places, and the ended trace with its guards."""
    leaves, _, rebuild = flatten_arguments((args, named))
    results: list[Any] = []

    def body(*tensors: Tensor) -> list[Any]:
        by_position, by_keyword = rebuild(tensors)
        results.append(fn(*by_position, **by_keyword))
        return [leaf for leaf in optree.tree_leaves(results[0]) if is_result(leaf)]

    abstracts = [leaf._abstract for leaf in leaves]
    graph, ended = trace_graph(body, abstracts, device, function_name(fn))
    for leaf in optree.tree_leaves(results[0]):
        refuse_dataclass(f"{function_name(fn)} returned", leaf)
    return graph, _result_rebuild(results[0]), ended


def _result_rebuild(result: Any) -> Rebuild:
    found, spec = optree.tree_flatten(result)
    places = [i for i, leaf in enumerate(found) if is_result(leaf)]
    if places == [0] and spec.is_leaf():
        return lambda values: values[0]
    frame = [None if is_result(leaf) else leaf for leaf in found]

    def rebuild(values: Sequence[Any]) -> Any:
        filled = list(frame)
        for place, value in zip(places, values, strict=True):
            filled[place] = value
        return optree.tree_unflatten(spec, filled)

    return rebuild


def is_result(leaf: Any) -> bool:
    """True for the leaves of a result that become outputs of the graph."""
    return isinstance(leaf, (Tensor, np.ndarray, np.generic))


def is_traced(leaf: Any) -> bool:
    """True for the leaves of an argument that become inputs of the graph."""
    return is_result(leaf) and not isinstance(leaf, Parameter)


def _as_leaf(leaf: Any, device: str | None) -> Tensor:
    if isinstance(leaf, Reading):
        leaf.own()  # a program may write to what it shares memory with
    return leaf if isinstance(leaf, Tensor) else Tensor(leaf, device=device)


def refuse_dataclass(who: str, leaf: Any, kind: type[MinimlError] = GraphError) -> None:
    """Raise where a leaf is a dataclass with tensors in its fields, which no trace would see."""
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


def function_name(fn: Any) -> str:
    """What a graph of `fn` is called."""
    name = getattr(fn, "__name__", None) or getattr(fn, "name", None)
    name = name if isinstance(name, str) else type(fn).__name__
    return name if name.isidentifier() else "graph"
