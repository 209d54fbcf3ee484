"""Graph serialization: readable JSON text, with larger arrays in a safetensors file beside it.

Saving: a graph as text, with its arrays. Loading: everything that the text claims is checked before
it is used. Values: attributes, types and the elements of small arrays as JSON and back.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ..core.abstract import ALL, Abstract, DType, bool_, canonical, is_complex, is_float, real_dtype
from ..core.access import Access
from ..core.errors import CheckpointError, GraphError, MinimlError
from ..core.files import (
    PathLike,
    digest,
    encoded,
    opened,
    readable,
    refused,
    remove_drafts,
    short,
    writable,
    write,
)
from ..core.infer import has_rule
from ..core.parameter import Parameter, default_generator
from ..core.primitive import Primitive, primitives, rebuild
from ..graph.ir import Graph, Node, Var, unique, verify
from ..graph.tracing import trace
from ..interop.custom import Custom
from ..ops import Fused

FORMAT, VERSION = "miniml graph", 1
DATA = ".safetensors"  # appended to the path of the text
CALLS = "the calls are save_graph(fn, path, *example_args) and load_graph(path)"
Array = np.ndarray[Any, Any]
T = TypeVar("T")


# --- Saving ---------------------------------------------------------------------------------------


def save_graph(
    fn_or_graph: Callable[..., Any] | Graph, path: PathLike, *example_args: Any, **named: Any
) -> None:
    """Write a graph, or that of a function for arguments of these types, to a file.

    The file is JSON text, one node a line: equal graphs give equal text. Arrays of more than 16
    elements are in `path` + ".safetensors" beside it. Parameters are saved with their values,
    names and `requires_grad`; random draws use the stream of the process that loads the graph.
    Saving is atomic: however it ends, the previous file or the new one can be loaded.

    GraphError for an attribute that is no plain value, and for a graph that was lowered for a
    device; CheckpointError for a path that cannot be written.
    """
    target = Path(os.path.realpath(writable(path, CALLS)))
    if not isinstance(fn_or_graph, Graph):
        graph = trace(fn_or_graph, *example_args, **named)
    elif example_args or named:
        raise GraphError("save_graph got a Graph and arguments; a graph has its types already")
    else:
        graph = fn_or_graph
    content = Content(verify(graph))
    hashed = digest(content.arrays) if content.arrays else ""
    text = signed(content.text(hashed))
    if not hashed:
        write(target, iter([text]), path)
        _remove(target, arrays=True)
        return
    # A new name first: until the text is replaced, the old text finds the old arrays.
    beside = data_file(target, hashed)
    write(beside, encoded(content.arrays), path)
    write(target, iter([text]), path)
    try:
        beside.replace(data_file(target))
    except OSError as error:
        raise refused(path, "saved", error) from None
    _remove(target)


def data_file(target: Path, hashed: str = "") -> Path:
    """Path of the arrays of a graph; with `hashed`, until the text is written."""
    middle = f".{hashed}" if hashed else ""
    return target.with_name(f"{target.name}{middle}{DATA}")


def _remove(target: Path, arrays: bool = False) -> None:
    """Remove arrays that killed saves have left under their first name, and drafts of such; with
    `arrays`, those under the final name, too."""
    name = "".join(f"[{c}]" if c in "*?[" else c for c in target.name)
    pattern = f"{name}.{'[0-9a-f]' * 32}{DATA}"
    for draft in target.parent.glob(f".{pattern}.*"):
        remove_drafts(target.with_name(draft.name[1:].rsplit(".", 2)[0]))
    stale = {*target.parent.glob(pattern)}
    for file in stale | ({data_file(target)} if arrays else set()):
        with suppress(OSError):
            file.unlink()


def signed(text: str) -> bytes:
    """The text with a last line that holds its hash."""
    try:
        body = text.encode()
    except UnicodeEncodeError as error:
        raise GraphError(f"the graph has a text that is not valid Unicode: {error}") from None
    return body + f'"hash": "{hashlib.blake2b(body, digest_size=16).hexdigest()}"}}\n'.encode()


class Content:
    """Content of the file of a graph. arrays: those in the file beside the text, by name."""

    def __init__(self, graph: Graph):
        self.arrays: dict[str, Array] = {}
        self._bodies: dict[int, tuple[int, Graph]] = {}
        self._uses: dict[str, str] = {}
        for body in _bodies(graph):
            self._bodies[id(body)] = len(self._bodies), body
        self.graph = self._graph(graph, "")
        self.bodies = [self._graph(body, f"body_{i}.") for i, body in self._bodies.values()]

    def text(self, hashed: str) -> str:
        """The JSON text without its last line."""
        head = {"format": FORMAT, "version": VERSION, "uses": dict(sorted(self._uses.items()))}
        file = {**head, "data": hashed, "graph": self.graph, "bodies": self.bodies}
        lines = [f'"{name}": {_formatted(name, value)},\n' for name, value in file.items()]
        return "{" + "".join(lines)

    def _graph(self, graph: Graph, prefix: str) -> dict[str, Any]:
        if prefix and graph.state:
            raise GraphError(f"graph {graph.name!r} reads a parameter inside an attribute")
        names = _named(graph)
        values = _current([p for p, _ in graph.state])
        state = {
            names[v]: self._parameter(p, names[v], value)
            for (p, v), value in zip(graph.state, values, strict=True)
        }
        constants = {
            names[v]: self._array(np.array(v.abstract.value, order="C"), prefix + names[v])
            for v in graph.constants
        }
        count = len(graph.outputs)
        default = ["out"] if count == 1 else [f"out.{i}" for i in range(count)]
        outs = unique(graph.output_names or default)
        return {
            "name": graph.name,
            "inputs": {names[v]: _typed(v) for v in graph.inputs},
            "state": state,
            "constants": constants,
            "nodes": [self._node(node, names) for node in graph.nodes],
            "outputs": dict(zip(outs, [names[v] for v in graph.outputs], strict=True)),
        }

    def _parameter(self, parameter: Parameter, key: str, value: Array) -> dict[str, Any]:
        if parameter is default_generator.state:
            return {"random": True}
        about = {"name": parameter.name, "requires_grad": parameter.requires_grad}
        return {**about, **self._array(value, key)}

    def _array(self, value: Array, key: str) -> dict[str, Any]:
        """An array as its type and its elements; without these if it is in the file of arrays."""
        kind = f"{value.dtype.name}{list(value.shape)}"
        shown = numbers(value)
        if shown is None:
            if key in self.arrays or key == "__metadata__":
                raise GraphError(f"two arrays in the file would be called {key!r}; rename one")
            self.arrays[key] = value
            return {"type": kind}
        return {"type": kind, "value": shown}

    def _node(self, node: Node, names: dict[Var, str]) -> dict[str, Any]:
        primitive = node.primitive
        row: dict[str, Any] = {self._kind(primitive): primitive.name}
        for part, values in (("attributes", primitive.attributes), ("consts", dict(node.consts))):
            if values:
                row[part] = {k: self._value(primitive, k, v) for k, v in values.items()}
        row["in"] = [names[v] for v in node.inputs]
        row["out"] = {names[v]: _typed(v) for v in node.outputs}
        return row

    def _kind(self, primitive: Primitive) -> str:
        """The key that names a node's primitive; a user's module is noted for errors on loading."""
        if isinstance(primitive, Custom):
            return "custom"
        module = type(primitive).__module__
        if isinstance(primitive, Fused) or module.startswith(("miniml.runtime", "miniml.graph")):
            raise GraphError(
                f"{primitive.name} is made for a device by lowering; save the graph of ml.trace"
            )
        if not module.startswith("miniml."):
            self._uses[primitive.name] = module
        return "op"

    def _value(self, primitive: Primitive, name: str, value: Any) -> Any:
        try:
            return encode(value, lambda body: self._bodies[id(body)][0])
        except GraphError as error:
            raise GraphError(
                f"{primitive.name} attribute {name} cannot be saved: {error}"
            ) from None


def _formatted(name: str, value: Any) -> str:
    """JSON with one line for each entry of a graph's parts."""
    if name == "graph":
        return _object({k: _formatted(f"{name}.{k}", v) for k, v in value.items()}, "")
    if name == "bodies":
        return "[" + ",".join("\n" + _formatted("graph", body) for body in value) + "]"
    if isinstance(value, dict):
        return _object({k: _plain(v) for k, v in value.items()}, "  ")
    if isinstance(value, list) and value:
        return "[\n" + ",\n".join(f"  {_plain(v)}" for v in value) + "\n]"
    return _plain(value)


def _object(parts: dict[str, str], indent: str) -> str:
    rows = [f"{indent}{_plain(k)}: {v}" for k, v in parts.items()]
    return "{\n" + ",\n".join(rows) + "\n}" if rows else "{}"


def _plain(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _named(graph: Graph) -> dict[Var, str]:
    """The name of each Var: inputs and parameters keep their own, other values are named after
    their primitives, so that adding or removing a node changes few names."""
    preferred: list[tuple[Var, str]] = list(zip(graph.inputs, _inputs(graph), strict=True))
    preferred += [(v, p.name) for p, v in graph.state]
    preferred += [(v, _constant(v)) for v in graph.constants]
    for node in graph.nodes:
        spelt = re.sub("(?<=[a-z])(?=[A-Z])", "_", node.primitive.name).lower()
        preferred += [(v, spelt) for v in node.outputs]
    chosen = unique(name for _, name in preferred)
    return {var: name for (var, _), name in zip(preferred, chosen, strict=True)}


def _inputs(graph: Graph) -> Sequence[str]:
    return graph.input_names or [f"x{i}" for i in range(len(graph.inputs))]


def _constant(var: Var) -> str:
    """`float32(0.5)` for a scalar."""
    value = var.abstract.value
    assert value is not None
    return f"{value.dtype.name}({value[()]!s})" if value.shape == () else "constant"


def _typed(var: Var) -> str:
    if var.abstract.format is not None:
        raise GraphError(
            f"a value of {var.abstract} has the format {var.abstract.format}, which lowering gave "
            "it; save the graph of ml.trace"
        )
    return str(var.abstract)


def _bodies(graph: Graph) -> list[Graph]:
    """The graphs inside attributes, each once, outer ones before those inside them."""
    found: dict[int, Graph] = {}

    def visit(outer: Graph) -> None:
        for node in reversed(outer.nodes):
            for _, body in reversed([*node.subgraphs()]):
                if id(body) not in found:
                    visit(body)
                    found[id(body)] = body

    visit(graph)
    return [*found.values()][::-1]


def _current(parameters: Sequence[Parameter]) -> list[Array]:
    """A consistent snapshot of the values of parameters, between two steps."""
    section = Access("save_graph", reads=parameters)

    def copies() -> list[Array]:  # not of versions that are unpublished
        return [np.array(p._stored(), order="C") for p in parameters]

    return section.run(copies)


# --- Loading --------------------------------------------------------------------------------------

_DEEP = 50  # graphs inside graphs; each takes some of Python's stack
_NODES = 1_000_000  # of a graph, those of its bodies counted wherever they are used
_PARTS = ("name", "inputs", "state", "constants", "nodes", "outputs")
_NODE = ("op", "custom", "attributes", "consts", "in", "out")


def load_graph(path: PathLike) -> Graph:
    """The graph that `save_graph` wrote: it can be called, printed and differentiated.

    Its parameters are new, with the saved values. Primitives are found by name, so modules that
    define a user's must be imported before; a Custom needs nothing until it is run. No code in the
    file is run, and no memory is allocated for sizes that it only claims.

    GraphError for a file that is damaged, of a newer version, or inconsistent; CheckpointError for
    a path that cannot be read.
    """
    source = Path(os.path.realpath(readable(path, CALLS, "save_graph(fn, path, *example_args)")))
    if source.suffix == ".onnx":
        raise GraphError(
            f"{short(path)} is a model in ONNX, not a saved graph: ml.onnx.load(path) reads it, "
            "and ml.save_graph(ml.onnx.load(path), 'model.json') makes one of it"
        )
    try:
        data = source.read_bytes()
    except OSError as error:
        raise refused(path, "loaded", error) from None
    try:
        return _Reader(_parsed(data), source).graph()
    except (GraphError, RecursionError) as error:
        what = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise GraphError(f"{short(path)} cannot be loaded: {what}") from None


def _parsed(data: bytes) -> dict[str, Any]:
    """The JSON object in a file; GraphError unless it is complete and of a known version."""
    try:
        file = json.loads(data, object_pairs_hook=_distinct, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise GraphError(f"it is damaged, or not a saved graph ({short(error)})") from None
    if not isinstance(file, dict) or file.get("format") != FORMAT:
        raise GraphError(f"it is not a saved graph, whose format is {FORMAT!r}")
    version = part(file, "version", int)
    if version != VERSION:
        raise GraphError(
            f"it is of version {short(version)}, and this miniml reads version {VERSION}; update "
            "miniml, or save it again"
        )
    start = data.rfind(b'"hash":')
    if file.get("hash") != hashlib.blake2b(data[: max(start, 0)], digest_size=16).hexdigest():
        raise GraphError("it is damaged or was edited: its text is not what was saved")
    only(file, "format", "version", "uses", "data", "graph", "bodies", "hash")
    return file


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands twice in one object")
    return found


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


class _Reader:
    """A graph, built from the JSON of a file.

    rows: the bodies. graphs, depth, size: of the bodies read so far, by number; -1 is the graph
    itself. read: the names of the arrays used.
    """

    def __init__(self, file: dict[str, Any], source: Path):
        self.source = source
        self.file, self.rows = file, part(file, "bodies", list)
        self.uses = part(file, "uses", dict)
        self.graphs: dict[int, Graph] = {}
        self.depth: dict[int, int] = {}
        self.size: dict[int, int] = {}
        self.read: set[str] = set()
        self.arrays = self._arrays(part(file, "data", str))

    def graph(self) -> Graph:
        for number in reversed(range(len(self.rows))):  # a body uses only bodies after it
            self.graphs[number] = self._graph(number, self.rows[number], f"body_{number}.")
        graph = self._graph(-1, part(self.file, "graph", dict), "")
        if self.arrays.keys() != self.read:
            extra = sorted(self.arrays.keys() - self.read)
            raise GraphError(f"the arrays beside it have {short(repr(extra[0]))}, which it lacks")
        return verify(graph)

    def _arrays(self, hashed: str) -> dict[str, Array]:
        """The arrays beside the text: under their first name if the save was killed after that."""
        if not hashed:
            return {}
        known = len(hashed) == 32 and set(hashed) <= set("0123456789abcdef")
        named = data_file(self.source, hashed)
        beside = named if known and named.exists() else data_file(self.source)
        try:
            with opened(beside) as archive:
                if archive.hash != hashed:
                    raise GraphError(f"{short(beside.name)} beside it belongs to another graph")
                return archive.read()
        except CheckpointError as error:
            raise GraphError(f"its arrays cannot be read: {error}") from None

    def _graph(self, number: int, row: Any, prefix: str) -> Graph:
        self.depth[number], self.size[number] = 1, 0
        only(part({"graph": row}, "graph", dict), *_PARTS)
        env: dict[str, Var] = {}
        inputs = [_define(env, n, type_of(t)) for n, t in part(row, "inputs", dict).items()]
        state = [self._state(env, n, s) for n, s in part(row, "state", dict).items()]
        constants = [
            _define(env, n, self._constant(c, prefix + n))
            for n, c in part(row, "constants", dict).items()
        ]
        nodes = [self._node(number, i, n, env) for i, n in enumerate(part(row, "nodes", list))]
        outputs = part(row, "outputs", dict)
        self._count(number, len(nodes))
        if prefix and state:
            raise GraphError("a graph inside an attribute reads a parameter")
        return Graph(
            tuple(inputs), tuple(nodes), tuple(_values(env, list(outputs.values()))),
            tuple(constants), tuple(state), part(row, "name", str),
            tuple(part(row, "inputs", dict)), tuple(outputs),
        )  # fmt: skip

    def _state(self, env: dict[str, Var], name: str, row: Any) -> tuple[Parameter, Var]:
        if row == {"random": True}:
            parameter = default_generator.state
        else:
            own = part({"state": row}, "state", dict)
            called = part(own, "name", str)
            requires_grad = part(own, "requires_grad", bool)
            array = self._array(own, name, "name", "requires_grad")
            parameter = Parameter(array, called, requires_grad)
        return parameter, _define(env, name, parameter._abstract)

    def _constant(self, row: Any, key: str) -> Abstract:
        array = self._array(row, key)
        return Abstract(array.shape, array.dtype, array)

    def _array(self, row: Any, key: str, *beside: str) -> Array:
        """The array of a parameter or constant; read-only."""
        only(part({"array": row}, "array", dict), "type", "value", *beside)
        abstract = type_of(row.get("type"))
        if "value" in row:
            array = array_of(row["value"], abstract)
        else:
            array = self.arrays.get(key, np.empty(0, bool))
            self.read.add(key)
        if (array.shape, array.dtype) != (abstract.shape, abstract.dtype):
            raise GraphError(f"{short(repr(key))} is {abstract}, which the arrays beside it lack")
        array.setflags(write=False)
        return array

    def _node(self, number: int, index: int, row: Any, env: dict[str, Var]) -> Node:
        try:
            only(part({"node": row}, "node", dict), *_NODE)
            inputs = tuple(_values(env, part(row, "in", list)))
            types = {n: type_of(t) for n, t in part(row, "out", dict).items()}
            decoded = self._attributes(number, row, "attributes")
            primitive = self._primitive(row, decoded, list(types.values()))
            consts = self._attributes(number, row, "consts")
            _check_call(primitive, len(inputs), len(types), consts)
            outputs = tuple([_define(env, name, kind) for name, kind in types.items()])
        except MinimlError as error:
            raise GraphError(f"node {index} is refused: {error}") from None
        return Node(primitive, inputs, outputs, tuple(consts.items()))

    def _attributes(self, number: int, row: Any, name: str) -> dict[str, Any]:
        given = part(row, name, dict) if name in row else {}
        bodies = self._bodies_of(number)
        return {k: decode(v, bodies) for k, v in given.items()}

    def _bodies_of(self, number: int) -> Callable[[int], Graph]:
        """A function that finds the bodies in attributes of a graph's nodes."""

        def body(which: int) -> Graph:
            if which not in self.graphs:
                raise GraphError(f"there is no body {short(which)} after it")
            self.depth[number] = max(self.depth[number], 1 + self.depth[which])
            self._count(number, self.size[which])
            if self.depth[number] > _DEEP:
                raise GraphError(f"graphs lie in graphs more than {_DEEP} deep")
            return self.graphs[which]

        return body

    def _count(self, number: int, more: int) -> None:
        self.size[number] += more
        if self.size[number] > _NODES:
            raise GraphError(f"it has more than {_NODES} nodes, bodies counted where they are used")

    def _primitive(
        self, row: dict[str, Any], values: dict[str, Any], types: Sequence[Abstract]
    ) -> Primitive:
        if "custom" in row:
            name = part(row, "custom", str)
            return Custom(name, values, len(types) if has_rule(name) else types)
        name = part(row, "op", str)
        cls = primitives.get(name)
        if cls is None or issubclass(cls, (Custom, Fused)) or cls.dynamic_outputs:
            raise GraphError(_unknown(name, self.uses.get(name)))
        if not cls._classic:
            _check_attributes(cls, values)
        return rebuild(cls, values)


def _unknown(name: str, module: object) -> str:
    source = f"import {short(module)}, which defines it," if module else "import what defines it"
    return f"there is no primitive {short(repr(name))} to save or load; {source} before loading"


def _check_attributes(cls: type[Primitive], values: dict[str, Any]) -> None:
    """Raise GraphError unless these are the attributes of the class, in their types."""
    names = [f.name for f in cls._fields]
    if names != [*values]:
        raise GraphError(
            f"{cls.name} has the attributes {', '.join(names) or 'none'}; got "
            f"{short(', '.join(values)) or 'none'}"
        )
    for field in cls._fields:
        value = values[field.name]
        if type(value) is not type(field.default) or value != field.default:
            field.check(value, value, cls.name)


def _check_call(primitive: Primitive, given: int, outputs: int, consts: dict[str, Any]) -> None:
    """Raise GraphError unless the numbers of inputs and outputs are those of the primitive."""
    names = primitive._inputs
    named = [name for _, name in primitive._const]
    if (names is not None and given + len(consts) != len(names)) or named != [*consts]:
        raise GraphError(f"{primitive.name} got {given} inputs, and the constants {[*consts]}")
    expected = primitive.outputs
    if isinstance(expected, tuple) and len(expected) != outputs:
        raise GraphError(f"{primitive.name} has {len(expected)} outputs; got {outputs}")


def _define(env: dict[str, Var], name: str, abstract: Abstract) -> Var:
    if name in env:
        raise GraphError(f"{short(repr(name))} is defined twice")
    env[name] = Var(abstract)
    return env[name]


def _values(env: dict[str, Var], names: Sequence[Any]) -> Iterator[Var]:
    for name in names:
        if not isinstance(name, str) or name not in env:
            raise GraphError(f"{short(repr(name))} is used, and nothing before it defines it")
        yield env[name]


def part(row: Any, name: str, kind: type[T]) -> T:
    """An entry of a JSON object; GraphError if it is missing or of another kind."""
    if not isinstance(row, dict) or type(row.get(name)) is not kind:
        got = short(repr(row.get(name) if isinstance(row, dict) else row))
        raise GraphError(f"{name!r} is {got}, where {kind.__name__} is expected")
    found: T = row[name]
    return found


def only(row: dict[str, Any], *names: str) -> None:
    """Raise GraphError for an object with entries other than these."""
    unknown = [name for name in row if name not in names]
    if unknown:
        raise GraphError(f"{short(repr(unknown[0]))} is unknown beside {', '.join(names)}")


# --- Values ---------------------------------------------------------------------------------------

INLINE = 16  # arrays of at most this many elements are in the text
_TYPE = re.compile(r"(\w+)\[((?:\d{1,19}(?:, \d{1,19})*)?)\]")
_DTYPES = {d.name: d for d in ALL}
_ODD = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
_AXES = 64  # of an array of NumPy


def encode(value: Any, number: Callable[[Graph], int]) -> Any:
    """Encode an attribute as JSON; `number` numbers bodies. GraphError if it is no plain value."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": str(value)}
    if isinstance(value, complex):
        return {"complex": [str(value.real), str(value.imag)]}
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, np.dtype):
        return {"dtype": canonical(value).name}
    if value is Ellipsis:
        return {"ellipsis": True}
    if isinstance(value, slice):
        parts = (value.start, value.stop, value.step)
        return {"slice": [encode(part, number) for part in parts]}
    if isinstance(value, tuple):
        return [encode(part, number) for part in value]
    if isinstance(value, Graph):
        return {"body": number(value)}
    raise GraphError(
        f"{short(repr(value))} of type {type(value).__name__} has no form in a file; an attribute "
        "there is a number, string, bytes, dtype, None, slice, Graph or a tuple of these"
    )


def decode(value: Any, bodies: Callable[[int], Graph]) -> Any:
    """Decode an attribute; GraphError if the JSON stands for none."""
    if isinstance(value, list):
        return tuple([decode(part, bodies) for part in value])
    if not isinstance(value, dict):
        return value
    kind, given = next(iter(value.items())) if len(value) == 1 else ("", None)
    if kind == "float" and isinstance(given, str) and given in _ODD:
        return _ODD[given]
    if kind == "complex" and isinstance(given, list) and len(given) == 2:
        return complex(*map(_part, given))
    if kind == "bytes" and isinstance(given, str) and re.fullmatch("(?:[0-9a-f]{2})*", given):
        return bytes.fromhex(given)
    if kind == "dtype" and isinstance(given, str) and given in _DTYPES:
        return _DTYPES[given]
    if kind == "ellipsis" and given is True:
        return Ellipsis
    if kind == "slice" and isinstance(given, list) and len(given) == 3:
        return slice(*decode(given, bodies))
    if kind == "body" and type(given) is int:
        return bodies(given)
    raise GraphError(f"{short(value)} stands for no value")


def _part(text: Any) -> float:
    """A part of a complex number; GraphError for what is no number."""
    try:
        return float(text if isinstance(text, str) else "")
    except ValueError:
        raise GraphError(f"{short(repr(text))} is no part of a complex number") from None


def type_of(text: Any) -> Abstract:
    """Parse a type such as "float32[2, 3]"."""
    found = _TYPE.fullmatch(text) if isinstance(text, str) else None
    dtype = _DTYPES.get(found[1]) if found else None
    if found is None or dtype is None:
        raise GraphError(f"{short(repr(text))} is no type, such as 'float32[2, 3]'")
    shape = tuple(map(int, found[2].split(", "))) if found[2] else ()
    if len(shape) > _AXES or math.prod([max(n, 1) for n in shape]) * dtype.itemsize >= 2**63:
        raise GraphError(f"{short(text)} is more than an array can be")
    return Abstract(shape, dtype)


def numbers(array: np.ndarray[Any, Any]) -> list[Any] | None:
    """Elements of a small array as JSON; None if it is large, or they would not round-trip."""
    if array.size > INLINE:
        return None
    shown = array.reshape(-1).tolist()
    if is_float(array.dtype):
        shown = _digits(array.reshape(-1))
    elif is_complex(array.dtype):
        parts = np.ascontiguousarray(array).reshape(-1)
        digits = _digits(parts.view(real_dtype(array.dtype)))
        shown = list(zip(digits[::2], digits[1::2], strict=True))
    back = array_of(shown, Abstract(array.shape, array.dtype))
    return shown if back.tobytes() == array.tobytes() else None


def _digits(elements: np.ndarray[Any, Any]) -> list[Any]:
    """The shortest digits of each float, as a number of JSON, or as a word."""
    digits = [float(str(element)) for element in elements]
    return [v if math.isfinite(v) else str(v) for v in digits]


def array_of(shown: Any, abstract: Abstract) -> np.ndarray[Any, Any]:
    """The array of these elements; GraphError unless their number and kind fit."""
    dtype = abstract.dtype
    if not isinstance(shown, list) or len(shown) != abstract.size or len(shown) > INLINE:
        raise GraphError(f"{short(shown)} are not the elements of {abstract}")
    try:
        with np.errstate(all="ignore"):
            elements = np.array([_element(v, dtype) for v in shown], dtype)
    except OverflowError:
        raise GraphError(f"{short(shown)} do not fit {dtype.name}") from None
    return elements.reshape(abstract.shape)


def _element(value: Any, dtype: DType) -> Any:
    if is_complex(dtype):
        if isinstance(value, (list, tuple)) and len(value) == 2:
            return complex(*[_element(part, real_dtype(dtype)) for part in value])
        fits = False
    elif is_float(dtype):
        value = _ODD.get(value, value) if isinstance(value, str) else value
        fits = type(value) is float
    else:
        fits = type(value) is (bool if dtype == bool_ else int)
    if not fits:
        raise GraphError(f"{short(repr(value))} is no element of an array of {dtype.name}")
    return value
