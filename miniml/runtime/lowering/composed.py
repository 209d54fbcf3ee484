"""Primitives whose CUDA kernel is their composition, fused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...abstract import Abstract
from ...backends.kernel import KernelNode
from ...backends.registry import kernel
from ...backends.signature import ArraySpec
from ...backends.typecodes import FLOAT, INT
from ...primitive import primitives
from ..control import FusedKernel
from ..fusion.kernel import FusedCuda
from .decompose import composition

_LABELLED = [(c, i) for c in FLOAT for i in INT]


@kernel("Softmax", "cuda", *[f"{c}->{c}" for c in FLOAT])
@kernel("LogSoftmax", "cuda", *[f"{c}->{c}" for c in FLOAT])
@kernel("LayerNorm", "cuda", *[f"{c * 3}->{c * 3}" for c in FLOAT])
@kernel("CrossEntropy", "cuda", *[f"{c}{i}->{c}{c}" for c, i in _LABELLED])
@kernel("CrossEntropyGrad", "cuda", *[f"{c}{i}{c}->{c}" for c, i in _LABELLED])
class Composed(FusedCuda):
    """The row program of the composition; of arrays without elements, the composition node by
    node."""

    def prepare(self, node: KernelNode) -> None:
        abstracts = tuple(Abstract(x.shape, x.dtype) for x in node.inputs)
        body = composition(primitives[node.name](**node.attrs), abstracts, "cuda")
        fused = replace(node, attrs={"body": body})
        self.plain = FusedKernel() if any(0 in x.shape for x in node.inputs) else None
        if self.plain is None:
            super().prepare(fused)
        else:
            self.plain.prepare(fused)

    def workspace(self) -> tuple[ArraySpec, ...]:
        return super().workspace() if self.plain is None else ()

    def launch(self, inputs: Any, workspace: Any, outputs: Any, stream: Any) -> None:
        if self.plain is None:
            super().launch(inputs, workspace, outputs, stream)
        else:
            self.plain.launch(inputs, workspace, outputs, stream)
