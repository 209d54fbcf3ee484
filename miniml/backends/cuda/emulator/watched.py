"""A kernel in the simulator's check mode: its outputs and workspace count as new memory."""

from __future__ import annotations

from typing import Any

from ...kernel import Kernel, KernelNode
from ...signature import ArraySpec
from ..sim.faults import Fault, error
from ..sim.settings import current
from .array import forget, unwritten


class Watched(Kernel):
    """Runs a kernel whose outputs and workspace in an arena are uninitialised when it begins, as in
    the first call of a program, and whose outputs must all be written when it ends.

    Memory shared with an input stays as it is: the kernel may read it first. So do outputs in
    parameters, which keep their values if the launch is refused. kernel: the one that runs.
    """

    def __init__(self, kernel: Kernel, device: Any):
        self.kernel, self._device = kernel, device

    def prepare(self, node: KernelNode) -> None:
        super().prepare(node)
        self.kernel.prepare(node)
        self.reason, self.inplace = self.kernel.reason, self.kernel.inplace

    def workspace(self) -> tuple[ArraySpec, ...]:
        return self.kernel.workspace()

    def launch(self, inputs: Any, workspace: Any, outputs: Any, stream: Any) -> None:
        if current().deferred or stream.is_capturing():  # nothing has run when `launch` returns
            self.kernel.launch(inputs, workspace, outputs, stream)
            return
        read = [_extent(a) for a in inputs]
        for array in (*outputs, *workspace):
            if array.block in self._device.arenas and not _overlaps(_extent(array), read):
                forget(array.flat)
        self.kernel.launch(inputs, workspace, outputs, stream)
        counts = [-(-unwritten(a.flat) // a.dtype.itemsize) for a in outputs]
        if any(counts):
            found = zip(counts, outputs, strict=True)
            raise error(
                _half_written(self.node.name, i, n, a) for i, (n, a) in enumerate(found) if n
            )

    def resize(self, node: KernelNode) -> None:
        super().prepare(node)
        self.kernel.resize(node)

    def can_run(self, node: KernelNode) -> bool:
        return self.kernel.can_run(node)

    @property
    def follows(self) -> bool:
        return self.kernel.follows

    def release(self) -> None:
        self.kernel.release()


def _extent(array: Any) -> tuple[int, int]:
    """The addresses where an array begins and ends; 0, 0 for one without elements."""
    start: int = array.flat.data.ptr
    return start, start + array.flat.nbytes


def _overlaps(own: tuple[int, int], others: list[tuple[int, int]]) -> bool:
    return any(own[0] < end and start < own[1] for start, end in others)


def _half_written(name: str, i: int, count: int, array: Any) -> Fault:
    message = f"{count} of the {array.size} elements of output {i} are unwritten when it ends"
    return Fault("unwritten", name, message)
