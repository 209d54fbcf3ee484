"""Is the primitive a value determined by its attributes: equal, hashed, copied and run by them?"""

from __future__ import annotations

import copy
import pickle
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from ....attributes import key
from ....errors import MinimlError
from ....primitive import Primitive
from ...calls import Call
from ..session import Issue, first_line


def attributes(call: Call) -> Iterator[Issue]:
    """Hash, equality, copies and the kernel's keywords follow the attributes."""
    primitive = call.primitive
    try:
        hash(primitive)
    except TypeError as error:
        yield Issue(
            "hash",
            f"{primitive!r} cannot be hashed ({error}), so it cannot run: kernels and programs are "
            "kept by primitive",
            "leave __eq__ and __hash__ to Primitive",
        )
        return
    yield from _copied(primitive, call)
    for other in others(primitive):
        yield from _copied(other, Call(other, call.arrays, call.consts))
        same_values = _values(primitive) == _values(other)
        if primitive == other and not same_values:
            yield Issue(
                "equality",
                f"{primitive!r} and {other!r} are equal, so a program compiled for one runs the "
                "other",
                "leave __eq__ and __hash__ to Primitive, which compare the attributes",
            )


def _values(primitive: Primitive) -> object:
    return key(tuple(primitive.attributes.items()))


def _copied(primitive: Primitive, call: Call) -> Iterator[Issue]:
    cls = type(primitive)
    copied: dict[str, Callable[[Primitive], Primitive]] = {
        "copy.deepcopy": copy.deepcopy,
        "its attributes alone": lambda p: p.with_attributes(p.attributes),
    }
    if getattr(sys.modules.get(cls.__module__), cls.__qualname__, None) is cls:
        copied["pickle"] = lambda p: pickle.loads(pickle.dumps(p))
    for how, function in copied.items():
        wrong = "is not equal to it, or infers something else"
        try:
            twin = function(primitive)
            alike = twin == primitive and hash(twin) == hash(primitive)
            if alike and _inferred(call) == _inferred(replace(call, primitive=twin)):
                continue
        except Exception as error:
            wrong = f"raises {first_line(error)}"
        yield Issue(
            how,
            f"{primitive!r} made from {how} {wrong}",
            "keep everything that rules and kernels use in annotated attributes, and define "
            "neither __eq__ nor __hash__",
        )


def _inferred(call: Call) -> object:
    """The outputs inferred by the rules; None if they refuse."""
    try:
        return call.inferred
    except MinimlError:
        return None


def others(primitive: Primitive) -> Iterator[Primitive]:
    """The primitive with one attribute changed, for each attribute with other values."""
    for name, value in primitive.attributes.items():
        changed = _changed(value)
        if changed is None:
            continue
        try:
            yield rebuild_like(primitive, {**primitive.attributes, name: changed})
        except (MinimlError, ValueError, TypeError):
            continue


def rebuild_like(primitive: Primitive, values: dict[str, Any]) -> Primitive:
    """A primitive of the same class with these attributes, constructed as by a user."""
    if primitive._classic or type(primitive).__init__ is not Primitive.__init__:
        return primitive.with_attributes(values)
    return type(primitive)(**values)


def _changed(value: Any) -> Any:
    """Another value of an attribute's type; None if none can be guessed."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return 1.5 * value + 0.25
    if isinstance(value, tuple) and value:
        first = _changed(value[0])
        return None if first is None else (first, *value[1:])
    return None
