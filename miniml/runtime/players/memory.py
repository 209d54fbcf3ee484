"""The arrays of one executable: the values of a program whose address is the same at every call."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...backends.constants import once
from ...backends.device import Device
from ...graph.ir import Node, Var
from ..buffers import Allocation, BufferAssignment


class Memory:
    """An arena and the arrays in it.

    arrays: what kernels read. Missing Vars may be a different array at each call: the inputs,
    unless the memory has buffers for them (`own_inputs`), outputs that are computed in arrays of
    the caller, and views of both. targets: what kernels
    write. copies: (to, from) of a View that no strides can describe, so that each call copies.
    uploads: where the device reads parameters that stay on the host: the states of random streams.
    """

    def __init__(self, buffers: BufferAssignment, device: Device, own_inputs: bool = False):
        self.buffers, self.device = buffers, device
        self.arena = device.arena(buffers.plan.size)
        self.arrays: dict[Var, Any] = {}
        self.targets: dict[Var, Any] = {}
        self.copies: dict[Node, tuple[Any, Any]] = {}
        self.uploads: dict[Allocation, Any] = {}
        self._dense: dict[Var, Any] = {}
        self._bind_given(own_inputs)
        for node in buffers.order.order:
            self._bind(node)
        for var in buffers.staged.values():
            self._fill(var)

    def is_given(self, var: Var) -> bool:
        """True for an output that is computed in an array of the caller."""
        return self.buffers.allocation[var].kind == "output"

    def scratch(self, node: Node) -> tuple[Any, ...]:
        """The workspace of a node's kernel."""
        found = self.buffers.workspaces.get(node, ())
        return tuple(self._carve(space, spec.shape, spec.dtype) for space, spec in found)

    def dense(self, var: Var) -> Any:
        """Memory for a row-major copy of a value that is kept with other strides."""
        if var not in self._dense:
            self._dense[var] = self.device.empty(var.abstract.stored, var.abstract.dtype)
        return self._dense[var]

    def _bind_given(self, own_inputs: bool) -> None:
        graph, device = self.buffers.graph, self.device
        for var in graph.inputs if own_inputs else ():
            self.arrays[var] = device.empty(var.abstract.shape, var.abstract.dtype)
        for var in graph.constants:
            host = np.asarray(var.abstract.value)
            on_cpu = device.name == "cpu"
            self.arrays[var] = read_only(host if on_cpu else once(host, device.from_host))
        for parameter, var in graph.state:
            allocation, self.arrays[var] = self.buffers.allocation[var], parameter._data
            if allocation.kind == "upload":
                self.arrays[var] = self.uploads[allocation] = device.from_host(parameter._data)

    def _bind(self, node: Node) -> None:
        if self.buffers.prepared[node].entry.view is None:
            for var in node.outputs:
                self._fill(var)
        elif all(v in self.arrays for v in node.inputs):
            self._look(node)

    def _fill(self, var: Var) -> None:
        if self.is_given(var):
            return
        allocation = self.buffers.allocation[var]
        array = self._carve(allocation, var.abstract.stored, var.abstract.dtype)
        self.targets[var], self.arrays[var] = array, read_only(array)

    def _carve(self, allocation: Allocation, shape: tuple[int, ...], dtype: Any) -> Any:
        if allocation.kind == "upload":
            return self.uploads[allocation]
        if allocation.parameter is not None:
            return allocation.parameter._buffer
        return self.device.carve(self.arena, self.buffers.offsets[allocation], shape, dtype)

    def _look(self, node: Node) -> None:
        """Make a view, once; not every reshape can be one."""
        kernel = self.buffers.prepared[node]
        given = [self.arrays[v] for v in node.inputs]
        seen, copied = self.device.seen(kernel.function, given)
        self.arrays[node.outputs[0]] = read_only(seen)
        if copied and seen.size:
            source = given[kernel.entry.view or 0]
            self.copies[node] = seen.reshape(source.shape), source


def read_only(array: Any) -> Any:
    """The array, which nobody can write to; on a device, where kernels declare that, itself."""
    if isinstance(array, np.ndarray) and array.flags.writeable:
        array = array.view()
        array.flags.writeable = False
    return array
