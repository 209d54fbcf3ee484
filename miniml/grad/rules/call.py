"""Gradients of calls that carry their own: the function's bprop, on trees."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import optree

from ...errors import BpropError
from ...graph.calls import Called
from ...tensor import Tensor
from .formulas import rule


@rule(Called)
def called_bprop(self: Called, *values: Any) -> tuple[Any, ...]:
    *inputs, out, dout = values
    args = self.args.filled(inputs)
    douts = self.out._replace(leaves=[None] * len(self.out.leaves)).filled(dout)
    found = _run(self, args, (*args, self.out.filled(out), douts))
    leaves = _leaves(self, found, args)
    return tuple(leaves[i] for i in self.args.positions)


def _run(call: Called, args: Sequence[Any], given: Sequence[Any]) -> Any:
    """What the bprop returns; BpropError where it does not take what it is given."""
    try:
        return call.bprop(*given)
    except TypeError:
        taken = inspect.signature(call.bprop)
        try:
            taken.bind(*given)
        except TypeError:
            named = ", ".join(f"x{i}" for i in range(len(args))) or "no inputs"
            raise BpropError(
                f"{call.name} bprop takes {taken}; it gets ({named}, out, dout)"
            ) from None
        raise


def _leaves(call: Called, found: Any, args: Sequence[Any]) -> list[Any]:
    """The gradients of all leaves of the arguments, None where the bprop gives none."""
    count = len(args)
    if not isinstance(found, tuple):
        raise BpropError(
            f"{call.name} bprop returned {_kind(found)}; return a tuple with one gradient per "
            f"argument, {count} here, as (dx,)"
        )
    if len(found) != count:
        raise BpropError(
            f"{call.name} bprop returned {len(found)} gradients for {count} arguments; return one "
            "per argument, None where there is none"
        )
    return [leaf for i in range(count) for leaf in _fitted(call, i, found[i], args[i])]


def _kind(value: object) -> str:
    return "a tensor" if isinstance(value, Tensor) else type(value).__name__


def _fitted(call: Called, index: int, gradient: Any, argument: Any) -> list[Any]:
    """The gradient's leaves, in the structure of the argument."""
    spec = optree.tree_structure(argument, none_is_leaf=True)
    if gradient is None:
        return [None] * spec.num_leaves
    try:
        return list(spec.flatten_up_to(gradient))
    except ValueError as error:
        raise BpropError(
            f"{call.name} bprop returned a gradient of another structure than argument {index} "
            f"has: {error}"
        ) from None
