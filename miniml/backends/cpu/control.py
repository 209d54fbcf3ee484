"""NumPy kernels of state, of StopGradient and of Barrier."""

from __future__ import annotations

from ..kernel import Array
from ..registry import view_kernel
from ..signature import COMPLEX, FLOAT, HELD, pairs, same


@view_kernel("Assign", "cpu", *same(2, HELD), of=1)
def assign(parameter: Array, value: Array) -> Array:
    return value  # the runtime publishes it in the parameter's buffer when the step is done


def stop_gradient(x: Array) -> Array:
    return x


view_kernel("StopGradient", "cpu")(stop_gradient)


@view_kernel("Barrier", "cpu", *pairs(FLOAT + COMPLEX))
def barrier(x: Array, after: Array) -> Array:
    return x
