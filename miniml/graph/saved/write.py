"""Saving: a graph as text, with its larger arrays in a file beside it."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from ... import random
from ...access import Access
from ...archive import PathLike, digest, encoded, refused, writable, write
from ...errors import GraphError
from ...files import remove_drafts
from ...ops import Custom, Fused
from ...parameter import Parameter
from ...primitive import Primitive
from ...tensor import Tensor
from ..function import trace
from ..ir import Graph, Node, Var
from ..names import unique
from ..verify import verify
from .values import encode, numbers

FORMAT, VERSION = "miniml graph", 1
DATA = ".safetensors"  # behind the path of the text
CALLS = "the calls are save_graph(fn, path, *example_args) and load_graph(path)"
Array = np.ndarray[Any, Any]


def save_graph(
    fn_or_graph: Callable[..., Any] | Graph, path: PathLike, *example_args: Any, **named: Any
) -> None:
    """Write a graph, or that of a function for arguments of these types, to a file.

    The file is JSON text, one node a line: equal graphs give equal text. Arrays of more than 16
    elements stand in `path` + ".safetensors" beside it. Parameters are saved with their values,
    names and `requires_grad`; random draws go on drawing from the stream of the process that loads
    the graph. Files appear wholly or not at all: whatever ends a save, what was there before can
    still be loaded.

    GraphError for an attribute that is no plain value, and for a graph that was lowered for a
    device; CheckpointError for a place where no file can be written.
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
    # A new name first: until the text is there, the old text finds the old arrays.
    beside = data_file(target, hashed)
    write(beside, encoded(content.arrays), path)
    write(target, iter([text]), path)
    try:
        beside.replace(data_file(target))
    except OSError as error:
        raise refused(path, "saved", error) from None
    _remove(target)


def data_file(target: Path, hashed: str = "") -> Path:
    """Where the arrays of a graph are; hashed: until everything else is in place."""
    middle = f".{hashed}" if hashed else ""
    return target.with_name(f"{target.name}{middle}{DATA}")


def _remove(target: Path, arrays: bool = False) -> None:
    """Remove arrays that killed saves have left under their first name, and drafts of such; with
    `arrays`, those under the name that they have in the end, too."""
    pattern = f"{_escaped(target.name)}.{'[0-9a-f]' * 32}{DATA}"
    for draft in target.parent.glob(f".{pattern}.*"):
        remove_drafts(target.with_name(draft.name[1:].rsplit(".", 2)[0]))
    stale = {*target.parent.glob(pattern)}
    for file in stale | ({data_file(target)} if arrays else set()):
        with suppress(OSError):
            file.unlink()


def _escaped(name: str) -> str:
    return "".join(f"[{c}]" if c in "*?[" else c for c in name)


def signed(text: str) -> bytes:
    """The text with a last line that says which it is."""
    try:
        body = text.encode()
    except UnicodeEncodeError as error:
        raise GraphError(f"the graph has a text that is not valid Unicode: {error}") from None
    return body + f'"hash": "{hashlib.blake2b(body, digest_size=16).hexdigest()}"}}\n'.encode()


class Content:
    """What the file of a graph says. arrays: those that stand beside the text, by name."""

    def __init__(self, graph: Graph):
        self.arrays: dict[str, Array] = {}
        self._bodies: dict[int, tuple[int, Graph]] = {}
        self._uses: dict[str, str] = {}
        for body in _bodies(graph):
            self._bodies[id(body)] = len(self._bodies), body
        self.graph = self._graph(graph, "")
        self.bodies = [self._graph(body, f"body_{i}.") for i, body in self._bodies.values()]

    def text(self, hashed: str) -> str:
        """The JSON text but for its last line."""
        head = {"format": FORMAT, "version": VERSION, "uses": dict(sorted(self._uses.items()))}
        file = {**head, "data": hashed, "graph": self.graph, "bodies": self.bodies}
        lines = [f'"{name}": {_laid(name, value)},\n' for name, value in file.items()]
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
            names[v]: self._array(_host(v.abstract.value), prefix + names[v])
            for v in graph.constants
        }
        outs = unique(graph.output_names or _default_outputs(len(graph.outputs)))
        return {
            "name": graph.name,
            "inputs": {names[v]: _typed(v) for v in graph.inputs},
            "state": state,
            "constants": constants,
            "nodes": [self._node(node, names) for node in graph.nodes],
            "outputs": dict(zip(outs, [names[v] for v in graph.outputs], strict=True)),
        }

    def _parameter(self, parameter: Parameter, key: str, value: Array) -> dict[str, Any]:
        if parameter is random.default_generator.state:
            return {"random": True}
        about = {"name": parameter.name, "requires_grad": parameter.requires_grad}
        return {**about, **self._array(value, key)}

    def _array(self, value: Array, key: str) -> dict[str, Any]:
        """An array as its type and its elements; without these if it stands beside the text."""
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
        """How a node names its primitive; modules of users are noted, for who loads the graph."""
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


def _laid(name: str, value: Any) -> str:
    """JSON with one line for each entry of a graph's parts, and no more than that."""
    if name == "graph":
        return _object({k: _laid(f"{name}.{k}", v) for k, v in value.items()}, "")
    if name == "bodies":
        return "[" + ",".join("\n" + _laid("graph", body) for body in value) + "]"
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
    """The name of each Var: of inputs and parameters their own, of other values that of what made
    them, so that a node more or less leaves most names as they are."""
    preferred: list[tuple[Var, str]] = list(zip(graph.inputs, _inputs(graph), strict=True))
    preferred += [(v, p.name) for p, v in graph.state]
    preferred += [(v, _constant(v)) for v in graph.constants]
    preferred += [(v, _snake(n.primitive.name)) for n in graph.nodes for v in n.outputs]
    chosen = unique(name for _, name in preferred)
    return {var: name for (var, _), name in zip(preferred, chosen, strict=True)}


def _snake(name: str) -> str:
    return re.sub("(?<=[a-z])(?=[A-Z])", "_", name).lower()


def _inputs(graph: Graph) -> Sequence[str]:
    return graph.input_names or [f"x{i}" for i in range(len(graph.inputs))]


def _default_outputs(count: int) -> Sequence[str]:
    return ["out"] if count == 1 else [f"out.{i}" for i in range(count)]


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
    """The graphs inside attributes, each once, and before those that it has inside."""
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
    """The values of parameters as they are at one moment, between two steps."""
    section = Access("save_graph", reads=parameters)
    held: list[Array] = section.run(lambda: [*_copies(parameters)])
    return held


def _copies(parameters: Iterable[Parameter]) -> Iterator[Array]:
    for p in parameters:
        yield np.array(Tensor._host(p, "save_graph"), order="C")  # not an unpublished version's


def _host(value: Array | None) -> Array:
    assert value is not None
    return np.array(value, order="C")
