"""A graph as one HTML page with drawings inside: no network, no other file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from ..archive import PathLike, writable, write
from ..graph.ir import Graph
from .drawing import Box, Drawing, drawing_of, graph_of
from .folding import fold
from .layout import BOX_HEIGHT, Placed, Point, box_width, place

_CALLS = "the calls are ml.draw(net, x, path=path) and viz.to_html(net, path, x)"
FOLDED_ABOVE = 40  # calls; more than that do not fit into a window side by side with their text
_PAGE = Template(Path(__file__).with_name("page.html").read_text("utf-8"))


def to_html(
    what: Graph | Callable[..., Any],
    path: PathLike,
    *example_args: Any,
    **named: Any,
) -> Path:
    """Write the page to `path`: of a graph, or of a network, a training step or another function,
    traced for arguments like the examples, as `trace` does.

    Pointing at a box shows its types, attributes and the user's line; the wheel zooms, dragging
    moves. The calls of a layer, or of a line, are one box that opens, where there are more than 40
    in all; the graphs inside attributes open likewise.
    """
    graph = graph_of("to_html", what, example_args, named)
    drawing = drawing_of(graph)
    tops = [Sheet("all", f"All {counted(graph)}", drawing)]
    if len(graph.nodes) > FOLDED_ABOVE:
        tops.insert(0, Sheet("parts", "Layers", fold(drawing)))
    tabs = "".join(f'<a href="#{s.key}">{escape(s.title)}</a>' for s in tops)
    return write_page(path, f"{graph.name}: {counted(graph)}", tabs, tops, str(graph))


def counted(graph: Graph) -> str:
    """How many calls it has, in words."""
    return "1 call" if len(graph.nodes) == 1 else f"{len(graph.nodes)} calls"


@dataclass(frozen=True, slots=True)
class Sheet:
    """One drawing of the page: its address, its title, the sheet around it, and what to say of it
    in HTML. marks: CSS classes of boxes, by key. kind: that of the section."""

    key: str
    title: str
    drawing: Drawing
    outer: str = ""
    heading: str = ""
    marks: Mapping[str, str] = field(default_factory=dict)
    kind: str = ""


def write_page(path: PathLike, title: str, tabs: str, tops: Sequence[Sheet], text: str) -> Path:
    """Write a page with these sheets and those that their boxes open; tabs: HTML, links to them.

    It appears wholly or not at all; CheckpointError for a place where no file can be written."""
    target = writable(path, _CALLS)
    page = _PAGE.substitute(
        title=escape(title),
        tabs=f'{tabs}<a href="#as-text">Text</a>',
        sheets="\n".join(_section(s) for one in tops for s in _sheets(one)),
        text=escape(text),
    )
    write(target, iter([page.encode()]), path)
    return target


def _sheets(sheet: Sheet) -> Iterator[Sheet]:
    """A sheet and those that its boxes open."""
    yield sheet
    for box in sheet.drawing.boxes:
        keys = [_opens(sheet, box, i) for i in range(len(box.inner))]
        labels = [f"{label}: {inner.name}" if label else "" for label, inner in box.inner]
        for key, label, (_, inner) in zip(keys, labels, box.inner, strict=True):
            title = f"{sheet.title} / {box.title} {label}".rstrip()
            around = f'<a href="#{sheet.key}">{escape(sheet.title)}</a> / {escape(box.title)}'
            beside = [
                escape(other) if other == label else f'<a href="#{to}">{escape(other)}</a>'
                for to, other in zip(keys, labels, strict=True)
            ]
            heading = f"{around} {', '.join(beside)}".rstrip()
            yield from _sheets(Sheet(key, title, inner, sheet.key, heading))


def _opens(sheet: Sheet, box: Box, i: int = 0) -> str:
    return f"{sheet.key}.{box.key}.{i}"


def _section(sheet: Sheet) -> str:
    outer = f' data-outer="{sheet.outer}"' if sheet.outer else ""
    heading = sheet.heading or escape(sheet.title)
    drawn = _svg(sheet, place(sheet.drawing))
    kind = f' class="{sheet.kind}"' if sheet.kind else ""
    return f'<section id="{sheet.key}"{outer}{kind}><h2>{heading}</h2>\n{drawn}</section>'


def _svg(sheet: Sheet, placed: Placed) -> str:
    width, height = f"{placed.width:.0f}", f"{placed.height:.0f}"
    arrows = "\n".join(
        f'<path class="arrow" data-from="{_id(sheet, a.source)}" data-to="{_id(sheet, a.target)}" '
        f'd="{_curve(points)}"><title>{escape(a.type)}</title></path>'
        for a, points in zip(sheet.drawing.arrows, placed.paths, strict=True)
    )
    boxes = "\n".join(_box(sheet, box, placed.centres[box.key]) for box in sheet.drawing.boxes)
    return (
        f'<svg viewBox="0 0 {width} {height}" data-width="{width}" data-height="{height}"><g>\n'
        f"{arrows}\n{boxes}\n</g></svg>"
    )


def _id(sheet: Sheet, key: str) -> str:
    return f"{sheet.key}.{key}"


def _box(sheet: Sheet, box: Box, centre: Point) -> str:
    x, y = centre
    width = box_width(box)
    details = escape("\n".join(box.details))
    classes = f"box {box.kind} {sheet.marks.get(box.key, '')}".rstrip()
    opens = f' data-opens="{_opens(sheet, box)}"' if box.inner else ""
    return (
        f'<g class="{classes}" id="{_id(sheet, box.key)}" tabindex="0"{opens} '
        f'data-details="{details}"><title>{details}</title>'
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
