"""Reading: a model's nodes run once, in a trace, by the rows of the table of operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from .. import ops
from ..abstract import Abstract
from ..errors import OnnxError
from ..location import Layer, layers
from ..tensor import Tensor
from . import attributes
from .model import Opsets, domain_of, known_types, operator_of, opsets, unique
from .operators import Constant, Operator, Setting
from .reading import Reading, Value, Weight
from .tensors import checked_shape


@dataclass(frozen=True, eq=False)
class Node:
    """A node as a mapping sees it: its names, the version of its operator, its parameters."""

    type: str
    domain: str
    version: int
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    parameters: Any
    scope: Scope

    def run(self, graph: Any, inputs: Sequence[Value] = ()) -> tuple[Any, ...]:
        """The outputs of one of its subgraphs, which sees the values around the node."""
        scope = self.scope
        inner = Scope(scope.reading, scope.opsets, scope.constants, scope)
        return inner.run_graph(graph, inputs)

    def __str__(self) -> str:
        type_ = f"{self.domain}.{self.type}" if self.domain else self.type
        if self.name:
            return f"node {self.name!r} ({type_})"
        return f"node of {', '.join(map(repr, self.outputs)) or 'nothing'} ({type_})"


class Scope:
    """The values of one graph by name, and those of the graphs around it.

    constants: the names of those that must be known.
    """

    def __init__(
        self, reading: Reading, versions: Opsets, constants: Set[str], outer: Scope | None = None
    ):
        self.reading, self.opsets, self.outer = reading, versions, outer
        self.constants = constants
        self.values: dict[str, Value] = {"": None}
        self.types: Mapping[str, Abstract] = {}
        self.functions: tuple[tuple[str, str], ...] = outer.functions if outer else ()

    def define(self, name: str, value: Value) -> None:
        """Give a name its value; OnnxError if it has one."""
        if name in self.values and name:
            raise OnnxError(f"{name!r} is defined twice; each value of a graph has one definition")
        self.values[name] = value

    def find(self, name: str) -> Value:
        """The value of a name here or around; OnnxError if there is none yet."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.values:
                return scope.values[name]
            scope = scope.outer
        raise OnnxError(
            f"{name!r} is defined by nothing before its use; it is missing, or there is a cycle"
        )

    def run_graph(self, graph: Any, inputs: Sequence[Value]) -> tuple[Any, ...]:
        """The outputs of a graph whose first inputs are these."""
        self.initialize(graph)
        names = [v.name for v in graph.input]
        if len(inputs) != len(names):
            raise OnnxError(f"a subgraph takes {len(names)} inputs; got {len(inputs)}")
        for name, value in zip(names, inputs, strict=True):
            self.define(name, value)
        return self.run(graph.node, [v.name for v in graph.output])

    def initialize(self, graph: Any) -> None:
        """Define the initializers: floats as weights unless they must be known."""
        self.types = known_types((*graph.value_info, *graph.output), self.reading.dims)
        unique("initializers", [t.name for t in graph.initializer])
        if graph.sparse_initializer:
            raise OnnxError("the graph has sparse initializers, which miniml does not read")
        for tensor in graph.initializer:
            weight = self.reading.weight(graph, tensor)
            fixed = weight.array.dtype.kind in "?biu" or tensor.name in self.constants
            self.define(tensor.name, weight.array if fixed else weight)

    def run(self, nodes: Sequence[Any], outputs: Sequence[str]) -> tuple[Any, ...]:
        """Run nodes in order; the values of these names."""
        self.reading.step()
        for proto in nodes:
            self.reading.step()
            self.step(proto)
        if "" in outputs:
            raise OnnxError("a graph has an output without a name")
        return tuple(_tensor(self.find(name)) for name in outputs)

    def step(self, proto: Any) -> None:
        """Run one node; errors say which."""
        node = self._node(proto)
        try:
            with layers.use(lambda: Layer(str(node))):
                results = self._results(node, proto)
            for name, value in zip(node.outputs, results, strict=False):
                self.define(name, value)
        except RecursionError:
            raise OnnxError(f"{node} is nested too deeply") from None
        except Exception as error:  # rows meet whatever a file holds
            raise OnnxError(f"{node}: {error}") from error

    def _node(self, proto: Any) -> Node:
        domain = domain_of(proto)
        names = proto.op_type, domain, self.opsets.get(domain, 1), proto.name
        return Node(*names, tuple(proto.input), tuple(proto.output), None, self)

    def _results(self, node: Node, proto: Any) -> Sequence[Any]:
        inputs = [self.find(name) for name in node.inputs]
        function = self.reading.model.functions.get((node.domain, node.type))
        if function is not None:
            return self._call(function, proto, inputs)
        row = operator_of(proto, self.opsets)
        if row is None:
            return self._custom(node, proto, inputs)
        results = self._mapped(
            replace(node, parameters=attributes.read(row.parameters, proto.attribute)), row, inputs
        )
        named = sum(map(bool, node.outputs))
        if len([n for n in node.outputs[: len(results)] if n]) < named:
            raise OnnxError(f"gives {len(results)} outputs; the node names {len(node.outputs)}")
        for value in results:
            checked_shape(tuple(value.shape), value.dtype.itemsize, "its output")
        return results

    def _mapped(self, node: Node, row: Operator, inputs: Sequence[Value]) -> Sequence[Any]:
        """The outputs of the row's function: known values where all its inputs are."""
        row.check_count(inputs)
        args = [_argument(row, i, value, node.inputs[i]) for i, value in enumerate(inputs)]
        struct = node.parameters
        named = {f.name: getattr(struct, f.name) for f in fields(struct)}
        if row.takes_node:
            named["node"] = node

        def call() -> Sequence[Any]:
            out = row.function(*args, **named)
            return out if isinstance(out, (tuple, list)) else (out,)

        runs_graphs = any(attributes.Subgraph == attributes.bare(f.type) for f in fields(struct))
        known = not runs_graphs and all(a is None or type(a) is np.ndarray for a in args)
        return (self.reading.folded(call) if known else None) or call()

    def _custom(self, node: Node, proto: Any, inputs: Sequence[Value]) -> Sequence[Any]:
        """A node that no row reads, as an ops.Custom of its name, with the types that the file
        says its outputs have."""
        given = [_tensor(v) for v in inputs]
        types = [self.types.get(name) for name in node.outputs]
        if None in types or any(v is None for v in given):
            raise OnnxError(
                "has no row, and cannot stay as ops.Custom, since the file leaves out an input or "
                f"the type of an output; ml.onnx.register_operator({node.domain!r}, {node.type!r}, "
                f"({node.version}, None)) adds a row"
            )
        packed = {a.name: attributes.as_bytes(a) for a in proto.attribute}
        out: Any = ops.Custom(f"{node.domain or 'ai.onnx'}.{node.type}", packed, types)(*given)
        return out if isinstance(out, tuple) else (out,)

    def _call(self, function: Any, proto: Any, inputs: Sequence[Value]) -> Sequence[Any]:
        """The outputs of a function that the model defines."""
        key = (function.domain, function.name)
        if key in self.functions:
            raise OnnxError(f"function {function.name} calls itself")
        if len(inputs) > len(function.input):
            raise OnnxError(f"got {len(inputs)} inputs; it takes {', '.join(function.input)}")
        versions = opsets(function.opset_import)
        outputs = zip(function.output, proto.output, strict=False)
        wanted = {own for own, name in outputs if name in self.constants}
        inner = Scope(
            self.reading, versions, self.reading.needs.of(function.node, versions, wanted)
        )
        inner.functions = (*self.functions, key)
        padded = [*inputs, *[None] * (len(function.input) - len(inputs))]
        for name, value in zip(function.input, padded, strict=True):
            inner.define(name, value)
        given = {a.name: a for a in (*function.attribute_proto, *proto.attribute)}
        nodes = [_with_attributes(n, given) for n in function.node]
        return inner.run(nodes, function.output)


def _argument(row: Operator, i: int, value: Value, name: str) -> Any:
    """An input as the row's function takes it."""
    expected = row.annotation(i)
    if isinstance(value, Weight):
        return value.array if expected in (Constant, Setting) else value.parameter
    if expected == Constant and isinstance(value, Tensor):
        raise OnnxError(
            f"input {row.inputs[min(i, len(row.inputs) - 1)].name} ({name!r}) must be known when "
            "the model is read, since shapes depend on it; if it is an input of the model, give "
            f"values={{{name!r}: ...}}"
        )
    return value


def _tensor(value: Value) -> Any:
    return value.parameter if isinstance(value, Weight) else value


def _with_attributes(node: Any, given: Mapping[str, Any]) -> Any:
    """A node of a function with the attributes that refer to those of the call filled in."""
    if not any(a.ref_attr_name for a in node.attribute):
        return node
    copy = type(node)()
    copy.CopyFrom(node)
    del copy.attribute[:]
    for attribute in node.attribute:
        actual = given.get(attribute.ref_attr_name) if attribute.ref_attr_name else attribute
        if actual is not None:
            copy.attribute.add().CopyFrom(actual)
            copy.attribute[-1].name = attribute.name
    return copy
