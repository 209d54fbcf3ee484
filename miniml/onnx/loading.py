"""ONNX to Graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import PathLike
from typing import Any

import numpy as np

from ..errors import OnnxError
from ..graph.ir import Graph
from ..graph.tracer import trace_graph
from ..settings import current
from .model import Model, input_types, unique
from .needs import Needs
from .reader import Scope
from .reading import Reading
from .tensors import dtype_of

_NOTHING: Mapping[str, Any] = {}


def load(
    model: str | PathLike[str] | Any,
    shapes: Mapping[str, Sequence[int]] = _NOTHING,
    dims: Mapping[str, int] = _NOTHING,
    values: Mapping[str, Any] = _NOTHING,
) -> Graph:
    """The graph in an ONNX file (or onnx.ModelProto): a function of its inputs, in their order.

    Its float initializers become Parameters of the same names, so that it can be trained:
    `value_and_grad(..., weights=graph)`, `optim.SGD(graph.trainable_params(), lr=0.1)`. shapes: of
    inputs by name, in place of those in the file; dims: extents of dimensions by name, as
    {"batch": 1}, which a graph must know. values: arrays for inputs that become constants, as
    shapes that were made inputs.

    Operators that have no row (see `register_operator`) stay in it as `ops.Custom`. OnnxError for a
    file that is damaged, leaves its folder, or needs what miniml lacks.
    """
    found = Model.of(model)
    graph = found.proto.graph
    initial = {t.name for t in graph.initializer}
    fixed = {name: np.asarray(value) for name, value in values.items()}
    _check_values(graph, fixed)
    types = input_types(graph, {*initial, *fixed}, shapes, dims)
    unique("outputs", [v.name for v in graph.output])
    count = sum(1 for _ in found.nodes())
    needs = Needs(found)
    constants = needs.of(graph.node, found.opsets)
    scope = Scope(Reading(found, needs, dims, count), found.opsets, constants)

    def body(*tensors: Any) -> Sequence[Any]:
        scope.initialize(graph)
        for name, value in [*zip(types, tensors, strict=True), *fixed.items()]:
            scope.define(name, value)
        return scope.run(graph.node, [v.name for v in graph.output])

    name = graph.name if graph.name.isidentifier() else "graph"
    traced, _ = trace_graph(body, list(types.values()), current().device_target, name)
    outputs = tuple(v.name for v in graph.output)
    return replace(traced, input_names=tuple(types), output_names=outputs)


def _check_values(graph: Any, fixed: Mapping[str, np.ndarray[Any, Any]]) -> None:
    """OnnxError unless the values are of inputs, and of their dtypes."""
    inputs = {v.name: v for v in graph.input}
    for name, value in fixed.items():
        if name not in inputs:
            raise OnnxError(f"values names {name!r}; the inputs are {', '.join(inputs) or 'none'}")
        expected = dtype_of(inputs[name].type.tensor_type.elem_type, f"input {name!r}")
        if value.dtype != expected:
            raise OnnxError(f"values[{name!r}] is {value.dtype}; the input is {expected.name}")
