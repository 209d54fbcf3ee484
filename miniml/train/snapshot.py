"""Snapshot: the values of parameters at one moment, to go back to."""

from __future__ import annotations

from .. import random
from ..access import Access
from ..nn import Cell
from ..nn.state import streams
from ..optim import Optimizer
from ..undo import UndoLog


class Snapshot:
    """Copies of all parameters of cells and optimizers, of the generators that cells hold, and of
    the default random stream."""

    def __init__(self, *owners: object):
        stream = random.default_generator.state
        found = {id(stream): stream}
        for owner in owners:
            if isinstance(owner, (Cell, Optimizer)):
                found.update((id(p), p) for p in owner.parameters_dict().values())
            if isinstance(owner, Cell):
                found.update((id(p), p) for p in streams({"": owner}).values())
        self._log = UndoLog()
        self._access = Access("Snapshot", reads=found.values())
        self._access.run(self._log.note, *found.values())

    def renew(self) -> None:
        """Take the values of the same parameters at this moment, in place of the older ones."""
        self._access.run(self._log.renew)

    def restore(self) -> None:
        """Give every parameter its value of that moment, all at once."""
        self._log.restore("Snapshot")
