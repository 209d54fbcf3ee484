"""Kernels that a player calls without Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from ..kernel import Array, Arrays, Kernel
from .player import Call, Moving, Packing
from .source import Source
from .units import run


class NativeKernel(Kernel):
    """A kernel whose `prepare` sets `source`; the inputs it gets are in row-major order, or have
    the strides of the node.

    A player calls the C function itself, for a run of native kernels at once; `launch` calls it
    alone. strided: the answer of `bakes` for every input. native: False for one that only `launch`
    can run. packing: as of a Call.
    """

    strided: ClassVar[bool] = False
    native: bool = True
    source: Source | None = None
    packing: Callable[[], Packing | None] | None = None

    @classmethod
    def bakes(cls, attrs: Mapping[str, Any], index: int) -> bool:
        """True for an input whose strides, whatever they are, `source` has as numbers."""
        return cls.strided

    def calls_on(self, operands: tuple[Array | Moving, ...]) -> list[Call]:
        """The calls on these inputs, outputs and workspace, with other memory for each caller."""
        assert self.source is not None
        return [Call(self.source, operands, self.packing)]

    def launch(self, inputs: Arrays, workspace: Arrays, outputs: Arrays, stream: Any) -> None:
        assert self.source is not None
        run(self.source, (*inputs, *outputs, *workspace))
