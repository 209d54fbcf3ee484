"""Registries of rules of primitives, found by class through the MRO, then by name; bprop_getters."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from difflib import get_close_matches
from typing import Any, TypeVar

from . import epoch
from .errors import BpropNotFoundError, DeclarationError, DuplicateError
from .primitive import Primitive, definition_checks, primitives

Bprop = Callable[..., tuple[Any, ...]]
Getter = Callable[[Any], Bprop]
G = TypeVar("G", bound=Getter)


class Getters:
    """Rules of one kind, registered by primitive class or by name: functions of the primitive, the
    getters, that return its rule. name: of the registry; kind: of its rules; example: a getter.
    """

    def __init__(self, name: str, kind: str, example: str) -> None:
        self.name, self.kind, self.example = name, kind, example
        self._by_class: dict[type[Primitive], Getter] = {}
        self._by_name: dict[str, Getter] = {}

    def register(self, key: type[Primitive] | str) -> Callable[[G], G]:
        """Decorator: register a getter for a primitive class or a primitive's name.

        The same function registered again (a notebook cell run twice) replaces the first;
        DuplicateError where another function is registered.
        """
        if not (isinstance(key, str) or _is_primitive(key)):
            raise DeclarationError(
                f"{self.name}.register takes a primitive's class or name; got {key!r}; write "
                f"@{self.name}.register(Class) above the getter"
            )

        def add(getter: G) -> G:
            self._check(primitives.get(key) if isinstance(key, str) else key, getter)
            table: dict[Any, Getter] = self._by_name if isinstance(key, str) else self._by_class
            other = table.get(key) or self._of_class(key)
            if other is not None and _author(other) != _author(getter):
                code = inspect.unwrap(other).__code__
                name = key if isinstance(key, str) else key.name
                raise DuplicateError(
                    f"{name} has a {self.kind} already, {other.__qualname__} at "
                    f"{code.co_filename}:{code.co_firstlineno}; unregister it first"
                )
            table[key] = getter
            if not getter.__module__.startswith("miniml."):  # ours come before any gradient
                epoch.bump("bprops")
            return getter

        return add

    def _check(self, primitive: type[Primitive] | None, getter: Getter) -> None:
        """DeclarationError for a getter that does not take the primitive alone, as a rule does
        not."""
        taken = inspect.signature(getter, follow_wrapped=False)
        try:
            taken.bind(None)
        except TypeError:
            raise DeclarationError(
                f"{_author(getter)[1]}{taken} is no getter of a {self.kind}, which takes the "
                f"primitive and returns the {self.kind}: {self.example}"
            ) from None

    def _of_class(self, key: type[Primitive] | str) -> Getter | None:
        """The getter of the class called `key`, which would take precedence over one registered by
        name."""
        named = primitives.get(key) if isinstance(key, str) else None
        return None if named is None else self._by_class.get(named)

    def unregister(self, key: type[Primitive] | str) -> None:
        """Take a getter back; nothing happens if there is none."""
        epoch.bump("bprops")
        if isinstance(key, str):
            self._by_name.pop(key, None)
        else:
            self._by_class.pop(key, None)

    def find(self, primitive: type[Primitive]) -> Getter | None:
        """The getter of a primitive class: its own, a base class's, or that registered by name."""
        for cls in primitive.__mro__:
            if cls in self._by_class:
                return self._by_class[cls]
        if primitive.name in self._by_name:
            return self._by_name[primitive.name]
        return self._redefined(primitive)

    def _redefined(self, primitive: type[Primitive]) -> Getter | None:
        """The getter registered for an earlier definition of the same class (a cell run twice)."""
        expected = primitive.__module__, primitive.__qualname__
        for cls, getter in list(self._by_class.items()):
            if (cls.__module__, cls.__qualname__) == expected:
                return getter
        return None


def _is_primitive(key: Any) -> bool:
    return isinstance(key, type) and issubclass(key, Primitive)


def _author(fn: Any) -> tuple[str, str]:
    return getattr(fn, "__module__", ""), getattr(fn, "__qualname__", "")


class BpropGetters(Getters):
    """Gradient rules, registered by primitive class or by name.

    A getter `get(self) -> bprop(*inputs, out, dout)` is a function of the primitive; the bprop it
    returns gives a tuple with one gradient per input, in order, None for an input without one.
    `out` and `dout` are tuples where the primitive has several outputs.
    """

    def _check(self, primitive: type[Primitive] | None, getter: Getter) -> None:
        super()._check(primitive, getter)
        if primitive is not None and not primitive.differentiable:
            raise DeclarationError(
                f"{primitive.name} says differentiable = False, so its bprop {_author(getter)[1]} "
                "would never be used; take that out of the class, or do not register one"
            )

    def check_definition(self, primitive: type[Primitive]) -> None:
        """DeclarationError for a class without gradient whose name has a bprop already."""
        getter = self._by_name.get(primitive.name)
        if getter is not None:
            self._check(primitive, getter)

    def get(self, primitive: Primitive) -> Bprop:
        """The bprop of a primitive; BpropNotFoundError says how to give it one."""
        getter = self._by_class.get(type(primitive)) or self.find(type(primitive))
        if getter is None:
            free = [name for name in self._by_name if name not in primitives]
            near = "".join(
                f"there is one for {name!r}, which is no primitive; "
                for name in get_close_matches(primitive.name, free, 1)
            )
            raise BpropNotFoundError(
                f"{primitive.name} has no bprop, so no gradient passes through {primitive!r}; "
                f"{near}register one with @bprop_getters.register({primitive.name!r}), or "
                "put stop_gradient around its inputs"
            )
        return getter(primitive)


bprop_getters = BpropGetters(
    "bprop_getters", "bprop", "def get_bprop(self): return lambda x, out, dout: (dx,)"
)
definition_checks.append(bprop_getters.check_definition)
