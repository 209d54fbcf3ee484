"""Kernels of branches and loops: the graphs they carry, compiled and run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..backends.kernel import Array, Kernel, KernelNode
from ..backends.registry import kernel
from ..graph.ir import Graph
from ..graph.passes import run_passes
from ..settings import current
from .program import Options, Program


@kernel("Cond", "cpu", "?.*->.*")
class CondKernel(Kernel):
    """Runs one of two programs."""

    def prepare(self, node: KernelNode) -> None:
        attrs = node.attrs
        self.on_true = program(attrs["on_true"]), attrs["true_takes"]
        self.on_false = program(attrs["on_false"]), attrs["false_takes"]

    def launch(
        self,
        inputs: tuple[Array, ...],
        workspace: tuple[Array, ...],
        outputs: tuple[Array, ...],
        stream: object,
    ) -> None:
        run, takes = self.on_true if inputs[0] else self.on_false
        write(outputs, run(*[inputs[1 + i] for i in takes]))


@kernel("WhileLoop", "cpu", ".*->.*")
class WhileLoopKernel(Kernel):
    """Runs two programs in turn until the first one gives False."""

    def prepare(self, node: KernelNode) -> None:
        attrs = node.attrs
        self.condition, self.condition_takes = program(attrs["condition"]), attrs["condition_takes"]
        self.body, self.body_takes = program(attrs["body"]), attrs["body_takes"]

    def launch(
        self,
        inputs: tuple[Array, ...],
        workspace: tuple[Array, ...],
        outputs: tuple[Array, ...],
        stream: object,
    ) -> None:
        values = list(inputs)
        while self.condition(*[values[i] for i in self.condition_takes])[0]:
            values[: len(outputs)] = self.body(*[values[i] for i in self.body_takes])
        write(outputs, values[: len(outputs)])


def program(graph: Graph) -> Program:
    """The graph of a branch or body, compiled for the settings in force."""
    settings = current()
    passed = run_passes(graph, settings.disabled_passes, settings.verify_passes)
    return Program(passed, Options("cpu", settings.providers, settings.check_nan))


def write(outputs: Sequence[Array], results: Sequence[Array]) -> None:
    """Copy what a program gave to where it is wanted."""
    for out, result in zip(outputs, results, strict=True):
        np.copyto(out, result)
