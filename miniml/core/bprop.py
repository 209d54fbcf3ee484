"""Registries of rules of primitives, found by class through the MRO, then by name.

bprop_getters has the gradient rules: registered from outside, or the methods `bprop` of classes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from difflib import get_close_matches
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from .errors import BpropNotFoundError, DeclarationError, DuplicateError
from .primitive import Primitive, definition_checks, primitives
from .scope import epoch

Bprop = Callable[..., tuple[Any, ...]]
Getter = Callable[[Any], Bprop]
G = TypeVar("G", bound=Getter)
M = TypeVar("M", bound=Callable[..., Any])


class Getters:
    """Rules of one kind, registered by primitive class or by name: functions of the primitive, the
    getters, that return its rule. name: of the registry; kind: of its rules; example: a getter.
    """

    def __init__(self, name: str, kind: str, example: str) -> None:
        self.name, self.kind, self.example = name, kind, example
        self._by_class: dict[type[Primitive], Getter] = {}
        self._by_name: dict[str, Getter] = {}
        self._found: WeakKeyDictionary[type[Primitive], Getter | None] = WeakKeyDictionary()

    def register(self, key: type[Primitive] | str) -> Callable[[G], G]:
        """Decorator: register a getter for a primitive class or a primitive's name.

        The same function registered again (a notebook cell run twice) replaces the first;
        DuplicateError where another function is registered.
        """
        of_class = isinstance(key, type) and issubclass(key, Primitive)
        if not (isinstance(key, str) or of_class):
            raise DeclarationError(
                f"{self.name}.register takes a primitive's class or name; got {key!r}; write "
                f"@{self.name}.register(Class) above the getter"
            )

        def add(getter: G) -> G:
            named = primitives.get(key) if isinstance(key, str) else key
            self._check(named, getter)
            table: dict[Any, Getter] = self._by_name if isinstance(key, str) else self._by_class
            # That of the class called `key` would take precedence over one registered by name.
            other = table.get(key) or (named and self._by_class.get(named))
            if other is not None and _author(other) != _author(getter):
                code = inspect.unwrap(other).__code__
                name = key if isinstance(key, str) else key.name
                raise DuplicateError(
                    f"{name} has a {self.kind} already, {other.__qualname__} at "
                    f"{code.co_filename}:{code.co_firstlineno}; unregister it first"
                )
            table[key] = getter
            self._found.clear()
            if not getter.__module__.startswith("miniml."):  # ours come before any gradient
                epoch.bump("bprops")
            return getter

        return add

    def rule(self, *keys: type[Primitive]) -> Callable[[M], M]:
        """Decorator: register `fn(primitive, ...)` as the rule of these classes, without a getter;
        a bprop of a class is such a method."""

        def add(fn: M) -> M:
            for key in keys:
                self.register(key)(of_function(fn))
            return fn

        return add

    def _check(self, primitive: type[Primitive] | None, getter: Getter) -> None:
        """DeclarationError for a getter that does not take the primitive alone: a rule does not."""
        taken = inspect.signature(getter, follow_wrapped=False)
        try:
            taken.bind(None)
        except TypeError:
            raise DeclarationError(
                f"{_author(getter)[1]}{taken} is no getter of a {self.kind}, which takes the "
                f"primitive and returns the {self.kind}: {self.example}"
            ) from None

    def unregister(self, key: type[Primitive] | str) -> None:
        """Take a getter back; nothing happens if there is none."""
        epoch.bump("bprops")
        self._found.clear()
        table: dict[Any, Getter] = self._by_name if isinstance(key, str) else self._by_class
        table.pop(key, None)

    def find(self, primitive: type[Primitive]) -> Getter | None:
        """The getter of a primitive class: its own, a base class's, or that registered by name."""
        try:
            return self._found[primitive]
        except KeyError:
            found = self._found[primitive] = self._searched(primitive)
            return found

    def _searched(self, primitive: type[Primitive]) -> Getter | None:
        primitive = primitives.get(primitive.name, primitive)  # as kernels are found: by name
        for cls in primitive.__mro__:
            if cls in self._by_class:
                return self._by_class[cls]
        if primitive.name in self._by_name:
            return self._by_name[primitive.name]
        return self._redefined(primitive)

    def _redefined(self, primitive: type[Primitive]) -> Getter | None:
        """The getter registered for an earlier definition of the same class (a cell run twice)."""
        for cls, getter in list(self._by_class.items()):
            method = getattr(getter, "__wrapped__", getter) is vars(cls).get("bprop")
            if str(cls) == str(primitive) and not method:  # of the same module and name
                return getter
        return None


class BpropGetters(Getters):
    """Gradient rules, registered by primitive class or by name.

    A getter `get(self) -> bprop(*inputs, out, dout)` is a function of the primitive; the bprop it
    returns gives a tuple with one gradient per input, in order, None for an input without one.
    `out` and `dout` are tuples where the primitive has several outputs.
    """

    def _check(self, primitive: type[Primitive] | None, getter: Getter) -> None:
        super()._check(primitive, getter)
        _check_differentiable(primitive, getter)

    def define(self, primitive: type[Primitive]) -> None:
        """Register the method `bprop` of a class, its own or that of an abstract base.

        DeclarationError if it does not take the inputs, out and dout, and for a class without
        gradient that has one, or whose name has.
        """
        if (getter := self._by_name.get(primitive.name)) is not None:
            _check_differentiable(primitive, getter)
        if primitives.get(primitive.name, primitive) is not primitive:  # it is defined again
            self._found.clear()
            epoch.bump("bprops")
        for cls in primitive.__mro__:
            if cls in self._by_class:
                return
            method: Any = vars(cls).get("bprop")
            if hasattr(method, "__get__"):
                _check_bprop(primitive, method)
                _check_differentiable(primitive, method)
                self._by_class[primitive] = of_function(method)
                return

    def get(self, primitive: Primitive) -> Bprop:
        """The bprop of a primitive; BpropNotFoundError says how to give it one."""
        getter = self.find(type(primitive))
        if getter is None:
            free = [name for name in self._by_name if name not in primitives]
            near = "".join(
                f"there is one for {name!r}, which is no primitive; "
                for name in get_close_matches(primitive.name, free, 1)
            )
            raise BpropNotFoundError(
                f"{primitive.name} has no bprop, so no gradient passes through {primitive!r}; "
                f"{near}{_instead(primitive)}, or put stop_gradient around its inputs"
            )
        return getter(primitive)


def _instead(primitive: Primitive) -> str:
    """Advice where a bprop is missing."""
    name, inputs = primitive.name, primitive._inputs or ("*xs",)
    if not primitive.linear:
        return f"register one with @bprop_getters.register({name!r})"
    return (
        f"linear = {primitive.linear!r} gives its tangents, not its transpose; write that in the "
        f"class, as def bprop(self, {', '.join(inputs)}, out, dout), or register it with "
        f"@bprop_getters.register({name!r})"
    )


def of_function(fn: Callable[..., Any]) -> Getter:
    """The getter that a method is, or a function whose first argument is the primitive."""

    def get(self: Primitive) -> Bprop:
        return fn.__get__(self)  # type: ignore[no-any-return]

    get.__qualname__, get.__module__ = fn.__qualname__, fn.__module__
    get.__wrapped__ = fn  # type: ignore[attr-defined]  # for inspect and error messages
    return get


def _check_bprop(primitive: type[Primitive], method: Any) -> None:
    """DeclarationError unless a method takes the inputs, out and dout by position."""
    inputs, named = primitive._inputs, ("out", "dout")
    taken = inspect.signature(method.__get__(primitive, primitive))
    try:
        taken.bind(*(inputs or ()), *named)
    except TypeError:
        if inputs is not None:
            raise DeclarationError(
                f"{primitive.name}.bprop takes {taken}; it is called with the inputs, the output "
                f"and its gradient: def bprop(self, {', '.join((*inputs, *named))})"
            ) from None


def _check_differentiable(primitive: type[Primitive] | None, getter: Any) -> None:
    """DeclarationError for a primitive that declares itself not differentiable."""
    if primitive is not None and not primitive.differentiable:
        raise DeclarationError(
            f"{primitive.name} says differentiable = False, so its bprop {_author(getter)[1]} "
            "would never be used; take that out of the class, or do not register one"
        )


def _author(fn: Any) -> tuple[str, str]:
    return getattr(fn, "__module__", ""), getattr(fn, "__qualname__", "")


bprop_getters = BpropGetters(
    "bprop_getters", "bprop", "def get_bprop(self): return lambda x, out, dout: (dx,)"
)
rule = bprop_getters.rule
for _primitive in list(primitives.values()):
    bprop_getters.define(_primitive)
definition_checks.append(bprop_getters.define)
