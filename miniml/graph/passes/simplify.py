"""Algebraic simplification: the identities of a table, applied where their conditions hold."""

from __future__ import annotations

from collections import Counter
from itertools import chain
from math import copysign

import numpy as np

from ...abstract import Abstract, Shape
from ...infer import infer
from ...ops.create import Full
from ...ops.shape import BroadcastTo, Transpose
from ...primitive import Primitive
from ..ir import Graph, Node, Var
from .identities import RESHAPES, RULES, Number, Proposal
from .rewrite import SMALL, Rewriter

_BY_KIND = {
    kind: tuple(rule for rule in RULES if kind in rule.kinds)
    for kind in {kind for rule in RULES for kind in rule.kinds}
}
_SAME_ELEMENTS = (*RESHAPES, BroadcastTo, Transpose)


def simplify(graph: Graph) -> Graph:
    """The graph with the identities of RULES applied repeatedly, so that chains of casts, reshapes
    and transposes become one call or none."""
    rewriter = Rewriter(graph)
    sight = Sight(rewriter)
    for node in graph.nodes:
        if type(node.primitive) not in _BY_KIND:
            rewriter.keep(node)
        else:
            _simplify(rewriter, sight, node)
        sight.note(node.outputs)
    return rewriter.finish()


def _simplify(rewriter: Rewriter, sight: Sight, node: Node) -> None:
    primitive, inputs = node.primitive, rewriter.inputs(node)
    found = step = sight.first(primitive, inputs, node.outputs[0].abstract)
    while isinstance(step, tuple):
        primitive, inputs = step[0], step[1:]
        found, step = step, sight.first(primitive, inputs, node.outputs[0].abstract)
    if isinstance(step, Var):
        rewriter.replace(node.outputs, (step,))
    elif found is None:
        rewriter.keep(node)
    else:
        rewriter.call(node, primitive, inputs)


class Sight:
    """The answers to what rules ask about the operands of a call: see `identities.Site`."""

    def __init__(self, rewriter: Rewriter):
        self._rewriter = rewriter
        self._numbers: dict[Var, Number] = {}
        self.shape: Shape = ()
        graph = rewriter.graph
        self._uses = Counter(chain(graph.outputs, *[n.inputs for n in graph.nodes]))
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

    def first(self, primitive: Primitive, inputs: tuple[Var, ...], out: Abstract) -> Proposal:
        """The replacement that the first matching rule gives for a call with the output `out`, or
        None."""
        self.shape = out.shape
        for rule in _BY_KIND.get(type(primitive), ()):
            found = rule.propose(self, primitive, *inputs)
            if found is None:
                continue
            made = found.abstract if isinstance(found, Var) else _inferred(*found)
            if (made.shape, made.dtype) == (out.shape, out.dtype):
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


def _inferred(primitive: Primitive, *inputs: Var) -> Abstract:
    return infer(primitive, tuple(v.abstract for v in inputs))[0]
