"""NumPy kernels of state, StopGradient and Barrier; and of collectives, which groups compute."""

from __future__ import annotations

import numpy as np

from ..group import found
from ..kernel import Array
from ..registry import kernel, view_kernel
from ..signature import COMPLEX, FLOAT, HELD, INT, pairs, same


@view_kernel("Assign", "cpu", *same(2, HELD), of=1)
def assign(parameter: Array, value: Array) -> Array:
    return value  # the runtime publishes it in the parameter's buffer when the step is done


def stop_gradient(x: Array) -> Array:
    return x


view_kernel("StopGradient", "cpu")(stop_gradient)


@view_kernel("Barrier", "cpu", *pairs(FLOAT + COMPLEX))
def barrier(x: Array, after: Array) -> Array:
    return x


# --- Collectives ----------------------------------------------------------------------------------

_NUMBERS = INT + FLOAT + COMPLEX


@kernel("AllReduce", "cpu", *same(1, _NUMBERS))
def all_reduce(x: Array, *, op: str, group: str, size: int, out: Array) -> None:
    found("AllReduce", group, size).all_reduce(np.ascontiguousarray(x), out, op)


@kernel("Reduce", "cpu", *same(1, _NUMBERS))
def reduce(x: Array, *, root: int, group: str, size: int, out: Array) -> None:
    found("Reduce", group, size).reduce(np.ascontiguousarray(x), out, root)


@kernel("ReduceScatter", "cpu", *same(1, _NUMBERS))
def reduce_scatter(x: Array, *, group: str, size: int, out: Array) -> None:
    found("ReduceScatter", group, size).reduce_scatter(np.ascontiguousarray(x), out)


@kernel("Broadcast", "cpu", *same(1, HELD))
def broadcast(x: Array, *, root: int, group: str, size: int, out: Array) -> None:
    found("Broadcast", group, size).broadcast(np.ascontiguousarray(x), out, root)


@kernel("AllGather", "cpu", *same(1, HELD))
def all_gather(x: Array, *, group: str, size: int, out: Array) -> None:
    found("AllGather", group, size).all_gather(np.ascontiguousarray(x), out)


@kernel("AllToAll", "cpu", *same(1, HELD))
def all_to_all(x: Array, *, group: str, size: int, out: Array) -> None:
    found("AllToAll", group, size).all_to_all(np.ascontiguousarray(x), out)


@kernel("SendRecv", "cpu", *same(1, HELD))
def send_recv(
    x: Array, *, pairs: tuple[tuple[int, int], ...], group: str, size: int, out: Array
) -> None:
    found("SendRecv", group, size).send_recv(np.ascontiguousarray(x), out, pairs)
