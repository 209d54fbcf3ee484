"""Programs that are too small for kernels in C."""

from __future__ import annotations

from ...backends.registry import NATIVE
from ...backends.selection import Target
from ...graph.ir import Graph, Node
from ..fusion.members import kind_of
from .legalize import select

# A C kernel of two such calls takes 50 ms to compile and saves at most 1 us of theirs 3, or 10 of
# the dearest functions: it pays after tens of thousands of calls. Three save 1.4 us, ten 8.
CALLS = 2
ELEMENTS = 1024
WHY = f"too small for kernels in C: at most {CALLS} elementwise calls of {ELEMENTS} elements"


def too_small(graph: Graph, target: Target) -> bool:
    """True for a program that kernels in C would compute, and NumPy's at about the same speed."""
    if NATIVE not in target.providers:
        return False
    calls = (n for n in graph.nodes if kind_of(n) not in ("view", "window", "created"))
    numpy = target.without(NATIVE)
    return all(i < CALLS and _small(n, numpy) for i, n in enumerate(calls))


def _small(node: Node, numpy: Target) -> bool:
    """True for few elements of an expression, by NumPy's kernel of the library."""
    few = all(v.abstract.size <= ELEMENTS for v in (*node.inputs, *node.outputs))
    return few and kind_of(node) == "elements" and select(node, numpy).entry.built_in
