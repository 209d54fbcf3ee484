"""The parameters of an operator: a frozen dataclass made from a function's keyword-only
arguments, read from a node's attributes and packed back into them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import MISSING, dataclass, field, fields, make_dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import numpy as np

from ..dtype import DType
from ..errors import DeclarationError, OnnxError
from ..ops import pack_attribute
from .protobuf import wheel
from .tensors import array_of, code_of


@dataclass(frozen=True)
class Literal:
    """A tensor among the parameters, as a value: it can be compared and hashed."""

    dtype: DType
    shape: tuple[int, ...]
    data: bytes

    @property
    def array(self) -> np.ndarray[Any, Any]:
        """The tensor."""
        return np.frombuffer(self.data, self.dtype).reshape(self.shape)


# The annotation of a parameter that is a graph, run by `node.run(graph, inputs)`.
Subgraph = Annotated[Any, "graph"]


@dataclass(frozen=True)
class _Kind:
    """How one type of parameter stands in an AttributeProto."""

    name: str  # of its type there
    read: Callable[[Any], Any]
    pack: Callable[[Any, Any], None]


def _extend(name: str, encode: Callable[[Any], Any] = lambda v: v) -> Callable[[Any, Any], None]:
    return lambda proto, values: getattr(proto, name).extend(map(encode, values))


def _assign(name: str, encode: Callable[[Any], Any] = lambda v: v) -> Callable[[Any, Any], None]:
    return lambda proto, value: setattr(proto, name, encode(value))


def _literal(proto: Any) -> Literal:
    array = array_of(proto.t)
    return Literal(array.dtype, array.shape, array.tobytes())


def _pack_literal(proto: Any, value: Literal) -> None:
    proto.t.data_type, proto.t.raw_data = code_of(value.dtype), value.data
    proto.t.dims.extend(value.shape)


_KINDS: dict[Any, _Kind] = {
    float: _Kind("FLOAT", lambda p: p.f, _assign("f")),
    int: _Kind("INT", lambda p: p.i, _assign("i")),
    str: _Kind("STRING", lambda p: p.s.decode(), _assign("s", str.encode)),
    bytes: _Kind("STRING", lambda p: p.s, _assign("s")),
    tuple[float, ...]: _Kind("FLOATS", lambda p: tuple(p.floats), _extend("floats")),
    tuple[int, ...]: _Kind("INTS", lambda p: tuple(p.ints), _extend("ints")),
    tuple[str, ...]: _Kind(
        "STRINGS", lambda p: tuple(s.decode() for s in p.strings), _extend("strings", str.encode)
    ),
    Literal: _Kind("TENSOR", _literal, _pack_literal),
    Subgraph: _Kind("GRAPH", lambda p: p.g, lambda p, value: p.g.CopyFrom(value)),
}


def check_declared(type_: str, declared: Iterable[inspect.Parameter]) -> None:
    """DeclarationError for types that no attribute has."""
    for p in declared:
        if bare(p.annotation) not in _KINDS:
            raise DeclarationError(
                f"operator {type_} declares {p.name}: {inspect.formatannotation(p.annotation)}; "
                f"an attribute is one of {', '.join(map(inspect.formatannotation, _KINDS))}, or "
                "None besides"
            )


def parameters(type_: str, declared: Iterable[inspect.Parameter]) -> type:
    """The dataclass of an operator's parameters."""
    rows = [
        (p.name, p.annotation, field() if p.default is p.empty else field(default=p.default))
        for p in declared
    ]
    return make_dataclass(type_, rows, frozen=True, kw_only=True)


def read(struct: type, attributes: Iterable[Any]) -> Any:
    """The parameters that a node's attributes say; OnnxError for what was not declared, for
    another type, and for what is missing."""
    declared = {f.name: f for f in fields(struct)}
    given: dict[str, Any] = {}
    for proto in attributes:
        if proto.name not in declared:
            known = ", ".join(declared) or "none"
            raise OnnxError(f"attribute {proto.name!r} is unknown; {struct.__name__} has {known}")
        if proto.name in given:
            raise OnnxError(f"attribute {proto.name!r} is there twice")
        given[proto.name] = _value(proto, bare(declared[proto.name].type))
    missing = [n for n, f in declared.items() if f.default is MISSING and n not in given]
    if missing:
        raise OnnxError(f"lacks attribute {', '.join(missing)}")
    return struct(**given)


def pack(values: Any) -> list[Any]:
    """The attributes of a node with these parameters: those that differ from the defaults."""
    made = []
    for f in fields(values):
        value = getattr(values, f.name)
        if value is None or value == f.default:
            continue
        kind, proto = _KINDS[bare(f.type)], wheel().AttributeProto()
        proto.name, proto.type = f.name, getattr(proto, kind.name)
        kind.pack(proto, value)
        made.append(proto)
    return made


def as_bytes(proto: Any) -> bytes:
    """An attribute that nobody has declared: floats in 4 bytes each and ints in 8, little-endian,
    text as it is, texts with a zero between, tensors and graphs as protobuf."""
    name = proto.AttributeType.Name(proto.type)
    if name in ("TENSOR", "GRAPH"):
        return bytes((proto.t if name == "TENSOR" else proto.g).SerializeToString())
    if name in ("FLOAT", "FLOATS"):
        return pack_attribute(tuple(proto.floats) if name == "FLOATS" else proto.f, "<f4")
    if name in ("INT", "INTS"):
        return pack_attribute(tuple(proto.ints) if name == "INTS" else proto.i, "<i8")
    if name in ("STRING", "STRINGS"):
        return b"\0".join(proto.strings) if name == "STRINGS" else bytes(proto.s)
    raise OnnxError(f"attribute {proto.name!r} is of type {name}, which ops.Custom cannot hold")


def _value(proto: Any, kind: Any) -> Any:
    expected = _KINDS[kind]
    if proto.type != getattr(proto, expected.name):
        got = proto.AttributeType.Name(proto.type)
        raise OnnxError(f"attribute {proto.name!r} is of type {got}; expected {expected.name}")
    try:
        return expected.read(proto)
    except UnicodeDecodeError:
        raise OnnxError(f"attribute {proto.name!r} holds bytes that are not UTF-8") from None


def bare(annotation: Any) -> Any:
    """The type of an attribute that may be absent."""
    if get_origin(annotation) not in (Union, UnionType):
        return annotation
    rest = [a for a in get_args(annotation) if a is not NoneType]
    return rest[0] if len(rest) == 1 else annotation
