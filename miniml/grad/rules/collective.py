"""Gradient rules of collectives: each one's transpose, a collective of the same group."""

from __future__ import annotations

from typing import Any

from ... import ops
from ...core.bprop import rule
from ..batching import Batched, batches
from ..forward import moves_along


@rule(ops.AllReduce)
def all_reduce_bprop(self: ops.AllReduce, x: Any, out: Any, dout: Any) -> tuple[Any]:
    """A maximum passes its gradient to the largest of the ranks, in equal parts where several
    are."""
    if self.op != "max":
        return (self(dout),)
    return (_shares(self, x, out) * ops.AllReduce("sum", self.group, self.size)(dout),)


def _shares(self: ops.AllReduce, x: Any, out: Any) -> Any:
    """The share of each element in the maximum: 1 over the number of ranks that have it, else 0."""
    largest = ops.cast(ops.equal(x, out), x.dtype)
    return largest / ops.AllReduce("sum", self.group, self.size)(largest)


@moves_along(ops.AllReduce)
def jvp_all_reduce(self: ops.AllReduce, primals: Any, tangents: Any, out: Any) -> Any:
    if self.op != "max":
        return self(tangents[0])
    share = _shares(self, primals[0], out)
    return ops.AllReduce("sum", self.group, self.size)(share * tangents[0])


@rule(ops.Reduce)
def reduce_bprop(self: ops.Reduce, x: Any, out: Any, dout: Any) -> tuple[Any]:
    return (ops.Broadcast(self.root, self.group, self.size)(dout),)


@rule(ops.Broadcast)
def broadcast_bprop(self: ops.Broadcast, x: Any, out: Any, dout: Any) -> tuple[Any]:
    return (ops.Reduce(self.root, self.group, self.size)(dout),)


@rule(ops.AllGather)
def all_gather_bprop(self: ops.AllGather, x: Any, out: Any, dout: Any) -> tuple[Any]:
    return (ops.ReduceScatter(self.group, self.size)(dout),)


@rule(ops.ReduceScatter)
def reduce_scatter_bprop(self: ops.ReduceScatter, x: Any, out: Any, dout: Any) -> tuple[Any]:
    return (ops.AllGather(self.group, self.size)(dout),)


@rule(ops.AllToAll)
def all_to_all_bprop(self: ops.AllToAll, x: Any, out: Any, dout: Any) -> tuple[Any]:
    return (self(dout),)


@rule(ops.SendRecv)
def send_recv_bprop(self: ops.SendRecv, x: Any, out: Any, dout: Any) -> tuple[Any]:
    back = tuple([(to, source) for source, to in self.pairs])
    return (ops.SendRecv(back, self.group, self.size)(dout),)


@batches(ops.AllGather, ops.ReduceScatter, ops.AllToAll)
def batch_blocks(self: Any, batched: Batched, x: Any) -> Any:
    """The blocks of all examples at once, behind which the examples stand meanwhile."""
    return ops.moveaxis(self(ops.moveaxis(x, 0, 1)), 1, 0)
