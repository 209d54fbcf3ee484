"""Attributes of primitives: which values are allowed, and when two differ."""

from __future__ import annotations

import builtins
import inspect
import math
import reprlib
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import is_dataclass
from types import NoneType, UnionType
from typing import Any, ClassVar, Literal, Union, get_args, get_origin

import numpy as np

from .dtype import ALL, canonical
from .errors import ArityError, AttributeRefusedError

EMPTY = inspect.Parameter.empty
_SCALARS = (float, int, bool, str, bytes, "float", "int", "bool", "str", "bytes")
_SEQUENCES = (tuple, list, Sequence, Iterable, np.ndarray)
RESERVED = frozenset(
    "name inputs outputs const_inputs like effect promote commutative dynamic_outputs "
    "differentiable".split()
)


def freeze(value: Any, owner: str, name: str) -> Any:
    """The frozen form of an attribute: lists, ranges and arrays become (nested) tuples of Python
    scalars, dtypes become miniml dtypes. AttributeRefusedError for a value that cannot be
    hashed."""
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, (bool, int, float, str, bytes)):
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
        try:
            hash(value)
        except TypeError:
            pass
        else:
            return value
    raise AttributeRefusedError(
        f"{owner} refuses attribute {name}={value!r} of type {type(value).__name__}; attributes "
        "are numbers, strings, dtypes, None, Graphs and tuples of these, and tensors are inputs, "
        f"as in {owner}()(x); give a Python value"
    )


def key(value: Any) -> object:
    """The identity of a frozen value as a key: 1, 1.0 and True differ, and so do 0.0 and -0.0."""
    if isinstance(value, tuple):
        return tuple(map(key, value))
    if isinstance(value, float):
        return "float", math.nan if value != value else value.hex()
    if isinstance(value, slice):
        return "slice", key(value.start), key(value.stop), key(value.step)
    return type(value).__name__, value


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
        # The library's own rules refuse wrong axes, shapes and the like with messages of their own.
        own = str(names.get("__name__")).startswith("miniml.")
        self.checked = not own or annotation in _SCALARS

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
        if isinstance(self.annotation, str):
            self.annotation = _resolved(self.annotation, self.names)
        if not fits(frozen, self.annotation):
            raise AttributeRefusedError(
                f"{owner} got attribute {self.name}={reprlib.repr(given)}; it is declared "
                f"{self.name}: {inspect.formatannotation(self.annotation)}"
                + _as_input(owner, given)
            )


def _resolved(annotation: str, names: Mapping[str, Any]) -> Any:
    """What a string annotation stands for; Any where it cannot be resolved."""
    try:
        return eval(annotation, dict(names))
    except Exception:  # whatever the user wrote there
        return Any


def fits(value: Any, kind: Any) -> bool:
    """False where a frozen value is not of an annotated type; types that are not checked here
    (classes, protocols, Any) take everything."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind in _SCALARS:
        number = (int, float) if kind is float else kind
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
        if plain and not name.startswith("_") and name not in annotated | RESERVED:
            return (
                f"; {name} = {value!r} has no annotation; write "
                f"{name}: {type(value).__name__} = {value!r}"
            )
    return ""
