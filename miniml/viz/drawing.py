"""Boxes and arrows: what every picture of a graph shows, before it has a format."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ..attributes import show
from ..errors import MinimlError
from ..graph.function import function_name, trace
from ..graph.ir import Graph, Node, Var
from ..graph.names import signature_of
from ..graph.printer import Names, is_inline, user_line
from ..ops.control import Fused

_LONGEST = 44  # letters in a box

Kind = Literal["input", "state", "constant", "call", "effect", "output", "part", "outside"]


@dataclass(frozen=True, slots=True)
class Box:
    """One box: `title` and `types` are written in it, `details` on demand.

    inner: the drawings of the graphs its attributes hold, by label. part: what of the user's code
    the call belongs to, a layer or a line; "" for what is no call.
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
    """The boxes of one graph, every one after those it depends on, and its arrows."""

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
    """True where a call needs arguments, as far as the signature tells."""
    try:
        signature_of(fn).bind()
    except TypeError:
        return True
    except ValueError:
        return False
    return False


def drawing_of(graph: Graph, prefix: str = "") -> Drawing:
    """The drawing of a graph. Scalar constants stand in the boxes that use them; `prefix` keeps
    the keys of a graph inside another apart."""
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
    kind: Kind = "effect" if primitive.effect == "state" else "call"
    return Box(key, kind, title, types, details, inner, part)


def _part(node: Node) -> str:
    """`0.dense (Dense)` in a network, else the user's line; gradients are parts of their own."""
    name = (node.where.layer.removeprefix("layer ") if node.where else "") or user_line(node)
    return f"gradient of {name}" if name and node.where and node.where.gradient else name


def _arrows(inputs: tuple[Var, ...], target: str, maker: dict[Var, str]) -> Iterator[Arrow]:
    return (Arrow(maker[v], target, str(v.abstract)) for v in inputs if v in maker)


def shortened(text: str) -> str:
    """A text, cut to what a box holds."""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
