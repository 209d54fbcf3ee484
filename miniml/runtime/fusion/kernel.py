"""The native kernels of Fused nodes, in C and in CUDA C."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from ... import epoch
from ...backends.cc.epilogue import epilogue
from ...backends.cc.kernel import NativeKernel
from ...backends.cc.loops import Printed
from ...backends.cc.product import product_text
from ...backends.cc.rows import printed
from ...backends.expressions.rows import RowProgram, inplace
from ...backends.kernel import Kernel, KernelNode
from ...backends.registry import kernel
from ...backends.signature import ArraySpec
from ...errors import GraphError
from ...graph.ir import Graph, Node
from .anchors import anchor_of, product, tail
from .axes import Apart
from .build import row_program


@kernel("Fused", "cpu", ".*->.*", provider="cc", total=True)
class FusedKernel(NativeKernel):
    """The row program of the body in C."""

    def prepare(self, node: KernelNode) -> None:
        super().prepare(node)
        self.program, (self.source, self.scratch), self.inplace = _made(
            node.attrs["body"], epoch.now.kernels
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
def _made(body: Graph, version: int) -> tuple[RowProgram, Printed, tuple[int, ...]]:
    """The row program of a body, its C, and what it may overwrite: once for equal bodies."""
    anchor = anchor_of(body.nodes)
    try:
        if anchor is not None:
            return _anchored(body, anchor)
        program = row_program(body)
    except Apart as reason:
        raise GraphError(f"Fused got a body that is not one loop: {reason}") from None
    return program, printed(program), inplace(program)


def _anchored(body: Graph, anchor: Node) -> tuple[RowProgram, Printed, tuple[int, ...]]:
    """The same for a product and what follows it. The product still reads its operands when the
    first outputs are written."""
    program, sums = tail(body, anchor)
    made = product(anchor)
    text, shared = epilogue(program, sums, made.m)
    x, y = (body.inputs.index(v) for v in anchor.inputs)
    source = product_text(made, anchor.outputs[0].abstract.dtype, text, (x, y), shared)
    free = tuple(i for i in inplace(program) if i not in (x, y, sums))
    return program, Printed(source, ()), free
