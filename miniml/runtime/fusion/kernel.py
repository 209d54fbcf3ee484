"""The native kernel of Fused nodes."""

from __future__ import annotations

from functools import lru_cache, partial
from itertools import zip_longest

from ... import epoch
from ...backends.cc.epilogue import epilogue
from ...backends.cc.kernel import NativeKernel
from ...backends.cc.loops import Printed
from ...backends.cc.product import packing, product_text
from ...backends.cc.rows import inplace, printed
from ...backends.expressions.rows import RowProgram
from ...backends.kernel import KernelNode
from ...backends.registry import kernel
from ...backends.signature import ArraySpec
from ...errors import GraphError
from ...graph.ir import Graph, Node
from .anchors import anchor_of, product, tail
from .axes import Apart
from .build import Layout, row_program


@kernel("Fused", "cpu", ".*->.*", provider="cc", total=True)
class FusedKernel(NativeKernel):
    """The row program of the body in C."""

    strided = True

    def prepare(self, node: KernelNode) -> None:
        super().prepare(node)
        self.program, (self.source, self.scratch, self.packing), self.inplace = _made(
            node.attrs["body"], node.strides, epoch.now.kernels
        )

    def workspace(self) -> tuple[ArraySpec, ...]:
        return self.scratch


@lru_cache(maxsize=1024)
def _made(
    body: Graph, strides: tuple[tuple[int, ...] | None, ...], version: int
) -> tuple[RowProgram, Printed, tuple[int, ...]]:
    """The row program of a body, its C, and what it may overwrite: once for equal bodies."""
    anchor = anchor_of(body.nodes)
    layout = {v: s for v, s in zip_longest(body.inputs, strides) if s is not None}
    try:
        if anchor is not None:
            return _anchored(body, anchor, layout)
        program = row_program(body, layout)
    except Apart as reason:
        raise GraphError(f"Fused got a body that is not one loop: {reason}") from None
    return program, printed(program), inplace(program)


def _anchored(
    body: Graph, anchor: Node, layout: Layout
) -> tuple[RowProgram, Printed, tuple[int, ...]]:
    """The same for a product and what follows it. The product still reads its operands when the
    first outputs are written."""
    program, sums = tail(body, anchor, layout)
    made = product(anchor, layout)
    text, shared = epilogue(program, sums, made.m)
    x, y = (body.inputs.index(v) for v in anchor.inputs)
    parts = made, anchor.outputs[0].abstract.dtype, text, (x, y), shared
    once = sum(n.inputs.count(anchor.inputs[1]) for n in body.nodes) == 1
    free = tuple(i for i in inplace(program) if i not in (x, y, sums))
    source, packed = product_text(*parts), partial(packing, *parts) if once else None
    return program, Printed(source, (), packed), free
