"""Pass pipeline: the passes, their order, and the registration of users' passes and rules."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator
from typing import Any, NamedTuple

from ...core import epoch
from ...core.errors import DeclarationError, DuplicateError, GraphError
from ..ir import Graph
from .batch_products import lookups, slices, stack
from .loops import loops
from .rewrite import check, everywhere, fold, prune, share
from .rules import rule
from .simplify import by_kind, rewritten, scale, simplify


class Pass(NamedTuple):
    """A named function from graph to graph. It gets one level at a time: the graphs inside
    attributes go through it on their own, before the enclosing graph. Passes of LOWERING get the
    target as well, and the graphs inside attributes when these are compiled."""

    name: str
    fn: Callable[..., Graph]


class UserPass(NamedTuple):
    """A pass registered by a user. author: tells a notebook cell that is run again from another
    pass of the same name. pairs: it takes the target as well."""

    entry: Pass
    author: object
    pairs: bool


PIPELINE = (
    Pass("fold", fold),
    Pass("share", share),
    Pass("loops", loops),
    Pass("simplify", simplify),
    Pass("scale", scale),
    Pass("slices", slices),
    Pass("stack", stack),
    Pass("lookups", lookups),
    Pass("prune", prune),
)

Stage = tuple[Pass, ...]
_stages: list[Stage] = [PIPELINE]
_registered: dict[str, UserPass] = {}
_scheduled: dict[str, list[str]] = {}  # names of passes by position, in the order in which they run


def add_stage(stage: Stage) -> Stage:
    """Add a stage of built-in passes, which runs after the earlier stages; users' passes may join
    it."""
    _stages.append(stage)
    return stage


def run_passes(graph: Graph, disabled: Collection[str] = (), verified: bool = False) -> Graph:
    """The graph after every pass of `pipeline()` except those named in `disabled`.

    After each pass of a user, and, if `verified`, after each built-in one, the graph is verified,
    and its inputs, outputs and effects are compared with those before. GraphError names the pass
    that broke a rule, or a disabled name that is not a pass.
    """
    return run_stage(PIPELINE, everywhere, graph, disabled, verified)


def run_stage(
    stage: Stage,
    apply: Callable[[Callable[..., Graph], Graph], Graph],
    graph: Graph,
    disabled: Collection[str],
    verified: bool,
) -> Graph:
    """The graph after the passes of any stage. apply: from a pass's function and a graph to the new
    graph."""
    if disabled:
        _check_disabled(disabled)
    for name, fn in pipeline(stage):
        if name in disabled:
            continue
        try:
            changed = apply(fn, graph)
        except Exception as error:
            error.add_note(f"in pass {name!r}")
            raise
        if not isinstance(changed, Graph):
            raise GraphError(f"pass {name!r} returned {changed!r}; a pass returns a Graph")
        if changed is not graph and (verified or name in _registered):
            check(name, graph, changed)
        graph = changed
    return graph


def _check_disabled(disabled: Collection[str]) -> None:
    running = [p.name for stage in _stages for p in pipeline(stage)]
    names = dict.fromkeys([*running, *_registered])
    unknown = set(disabled) - set(names)
    if unknown:
        raise GraphError(
            f"disabled_passes names {', '.join(sorted(unknown))}; the passes are {', '.join(names)}"
        )


def register_pass(name: str, fn: Callable[..., Graph], position: str | None = "end") -> None:
    """Give a pass a name, and run it at a position on every graph that is compiled from now on.

    fn: from a graph to a graph; one of two parameters gets the target as well, and runs beside
    passes of LOWERING only. position: "begin", "end", or "before:" or "after:" one of the built-in
    passes; passes with one position run in the order in which they were scheduled there. None: it
    runs nowhere until `schedule_pass`. The graph is verified after it, and the error names it.
    The same function registered again (a notebook cell run twice) replaces the first;
    DuplicateError for another of the same name.
    """
    _register(name, fn, position, _author(fn), _pairs(name, fn))


def schedule_pass(name: str, position: str) -> None:
    """Run a registered pass at one more position, after the passes that are scheduled there.

    GraphError for a name that is not registered, or a position that does not exist.
    """
    if not isinstance(name, str):
        raise DeclarationError(
            f"schedule_pass got {name!r}; it takes the name of one pass, so call it for each"
        )
    if name not in _registered:
        raise GraphError(
            f"pass {name!r} is not registered, so it cannot be scheduled; registered are "
            f"{', '.join(_registered) or 'none'}"
        )
    _schedule(name, position, _registered[name].pairs)
    epoch.bump("passes")


def unregister_pass(name: str) -> None:
    """Remove a registered pass or rule from all positions; does nothing if there is none of that
    name."""
    _registered.pop(name, None)
    for names in _scheduled.values():
        if name in names:
            names.remove(name)
    epoch.bump("passes")


def register_rule(
    pattern: Callable[..., Any],
    replacement: Callable[..., Any],
    *,
    where: Callable[..., Any] | None = None,
    name: str | None = None,
    position: str = "after:simplify",
) -> str:
    """Replace calls that match `pattern` by `replacement`, in every graph that is compiled from now
    on; returns the name of the rule, by default the text of the pattern.

    pattern: a function whose parameters stand for any values, and which returns calls of
    primitives on them, as in `lambda x, y, z: x + y + z`. A parameter whose default is a class of
    primitives stands for one of that class with any attributes: `lambda x, t=ops.Transpose: t(x)`.
    replacement: a function of the same names, or some of them, traced on values of the types found.
    where: a function of the same names and of `out`, true if the rule may be applied: it gets the
    shape and dtype of tensors, and the primitives themselves.

    A rule is a pass of this name: it is scheduled, disabled and unregistered like a pass.
    GraphError, at the user's line, if a replacement has another type than the call it replaces.
    """
    made = rule(pattern, replacement, where, name)
    table = by_kind([made])

    def apply(graph: Graph) -> Graph:
        changed = rewritten(graph, table)
        return graph if changed is graph else prune(changed)

    _register(made.says, apply, position, (_author(pattern), _author(replacement)), False)
    return made.says


def _register(
    name: Any, fn: Callable[..., Graph], position: str | None, author: object, pairs: bool
) -> None:
    if not isinstance(name, str) or not name:
        raise DeclarationError(f"a pass got the name {name!r}; a name is a string")
    other = _registered.get(name)
    built_in = any(p.name == name for stage in _stages for p in stage)
    if built_in or (other is not None and other.author != author):
        instead = "" if built_in else f", or take that one back with ml.unregister_pass({name!r})"
        raise DuplicateError(f"there is a pass {name!r} already; use another name{instead}")
    if position is not None:
        _schedule(name, position, pairs)
    entry = Pass(name, fn if pairs else _without_target(fn))
    _registered[name] = UserPass(entry, author, pairs)
    for at, names in _scheduled.items():
        if name in names and at != position:
            names.remove(name)
    epoch.bump("passes")


def _without_target(fn: Callable[..., Graph]) -> Callable[..., Graph]:
    return lambda graph, *target: fn(graph)


def _schedule(name: str, position: str, pairs: bool) -> None:
    """Schedule a pass last at a position, or leave it where it is there already."""
    target = [p for stage in _stages if stage is not PIPELINE for p in _positions(stage)]
    positions = ["begin", *_positions(PIPELINE), *target, "end"]
    if position not in positions:
        raise GraphError(f"pass position {position!r} is unknown; use {', '.join(positions)}")
    if pairs and position not in target:
        raise GraphError(
            f"pass {name!r} takes a target, which there is not at position {position!r}; use "
            f"{', '.join(target)}"
        )
    names = _scheduled.setdefault(position, [])
    if name not in names:
        names.append(name)


def _pairs(name: str, fn: Callable[..., Graph]) -> bool:
    """True for fn(graph, target), False for fn(graph); DeclarationError for others."""
    try:
        takes = inspect.signature(fn)
    except (TypeError, ValueError):  # not callable, or without a signature
        raise DeclarationError(
            f"pass {name!r} is {fn!r}; a pass is a function from a graph to a graph"
        ) from None
    by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [p.kind in by_position for p in takes.parameters.values() if p.default is p.empty]
    if len(needed) not in (1, 2) or not all(needed):
        raise DeclarationError(
            f"pass {name!r} takes {takes}; a pass takes a graph, or a graph and a target"
        )
    return len(needed) == 2


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
    for name in list(_scheduled.get(position, ())):
        if name in _registered:  # another thread may just have taken it back
            yield _registered[name].entry


def _author(fn: Any) -> tuple[object, ...]:
    """Identity of a function that its redefinition by the same cell or module shares; lambdas, all
    of one name, are distinguished by their code."""
    name = getattr(fn, "__qualname__", fn)
    code = fn.__code__ if str(name).endswith("<lambda>") else None
    return getattr(fn, "__module__", None), name, code
