"""A graph as one HTML page with drawings inside: no network, no other file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from html import escape
from pathlib import Path
from string import Template

from ..graph.ir import Graph
from .drawing import Box, Drawing, draw
from .layout import BOX_HEIGHT, Placed, Point, box_width, place


def to_html(graph: Graph, path: str | os.PathLike[str]) -> Path:
    """Write the page to `path`. Pointing at a box shows its types, attributes and the user's line.

    The graphs inside attributes follow below, each drawn on its own.
    """
    target = Path(path)
    sections = "\n".join(_sections(draw(graph), graph.name))
    page = _PAGE.substitute(title=escape(graph.name), text=escape(str(graph)), sections=sections)
    target.write_text(page, encoding="utf-8")
    return target


def _sections(drawing: Drawing, title: str) -> Iterator[str]:
    yield f"<h2>{escape(title)}</h2>\n{_svg(drawing, place(drawing))}"
    for box in drawing.boxes:
        for label, inner in box.inner:
            yield from _sections(inner, f"{title} / {box.title} {label}: {inner.name}")


def _svg(drawing: Drawing, placed: Placed) -> str:
    size = f"{placed.width:.0f} {placed.height:.0f}"
    width, height = size.split()
    arrows = "\n".join(
        f'<path class="arrow" data-from="{a.source}" data-to="{a.target}" d="{_curve(points)}">'
        f"<title>{escape(a.type)}</title></path>"
        for a, points in zip(drawing.arrows, placed.paths, strict=True)
    )
    boxes = "\n".join(_box(box, placed.centres[box.key]) for box in drawing.boxes)
    return (
        f'<div class="scroll"><svg viewBox="0 0 {size}" width="{width}" height="{height}">\n'
        f"{arrows}\n{boxes}\n</svg></div>"
    )


def _box(box: Box, centre: Point) -> str:
    x, y = centre
    width = box_width(box)
    details = escape("\n".join(box.details))
    return (
        f'<g class="box {box.kind}" id="{box.key}" tabindex="0" data-details="{details}">'
        f"<title>{details}</title>"
        f'<rect x="{x - width / 2:.1f}" y="{y - BOX_HEIGHT / 2:.1f}" width="{width:.1f}" '
        f'height="{BOX_HEIGHT}" rx="7"/>'
        f'<text x="{x:.1f}" y="{y - 3:.1f}">{escape(box.title)}</text>'
        f'<text class="type" x="{x:.1f}" y="{y + 13:.1f}">{escape(box.types)}</text></g>'
    )


def _curve(points: tuple[Point, ...]) -> str:
    """An SVG path from box to box, vertical where it leaves and arrives."""
    (x, y), last = points[0], len(points) - 1
    y += BOX_HEIGHT / 2
    path = [f"M{x:.1f} {y:.1f}"]
    for i, (nx, ny) in enumerate(points[1:], 1):
        if i == last:
            ny -= BOX_HEIGHT / 2
        middle = (y + ny) / 2
        path.append(f"C{x:.1f} {middle:.1f} {nx:.1f} {middle:.1f} {nx:.1f} {ny:.1f}")
        x, y = nx, ny
    return "".join(path)


_PAGE = Template("""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>$title</title>
<style>
:root { color-scheme: light dark; --ink: #1d2430; --line: #8a94a6; --paper: #fff; --hit: #d9480f;
  --input: #e3f2e8; --state: #fdf0d5; --constant: #eeeef2; --call: #e6eefb; --effect: #fbe3e0; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ef; --line: #77819a; --paper: #14181f;
  --hit: #ff9d5c; --input: #1d3b2a; --state: #453714; --constant: #2b2f39; --call: #1f3254;
  --effect: #4b231f; } }
body { margin: 0 24px 160px; color: var(--ink); background: var(--paper);
  font: 15px system-ui, sans-serif; }
h2 { font-size: 15px; font-weight: 600; margin: 22px 0 6px; }
pre { font: 12px/1.5 ui-monospace, monospace; overflow-x: auto; }
.scroll { overflow-x: auto; }
svg text { font: 12px ui-monospace, monospace; text-anchor: middle; fill: var(--ink); }
svg .type { font-size: 11px; opacity: .7; }
.box rect { stroke: var(--line); fill: var(--call); }
.input rect, .output rect { fill: var(--input); }
.state rect { fill: var(--state); }
.constant rect { fill: var(--constant); }
.effect rect { fill: var(--effect); stroke-width: 2; }
.arrow { fill: none; stroke: var(--line); marker-end: url(#head); }
.box:hover rect, .box:focus rect { stroke: var(--hit); stroke-width: 2; outline: none; }
.box:focus { outline: none; }
.arrow.near { stroke: var(--hit); stroke-width: 2; }
#details { position: fixed; left: 0; right: 0; bottom: 0; margin: 0; padding: 10px 24px;
  min-height: 3em; max-height: 30vh; overflow: auto; white-space: pre-wrap;
  background: var(--paper); border-top: 1px solid var(--line); }
</style></head><body>
<svg width="0" height="0"><defs>
<marker id="head" viewBox="0 0 8 8" refX="7" refY="4"
 markerWidth="7" markerHeight="7" orient="auto">
<path d="M0 0L8 4L0 8z" fill="context-stroke"/></marker></defs></svg>
$sections
<details><summary>Text</summary><pre>$text</pre></details>
<pre id="details">Point at a box.</pre>
<script>
const panel = document.getElementById("details");
function show(box) {
  panel.textContent = box.dataset.details;
  for (const arrow of document.querySelectorAll(".arrow"))
    arrow.classList.toggle("near", arrow.dataset.from === box.id || arrow.dataset.to === box.id);
}
for (const box of document.querySelectorAll(".box")) {
  box.addEventListener("mouseenter", () => show(box));
  box.addEventListener("focus", () => show(box));
}
</script>
</body></html>
""")
