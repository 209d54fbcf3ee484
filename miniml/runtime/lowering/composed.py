"""Primitives whose CUDA kernel is their composition, fused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...abstract import Abstract
from ...backends.kernel import KernelNode
from ...backends.registry import NATIVE, kernel
from ...backends.signature import ArraySpec
from ...backends.typecodes import FLOAT, INT
from ...errors import CompileError, GraphError
from ...primitive import primitives
from ..control import program, write
from ..fusion.kernel import FusedCuda
from ..program import Program
from .decompose import composition

_LABELLED = [(c, i) for c in FLOAT for i in INT]


@kernel("Softmax", "cuda", *[f"{c}->{c}" for c in FLOAT])
@kernel("LogSoftmax", "cuda", *[f"{c}->{c}" for c in FLOAT])
@kernel("LayerNorm", "cuda", *[f"{c * 3}->{c * 3}" for c in FLOAT])
@kernel("CrossEntropy", "cuda", *[f"{c}{i}->{c}{c}" for c, i in _LABELLED])
@kernel("CrossEntropyGrad", "cuda", *[f"{c}{i}{c}->{c}" for c, i in _LABELLED])
class Composed(FusedCuda):
    """The row program of the composition; a program of it where that is not one loop, as for arrays
    without elements, or where its text is refused."""

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
