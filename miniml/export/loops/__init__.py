"""C of operations whose kernel is NumPy's: plain loops, which serve an exported program alone.

Each family registers its own; inputs are in row-major order.
"""

from __future__ import annotations

from ...graph.ir import Node
from . import decomposition, elements, linalg, random
from .registering import Loop, loops

__all__ = ["decomposition", "elements", "linalg", "loop_of", "random"]


def loop_of(node: Node) -> Loop | None:
    """The C of a node; None where there is none for its dtypes."""
    writer = loops.get(node.primitive.name)
    made = None if writer is None else writer(node)
    return Loop(made) if isinstance(made, str) else made
