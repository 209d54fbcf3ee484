"""An ONNX file as data: its operator sets, functions and inputs, checked before anything is
traced."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..abstract import Abstract, Shape
from ..errors import OnnxError
from .operators import Operator, find
from .protobuf import NEWEST, parsed
from .tensors import checked_shape, dtype_of

Opsets = Mapping[str, int]  # the version of each domain


@dataclass(frozen=True, eq=False)
class Model:
    """A parsed file: the graph, where it lies, and what its operators' names mean."""

    proto: Any
    folder: Path | None
    opsets: Opsets
    functions: Mapping[tuple[str, str], Any]

    @staticmethod
    def of(source: Any) -> Model:
        """The model at a path, or in a ModelProto; OnnxError where it is damaged."""
        proto, folder = source, None
        if not hasattr(source, "opset_import"):
            folder = Path(source).parent
            proto = parsed(Path(source))
        if not proto.HasField("graph"):
            raise OnnxError(f"{source if folder else 'the model'} holds no graph, or is damaged")
        functions = {(f.domain, f.name): f for f in proto.functions}
        return Model(proto, folder, opsets(proto.opset_import), functions)

    def nodes(self) -> Iterator[tuple[Any, Opsets]]:
        """Every node, those of subgraphs and functions too, and the versions it is of."""
        for node in flattened(self.proto.graph.node):
            yield node, self.opsets
        for function in self.functions.values():
            versions = opsets(function.opset_import)
            for node in flattened(function.node):
                yield node, versions


def opsets(imports: Iterable[Any]) -> Opsets:
    """The versions of the domains; OnnxError for a default domain newer than what is known."""
    versions = {"" if o.domain == "ai.onnx" else o.domain: o.version for o in imports}
    if versions.get("", 1) > NEWEST:
        raise OnnxError(
            f"the model is of opset {versions['']}; miniml knows those to {NEWEST}; convert it "
            "with onnx.version_converter"
        )
    return versions


def operator_of(node: Any, versions: Opsets) -> Operator | None:
    """The row that reads a node, if there is one."""
    domain = domain_of(node)
    return find(domain, node.op_type, versions.get(domain, 1))


def domain_of(node: Any) -> str:
    """The domain of a node's operator; the default one has two names."""
    return "" if node.domain == "ai.onnx" else str(node.domain)


def unique(what: str, names: Iterable[str]) -> None:
    """OnnxError where a name is there twice."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise OnnxError(f"the graph has two {what} named {name!r}; each has a name of its own")
        seen.add(name)


def input_types(
    graph: Any, given: Iterable[str], shapes: Mapping[str, Sequence[int]], dims: Mapping[str, int]
) -> dict[str, Abstract]:
    """The types of a graph's inputs, those of which a value is `given` left out.

    shapes: of inputs by name; dims: extents by the name of the dimension. OnnxError where an
    extent is not known, and for inputs that are not tensors.
    """
    names = [v.name for v in graph.input]
    unique("inputs", names)
    for what, unknown in (("shapes", {*shapes} - {*names}), ("dims", {*dims} - set(_names(graph)))):
        if unknown:
            raise OnnxError(
                f"{what} names {', '.join(sorted(unknown))}; the model has "
                f"{', '.join(names if what == 'shapes' else _names(graph)) or 'none'}"
            )
    left = {v.name: v for v in graph.input if v.name not in given}
    return {name: _abstract(v, shapes.get(name), dims) for name, v in left.items()}


def _names(graph: Any) -> list[str]:
    """The named dimensions of a graph's inputs, in order."""
    found = [d.dim_param for v in graph.input for d in v.type.tensor_type.shape.dim]
    return list(dict.fromkeys(filter(None, found)))


def _abstract(value: Any, shape: Sequence[int] | None, dims: Mapping[str, int]) -> Abstract:
    what = f"input {value.name!r}"
    kind = value.type.WhichOneof("value")
    if kind != "tensor_type":
        raise OnnxError(f"{what} is a {str(kind).removesuffix('_type')}; miniml has tensors only")
    tensor = value.type.tensor_type
    extents = _extents(what, tensor, dims) if shape is None else tuple(map(int, shape))
    dtype = dtype_of(tensor.elem_type, what)
    return Abstract(checked_shape(extents, dtype.itemsize, what), dtype)


def known_types(values: Iterable[Any], dims: Mapping[str, int]) -> dict[str, Abstract]:
    """The types of those values whose dtype and shape the file says."""
    found = {}
    for value in values:
        try:
            found[value.name] = _abstract(value, None, dims)
        except OnnxError:
            continue
    return found


def _extents(what: str, tensor: Any, dims: Mapping[str, int]) -> Shape:
    if not tensor.HasField("shape"):
        raise OnnxError(f"{what} has no shape; give shapes={{{what[6:]}: (...)}}")
    declared = tensor.shape.dim
    shown = ", ".join(
        str(d.dim_value) if d.HasField("dim_value") else d.dim_param or "?" for d in declared
    )
    extents = [d.dim_value if d.HasField("dim_value") else dims.get(d.dim_param) for d in declared]
    for d, n in zip(declared, extents, strict=True):
        if n is None:
            by_name = f"dims={{{d.dim_param!r}: 1}} or " if d.dim_param else ""
            raise OnnxError(
                f"{what} has shape ({shown}), whose extents are not all known; give {by_name}"
                f"shapes={{{what[6:]}: (...)}}"
            )
    return tuple(n for n in extents if n is not None)


def flattened(nodes: Iterable[Any]) -> Iterator[Any]:
    """Nodes, each after those of its subgraphs."""
    for node in nodes:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from flattened(attribute.g.node)
        yield node
