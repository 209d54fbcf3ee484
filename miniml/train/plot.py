"""LivePlot: curves of a run that grow in a notebook while it trains."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from io import BytesIO
from typing import Any

from ..errors import MinimlError
from .callbacks import Callback, Run, numbers
from .metrics import Row

_SHARE = 0.05  # of the time, at most, goes into pictures


class LivePlot(Callback):
    """One picture below the cell of a notebook, drawn anew every `seconds` or more seldom: the loss
    by steps and, for the loss and each metric, training and validation by epochs.

    Outside of a notebook it says so, once, and does nothing. MinimlError where matplotlib is not
    installed.
    """

    def __init__(self, seconds: float = 1.0) -> None:
        try:
            from matplotlib.figure import Figure
        except ImportError:
            raise MinimlError(
                "LivePlot draws with matplotlib, which is not installed; pip install matplotlib, "
                "or pip install 'miniml[demo]'"
            ) from None
        self.seconds, self._figure = seconds, Figure
        self._show: Any = None  # IPython's display; None outside of a notebook
        self._handle: Any = None
        self._steps: list[tuple[int, float]] = []
        self._epochs: dict[str, list[tuple[int, float]]] = {}
        self._due = 0.0

    def on_start(self, run: Run) -> None:
        self._steps, self._epochs, self._handle, self._due = [], {}, None, 0.0
        self._show = _notebook_display()
        if self._show is None:
            print("LivePlot draws in notebooks only; here it does nothing", flush=True)

    def on_steps(self, run: Run, losses: Sequence[float]) -> None:
        self._steps.append((run.steps, sum(losses) / len(losses)))
        self._draw_if_due()

    def on_epoch(self, run: Run, row: Row) -> None:
        for name, value in numbers(row).items():
            self._epochs.setdefault(name, []).append((run.steps, value))
        self._draw_if_due()

    def on_end(self, run: Run) -> None:
        if self._steps:
            self._draw()

    def _draw_if_due(self) -> None:
        if time.perf_counter() >= self._due:
            began = time.perf_counter()
            self._draw()
            now = time.perf_counter()
            self._due = now + max(self.seconds, (now - began) / _SHARE)

    def _draw(self) -> None:
        if self._show is None:
            return
        from IPython.display import Image

        picture: Any = Image(data=self.picture(), format="png")  # type: ignore[no-untyped-call]
        if self._handle is None:
            self._handle = self._show(picture, display_id=True)
        else:
            self._handle.update(picture)

    def picture(self) -> bytes:
        """The curves as they are now, as a PNG."""
        names = [n for n in self._epochs if not n.startswith("val_") and n != "seconds"] or ["loss"]
        figure = self._figure(figsize=(4.5 * len(names), 3.2), layout="constrained")
        for axes, name in zip(figure.subplots(1, len(names), squeeze=False)[0], names, strict=True):
            if name == "loss":
                axes.plot(*zip(*self._steps, strict=True), color="0.75", label="steps")
            for key, label in ((name, "training"), (f"val_{name}", "validation")):
                if key in self._epochs:
                    axes.plot(
                        *zip(*self._epochs[key], strict=True), "o-", markersize=3, label=label
                    )
            axes.set(title=name, xlabel="step")
            axes.grid(alpha=0.3)
            axes.legend(frameon=False)
        data = BytesIO()
        figure.savefig(data, format="png", dpi=80)
        return data.getvalue()


def _notebook_display() -> Any:
    """IPython's `display` in a notebook, else None."""
    if "IPython" not in sys.modules:
        return None
    import IPython
    from IPython.display import display

    return display if getattr(IPython.get_ipython(), "kernel", None) is not None else None
