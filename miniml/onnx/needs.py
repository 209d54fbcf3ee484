"""Which values of a model must be known when it is read: inputs that an operator needs as
constants, and all that those are computed from."""

from __future__ import annotations

from collections.abc import Iterable, Set
from typing import Any

from .model import Model, Opsets, domain_of, flattened, operator_of, opsets
from .operators import Constant

_SIZES = ("Shape", "Size")  # operators that know their outputs without knowing their inputs


class Needs:
    """The needs of a model's graphs and functions; each function is looked through once for each
    set of its outputs that must be known."""

    def __init__(self, model: Model):
        self.model = model
        self._found: dict[object, Set[str]] = {}

    def of(
        self, nodes: Iterable[Any], versions: Opsets, wanted: Set[str] = frozenset()
    ) -> set[str]:
        """The names of values among `nodes`, and in their subgraphs, that must be known; `wanted`
        are."""
        needed = set(wanted)
        for node in reversed(list(flattened(nodes))):
            function = self.model.functions.get((domain_of(node), node.op_type))
            if function is not None:
                needed |= self._through(function, node, needed)
            else:
                needed |= self._by(node, versions, needed)
        return needed - {""}

    def _by(self, node: Any, versions: Opsets, needed: Set[str]) -> set[str]:
        """What one node adds."""
        row = operator_of(node, versions)
        if not needed.isdisjoint(node.output) and node.op_type not in _SIZES:
            return {*node.input, *(v.name for a in node.attribute for v in a.g.output)}
        if row is None:
            return set()
        return {n for i, n in enumerate(node.input) if row.annotation(i) == Constant}

    def _through(self, function: Any, node: Any, needed: Set[str]) -> set[str]:
        """What one call of a function adds."""
        outputs = zip(function.output, node.output, strict=False)
        wanted = frozenset(inner for inner, outer in outputs if outer in needed)
        key = function.domain, function.name, wanted
        if key not in self._found:
            self._found[key] = frozenset()  # for a function that calls itself
            self._found[key] = self.of(function.node, opsets(function.opset_import), wanted)
        inputs = zip(function.input, node.input, strict=False)
        return {outer for inner, outer in inputs if inner in self._found[key]}
