"""Attributes of primitives: what may be one, and how two are told apart."""

from __future__ import annotations

import inspect
import math
from typing import Any, ClassVar, get_origin

import numpy as np

from .dtype import ALL, canonical
from .errors import ArityError, AttributeRefusedError

EMPTY = inspect.Parameter.empty
RESERVED = frozenset(
    {"outputs", "const_inputs", "effect", "promote", "name", "dynamic_outputs", "differentiable"}
)


def freeze(value: Any, owner: str, name: str) -> Any:
    """The frozen form of an attribute: lists, ranges and arrays become (nested) tuples of Python
    scalars, dtypes become miniml dtypes. AttributeRefusedError for what cannot be hashed."""
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
    if not callable(value) and not hasattr(value, "__dlpack__"):
        try:
            hash(value)
        except TypeError:
            pass
        else:
            return value
    raise AttributeRefusedError(
        f"{owner} refuses attribute {name}={value!r} of type {type(value).__name__}; attributes "
        "are numbers, strings, dtypes, None, Graphs and tuples of these, and tensors are inputs; "
        "give a Python value"
    )


def key(value: Any) -> object:
    """What tells one frozen value from another: 1, 1.0 and True differ, so do 0.0 and -0.0."""
    if isinstance(value, tuple):
        return tuple(map(key, value))
    if isinstance(value, float):
        return "float", math.nan if value != value else value.hex()
    if isinstance(value, slice):
        return "slice", key(value.start), key(value.stop), key(value.step)
    return type(value).__name__, value


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
    """One annotated attribute of a primitive class."""

    __slots__ = ("name", "annotation", "default", "is_float")

    def __init__(self, name: str, annotation: object, default: Any):
        self.name, self.annotation, self.default = name, annotation, default
        self.is_float = annotation in (float, "float")

    def convert(self, value: Any, owner: str) -> Any:
        """The frozen value; a field annotated `float` turns an int into a float."""
        frozen = freeze(value, owner, self.name)
        if self.is_float and isinstance(frozen, int) and not isinstance(frozen, bool):
            return float(frozen)
        return frozen


def fields_of(cls: type) -> tuple[Field, ...]:
    """The attributes a class declares by annotation, base classes first."""
    found: dict[str, Field] = {}
    for base in reversed(cls.__mro__[1:]):  # their defaults moved into their fields
        found.update((f.name, f) for f in base.__dict__.get("_fields", ()))
    declared = inspect.get_annotations(cls)
    for name, annotation in declared.items():
        if name not in RESERVED and not name.startswith("_") and not _is_classvar(annotation):
            found[name] = Field(name, annotation, cls.__dict__.get(name, EMPTY))
    for name, field in found.items():
        if name in cls.__dict__ and name not in declared:  # a new default for a base's attribute
            found[name] = Field(name, field.annotation, cls.__dict__[name])
    return tuple(found.values())


def _is_classvar(annotation: object) -> bool:
    if isinstance(annotation, str):
        return annotation.startswith(("ClassVar", "typing.ClassVar"))
    return annotation is ClassVar or get_origin(annotation) is ClassVar


def bind_fields(
    owner: str, fields: tuple[Field, ...], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, Any]:
    """Match a constructor call with the declared fields; ArityError or AttributeRefusedError."""
    known = ", ".join(f.name for f in fields) or "none"
    if len(args) > len(fields):
        raise ArityError(f"{owner} takes {len(fields)} attributes ({known}); got {len(args)}")
    given = dict(zip((f.name for f in fields), args, strict=False))
    for name, value in kwargs.items():
        if name in given:
            raise ArityError(f"{owner} got attribute {name} twice")
        given[name] = value
    unknown = sorted(set(given) - {f.name for f in fields})
    if unknown:
        raise AttributeRefusedError(
            f"{owner} has no attribute {', '.join(unknown)}; its attributes are {known}; "
            "one is declared by an annotation in the class, as in alpha: float = 1.0"
        )
    missing = [f.name for f in fields if f.name not in given and f.default is EMPTY]
    if missing:
        raise ArityError(
            f"{owner} needs attribute {', '.join(missing)}; got {len(given)} of {known}"
        )
    return {f.name: f.convert(given.get(f.name, f.default), owner) for f in fields}
