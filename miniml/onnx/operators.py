"""The table of operators: one row for a domain, a type and a range of versions."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, TypeVar

import numpy as np

from ..errors import DeclarationError, DuplicateError, OnnxError
from . import attributes
from .attributes import bare

F = TypeVar("F", bound=Callable[..., Any])


# Annotations of inputs. Constant: its value must be known when the model is read, and is given as a
# NumPy array. Setting: its initializer is a constant and not a weight, as of bounds, scales and
# running statistics; what is not known when the model is read is given as a tensor.
Constant = Annotated[np.ndarray[Any, Any], "constant"]
Setting = Annotated[Any, "setting"]

Ints = tuple[int, ...]
Floats = tuple[float, ...]
Strings = tuple[str, ...]


@dataclass(frozen=True)
class Operator:
    """A row: what reads the nodes of one operator.

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
        return attributes.parameters(self.type, self.attributes)

    def covers(self, version: int) -> bool:
        """True where it reads nodes of this version of the domain."""
        return self.first <= version and (self.last is None or version <= self.last)

    def meets(self, other: Operator) -> bool:
        """True where both read some version."""
        return self.covers(other.first) or other.covers(self.first)

    @property
    def versions(self) -> str:
        """The range, as people write it."""
        return f"{self.first}+" if self.last is None else f"{self.first}-{self.last}"

    def annotation(self, i: int) -> Any:
        """That of input i, which may be one of many."""
        return bare(self.inputs[min(i, len(self.inputs) - 1)].annotation) if self.inputs else None

    def check_count(self, given: Sequence[Any]) -> None:
        """OnnxError unless that many inputs may be given, None among them being absent."""
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
    """Register the decorated function as what reads the operator `type` of a domain.

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


def _plain(function: Any) -> Any:
    """A function of just the tensors that a primitive or a function of the library needs."""

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
    return a == b and "<" not in a[2]  # inner functions and lambdas have names in common


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
    attributes.check_declared(key[1], declared)
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
