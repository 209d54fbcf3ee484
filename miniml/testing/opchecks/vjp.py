"""A call as a function of its float inputs, and its vector-Jacobian product."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...dtype import DType, is_float
from ...grad.transforms import vjp
from ..calls import Array, Arrays, Call, as_tuple


class Slope:
    """The float outputs of a call as a function of its float inputs.

    Integer inputs and const inputs are held fixed; integer outputs are left out.
    """

    def __init__(self, call: Call):
        self.call = call
        self.positions = [i for i, a in enumerate(call.arrays) if is_float(a.dtype)]
        self.xs: Arrays = tuple(call.arrays[i] for i in self.positions)

    def dtypes(self) -> set[DType]:
        """The dtypes of float inputs and outputs; several if attributes fix a dtype, as in Cast."""
        found = [x.dtype for x in self.xs] + [a.dtype for a in self.call.inferred]
        return {d for d in found if is_float(d)}

    def outputs(self, *xs: Any) -> tuple[Any, ...]:
        """The float outputs, as Tensors."""
        arrays: list[Any] = list(self.call.arrays)
        for i, x in zip(self.positions, xs):
            arrays[i] = x
        outs = as_tuple(self.call.primitive(*self.call.args(tuple(arrays))))
        return tuple(o for o in outs if is_float(o.dtype))

    def pulled(self, *xs_and_douts: Any) -> tuple[Any, ...]:
        """The gradients at xs for the cotangents that follow them."""
        n = len(self.xs)
        _, pull = vjp(self.outputs, *xs_and_douts[:n])
        return pull(tuple(xs_and_douts[n:]))  # type: ignore[no-any-return]

    def some_cotangents(self) -> Arrays:
        """Cotangents, the same ones each time."""
        return self.cotangents(np.random.default_rng(0))

    def cotangents(self, rng: np.random.Generator) -> Arrays:
        """One array per float output, of its dtype."""
        return tuple(weights(rng, o.shape, o.dtype) for o in self.outputs(*self.xs))


def weights(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> Array:
    """Numbers of either sign and of size 0.5 to 1.5: no weight is small enough to hide a fault."""
    signs = rng.choice([-1.0, 1.0], size=shape)
    return np.asarray(signs * rng.uniform(0.5, 1.5, size=shape)).astype(dtype)
