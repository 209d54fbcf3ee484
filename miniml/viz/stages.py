"""draw: a graph before and after each pass that changes it, as one page.

Then activations and gradients of a network, and drawings in Mermaid and DOT.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import optree

from ..backends.registry import NATIVE
from ..core.errors import MinimlError
from ..core.files import PathLike
from ..core.parameter import logged
from ..core.settings import PYNATIVE_MODE, context, current
from ..core.tensor import Array, Tensor
from ..grad import value_and_grad
from ..graph.ir import Graph, Node
from ..graph.passes import PIPELINE, pipeline, run_stage
from ..graph.passes.rewrite import everywhere
from ..nn import Cell
from ..runtime.launch import program_target
from ..runtime.lowering import LOWERING, WHY, too_small
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
