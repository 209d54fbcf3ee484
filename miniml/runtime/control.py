"""Kernels that run programs: of control flow, and of fused and composed primitives.

Parts: the graph of a branch, condition or body as a program, and as calls in C. On the CPU a loop
or a branch is such calls from end to end, where the steps of its parts can be one native run; what
in them has no kernel in C is called back into Python. Elsewhere Python runs the parts.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ..backends.cc.native import (
    Argument,
    Branch,
    Call,
    Carried,
    Condition,
    NativeKernel,
    Operands,
    Positions,
    branch,
    loop,
)
from ..backends.kernel import Array, Arrays, Device, Kernel, KernelNode
from ..backends.registry import NATIVE, kernel
from ..backends.selection import Target
from ..core.abstract import Abstract, ArraySpec
from ..core.errors import CompileError, GraphError, note_step
from ..core.primitive import primitives
from ..core.settings import current
from ..core.signature import FLOAT, INT
from ..graph.ir import Graph
from ..graph.passes import run_passes
from .codegen import FusedCuda
from .lowering import composition
from .program import Program

# --- Parts of control flow ------------------------------------------------------------------------


class Part:
    """The program of a branch, a condition or a body, which writes to arrays that it is given.

    native: its calls in C are known, and `calls` gives them. stops: one of them may raise.
    """

    def __init__(self, graph: Graph, target: Target):
        self.program = program(graph, target, fills=True)
        calls = self.program.calls()
        self.native = calls is not None
        self.stops = any(call.stops for call in calls or ())
        self._ready = [] if calls is None else [calls]

    def calls(self, positions: Sequence[int] | None = None) -> list[Call]:
        """The calls, on memory of their own. positions: the arguments that its inputs, then its
        outputs, are; by default they are in this order."""
        calls = self._ready.pop() if self._ready else self.program.calls() or []
        return calls if positions is None else [call.moved(positions) for call in calls]

    def others(self) -> list[str]:
        """The operations without kernel in C, if some have one; a native part calls these back."""
        bound = [p for p in self.program.prepared.values() if p.entry.view is None and not p.empty]
        inner = [[p.node.name] if p.native is None else [*p.native.called_back] for p in bound]
        if self.native or not all(p.native is None for p in bound):
            return [name for names in inner for name in names]
        return []


def _explained(kernel: NativeKernel, what: str, *parts: Part) -> None:
    """Set what a kernel says of its calls: native where those of all its parts are known."""
    kernel.native = all(part.native for part in parts)
    kernel.stops = any(part.stops for part in parts)
    others = [*dict.fromkeys(name for part in parts for name in part.others())]
    names = ", ".join(others)
    if kernel.native:
        kernel.called_back = others
        kernel.reason = f"{what} in C" + f", which calls back for {names}" * bool(names)
    else:
        kernel.reason = f"{what} in Python, for {names}" if names else ""
        for part in parts:
            part.program.bind()


def _noting(name: str, steps: range | None = None) -> Callable[[BaseException, int], None]:
    """A function that notes the step of an error; steps: the order in which they are made."""

    def note(error: BaseException, number: int) -> None:
        if isinstance(error, Exception):
            note_step(error, name, number if steps is None else steps[number])

    return note


# --- Branches and loops ---------------------------------------------------------------------------


class Controlled(NativeKernel):
    """Base of kernels of control flow. specs: arrays for values of its parts."""

    capturable = False  # the host decides which parts run, and how often
    specs: Sequence[ArraySpec] = ()

    def workspace(self) -> tuple[ArraySpec, ...]:
        return tuple(self.specs)


@kernel("Cond", "cuda", "?.*->.*", strided=True)
@kernel("Cond", "cpu", "?.*->.*")
class CondKernel(Controlled):
    """Kernel of a branch: it runs one of two programs."""

    def prepare(self, node: KernelNode) -> None:
        super().prepare(node)
        attrs = node.attrs
        self.on_true = Part(attrs["on_true"], node.target), attrs["true_takes"]
        self.on_false = Part(attrs["on_false"], node.target), attrs["false_takes"]
        _explained(self, "a branch", self.on_true[0], self.on_false[0])

    def launch(self, inputs: Arrays, workspace: Arrays, outputs: Arrays, stream: object) -> None:
        part, takes = self.on_true if self.node.device.to_host(inputs[0]) else self.on_false
        part.program.fill([inputs[1 + i] for i in takes], outputs)

    def calls_on(self, operands: Operands, lasting: Positions = ()) -> list[Call]:
        taken = len(self.node.inputs) - 1
        given = range(taken, taken + len(self.node.outputs))
        yes, no = (Branch(p.calls(), (*t, *given)) for p, t in (self.on_true, self.on_false))
        return [branch(yes, no, operands[0], operands[1:])]


@kernel("WhileLoop", "cuda", ".*->.*", strided=True)
@kernel("WhileLoop", "cpu", ".*->.*")
class WhileLoopKernel(Controlled):
    """Kernel of a while loop: it runs two programs alternately until the first gives False, or the
    second has run `most` times. A carried value that changes has two arrays."""

    def prepare(self, node: KernelNode) -> None:
        super().prepare(node)
        attrs, count = node.attrs, len(node.outputs)
        self.most = attrs["most"]
        body: Graph = attrs["body"]
        self.condition_takes, self.body_takes = attrs["condition_takes"], attrs["body_takes"]
        places = dict(zip(body.inputs, self.body_takes, strict=True))
        same = [places.get(v) == i for i, v in enumerate(body.outputs)]
        made = [*dict.fromkeys(v for v, kept in zip(body.outputs, same, strict=True) if not kept)]
        self.after = [None if k else made.index(v) for v, k in zip(body.outputs, same, strict=True)]
        self.specs = [ArraySpec((2, *v.abstract.shape), v.abstract.dtype) for v in made]
        flag = attrs["condition"].outputs[0].abstract
        self.specs.append(ArraySpec(flag.shape, flag.dtype))
        self.condition = Part(attrs["condition"], node.target)
        self.body = Part(replace(body, outputs=tuple(made)), node.target)
        assert count == len(self.after)
        _explained(self, "a loop", self.condition, self.body)
        self.stops = True  # it hears signals

    def launch(self, inputs: Arrays, workspace: Arrays, outputs: Arrays, stream: object) -> None:
        *spare, flag = workspace
        values, count, done = list(inputs), len(outputs), 0
        try:
            for done in itertools.count() if self.most is None else range(self.most):
                self.condition.program.fill([values[i] for i in self.condition_takes], (flag,))
                if not self.node.device.to_host(flag):
                    break
                targets = [made[done % 2, ...] for made in spare]
                self.body.program.fill([values[i] for i in self.body_takes], targets)
                values[:count] = [
                    values[i] if at is None else targets[at] for i, at in enumerate(self.after)
                ]
        except Exception as error:
            note_step(error, "loop", done)
            raise
        copy_results(self.node.device, outputs, values[:count])

    def calls_on(self, operands: Operands, lasting: Positions = ()) -> list[Call]:
        taken, count = len(self.node.inputs), len(self.node.outputs)
        given, made = taken + count, len(self.specs) - 1
        arguments = [
            *map(Argument, range(taken)),
            *(Argument(given + i, 0, s.nbytes // 2, True) for i, s in enumerate(self.specs[:-1])),
            Argument(given + made),
        ]
        carried = [
            Carried(i if at is None else taken + at, taken + i, spec.nbytes)
            for i, (at, spec) in enumerate(zip(self.after, self.node.outputs, strict=True))
        ]
        tested = self.condition.calls((*self.condition_takes, taken + made))
        step = self.body.calls((*self.body_takes, *range(taken, taken + made)))
        condition = Condition(tested, taken + made)
        rest = carried, operands, _noting("loop"), condition, lasting
        return loop(self.most, step, arguments, *rest)


@kernel("Scan", "cuda", ".*->.*", strided=True)
@kernel("Scan", "cpu", ".*->.*")
class ScanKernel(Controlled):
    """Kernel of a scan: it runs one program for each row, which writes to rows of the outputs.

    A carried value that is a row as well is read from there; for others there are two arrays.
    """

    def prepare(self, node: KernelNode) -> None:
        super().prepare(node)
        attrs = node.attrs
        self.carried, self.scanned = attrs["carried"], attrs["scanned"]
        steps = range(attrs["length"])
        self.order = steps[::-1] if attrs["reverse"] else steps
        body: Graph = attrs["body"]
        rows = body.outputs[self.carried :]
        spare = [v for v in dict.fromkeys(body.outputs) if v not in rows]
        made = [*rows, *spare]  # outputs of a step: rows, then values that it only carries
        self.body = Part(replace(body, outputs=tuple(made)), node.target)
        self.after = [made.index(v) for v in body.outputs[: self.carried]]
        self.specs = [ArraySpec((2, *v.abstract.shape), v.abstract.dtype) for v in spare]
        _explained(self, "a loop", self.body)

    def launch(self, inputs: Arrays, workspace: Arrays, outputs: Arrays, stream: object) -> None:
        first, last = self.carried, self.carried + self.scanned
        carry, xs, rest = inputs[:first], inputs[first:last], inputs[last:]
        for number, t in enumerate(self.order):  # a step reads half of the workspace
            targets = [*[y[t, ...] for y in outputs[first:]]]
            targets += [spare[number % 2, ...] for spare in workspace]
            try:
                self.body.program.fill((*carry, *[x[t, ...] for x in xs], *rest), targets)
            except Exception as error:
                note_step(error, "scan", t)
                raise
            carry = tuple([targets[i] for i in self.after])
        copy_results(self.node.device, outputs[:first], carry)

    def calls_on(self, operands: Operands, lasting: Positions = ()) -> list[Call]:
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
        note, calls = _noting("scan", self.order), self.body.calls()
        return loop(len(self.order), calls, arguments, carried, operands, note, lasting=lasting)

    def _row(self, operand: int) -> Argument:
        """Argument for the rows of an input or output."""
        spec = (*self.node.inputs, *self.node.outputs)[operand]
        nbytes = spec.nbytes // max(1, len(self.order))
        return Argument(operand, self.order.start * nbytes, self.order.step * nbytes)


# --- Fused and composed primitives ----------------------------------------------------------------

_LABELLED = [(c, i) for c in FLOAT for i in INT]


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
        copy_results(self.device, outputs, self.body(*inputs))


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
        assert body is not None
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
            copy_results(self.node.device, outputs, self.whole(*inputs))


def program(graph: Graph, target: Target, fills: bool = False) -> Program:
    """The graph of a branch or body, compiled for a target and the settings in force."""
    settings = current().bare
    passed = run_passes(graph, settings.disabled_passes, settings.verify_passes)
    return Program(passed, target, fills)


def copy_results(device: Device, outputs: Sequence[Array], results: Sequence[Array]) -> None:
    """Copy the results of a program into the outputs of a kernel."""
    for out, result in zip(outputs, results, strict=True):
        device.copy_into(out, result)
