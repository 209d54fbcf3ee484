"""The table of scalar expressions, the library's and users', by primitive and signature."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from ...dtype import DType, float64
from ..signature import ArraySpec, Signature
from .types import computed

WORDS = re.compile(r"(?<![\w.])[A-Za-z_]\w*")


class TypedCall(Protocol):
    """The part of a KernelNode on which the scalar arguments of an expression depend."""

    @property
    def inputs(self) -> tuple[ArraySpec, ...]: ...
    @property
    def outputs(self) -> tuple[ArraySpec, ...]: ...
    @property
    def attrs(self) -> Mapping[str, Any]: ...


@dataclass(frozen=True, slots=True)
class Expression:
    """A scalar C expression in the names of a primitive's inputs and attributes.

    Besides these it may name `index`, the number of the element; T, the type in which the first
    input (or else the output) is computed; and U, the unsigned type in which T wraps around. The
    output is stored as by Cast.
    unit: expressions that name the same unit are compiled together; "" for a user's. types,
    scalars: the names and dtypes of its scalar arguments and their values for a node, if they are
    not simply the attributes it names.
    """

    text: str
    unit: str = ""
    types: tuple[tuple[str, DType], ...] | None = None
    scalars: Callable[[TypedCall], Mapping[str, Any]] | None = None

    @property
    def words(self) -> set[str]:
        """The names that occur in the text."""
        return set(WORDS.findall(self.text))

    def scalar_types(self, signature: Signature, attributes: tuple[str, ...]) -> dict[str, DType]:
        """The scalar arguments and their dtypes: by default the attributes that the text names, in
        the dtype in which its first float input is computed, else float64."""
        if self.types is not None:
            return dict(self.types)
        first = next((d for d in signature.inputs if d is not None and d.kind in "fV"), float64)
        return {name: computed(first) for name in attributes if name in self.words}

    def scalar_values(self, node: TypedCall, types: Mapping[str, DType]) -> list[Any]:
        """The scalar arguments for a node."""
        given: Mapping[str, Any] = node.attrs if self.scalars is None else self.scalars(node)
        return [dtype.type(given[name]) for name, dtype in types.items()]


table: dict[tuple[str, str], Expression] = {}
ANY_ORDER = frozenset(("BroadcastTo", "Convert", "Fused", "StopGradient"))


def follows(name: str) -> bool:
    """True for a primitive whose kernels work in any memory format that all its images share: they
    go element by element, whatever the element's number, or look at the shape of their output."""
    found = [e for (n, _), e in table.items() if n == name]
    return name in ANY_ORDER or (bool(found) and not any("index" in e.words for e in found))


def express(
    name: str,
    text: str,
    *signatures: str,
    unit: str,
    types: tuple[tuple[str, DType], ...] | None = None,
    scalars: Callable[[TypedCall], Mapping[str, Any]] | None = None,
) -> None:
    """Register an expression of the library, compiled with those of its unit and signature."""
    for signature in signatures:
        table[name, signature] = Expression(text, f"{unit} {signature}", types, scalars)
