"""Lowering: the passes that depend on the target; they run after all others."""

from __future__ import annotations

from collections.abc import Collection

from ...backends.selection import Target
from ...graph.ir import Graph
from ...graph.passes import Pass, add_stage, run_stage
from .decompose import decompose
from .formats import formats
from .fuse import fuse
from .hoist import checks, movement
from .legalize import legalize, turn

LOWERING = add_stage(
    (
        Pass("legalize", legalize),
        Pass("decompose", decompose),
        Pass("movement", movement),
        Pass("checks", checks),
        Pass("turn", turn),
        Pass("formats", formats),
        Pass("fuse", fuse),
    )
)


def lower(
    graph: Graph, target: Target, disabled: Collection[str] = (), verified: bool = False
) -> Graph:
    """The graph after every pass of `pipeline(LOWERING)`; disabled, verified: as in run_passes."""
    return run_stage(LOWERING, lambda fn, g: fn(g, target), graph, disabled, verified)
