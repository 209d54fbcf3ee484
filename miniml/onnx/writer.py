"""The ONNX exporter: graphs as files.

Parts: saving; the tapes of a graph, one for each size at which it was traced, as protobuf;
extents that a file leaves open: numbers that differ between the sizes follow the extents of the
inputs by a formula.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from math import prod
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from ..core.abstract import bool_, canonical
from ..core.errors import MinimlError, OnnxError, OnnxWarning, warn_user
from ..core.files import writable, write
from ..graph.ir import Graph, flatten_arguments
from ..graph.tracing import trace
from . import operators
from .model import FIXED, flattened
from .tape import Array, Block, Function, Tape, Value, Written, cleaned, same
from .tensors import NEWEST, code_of, wheel

# --- Saving ---------------------------------------------------------------------------------------


OLDEST = 18  # the first opset whose reductions take their axes as an input, as they are written
CALLS = "the call is ml.onnx.save(obj, path, *example_args)"


def save(
    obj: Callable[..., Any] | Graph,
    path: str | PathLike[str],
    *example_args: Any,
    opset: int = 21,
    dynamic: Mapping[str, Mapping[int, str]] | None = None,
    names: Mapping[str, str] | None = None,
) -> None:
    """Write a network, a function of tensors or a Graph as an ONNX model.

    obj is traced for arguments of the types of `example_args` (a Graph has its own). Parameters
    become initializers of their names, in their dtypes, beside the model in `path` + ".data" where
    they have more than 2 GB. A network is written in the mode in which it is: call
    `net.set_train(False)` for inference; in training mode new values of running statistics are
    outputs, named after them with "_next".

    opset: of the default domain, from 18 on. dynamic: axes whose extent stays open, by input, as
    {"x": {0: "batch"}}; the graph is written at several sizes, and what differs is computed from
    the inputs' shapes. names: other names for inputs and outputs, as {"out": "logits"}.

    OnnxError, before anything is written, for a primitive without a writer (see
    `register_writer`), at the user's line, and for numbers that follow an open extent in a way that
    is not found. The file is written whole or not at all.

    >>> import numpy as np, tempfile
    >>> import miniml as ml
    >>> from miniml import nn
    >>> net = nn.Sequential(nn.Dense(4, 3), nn.Tanh())
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = folder + "/net.onnx"
    ...     x = np.ones((2, 4), np.float32)
    ...     ml.onnx.save(net, path, x, dynamic={"x": {0: "batch"}})
    ...     again = ml.onnx.load(path, dims={"batch": 2})
    ...     print(np.allclose(again(x), net(x), atol=1e-6))
    True
    """
    target = writable(path, CALLS)
    _check_opset(opset)
    sizes = Sizes.of(obj, example_args, dynamic or {})
    tapes = [Tape.of(graph, opset) for graph in sizes.graphs()]
    model = _Protobuf(tapes, sizes, names or {}).model()
    _put(model, target, path)
    if tapes[0].updates or tapes[0].draws:
        warn_user(
            OnnxWarning(
                f"{model.graph.name} was written in training mode: it "
                + ("draws random numbers" if tapes[0].draws else "updates running statistics")
                + "; net.set_train(False) before it is saved makes a model for inference"
            )
        )


def _check_opset(opset: Any) -> None:
    newest = min(wheel().defs.onnx_opset_version(), NEWEST)
    if type(opset) is not int or not OLDEST <= opset <= newest:
        raise OnnxError(f"opset is {opset!r}; give one from {OLDEST} to {newest}")


def _put(model: Any, target: Path, path: Any) -> None:
    """Write a model, with its larger arrays beside it where protobuf cannot hold them."""
    onnx = wheel()
    tensors = model.graph.initializer
    if sum(len(t.raw_data) for t in tensors) > INSIDE:
        beside = target.with_name(target.name + ".data")
        large = [t for t in tensors if len(t.raw_data) >= 1024]
        at = 0
        for tensor in large:
            onnx.external_data_helper.set_external_data(
                tensor, beside.name, at, len(tensor.raw_data)
            )
            at += len(tensor.raw_data)
        write(beside, iter([memoryview(t.raw_data) for t in large]), path)
        for tensor in large:
            tensor.ClearField("raw_data")
            tensor.data_location = onnx.TensorProto.EXTERNAL
    write(target, iter([model.SerializeToString()]), path)


INTS = "?biu"
INSIDE = 2**31 - 2**24  # bytes of arrays that stand in the file itself: protobuf holds 2 GB


# --- The parts as protobuf ------------------------------------------------------------------------


class _Protobuf:
    """The model of a graph's tapes, one for each size."""

    def __init__(self, tapes: Sequence[Tape], sizes: Sizes, names: Mapping[str, str]):
        self.tape, self.others, self.sizes = tapes[0], tapes[1:], sizes
        self.onnx = wheel()
        self.computed: list[Any] = []  # nodes that compute open extents, in front of all others
        self.made: dict[object, str] = {}
        self.arrays: dict[str, Array] = {}
        self.renamed = self._renamed(names)
        for run, other in zip(sizes.runs[1:], self.others):
            _check_alike(self.tape.block, other.block, run)

    @property
    def _tapes(self) -> Sequence[Tape]:
        return (self.tape, *self.others)

    def _renamed(self, names: Mapping[Any, Any]) -> dict[str, str]:
        block = self.tape.block
        own = [v.name for v in (*block.inputs, *block.outputs)]
        for old, new in names.items():
            if old not in own:
                raise OnnxError(f"names has {old!r}; inputs and outputs are {', '.join(own)}")
            if not isinstance(new, str) or not new or new in self.tape._taken or new in own:
                raise OnnxError(f"names calls {old} {new!r}; give a name that nothing else has")
        return dict(names)

    def model(self) -> Any:
        """The ModelProto."""
        helper, tape = self.onnx.helper, self.tape
        nodes = [self._node(n) for n in tape.block.nodes]
        block = tape.block
        inputs, outputs = (
            [
                self._typed(value, [getattr(t.block, end)[i] for t in self.others])
                for i, value in enumerate(getattr(block, end))
            ]
            for end in ("inputs", "outputs")
        )
        tensors = [_tensor(n, a) for n, a in self.arrays.items()]
        graph = helper.make_graph([*self.computed, *nodes], block.name, inputs, outputs, tensors)
        functions = [self._function(f) for f in tape.functions.values()]
        domains = {f.domain for f in functions} | {n.domain for n in flattened(nodes)}
        imports = [("", tape.opset), *((d, 1) for d in sorted(domains - {""}))]
        opsets = [helper.make_opsetid(*each) for each in imports]
        model = helper.make_model(
            graph, opset_imports=opsets, functions=functions, producer_name="miniml",
            producer_version=str(sys.modules["miniml"].__version__),
            ir_version=max(8, helper.find_min_ir_version_for(opsets[:1])),
        )  # fmt: skip
        learned = {n for n, p in tape.parameters.items() if p.requires_grad}
        fixed = [n for n, a in self.arrays.items() if n not in learned and a.dtype.kind not in INTS]
        if fixed:
            helper.set_model_props(model, {FIXED: "\n".join(fixed)})
        return model

    def _name(self, name: str) -> str:
        """The name in the file of a value on the tape, which is put there if it is a constant."""
        tape = self.tape
        if name in self.renamed:
            return self.renamed[name]
        if name in tape.extent_lists:
            self.renamed[name] = self._extents([t.extent_lists[name] for t in self._tapes])
        elif name in tape.constants:
            self.renamed[name] = self._constant(name, [t.constants[name] for t in self._tapes])
        elif name in tape.parameters:
            self.arrays.setdefault(name, tape.parameters[name].asnumpy())
        return self.renamed.get(name, name)

    def _constant(self, name: str, arrays: Sequence[Array]) -> str:
        """The name of a constant: an initializer, or, where its shape follows open extents and its
        elements are equal, a node."""
        first, *others = arrays
        if all(same(first, a) for a in others):
            self.arrays[name] = first
            return name
        if all(a.size == 1 and float(a.item()).is_integer() for a in arrays):
            whole = self._extents([[int(a.item())] for a in arrays])
            shaped = self._computed("Reshape", whole, self._whole(first.shape))
            return self._computed("Cast", shaped, to=code_of(canonical(first.dtype)))
        if first.ndim == 2 and all(map(_is_triangle, arrays)):
            return self._triangle(arrays)
        if first.size and all(a.size and (a == first.flat[0]).all() for a in arrays):
            shape = self._extents([a.shape for a in arrays])
            return self._computed(
                "ConstantOfShape", shape, value=_tensor("", first.reshape(-1)[:1])
            )
        raise OnnxError(
            f"a constant has shapes {', '.join(str(a.shape) for a in arrays)} where the open "
            f"extents are {', '.join(map(str, self.sizes.runs))}; make it of operations on the "
            "inputs, or give that axis a fixed extent"
        )

    def _triangle(self, arrays: Sequence[Array]) -> str:
        """A constant matrix of one number up to the diagonal and another above, as causal masks
        are, whose extents are open."""
        first = arrays[0]
        ones = self._computed(
            "ConstantOfShape",
            self._extents([a.shape for a in arrays]),
            value=_tensor("", np.ones(1, np.float32)),
        )
        lower = self._computed("Cast", self._computed("Trilu", ones, upper=0), to=code_of(bool_))
        ends = []
        for number in (first[0, 0], first[0, -1]):
            name = self.tape.name("constant")
            self.arrays[name] = np.array(number, first.dtype)
            ends.append(name)
        return self._computed("Where", lower, *ends)

    def _extents(self, runs: Sequence[Sequence[int]]) -> str:
        """The name of a list of extents: an initializer, or computed from the inputs' shapes."""
        if len({*map(tuple, runs)}) == 1:
            return self._whole(runs[0])
        parts = [self._extent(self.sizes.follow(row)) for row in zip(*runs, strict=True)]
        return parts[0] if len(parts) == 1 else self._computed("Concat", *parts, axis=0)

    def _whole(self, numbers: Sequence[int]) -> str:
        """The name of a constant list of int64."""
        key = "numbers", *numbers
        if key not in self.made:
            self.made[key] = self.tape.name("numbers")
            self.arrays[self.made[key]] = np.array(numbers, np.int64)
        return self.made[key]

    def _extent(self, formula: Formula) -> str:
        """The name of one number that follows the open extents, as a list of one."""
        terms = []
        for symbol, factor in formula.factors.items():
            i, axis = next(at for at, s in self.sizes.axes.items() if s == symbol)
            source = self._name(self.tape.block.inputs[i].name)
            extent = self._computed("Shape", source, start=axis, end=axis + 1)
            if factor != 1:
                extent = self._computed("Mul", extent, self._whole([int(factor)]))
            terms.append(extent)
        if not terms or formula.start != int(formula.product):
            terms.append(self._whole([int(formula.start)]))
        type_ = "Mul" if formula.product else "Add"
        return reduce(lambda x, y: self._computed(type_, x, y), terms)

    def _computed(self, type: str, *inputs: str, **attributes: Any) -> str:
        """The output of a node in front of all others, made once for equal ones."""
        key = type, inputs, str(attributes)
        if key not in self.made:
            self.made[key] = self.tape.name(type.lower())
            self.computed.append(
                self.onnx.helper.make_node(type, list(inputs), [self.made[key]], **attributes)
            )
        return self.made[key]

    def _typed(self, value: Value, others: Sequence[Value]) -> Any:
        """The declaration of an input or output, with the formulas of its open extents."""
        assert value.abstract is not None
        shapes = [v.abstract.shape for v in (value, *others) if v.abstract is not None]
        dims = [row[0] if len({*row}) == 1 else self._symbol(row) for row in zip(*shapes)]
        name = self._name(value.name)
        code = code_of(canonical(value.abstract.dtype))
        return self.onnx.helper.make_tensor_value_info(name, code, dims)

    def _symbol(self, runs: Sequence[int]) -> str | None:
        """The formula of an open extent that is declared; None where none is found."""
        try:
            return str(self.sizes.follow(runs))
        except OnnxError:
            return None

    def _node(self, node: Written) -> Any:
        row = node.row
        inputs, outputs = (
            [*map(self._name, names)] for names in (self._inputs(node), node.outputs)
        )
        made = self.onnx.helper.make_node(row.type, inputs, outputs, domain=row.domain)
        if node.parameters is not None:
            made.attribute.extend(operators.pack(node.parameters))
        for name, block in node.blocks:
            made.attribute.append(self.onnx.helper.make_attribute(name, self._block(block)))
        made.name, made.doc_string = node.outputs[0], node.doc
        return made

    def _inputs(self, node: Written) -> Sequence[str]:
        """The inputs of a node; those of a Reshape whose open extents need no computation have a
        constant: 0 is the extent of its input, and one -1 the rest."""
        if node.row.type != "Reshape" or node.inputs[1] not in self.tape.extent_lists:
            return node.inputs
        source, listed = node.inputs
        runs = [t.extent_lists[listed] for t in self._tapes]
        types = [t.types.get(source) for t in self._tapes]
        if len(set(runs)) == 1 or None in types:
            return node.inputs
        shapes = [t.shape for t in types if t is not None]
        chosen = []
        for axis, row in enumerate(zip(*runs, strict=True)):
            same = all(axis < len(s) and s[axis] == n for s, n in zip(shapes, row, strict=True))
            chosen.append(row[0] if len(set(row)) == 1 else 0 if same else -1)
        if chosen.count(-1) > 1 or (0 in chosen and any(0 in run for run in runs)):
            return node.inputs
        return source, self._whole(chosen)

    def _block(self, block: Block) -> Any:
        """A graph as an attribute; its outputs have the types of the values that they are."""
        inputs, outputs = ([self._inner(v) for v in ends] for ends in (block.inputs, block.outputs))
        return self.onnx.helper.make_graph(
            [self._node(n) for n in block.nodes], block.name, inputs, outputs
        )

    def _inner(self, value: Value) -> Any:
        """The declaration of a value in a block: its dtype, as its extents may be open."""
        assert value.abstract is not None
        code = code_of(canonical(value.abstract.dtype))
        shape = None if self.others else value.abstract.shape
        return self.onnx.helper.make_tensor_value_info(value.name, code, shape)

    def _function(self, function: Function) -> Any:
        """A function of the file: its constants are nodes."""
        helper = self.onnx.helper
        constants = [
            helper.make_node("Constant", [], [name], value=_tensor(name, array))
            for name, array in function.constants.items()
        ]
        nodes = [self._node(n) for n in function.block.nodes]
        domains = {"", *(n.domain for n in nodes)}
        return helper.make_function(
            function.domain, function.type,
            [v.name for v in function.block.inputs], [v.name for v in function.block.outputs],
            [*constants, *nodes],
            [helper.make_opsetid(d, 1 if d else self.tape.opset) for d in sorted(domains)],
        )  # fmt: skip


def _is_triangle(a: Array) -> bool:
    """True for a matrix of one number up to its diagonal and another above."""
    lower = np.tri(*a.shape, dtype=np.bool_)
    return min(a.shape) > 1 and bool(
        (np.where(lower, a[0, 0], a[0, -1]).astype(a.dtype) == a).all()
    )


def _check_alike(one: Block, other: Block, run: Mapping[str, int]) -> None:
    """OnnxError unless both have the same nodes; run: the extents of the other one."""
    for a, b in zip(one.nodes, other.nodes):
        same = a.row == b.row and a.inputs == b.inputs and a.parameters == b.parameters
        if not same:
            raise OnnxError(
                f"{a.doc or a.row.type} is written as {a.row.type} ({a.parameters or ''}) for the "
                f"example, and as {b.row.type} ({b.parameters or ''}) for {run}; an attribute "
                "cannot follow an open extent: give that axis a fixed one"
            )
        for (_, x), (_, y) in zip(a.blocks, b.blocks, strict=True):
            _check_alike(x, y, run)
    if len(one.nodes) != len(other.nodes):
        raise OnnxError(
            f"the graph has {len(one.nodes)} nodes for the example, and {len(other.nodes)} for "
            f"{run}; what is computed may not depend on an open extent"
        )


def _tensor(name: str, array: Array) -> Any:
    made = wheel().TensorProto()
    made.name, made.data_type = name, code_of(canonical(array.dtype))
    made.dims.extend(array.shape)
    made.raw_data = np.ascontiguousarray(array).tobytes()
    return made


# --- Extents that a file leaves open --------------------------------------------------------------


@dataclass
class Sizes:
    """The sizes at which a function is traced: the example's, then others for each symbol alone,
    then others for all together, against which what was found is checked."""

    fn: Any
    leaves: Sequence[Any]
    rebuild: Callable[[Sequence[Any]], Any]
    axes: dict[tuple[int, int], str]  # (input, axis): symbol
    runs: list[dict[str, int]]
    first: Graph

    @staticmethod
    def of(obj: Any, args: Sequence[Any], dynamic: Any) -> Sizes:
        if isinstance(obj, Graph):
            if args or dynamic:
                raise OnnxError(
                    "save got a Graph and "
                    + ("arguments" if args else "dynamic extents")
                    + "; a Graph has its types already: give the function it was traced from"
                )
            return Sizes(obj, [], lambda leaves: leaves, {}, [{}], cleaned(obj))
        leaves, _, rebuild = flatten_arguments((args, {}))
        sizes = Sizes(obj, leaves, rebuild, {}, [{}], trace(obj, *args))
        if dynamic:
            sizes.vary(dynamic)
        else:
            sizes.first = cleaned(sizes.first)
        return sizes

    @property
    def symbols(self) -> list[str]:
        return list(dict.fromkeys(self.axes.values()))

    def vary(self, dynamic: Any) -> None:
        """Choose the extents of all runs; OnnxError for axes that are not there."""
        names = self.first.input_names
        base: dict[str, int] = {}
        if not isinstance(dynamic, Mapping):
            raise OnnxError(f"dynamic is {dynamic!r:.200}; give a dict, {{'x': {{0: 'batch'}}}}")
        for name, axes in dynamic.items():
            if name not in names or not isinstance(axes, Mapping):
                raise OnnxError(
                    f"dynamic has {name!r}: {axes!r:.200}; give {{input: {{axis: symbol}}}}; the "
                    f"inputs are {', '.join(names) or 'none'}"
                )
            shape = self.leaves[names.index(name)].shape
            for axis, symbol in axes.items():
                if type(axis) is not int or not -len(shape) <= axis < len(shape):
                    raise OnnxError(f"dynamic names axis {axis!r} of {name}, of shape {shape}")
                if not isinstance(symbol, str) or not symbol.isidentifier():
                    raise OnnxError(f"dynamic calls axis {axis} of {name} {symbol!r}; give a name")
                extent = shape[axis]
                if base.setdefault(symbol, extent) != extent:
                    raise OnnxError(
                        f"dynamic calls two axes {symbol!r}, of extents {base[symbol]} and "
                        f"{extent}; give axes that differ names that differ"
                    )
                self.axes[names.index(name), axis % len(shape)] = symbol
        self.runs = [base]  # so that each is traced where it is chosen
        for symbol, extent in base.items():
            if extent < 2:  # an axis of extent 1 broadcasts, and one of 0 has no elements
                base[symbol] = self._tried(symbol, extent, (2, 3, 4, 8))
        others = {s: self._tried(s, n, (n + 1, n - 1, 2 * n, n // 2)) for s, n in base.items()}
        together = {
            s: self._tried(s, n, (n + 2, 2 * n, n - 1, 3 * n, n + 1)) for s, n in base.items()
        }
        self.runs += [{**base, s: n} for s, n in others.items()] + [together]

    def _tried(self, symbol: str, extent: int, candidates: Sequence[int]) -> int:
        """The first of these extents at which the function can be traced."""
        error: Exception | None = None
        for candidate in candidates:
            if candidate < 2 or candidate == extent:
                continue
            try:
                self._traced({**self.runs[0], symbol: candidate})
            except MinimlError as refusal:
                error = error or refusal
            else:
                return candidate
        raise OnnxError(
            f"{symbol!r} cannot stay open: the function takes extent {extent}, and refuses "
            f"{', '.join(map(str, candidates))}"
        ) from error

    def _traced(self, run: Mapping[str, int]) -> Graph:
        shapes = [list(leaf.shape) for leaf in self.leaves]
        for (i, axis), symbol in self.axes.items():
            shapes[i][axis] = run[symbol]
        given = [np.zeros(s, leaf.dtype) for s, leaf in zip(shapes, self.leaves, strict=True)]
        args, _ = self.rebuild(given)
        return trace(self.fn, *args)

    def graphs(self) -> Iterator[Graph]:
        """The graph at each of the sizes."""
        if not self.axes:
            yield self.first
            return
        for run in self.runs:
            yield cleaned(self._traced(run), fold=False)

    def follow(self, values: Sequence[int]) -> Formula:
        """The formula in the symbols that has these values in the runs; OnnxError without one."""
        base, *others, _ = [*zip(self.runs, values, strict=True)]
        moved = {
            s: (run[s], value)
            for s, (run, value) in zip(self.symbols, others, strict=True)
            if value != base[1]
        }
        slopes = {s: Fraction(value - base[1], at - base[0][s]) for s, (at, value) in moved.items()}
        start = Fraction(base[1])
        start -= sum((f * base[0][s] for s, f in slopes.items()), Fraction(0))
        sums = Formula(start, slopes, product=False)
        power = Fraction(base[1], prod(base[0][s] for s in moved))
        products = Formula(power, dict.fromkeys(moved, Fraction(1)), product=True)
        for formula in (sums, products):
            if formula.whole and all(formula.at(r) == v for r, v in zip(self.runs, values)):
                return formula
        raise OnnxError(
            f"a number is {', '.join(map(str, values))} where the open extents are "
            f"{', '.join(map(str, self.runs))}: neither a sum of them with whole factors nor a "
            "product; give that axis a fixed extent"
        )


@dataclass(frozen=True)
class Formula:
    """start + sum of factor * symbol, or, as a product, start * product of symbols."""

    start: Fraction
    factors: Mapping[str, Fraction]
    product: bool

    @property
    def whole(self) -> bool:
        """True where only whole numbers occur."""
        return all(n.denominator == 1 for n in (self.start, *self.factors.values()))

    def at(self, run: Mapping[str, int]) -> Fraction:
        """Its value at these extents."""
        if self.product:
            return self.start * prod(run[s] for s in self.factors)
        return self.start + sum(f * run[s] for s, f in self.factors.items())

    def __str__(self) -> str:
        start = int(self.start)
        if self.product:
            return "*".join([str(start)] * (start != 1) + list(self.factors))
        terms = [s if f == 1 else f"{f}*{s}" for s, f in self.factors.items()]
        return "+".join(terms + [str(start)] * (start != 0 or not terms))
