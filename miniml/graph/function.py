"""From Python functions to graphs: arguments and results are trees, whose tensors are traced."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any

from ..abstract import Abstract
from ..dtype import canonical
from ..errors import DeviceError
from ..holes import Holes, holes
from ..tensor import Tensor, common_device
from .ir import Graph
from .names import input_names, output_names
from .tracer import GraphTrace, trace_graph
from .trees import Rebuild, flatten_arguments, is_result, refuse_dataclass


def trace(fn: Callable[..., Any], *example_args: Any, **named: Any) -> Graph:
    """The graph of `fn` for arguments of these types; nothing is computed and no pass has run.

    Arguments, by position or by keyword, and results are trees (tuples, lists, dicts ...). Tensors
    and arrays in them become inputs and outputs of the graph; Python scalars, strings, None and
    dtypes are part of the program, so pass a Tensor for a number that varies. Parameters are
    state, wherever `fn` meets them. The graph's inputs have the names of fn's parameters, those in
    a tree their path, such as "batch.x"; its outputs "out", or their paths.

    >>> import numpy as np
    >>> from miniml import ops
    >>> print(trace(ops.exp, np.zeros((2, 3), np.float32)))
    Exp(%0: float32[2, 3]):
      %1: float32[2, 3] = Exp() %0
      return %1
    """
    leaves, _, rebuild = flatten_arguments((example_args, named))
    abstracts = [Abstract(leaf.shape, canonical(leaf.dtype)) for leaf in leaves]
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    device = common_device("trace", tensors)
    graph, result, _ = trace_call(fn, rebuild, abstracts, device, placed=bool(tensors))
    inputs = input_names(fn, rebuild, len(graph.inputs))
    return replace(graph, input_names=inputs, output_names=output_names(result, len(graph.outputs)))


def trace_call(
    fn: Callable[..., Any],
    rebuild: Rebuild,
    abstracts: Sequence[Abstract],
    device: str,
    placed: bool = True,
) -> tuple[Graph, Rebuild, GraphTrace]:
    """Trace fn on inputs of these types, which `rebuild` puts into (args, named).

    placed: whether some input is a tensor, which says on which device. Arrays alone follow the
    tensors that fn finds: where these are elsewhere, fn is traced again for their device.

    Gives the graph, `rebuild(output values)`, which gives what fn returned with these values in the
    tensors' places, and the ended trace with its guards.
    """
    results: list[Holes] = []

    def body(*tensors: Tensor) -> list[Any]:
        by_position, by_keyword = rebuild(tensors)
        results[:] = [holes(fn(*by_position, **by_keyword), is_result)]
        return results[0].taken()

    elsewhere = None
    try:
        graph, ended = trace_graph(body, abstracts, device, function_name(fn))
    except DeviceError as error:
        elsewhere = error.other
        if placed or elsewhere is None:
            raise
    if elsewhere is not None:  # here, where errors do not come with that one
        graph, ended = trace_graph(body, abstracts, elsewhere, function_name(fn))
    for leaf in results[0].left():
        refuse_dataclass(f"{function_name(fn)} returned", leaf)
    return graph, _rebuild(results[0]), ended


def _rebuild(result: Holes) -> Rebuild:
    """A function that puts values in the places of a result's tensors, without keeping those
    alive."""
    if result.positions == [0] and result.spec.is_leaf():
        return itemgetter(0)
    return result.emptied().filled


def function_name(fn: Any) -> str:
    """The name of a graph of `fn`."""
    name = getattr(fn, "__name__", None) or getattr(fn, "name", None)
    name = name if isinstance(name, str) else type(fn).__name__
    return name if name.isidentifier() else "graph"
