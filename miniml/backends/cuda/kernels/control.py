"""Kernels of collectives on a device: the group moves arrays there, or they pass through the host,
where it moves them."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from ...group import found
from ...kernel import Arrays, Kernel, KernelNode
from ...registry import kernel
from ...signature import ANY, NUMBER, same


class _Collective(Kernel):
    """The method of the group that does what the primitive says."""

    capturable = False  # the host takes part
    method: ClassVar[str]

    def prepare(self, node: KernelNode) -> None:
        self.name, self.device = node.name, node.device
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


@kernel("AllReduce", "cuda", *same(1, NUMBER))
class AllReduce(_Collective):
    method = "all_reduce"


@kernel("Reduce", "cuda", *same(1, NUMBER))
class Reduce(_Collective):
    method = "reduce"


@kernel("ReduceScatter", "cuda", *same(1, NUMBER))
class ReduceScatter(_Collective):
    method = "reduce_scatter"


@kernel("Broadcast", "cuda", *same(1, ANY))
class Broadcast(_Collective):
    method = "broadcast"


@kernel("AllGather", "cuda", *same(1, ANY))
class AllGather(_Collective):
    method = "all_gather"


@kernel("AllToAll", "cuda", *same(1, ANY))
class AllToAll(_Collective):
    method = "all_to_all"


@kernel("SendRecv", "cuda", *same(1, ANY))
class SendRecv(_Collective):
    method = "send_recv"
