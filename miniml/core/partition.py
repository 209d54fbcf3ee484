"""Partition of a tree: some of its leaves taken out, to be filled with new values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import optree


class Holes(NamedTuple):
    """A tree as its leaves, some of which are selected by position."""

    leaves: list[Any]
    spec: Any
    positions: list[int]

    def taken(self) -> list[Any]:
        """The leaves in these positions."""
        return [self.leaves[i] for i in self.positions]

    def left(self) -> list[Any]:
        """The leaves in all other positions."""
        inside = set(self.positions)
        return [leaf for i, leaf in enumerate(self.leaves) if i not in inside]

    def emptied(self) -> Holes:
        """The same tree with these positions emptied."""
        inside = set(self.positions)
        rest = [None if i in inside else leaf for i, leaf in enumerate(self.leaves)]
        return self._replace(leaves=rest)

    def filled(self, values: Sequence[Any]) -> Any:
        """The tree with these values in the positions, one for each."""
        leaves = list(self.leaves)
        for position, value in zip(self.positions, values, strict=True):
            leaves[position] = value
        return self.spec.unflatten(leaves)


def holes(tree: Any, chosen: Callable[[Any], bool], none_is_leaf: bool = False) -> Holes:
    """The tree, with holes where the leaves are chosen."""
    leaves, spec = optree.tree_flatten(tree, none_is_leaf=none_is_leaf)
    return Holes(leaves, spec, [i for i, leaf in enumerate(leaves) if chosen(leaf)])
