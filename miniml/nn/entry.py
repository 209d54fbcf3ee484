"""What a trace calls for a cell: its hooks, and `construct` or the cell's own gradient."""

from __future__ import annotations

from types import MethodType
from typing import Any

from .. import epoch
from ..epoch import Epoch
from ..grad.recompute import recomputed
from ..graph.calls import by_position
from ..location import Layer, layers
from ..settings import current
from ..trace import computes_at_once, current_trace
from .hooks import run_hooked
from .paths import layer_names
from .widening import warn_widened


class Entry:
    """What a trace calls for a cell: one per cell, so that each has one cache of programs.

    called: the cell, or one around it, has been called op by op, so that dtypes were looked at.
    """

    def __init__(self, cell: Any):
        self.cell, self.born = cell, epoch.tick()
        self.called = self.warned = False
        self._names: tuple[Epoch | None, dict[int, str]] = (None, {})  # of layers inside, and when

    def __call__(self, *args: Any, **named: Any) -> Any:
        at_once = computes_at_once()
        run = self._construct if at_once and not _watched() else self._named
        if at_once and self.called:
            return run(args, named)
        alone = at_once or layers.get() is None
        for prefix, inner in self.cell._walk("", set()):  # any that construct may read
            inner._entry.called = True
            current_trace().guard(inner, inner.signature)
            inner._name_parameters(prefix)
        out = run(args, named)
        if alone and not self.warned:
            self.warned = warn_widened(self.cell, args, out)
        return out

    def _named(self, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        with layers.use(self._layer):
            return self._construct(args, named)

    def _construct(self, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        if self.cell._hooks:
            return run_hooked(self.cell, self._run, args, named)
        return self._run(args, named)

    def _run(self, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        if self.cell._recomputed and not hasattr(type(self.cell), "bprop"):
            return recomputed(self.cell.construct)(*args, **named)
        return self._plainly(args, named)  # a gradient of its own keeps the inputs alone, too

    def _plainly(self, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        cell = self.cell
        bprop = getattr(type(cell), "bprop", None)
        if bprop is None:
            return cell.construct(*args, **named)
        given = by_position(self.__name__, cell.construct, args, named)
        bound = MethodType(bprop, cell)
        return current_trace().call_with_bprop(self.__name__, cell.construct, bound, given)

    def _layer(self) -> Layer:
        """The cell by its path from the outermost one that is being called."""
        outer = layers.get()
        network = outer.network if outer is not None and outer.network is not None else self.cell
        return Layer(network._entry.names().get(id(self.cell), ""), network)

    def names(self) -> dict[int, str]:
        """What to call each layer inside this cell, by identity."""
        when, names = self._names
        if when is not epoch.now:
            names = layer_names(self.cell)
            self._names = epoch.now, names
        return names

    @property
    def __name__(self) -> str:
        return type(self.cell).__name__


def _watched() -> bool:
    """True where somebody looks at calls, and so at the names of layers."""
    settings = current()
    return settings.check_nan or bool(settings.watchers)
