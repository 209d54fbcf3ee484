"""Custom operators: known by the name of their type, with named byte strings as attributes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..abstract import Abstract, Shape
from ..classic import PrimitiveWithCheck
from ..dtype import canonical
from ..errors import AttributeRefusedError, DuplicateError
from ..location import user_location
from ..primitive import primitives
from .inference.packing import pack_attribute, unpack_attribute

if TYPE_CHECKING:
    from ..tensor import Tensor

__all__ = ["Custom", "pack_attribute", "unpack_attribute"]

_TYPE = re.compile(r"[\w.:/-]{1,200}")


class Custom(PrimitiveWithCheck, abstract=True):
    """An operator of which only data are known: the name of its type, and byte strings by name.

    What it is called elsewhere is `type`: `@kernel(type, ...)`, `@infer_rule(type)` and
    `bprop_getters.register(type)` register for it as for any primitive. A function kernel, and the
    rule, get those attributes by keyword that they name, as bytes; `self.attributes` and
    `node.attrs` hold all. `unpack_attribute` reads them, `pack_attribute` makes them.

    outputs: how many there are; or their types, each with a shape and a dtype (such as a Tensor),
    which are the inference of this instance. Without these and without a rule, one output has the
    shape and dtype of the first input; several are refused with DeclarationError when it is called.
    AttributeRefusedError for other types and attributes than these, DuplicateError where a
    primitive has the name already.

    >>> add = Custom("Doc_AddN", {"input_num": pack_attribute(3, "<i4")})
    >>> add
    Custom('Doc_AddN', {'input_num': b'\\x03\\x00\\x00\\x00'})
    >>> unpack_attribute(add.attributes, "input_num", "<i4")
    3
    """

    outputs = "*outs"
    if TYPE_CHECKING:
        attributes: dict[str, bytes]

        def __call__(self, *xs: Any) -> Tensor: ...

    def __new__(cls, type: str, *_: Any, **__: Any) -> Custom:
        return object.__new__(_class_of(type))

    def __init__(
        self,
        type: str,
        attrs: Mapping[str, bytes] | None = None,
        outputs: int | Sequence[Any] = 1,
    ):
        count, types = _declared(type, outputs)
        given = _mapping(type, attrs)
        values = {k: _bytes(type, k, given[k]) for k in sorted(given, key=str)}
        names = ("out",) if count == 1 else tuple(f"out{i}" for i in range(count))
        key = self.__class__, tuple(values.items()), count, types
        self.__dict__.update(
            attributes=values, outputs=names, _single=count == 1, _types=types, _key=key,
            _hash=hash(key),
        )  # fmt: skip

    __init__._miniml_classic = True  # type: ignore[attr-defined]  # attributes are the instance's

    def check_shape(self, *xs: Shape) -> None:
        """Nothing is known of its inputs but their number and types."""

    def __getattr__(self, name: str) -> Any:
        if name in self.__dict__.get("attributes", ()):
            return self.attributes[name]
        return super().__getattr__(name)

    def __repr__(self) -> str:
        outputs = "" if self._declared == 1 else f", outputs={self._declared}"
        return f"Custom({self.name!r}, {self.attributes!r}{outputs})"

    def with_attributes(self, values: dict[str, bytes]) -> Custom:
        return Custom(self.name, values, self._declared)

    def __reduce__(self) -> tuple[Any, ...]:
        return Custom, (self.name, self.attributes, self._declared)

    @property
    def _declared(self) -> int | tuple[Abstract, ...]:
        return len(self.outputs) if self._types is None else self._types


def _class_of(type_: Any) -> type[Custom]:
    """The one class of the operators of a type: what is found by class or name is found by it."""
    known = primitives.get(type_) if isinstance(type_, str) else None
    if known is not None and issubclass(known, Custom):
        return known
    if known is not None:
        raise DuplicateError(
            f"Custom type {type_!r} is taken by the primitive {known.__module__}."
            f"{known.__qualname__}, defined at {known.defined_at}; call that, or use another type"
        )
    if not isinstance(type_, str) or not _TYPE.fullmatch(type_):
        raise AttributeRefusedError(
            f"Custom got the type {type_!r:.200}; it is a name of letters, digits and _ . : / -, "
            "at most 200"
        )
    body = {"__qualname__": Custom.__qualname__, "__doc__": f"The custom operator {type_!r}."}
    made: type[Custom] = type(type_, (Custom,), body)
    made.defined_at = str(user_location() or made.defined_at)
    return made


def _declared(type_: str, outputs: Any) -> tuple[int, tuple[Abstract, ...] | None]:
    """How many outputs there are, and their types if these are given."""
    if isinstance(outputs, (tuple, list)):
        return len(outputs), tuple(map(_typed, outputs))
    if not isinstance(outputs, int) or isinstance(outputs, bool) or outputs < 0:
        raise AttributeRefusedError(
            f"{type_} got outputs={outputs!r:.200}; give their number, or a list with a value of "
            "the shape and dtype of each"
        )
    return outputs, None


def _mapping(type_: str, attrs: Any) -> Mapping[Any, Any]:
    """The attributes by name, of which there may be none."""
    if attrs is not None and not isinstance(attrs, Mapping):
        raise AttributeRefusedError(
            f"{type_} got the attributes {attrs!r:.200}; give bytes by name, as in "
            "{'input_num': b'\\x03\\x00'}"
        )
    return attrs or {}


def _typed(given: Any) -> Abstract:
    """The shape and dtype of an output that is declared by something that has both."""
    shape, dtype = getattr(given, "shape", None), getattr(given, "dtype", None)
    if not isinstance(shape, tuple) or not isinstance(dtype, np.dtype):
        raise AttributeRefusedError(
            f"Custom got outputs with {given!r:.200}; give their number, or a value with a shape "
            "and a dtype for each"
        )
    return Abstract(shape, canonical(dtype))


def _bytes(type_: str, name: Any, value: Any) -> bytes:
    if not isinstance(name, str) or not name or name == "out":
        raise AttributeRefusedError(
            f"{type_} got an attribute named {name!r}; a name is a string, and not 'out', which "
            "kernels fill"
        )
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise AttributeRefusedError(
            f"{type_} got attribute {name}={value!r:.200} of type {type(value).__name__}; its "
            "attributes are bytes: ops.pack_attribute(value, '<i4') packs numbers, with str a text"
        )
    return bytes(value)
