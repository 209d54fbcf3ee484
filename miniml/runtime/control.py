"""Kernels of control flow and of fused and composed primitives, which run compiled graphs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..backends.cc.player import Argument, Call, Carried, Moving, NativeKernel, loop
from ..backends.device import Device
from ..backends.kernel import Array, Arrays, Kernel, KernelNode
from ..backends.registry import NATIVE, kernel
from ..backends.selection import Target
from ..backends.signature import FLOAT, INT, ArraySpec
from ..core.abstract import Abstract
from ..core.errors import CompileError, GraphError, note_step
from ..core.primitive import primitives
from ..core.settings import current
from ..graph.ir import Graph
from ..graph.passes import run_passes
from .fusion.build import FusedCuda
from .lowering.decompose import composition
from .program import Program

_LABELLED = [(c, i) for c in FLOAT for i in INT]


@kernel("Cond", "cuda", "?.*->.*", strided=True)
@kernel("Cond", "cpu", "?.*->.*")
class CondKernel(Kernel):
    """Kernel of a branch: it runs one of two programs."""

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
    """Kernel of a while loop: it runs two programs alternately until the first gives False."""

    capturable = False  # the host decides how often

    def prepare(self, node: KernelNode) -> None:
        attrs = node.attrs
        self.device = node.device
        self.condition = program(attrs["condition"], node.target)
        self.condition_takes = attrs["condition_takes"]
        self.body, self.body_takes = program(attrs["body"], node.target), attrs["body_takes"]

    def launch(self, inputs: Arrays, workspace: Arrays, outputs: Arrays, stream: object) -> None:
        values, done = list(inputs), 0
        try:
            while self._goes_on(values):
                values[: len(outputs)] = self.body(*[values[i] for i in self.body_takes])
                done += 1
        except Exception as error:
            note_step(error, "loop", done)
            raise
        write(self.device, outputs, values[: len(outputs)])

    def _goes_on(self, values: list[Array]) -> bool:
        operands = [values[i] for i in self.condition_takes]
        return bool(self.device.to_host(self.condition(*operands)[0]))


@kernel("Scan", "cuda", ".*->.*", strided=True)
@kernel("Scan", "cpu", ".*->.*")
class ScanKernel(NativeKernel):
    """Kernel of a scan: it runs one program for each row, which writes to rows of the outputs.

    A carried value that is a row as well is read from there; for others there are two arrays. If
    the program is one native run, the loop is a native call.
    """

    capturable = False  # a graph of its body is not one of the whole loop

    def prepare(self, node: KernelNode) -> None:
        attrs = node.attrs
        self.node, self.device = node, node.device
        self.carried, self.scanned = attrs["carried"], attrs["scanned"]
        steps = range(attrs["length"])
        self.order = steps[::-1] if attrs["reverse"] else steps
        body: Graph = attrs["body"]
        rows = body.outputs[self.carried :]
        spare = [v for v in dict.fromkeys(body.outputs) if v not in rows]
        made = [*rows, *spare]  # outputs of a step: rows, then values that it only carries
        self.body = program(replace(body, outputs=tuple(made)), node.target, fills=True)
        self.after = [made.index(v) for v in body.outputs[: self.carried]]
        self.specs = [ArraySpec((2, *v.abstract.shape), v.abstract.dtype) for v in spare]
        self._ready = [calls] if (calls := self.body.calls()) else []
        self.native = bool(self._ready)
        self.reason = "a loop in C" if self.native else self._in_python()

    def _in_python(self) -> str:
        """Reason why the loop is in Python although some kernels are in C."""
        launched = [p for p in self.body.prepared.values() if p.entry.view is None and not p.empty]
        others = dict.fromkeys(p.node.name for p in launched if p.native is None)
        return f"a loop in Python, for {', '.join(others)}" if len(others) < len(launched) else ""

    def workspace(self) -> tuple[ArraySpec, ...]:
        return tuple(self.specs)

    def launch(self, inputs: Arrays, workspace: Arrays, outputs: Arrays, stream: object) -> None:
        first, last = self.carried, self.carried + self.scanned
        carry, xs, rest = inputs[:first], inputs[first:last], inputs[last:]
        for number, t in enumerate(self.order):  # a step reads half of the workspace
            targets = [*[y[t, ...] for y in outputs[first:]]]
            targets += [spare[number % 2, ...] for spare in workspace]
            try:
                self.body.fill((*carry, *[x[t, ...] for x in xs], *rest), targets)
            except Exception as error:
                note_step(error, "scan", t)
                raise
            carry = tuple([targets[i] for i in self.after])
        write(self.device, outputs[:first], carry)

    def calls_on(self, operands: tuple[Array | Moving, ...]) -> list[Call]:
        try:
            calls = self._ready.pop()
        except IndexError:
            calls = self.body.calls() or []
        first, last = self.carried, self.carried + self.scanned
        taken, given = len(self.node.inputs), len(self.node.inputs) + len(self.node.outputs)
        arguments = [
            *map(Argument, range(first)),
            *map(self._row, range(first, last)),
            *map(Argument, range(last, taken)),
            *map(self._row, range(taken + first, given)),
            *(Argument(given + i, 0, s.nbytes // 2, True) for i, s in enumerate(self.specs)),
        ]
        carried = [
            Carried(taken + after, taken + i, spec.nbytes)
            for i, (after, spec) in enumerate(zip(self.after, self.node.outputs, strict=False))
        ]
        return loop(len(self.order), calls, arguments, carried, operands)

    def _row(self, operand: int) -> Argument:
        """Argument for the rows of an input or output."""
        spec = (*self.node.inputs, *self.node.outputs)[operand]
        nbytes = spec.nbytes // max(1, len(self.order))
        return Argument(operand, self.order.start * nbytes, self.order.step * nbytes)


@kernel("Fused", "cuda", ".*->.*", strided=True)
@kernel("Fused", "cpu", ".*->.*")
class FusedKernel(Kernel):
    """Reference kernel of a fused node: it runs the body node by node."""

    capturable = False  # a program copies its results

    def prepare(self, node: KernelNode) -> None:
        target: Target = node.target
        plain = tuple(p for p in target.providers if p != "cc")
        self.device = node.device
        self.body = program(node.attrs["body"], target._replace(providers=plain))

    def launch(self, inputs: Arrays, workspace: Arrays, outputs: Arrays, stream: object) -> None:
        write(self.device, outputs, self.body(*inputs))


@kernel("Softmax", "cuda", *[f"{c}->{c}" for c in FLOAT])
@kernel("LogSoftmax", "cuda", *[f"{c}->{c}" for c in FLOAT])
@kernel("LayerNorm", "cuda", *[f"{c * 3}->{c * 3}" for c in FLOAT])
@kernel("CrossEntropy", "cuda", *[f"{c}{i}->{c}{c}" for c, i in _LABELLED])
@kernel("CrossEntropyGrad", "cuda", *[f"{c}{i}{c}->{c}" for c, i in _LABELLED])
class Composed(FusedCuda):
    """CUDA kernel of a primitive by its composition, fused: a row program, or a program if it is no
    single loop, as for empty arrays, or if the compiler rejects its text."""

    def prepare(self, node: KernelNode) -> None:
        abstracts = tuple(Abstract(x.shape, x.dtype) for x in node.inputs)
        body = composition(primitives[node.name](**node.attrs), abstracts, "cuda")
        self.whole: Program | None = None
        try:
            super().prepare(replace(node, attrs={"body": body}))
        except (CompileError, GraphError):
            self.inplace = ()
            self.whole = program(body, node.target._replace(providers=(NATIVE,)))

    def workspace(self) -> tuple[ArraySpec, ...]:
        return super().workspace() if self.whole is None else ()

    def launch(self, inputs: Any, workspace: Any, outputs: Any, stream: object) -> None:
        if self.whole is None:
            super().launch(inputs, workspace, outputs, stream)
        else:
            write(self.node.device, outputs, self.whole(*inputs))


def program(graph: Graph, target: Target, fills: bool = False) -> Program:
    """The graph of a branch or body, compiled for a target and the settings in force."""
    settings = current().bare
    passed = run_passes(graph, settings.disabled_passes, settings.verify_passes)
    return Program(passed, target, fills)


def write(device: Device, outputs: Sequence[Array], results: Sequence[Array]) -> None:
    """Copy the results of a program into the outputs of a kernel."""
    for out, result in zip(outputs, results, strict=True):
        device.copy_into(out, result)
