"""The ONNX importer: a model's nodes run once, under a trace, which makes them a Graph.

Parts: loading a file; scopes, in which nodes run by the rows of the table of operators; the state
that all scopes of a model share, its weights and the bounds of the work.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import zip_longest
from math import prod
from os import PathLike
from typing import Any

import numpy as np

from .. import ops
from ..backends import registry
from ..core.abstract import Abstract
from ..core.errors import OnnxError, OnnxWarning, legible, warn_user
from ..core.files import short
from ..core.parameter import Parameter
from ..core.scope import Layer, layers
from ..core.settings import PYNATIVE_MODE, context, current
from ..core.tensor import Tensor
from ..core.trace import eager_trace, use_trace
from ..graph.ir import Graph
from ..graph.record import replay
from ..graph.tracing import trace_graph
from . import operators
from .model import (
    Model,
    Needs,
    Opsets,
    check_options,
    custom_name,
    domain_of,
    flattened,
    input_types,
    input_values,
    known_types,
    operator_of,
    opsets,
    unique,
)
from .operators import Constant, Operator, Setting
from .tensors import array_of, checked_shape

# --- Loading --------------------------------------------------------------------------------------


_NOTHING: Mapping[str, Any] = {}


def load(
    model: str | PathLike[str] | Any,
    shapes: Mapping[str, Sequence[int]] = _NOTHING,
    dims: Mapping[str, int] = _NOTHING,
    values: Mapping[str, Any] = _NOTHING,
    train_constants: bool | None = None,
) -> Graph:
    """The graph in an ONNX file (or onnx.ModelProto): a function of its inputs, in their order.

    Its float initializers become Parameters of the same names, so that it can be trained:
    `value_and_grad(..., weights=graph)`, `optim.SGD(graph.trainable_params(), lr=0.1)`. shapes: of
    inputs by name, in place of those in the file; dims: extents of dimensions by name, as
    {"batch": 1}, which a graph must know. values: arrays or numbers for inputs that become
    constants, as shapes that were made inputs. train_constants: True makes Parameters of the float
    tensors in Constant nodes, too, where some exporters put all weights (named as the node's
    output; single numbers stay), and of the coefficients of linear models; the default leaves them
    alone, and warns with OnnxWarning where the graph has then nothing to train, False does not
    warn.

    Operators that have no row (see `register_operator`) stay in it as `ops.Custom`, with an
    OnnxWarning where no kernel computes them yet. OnnxError for a file that is damaged, leaves its
    folder, or needs what miniml lacks.
    """
    found = Model.of(model)
    graph = found.proto.graph
    initial = {t.name for t in graph.initializer}
    check_options(graph, initial, shapes=shapes, dims=dims, values=values)
    if not isinstance(train_constants, bool | None):
        raise OnnxError(f"train_constants is {train_constants!r:.200}; give True, False or None")
    fixed = input_values(graph, values, shapes, dims)
    types = input_types(graph, {*initial, *fixed}, shapes, dims)
    unique("outputs", [v.name for v in graph.output])
    count = sum(1 for _ in found.nodes())
    needs = Needs(found)
    constants = needs.of(graph.node, found.opsets)
    reading = Reading(found, needs, dims, bool(train_constants), count)
    scope = Scope(reading, found.opsets, constants)

    def body(*tensors: Any) -> Sequence[Any]:
        scope.initialize(graph)
        for name, value in [*zip(types, tensors, strict=True), *fixed.items()]:
            scope.define(name, value, frozenset({name}))
        return scope.run(graph.node, [v.name for v in graph.output])

    name = graph.name if graph.name.isidentifier() else "graph"
    traced, _ = trace_graph(body, list(types.values()), current().device_target, name)
    _warn_of_unread_nodes(name, reading)
    if train_constants is None and not any(p.shape for p in traced.trainable_params()):
        _warn_of_constant_weights(name, reading)
    outputs = tuple(v.name for v in graph.output)
    return replace(traced, input_names=tuple(types), output_names=outputs)


def _warn_of_unread_nodes(name: str, reading: Reading) -> None:
    """OnnxWarning for operators that no row reads and no kernel computes."""
    computed = {kernel for kernel, _ in list(registry.table)}
    missing = [key for key in reading.unread if custom_name(*key[:2]) not in computed]
    if not missing:
        return
    domain, type_, version = missing[0]
    listed = [f"{d or 'ai.onnx'} {t} (nodes: {reading.unread[d, t, v]})" for d, t, v in missing]
    more = f" and {len(listed) - 5} others" if len(listed) > 5 else ""
    warn_user(
        OnnxWarning(
            f"{name} cannot run yet: no row reads, and no kernel computes, "
            f"{', '.join(listed[:5])}{more}; ml.onnx.register_operator({domain!r}, {type_!r}, "
            f"({version}, None)) adds a row, @ml.kernel({custom_name(domain, type_)!r}, ...) a "
            "kernel; ml.onnx.coverage(model) lists what a model needs"
        )
    )


def _warn_of_constant_weights(name: str, reading: Reading) -> None:
    """OnnxWarning where a graph has nothing to train, since its weights are in Constant nodes."""
    sizes = [size for _, size in reading.literals.values()]
    if sizes:
        warn_user(
            OnnxWarning(
                f"{name} has nothing to train: {len(sizes)} tensors of floats, {sum(sizes):,} "
                "numbers, stand in nodes, and are constants; train_constants=True makes "
                "Parameters of them, train_constants=False leaves them without this warning"
            )
        )


# --- Nodes and scopes -----------------------------------------------------------------------------


_NONE: frozenset[str] = frozenset()
# Behind values that no input of the model makes known: weights, draws, results of loops.
_NO_INPUT: frozenset[str] = frozenset({""})


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
    proto: Any = None

    def learned(self, attribute: str, shape: Sequence[int]) -> Any:
        """The numbers of an attribute that stand for weights, as an array of this shape, or as a
        Parameter where those of Constant nodes become Parameters. OnnxError for another number."""
        numbers = np.array(getattr(self.parameters, attribute), np.float32)
        if numbers.size != prod(shape):
            raise OnnxError(f"has {numbers.size} {attribute}; it takes {prod(shape)}")
        name = f"{self.outputs[0]}.{attribute}"
        return _tensor(self.scope.reading.literal(self.proto, name, numbers.reshape(shape)))

    def run(self, graph: Any, inputs: Sequence[Value] = ()) -> tuple[Any, ...]:
        """The outputs of one of its subgraphs, which sees the values around the node."""
        scope = self.scope
        inner = Scope(scope.reading, scope.opsets, scope.constants, scope)
        behind = scope.inputs_behind(*self.inputs)
        return inner.run_graph(graph, inputs, behind)

    @property
    def to_know(self) -> str:
        """The way to make its inputs known: a clause for a message."""
        return self.scope.to_know(*self.inputs)

    @property
    def may_be_known(self) -> bool:
        """True where its inputs are known once inputs of the model are."""
        return "" not in self.scope.inputs_behind(*self.inputs)

    def __str__(self) -> str:
        type_ = short(legible(f"{self.domain}.{self.type}" if self.domain else self.type))
        if self.name:
            return f"node {short(self.name)!r} ({type_})"
        return f"node of {short(', '.join(map(repr, self.outputs)) or 'nothing')} ({type_})"


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
        self.behind: dict[str, frozenset[str]] = {}  # inputs of the model, of unknown values
        self.types: Mapping[str, Abstract] = {}
        self.functions: tuple[tuple[str, str], ...] = outer.functions if outer else ()

    def define(self, name: str, value: Value, behind: frozenset[str] = _NONE) -> None:
        """Give a name its value; OnnxError if it has one. behind: the inputs of the model that
        it is computed from."""
        if name in self.values and name:
            raise OnnxError(f"{name!r} is defined twice; each value of a graph has one definition")
        self.values[name] = value
        if isinstance(value, (Tensor, Weight)):
            self.behind.setdefault(name, behind or _NO_INPUT)

    def find(self, name: str) -> Value:
        """The value of a name here or around; OnnxError if there is none yet."""
        scope = self._holder(name)
        if scope is None:
            raise OnnxError(
                f"{name!r} is defined by nothing before its use; it is missing, or there is a cycle"
            )
        return scope.values[name]

    def _holder(self, name: str) -> Scope | None:
        scope: Scope | None = self
        while scope is not None and name not in scope.values:
            scope = scope.outer
        return scope

    def inputs_behind(self, *names: str) -> frozenset[str]:
        """The inputs of the model from which the values of these names are computed, unless they
        are known."""
        holders = ((name, self._holder(name)) for name in names)
        return _NONE.union(*(s.behind.get(name, _NONE) for name, s in holders if s))

    def to_know(self, *names: str) -> str:
        """The way to make the values of these names known: a clause for a message."""
        inputs = sorted(self.inputs_behind(*names))
        if "" in inputs:
            return "it comes from weights, random numbers or a loop, and no input makes it known"
        listed = " and ".join(map(repr, inputs))
        given = ", ".join(f"{name!r}: ..." for name in inputs)
        return (
            f"it comes from the input{'s' if len(inputs) > 1 else ''} {listed}: where that does "
            f"not change from call to call, give values={{{given}}}"
        )

    def run_graph(
        self, graph: Any, inputs: Sequence[Value], behind: frozenset[str] = _NONE
    ) -> tuple[Any, ...]:
        """The outputs of a graph whose first inputs are these. behind: the inputs of the model
        that they come from."""
        self.initialize(graph)
        names = [v.name for v in graph.input]
        if len(inputs) != len(names):
            raise OnnxError(f"a subgraph takes {len(names)} inputs; got {len(inputs)}")
        for name, value in zip(names, inputs, strict=True):
            self.define(name, value, behind)
        return self.run(graph.node, [v.name for v in graph.output])

    def initialize(self, graph: Any) -> None:
        """Define the initializers: floats as weights unless they must be known."""
        self.types = known_types((*graph.value_info, *graph.output), self.reading.dims)
        unique("initializers", [t.name for t in graph.initializer])
        if graph.sparse_initializer:
            raise OnnxError("the graph has sparse initializers, which miniml does not read")
        for tensor in graph.initializer:
            weight = self.reading.initializer(graph, tensor)
            fixed = weight.array.dtype.kind in "?biu" or tensor.name in self.constants
            fixed = fixed or tensor.name in self.reading.model.fixed
            self.define(tensor.name, weight.array if fixed else weight)

    def run(self, nodes: Sequence[Any], outputs: Sequence[str]) -> tuple[Any, ...]:
        """Run nodes in order; return the values of these names."""
        self.reading.step()
        for proto in nodes:
            self.reading.step()
            self.step(proto)
        if "" in outputs:
            raise OnnxError("a graph has an output without a name")
        return tuple(_tensor(self.find(name)) for name in outputs)

    def step(self, proto: Any) -> None:
        """Run one node; errors name it."""
        node = self._node(proto)
        try:
            with layers.use(lambda: Layer(str(node))):
                results = self._results(node, proto)
            behind = self.inputs_behind(*_read_by(proto))
            if self._stays(proto):
                behind |= _NO_INPUT
            for name, value in zip(node.outputs, results, strict=False):
                self.define(name, value, behind)
        except RecursionError:
            raise OnnxError(f"{node} is nested too deeply") from None
        except Exception as error:  # rows meet whatever a file contains
            raise OnnxError(f"{node}: {error}") from error

    def _stays(self, proto: Any) -> bool:
        """True for a node that the program computes even where all its inputs are known."""
        if not self.constants.isdisjoint(proto.output):
            return False
        row = operator_of(proto, self.opsets)
        function = (domain_of(proto), proto.op_type) in self.reading.model.functions
        return proto.op_type in ("Loop", "Scan") if row else not function

    def _node(self, proto: Any) -> Node:
        domain = domain_of(proto)
        names = proto.op_type, domain, self.opsets.get(domain, 1), proto.name
        return Node(*names, tuple(proto.input), tuple(proto.output), None, self, proto)

    def _results(self, node: Node, proto: Any) -> Sequence[Any]:
        inputs = [self.find(name) for name in node.inputs]
        function = self.reading.model.functions.get((node.domain, node.type))
        if function is not None:
            return self._call(function, proto, inputs)
        row = operator_of(proto, self.opsets)
        if row is None:
            return self._custom(node, proto, inputs)
        results = self._mapped(
            replace(node, parameters=operators.read(row.parameters, proto.attribute)), row, inputs
        )
        named = sum(map(bool, node.outputs))
        if len([n for n in node.outputs[: len(results)] if n]) < named:
            raise OnnxError(f"gives {len(results)} outputs; the node names {len(node.outputs)}")
        for value in results:
            checked_shape(tuple(value.shape), value.dtype.itemsize, "its output")
        if (node.domain, node.type) == ("", "Constant"):
            return [self._literal(proto, results[0])]
        return results

    def _literal(self, proto: Any, array: Any) -> Value:
        """The value of a Constant node: its array, or a weight, as for an initializer."""
        name = proto.output[0]
        if array.dtype.kind in "biu" or not array.shape or name in self.constants:
            return array  # type: ignore[no-any-return]
        return self.reading.literal(proto, name, array)

    def _mapped(self, node: Node, row: Operator, inputs: Sequence[Value]) -> Sequence[Any]:
        """The outputs of the row's function: known values where all its inputs are."""
        row.check_count(inputs)
        args = [self._argument(row, i, value, node.inputs[i]) for i, value in enumerate(inputs)]
        struct = node.parameters
        named = {f.name: getattr(struct, f.name) for f in fields(struct)}
        if row.takes_node:
            named["node"] = node

        def call() -> Sequence[Any]:
            out = row.function(*args, **named)
            return out if isinstance(out, (tuple, list)) else (out,)

        runs_graphs = any(operators.Subgraph == operators.bare(f.type) for f in fields(struct))
        known = not runs_graphs and all(a is None or type(a) is np.ndarray for a in args)
        return (self.reading.folded(call) if known else None) or call()

    def _custom(self, node: Node, proto: Any, inputs: Sequence[Value]) -> Sequence[Any]:
        """The outputs of a node that no row reads, as an ops.Custom of its name, with the types
        that the file gives."""
        given = [_tensor(v) for v in inputs]
        types = [self.types.get(name) for name in node.outputs]
        if None in types or any(v is None for v in given):
            raise OnnxError(
                "has no row, and cannot stay as ops.Custom, since the file leaves out an input or "
                f"the type of an output; ml.onnx.register_operator({node.domain!r}, {node.type!r}, "
                f"({node.version}, None)) adds a row; ml.onnx.coverage(model) lists all that are "
                "missing"
            )
        self.reading.unread[node.domain, node.type, node.version] += 1
        packed = {a.name: operators.as_bytes(a) for a in proto.attribute}
        out: Any = ops.Custom(custom_name(node.domain, node.type), packed, types)(*given)
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
        required = {own for own, name in outputs if name in self.constants}
        inner = Scope(
            self.reading, versions, self.reading.needs.of(function.node, versions, required)
        )
        inner.functions = (*self.functions, key)
        for name, value, own in zip_longest(function.input, inputs, proto.input):
            inner.define(name, value, self.inputs_behind(own) if own else _NONE)
        given = {a.name: a for a in (*function.attribute_proto, *proto.attribute)}
        nodes = [_with_attributes(n, given) for n in function.node]
        results = inner.run(nodes, function.output)
        for own, name in zip(function.output, proto.output, strict=False):
            self.behind[name] = inner.inputs_behind(own)
        return results

    def _argument(self, row: Operator, i: int, value: Value, name: str) -> Any:
        """An input in the form that the row's function takes."""
        expected = row.annotation(i)
        if isinstance(value, Weight):
            return value.array if expected in (Constant, Setting) else value.parameter
        if expected == Constant and isinstance(value, Tensor):
            raise OnnxError(
                f"input {row.inputs[min(i, len(row.inputs) - 1)].name} ({name!r}) must be known "
                f"when the model is read, since shapes depend on it; {self.to_know(name)}"
            )
        return value


def _read_by(proto: Any) -> Iterator[str]:
    """The names that a node reads, including those that its subgraphs capture."""
    yield from proto.input
    for attribute in proto.attribute:
        if attribute.HasField("g"):
            yield from (name for inner in flattened(attribute.g.node) for name in inner.input)
            yield from (output.name for output in attribute.g.output)


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


# --- State of a reading ---------------------------------------------------------------------------


_FOLDED = 2**26  # bytes; known values beyond them are computed by the program
_MORE, _MOST = 10, 10_000  # nodes that may be run: per node of the file, and in addition


class Weight:
    """Learned numbers: an array where they must be known, a Parameter elsewhere."""

    def __init__(self, name: str, array: np.ndarray[Any, Any]):
        self.name, self.array = name, array

    @cached_property
    def parameter(self) -> Parameter:
        """The Parameter with their name."""
        return Parameter(self.array, self.name)


Value = Tensor | np.ndarray[Any, Any] | Weight | None


@dataclass(eq=False)
class Reading:
    """The state that all scopes of one model share.

    needs: the values that must be known. dims: the extents of named dimensions. train_constants:
    True where tensors in Constant nodes are weights. nodes: the number in the file; count: the
    number run so far; bytes: the size of folded values so far. literals: the tensors of two axes or
    more in Constant nodes, by node. unread: the number of nodes that no row reads, by operator and
    version.
    """

    model: Model
    needs: Needs
    dims: Mapping[str, int]
    train_constants: bool
    nodes: int
    count: int = 0
    bytes: int = 0
    weights: dict[tuple[int, str], tuple[Any, Weight]] = field(default_factory=dict)
    literals: dict[int, Any] = field(default_factory=dict)
    unread: Counter[tuple[str, str, int]] = field(default_factory=Counter)

    def folded(self, call: Callable[[], Sequence[Any]]) -> Sequence[Any] | None:
        """The results of a call on known values, computed now; None where it draws random numbers,
        or its values are large."""
        results: list[Any] = []

        def body() -> Sequence[Any]:
            results[:] = call()
            return results

        graph, trace = trace_graph(body, (), "cpu", "folded")
        if all(type(r) is np.ndarray for r in results):
            return results
        made = [v.abstract for n in graph.nodes for v in n.outputs]
        size = sum(prod(a.shape) * a.dtype.itemsize for a in made)
        if trace.blocks or self.bytes + size > _FOLDED:
            return None
        self.bytes += size
        plain = context(mode=PYNATIVE_MODE, device_target="cpu", providers=("miniml",))
        with plain, use_trace(eager_trace()):
            return [out.asnumpy() for out in replay(graph, ())]

    def initializer(self, graph: Any, tensor: Any) -> Weight:
        """The one weight for an initializer of a graph, however often the graph is run."""
        return self._weight(graph, tensor.name, lambda: array_of(tensor, self.model.folder))

    def literal(self, node: Any, name: str, array: np.ndarray[Any, Any]) -> Value:
        """The value of floats that stand in a node: its one weight, where these are trained."""
        if array.ndim > 1:
            self.literals[id(node)] = node, array.size
        return self._weight(node, name, lambda: array) if self.train_constants else array

    def _weight(self, owner: Any, name: str, array: Callable[[], np.ndarray[Any, Any]]) -> Weight:
        key = id(owner), name
        if key not in self.weights:
            self.weights[key] = owner, Weight(name, array())  # the reference keeps the id unique
        return self.weights[key][1]

    def step(self) -> None:
        """Count one node or graph that is run; OnnxError beyond the bound for the file."""
        self.count += 1
        most = _MORE * self.nodes + _MOST
        if self.count > most:
            raise OnnxError(f"more than {most:,} nodes, with functions and loops written out")
