"""Snapshot: the values of parameters at one moment, to go back to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from .. import random
from ..access import Access
from ..backends.devices import get_device
from ..nn import Cell
from ..optim import Optimizer
from ..tensor import Array, Parameter, Tensor
from ..undo import write_all


def values(who: str, tensors: Sequence[Tensor]) -> list[Array]:
    """Copies of all, as they are at one moment: between two steps, whoever runs them.

    Inside a step, in a signal handler that is, they are those from before it.
    """
    reads = [t for t in tensors if isinstance(t, Parameter)]
    return Access(who, reads=reads).run(lambda: [_copy(t) for t in tensors])


def _copy(tensor: Tensor) -> Array:
    """A Parameter's own data: inside a step a version that is not yet published stands for it."""
    if not isinstance(tensor, Parameter):
        return tensor.asnumpy()
    return np.array(get_device(tensor.device).to_host(tensor._data), order="C")


class Snapshot:
    """Copies of all parameters of cells and optimizers, and of the default random stream."""

    def __init__(self, *owners: object, params: Iterable[Parameter] = ()):
        found = {id(p): p for p in (*params, random.default_generator.state)}
        for owner in owners:
            if isinstance(owner, (Cell, Optimizer)):
                found.update((id(p), p) for p in owner.parameters_dict().values())
        parameters = list(found.values())
        saved = values("Snapshot", parameters)
        self._saved: list[tuple[Parameter, Array]] = list(zip(parameters, saved, strict=True))

    def restore(self) -> None:
        """Give every parameter its value of that moment, all at once."""
        write_all("Snapshot", self._saved)
