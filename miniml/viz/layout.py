"""Where the boxes of a drawing stand: in layers, each below all it depends on.

After K. Sugiyama, S. Tagawa and M. Toda, "Methods for visual understanding of hierarchical system
structures" (1981): layers by longest path, then sweeps that bring each box near its neighbours.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise

from .drawing import Box, Drawing

LETTER, BOX_HEIGHT, LAYER_HEIGHT, GAP = 7.3, 42, 70, 22
_SWEEPS = 8
_BEND = 40  # arrows over so many layers bend around boxes; longer ones go straight

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Placed:
    """A layout: the centre of each box by key, the points of each arrow, the size of it all."""

    centres: dict[str, Point]
    paths: tuple[tuple[Point, ...], ...]
    width: float
    height: float


def box_width(box: Box) -> float:
    """The width of a box, in pixels, that holds its text."""
    return max(len(box.title), len(box.types), 4) * LETTER + 18


def place(drawing: Drawing) -> Placed:
    """The layout of a drawing, in time linear in its boxes and arrows but for sorting layers."""
    layer = _layers(drawing)
    widths = {box.key: box_width(box) for box in drawing.boxes}
    chains: list[list[str]] = []  # per arrow: source, a point in each layer it crosses, target
    for i, arrow in enumerate(drawing.arrows):
        top, bottom = layer[arrow.source], layer[arrow.target]
        crossed = range(top + 1, bottom) if bottom - top <= _BEND else range(0)
        bends = [f"{i}/{row}" for row in crossed]
        layer.update(zip(bends, crossed, strict=True))
        widths.update((bend, 6.0) for bend in bends)
        chains.append([arrow.source, *bends, arrow.target])
    x = _columns(layer, widths, chains)
    left = min(x[k] - widths[k] / 2 for k in x) - GAP
    at = {k: (x[k] - left, layer[k] * LAYER_HEIGHT + BOX_HEIGHT) for k in x}
    width = max(at[k][0] + widths[k] / 2 for k in at) + GAP
    height = (max(layer.values()) + 1) * LAYER_HEIGHT
    paths = tuple(tuple(at[k] for k in chain) for chain in chains)
    return Placed({b.key: at[b.key] for b in drawing.boxes}, paths, width, height)


def _layers(drawing: Drawing) -> dict[str, int]:
    """The layer of each box: one below the lowest it depends on; sources just above their use."""
    layer = {box.key: 0 for box in drawing.boxes}
    inputs = defaultdict(list)
    for arrow in drawing.arrows:
        inputs[arrow.target].append(arrow.source)
    for box in drawing.boxes:
        layer[box.key] = max((layer[s] + 1 for s in inputs[box.key]), default=0)
    first_use: dict[str, int] = {}
    for arrow in drawing.arrows:
        used = layer[arrow.target] - 1
        first_use[arrow.source] = min(used, first_use.get(arrow.source, used))
    for box in drawing.boxes:
        if not inputs[box.key] and box.kind != "input":
            layer[box.key] = first_use.get(box.key, 0)
    return layer


def _columns(
    layer: dict[str, int], widths: dict[str, float], chains: list[list[str]]
) -> dict[str, float]:
    """The x of each box: sweeps down and up pull it to the mean of its neighbours."""
    above, below = defaultdict(list), defaultdict(list)
    for chain in chains:
        for upper, lower in pairwise(chain):
            above[lower].append(upper)
            below[upper].append(lower)
    rows: dict[int, list[str]] = defaultdict(list)
    for key in layer:
        rows[layer[key]].append(key)
    x: dict[str, float] = {}
    for row in rows.values():
        _spread(row, dict.fromkeys(row, 0.0), widths, x)
    for sweep in range(_SWEEPS):
        near = below if sweep % 2 else above
        for number in sorted(rows, reverse=bool(sweep % 2)):
            row = rows[number]
            ideal = {k: sum(x[n] for n in near[k]) / len(near[k]) if near[k] else x[k] for k in row}
            row.sort(key=ideal.__getitem__)
            _spread(row, ideal, widths, x)
    return x


def _spread(
    row: list[str], ideal: dict[str, float], widths: dict[str, float], x: dict[str, float]
) -> None:
    """Place a row in its order from left to right, apart, and on average where its boxes pull."""
    edge = float("-inf")
    for key in row:
        x[key] = max(ideal[key], edge + widths[key] / 2)
        edge = x[key] + widths[key] / 2 + GAP
    shift = sum(ideal[k] - x[k] for k in row) / len(row)
    for key in row:
        x[key] += shift
