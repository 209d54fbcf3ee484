"""Snapshot: the values of parameters at one moment, to go back to."""

from __future__ import annotations

from collections.abc import Iterable

from .. import random
from ..access import Access
from ..nn import Cell
from ..optim import Optimizer
from ..parameter import Parameter
from ..undo import UndoLog


class Snapshot:
    """Copies of all parameters of cells and optimizers, and of the default random stream."""

    def __init__(self, *owners: object, params: Iterable[Parameter] = ()):
        found = {id(p): p for p in (*params, random.default_generator.state)}
        for owner in owners:
            if isinstance(owner, (Cell, Optimizer)):
                found.update((id(p), p) for p in owner.parameters_dict().values())
        self._log = UndoLog()
        self._access = Access("Snapshot", reads=found.values())
        self._access.run(self._log.note, *found.values())

    def renew(self) -> None:
        """Take the values of the same parameters at this moment, in place of the older ones."""
        self._access.run(self._log.renew)

    def restore(self) -> None:
        """Give every parameter its value of that moment, all at once."""
        self._log.restore("Snapshot")
