"""Kernels that a player calls without Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
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
    can run. packing: as of a Call. own: arrays that its C gets after the workspace; what differs
    between kernels whose text is to be the same.
    """

    strided: ClassVar[bool] = False
    native: bool = True
    source: Source | None = None
    packing: Callable[[], Packing | None] | None = None
    own: Arrays = ()

    @classmethod
    def bakes(cls, attrs: Mapping[str, Any], index: int) -> bool:
        """True for an input whose strides, whatever they are, `source` has as numbers."""
        return cls.strided

    def avoid(self, features: tuple[str, ...]) -> None:
        """Have its C compiled without these features of the processor."""
        if self.source is not None:
            self.source = self.source._replace(without=features)
        if self.packing is not None:
            self.packing = partial(_packing_without, self.packing, features)

    def calls_on(self, operands: tuple[Array | Moving, ...]) -> list[Call]:
        """The calls on these inputs, outputs and workspace, with other memory for each caller."""
        assert self.source is not None
        return [Call(self.source, (*operands, *self.own), self.packing)]

    def launch(self, inputs: Arrays, workspace: Arrays, outputs: Arrays, stream: Any) -> None:
        assert self.source is not None
        run(self.source, (*inputs, *outputs, *workspace, *self.own))


def _packing_without(
    packing: Callable[[], Packing | None], features: tuple[str, ...]
) -> Packing | None:
    made = packing()
    if made is None:
        return None
    kernel, pack = (source._replace(without=features) for source in (made.kernel, made.pack))
    return made._replace(kernel=kernel, pack=pack)
