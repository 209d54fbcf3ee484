"""C of collective operations in a group of one, in which each of them is a copy."""

from __future__ import annotations

from ...graph.ir import Node
from .registering import loop


@loop("AllReduce", "Reduce", "Broadcast", "AllGather", "ReduceScatter", "AllToAll", "SendRecv")
def _copied(node: Node) -> str | None:
    """None for a larger group; nothing is received where the rank is in no pair."""
    out, attrs = node.outputs[0].abstract, node.attrs
    if attrs["size"] != 1:
        return None
    size = out.size * out.dtype.itemsize
    received = (0, 0) in attrs.get("pairs", ((0, 0),))
    statement = f"memcpy(at[1], at[0], {size}L);" if received else f"memset(at[1], 0, {size}L);"
    return f"void KERNEL(char *const *at) {{ {statement} }}\n"
