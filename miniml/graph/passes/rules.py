"""Rules of users: a pattern and its replacement, both plain functions, as a Rule of simplifying."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from ...abstract import Abstract, typed
from ...errors import DeclarationError, GraphError
from ...location import point_at
from ...primitive import Primitive
from ...tensor import Tensor
from ..ir import Graph, Var
from ..tracer import trace_graph
from .identities import Proposal, Rule, Site
from .patterns import Bound, matches, pattern_of


def rule(
    pattern: Callable[..., Any],
    replacement: Callable[..., Any],
    where: Callable[..., Any] | None = None,
    name: str | None = None,
) -> Rule:
    """The Rule that puts `replacement` in the place of what matches `pattern`; see
    `register_rule`."""
    for what, fn in (("pattern", pattern), ("replacement", replacement)):
        if not callable(fn):
            raise DeclarationError(f"a rule got {fn!r} for its {what}, which is a function")
    root, names, says = pattern_of(pattern, name)
    make = _by_name(says, replacement, names)
    holds = _by_name(says, where or _always, [*names, "out"])

    def propose(site: Site, primitive: Primitive, *inputs: Var) -> Proposal:
        out = site.node.outputs[0].abstract
        for bound in matches(root, primitive, inputs, dict(site.node.consts), site, {}):
            known = {n: v.abstract if isinstance(v, Var) else v for n, v in bound.items()}
            try:
                if holds({**known, "out": out}):
                    operands = [v for v in bound.values() if isinstance(v, Var)]
                    return _replacement(out, bound, make), *operands
            except Exception as error:
                raise _refusal(says, site, error) from error
        return None

    return Rule(says, (root.kind,), propose)


def _always() -> bool:
    return True


def _by_name(says: str, fn: Callable[..., Any], names: list[str]) -> Callable[[Bound], Any]:
    """The function as one of a dictionary: it gets what it has parameters for; for `*xs` all but
    the primitives, in the order of the pattern. DeclarationError for a parameter of another name.
    """
    taken = inspect.signature(fn).parameters.values()
    if any(p.kind is p.VAR_POSITIONAL for p in taken):
        return lambda bound: fn(*[v for n in names if not isinstance(v := bound[n], Primitive)])
    wanted = [p.name for p in taken if p.default is p.empty]
    unknown = [name for name in wanted if name not in names]
    if unknown:
        raise DeclarationError(
            f"rule {says!r} has a function of {', '.join(unknown)}; its pattern has "
            f"{', '.join(names)}; use these names"
        )
    return lambda bound: fn(**{name: bound[name] for name in wanted})


def _replacement(out: Abstract, bound: Bound, make: Callable[[Bound], Any]) -> Graph:
    """The graph of the replacement for these values, whose inputs are the tensors among them.

    GraphError where its output has another type than `out`, or where it is no pure function.
    """
    tensors = {
        name: Abstract(v.abstract.shape, v.abstract.dtype)
        for name, v in bound.items()
        if isinstance(v, Var)
    }

    def body(*traced: Tensor) -> list[Tensor]:
        made = make({**bound, **dict(zip(tensors, traced, strict=True))})
        if not isinstance(made, Tensor):
            raise GraphError(f"its replacement is {made!r}, which is not a tensor")
        return [made]

    graph, _ = trace_graph(body, list(tensors.values()), "cpu", "replacement")
    _check(out, graph)
    return graph


def _check(expected: Abstract, graph: Graph) -> None:
    (out,) = graph.outputs
    if graph.state or any(n.primitive.effect != "pure" for n in graph.nodes):
        raise GraphError("its replacement reads or writes parameters or random streams")
    if (out.abstract.shape, out.abstract.dtype) != (expected.shape, expected.dtype):
        raise GraphError(f"the call gives {typed(expected)}, its replacement {typed(out.abstract)}")


def _refusal(says: str, site: Site, error: Exception) -> GraphError:
    """The error for a rule that fails on a call, at the user's line of that call."""
    called = site.node.primitive
    reason = error if isinstance(error, GraphError) else f"it raises {error!r}"
    refusal = GraphError(
        f"rule {says!r} cannot replace {called!r}: {reason}; correct the rule, or leave such calls "
        "out with where="
    )
    point_at(refusal, site.node.where)
    return refusal
