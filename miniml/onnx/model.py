"""An ONNX file as data, checked before anything is traced.

Parts: the file, with its operator sets and functions; the types and values of its inputs; the
analysis of values that must be known when it is read; its coverage by the table of operators.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from ..core.abstract import Abstract, Shape, scalar_dtype, typed
from ..core.errors import OnnxError, legible
from ..core.files import short
from .operators import Constant, Operator, find, known, rows
from .tensors import NEWEST, checked_shape, dtype_of, parsed

Opsets = Mapping[str, int]  # the version of each domain


# --- Files ----------------------------------------------------------------------------------------


FIXED = "miniml.fixed"  # the key of metadata under which `save` names what nobody learns


@dataclass(frozen=True, eq=False)
class Model:
    """A parsed file: its graph, its folder, and the operator sets and functions that it names."""

    proto: Any
    folder: Path | None
    opsets: Opsets
    functions: Mapping[tuple[str, str], Any]

    @staticmethod
    def of(source: Any) -> Model:
        """The model at a path, or in a ModelProto; OnnxError where it is damaged."""
        proto, folder = source, None
        if isinstance(source, (str, PathLike)):
            folder = Path(source).parent
            proto = parsed(Path(source))
        elif not hasattr(source, "opset_import"):
            raise OnnxError(
                f"got a model of type {type(source).__name__}; give its path or an "
                "onnx.ModelProto: onnx.load_from_string reads bytes, onnx.load an open file"
            )
        if not proto.HasField("graph"):
            raise OnnxError(f"{source if folder else 'the model'} holds no graph, or is damaged")
        functions = {(f.domain, f.name): f for f in proto.functions}
        return Model(proto, folder, opsets(proto.opset_import), functions)

    @cached_property
    def fixed(self) -> frozenset[str]:
        """The initializers that nobody learned, where the writer of the file has said so."""
        said = (p.value for p in self.proto.metadata_props if p.key == FIXED)
        return frozenset(name for names in said for name in names.split("\n"))

    def nodes(self) -> Iterator[tuple[Any, Opsets]]:
        """Every node, those of subgraphs and functions included, with the versions it uses."""
        for node in flattened(self.proto.graph.node):
            yield node, self.opsets
        for function in self.functions.values():
            versions = opsets(function.opset_import)
            for node in flattened(function.node):
                yield node, versions


def opsets(imports: Iterable[Any]) -> Opsets:
    """The versions of the domains; OnnxError for a default domain newer than NEWEST."""
    versions = {"" if o.domain == "ai.onnx" else o.domain: o.version for o in imports}
    if versions.get("", 1) > NEWEST:
        raise OnnxError(
            f"the model is of opset {versions['']}; miniml knows those to {NEWEST}; convert it "
            "with onnx.version_converter"
        )
    return versions


def flattened(nodes: Iterable[Any]) -> Iterator[Any]:
    """Nodes, each after those of its subgraphs."""
    for node in nodes:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from flattened(attribute.g.node)
        yield node


def operator_of(node: Any, versions: Opsets) -> Operator | None:
    """The row that reads a node, if there is one."""
    domain = domain_of(node)
    return find(domain, node.op_type, versions.get(domain, 1))


def domain_of(node: Any) -> str:
    """The domain of a node's operator; the default one has two names."""
    return "" if node.domain == "ai.onnx" else str(node.domain)


def custom_name(domain: str, type_: str) -> str:
    """The name of the primitive that an operator without a row becomes."""
    return f"{domain or 'ai.onnx'}.{type_}"


# --- Inputs ---------------------------------------------------------------------------------------


def check_options(graph: Any, initial: Set[str], **options: Mapping[str, Any]) -> None:
    """OnnxError for options that are no dicts, or that name no input or dimension of the graph."""
    names = [v.name for v in graph.input]
    unique("inputs", names)
    for what, given in options.items():
        if not isinstance(given, Mapping):
            raise OnnxError(f"{what} is {given!r:.200}; give a dict, as {what}={{'name': ...}}")
        free = [n for n in names if what != "values" or n not in initial]
        has = _names(graph) if what == "dims" else free
        unknown = ", ".join(str(n) for n in given if n not in has)
        if unknown:
            raise OnnxError(f"{what} names {unknown}; the model has {', '.join(has) or 'none'}")


def unique(what: str, names: Iterable[str]) -> None:
    """OnnxError where a name occurs twice."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise OnnxError(f"the graph has two {what} named {name!r}; each has a name of its own")
        seen.add(name)


def _names(graph: Any) -> list[str]:
    """The named dimensions of a graph's inputs, in order."""
    found = [d.dim_param for v in graph.input for d in v.type.tensor_type.shape.dim]
    return list(dict.fromkeys(filter(None, found)))


def input_types(
    graph: Any, given: Iterable[str], shapes: Mapping[str, Sequence[int]], dims: Mapping[str, int]
) -> dict[str, Abstract]:
    """The types of a graph's inputs, without those for which a value is `given`.

    shapes: of inputs by name; dims: extents by the name of the dimension. OnnxError where an
    extent is not known, and for inputs that are not tensors.
    """
    whole = {name: _whole(f"dims[{name!r}]", n) for name, n in dims.items()}
    left = {v.name: v for v in graph.input if v.name not in given}
    return {name: _abstract(v, shapes.get(name), whole) for name, v in left.items()}


def input_values(
    graph: Any,
    values: Mapping[str, Any],
    shapes: Mapping[str, Sequence[int]],
    dims: Mapping[str, int],
) -> dict[str, np.ndarray[Any, Any]]:
    """The values of inputs as arrays; OnnxError for those that are not of the inputs' types."""
    inputs = {v.name: v for v in graph.input}
    made = {}
    for name, value in values.items():
        tensor = inputs[name].type.tensor_type
        dtype = dtype_of(tensor.elem_type, f"input {name!r}")
        number = type(value) in (bool, int, float)  # takes the dtype that it has beside the input
        try:
            array = np.asarray(value, scalar_dtype(value, (dtype,)) if number else None)
        except (ValueError, OverflowError) as error:
            raise OnnxError(f"values[{name!r}] is no array: {error}") from None
        declared = [_extent(d, dims) for d in tensor.shape.dim]
        extents = shapes.get(name, declared if tensor.HasField("shape") else array.shape)
        fits = len(extents) == array.ndim and all(
            n in (None, m) for n, m in zip(extents, array.shape, strict=True)
        )
        if array.dtype != dtype or not fits:
            shown = ", ".join("?" if n is None else str(n) for n in extents)
            raise OnnxError(f"values[{name!r}] is {typed(array)}; it takes {dtype.name}[{shown}]")
        made[name] = array
    return made


def known_types(values: Iterable[Any], dims: Mapping[str, int]) -> dict[str, Abstract]:
    """The types of those values whose dtype and shape the file states."""
    found = {}
    for value in values:
        try:
            found[value.name] = _abstract(value, None, dims)
        except OnnxError:
            continue
    return found


def _abstract(value: Any, shape: Sequence[int] | None, dims: Mapping[str, int]) -> Abstract:
    what = f"input {value.name!r}"
    kind = value.type.WhichOneof("value")
    if kind != "tensor_type":
        kind = str(kind).removesuffix("_type")
        article = "an" if kind[0] in "aeiou" else "a"
        raise OnnxError(f"{what} is {article} {kind}; miniml has tensors only")
    tensor = value.type.tensor_type
    if shape is None:
        extents = _extents(what, tensor, dims)
    elif isinstance(shape, (str, bytes)) or not isinstance(shape, Iterable):
        raise OnnxError(f"shapes[{what[6:]}] is {shape!r:.200}; give a tuple of whole numbers")
    else:
        extents = tuple(_whole(f"shapes[{what[6:]}][{i}]", n) for i, n in enumerate(shape))
    dtype = dtype_of(tensor.elem_type, what)
    return Abstract(checked_shape(extents, dtype.itemsize, what), dtype)


def _extents(what: str, tensor: Any, dims: Mapping[str, int]) -> Shape:
    if not tensor.HasField("shape"):
        raise OnnxError(f"{what} has no shape; give shapes={{{what[6:]}: (...)}}")
    declared = tensor.shape.dim
    extents = [_extent(d, dims) for d in declared]
    if None in extents:
        shown = ", ".join(map(_shown, declared))
        unknown = [d for d, n in zip(declared, extents, strict=True) if n is None]
        names = dict.fromkeys(d.dim_param for d in unknown)
        by_name = ", ".join(f"{name!r}: 1" for name in names)
        raise OnnxError(
            f"{what} has shape ({shown}), whose extents are not all known; "
            f"give {f'dims={{{by_name}}} or ' if all(names) else ''}shapes={{{what[6:]}: (...)}}"
        )
    return tuple(n for n in extents if n is not None)


def _extent(dim: Any, dims: Mapping[str, int]) -> int | None:
    """An extent from the file, or from `dims` by its name; exporters write -1 for unknown."""
    if dim.HasField("dim_value"):
        return int(dim.dim_value) if dim.dim_value >= 0 else None
    return dims.get(dim.dim_param)


def _whole(what: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 0:
        raise OnnxError(f"{what} is {value!r:.200}; an extent is a whole number, 0 or more")
    return int(value)


def _shown(dim: Any) -> str:
    known = _extent(dim, {})
    return dim.dim_param or "?" if known is None else str(known)


# --- Values that must be known --------------------------------------------------------------------


_SIZES = ("Shape", "Size")  # operators that know their outputs without knowing their inputs


class Needs:
    """The values of a model that must be known when it is read: inputs that an operator needs as
    constants, and all from which these are computed.

    Each function is analysed once for each set of its outputs that must be known.
    """

    def __init__(self, model: Model):
        self.model = model
        self._found: dict[object, Set[str]] = {}

    def of(
        self, nodes: Iterable[Any], versions: Opsets, required: Set[str] = frozenset()
    ) -> set[str]:
        """The names of values among `nodes`, and in their subgraphs, that must be known, `required`
        included."""
        needed = set(required)
        for node in reversed(list(flattened(nodes))):
            function = self.model.functions.get((domain_of(node), node.op_type))
            if function is not None:
                needed |= self._through(function, node, needed)
            else:
                needed |= self._by(node, versions, needed)
        return needed - {""}

    def _by(self, node: Any, versions: Opsets, needed: Set[str]) -> set[str]:
        """The values that one node adds."""
        row = operator_of(node, versions)
        if not needed.isdisjoint(node.output) and node.op_type not in _SIZES:
            return {*node.input, *(v.name for a in node.attribute for v in a.g.output)}
        if row is None:
            return set()
        return {n for i, n in enumerate(node.input) if row.annotation(i) == Constant}

    def _through(self, function: Any, node: Any, needed: Set[str]) -> set[str]:
        """The values that one call of a function adds."""
        outputs = zip(function.output, node.output, strict=False)
        required = frozenset(inner for inner, outer in outputs if outer in needed)
        key = function.domain, function.name, required
        if key not in self._found:
            self._found[key] = frozenset()  # for a function that calls itself
            self._found[key] = self.of(function.node, opsets(function.opset_import), required)
        inputs = zip(function.input, node.input, strict=False)
        return {outer for inner, outer in inputs if inner in self._found[key]}


# --- Coverage by the table ------------------------------------------------------------------------


@dataclass(frozen=True)
class Need:
    """One operator of a model: the number of nodes that use it, and the rows that read it."""

    domain: str
    type: str
    version: int
    nodes: int
    versions: str | None  # of the domain that the row reads; None where there is no row
    others: str  # versions that other rows of the operator read

    def __str__(self) -> str:
        by = f"read (versions {self.versions})" if self.versions else "missing"
        by += f"; read in versions {self.others}" if not self.versions and self.others else ""
        name = short(legible(f"{self.domain or 'ai.onnx'} {self.type}"))
        return f"{name:<40} version {self.version:<4} nodes {self.nodes:<6} {by}"


@dataclass(frozen=True)
class Coverage:
    """The operators that a model needs, by domain and type."""

    needs: tuple[Need, ...]

    @property
    def missing(self) -> tuple[Need, ...]:
        """The operators that no row reads: their nodes stay in the graph as ops.Custom."""
        return tuple(n for n in self.needs if n.versions is None)

    def __str__(self) -> str:
        lines = [*map(str, self.needs)]
        count, nodes = len(self.missing), sum(n.nodes for n in self.missing)
        lines.append(
            f"{len(self.needs)} operators; {count} missing, in {nodes} nodes"
            if count
            else f"{len(self.needs)} operators, all of them read"
        )
        return "\n".join(lines)


def coverage(model: str | PathLike[str] | Any) -> Coverage:
    """The operators that a model needs, including those in branches, loops and functions."""
    found = Model.of(model)
    counts: Counter[tuple[str, str, int]] = Counter()
    for node, versions in found.nodes():
        domain = domain_of(node)
        if (domain, node.op_type) not in found.functions:
            counts[domain, node.op_type, versions.get(domain, 1)] += 1
    return Coverage(tuple(_need(*key, counts[key]) for key in sorted(counts)))


def _need(domain: str, type_: str, version: int, nodes: int) -> Need:
    row = find(domain, type_, version)
    others = ", ".join(r.versions for r in known(domain, type_) if r is not row)
    return Need(domain, type_, version, nodes, row.versions if row else None, others)


def table() -> str:
    """The operators of the standard that are read, and their versions, in Markdown."""
    versions: dict[tuple[str, str], list[str]] = {}
    for row in rows():
        if row.domain in ("", "ai.onnx.ml"):
            versions.setdefault((row.domain, row.type), []).append(row.versions)
    lines = ["| operator | versions |", "|---|---|"]
    for (domain, type_), found in versions.items():
        name = f"{domain}.{type_}" if domain else type_
        lines.append(f"| {name} | {', '.join(found)} |")
    return "\n".join(lines) + "\n"
