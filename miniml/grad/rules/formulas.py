"""Gradients that are one formula, in which no attribute of the primitive occurs."""

from __future__ import annotations

from collections.abc import Mapping

from ...bprop import Bprop, bprop_getters
from ...primitive import Primitive


def formulas(rules: Mapping[type[Primitive], Bprop]) -> None:
    """Register the bprop of each primitive."""
    for primitive, rule in rules.items():
        _register(primitive, rule)


def _register(primitive: type[Primitive], rule: Bprop) -> None:
    def getter(self: Primitive) -> Bprop:
        return rule

    getter.__module__, getter.__qualname__ = rule.__module__, f"the formula of {primitive.name}"
    getter.__wrapped__ = rule  # type: ignore[attr-defined]  # where it is written
    bprop_getters.register(primitive)(getter)
