"""The tape on which writers put nodes of ONNX: what a graph is in a file, before it is protobuf.

Parts: the tape of a graph; nodes that nothing needs, and biases; graphs of compositions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import numpy as np

from ..core.abstract import Abstract, bool_, canonical, int32, uint64
from ..core.errors import MinimlError, OnnxError, point_at
from ..core.parameter import Parameter
from ..core.settings import current
from ..graph.ir import Graph, Node, Var
from ..graph.passes.pipeline import run_passes
from ..graph.tracing import trace_graph
from . import operators
from .operators import Operator, writer_of
from .tensors import code_of, wheel

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Value:
    """A value in the file: its name, and its type where it is a value of the graph."""

    name: str
    abstract: Abstract | None = None


@dataclass(frozen=True)
class Written:
    """A node in the file. parameters: of the operator's row, from which its attributes are packed.
    blocks: the attributes that are graphs."""

    row: Operator | Function
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    parameters: Any
    blocks: tuple[tuple[str, Block], ...] = ()
    doc: str = ""


@dataclass
class Block:
    """The nodes of a graph in the file, with its inputs and outputs."""

    name: str
    inputs: list[Value] = field(default_factory=list)
    nodes: list[Written] = field(default_factory=list)
    outputs: list[Value] = field(default_factory=list)


@dataclass(frozen=True)
class Function:
    """A function in the file: what a primitive that ONNX lacks is made of."""

    domain: str
    type: str
    block: Block
    constants: Mapping[str, Array]


class Tape:
    """The nodes of one graph, at one size of it. Writers of primitives get it as `emit`, and call
    it to put a node down: `emit("Add", x, y)` is the node's output.

    Inputs are Values, None for absent ones, NumPy arrays and `emit.extents(...)`, which become
    initializers. Attributes are those of the operator's row, by which files are read.
    """

    def __init__(self, opset: int):
        self.opset = opset
        self.block = Block("graph")
        self.constants: dict[str, Array] = {}
        self.extent_lists: dict[str, tuple[int, ...]] = {}
        self.functions: dict[object, Function] = {}
        self.parameters: dict[str, Parameter] = {}
        self.updates: dict[str, Value] = {}
        self.types: dict[str, Abstract] = {}
        self.draws = False
        self._numbers: dict[object, Value] = {}  # of constants, once for equal numbers
        self._taken: dict[str, int] = {}
        self._env: dict[Var, Value] = {}
        self._versions: dict[str, str] = {}  # parameters, by the names of their new values
        self._moved: dict[str, str] = {}  # values that outputs of blocks gave their names
        self._layer = ""

    @staticmethod
    def of(graph: Graph, opset: int) -> Tape:
        """The tape of a whole graph."""
        tape = Tape(opset)
        tape.block.name = graph.name
        for name, var in zip(graph.input_names or numbered("in", graph.inputs), graph.inputs):
            tape.block.inputs.append(tape._bound(var, name))
        for parameter, var in graph.state:
            value = tape._bound(var, parameter.name or "parameter")
            tape.parameters[value.name] = parameter
        tape.run(graph)
        for name, var in zip(graph.output_names or numbered("out", graph.outputs), graph.outputs):
            tape.block.outputs.append(tape._output(tape.value(var), tape.name(name)))
        for name, value in tape.updates.items():
            tape.block.outputs.append(tape._output(value, tape.name(f"{name}_next")))
        nodes = _used(tape.block.nodes, [v.name for v in tape.block.outputs])
        tape.block.nodes = tape._normalised(tape._biased(nodes))
        return tape

    def __call__(self, type: str, *inputs: Any, domain: str = "", **attributes: Any) -> Value:
        """The output of a node of this operator; OnnxError where its row lacks an attribute."""
        return self.several(1, type, *inputs, domain=domain, **attributes)[0]

    def several(
        self, count: int, type: str, *inputs: Any, domain: str = "", **attributes: Any
    ) -> tuple[Value, ...]:
        """The outputs of a node that has `count` of them."""
        row = operators.find(domain, type, self.opset if not domain else 1)
        if row is None:
            raise OnnxError(
                f"{domain or 'ai.onnx'} {type} has no row in opset {self.opset}; give a later "
                "opset, or register one: @ml.onnx.register_operator"
            )
        accepted, back = self._accepted(row, inputs)
        if back is not None:
            made = self.several(count, type, *accepted, domain=domain, **attributes)
            return tuple(self("Cast", v, to=code_of(back)) if i == 0 else v
                         for i, v in enumerate(made))  # fmt: skip
        blocks = {k: v for k, v in attributes.items() if isinstance(v, Block)}
        rest = {k: v for k, v in attributes.items() if k not in blocks}
        try:
            struct = row.parameters(**rest, **dict.fromkeys(blocks))
        except TypeError as error:
            raise OnnxError(f"{type} got {', '.join(attributes)}; {error}") from None
        outputs = tuple([Value(self.name(type.lower())) for _ in range(count)])
        names = [self._input(v) for v in accepted]
        while names and not names[-1]:
            names.pop()
        self.block.nodes.append(
            Written(row, tuple(names), tuple(v.name for v in outputs), struct,
                    tuple(blocks.items()), self._layer)
        )  # fmt: skip
        return outputs

    def _accepted(self, row: Operator, inputs: Sequence[Any]) -> tuple[Sequence[Any], Any]:
        """The inputs, with bools as integers where the operator takes no bools; and the dtype to
        which its first output is cast back, if that is so."""
        if row.domain or not any(
            isinstance(v, Value) and (t := self.types.get(v.name)) is not None and t.dtype == bool_
            for v in inputs
        ):
            return inputs, None
        schema = wheel().defs.get_schema(row.type, self.opset)
        changed = list(inputs)
        for i, value in enumerate(inputs):
            declared = schema.inputs[min(i, len(schema.inputs) - 1)]
            known = self.types.get(value.name) if isinstance(value, Value) else None
            if known is not None and known.dtype == bool_ and "tensor(bool)" not in declared.types:
                changed[i] = self("Cast", value, to=code_of(int32))
        if changed == list(inputs):
            return inputs, None
        alike = schema.outputs[0].type_str == schema.inputs[0].type_str
        return changed, bool_ if alike else None

    def _input(self, value: Any) -> str:
        if value is None:
            return ""
        return value.name if isinstance(value, Value) else self.constant(np.asarray(value)).name

    def constant(self, array: Array) -> Value:
        """An initializer with this value."""
        key = array.dtype, array.shape, array.tobytes() if not array.shape else id(array)
        if key not in self._numbers:
            name = self.name("constant")
            self._numbers[key] = Value(name, Abstract(array.shape, canonical(array.dtype)))
            self.constants[name] = array
        return self._numbers[key]

    def extents(self, *numbers: int) -> Value:
        """Whole numbers that follow the extents of the inputs: a list of int64."""
        value = Value(self.name("extents"))
        self.extent_lists[value.name] = tuple(map(int, numbers))
        return value

    def name(self, wish: str) -> str:
        """A name that nothing has yet."""
        count = self._taken[wish] = self._taken.get(wish, 0) + 1
        return wish if count == 1 else self.name(f"{wish}_{count - 1}")

    def value(self, var: Var) -> Value:
        """The value of a Var."""
        if var not in self._env:
            known = var.abstract.value
            if known is None:
                raise OnnxError(f"a value of type {var.abstract} has no definition")
            value = self.constant(np.asarray(known, var.abstract.dtype))
            self._env[var] = replace(value, abstract=var.abstract)
        return self._env[var]

    def _bound(self, var: Var, name: str) -> Value:
        value = self._env[var] = Value(self.name(name), var.abstract)
        self.types[value.name] = var.abstract
        return value

    def _output(self, value: Value, name: str) -> Value:
        """The value under a name of its own, as an output of a graph needs it: that of its node,
        unless it is an input, a constant, or another output."""
        value = replace(value, name=self._moved.get(value.name, value.name))
        nodes, out = self.block.nodes, replace(value, name=name)
        given = {v.name for v in self.block.outputs}
        if value.name not in given and any(value.name in n.outputs for n in nodes):
            self.block.nodes = [_renamed(n, value.name, name) for n in nodes]
            self._moved[value.name] = name
            self.types[name] = self.types.get(value.name, value.abstract)  # type: ignore[assignment]
            self._env.update({k: out for k, v in self._env.items() if v.name == value.name})
            return out
        self("Identity", value)
        nodes.append(replace(nodes.pop(), outputs=(name,), doc=""))
        return out

    def run(self, graph: Graph) -> None:
        """Write the nodes of a graph whose inputs have values."""
        for node in graph.nodes:
            self._layer = node.where.layer if node.where is not None else ""
            try:
                self._node(node)
            except MinimlError as error:
                point_at(error, node.where)
                raise

    def _node(self, node: Node) -> None:
        primitive = node.primitive
        if primitive.effect == "state":
            self._update(node)
            return
        write = writer_of(type(primitive))
        if write is None:
            raise OnnxError(
                f"{primitive.name} cannot be written: ONNX has no operator of which it is known to "
                f"be made; @ml.onnx.register_writer({type(primitive).__name__}) registers a "
                "function (emit, node, *inputs) that puts its nodes down, or one of `ops` that "
                "says what it is made of"
            )
        made = write(self, node, *map(self.value, node.inputs))
        values = made if isinstance(made, tuple) else (made,)
        for var, value in zip(node.outputs, values, strict=True):
            self._env[var] = replace(value, abstract=var.abstract)
            self.types[value.name] = var.abstract

    def _update(self, node: Node) -> None:
        """An assignment: its value is an output under the parameter's name. The state of random
        streams is not part of a model."""
        parameter, value = map(self.value, node.inputs)
        if node.primitive.name != "Assign":
            raise OnnxError(f"{node.primitive.name} changes parameters, which ONNX does not know")
        name = self._versions.get(parameter.name, parameter.name)
        self._env[node.outputs[0]] = value
        self._versions[value.name] = name
        if name in self.parameters and self.parameters[name].dtype != uint64:
            self.updates[name] = value

    def _biased(self, nodes: list[Written]) -> list[Written]:
        """The nodes with each sum of a product and a bias that nothing else reads as one: Conv has
        an input for that, and Gemm is both."""
        readers = Counter(chain((v.name for v in self.block.outputs), *map(_reads, nodes)))
        made = {name: n for n in nodes for name in n.outputs}
        merged: dict[str, Written] = {}
        gone = set()
        for node in nodes:
            first = made.get(node.inputs[0]) if node.row.type == "Add" else None
            if first is None or readers[node.inputs[0]] != 1 or len(first.inputs) != 2:
                continue
            bias = self._bias(first, node.inputs[1], made)
            if bias:
                row, parameters = first.row, first.parameters
                if row.type == "MatMul":
                    row = operators.find("", "Gemm", self.opset)  # type: ignore[assignment]
                    parameters = row.parameters()  # type: ignore[union-attr]
                both = (*first.inputs, bias)
                merged[node.outputs[0]] = replace(
                    first, row=row, inputs=both, outputs=node.outputs, parameters=parameters
                )
                gone.add(first.outputs[0])
        rest = [merged.get(n.outputs[0], n) for n in nodes if n.outputs[0] not in gone]
        return _used(rest, [v.name for v in self.block.outputs])

    def _bias(self, node: Written, name: str, made: Mapping[str, Written]) -> str:
        """The name of a vector that is added to each channel or column of a product; "" where what
        is added is another thing."""
        types = [self.types.get(n) for n in (*node.inputs, name)]
        if any(t is None for t in types):
            return ""
        left, right, added = (t.shape for t in types)  # type: ignore[union-attr]
        if node.row.type == "MatMul" and len(left) == len(right) == 2 and added == right[1:]:
            return name
        shaped = made.get(name)
        channels = (right[0], *(1,) * (len(right) - 2))
        if node.row.type != "Conv" or shaped is None or added != channels:
            return ""
        source = self.types.get(shaped.inputs[0])
        fits = shaped.row.type == "Reshape" and source is not None and source.shape == right[:1]
        return shaped.inputs[0] if fits else ""

    def _normalised(self, nodes: list[Written]) -> list[Written]:
        """The nodes with each normalization of channels by known statistics as one, which other
        runtimes fold into convolutions."""
        readers = Counter(chain((v.name for v in self.block.outputs), *map(_reads, nodes)))
        made = {name: n for n in nodes for name in n.outputs if readers[name] == 1}
        merged = {n.outputs[0]: self._normalization(n, made) for n in nodes}
        rest = [merged[n.outputs[0]] or n for n in nodes]
        return _used(rest, [v.name for v in self.block.outputs])

    def _normalization(self, last: Written, made: Mapping[str, Written]) -> Written | None:
        """(x - mean) (gamma rsqrt(var + eps)) + beta as one node, where it ends in `last`."""

        def inputs(name: str, type: str) -> tuple[str, str]:
            node = made.get(name)
            found = node is not None and node.row.type == type and len(node.inputs) == 2
            return node.inputs if found else ("", "")  # type: ignore[union-attr,return-value]

        scaled, shift = last.inputs if last.row.type == "Add" else ("", "")
        centred, factor = inputs(scaled, "Mul")
        x, mean = inputs(centred, "Sub")
        kind = self.types.get(x)
        if kind is None or len(kind.shape) < 2:
            return None
        scale, beta, mean = (self._channels(n, kind, made) for n in (factor, shift, mean))
        gamma, root = inputs(scale, "Mul")
        under = made.get(root)
        var, eps = inputs(under.inputs[0] if under and under.row.type == "Rsqrt" else "", "Add")
        number = self.constants.get(eps)
        if number is None or number.size != 1 or "" in (beta, mean, gamma, var):
            return None
        row = operators.find("", "BatchNormalization", self.opset)
        assert row is not None
        return replace(
            last, row=row, inputs=(x, gamma, beta, mean, var),
            parameters=row.parameters(epsilon=float(number.item())),
        )  # fmt: skip

    def _channels(self, name: str, x: Abstract, made: Mapping[str, Written]) -> str:
        """The vector of numbers for each channel of x that a value is, "" where it is another."""
        count, behind = x.shape[1], len(x.shape) - 2
        own, node = self.types.get(name), made.get(name)
        if own is None or own.shape != (count, *(1,) * behind) or own.dtype != x.dtype:
            return ""
        reshaped = node is not None and node.row.type == "Reshape"
        source = node.inputs[0] if reshaped else name  # type: ignore[union-attr]
        kind = self.types.get(source)
        return source if kind is not None and kind.shape == (count,) else ""

    # What writers are made of ------------------------------------------------------------------

    def inline(self, graph: Graph, inputs: Sequence[Value]) -> tuple[Value, ...]:
        """Write the nodes of another graph here, for these inputs; its outputs."""
        self._env.update(zip(graph.inputs, inputs, strict=True))
        self.run(graph)
        return tuple(map(self.value, graph.outputs))

    def made_of(self, fn: Callable[..., Any], *inputs: Value) -> Any:
        """Write `fn`, a function of `ops`, for values whose types are known."""
        types = [v.abstract for v in inputs]
        if None in types:
            raise OnnxError("a composition needs values of known types")
        graph = _composed(fn, types)  # type: ignore[arg-type]
        made = self.inline(graph, inputs)
        return made if len(made) > 1 else made[0]

    def function(
        self, domain: str, name: str, fn: Callable[..., Any], key: object, *inputs: Value
    ) -> Value:
        """Call a function of elements, made of `ops`, which the file defines once for each key."""
        types = [Abstract((), v.abstract.dtype) for v in inputs if v.abstract is not None]
        whole = domain, name, key, *[t.dtype for t in types]
        if whole not in self.functions:
            self.functions[whole] = self._defined(domain, name, _composed(fn, types))
        found = self.functions[whole]
        made = Value(self.name(name.lower()))
        self.block.nodes.append(
            Written(found, tuple([v.name for v in inputs]), (made.name,), None, (), self._layer)
        )
        return made

    def _defined(self, domain: str, name: str, graph: Graph) -> Function:
        inner = Tape(self.opset)
        inner.functions = self.functions
        inner.block.inputs = [inner._bound(v, f"x{i}") for i, v in enumerate(graph.inputs)]
        inner.run(graph)
        inner.block.outputs = [inner._output(inner.value(graph.outputs[0]), inner.name("y"))]
        same = sum(f.domain == domain and f.type.split("_")[0] == name
                   for f in self.functions.values())  # fmt: skip
        called = f"{name}_{same + 1}" if same else name
        return Function(domain, called, inner.block, inner.constants)

    def subgraph(
        self, name: str, body: Callable[..., Sequence[Value]], types: Sequence[Abstract] = ()
    ) -> Block:
        """A graph as an attribute, with inputs of these types, from which `body` puts its nodes
        down and gives its outputs; it may use values from outside."""
        outer, self.block = self.block, Block(self.name(name))
        try:
            self.block.inputs = [Value(self.name("input"), t) for t in types]
            self.types.update(zip((v.name for v in self.block.inputs), types))
            outputs = body(*self.block.inputs)
            for value in outputs:
                self.block.outputs.append(self._output(value, self.name("output")))
            return self.block
        finally:
            self.block = outer


def _composed(fn: Callable[..., Any], types: Sequence[Abstract]) -> Graph:
    """The graph of a function of `ops` for tensors of these types."""

    def body(*tensors: Any) -> Sequence[Any]:
        made = fn(*tensors)
        return made if isinstance(made, tuple) else (made,)

    return cleaned(trace_graph(body, types, current().device_target, "composition")[0])


def cleaned(graph: Graph, fold: bool = True) -> Graph:
    """The graph without what is computed twice or for nothing; no node becomes another."""
    kept = ["loops", "simplify", "scale", "stack", "lookups"]
    return run_passes(graph, kept if fold else ["fold", *kept])


def _used(nodes: Sequence[Written], outputs: Sequence[str]) -> list[Written]:
    """The nodes that others, or these outputs, need, without last outputs that nothing reads."""
    kept, needed = [], {*outputs}
    for node in reversed(nodes):
        if needed.isdisjoint(node.outputs):
            continue
        count = max(i for i, name in enumerate(node.outputs, 1) if name in needed)
        kept.append(node if node.row.type in FIXED else replace(node, outputs=node.outputs[:count]))
        needed |= set(_reads(node))
    return kept[::-1]


FIXED = "If", "Loop", "Scan", "Split", "TopK"  # all outputs of these are declared


def _renamed(node: Written, old: str, new: str) -> Written:
    """The node with another name for a value, in its blocks too."""
    inputs, outputs = (
        tuple([new if name == old else name for name in names])
        for names in (node.inputs, node.outputs)
    )
    blocks = [
        (key, replace(block, nodes=[_renamed(n, old, new) for n in block.nodes]))
        for key, block in node.blocks
    ]
    return replace(node, inputs=inputs, outputs=outputs, blocks=tuple(blocks))


def _reads(node: Written) -> Iterator[str]:
    """The names that a node reads, those that its blocks read included."""
    yield from node.inputs
    for _, block in node.blocks:
        yield from chain.from_iterable(map(_reads, block.nodes))


def same(a: Array, b: Array) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def numbered(name: str, values: Sequence[object]) -> list[str]:
    return [name] if len(values) == 1 else [f"{name}{i}" for i in range(len(values))]
