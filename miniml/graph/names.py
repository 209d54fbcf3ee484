"""Names of a traced function's inputs and outputs: its parameters, and paths in trees."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import optree

from .trees import Rebuild

Path = tuple[Any, ...]


class _Leaf:
    """What stands for a traced leaf while the tree around it is looked at."""

    def __init__(self, index: int):
        self.index = index


def input_names(fn: Callable[..., Any], rebuild: Rebuild, count: int) -> tuple[str, ...]:
    """The names of the tensors that `rebuild` puts into (args, named), the arguments of fn."""
    paths = _paths(rebuild, count)
    positions = max((p[1] for p in paths if p[0] == 0), default=-1) + 1
    of_position = [*_parameters(fn, positions)]
    named = [((of_position[p[1]],) if p[0] == 0 else (p[1],)) + p[2:] for p in paths]
    return unique(_joined(path) for path in named)


def output_names(rebuild: Rebuild, count: int) -> tuple[str, ...]:
    """The names of the tensors that `rebuild` puts into a result."""
    paths = _paths(rebuild, count)
    return unique(_joined(p if p and isinstance(p[0], str) else ("out", *p)) for p in paths)


def unique(names: Iterable[str], taken: Iterable[str] = ()) -> tuple[str, ...]:
    """The names, with a number behind each that occurred before."""
    counts: dict[str, int] = dict.fromkeys(taken, 1)
    found = []
    for name in names:
        chosen = name
        while chosen in counts:
            counts[name] += 1
            chosen = f"{name}_{counts[name]}"
        counts[chosen] = 1
        found.append(chosen)
    return tuple(found)


def _joined(path: Path) -> str:
    return ".".join(map(str, path))


def _paths(rebuild: Rebuild, count: int) -> list[Path]:
    """Where in the rebuilt tree each of the values is."""
    tree = rebuild([_Leaf(i) for i in range(count)])
    found: list[Path] = [()] * count
    for accessor, leaf in zip(optree.tree_accessors(tree), optree.tree_leaves(tree), strict=True):
        if isinstance(leaf, _Leaf):
            found[leaf.index] = tuple(map(_step, accessor))
    return found


def _step(entry: Any) -> Any:
    """A key, an index, or the name of a field."""
    return getattr(entry, "field", entry.entry)


def signature_of(fn: Callable[..., Any]) -> inspect.Signature:
    """What a function takes: a Cell what its construct does, a gradient or a compiled function what
    the function inside does. TypeError or ValueError where nothing says it."""
    inner = inspect.unwrap(fn, stop=lambda f: hasattr(f, "__signature__"))
    return inspect.signature(getattr(inner, "construct", inner))


def _parameters(fn: Callable[..., Any], count: int) -> Iterator[str]:
    """The names under which a function takes that many arguments by position."""
    kinds = inspect.Parameter
    known: Mapping[str, inspect.Parameter]
    try:
        known = signature_of(fn).parameters
    except (TypeError, ValueError):
        known = {}
    parameters: Sequence[inspect.Parameter] = list(known.values())
    single = [
        p.name for p in parameters if p.kind in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD)
    ]
    yield from single[:count]
    rest = next((p.name for p in parameters if p.kind is kinds.VAR_POSITIONAL), "x")
    yield from (f"{rest}.{i}" for i in range(count - len(single)))
