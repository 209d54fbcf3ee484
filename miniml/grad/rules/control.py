"""Gradients through state, branches and loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ... import ops
from ...bprop import Bprop, bprop_getters
from ...dtype import is_float
from ...errors import BpropNotFoundError
from ..reverse import pull_graph


@bprop_getters.register(ops.Assign)
def get_bprop_assign(self: ops.Assign) -> Bprop:
    return lambda parameter, value, out, dout: (None, dout)


@bprop_getters.register(ops.Barrier)
def get_bprop_barrier(self: ops.Barrier) -> Bprop:
    return lambda x, after, out, dout: (dout, None)


@bprop_getters.register(ops.Cond)
def get_bprop_cond(self: ops.Cond) -> Bprop:
    def bprop(pred: Any, *rest: Any) -> tuple[Any, ...]:
        *operands, _, dout = rest
        positions = [i for i, x in enumerate(operands) if is_float(x.dtype)]

        def pull(graph: Any, takes: tuple[int, ...]) -> Callable[[], list[Any]]:
            def branch() -> list[Any]:
                found = pull_graph(graph, [operands[i] for i in takes], dout)
                by_position = dict(zip(takes, found, strict=True))
                return [by_position.get(i, ops.zeros_like(operands[i])) for i in positions]

            return branch

        yes, no = pull(self.on_true, self.true_takes), pull(self.on_false, self.false_takes)
        gradients = dict(zip(positions, ops.cond(pred, yes, no), strict=True)) if positions else {}
        return (None, *(gradients.get(i) for i in range(len(operands))))

    return bprop


@bprop_getters.register(ops.WhileLoop)
def get_bprop_while_loop(self: ops.WhileLoop) -> Bprop:
    raise BpropNotFoundError(
        "WhileLoop in a graph has no gradient, because its trip count is unknown; give it "
        "max_iterations=, use ops.scan, or differentiate eagerly, in PYNATIVE_MODE without jit"
    )
