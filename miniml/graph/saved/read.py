"""Loading: the graph that a text says, with all that it says checked before it is believed."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ... import random
from ...abstract import Abstract
from ...archive import PathLike, opened, readable, refused, short
from ...errors import CheckpointError, GraphError, MinimlError
from ...infer import has_rule
from ...ops import Custom, Fused
from ...parameter import Parameter
from ...primitive import Primitive, primitives, rebuild
from ..ir import Graph, Node, Var
from ..verify import verify
from .values import array_of, decode, only, part, type_of
from .write import CALLS, FORMAT, VERSION, data_file

Array = np.ndarray[Any, Any]
_DEEP = 50  # graphs inside graphs; each takes some of Python's stack
_NODES = 1_000_000  # of a graph, those of its bodies counted wherever they are used
_PARTS = ("name", "inputs", "state", "constants", "nodes", "outputs")


def load_graph(path: PathLike) -> Graph:
    """The graph that `save_graph` wrote: it can be called, printed and differentiated.

    Its parameters are new ones, with the values that were saved. Primitives are found by name, so
    the modules that define those of users must be imported before; a Custom needs nothing until it
    is run. No code in the file is run, and nothing is allocated for sizes that it only claims.

    GraphError for a file that is damaged, of a newer version, or says what cannot be;
    CheckpointError for a path that cannot be read.
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
    """The JSON object in a file; GraphError unless it is whole and of a version known here."""
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
    """A file on its way to a graph."""

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
        """The arrays beside the text: under their first name if the save was killed after it."""
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
            parameter = random.default_generator.state
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
        """How the attributes of a graph's nodes find bodies."""

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


_NODE = ("op", "custom", "attributes", "consts", "in", "out")


def _unknown(name: str, module: object) -> str:
    source = f"import {short(module)}, which defines it," if module else "import what defines it"
    return f"there is no primitive {short(repr(name))} to save or load; {source} before loading"


def _check_attributes(cls: type[Primitive], values: dict[str, Any]) -> None:
    """GraphError for other attributes than the class has, or of other types."""
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
    """GraphError for a call with other numbers of inputs and outputs than the primitive has."""
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
