"""Primitive: an operation as a frozen value, made of its name and its attributes.

The class; the attributes (which values are allowed, and when two differ); the signature (what a
class says of its inputs and what it leaves out, what `help` shows, how calls by name are bound);
the classic spelling, with an `__init__` that is recorded, and bases by name.
"""

from __future__ import annotations

import builtins
import inspect
import math
import sys
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass
from types import CodeType, FunctionType, NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Literal,
    TypeVar,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
)
from weakref import WeakValueDictionary

import numpy as np
import optree

from ..backends.registry import OpSpec, register_row, register_spec
from .abstract import ALL, Abstract, canonical
from .errors import (
    ArityError,
    AttributeRefusedError,
    DeclarationError,
    DuplicateError,
    ImmutableError,
    point_at,
)
from .facts import Facts, check_facts, check_spelling, complete, fill_in, row_of
from .hints import Constructor
from .options import brief
from .scope import user_location
from .signature import FLOAT
from .trace import Guarded, current_trace

if TYPE_CHECKING:
    from .tensor import Tensor


# --- Primitive ------------------------------------------------------------------------------------


primitives: dict[str, type[Primitive]] = {}
# Keeps what was made of plain values for the next call with the same ones.
_recent: deque[Primitive] = deque(maxlen=256)
# Further checks of a class when it is defined; each raises DeclarationError.
definition_checks: list[Callable[[type[Primitive]], None]] = []
Promote = bool | Literal["float"] | tuple[str, ...]
_UNRECORDED = (
    "{}.__init__ must call super().__init__(...) or carry @prim_attr_register, so that the "
    "attributes are recorded"
)


class _Constructor(Constructor):
    """The signature of a class of primitives: its attributes."""

    def __get__(self, primitive: object, kind: Any) -> inspect.Signature:
        if primitive is not None or kind.__init__ is not Primitive.__init__:
            return super().__get__(primitive, kind)
        return inspect.Signature(attribute_parameters(kind._fields))


@dataclass_transform(frozen_default=True)
class Primitive(Facts):
    """Base of all operations. A subclass says what an operation is; others say how it runs.

    Annotated fields are its attributes: `==`, `hash`, `repr`, keys of caches and the keyword
    arguments of its kernels come from them. `infer_shape(*shapes)` and `infer_dtype(*dtypes)` give
    the outputs' shapes and dtypes from the inputs', one dtype standing for all outputs; optional
    `infer_value(*values)` gives the result itself where it is known without a kernel, or None.
    `miniml.ops.rules` has such rules by name. Without infer_dtype the outputs have the dtype of
    the input `like`, else of the first tensor among those that are promoted, or among all.
    `__infer__(*dictionaries)`, in place of all three, gets and returns {"shape": ..., "dtype": ...,
    "value": ...}, with value None for what is not constant.

    Reserved class variables, not attributes:
    name: the global name, by default the class name. inputs: names of the inputs, or "*xs"; by
    default the parameters of infer_shape. outputs: names of the outputs, or "*parts" for a number
    that depends on the instance. like: the input whose shape and dtype the outputs have where no
    rule gives them. const_inputs: inputs that must be known when the call is made. effect: "pure",
    "ordered" to keep the order of the program, as between ranks, or "state" to write to its first
    input too. promote: True casts inputs to their common dtype before
    inference, "float" also casts integers to a float, a tuple of names casts only those inputs to
    a dtype common among themselves. commutative: the order of the inputs does not matter.
    dynamic_outputs: the outputs' shapes depend on values, so the primitive runs only eagerly.
    differentiable: False means that no gradient passes, by definition. Further ones are facts, such
    as elementwise, autocast and flops: `core.facts.Facts` lists them.

    The whole primitive may stand in its class, which what is registered from outside then adds to:
    `bprop(self, *inputs, out, dout)`, its gradient, as in `bprop_getters`; `compute(self, *arrays,
    out, **attributes)`, a CPU kernel that fills `out`, by way of float32 for floats of 16 bits, or
    numpy = "tanh", a ufunc that is the kernel; expression = "x + sin(alpha * x)", the C of one
    element, as in `elementwise_kernel`. With an expression or a ufunc, inputs that no rule names
    are those of compute or bprop, and broadcast: the class is elementwise. dtypes: what they are
    for, type codes as in "fd", by default all floats, or a tuple of signatures; expression and
    numpy may also be a dictionary of texts by type codes. onnx: ("Tanh", 6), the operator that is
    this primitive, and since which version. What an annotation declares under one of these names is
    an attribute.

    Calling one gives a Tensor, or a tuple of them where there are several outputs; to a type
    checker this too is a Tensor, which unpacks into Tensors. Inputs may be given by name.
    """

    name: ClassVar[str] = "Primitive"
    inputs: ClassVar[tuple[str, ...] | str] = ()
    outputs: ClassVar[tuple[str, ...] | str] = ("out",)
    const_inputs: ClassVar[tuple[str, ...]] = ()
    like: ClassVar[str] = ""
    effect: ClassVar[Literal["pure", "ordered", "state"]] = "pure"
    promote: ClassVar[Promote] = False
    commutative: ClassVar[bool] = False
    dynamic_outputs: ClassVar[bool] = False
    differentiable: ClassVar[bool] = True
    if not TYPE_CHECKING:  # where a class annotates one of these, it is an attribute
        expression = numpy = onnx = None
        dtypes = FLOAT

    __signature__ = _Constructor()
    if TYPE_CHECKING:
        _hash: int
        _key: tuple[object, ...]
    _fields: ClassVar[tuple[Field, ...]] = ()
    _made: ClassVar[WeakValueDictionary[object, Primitive]]  # keyed by the arguments of the class
    _inputs: ClassVar[tuple[str, ...] | None] = None
    _const: ClassVar[tuple[tuple[int, str], ...]] = ()
    _promoted: ClassVar[tuple[int, ...] | None] = None
    _like: ClassVar[int | None] = None
    _single: ClassVar[bool] = True
    _pure: ClassVar[bool] = False  # its rules, the library's, are functions of types alone
    _plain: bool = True  # no attribute is a graph, or the like
    _classic: ClassVar[bool] = False
    _checks: ClassVar[bool] = False
    _infers_value: ClassVar[bool] = False
    _by_dictionary: ClassVar[bool] = False
    defined_at: ClassVar[str] = ""
    _made_by: ClassVar[CodeType | None] = None  # the code of the user's that defined it

    def __init_subclass__(cls, abstract: bool = False) -> None:
        super().__init_subclass__()
        cls._fields, cls._made = fields_of(cls), WeakValueDictionary()
        for field in cls._fields:  # defaults live in the fields; instances hold the values
            if field.name in cls.__dict__:
                delattr(cls, field.name)
        if abstract:
            return
        frame = sys._getframe(1)
        cls.defined_at = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        cls._made_by = None if frame.f_globals["__name__"][:7] == "miniml." else frame.f_code
        if "name" not in cls.__dict__:
            cls.name = cls.__name__
        check_spelling(cls)
        complete(cls)
        inputs = input_parameters(cls)
        several = any(p.kind is p.VAR_POSITIONAL for p in inputs)
        cls._inputs = None if several else tuple(p.name for p in inputs)
        if getattr(cls.__call__, "__code__", None) is Primitive.__call__.__code__:
            cls.__call__ = with_parameters(Primitive.__call__, inputs)  # type: ignore[method-assign]
        cls._const = const_positions(cls)
        cls._pure = not cls._const and cls.__module__.startswith("miniml.")
        cls._promoted = promoted_positions(cls)
        cls._like = like_position(cls, inputs)
        cls._single = isinstance(cls.outputs, tuple) and len(cls.outputs) == 1
        cls._classic = getattr(cls.__init__, "_miniml_classic", False)
        _check_init(cls)
        check_facts(cls, _tensors(cls))
        fill_in(cls)
        cls._by_dictionary = hasattr(cls, "__infer__")
        cls._infers_value = hasattr(cls, "infer_value") or cls._by_dictionary
        _claim_name(cls)
        for check in definition_checks:
            check(cls)
        again = cls.name in primitives
        register_row(spec_of(cls), row_of(cls), cls.__module__, cls.defined_at, again)
        primitives[cls.name] = cls

    def __init__(self, *args: Any, **kwargs: Any):
        try:
            given = (..., key(args), key((*kwargs.items(),))) if kwargs else key(args)
            made = self._made.get(given)
        except TypeError:  # such as a list, which is frozen to a tuple
            given = made = None
        if made is not None:
            values = made.attributes
            self.__dict__.update(values, attributes=values, _key=made._key, _hash=made._hash)
            return
        self._finish(bind_fields(type(self), self._fields, args, kwargs))
        if given is not None and self._plain:
            self._made[given] = self
            _recent.append(self)

    def _finish(self, values: dict[str, Any]) -> None:
        state = self.__dict__
        state.update(values)
        state["attributes"], state["_plain"] = values, is_its_key([*values.values()])
        items = tuple([(k, key(v)) for k, v in values.items()])
        state["_key"] = (type(self), items)
        state["_hash"] = hash(state["_key"])

    def __call__(self, *args: Any, **inputs: Any) -> Tensor:
        if inputs:
            args = in_order(self.name, self, args, inputs)
        outs = current_trace().bind(self, args)
        return outs[0] if self._single else outs  # type: ignore[return-value]  # as `unwrap` does

    def unwrap(self, outs: tuple[Any, ...]) -> Any:
        """The tuple of outputs as the caller sees it: bare when the primitive has one output."""
        return outs[0] if self._single else outs

    def _like_of(self, /, *given: Any) -> Any:
        """The shape or dtype, of those of the inputs, that outputs without a rule have."""
        if not given:
            raise ArityError(f"{self.name} got no input; give at least one")
        return given[self._like or 0]

    def add_prim_attr(self, name: str, value: Any) -> Primitive:
        """Record one more attribute; only inside a classic `__init__`."""
        self.__setattr__(name, value)
        self.__dict__["_extra"][name] = self.__dict__[name]
        return self

    def init_prim_io_names(self, inputs: list[str], outputs: list[str]) -> None:
        """Name inputs and outputs; they must agree with infer_shape and with `outputs`.

        Raises DeclarationError when they do not.
        """
        named = self._inputs
        if named is not None and tuple(inputs) != named:
            raise DeclarationError(
                f"{self.name} names its inputs {', '.join(inputs)}; infer_shape names them "
                f"{', '.join(named)}; make them agree"
            )
        if isinstance(self.outputs, tuple) and len(outputs) != len(self.outputs):
            raise DeclarationError(
                f"{self.name} names {len(outputs)} outputs ({', '.join(outputs)}); it has "
                f"{len(self.outputs)}; say outputs = {tuple(outputs)!r} in the class"
            )

    @property
    def input_names(self) -> tuple[str, ...] | None:
        """Names of all inputs, const ones included; None for a variable number."""
        return self._inputs

    def __setattr__(self, name: str, value: Any) -> None:
        if "_key" in self.__dict__:
            raise ImmutableError(
                f"{self.name} is frozen, so {name} cannot be set; make another {self.name}(...)"
            )
        self.__dict__[name] = freeze(value, type(self).__name__, name)

    def __delattr__(self, name: str) -> None:
        raise ImmutableError(f"{self.name} is frozen, so {name} cannot be deleted")

    def __getattr__(self, name: str) -> Any:
        if name in ("_key", "_hash", "attributes"):
            raise AttributeRefusedError(_UNRECORDED.format(type(self).__name__))
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Primitive) and self._key == other._key

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        shown = ", ".join(f"{k}={show(v)}" for k, v in self.attributes.items())
        return f"{self.name}({shown})"

    def with_attributes(self, values: dict[str, Any]) -> Primitive:
        """The primitive with exactly these attributes, all of them, in place of its own."""
        return rebuild(type(self), values)

    def __reduce__(self) -> tuple[Any, ...]:
        return rebuild, (type(self), self.attributes)

    def __deepcopy__(self, memo: dict[int, Any]) -> Primitive:
        return self


def rebuild(cls: type[Primitive], values: dict[str, Any]) -> Primitive:
    """The primitive of a class with exactly these attributes, without running its `__init__`."""
    made = cls.__new__(cls)
    made._finish(dict(values))
    return made


def _check_init(cls: type[Primitive]) -> None:
    """DeclarationError for an `__init__` that does not call super's, so nothing is recorded."""
    code = getattr(cls.__dict__.get("__init__"), "__code__", None)
    if cls._classic or code is None or code.co_freevars not in ((), ("__class__",)):
        return
    if "__init__" not in code.co_names:
        raise DeclarationError(
            f"{_UNRECORDED.format(cls.__name__)}; annotated fields, as alpha: float = 1.0, "
            "need no __init__"
        )


def _claim_name(cls: type[Primitive]) -> None:
    other = primitives.get(cls.name)
    if other is None or str(other) == str(cls):  # a class of that module and name
        return
    raise DuplicateError(
        f"primitive name {cls.name!r} is taken by {other.__module__}.{other.__qualname__}, defined "
        f"at {other.defined_at}; rename the class or set name = '...' in it"
    )


def spec_of(cls: type[Primitive], recorded: tuple[str, ...] | None = None) -> OpSpec:
    """The declaration of a class for kernels; recorded: its attributes, where an instance says."""
    outputs = cls.outputs if isinstance(cls.outputs, tuple) else None
    if recorded is None and not getattr(cls.__init__, "_miniml_classic", False):
        recorded = tuple(f.name for f in cls._fields)
    return OpSpec(
        cls.name, _tensors(cls), tuple(cls.const_inputs), outputs, recorded, cls.elementwise,
        cls.images, cls.dynamic_outputs, cls.any_format,
    )  # fmt: skip


def _tensors(cls: type[Primitive]) -> tuple[str, ...] | None:
    """The inputs that are tensors; None for a variable number."""
    inputs = cls._inputs
    return None if inputs is None else tuple(n for n in inputs if n not in cls.const_inputs)


# --- Attributes -----------------------------------------------------------------------------------


EMPTY = inspect.Parameter.empty
_ATOMS = (int, str, bytes, NoneType, np.dtype)
_SCALARS = (float, int, bool, str, bytes, "float", "int", "bool", "str", "bytes")
_SEQUENCES = (tuple, list, Sequence, Iterable, np.ndarray)
RESERVED = frozenset(
    "name inputs outputs const_inputs like effect promote commutative dynamic_outputs "
    "differentiable autocast flops".split()
)


def freeze(value: Any, owner: str, name: str) -> Any:
    """The frozen form of an attribute: lists, ranges and arrays become (nested) tuples of Python
    scalars, dtypes become miniml dtypes. AttributeRefusedError for a value that cannot be
    hashed."""
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
        return value
    if isinstance(value, np.dtype) or (isinstance(value, type) and issubclass(value, np.generic)):
        return canonical(np.dtype(value))
    if isinstance(value, (list, tuple, range)):
        return tuple(freeze(v, owner, name) for v in value)
    if isinstance(value, slice):
        return slice(*(freeze(v, owner, name) for v in (value.start, value.stop, value.step)))
    if isinstance(value, np.ndarray):
        return freeze(value.tolist(), owner, name)
    # A frozen dataclass is a value even if it can be called, as a Graph can.
    plain = is_dataclass(value) or not callable(value)
    if plain and not isinstance(value, type) and not hasattr(value, "__dlpack__"):
        with suppress(TypeError):
            hash(value)
            return value
    raise AttributeRefusedError(
        f"{owner} refuses attribute {name}={value!r} of type {type(value).__name__}; attributes "
        "are numbers, strings, dtypes, None, Graphs and tuples of these, and tensors are inputs, "
        f"as in {owner}()(x); give a Python value"
    )


def key(value: Any) -> object:
    """The identity of a frozen value as a key: 1, 1.0 and True differ, and so do 0.0 and -0.0, also
    as parts of complex numbers, sets and dataclasses, which Python calls equal."""
    if isinstance(value, _ATOMS):
        return type(value), value
    if isinstance(value, (tuple, frozenset)):
        return (tuple if isinstance(value, tuple) else frozenset)(map(key, value))
    if isinstance(value, (float, np.floating)):
        return "float", *((math.nan,) if value != value else (value, math.copysign(1.0, value)))
    if isinstance(value, slice):
        return "slice", key(value.start), key(value.stop), key(value.step)
    if isinstance(value, (complex, np.complexfloating)):
        return "complex", key(value.real), key(value.imag)
    if isinstance(value, Guarded):  # cells that their class calls equal hold other parameters
        return Same(value)
    declared = getattr(type(value), "__dataclass_params__", None)
    inside = fields(value) if declared is not None and declared.eq else ()
    names = [f.name for f in inside if f.compare and f.hash is not False]
    return type(value), value, *[key(getattr(value, name)) for name in names]


def orders(tree: Any) -> tuple[object, ...]:
    """The keys of all dicts in a tree, each in its order, in which a function takes the values."""
    found: list[object] = []

    def look(node: Any) -> bool:
        found.extend([tuple(map(key, node))] if isinstance(node, dict) else [])
        return False

    optree.tree_flatten(tree, is_leaf=look)
    return tuple(found)


def is_its_key(value: Any) -> bool:
    """False for a value that tells more than its key, as a Graph does by the lines of its nodes."""
    if isinstance(value, (tuple, list)):
        return all(map(is_its_key, value))
    return not is_dataclass(value)


class Same:
    """A key that is equal for one and the same object only, which it keeps alive."""

    __slots__ = ("value",)

    def __init__(self, value: object):
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


def show(value: Any) -> str:
    """An attribute as `repr` and the graph's text print it."""
    if isinstance(value, np.dtype) and value in ALL:
        return str(value.name)
    if isinstance(value, tuple):
        inner = ", ".join(map(show, value))
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    return repr(value)


class Field:
    """One annotated attribute of a primitive class.

    names: those of the class's module, which an annotation written as a string may use.
    """

    __slots__ = ("name", "annotation", "default", "names", "is_float", "checked")

    def __init__(self, name: str, annotation: object, default: Any, names: Mapping[str, Any]):
        self.name, self.annotation, self.default = name, annotation, default
        self.names = names
        self.is_float = annotation in (float, "float")
        # The library's own rules refuse wrong axes, dtypes and the like with messages of their own.
        own = str(names.get("__name__")).startswith("miniml.")
        plain = annotation in _SCALARS or str(annotation).startswith(("Shape", "tuple["))
        self.checked = plain or not own

    def convert(self, value: Any, owner: str) -> Any:
        """The frozen value, of the annotated type; an int for a float becomes one."""
        frozen = freeze(value, owner, self.name)
        if self.checked and type(frozen) is not self.annotation and value is not self.default:
            self.check(frozen, value, owner)
        if self.is_float and isinstance(frozen, int) and not isinstance(frozen, bool):
            return float(frozen)
        return frozen

    def check(self, frozen: Any, given: Any, owner: str) -> None:
        """AttributeRefusedError for a value of another type than the annotation says."""
        self.annotation = resolved(self.annotation, self.names)
        if not fits(frozen, self.annotation):
            raise AttributeRefusedError(
                f"{owner} got attribute {self.name}={brief(given)}; it is declared "
                f"{self.name}: {inspect.formatannotation(self.annotation)}"
                + _as_input(owner, given)
            )


def resolved(annotation: Any, names: Mapping[str, Any]) -> Any:
    """The type that a string annotation stands for; Any where it cannot be resolved."""
    try:
        return eval(annotation, dict(names)) if isinstance(annotation, str) else annotation
    except Exception:  # whatever the user wrote there
        return Any


def fits(value: Any, kind: Any) -> bool:
    """False where a frozen value is not of an annotated type; types that are not checked here
    (classes, protocols, Any) take everything."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind in _SCALARS:
        number = (int, float) if kind is float else kind
        if kind is float and isinstance(value, int) and abs(value) > sys.float_info.max:
            return False
        return isinstance(value, number) and (kind is bool or not isinstance(value, bool))
    if origin in (Union, UnionType):
        return any(fits(value, k) for k in inner)
    if origin is Literal:
        return value in inner
    if kind in (None, NoneType):
        return value is None
    if np.dtype in (kind, origin):
        return isinstance(value, np.dtype)
    sequence = any(s in (kind, origin) for s in _SEQUENCES)
    return _fits_sequence(value, origin, inner) if sequence else True


def _fits_sequence(value: Any, origin: Any, inner: tuple[Any, ...]) -> bool:
    """Frozen sequences are tuples; of a tuple's annotation the length may count as well."""
    if not isinstance(value, tuple) or not inner or origin is np.ndarray:
        return isinstance(value, tuple)
    if origin is tuple and inner[-1] is not ...:
        return len(value) == len(inner) and all(map(fits, value, inner))
    return all(fits(v, inner[0]) for v in value)


def fields_of(cls: type) -> tuple[Field, ...]:
    """The attributes a class declares by annotation, base classes first."""
    found: dict[str, Field] = {}
    for base in reversed(cls.__mro__[1:]):  # their defaults moved into their fields
        found.update((f.name, f) for f in base.__dict__.get("_fields", ()))
    declared = inspect.get_annotations(cls)
    names = vars(sys.modules.get(cls.__module__, builtins))
    for name, annotation in declared.items():
        if name not in RESERVED and not name.startswith("_") and not _is_classvar(annotation):
            found[name] = Field(name, annotation, cls.__dict__.get(name, EMPTY), names)
    for name, field in found.items():
        if name in cls.__dict__ and name not in declared:  # a new default for a base's attribute
            found[name] = Field(name, field.annotation, cls.__dict__[name], field.names)
    return tuple(found.values())


def _is_classvar(annotation: object) -> bool:
    if isinstance(annotation, str):
        return annotation.startswith(("ClassVar", "typing.ClassVar"))
    return annotation is ClassVar or get_origin(annotation) is ClassVar


def bind_fields(
    cls: Any, fields: tuple[Field, ...], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, Any]:
    """Match a constructor call with the declared fields; ArityError or AttributeRefusedError."""
    owner: str = cls.__name__
    known = ", ".join(f.name for f in fields) or "none"
    if len(args) > len(fields):
        instead = _as_input(owner, *args) or _annotated(cls)
        raise ArityError(
            f"{owner} takes {len(fields)} attributes ({known}); got {len(args)}{instead}"
        )
    given = dict(zip((f.name for f in fields), args, strict=False))
    for name, value in kwargs.items():
        if name in given:
            raise ArityError(f"{owner} got attribute {name} twice")
        given[name] = value
    unknown = sorted(set(given) - {f.name for f in fields})
    if unknown:
        raise AttributeRefusedError(
            f"{owner} has no attribute {', '.join(unknown)}; its attributes are {known}"
            + (_annotated(cls) or "; one is declared by an annotation, as in alpha: float = 1.0")
        )
    missing = [f.name for f in fields if f.name not in given and f.default is EMPTY]
    if missing:
        raise ArityError(
            f"{owner} needs attribute {', '.join(missing)}; got {len(given)} of {known}"
        )
    return {f.name: f.convert(given.get(f.name, f.default), owner) for f in fields}


def _as_input(owner: str, *given: Any) -> str:
    """The hint for an array passed as an attribute: the class was taken for the primitive."""
    if not any(hasattr(value, "__dlpack__") for value in given):
        return ""
    return f"; inputs go to the primitive that it makes, as in {owner}()(x)"


def _annotated(cls: type) -> str:
    """The hint for a plain class variable: without an annotation it is not an attribute."""
    annotated = {name for base in cls.__mro__ for name in inspect.get_annotations(base)}
    for name, value in vars(cls).items():
        plain = isinstance(value, (bool, int, float, str, bytes, tuple))
        free = not name.startswith("_") and not hasattr(Primitive, name)
        if plain and free and name not in annotated:
            return (
                f"; {name} = {value!r} has no annotation; write "
                f"{name}: {type(value).__name__} = {value!r}"
            )
    return ""


# --- Signatures -----------------------------------------------------------------------------------


Parameter = inspect.Parameter
SELF = Parameter("self", Parameter.POSITIONAL_ONLY)
# What names the inputs of a class that does not list them itself, in this order.
_NAMING = ("__infer__", "infer_shape", "__check__", "check_shape")
_NO_SHAPE = (
    "{} defines no infer_shape; say what shape comes out: def infer_shape(self, x): return x, a "
    "rule as in infer_shape = rules.broadcast, or like = 'x' for the shape and dtype of x"
)


def input_parameters(cls: type[Any]) -> list[Parameter]:
    """The inputs of a class: those it lists in `inputs`, else the parameters without default of its
    rule, else the one of `like`.

    DeclarationError where there is no rule, or where the rule and `inputs` do not agree.
    """
    name = next((n for n in _NAMING if hasattr(cls, n)), "")
    if not name and not cls.like:
        raise DeclarationError(_NO_SHAPE.format(cls.name))
    rule = getattr(cls, name, None)
    taken = _taken(rule) if rule else []
    listed = cls.inputs or (getattr(rule, "inputs", ()) if rule else cls.like)
    if not listed:
        return taken
    inputs = _parameters(cls.name, (listed,) if isinstance(listed, str) else tuple(listed))
    if rule and not _agree(inputs, taken):
        raise DeclarationError(
            f"{cls.name} lists the inputs {', '.join(map(str, inputs))}; {name} takes "
            f"{', '.join(map(str, taken)) or 'none'}; make them agree"
        )
    return inputs


def _taken(rule: Callable[..., Any]) -> list[Parameter]:
    """The parameters of a rule that are inputs: those without a default."""
    return [
        p.replace(name=p.name.removesuffix("_shape"), annotation=EMPTY)
        for p in list(inspect.signature(rule).parameters.values())[1:]
        if p.default is EMPTY
    ]


def _parameters(name: str, inputs: tuple[str, ...]) -> list[Parameter]:
    several, one = Parameter.VAR_POSITIONAL, Parameter.POSITIONAL_OR_KEYWORD
    try:
        found = [Parameter(n.removeprefix("*"), several if n[0] == "*" else one) for n in inputs]
        inspect.Signature(found)
    except (AttributeError, IndexError, TypeError, ValueError) as error:
        raise DeclarationError(
            f"{name} lists inputs = {inputs!r}: {error}; list different names, as in ('x', 'y'), "
            "the last perhaps with a star"
        ) from None
    return found


def _agree(inputs: list[Parameter], taken: list[Parameter]) -> bool:
    """True if the rule takes these inputs. Parameters that are positional only, or `*shapes`, stand
    for inputs of any name."""
    named = [p for p in taken if p.kind is Parameter.POSITIONAL_OR_KEYWORD]
    free = any(p.kind is Parameter.VAR_POSITIONAL for p in taken)
    if named:
        return [p.name for p in inputs] == [p.name for p in taken]
    least = sum(p.kind is Parameter.POSITIONAL_ONLY for p in taken)
    return len(inputs) >= least if free else len(inputs) == least


def const_positions(cls: type[Any]) -> tuple[tuple[int, str], ...]:
    """(position, name) of each const input; DeclarationError for an unknown name."""
    names = cls._inputs or ()
    unknown = [n for n in cls.const_inputs if n not in names]
    if unknown:
        raise DeclarationError(
            f"{cls.name} declares const_inputs {', '.join(unknown)}; infer_shape has inputs "
            f"{', '.join(names) or 'of a variable number'}"
        )
    return tuple((names.index(n), n) for n in cls.const_inputs)


def promoted_positions(cls: type[Any]) -> tuple[int, ...] | None:
    """The promoted tensor inputs, by position among them; None where `promote` says all."""
    if not isinstance(cls.promote, tuple):
        return None
    tensors = [n for n in cls._inputs or () if n not in cls.const_inputs]
    unknown = [n for n in cls.promote if n not in tensors]
    if unknown:
        raise DeclarationError(
            f"{cls.name} promotes {', '.join(unknown)}; its tensor inputs are "
            f"{', '.join(tensors) or 'of a variable number'}"
        )
    return tuple(tensors.index(n) for n in cls.promote)


def like_position(cls: type[Any], inputs: list[Parameter]) -> int | None:
    """The input whose shape and dtype the outputs have where no rule says: that of `like`, else the
    first tensor that is promoted, else the first tensor; None where there is no tensor."""
    tensors = [p.name for p in inputs if p.name not in cls.const_inputs]
    if cls.like and cls.like not in tensors:
        raise DeclarationError(
            f"{cls.name} says like = {cls.like!r}; its tensor inputs are "
            f"{', '.join(tensors) or 'none'}"
        )
    promoted = cls.promote if isinstance(cls.promote, tuple) else ()
    first = next(iter([cls.like] if cls.like else [*promoted, *tensors]), None)
    return None if first is None else [p.name for p in inputs].index(first)


def attribute_parameters(fields: Sequence[Field]) -> list[Parameter]:
    """The attributes of a class, keyword-only where one without default follows one with it."""
    optional = [f.default is not EMPTY for f in fields]
    ordered = optional == sorted(optional)
    kind = Parameter.POSITIONAL_OR_KEYWORD if ordered else Parameter.KEYWORD_ONLY
    return [Parameter(f.name, kind, default=f.default, annotation=f.annotation) for f in fields]


def with_parameters(call: Any, parameters: list[Parameter]) -> Any:
    """The same method, at no cost in speed, under a signature that names these parameters."""
    named: Any = FunctionType(call.__code__, call.__globals__, call.__name__)
    named.__qualname__, named.__module__ = call.__qualname__, call.__module__
    named.__signature__ = inspect.Signature([SELF, *parameters])
    return named


def in_order(
    name: str, primitive: Callable[..., Any], args: tuple[Any, ...], inputs: dict[str, Any]
) -> tuple[Any, ...]:
    """The inputs of a call in order, where some were passed by name; ArityError for unknown or
    missing ones."""
    takes = inspect.signature(primitive)
    try:
        return takes.bind(*args, **inputs).args
    except TypeError as error:
        refusal = ArityError(f"{name} takes the inputs {takes}; {error}")
    point_at(refusal, user_location(name))
    raise refusal


# --- The classic spelling -------------------------------------------------------------------------


F = TypeVar("F", bound=Callable[..., None])
_SEVERAL = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)


class PrimitiveWithInfer(Primitive, abstract=True):
    """The classic base for primitives that infer; the same as Primitive."""


class PrimitiveWithCheck(Primitive, abstract=True):
    """A primitive that only validates: `check_shape(*shapes)` and `check_dtype(*dtypes)`, or
    `__check__(*dictionaries)` of "shape", "dtype" and "value".

    Its outputs are those of input 0, unless `@infer_rule("Name")` registers another inference.
    """

    _checks = True
    _types: ClassVar[tuple[Abstract, ...] | None] = None


def prim_attr_register(init: F) -> F:
    """Decorator of a classic `__init__`: every argument, defaults included, is an attribute.

    The body may call init_prim_io_names and add_prim_attr and set further plain values; the
    primitive is frozen when it ends.
    """
    signature = inspect.signature(init)
    scope = getattr(init, "__globals__", {})
    fields = {
        p.name: Field(p.name, EMPTY if p.kind in _SEVERAL else p.annotation, p.default, scope)
        for p in signature.parameters.values()
    }

    def register(self: Primitive, *args: Any, **kwargs: Any) -> None:
        bound = signature.bind(self, *args, **kwargs)
        bound.apply_defaults()
        values = dict(list(bound.arguments.items())[1:])
        self.__dict__["_extra"] = extra = {}
        for name, value in values.items():
            extra[name] = self.__dict__[name] = fields[name].convert(value, type(self).__name__)
        init(self, *args, **kwargs)
        self._finish(self.__dict__.pop("_extra"))
        register_spec(spec_of(type(self), tuple(extra)))

    register.__wrapped__ = init  # type: ignore[attr-defined]
    register._miniml_classic = True  # type: ignore[attr-defined]
    return register  # type: ignore[return-value]
