"""Which passes run, in which order, and how users insert their own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple

from ... import epoch
from ...errors import DuplicateError, GraphError
from ..ir import Graph, Var
from ..state import versions
from ..verify import verify
from .fold import fold
from .lookups import lookups
from .loops import loops
from .prune import prune
from .rewrite import everywhere
from .scale import scale
from .share import share
from .simplify import simplify
from .stack import stack


class Pass(NamedTuple):
    """A named function from graph to graph. It gets one level at a time: the graphs inside
    attributes go through it on their own, before the enclosing graph. Passes of LOWERING get the
    target as well, and the graphs inside attributes when these are compiled."""

    name: str
    fn: Callable[..., Graph]


class UserPass(NamedTuple):
    """A pass registered by a user, and where it runs."""

    entry: Pass
    position: str


PIPELINE = (
    Pass("fold", fold),
    Pass("share", share),
    Pass("loops", loops),
    Pass("simplify", simplify),
    Pass("scale", scale),
    Pass("stack", stack),
    Pass("lookups", lookups),
    Pass("prune", prune),
)

Stage = tuple[Pass, ...]
_stages: list[Stage] = [PIPELINE]
_registered: dict[str, UserPass] = {}


def add_stage(stage: Stage) -> Stage:
    """Add a stage of built-in passes, which runs after the earlier stages; users' passes may join
    it."""
    _stages.append(stage)
    return stage


def run_passes(graph: Graph, disabled: Collection[str] = (), verified: bool = False) -> Graph:
    """The graph after every pass of `pipeline()` but those whose names are in `disabled`.

    verified: after each pass, check the graph, and that inputs, outputs and effects are the same
    as before. GraphError names the pass that broke a rule, or a disabled name that is not a pass.
    """
    return run_stage(PIPELINE, everywhere, graph, disabled, verified)


def run_stage(
    stage: Stage,
    apply: Callable[[Callable[..., Graph], Graph], Graph],
    graph: Graph,
    disabled: Collection[str],
    verified: bool,
) -> Graph:
    """The same for the passes of any stage. apply: from a pass's function and a graph to the new
    graph."""
    if disabled:
        _check_disabled(disabled)
    for name, fn in pipeline(stage):
        if name in disabled:
            continue
        changed = apply(fn, graph)
        if not isinstance(changed, Graph):
            raise GraphError(f"pass {name!r} returned {changed!r}; a pass returns a Graph")
        if verified:
            _check(name, graph, changed)
        graph = changed
    return graph


def _check_disabled(disabled: Collection[str]) -> None:
    names = [p.name for stage in _stages for p in pipeline(stage)]
    unknown = set(disabled) - set(names)
    if unknown:
        raise GraphError(
            f"disabled_passes names {', '.join(sorted(unknown))}; the passes are {', '.join(names)}"
        )


def register_pass(name: str, fn: Callable[..., Graph], position: str = "end") -> None:
    """Run `fn` on every graph that is compiled from now on.

    position: "begin", "end", or "before:" or "after:" one of the built-in passes; passes with one
    position run in the order of registration. Beside a pass of LOWERING it is fn(graph, target).
    The same function registered again (a notebook cell run twice) replaces the first;
    DuplicateError for another of the same name.
    """
    positions = ["begin", *(p for stage in _stages for p in _positions(stage)), "end"]
    if position not in positions:
        raise GraphError(f"pass position {position!r} is unknown; use {', '.join(positions)}")
    other = _registered.get(name)
    built_in = any(p.name == name for stage in _stages for p in stage)
    if built_in or (other is not None and _author(other.entry.fn) != _author(fn)):
        raise DuplicateError(f"there is a pass {name!r} already; use another name")
    _registered[name] = UserPass(Pass(name, fn), position)
    epoch.bump("passes")


def unregister_pass(name: str) -> None:
    """Take a registered pass back; nothing happens if there is none of that name."""
    _registered.pop(name, None)
    epoch.bump("passes")


def pipeline(stage: Stage = PIPELINE) -> Stage:
    """All passes of a stage, users' included, in the order in which they run."""
    if not _registered:
        return stage
    return tuple(_in_order(stage))


def _in_order(stage: Stage) -> Iterator[Pass]:
    if stage is PIPELINE:
        yield from _at("begin")
    for built_in in stage:
        yield from _at(f"before:{built_in.name}")
        yield built_in
        yield from _at(f"after:{built_in.name}")
    if stage is PIPELINE:
        yield from _at("end")


def _positions(stage: Stage) -> Iterator[str]:
    return (f"{side}:{p.name}" for p in stage for side in ("before", "after"))


def _at(position: str) -> Iterator[Pass]:
    return (user.entry for user in list(_registered.values()) if user.position == position)


def _author(fn: object) -> tuple[object, object]:
    return getattr(fn, "__module__", None), getattr(fn, "__qualname__", fn)


def _check(name: str, before: Graph, after: Graph) -> None:
    try:
        verify(after)
        for what, find in _KEPT.items():
            if find(before) != find(after):
                raise GraphError(f"graph {after.name!r} has other {what} than before")
    except GraphError as error:
        broken = GraphError(f"pass {name!r} broke a rule of graphs: {error}")
        broken.__notes__ = list(error.__notes__)  # of the node, not the runner
        raise broken from error


def _types(variables: Sequence[Var]) -> tuple[str, ...]:
    return tuple(str(v.abstract) for v in variables)


def _effects(graph: Graph) -> list[tuple[object, ...]]:
    """The nodes with an effect, in order: which primitive writes which parameter."""
    writes = versions(graph).writes
    kept = (n for n in graph.nodes if n.primitive.effect != "pure")
    return [(n.primitive, n.consts, id(writes.get(n))) for n in kept]


_KEPT: dict[str, Callable[[Graph], object]] = {
    "inputs": lambda graph: _types(graph.inputs),
    "outputs": lambda graph: _types(graph.outputs),
    "effects": _effects,
}
