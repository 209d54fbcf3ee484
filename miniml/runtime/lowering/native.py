"""Where C that is written for a program goes before the kernels by hand."""

from __future__ import annotations

from math import prod
from typing import Any

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


def in_parts(node: Node, target: Target) -> bool:
    """True for a reduction of a few long rows that a kernel by hand divides over a GPU."""
    if target.home != "cuda" or kind_of(node) != "reduction":
        return False
    device: Any = target.device
    shape, axes = node.inputs[0].abstract.shape, reduced_axes(node)
    n = prod(shape[a] for a in axes)
    whole = prod(shape[max(axes, default=-1) + 1 :]) == 1
    return whole and bool(device.rows.in_parts(prod(shape) // n, n))
