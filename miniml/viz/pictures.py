"""Pictures of networks: `draw`, a graph before and after each pass that changes it, as one page.

Then activations and gradients of a network, and drawings in Mermaid and DOT; figures of
matplotlib for the numbers inside a network: `figure.savefig("x.png")`; and callbacks that show a
run of `Model.fit` while it goes on, in a notebook or in TensorBoard.
"""

from __future__ import annotations

import math
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from html import escape
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import optree

from ..backends.registry import NATIVE
from ..core.errors import MinimlError
from ..core.files import PathLike
from ..core.hints import optional
from ..core.options import number
from ..core.parameter import logged
from ..core.settings import PYNATIVE_MODE, context, current
from ..core.tensor import Array, Tensor
from ..grad import value_and_grad
from ..graph.ir import Graph, Node
from ..graph.passes import PIPELINE, pipeline, run_stage
from ..graph.passes.rewrite import everywhere
from ..nn import Cell
from ..runtime.launch import program_target
from ..runtime.lowering import LOWERING
from ..runtime.program import WHY, too_small
from ..train.callbacks import Callback, Run, numbers
from ..train.metrics import Row
from .page import Box, Drawing, Sheet, counted, drawing_of, graph_of, write_page

Named = dict[str, Array]


class Stage(NamedTuple):
    """A graph after a pass; name: that of the pass, "traced" before all. note: a remark on it."""

    name: str
    graph: Graph
    note: str = ""


def draw(
    what: Graph | Callable[..., Any],
    *example_args: Any,
    path: PathLike = "graph.html",
    **named: Any,
) -> Path:
    """Write a page that shows how compilation transforms a graph, or that of a network, a training
    step or another function traced for arguments like the examples; returns its path.

    It has a drawing for the graph as it is traced and one for each pass that changes it, in the
    order in which they run under these settings; passes that change nothing are listed. Calls
    that a pass makes or changes are green, those that the next one replaces dashed and red; the
    keys n and p go on and back. Fused groups and loops open. All else is as in `viz.to_html`, which
    draws one graph.
    """
    graph = graph_of("draw", what, example_args, named)
    found = [*stages(graph, current().device_target)]
    changing = [s for i, s in enumerate(found) if i == 0 or s.graph is not found[i - 1].graph]
    sheets = [_sheet(i, changing) for i in range(len(changing))]
    keys = {id(stage): sheet.key for stage, sheet in zip(changing, sheets, strict=True)}
    tabs = "".join(_tab(stage, keys.get(id(stage))) for stage in found)
    text = "\n\n".join(f"# {_title(stage)}\n{stage.graph}" for stage in changing)
    return write_page(path, f"{graph.name}, pass by pass", tabs, sheets, text)


def stages(graph: Graph, device: str) -> Iterator[Stage]:
    """The graph as traced, then after each pass that a program for the device would run."""
    settings, target = current(), program_target(device)
    found = [Stage("traced", graph)]

    def recorded(stage: Any, apply: Callable[[Any, Graph], Graph]) -> Callable[[Any, Graph], Graph]:
        names = {fn: name for name, fn in pipeline(stage)}

        def run(fn: Any, before: Graph) -> Graph:
            after = apply(fn, before)
            found.append(Stage(names[fn], after if _changed(before, after) else found[-1].graph))
            return after

        return run

    passed = run_stage(
        PIPELINE, recorded(PIPELINE, everywhere), graph, settings.disabled_passes, False
    )
    if not settings.providers and too_small(passed, target):
        target = target.without(NATIVE)
        found[-1] = found[-1]._replace(note=WHY)
    lowered = recorded(LOWERING, lambda fn, before: fn(before, target))
    run_stage(LOWERING, lowered, passed, settings.disabled_passes, False)
    yield from found


def _sheet(i: int, changing: Sequence[Stage]) -> Sheet:
    stage = changing[i]
    before, after = changing[max(i - 1, 0)], changing[min(i + 1, len(changing) - 1)]
    made, goes = new_in(stage.graph, before.graph), new_in(stage.graph, after.graph)
    classes = {n: " ".join(["made"] * (n in made) + ["goes"] * (n in goes)) for n in made | goes}
    parts = [escape(f"{_title(stage)}: {counted(stage.graph)}"), escape(stage.note)]
    for kind, says, nodes in (
        ("made", "made or changed", made),
        ("", "dropped or replaced", new_in(before.graph, stage.graph)),
        ("goes", f"dropped or replaced next, by {after.name}", goes),
    ):
        parts.append(f'<span class="{kind}">{escape(says)}: {_kinds(nodes)}</span>' * bool(nodes))
    return Sheet(
        f"stage{i}",
        stage.name,
        drawing_of(stage.graph),
        heading="; ".join(filter(None, parts)),
        marks={f"n{k}": classes.get(n, "") for k, n in enumerate(stage.graph.nodes)},
        kind="stage",
    )


def new_in(graph: Graph, other: Graph) -> dict[Node, None]:
    """The nodes of a graph that another one lacks, or has with other inputs, in their order."""
    makers = other.makers()

    def known(node: Node) -> bool:
        same = makers.get(node.outputs[0])
        return same is not None and (same.primitive, same.inputs) == (node.primitive, node.inputs)

    return {n: None for n in graph.nodes if not (n.outputs and known(n))}


def _changed(before: Graph, after: Graph) -> bool:
    """True where a pass has changed a call or an output; dropped constants do not count."""
    calls = new_in(before, after) or new_in(after, before)
    return bool(calls) or before.outputs != after.outputs


def _kinds(nodes: Iterable[Node]) -> str:
    """The primitives and their counts, the most frequent first."""
    kinds = Counter(n.primitive.name for n in nodes).most_common()
    return escape(", ".join(f"{count} {kind}" if count > 1 else kind for kind, count in kinds))


def _title(stage: Stage) -> str:
    return "as traced" if stage.name == "traced" else f"after {stage.name}"


def _tab(stage: Stage, key: str | None) -> str:
    name = escape(stage.name)
    if key is None:
        return f'<span class="same" title="changes nothing here">{name}</span>'
    return f'<a href="#{key}">{name}</a>'


# --- Activations and gradients --------------------------------------------------------------------


def activations(net: Cell, *inputs: Any) -> Named:
    """The outputs of each leaf layer in one call of the net, by "path (Class)".

    Runs op by op, in the net's mode; parameters and random stream are as before. A layer that is
    called again, or returns several tensors, has an entry for each, with a number: "0 (GRU) 2".
    MinimlError for anything but a network.
    """
    _check_net("activations", net)
    found: dict[str, list[Array]] = {}
    with ExitStack() as hooks, _unchanged():
        for prefix, cell in net._walk("", set()):
            if not any(isinstance(value, Cell) for value in vars(cell).values()):
                name = " ".join(filter(None, [prefix[:-1], f"({type(cell).__name__})"]))
                handle = cell.register_forward_hook(_noting(found.setdefault(name, [])))
                hooks.callback(handle.remove)
        net(*inputs)
    return {
        name if i == 0 else f"{name} {i + 1}": array
        for name, arrays in found.items()
        for i, array in enumerate(arrays)
    }


def gradients(net: Cell, loss: Callable[..., Any], x: Any, *labels: Any) -> Named:
    """The gradient of loss(net(x), *labels), as a training step takes it, by each of the trainable
    parameters: by name. Parameters, running statistics and random stream are as before.
    MinimlError for a loss that is no function."""
    _check_net("gradients", net)
    if not callable(loss):
        raise MinimlError(
            f"gradients got {type(loss).__name__} for the loss; it takes net, loss, x, *labels"
        )
    trained = {name: p for name, p in net.parameters_dict().items() if p.requires_grad}

    def value(*given: Any) -> Any:
        out = loss(net(*given), *labels)
        return out[0] if isinstance(out, tuple) else out

    with _unchanged():
        given = x if type(x) is tuple else (x,)
        _, found = value_and_grad(value, argnums=None, weights=trained)(*given)
    return {name: gradient.asnumpy() for name, gradient in found.items()}


def _check_net(who: str, net: object) -> None:
    if not isinstance(net, Cell):
        raise MinimlError(f"{who} got {net!r} of type {type(net).__name__}; give a network")


class _unchanged(ExitStack):
    """A block in which calls run op by op, and after which parameters are as before it."""

    def __enter__(self) -> _unchanged:
        super().__enter__()
        log = self.enter_context(logged())
        self.callback(log.restore)
        self.enter_context(context(mode=PYNATIVE_MODE, jit=False))
        return self


def _noting(found: list[Array]) -> Callable[..., None]:
    def note(cell: Any, inputs: Any, output: Any) -> None:
        leaves = [x for x in optree.tree_leaves(output) if isinstance(x, Tensor)]
        found.extend(np.asarray(x.asnumpy()) for x in leaves)

    return note


# --- Mermaid and DOT ------------------------------------------------------------------------------


_MERMAID_SHAPES = {
    "input": ("([", "])"),
    "state": ("[(", ")]"),
    "constant": ("[/", "/]"),
    "call": ("[", "]"),
    "effect": ("[[", "]]"),
    "output": ("([", "])"),
}
_DOT_STYLES = {
    "input": "shape=oval",
    "state": "shape=cylinder",
    "constant": "shape=note",
    "call": "shape=box, style=rounded",
    "effect": "shape=box, peripheries=2",
    "output": "shape=oval",
}


def to_mermaid(what: Graph | Callable[..., Any], *example_args: Any, **named: Any) -> str:
    """A Mermaid flowchart, which GitHub and notebooks show as a picture, of a graph, or of a
    network or function traced for arguments like the examples."""
    graph = graph_of("to_mermaid", what, example_args, named)
    return "\n".join(["flowchart TD", *_mermaid(drawing_of(graph), "  ")])


def to_dot(what: Graph | Callable[..., Any], *example_args: Any, **named: Any) -> str:
    """The graph, as in `to_mermaid`, in DOT, for Graphviz: `dot -Tsvg graph.dot -o graph.svg`."""
    graph = graph_of("to_dot", what, example_args, named)
    head = [
        f"digraph {_quoted(graph.name)} {{",
        "  compound=true;",
        '  node [fontname="monospace"];',
    ]
    return "\n".join([*head, *_dot(drawing_of(graph), "  "), "}"])


def _mermaid(drawing: Drawing, indent: str) -> Iterator[str]:
    for box in drawing.boxes:
        left, right = _MERMAID_SHAPES[box.kind]
        yield f"{indent}{box.key}{left}{_mermaid_label(box)}{right}"
        for i, (label, inner) in enumerate(box.inner):
            name = f"{box.key}_{i}"
            yield f'{indent}subgraph {name}["{_escaped(label)}: {_escaped(inner.name)}"]'
            yield from _mermaid(inner, indent + "  ")
            yield f"{indent}end"
            yield f"{indent}{box.key} -.- {name}"
    for arrow in drawing.arrows:
        yield f'{indent}{arrow.source} -->|"{arrow.type}"| {arrow.target}'


def _mermaid_label(box: Box) -> str:
    types = f"<br/>{_escaped(box.types)}" if box.types else ""
    return f'"{_escaped(box.title)}{types}"'


def _escaped(text: str) -> str:
    """The text for a quoted Mermaid label, where # starts an entity."""
    for sign, entity in (("#", "#35;"), ('"', "#quot;"), ("<", "#lt;"), (">", "#gt;")):
        text = text.replace(sign, entity)
    return text


def _dot(drawing: Drawing, indent: str) -> Iterator[str]:
    for box in drawing.boxes:
        label = _quoted("\n".join(filter(None, [box.title, box.types])))
        tip = _quoted("\n".join(box.details))
        yield f"{indent}{box.key} [label={label}, tooltip={tip}, {_DOT_STYLES[box.kind]}];"
        for i, (name, inner) in enumerate(box.inner):
            cluster = f"cluster_{box.key}_{i}"
            yield f"{indent}subgraph {cluster} {{"
            yield f"{indent}  label={_quoted(f'{name}: {inner.name}')};"
            yield from _dot(inner, indent + "  ")
            yield f"{indent}}}"
            ends = f"style=dashed, arrowhead=none, lhead={cluster}"
            yield f"{indent}{box.key} -> {inner.boxes[0].key} [{ends}];"
    for arrow in drawing.arrows:
        yield f"{indent}{arrow.source} -> {arrow.target} [label={_quoted(arrow.type)}];"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


# --- Figures of matplotlib ------------------------------------------------------------------------

_PANELS = 48
_ANNOTATED = 20  # classes; in a matrix of more the numbers are too small to read
_INK, _MAIN, _ALARM = "0.25", "C0", "C3"


def histograms(values: Mapping[str, Any], title: str = "Activations") -> Any:
    """A histogram of each array, such as those of `activations` or `gradients`: a figure.

    Each gives mean and standard deviation, the share of zeros, and the count of numbers that are
    not finite, which it leaves out. MinimlError for more than 48 arrays, or none.
    """
    _check_named("histograms", values, "viz.activations(net, x)")
    if not 0 < len(values) <= _PANELS:
        raise MinimlError(
            f"histograms got {len(values)} arrays; give 1 to {_PANELS}, picked by their names"
        )
    columns = min(4, len(values))
    rows = math.ceil(len(values) / columns)
    figure = new_figure(3.2 * columns, 2.3 * rows + 0.5)
    figure.suptitle(title)
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, (name, array) in zip(panels, values.items(), strict=False):
        _histogram(axes, name, np.asarray(array, np.float64).ravel())
    for axes in panels[len(values) :]:
        axes.axis("off")
    for axes in panels[::columns]:
        axes.set_ylabel("count")
    return figure


def _histogram(axes: Any, name: str, numbers: Array) -> None:
    finite = numbers[np.isfinite(numbers)]
    lost = numbers.size - finite.size
    axes.set_title(f"{name}: {lost} not finite" if lost else name, fontsize=9)
    axes.title.set_color(_ALARM if lost else _INK)
    axes.set_xlabel(_described(finite), fontsize=8)
    if finite.size:
        axes.hist(finite, bins=_edges(finite), color=_MAIN)
    _plain(axes)


def _edges(numbers: Array) -> Array:
    """Edges of bins; of a single one around the numbers if they are too close for more."""
    low, high = numbers.min(), numbers.max()
    edges = np.unique(np.linspace(low, high, min(40, max(5, numbers.size // 4)) + 1))
    return edges if edges.size > 1 else low + np.array([-0.5, 0.5]) * max(1.0, abs(low))


def _check_named(who: str, values: object, gives: str) -> None:
    if not isinstance(values, Mapping):
        raise MinimlError(f"{who} got {type(values).__name__}; give a dict, as {gives} does")


def _described(numbers: Array) -> str:
    if not numbers.size:
        return "no finite number"
    zeros = (numbers == 0).mean()
    spread = f"mean {numbers.mean():.3g}, deviation {numbers.std():.3g}"
    return f"{spread}\n{zeros:.0%} are 0" if zeros else spread


def gradient_flow(gradients: Mapping[str, Any]) -> Any:
    """The size of each gradient, in the order of the parameters: a figure of its mean and largest
    absolute value on a logarithmic axis. One without a number above 0, or not finite, says so.

    gradients: as `viz.gradients` gives them. MinimlError for none.
    """
    _check_named("gradient_flow", gradients, "viz.gradients(net, loss, x, y)")
    if not gradients:
        raise MinimlError("gradient_flow got no gradients; give those of trainable parameters")
    sizes = {name: np.abs(np.asarray(g, np.float64)).ravel() for name, g in gradients.items()}
    figure = new_figure(8, 1.4 + 0.3 * len(sizes))
    axes, rows = figure.subplots(), range(len(sizes))
    means, largest = ([_reduced(f, s) for s in sizes.values()] for f in (np.mean, np.max))
    shown = np.maximum([m for m in (*means, *largest) if m > 0] or [1.0], 1e-300)
    low, high = 10.0 ** math.floor(math.log10(min(shown))) / 10, max(shown) * 2
    axes.set(xlim=(low, high), xscale="log")  # before the bars, which may set none
    axes.barh(rows, largest, color=_MAIN, alpha=0.35, label="largest")
    axes.barh(rows, means, color=_MAIN, height=0.5, label="mean")
    for row, (mean, size) in enumerate(zip(means, sizes.values(), strict=True)):
        if not mean > 0:
            why = "is 0" if np.isfinite(size).all() else "not finite"
            axes.text(low * 1.2, row, why, color=_ALARM, va="center", fontsize=9)
    axes.set(ylim=(len(sizes) - 0.4, -0.6))
    axes.set_yticks(rows, sizes)
    axes.set(title="Gradient flow, first parameter on top", xlabel="absolute value of the gradient")
    axes.legend(
        frameon=False,
        loc="upper center",
        bbox_to_anchor=(0.5, -0.45 / figure.get_figheight()),
        ncols=2,
    )
    _plain(axes)
    return figure


def _reduced(reduce: Any, size: Array) -> float:
    """The mean or maximum; 0, which a logarithmic axis does not show, if it is not finite."""
    return float(reduce(size)) if size.size and np.isfinite(size).all() else 0.0


def feature_maps(maps: Any, title: str = "Feature maps") -> Any:
    """Images (channels, H, W), the output of a layer for one input, or its filters: a figure with a
    panel for each channel, all in one scale. Of more than 64 channels it shows the first.

    MinimlError for another number of axes, or none of it finite.
    """
    images = np.asarray(maps, np.float64)
    if images.ndim != 3 or not images.size or not np.isfinite(images).any():
        raise MinimlError(
            f"feature_maps got shape {images.shape}; give the images (channels, H, W) of one input,"
            ' such as activations(net, x)["0 (Conv2d)"][0], with finite numbers'
        )
    shown = images[:64]
    columns = math.ceil(math.sqrt(len(shown) * 1.6))
    rows = math.ceil(len(shown) / columns)
    figure = new_figure(1.1 * columns + 1, 1.25 * rows + 0.6)
    more = f", the first {len(shown)} of {len(images)}" if len(images) > len(shown) else ""
    figure.suptitle(f"{title}: {images.shape[1]} x {images.shape[2]}{more}")
    finite = images[np.isfinite(images)]
    scale = {"vmin": finite.min(), "vmax": finite.max(), "cmap": "viridis"}
    panels = figure.subplots(rows, columns, squeeze=False)
    for axes in panels.ravel():
        axes.axis("off")
    for i, (axes, image) in enumerate(zip(panels.ravel(), shown, strict=False)):
        drawn = axes.imshow(image, **scale)
        axes.set_title(str(i), fontsize=8, pad=2)
    figure.colorbar(drawn, ax=panels, fraction=0.03, label="value")
    return figure


def confusion_matrix(counts: Any, names: Sequence[str] | None = None) -> Any:
    """The number of samples of class i predicted as class j, counts[i, j]: a figure, coloured by
    the share of the row, with the counts for up to 20 classes.

    counts: (classes, classes), as the metric `train.confusion_matrix` gives. names: of the classes.
    MinimlError for another shape, negative counts, or another number of names.
    """
    table = np.asarray(counts)
    names = [*map(str, names if names is not None else range(math.isqrt(table.size)))]
    if (
        table.ndim != 2
        or table.shape != (len(names), len(names))
        or not table.size
        or not (np.isfinite(table) & (table >= 0)).all()
    ):
        raise MinimlError(
            f"confusion_matrix got shape {table.shape} and {len(names)} names; give counts of shape"
            " (classes, classes), none below 0, and a name for each class"
        )
    side = 2.5 + 0.42 * min(len(table), 2 * _ANNOTATED)
    figure = new_figure(side + 1, side)
    axes, rows = figure.subplots(), table.sum(1, keepdims=True)
    shares = table / np.maximum(rows, 1)
    drawn = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    figure.colorbar(drawn, ax=axes, label="share of the true class", fraction=0.046)
    if len(table) <= _ANNOTATED:
        for (i, j), count in np.ndenumerate(table):
            ink = "white" if shares[i, j] > 0.5 else _INK
            axes.text(
                j, i, f"{count:,}" if count else "", ha="center", va="center", color=ink, fontsize=8
            )
    right = np.trace(table) / max(table.sum(), 1)
    axes.set(title=f"{right:.1%} of {table.sum():,} are right", xlabel="predicted", ylabel="true")
    slanted = max(map(len, names)) > 3
    axes.set_xticks(
        range(len(names)), names, rotation=45 if slanted else 0, ha="right" if slanted else "center"
    )
    axes.set_yticks(range(len(names)), names)
    return figure


def new_figure(width: float, height: float) -> Any:
    """An empty figure, inches wide and high; MinimlError where matplotlib is not installed."""
    who = "the picture is drawn with"
    figures = optional(who, "matplotlib", "demo", "matplotlib.figure")
    figure: Any = figures.Figure(figsize=(width, height), layout="constrained")
    optional(who, "matplotlib", "demo", "matplotlib.backends.backend_agg").FigureCanvasAgg(figure)
    figure._repr_png_ = partial(_png, figure)  # else only notebooks that use pyplot show it
    return figure


def _png(figure: Any) -> bytes:
    written = BytesIO()
    figure.savefig(written, format="png")
    return written.getvalue()


def _plain(axes: Any) -> None:
    axes.grid(alpha=0.3)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)


# --- Curves in a notebook -------------------------------------------------------------------------


_SHARE = 0.05  # the largest share of the time spent on pictures


class LivePlot(Callback):
    """One picture below the cell of a notebook, redrawn every `seconds` at most: the loss
    by steps and, for the loss and each metric, training and validation by epochs.

    Outside of a notebook it says so, once, and does nothing. MinimlError where matplotlib is not
    installed.
    """

    rank_0_only = True

    def __init__(self, seconds: float = 1.0) -> None:
        figures = optional("LivePlot draws with", "matplotlib", "demo", "matplotlib.figure")
        self.seconds, self._figure = number("LivePlot", "seconds", seconds, 0), figures.Figure
        self._show: Any = None  # IPython's display; None outside of a notebook
        self._handle: Any = None
        self._steps: list[tuple[int, float]] = []
        self._epochs: dict[str, list[tuple[int, float]]] = {}
        self._due = 0.0

    def on_start(self, run: Run) -> None:
        self._steps, self._epochs, self._handle, self._due = [], {}, None, 0.0
        self._show = _notebook_display()
        if self._show is None:
            print("LivePlot draws in notebooks only; here it does nothing", flush=True)

    def on_steps(self, run: Run, losses: Sequence[float]) -> None:
        self._steps.append((run.steps, sum(losses) / len(losses)))
        self._draw_if_due()

    def on_epoch(self, run: Run, row: Row) -> None:
        for name, value in numbers(row).items():
            self._epochs.setdefault(name, []).append((run.steps, value))
        self._draw_if_due()

    def on_end(self, run: Run) -> None:
        if self._steps:
            self._draw()

    def _draw_if_due(self) -> None:
        if time.perf_counter() >= self._due:
            began = time.perf_counter()
            self._draw()
            now = time.perf_counter()
            self._due = now + max(self.seconds, (now - began) / _SHARE)

    def _draw(self) -> None:
        if self._show is None:
            return
        from IPython.display import Image

        picture: Any = Image(data=self.picture(), format="png")  # type: ignore[no-untyped-call]
        if self._handle is None:
            self._handle = self._show(picture, display_id=True)
        else:
            self._handle.update(picture)

    def picture(self) -> bytes:
        """The curves as they are now, as a PNG."""
        names = [n for n in self._epochs if not n.startswith("val_") and n != "seconds"] or ["loss"]
        figure = self._figure(figsize=(4.5 * len(names), 3.2), layout="constrained")
        for axes, name in zip(figure.subplots(1, len(names), squeeze=False)[0], names, strict=True):
            if name == "loss":
                axes.plot(*zip(*self._steps, strict=True), color="0.75", label="steps")
            for key, label in ((name, "training"), (f"val_{name}", "validation")):
                if key in self._epochs:
                    axes.plot(
                        *zip(*self._epochs[key], strict=True), "o-", markersize=3, label=label
                    )
            axes.set(title=name, xlabel="step")
            axes.grid(alpha=0.3)
            axes.legend(frameon=False)
        data = BytesIO()
        figure.savefig(data, format="png", dpi=80)
        return data.getvalue()


def _notebook_display() -> Any:
    """IPython's `display` in a notebook, else None."""
    if "IPython" not in sys.modules:
        return None
    import IPython
    from IPython.display import display

    return display if getattr(IPython.get_ipython(), "kernel", None) is not None else None


# --- TensorBoard ----------------------------------------------------------------------------------


class TensorBoard(Callback):
    """Writes event files to a folder; `tensorboard --logdir FOLDER` shows them.

    "step/loss" and "step/lr" a few times a second, and after each epoch "epoch/" and the name of
    each number of its row; all by the number of steps. A resumed run replaces what was
    written after the step from which it resumes. MinimlError where tensorboardX is not installed.
    """

    rank_0_only = True

    def __init__(self, folder: PathLike) -> None:
        who = "TensorBoard writes event files with"
        self.folder = Path(folder)
        self._open = optional(who, "tensorboardX", "tensorboard").SummaryWriter
        self._writer: Any = None

    def on_start(self, run: Run) -> None:
        # File names hold whole seconds: a second run within the same one would replace the first's.
        mark = f".{time.time_ns()}"
        self._writer = self._open(str(self.folder), purge_step=run.steps + 1, filename_suffix=mark)

    def on_steps(self, run: Run, losses: Sequence[float]) -> None:
        mean = sum(losses) / len(losses)
        self._write(run, "step", {"loss": mean, "lr": float(run.model.optimizer.lr)})

    def on_epoch(self, run: Run, row: Row) -> None:
        self._write(run, "epoch", numbers(row))
        self._writer.flush()

    def on_end(self, run: Run) -> None:
        if self._writer is not None:
            self._writer.close()
        self._writer = None

    def _write(self, run: Run, about: str, values: Row) -> None:
        for name, value in values.items():
            self._writer.add_scalar(f"{about}/{name}", value, run.steps)
