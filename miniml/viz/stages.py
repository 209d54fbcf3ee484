"""draw: a graph before and after each pass that changes it, as one page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from ..archive import PathLike
from ..backends.registry import NATIVE
from ..graph.ir import Graph, Node
from ..graph.passes import PIPELINE, pipeline, run_stage
from ..graph.passes.rewrite import everywhere
from ..runtime.launch import program_target
from ..runtime.lowering import LOWERING
from ..runtime.lowering.small import WHY, too_small
from ..settings import current
from .drawing import drawing_of, graph_of
from .page import Sheet, counted, write_page


class Stage(NamedTuple):
    """A graph as a pass leaves it; name: of the pass, "traced" before all. note: what else to know
    of it."""

    name: str
    graph: Graph
    note: str = ""


def draw(
    what: Graph | Callable[..., Any],
    *example_args: Any,
    path: PathLike = "graph.html",
    **named: Any,
) -> Path:
    """Write a page that shows what compiling makes of a graph, or of a network, a training step or
    another function traced for arguments like the examples; returns its path.

    It has a drawing for the graph as it is traced and one for each pass that changes it, in the
    order in which they run under these settings; passes that change nothing are listed. What a pass
    makes or changes is green, what the next one replaces is dashed and red; the keys n and p go on
    and back. Fused groups and loops open. All else is as in `viz.to_html`, which draws one graph.
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
    """The graph, then what each pass makes of it that a program for the device would run."""
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
    """The nodes of a graph that another one has not, or on other inputs, in their order."""
    makers = other.makers()

    def known(node: Node) -> bool:
        same = makers.get(node.outputs[0])
        return same is not None and (same.primitive, same.inputs) == (node.primitive, node.inputs)

    return {n: None for n in graph.nodes if not (n.outputs and known(n))}


def _changed(before: Graph, after: Graph) -> bool:
    """True where a pass has changed a call, or what is returned; not for a constant dropped."""
    calls = new_in(before, after) or new_in(after, before)
    return bool(calls) or before.outputs != after.outputs


def _kinds(nodes: Iterable[Node]) -> str:
    """How many of which primitives, the most frequent first."""
    kinds = Counter(n.primitive.name for n in nodes).most_common()
    return escape(", ".join(f"{count} {kind}" if count > 1 else kind for kind, count in kinds))


def _title(stage: Stage) -> str:
    return "as traced" if stage.name == "traced" else f"after {stage.name}"


def _tab(stage: Stage, key: str | None) -> str:
    name = escape(stage.name)
    if key is None:
        return f'<span class="same" title="changes nothing here">{name}</span>'
    return f'<a href="#{key}">{name}</a>'
