"""Kernels of branches and loops: they compile and run the graphs that these carry."""

from __future__ import annotations

from collections.abc import Sequence

from ..backends.device import Device
from ..backends.kernel import Array, Arrays, Kernel, KernelNode
from ..backends.registry import kernel
from ..backends.selection import Target
from ..graph.ir import Graph
from ..graph.passes import run_passes
from ..settings import current
from .program import Program


@kernel("Cond", "cuda", "?.*->.*", strided=True)
@kernel("Cond", "cpu", "?.*->.*")
class CondKernel(Kernel):
    """Runs one of two programs."""

    capturable = False  # the host decides which

    def prepare(self, node: KernelNode) -> None:
        attrs = node.attrs
        self.device = node.device
        self.on_true = program(attrs["on_true"], node.target), attrs["true_takes"]
        self.on_false = program(attrs["on_false"], node.target), attrs["false_takes"]

    def launch(self, inputs: Arrays, workspace: Arrays, outputs: Arrays, stream: object) -> None:
        truth = self.device.to_host(inputs[0])
        run, takes = self.on_true if truth else self.on_false
        write(self.device, outputs, run(*[inputs[1 + i] for i in takes]))


@kernel("WhileLoop", "cuda", ".*->.*", strided=True)
@kernel("WhileLoop", "cpu", ".*->.*")
class WhileLoopKernel(Kernel):
    """Runs two programs in turn until the first one gives False."""

    capturable = False  # the host decides how often

    def prepare(self, node: KernelNode) -> None:
        attrs = node.attrs
        self.device = node.device
        self.condition = program(attrs["condition"], node.target)
        self.condition_takes = attrs["condition_takes"]
        self.body, self.body_takes = program(attrs["body"], node.target), attrs["body_takes"]

    def launch(self, inputs: Arrays, workspace: Arrays, outputs: Arrays, stream: object) -> None:
        values = list(inputs)
        while self.device.to_host(self.condition(*[values[i] for i in self.condition_takes])[0]):
            values[: len(outputs)] = self.body(*[values[i] for i in self.body_takes])
        write(self.device, outputs, values[: len(outputs)])


@kernel("Fused", "cuda", ".*->.*", strided=True)
@kernel("Fused", "cpu", ".*->.*")
class FusedKernel(Kernel):
    """Runs the body node by node: what a fused node means."""

    capturable = False  # a program copies what it returns

    def prepare(self, node: KernelNode) -> None:
        target: Target = node.target
        plain = tuple(p for p in target.providers if p != "cc")
        self.device = node.device
        self.body = program(node.attrs["body"], target._replace(providers=plain))

    def launch(self, inputs: Arrays, workspace: Arrays, outputs: Arrays, stream: object) -> None:
        write(self.device, outputs, self.body(*inputs))


def program(graph: Graph, target: Target) -> Program:
    """The graph of a branch or body, compiled for a target and the settings in force."""
    settings = current()
    return Program(run_passes(graph, settings.disabled_passes, settings.verify_passes), target)


def write(device: Device, outputs: Sequence[Array], results: Sequence[Array]) -> None:
    """Copy the results of a program into the outputs of a kernel."""
    for out, result in zip(outputs, results, strict=True):
        device.copy_into(out, result)
