"""Layouts: the strides of views of memory that kernels in C read where it lies."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..backends.device import CPU, Array
from ..graph.ir import Graph, Node, Var
from .launch import BoundKernel, Strides


class Layouts:
    """What is known of views of a program's own memory while its kernels are prepared, in order.

    Inputs and outputs, which are the caller's arrays, may have other strides at each call.
    """

    def __init__(self, graph: Graph):
        self._unknown = {*graph.inputs, *graph.outputs}
        self._arrays: dict[Var, Array] = {p: parameter._data for parameter, p in graph.state}
        self._arrays |= {v: np.asarray(v.abstract.value) for v in graph.constants}
        self._views: set[Var] = set()

    def follow(self, node: Node, kernel: BoundKernel) -> None:
        """Look at what a view makes of arrays that stand in for its inputs; what a user's makes
        stays unknown."""
        view, (out, *_) = kernel.entry.view, (*node.outputs, None)
        if view is None or out is None:
            return
        if node.inputs[view] in self._unknown or not kernel.entry.built_in:
            self._unknown.add(out)
            return
        seen, copied = CPU().seen(kernel.function, [self._array(v) for v in node.inputs])
        if not copied:
            self._arrays[out] = seen
            self._views.add(out)

    def strides(self, var: Var) -> Strides:
        """The strides of a view in elements; None where it is in row-major order, or unknown."""
        if var not in self._views:
            return None
        array: Any = self._arrays[var]
        if array.flags.c_contiguous or any(s % array.itemsize for s in array.strides):
            return None
        return tuple(s // array.itemsize for s in array.strides)

    def _array(self, var: Var) -> Array:
        known = self._arrays.get(var)
        return np.empty(var.abstract.stored, var.abstract.dtype) if known is None else known
