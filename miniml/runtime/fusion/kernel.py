"""The native kernel of Fused nodes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from itertools import zip_longest
from typing import Any

from ... import epoch
from ...backends.cc.kernel import NativeKernel
from ...backends.cc.loops import Printed
from ...backends.cc.rows import inplace, printed
from ...backends.expressions.rows import RowProgram
from ...backends.kernel import KernelNode
from ...backends.registry import kernel
from ...backends.signature import ArraySpec
from ...errors import GraphError
from ...graph.ir import Graph, Node
from .anchors import anchor_of, anchored, bakes
from .axes import Apart
from .build import Layout, row_program


@kernel("Fused", "cpu", ".*->.*", provider="cc", total=True)
class FusedKernel(NativeKernel):
    """The row program of the body in C."""

    @classmethod
    def bakes(cls, attrs: Mapping[str, Any], index: int) -> bool:
        body: Graph = attrs["body"]
        return bakes(body, body.inputs[index])

    def prepare(self, node: KernelNode) -> None:
        super().prepare(node)
        self.program, (self.source, self.scratch), self.inplace = _made(
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
    """The same for an anchor and what follows it. The anchor still reads its operands when the
    first outputs are written."""
    program, made = anchored(body, anchor, layout)
    taken = [body.inputs.index(v) for v in anchor.inputs]
    return program, made, tuple(i for i in inplace(program) if i not in (*taken, len(body.inputs)))
