"""Drawings in the languages of other programs: Mermaid and DOT."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ..graph.ir import Graph
from .drawing import Box, Drawing, drawing_of, graph_of

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
    """The same in DOT, for Graphviz: `dot -Tsvg graph.dot -o graph.svg`."""
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
