"""Kernels of collectives on a device: the group moves arrays there, or they pass through the host,
where it moves them."""

from __future__ import annotations

import numpy as np

from ....core.signature import ANY, NUMBER, same
from ...group import found
from ...kernel import Arrays, Kernel, KernelNode
from ...registry import kernel

# The method of a group that does what a primitive says, and the dtypes that it takes.
_METHODS = {
    "AllReduce": ("all_reduce", NUMBER),
    "Reduce": ("reduce", NUMBER),
    "ReduceScatter": ("reduce_scatter", NUMBER),
    "Broadcast": ("broadcast", ANY),
    "AllGather": ("all_gather", ANY),
    "AllToAll": ("all_to_all", ANY),
    "SendRecv": ("send_recv", ANY),
}


class Collective(Kernel):
    """One method of the group, on arrays of the device where it moves those, else of the host."""

    capturable = False  # the host takes part

    def prepare(self, node: KernelNode) -> None:
        self.name, self.device = node.name, node.device
        self.method, _ = _METHODS[node.name]
        attrs = dict(node.attrs)
        self.group, self.size = attrs.pop("group"), attrs.pop("size")
        self.options = tuple(attrs.values())  # the operation, the root or the pairs
        self.out = node.outputs[0]

    def launch(self, inputs: Arrays, workspace: Arrays, outputs: Arrays, stream: object) -> None:
        group = found(self.name, self.group, self.size)
        direct = group.direct(self.device)
        if direct is not None:
            x = self.device.contiguous(inputs[0])
            getattr(direct, self.method)(x, outputs[0], *self.options)
            return
        out = np.empty(self.out.shape, self.out.dtype)
        getattr(group, self.method)(self.device.to_host(inputs[0]), out, *self.options)
        self.device.copy_into(outputs[0], out)


for _name, (_, _codes) in _METHODS.items():
    kernel(_name, "cuda", *same(1, _codes))(Collective)
