"""Algebraic simplification: the identities of a table, applied where their conditions hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import copysign
from typing import NamedTuple

import numpy as np

from ...abstract import Abstract, Shape
from ...errors import GraphError
from ...infer import infer
from ...ops.create import Full
from ...ops.shape import BroadcastTo, Transpose
from ...primitive import Primitive
from ..ir import Graph, Node, Var
from .identities import RESHAPES, RULES, Number, Proposal, Rule
from .rewrite import SMALL, Rewriter

Table = Mapping[type[Primitive], Sequence[Rule]]
_MORE = 10  # times as many calls as a graph has may be replaced by graphs; then it has no end
_SAME_ELEMENTS = (*RESHAPES, BroadcastTo, Transpose)


def simplify(graph: Graph) -> Graph:
    """The graph with the identities of RULES applied repeatedly, so that chains of casts, reshapes
    and transposes become one call or none."""
    return rewritten(graph, _BY_KIND)


def by_kind(rules: Sequence[Rule]) -> Table:
    """The rules for each class of primitives."""
    kinds = {kind for rule in rules for kind in rule.kinds}
    return {kind: tuple(rule for rule in rules if kind in rule.kinds) for kind in kinds}


_BY_KIND = by_kind(RULES)


def rewritten(graph: Graph, rules: Table) -> Graph:
    """The graph with the first matching rule applied to each call, and to what that puts in place,
    until none matches. GraphError for rules that go on for ever."""
    rewriter = Rewriter(graph)
    sight = Sight(rewriter, rules)
    pending: list[Node | _Link] = list(reversed(graph.nodes))
    left = _MORE * (len(graph.nodes) + 100)
    while pending:
        item = pending.pop()
        if isinstance(item, _Link):
            rewriter.replace(item.old, item.new)
            continue
        if type(item.primitive) not in rules:
            rewriter.keep(item)
        else:
            new = _simplify(rewriter, sight, item)
            pending += new
            left -= bool(new)
            if left < 0:
                raise GraphError(
                    f"rewriting does not end: what {sight.rule!r} puts in place of a call matches "
                    "it again; leave such calls out, for a rule of yours with where="
                )
        sight.note(item.outputs)
    return rewriter.finish()


class _Link(NamedTuple):
    """From here on, the values `new` are used for `old`."""

    old: tuple[Var, ...]
    new: tuple[Var, ...]


def _simplify(rewriter: Rewriter, sight: Sight, node: Node) -> list[Node | _Link]:
    """Keep or replace a node; where a graph replaces it, what is left to do for it, last first."""
    primitive, inputs = node.primitive, rewriter.inputs(node)
    found = step = sight.first(node, primitive, inputs)
    while isinstance(step, tuple):
        if isinstance(step[0], Graph):
            rewriter.inline(step[0], step[1:])
            nodes = [replace(n, where=node.where) for n in step[0].nodes]
            return [_Link(node.outputs, step[0].outputs), *reversed(nodes)]
        primitive, inputs = step[0], step[1:]
        found, step = step, sight.first(node, primitive, inputs)
    if isinstance(step, Var):
        rewriter.replace(node.outputs, (step,))
    elif found is None:
        rewriter.keep(node)
    else:
        rewriter.call(node, primitive, inputs)
    return []


class Sight:
    """The answers to what rules ask about the operands of a call: see `identities.Site`."""

    node: Node

    def __init__(self, rewriter: Rewriter, rules: Table):
        self._rewriter, self._rules = rewriter, rules
        self.rule = ""  # the last that matched
        self._numbers: dict[Var, Number] = {}
        self.shape: Shape = ()
        graph = rewriter.graph
        self._uses = graph.uses()
        for var in graph.constants:
            value = var.abstract.value
            if value is not None and 0 < value.nbytes <= SMALL:
                first = value.flat[0]
                if value.tobytes() == first.tobytes() * value.size:
                    self._numbers[var] = first.item()

    def is_all(self, var: Var, number: Number) -> bool:
        known = self._numbers.get(var)
        return known == number and copysign(1.0, known) == copysign(1.0, number)

    def scalar(self, var: Var) -> Var | None:
        if var not in self._numbers or var.abstract.shape == ():
            return None
        return self._rewriter.constant(np.full((), self._numbers[var], var.abstract.dtype))

    def used_once(self, var: Var) -> bool:
        return self._uses[var] == 1

    def made_by(self, var: Var, *kinds: type[Primitive]) -> Node | None:
        maker = self._rewriter.maker.get(var)
        return maker if maker is not None and isinstance(maker.primitive, kinds) else None

    def first(self, node: Node, primitive: Primitive, inputs: tuple[Var, ...]) -> Proposal:
        """The replacement that the first matching rule gives for a call in the place of `node`, or
        None."""
        out = node.outputs[0].abstract
        self.node, self.shape = node, out.shape
        for rule in self._rules.get(type(primitive), ()):
            found = rule.propose(self, primitive, *inputs)
            if found is None:
                continue
            made = found.abstract if isinstance(found, Var) else _inferred(*found)
            if (made.shape, made.dtype) == (out.shape, out.dtype):
                self.rule = rule.says
                return found
        return None

    def note(self, outputs: tuple[Var, ...]) -> None:
        """Remember the number that fills the output of a node just made, if there is one."""
        for var in outputs:
            filled = self.made_by(var, Full)
            if filled is not None:
                self._numbers[var] = filled.primitive.attributes["value"]
            same = self.made_by(var, *_SAME_ELEMENTS)
            if same is not None and same.inputs[0] in self._numbers:
                self._numbers[var] = self._numbers[same.inputs[0]]


def _inferred(primitive: Primitive | Graph, *inputs: Var) -> Abstract:
    if isinstance(primitive, Graph):
        return primitive.outputs[0].abstract
    return infer(primitive, tuple(v.abstract for v in inputs))[0]
