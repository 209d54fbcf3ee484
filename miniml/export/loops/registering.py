"""Registration of loops in C by the name of an operation, and what their texts are written with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import NamedTuple

from ...backends.cc.scalars import STORED
from ...backends.expressions.table import C_TYPES, unsigned
from ...core.dtype import DType
from ...graph.ir import Node


class Loop(NamedTuple):
    """C of a node.

    text: `void KERNEL(char *const *at)` on the addresses of inputs, outputs and scratch memory; or
    `int`, which returns 1 for inputs that it refuses. shared: texts that it needs, each once in a
    file. scratch: bytes of memory that a call may use."""

    text: str
    shared: tuple[str, ...] = ()
    scratch: int = 0


Writer = Callable[[Node], Loop | str | None]
loops: dict[str, Writer] = {}


def loop(*names: str) -> Callable[[Writer], Writer]:
    """Register the function that writes the loop of operations, or its text if that is all; it
    returns None where it has none for a node."""

    def register(writer: Writer) -> Writer:
        loops.update(dict.fromkeys(names, writer))
        return writer

    return register


# --- Loops over all elements of an array ----------------------------------------------------------


def nest(shape: Sequence[int]) -> str:
    """The heads of loops with the counters i0, i1 and so on."""
    return "\n".join(
        f"  for (long i{axis} = 0; i{axis} < {extent}L; ++i{axis})"
        for axis, extent in enumerate(shape)
    )


def strides(shape: Sequence[int], to: Sequence[int]) -> list[int]:
    """The elements from one index to the next of each axis of `to`, to which shape broadcasts."""
    steps = [prod(shape[i + 1 :]) if n > 1 else 0 for i, n in enumerate(shape)]
    return [0] * (len(to) - len(shape)) + steps


def offset(steps: Sequence[int]) -> str:
    """The offset of the element of the counters."""
    return " + ".join(f"i{i} * {s}L" for i, s in enumerate(steps) if s) or "0"


# --- Elements -------------------------------------------------------------------------------------


def pointers(node: Node, *names: str) -> str:
    """Definitions of pointers to the inputs, to const, and to the outputs of a node."""
    arrays = [v.abstract for v in (*node.inputs, *node.outputs)]
    lines = []
    for i, (name, abstract) in enumerate(zip(names, arrays, strict=True)):
        c = f"{'const ' * (i < len(node.inputs))}{STORED[abstract.dtype]}"
        lines.append(f"  {c} *const {name} = ({c} *)at[{i}];")
    return "\n".join(lines)


def sum_type(dtype: DType) -> str:
    """The type of C in which numbers are added and multiplied: of integers unsigned ones, which
    wrap around, of at least 32 bits, since C would promote narrower ones to int."""
    return C_TYPES[unsigned(dtype)]
