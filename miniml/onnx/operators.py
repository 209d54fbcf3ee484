"""The table of ONNX operators: one row for a domain, a type and a range of versions.

Parts: the rows and their registration; attributes, as a frozen dataclass made from a function's
keyword-only arguments, read from a node's attributes and packed back into them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, make_dataclass
from functools import cached_property
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

import numpy as np

from ..backends.expressions import table
from ..core.abstract import DType
from ..core.errors import DeclarationError, DuplicateError, OnnxError
from ..core.primitive import Primitive, attribute_parameters, resolved
from ..interop.custom import pack_attribute
from ..interop.formula import formula
from .tensors import array_of, code_of, wheel

F = TypeVar("F", bound=Callable[..., Any])


# --- Rows -----------------------------------------------------------------------------------------


# Annotations of inputs. Constant: its value must be known when the model is read, and is given as a
# NumPy array. Setting: its initializer is a constant and not a weight, as for bounds, scales and
# running statistics; if it is not known when the model is read, it is given as a tensor.
Constant = Annotated[np.ndarray[Any, Any], "constant"]
Setting = Annotated[Any, "setting"]

Ints = tuple[int, ...]
Floats = tuple[float, ...]
Strings = tuple[str, ...]


@dataclass(frozen=True)
class Operator:
    """A row: the reader of the nodes of one operator.

    first, last: the versions of the domain for which it holds, None for all later ones. function:
    (*inputs, **parameters) to outputs, made of `ops`.
    """

    domain: str
    type: str
    first: int
    last: int | None
    attributes: tuple[inspect.Parameter, ...]
    function: Callable[..., Any]
    inputs: tuple[inspect.Parameter, ...]
    takes_node: bool

    @cached_property
    def parameters(self) -> Any:
        """The frozen dataclass of its attributes."""
        return parameters(self.type, self.attributes)

    def covers(self, version: int) -> bool:
        """True where it reads nodes of this version of the domain."""
        return self.first <= version and (self.last is None or version <= self.last)

    def meets(self, other: Operator) -> bool:
        """True where both read some version."""
        return self.covers(other.first) or other.covers(self.first)

    @property
    def versions(self) -> str:
        """The range as text: "7-12" or "13+"."""
        return f"{self.first}+" if self.last is None else f"{self.first}-{self.last}"

    def annotation(self, i: int) -> Any:
        """The annotation of input i, which may be one of many."""
        return bare(self.inputs[min(i, len(self.inputs) - 1)].annotation) if self.inputs else None

    def check_count(self, given: Sequence[Any]) -> None:
        """OnnxError unless that many inputs may be given; None stands for an absent one."""
        many = any(p.kind is p.VAR_POSITIONAL for p in self.inputs)
        needed = [
            p.name for p in self.inputs if p.default is p.empty and p.kind is not p.VAR_POSITIONAL
        ]
        names = ", ".join(p.name for p in self.inputs) or "none"
        if len(given) > len(self.inputs) and not many:
            raise OnnxError(f"got {len(given)} inputs; it takes {names}")
        for i, name in enumerate(needed):
            if i >= len(given) or given[i] is None:
                raise OnnxError(f"got no input {name}; it takes {names}")


_rows: dict[tuple[str, str], list[Operator]] = {}


def register_operator(domain: str, type: str, versions: tuple[int, int | None]) -> Callable[[F], F]:
    """Register the decorated function as the reader of the operator `type` of a domain.

    The function makes outputs from inputs by `ops`, one or a tuple. Its positional arguments are
    the inputs, with defaults those that may be absent; one annotated `Constant` must be known when
    a model is read, and is a NumPy array. Its keyword-only arguments are the attributes, by name
    and type: float, int, str, bytes, tuples of them, `| None`. One named `node` is the node.

    versions: the first and the last version of the domain, None for all later ones. A range that
    meets another of the same type is refused with DuplicateError; registering the same function
    again, as in a notebook, replaces it.
    """
    key = ("" if domain == "ai.onnx" else domain, type)

    def register(function: F) -> F:
        row = _row(key, versions, function)
        kept = [r for r in _rows.get(key, []) if not _again(r, row)]
        for other in kept:
            if row.meets(other):
                raise DuplicateError(
                    f"operator {type} of domain {domain!r}, versions {row.versions}, is read "
                    f"already in versions {other.versions} by {other.function.__module__}."
                    f"{other.function.__qualname__}; give ranges that do not meet"
                )
        _rows[key] = [*kept, row]
        return function

    return register


def register_all(versions: tuple[int, int | None], functions: Mapping[str, Any]) -> None:
    """Register operators of the default domain without attributes, each a function of tensors."""
    for type_, function in functions.items():
        register_operator("", type_, versions)(_plain(function))


def register_class(primitive: type[Primitive]) -> None:
    """Register the operator that a class says it is, as in `onnx = "Tanh", 6`: its name, perhaps
    behind that of a domain and a dot, and the first version. Its attributes are the primitive's."""
    said = vars(primitive).get("onnx")
    if said is None:
        return
    match said:
        case (str(name), int(first)):
            domain, _, type_ = name.rpartition(".")
        case _:
            raise DeclarationError(
                f"{primitive.name} says onnx = {said!r}; it is the operator's name and the first "
                "version, as in onnx = ('Tanh', 6)"
            )

    def read(*inputs: Any, **attributes: Any) -> Any:
        return primitive(**attributes)(*inputs)

    taken = list(inspect.signature(primitive.__call__).parameters.values())[1:]
    inputs = [p.replace(annotation=Any) for p in taken]
    named = [
        p.replace(kind=p.KEYWORD_ONLY, annotation=resolved(p.annotation, field.names))
        for field, p in zip(primitive._fields, attribute_parameters(primitive._fields))
    ]
    read.__signature__ = inspect.Signature(inputs + named)  # type: ignore[attr-defined]
    read.__module__, read.__qualname__ = primitive.__module__, primitive.__qualname__
    register_operator(domain, type_, (first, None))(read)


# --- The way back ---------------------------------------------------------------------------------


# (emit, node, *inputs) to a value or a tuple of them: see `miniml.onnx.tape.Tape`.
Writer = Callable[..., Any]
_writers: dict[type, Writer] = {}


def register_writer(*primitives: type[Primitive]) -> Callable[[F], F]:
    """Register the decorated function as the writer of these primitives and their subclasses.

    It is called as writer(emit, node, *inputs): `emit("Add", x, y)` puts a node of ONNX down and is
    its output; attributes are keywords, those by which the operator's row reads files. node has the
    primitive, and the types of its inputs and outputs. Registering again replaces.
    """

    def register(function: F) -> F:
        _writers.update(dict.fromkeys(primitives, function))
        return function

    return register


def register_composition(*primitives: type[Primitive]) -> Callable[[F], F]:
    """Register the decorated function, (primitive, *inputs) to outputs in `ops`, as what these
    primitives are made of in a file: where they are elementwise, as a function of the file."""

    def register(function: F) -> F:
        register_writer(*primitives)(composition(function))
        return function

    return register


def composition(function: Callable[..., Any]) -> Writer:
    """The writer of primitives that are made of others."""

    def write(emit: Any, node: Any, *inputs: Any) -> Any:
        primitive = node.primitive

        def composed(*xs: Any) -> Any:
            return function(primitive, *xs)

        if not primitive.elementwise:
            return emit.made_of(composed, *inputs)
        domain, name = _owner(primitive), type(primitive).__name__
        return emit.function(domain, name, composed, primitive, *inputs)

    return write


def _said(primitive: type[Primitive]) -> Callable[..., Any] | None:
    """The expression of a user's elementwise primitive, in `ops`; None where there is none, or one
    for each dtype, or one with functions that `ops` lacks."""
    texts = {b.text for (name, _), b in table.items() if name == primitive.name}
    if (
        not primitive.elementwise
        or primitive.__module__.startswith("miniml.ops.")
        or len(texts) != 1
    ):
        return None
    try:
        value = formula(primitive.name, texts.pop())
    except DeclarationError:
        return None
    return lambda self, *xs: value(
        {**self.attributes, **dict(zip(self.input_names, xs, strict=True))}
    )


def _owner(primitive: Primitive) -> str:
    """The domain of a primitive's function: the package that defines it."""
    return type(primitive).__module__.partition(".")[0].strip("_")


def writer_of(primitive: type[Primitive]) -> Writer | None:
    """The writer of a primitive: registered for it or a base, the operator that it says it is, or
    what its expression says."""
    for cls in primitive.__mro__:
        if cls in _writers:
            return _writers[cls]
        if vars(cls).get("onnx"):
            domain, _, type_ = vars(cls)["onnx"][0].rpartition(".")
            return lambda emit, node, *inputs: emit(
                type_, *inputs, domain=domain, **node.primitive.attributes
            )
    said = _said(primitive)
    return None if said is None else composition(said)


def _plain(function: Any) -> Any:
    """A function of only the tensors that a primitive or a function of the library needs."""

    def one(x: Any) -> Any:
        return function(x)

    def two(x: Any, y: Any) -> Any:
        return function(x, y)

    def three(x: Any, y: Any, z: Any) -> Any:
        return function(x, y, z)

    return (one, two, three)[len(_inputs(function)) - 1]


def _inputs(function: Any) -> Sequence[str]:
    if not inspect.isfunction(function):
        return function.input_names  # type: ignore[no-any-return]
    given = inspect.signature(function).parameters.values()
    return [p.name for p in given if p.default is p.empty]


def _again(old: Operator, new: Operator) -> bool:
    """True for the same function of a module, defined again."""
    a, b = ((r.first, r.function.__module__, r.function.__qualname__) for r in (old, new))
    return a == b and "<" not in a[2]  # inner functions and lambdas share names


def _row(key: tuple[str, str], versions: Any, function: Any) -> Operator:
    match versions:
        case (int(first), int() | None as last) if 1 <= first <= (last or first):
            pass
        case _:
            raise DeclarationError(
                f"operator {key[1]} got versions {versions!r}; give (first, last), from 1 on, or "
                "(first, None)"
            )
    given = inspect.signature(function, eval_str=True).parameters.values()
    if any(p.kind is p.VAR_KEYWORD for p in given):
        raise DeclarationError(f"operator {key[1]} takes **; name each attribute, with its type")
    inputs = tuple(p for p in given if p.kind is not p.KEYWORD_ONLY)
    named = [p for p in given if p.kind is p.KEYWORD_ONLY]
    declared = tuple(p for p in named if p.name != "node")
    check_declared(key[1], declared)
    return Operator(*key, first, last, declared, function, inputs, len(declared) < len(named))


def find(domain: str, type_: str, version: int) -> Operator | None:
    """The row that reads an operator, if there is one."""
    rows = _rows.get((domain, type_), ())
    return next((r for r in rows if r.covers(version)), None)


def known(domain: str, type_: str) -> list[Operator]:
    """All rows of an operator, oldest first."""
    return sorted(_rows.get((domain, type_), ()), key=lambda r: r.first)


def rows() -> Iterator[Operator]:
    """All rows, by domain, type and first version."""
    for key in sorted(_rows):
        yield from known(*key)


# --- Attributes -----------------------------------------------------------------------------------


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
    """The parameters in a node's attributes; OnnxError for those that are not declared, of another
    type, or missing."""
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


def _value(proto: Any, kind: Any) -> Any:
    expected = _KINDS[kind]
    if proto.type != getattr(proto, expected.name):
        got = proto.AttributeType.Name(proto.type)
        raise OnnxError(f"attribute {proto.name!r} is of type {got}; expected {expected.name}")
    try:
        return expected.read(proto)
    except UnicodeDecodeError:
        raise OnnxError(f"attribute {proto.name!r} holds bytes that are not UTF-8") from None


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
    """An undeclared attribute: floats in 4 bytes each and ints in 8, little-endian, text unchanged,
    texts with a zero between them, tensors and graphs as protobuf."""
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


def bare(annotation: Any) -> Any:
    """The type of an attribute that may be absent."""
    if get_origin(annotation) not in (Union, UnionType):
        return annotation
    rest = [a for a in get_args(annotation) if a is not NoneType]
    return rest[0] if len(rest) == 1 else annotation


@dataclass(frozen=True)
class _Kind:
    """The encoding of one type of parameter in an AttributeProto."""

    name: str  # of the attribute's type
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
