"""to_html: a graph as one self-contained HTML page, without network or other files.

The page and its SVG; the drawing of a graph as boxes and arrows; folding of the calls of each layer
into one box; the layout of boxes in layers.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from itertools import pairwise
from pathlib import Path
from string import Template
from typing import Any, Literal

from ..core.errors import MinimlError
from ..core.files import PathLike, writable, write
from ..core.primitive import show
from ..graph.ir import Graph, Names, Node, Var, is_inline, signature_of, user_line
from ..graph.tracing import function_name, trace
from ..ops.control import Fused

_CALLS = "the calls are ml.draw(net, x, path=path) and viz.to_html(net, path, x)"
FOLDED_ABOVE = 40  # calls; more do not fit side by side into a window with their text
_PAGE = Template(Path(__file__).with_name("page.html").read_text("utf-8"))


def to_html(
    what: Graph | Callable[..., Any], path: PathLike, *example_args: Any, **named: Any
) -> Path:
    """Write the page to `path` and return it: of a graph, or of a network, a training step or
    another function, traced for arguments like the examples, as `trace` does.

    Pointing at a box shows its types, attributes and the user's line; the wheel zooms, dragging
    moves. The calls of a layer, or of a line, are one box that opens, if there are more than 40
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
    """The number of calls, in words."""
    return "1 call" if len(graph.nodes) == 1 else f"{len(graph.nodes)} calls"


@dataclass(frozen=True, slots=True)
class Sheet:
    """One drawing of the page: its anchor, its title, the sheet around it, and its heading in HTML.
    marks: CSS classes of boxes, by key. kind: that of the section."""

    key: str
    title: str
    drawing: Drawing
    outer: str = ""
    heading: str = ""
    marks: Mapping[str, str] = field(default_factory=dict)
    kind: str = ""


def write_page(path: PathLike, title: str, tabs: str, tops: Sequence[Sheet], text: str) -> Path:
    """Write a page with these sheets and those that their boxes open; tabs: HTML, links to them.

    The file is written atomically; CheckpointError for a path where none can be written."""
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
    drawn = _svg(sheet, layout_of(sheet.drawing))
    kind = f' class="{sheet.kind}"' if sheet.kind else ""
    return f'<section id="{sheet.key}"{outer}{kind}><h2>{heading}</h2>\n{drawn}</section>'


def _svg(sheet: Sheet, layout: Layout) -> str:
    width, height = f"{layout.width:.0f}", f"{layout.height:.0f}"
    arrows = "\n".join(
        f'<path class="arrow" data-from="{_id(sheet, a.source)}" data-to="{_id(sheet, a.target)}" '
        f'd="{_curve(points)}"><title>{escape(a.type)}</title></path>'
        for a, points in zip(sheet.drawing.arrows, layout.paths, strict=True)
    )
    boxes = "\n".join(_box(sheet, box, layout.centres[box.key]) for box in sheet.drawing.boxes)
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


# --- Drawings of graphs ---------------------------------------------------------------------------


_LONGEST = 44  # characters in a box
Kind = Literal["input", "state", "constant", "call", "effect", "output", "part", "outside"]


@dataclass(frozen=True, slots=True)
class Box:
    """One box: `title` and `types` are written in it, `details` on demand.

    inner: the drawings of the graphs its attributes hold, by label. part: the part of the
    user's code that the call belongs to, a layer or a line; "" for other boxes.
    """

    key: str
    kind: Kind
    title: str
    types: str
    details: tuple[str, ...]
    inner: tuple[tuple[str, Drawing], ...] = ()
    part: str = ""


@dataclass(frozen=True, slots=True)
class Arrow:
    """A value that flows from the box `source` to the box `target`."""

    source: str
    target: str
    type: str


@dataclass(frozen=True, slots=True)
class Drawing:
    """The boxes of one graph in topological order, and its arrows."""

    name: str
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]


def graph_of(who: str, what: Any, args: tuple[Any, ...], named: Mapping[str, Any]) -> Graph:
    """The graph, or that of a function for arguments like these; MinimlError for anything else."""
    if isinstance(what, Graph):
        if args or named:
            raise MinimlError(f"{who} got a graph and example arguments; leave the arguments out")
        return what
    if not callable(what):
        got = f"{what!r} of type {type(what).__name__}"
        raise MinimlError(f"{who} got {got}; give a graph, a network or a function")
    if not args and not named and _takes_something(what):
        raise MinimlError(
            f"{who} got {function_name(what)} without example arguments; give the arguments "
            "to call it with, after the rest"
        )
    return trace(what, *args, **named)


def _takes_something(fn: Callable[..., Any]) -> bool:
    """True where a call needs arguments, according to the signature."""
    try:
        signature_of(fn).bind()
    except TypeError:
        return True
    except ValueError:
        return False
    return False


def drawing_of(graph: Graph, prefix: str = "") -> Drawing:
    """The drawing of a graph. Scalar constants are written in the boxes that use them; `prefix`
    makes the keys of a graph inside another one unique."""
    names = Names(graph)
    boxes: list[Box] = []
    maker: dict[Var, str] = {}
    for var, box in _sources(graph, names, prefix):
        boxes.append(box)
        maker[var] = box.key
    arrows: list[Arrow] = []
    for i, node in enumerate(graph.nodes):
        box = _call(node, names, f"{prefix}n{i}")
        boxes.append(box)
        arrows += _arrows(node.inputs, box.key, maker)
        maker.update((v, box.key) for v in node.outputs)
    types = ", ".join(str(v.abstract) for v in graph.outputs)
    shown = ", ".join(names[v] for v in graph.outputs)
    boxes.append(Box(f"{prefix}out", "output", "return", types, (f"return {shown}",)))
    arrows += _arrows(graph.outputs, f"{prefix}out", maker)
    return Drawing(graph.name, tuple(boxes), tuple(arrows))


def _sources(graph: Graph, names: Names, prefix: str) -> Iterator[tuple[Var, Box]]:
    kinds: list[tuple[Var, Kind]] = [(v, "input") for v in graph.inputs]
    kinds += [(v, "state") for _, v in graph.state]
    kinds += [(v, "constant") for v in graph.constants if not is_inline(v)]
    for i, (var, kind) in enumerate(kinds):
        type_ = str(var.abstract)
        details = (f"{kind} {names.typed(var)}",)
        yield var, Box(f"{prefix}{kind[0]}{i}", kind, names[var], type_, details)


def _call(node: Node, names: Names, key: str) -> Box:
    primitive = node.primitive
    scalars = [names[v] for v in node.inputs if is_inline(v)]
    body = primitive.body.name if isinstance(primitive, Fused) else ""
    title = shortened(" ".join(filter(None, [primitive.name, body, *scalars])))
    types = ", ".join(str(v.abstract) for v in node.outputs)
    attributes = tuple(f"{k} = {show(v)}" for k, v in node.attrs.items())
    part, line = _part(node), user_line(node)
    details = (names.node(node), *attributes, *dict.fromkeys(filter(None, [part, line])))
    inner = tuple(
        (label, drawing_of(graph, f"{key}_{i}_"))
        for i, (label, graph) in enumerate(node.subgraphs())
    )
    kind: Kind = "effect" if node.effect != "pure" else "call"
    return Box(key, kind, title, types, details, inner, part)


def _part(node: Node) -> str:
    """`0.dense (Dense)` in a network, else the user's line; gradients are parts of their own."""
    name = (node.where.layer.removeprefix("layer ") if node.where else "") or user_line(node)
    return f"gradient of {name}" if name and node.where and node.where.gradient else name


def _arrows(inputs: tuple[Var, ...], target: str, maker: dict[Var, str]) -> Iterator[Arrow]:
    return (Arrow(maker[v], target, str(v.abstract)) for v in inputs if v in maker)


def shortened(text: str) -> str:
    """A text, cut to the length that a box holds."""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


# --- Folding: one box for each layer, or line -----------------------------------------------------


def fold(drawing: Drawing) -> Drawing:
    """The drawing with one box for each part of the user's code, which holds that part's drawing.

    A part that other parts interrupt is folded in pieces, so that there are no cycles. State and
    constants go with the calls that use them first. A box that would be alone stays as it is.
    """
    return _Fold(drawing).folded()


@dataclass(slots=True)
class _Part:
    """Boxes that are drawn as one; `before` has a bit for each part that they depend on."""

    boxes: list[Box] = field(default_factory=list)
    before: int = 0


class _Fold:
    """The parts of a drawing, found in one walk from the sources down."""

    def __init__(self, drawing: Drawing):
        self.drawing = drawing
        self.boxes = {box.key: box for box in drawing.boxes}
        self.inputs: dict[str, list[str]] = defaultdict(list)
        for arrow in drawing.arrows:
            self.inputs[arrow.target].append(arrow.source)
        self.parts: list[_Part] = []
        self.index: dict[str, int] = {}  # of a box's part, by the box's key
        latest: dict[str, int] = {}
        for box in drawing.boxes:
            if box.kind not in ("state", "constant"):
                latest[box.part] = self._add(box, latest.get(box.part) if box.part else None)
        for box in drawing.boxes:
            if box.key not in self.index:  # nothing uses it
                self._put(box, self._new())

    def _add(self, box: Box, index: int | None) -> int:
        """Put a box, and the state that it uses first, into that part, or into a new one where this
        would make a cycle; returns its index."""
        unused = [s for s in self.inputs[box.key] if s not in self.index]
        if not box.part:
            for source in unused:
                self._put(self.boxes[source], self._new())
        needed = {self.index[s] for s in self.inputs[box.key] if s in self.index}
        if index is None or self._makes_cycle(needed - {index}, index):
            index = self._new()
        for source in unused if box.part else ():
            self._put(self.boxes[source], index)
        self._put(box, index)
        self._depend(index, needed - {index})
        return index

    def _new(self) -> int:
        self.parts.append(_Part())
        return len(self.parts) - 1

    def _put(self, box: Box, index: int) -> None:
        self.parts[index].boxes.append(box)
        self.index[box.key] = index

    def _makes_cycle(self, needed: set[int], index: int) -> bool:
        """True where a part that is needed depends on the part itself."""
        return any(self.parts[i].before >> index & 1 for i in needed)

    def _depend(self, index: int, needed: set[int]) -> None:
        """Add dependencies to the part and to all that depend on it."""
        own = self.parts[index]
        before = own.before
        for i in needed:
            before |= self.parts[i].before | 1 << i
        if before != own.before:
            for part in self.parts:
                if part is own or part.before >> index & 1:
                    part.before |= before

    def folded(self) -> Drawing:
        boxes = [self._box(i) for i in range(len(self.parts))]
        order = sorted(range(len(boxes)), key=lambda i: self.parts[i].before.bit_count())
        types: dict[tuple[str, str], list[str]] = defaultdict(list)
        for arrow in self.drawing.arrows:
            source, target = self.index[arrow.source], self.index[arrow.target]
            if source != target:
                types[boxes[source].key, boxes[target].key].append(arrow.type)
        arrows = [Arrow(*ends, ", ".join(dict.fromkeys(t))) for ends, t in types.items()]
        return Drawing(self.drawing.name, tuple(boxes[i] for i in order), tuple(arrows))

    def _box(self, index: int) -> Box:
        boxes = self.parts[index].boxes
        if len(boxes) == 1:
            return replace(boxes[0], title=shortened(boxes[0].part or boxes[0].title))
        calls = [box for box in boxes if box.part]
        count = "1 call" if len(calls) == 1 else f"{len(calls)} calls"
        kinds = Counter(box.title.split()[0] for box in calls).most_common()
        listed = ", ".join(f"{n} {kind}" if n > 1 else kind for kind, n in kinds)
        state = ", ".join(box.title for box in boxes if box.kind == "state")
        details = (calls[0].part, f"{count}: {listed}", *([f"state: {state}"] if state else []))
        inner = (("", self._inside(index, calls[0].part)),)
        return Box(f"p{index}", "part", shortened(calls[0].part), count, details, inner)

    def _inside(self, index: int, name: str) -> Drawing:
        """The boxes of a part, and those outside that it takes values from or passes values to."""
        sources: dict[str, Box] = {}
        targets: dict[str, Box] = {}
        arrows: dict[Arrow, None] = {}
        for arrow in self.drawing.arrows:
            enters, leaves = (self.index[end] == index for end in (arrow.target, arrow.source))
            if enters and not leaves:
                outside = self._outside(arrow.source, f"p{index}_from_")
                arrow = replace(arrow, source=sources.setdefault(arrow.source, outside).key)
            elif leaves and not enters:
                outside = self._outside(arrow.target, f"p{index}_to_")
                arrow = replace(arrow, target=targets.setdefault(arrow.target, outside).key)
            if enters or leaves:
                arrows[arrow] = None
        boxes = (*sources.values(), *self.parts[index].boxes, *targets.values())
        return Drawing(name, boxes, tuple(arrows))

    def _outside(self, key: str, prefix: str) -> Box:
        box = self.boxes[key]
        return Box(f"{prefix}{key}", "outside", box.title, box.part or box.kind, box.details)


# --- Layout in layers -----------------------------------------------------------------------------


LETTER, BOX_HEIGHT, LAYER_HEIGHT, GAP = 7.3, 42, 70, 22
_SWEEPS = 8
_BEND = 40  # arrows over at most this many layers bend around boxes; longer ones go straight
Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Layout:
    """A layout: the centre of each box by key, the points of each arrow, the whole size."""

    centres: dict[str, Point]
    paths: tuple[tuple[Point, ...], ...]
    width: float
    height: float


def box_width(box: Box) -> float:
    """The width of a box, in pixels, that holds its text."""
    return max(len(box.title), len(box.types), 4) * LETTER + 18


def layout_of(drawing: Drawing) -> Layout:
    """The layout of a drawing, in time linear in its boxes and arrows but for sorting layers.

    After K. Sugiyama, S. Tagawa and M. Toda, "Methods for visual understanding of hierarchical
    system structures" (1981): layers by longest path, then sweeps that bring each box near its
    neighbours.
    """
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
    return Layout({b.key: at[b.key] for b in drawing.boxes}, paths, width, height)


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
    """Set the x of a row in its order, without overlaps, and on average at the ideal ones."""
    edge = float("-inf")
    for key in row:
        x[key] = max(ideal[key], edge + widths[key] / 2)
        edge = x[key] + widths[key] / 2 + GAP
    shift = sum(ideal[k] - x[k] for k in row) / len(row)
    for key in row:
        x[key] += shift
