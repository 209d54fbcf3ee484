"""The native kernels of Fused nodes, in C and in CUDA C."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from itertools import zip_longest
from typing import Any

from ... import epoch
from ...backends.cc.kernel import NativeKernel
from ...backends.cc.loops import Printed
from ...backends.cc.rows import printed
from ...backends.expressions.rows import RowProgram, inplace
from ...backends.kernel import Kernel, KernelNode
from ...backends.registry import kernel
from ...backends.signature import ArraySpec
from ...errors import GraphError
from ...graph.ir import Graph, Node
from .anchors import anchor_of, anchored, bakes
from .axes import Apart
from .build import Layout, row_program


@kernel("Fused", "cpu", ".*->.*", provider="cc", total=True)
class FusedC(NativeKernel):
    """The row program of the body in C."""

    @classmethod
    def bakes(cls, attrs: Mapping[str, Any], index: int) -> bool:
        body: Graph = attrs["body"]
        return bakes(body, body.inputs[index])

    def prepare(self, node: KernelNode) -> None:
        super().prepare(node)
        self.program, (self.source, self.scratch, self.packing), self.inplace = _made(
            node.attrs["body"], node.strides, node.masked, epoch.now.kernels
        )

    def workspace(self) -> tuple[ArraySpec, ...]:
        return self.scratch


@kernel("Fused", "cuda", ".*->.*", provider="cc", total=True)
class FusedCuda(Kernel):
    """The row program of the body in CUDA C."""

    def prepare(self, node: KernelNode) -> None:
        super().prepare(node)
        self.program, self.printed = _made_cuda(
            node.attrs["body"], epoch.now.kernels, node.device.rows
        )
        self.inplace, self.reason = inplace(self.program), self.printed.how
        get = node.device.compiler.function
        self.functions = [get(self.printed.text, part.entry) for part in self.printed.launches]

    def workspace(self) -> tuple[ArraySpec, ...]:
        specs: tuple[ArraySpec, ...] = self.printed.workspace
        return specs

    def launch(self, inputs: Any, workspace: Any, outputs: Any, stream: object) -> None:
        arrays = (*inputs, *outputs, *workspace)
        aligned = not any(a.offset % 16 for a in arrays)
        numbers = self.printed.numbers if aligned else self.printed.single
        args = (*(a.flat for a in arrays), numbers)
        for function, part in zip(self.functions, self.printed.launches, strict=True):
            function(part.grid, part.block, args, shared_mem=part.shared)


@lru_cache(maxsize=1024)
def _made_cuda(body: Graph, version: int, printer: Any) -> tuple[RowProgram, Any]:
    """The row program of a body and its CUDA C. What passes share is kept where shared memory has
    room, else computed again."""
    program = _program(body)
    if not printer.keeps(program):
        program = row_program(body, keeps=False)
    return program, printer.printed(program)


def _program(body: Graph) -> RowProgram:
    try:
        return row_program(body)
    except Apart as reason:
        raise GraphError(f"Fused got a body that is not one loop: {reason}") from None


@lru_cache(maxsize=1024)
def _made(
    body: Graph,
    strides: tuple[tuple[int, ...] | None, ...],
    masked: tuple[str, ...],
    version: int,
) -> tuple[RowProgram, Printed, tuple[int, ...]]:
    """The row program of a body, its C, and what it may overwrite: once for equal bodies."""
    anchor = anchor_of(body.nodes)
    layout = {v: s for v, s in zip_longest(body.inputs, strides) if s is not None}
    try:
        if anchor is not None:
            return _anchored(body, anchor, layout, masked)
        program = row_program(body, layout)
    except Apart as reason:
        raise GraphError(f"Fused got a body that is not one loop: {reason}") from None
    return program, printed(program), inplace(program)


def _anchored(
    body: Graph, anchor: Node, layout: Layout, masked: tuple[str, ...]
) -> tuple[RowProgram, Printed, tuple[int, ...]]:
    """The same for an anchor and what follows it. The anchor still reads its operands when the
    first outputs are written."""
    program, made = anchored(body, anchor, layout, masked)
    taken = [body.inputs.index(v) for v in anchor.inputs]
    return program, made, tuple(i for i in inplace(program) if i not in (*taken, len(body.inputs)))
