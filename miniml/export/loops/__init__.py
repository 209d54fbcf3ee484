"""C of operations that Python computes: plain loops, which serve an exported program alone.

Each family registers its own; inputs are in row-major order. Below are the checks of inputs: each
copies them and returns 1 if it refuses, where Python raises an error.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from ...backends.cc.scalars import STORED
from ...backends.cc.units import Source
from ...backends.expressions import computed
from ...graph.ir import Node
from . import elements, linalg
from .elements import Loop, loops

__all__ = ["check_of", "elements", "linalg", "loop_of"]


def loop_of(node: Node) -> Loop | None:
    """The C of a node; None where there is none for its dtypes."""
    writer = loops.get(node.primitive.name)
    made = None if writer is None else writer(node)
    return Loop(made) if isinstance(made, str) else made


# --- Checks ---------------------------------------------------------------------------------------


_CHECKS: dict[str, Callable[[Node], str]] = {}


def check_of(node: Node) -> Source | None:
    """The C of a node that checks its input; None for any other. It defines
    `int KERNEL(char *const *at)`."""
    made = _CHECKS.get(node.primitive.name)
    if made is None:
        return None
    given = node.inputs[0].abstract
    if given.dtype != computed(given.dtype):  # floats of 16 bits are integers in C
        return None
    count, c = prod(given.shape), STORED[given.dtype]
    return Source(
        _TEXT.replace("TYPE", c).replace("COUNT", f"{count}L").replace("REFUSED", made(node))
    )


_TEXT = """\
int KERNEL(char *const *at) {
  const TYPE *given = (const TYPE *)at[0];
  TYPE *out = (TYPE *)at[1];
  int refused = 0;
  for (long i = 0; i < COUNT; ++i) {
    const TYPE x = given[i];
    refused |= REFUSED;
    out[i] = x;
  }
  return refused;
}
"""


def _check(name: str) -> Callable[[Callable[[Node], str]], Callable[[Node], str]]:
    """Register the condition, of an element x, under which an operation refuses its input."""

    def register(made: Callable[[Node], str]) -> Callable[[Node], str]:
        _CHECKS[name] = made
        return made

    return register


@_check("CheckedLabels")
def _labels(node: Node) -> str:
    attrs = node.attrs
    outside = _outside(node, 0, attrs["classes"])
    return outside if attrs["ignored"] is None else f"(x != {attrs['ignored']}) & ({outside})"


@_check("CheckedIndices")
def _indices(node: Node) -> str:
    extent = node.attrs["extent"]
    return _outside(node, -extent, extent)


@_check("CheckedProbabilities")
def _probabilities(node: Node) -> str:
    return "(x < 0) | (x > 1)"


def _outside(node: Node, low: int, past: int) -> str:
    if node.inputs[0].abstract.dtype.kind == "u":
        return f"x >= {past}u"
    return f"(x < {low}) | (x >= {past})"
