"""Kernels that are one C function each."""

from __future__ import annotations

from typing import Any, ClassVar

from ..kernel import Arrays, Kernel
from .source import Source
from .units import run


class NativeKernel(Kernel):
    """A kernel whose `prepare` sets `source`; the inputs it gets are in row-major order, or have
    the strides of the node.

    A player calls the C function itself, for a run of native kernels at once; `launch` calls it
    alone. strided: nodes may have strides, which `source` then has as numbers.
    """

    strided: ClassVar[bool] = False
    source: Source

    def launch(self, inputs: Arrays, workspace: Arrays, outputs: Arrays, stream: Any) -> None:
        run(self.source, (*inputs, *outputs, *workspace))
