"""NumPy kernels of state, StopGradient and Barrier; and of collectives, which groups compute."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...core.signature import COMPLEX, FLOAT, HELD, INT, pairs, same
from ..group import found
from ..kernel import Array
from ..registry import kernel, view_kernel


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
# The method of a group that does what a primitive says, and the dtypes that it takes.
_METHODS = {
    "AllReduce": ("all_reduce", _NUMBERS),
    "Reduce": ("reduce", _NUMBERS),
    "ReduceScatter": ("reduce_scatter", _NUMBERS),
    "Broadcast": ("broadcast", HELD),
    "AllGather": ("all_gather", HELD),
    "AllToAll": ("all_to_all", HELD),
    "SendRecv": ("send_recv", HELD),
}


def _collective(name: str, method: str) -> Callable[..., None]:
    def launch(x: Array, *, group: str, size: int, out: Array, **options: Any) -> None:
        """options: the operation, the root or the pairs."""
        of_ranks = getattr(found(name, group, size), method)
        of_ranks(np.ascontiguousarray(x), out, *options.values())

    return launch


for _name, (_method, _codes) in _METHODS.items():
    kernel(_name, "cpu", *same(1, _codes))(_collective(_name, _method))
