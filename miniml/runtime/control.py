"""Kernels of branches and loops: the graphs they carry, compiled and run."""

from __future__ import annotations

from collections.abc import Sequence

from ..backends.device import Device, get_device
from ..backends.kernel import Array, Kernel, KernelNode
from ..backends.registry import kernel
from ..graph.ir import Graph
from ..graph.passes import run_passes
from ..settings import current
from .program import Options, Program


@kernel("Cond", "cuda", "?.*->.*", strided=True)
@kernel("Cond", "cpu", "?.*->.*")
class CondKernel(Kernel):
    """Runs one of two programs."""

    capturable = False  # the host decides which

    def prepare(self, node: KernelNode) -> None:
        attrs = node.attrs
        self.device = device_of(node)
        self.on_true = program(attrs["on_true"], self.device), attrs["true_takes"]
        self.on_false = program(attrs["on_false"], self.device), attrs["false_takes"]

    def launch(
        self,
        inputs: tuple[Array, ...],
        workspace: tuple[Array, ...],
        outputs: tuple[Array, ...],
        stream: object,
    ) -> None:
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
        self.device = device_of(node)
        self.condition = program(attrs["condition"], self.device)
        self.condition_takes = attrs["condition_takes"]
        self.body, self.body_takes = program(attrs["body"], self.device), attrs["body_takes"]

    def launch(
        self,
        inputs: tuple[Array, ...],
        workspace: tuple[Array, ...],
        outputs: tuple[Array, ...],
        stream: object,
    ) -> None:
        values = list(inputs)
        while self.device.to_host(self.condition(*[values[i] for i in self.condition_takes])[0]):
            values[: len(outputs)] = self.body(*[values[i] for i in self.body_takes])
        write(self.device, outputs, values[: len(outputs)])


def device_of(node: KernelNode) -> Device:
    """The device that a kernel was prepared for."""
    device: Device = node.device or get_device("cpu")
    return device


def program(graph: Graph, device: Device) -> Program:
    """The graph of a branch or body, compiled for a device and the settings in force."""
    settings = current()
    passed = run_passes(graph, settings.disabled_passes, settings.verify_passes)
    options = Options.of(device.name, settings)
    return Program(passed, options)


def write(device: Device, outputs: Sequence[Array], results: Sequence[Array]) -> None:
    """Copy what a program gave to where it is wanted."""
    for out, result in zip(outputs, results, strict=True):
        device.copy_into(out, result)
