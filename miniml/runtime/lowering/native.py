"""Where C that is written for a program goes before the kernels by hand."""

from __future__ import annotations

from math import prod

from ...backends.cuda.text.groups import BLOCK, parts
from ...backends.selection import Target
from ...graph.ir import Node
from ..fusion.members import kind_of, reduced_axes


def native(target: Target) -> bool:
    """True where kernels in C that is written for a program go before others."""
    order = (*target.providers, "miniml")
    return "cc" in order and order.index("cc") < order.index("miniml")


def in_c(target: Target) -> bool:
    """True where these are in C for the CPU."""
    return target.home == "cpu" and native(target)


def in_parts(node: Node) -> bool:
    """True for a reduction of rows so few and long that a GPU is busy only where several blocks
    share a row, which groups of nodes do not."""
    if kind_of(node) != "reduction":
        return False
    shape, axes = node.inputs[0].abstract.shape, reduced_axes(node)
    n = prod(shape[a] for a in axes)
    inner = prod(shape[max(axes, default=-1) + 1 :])
    return inner == 1 and parts(prod(shape) // n, n, BLOCK) > 1
