"""What a person sees of a run: a bar in a terminal, else a line an epoch."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from .callbacks import Callback, Run, shown
from .metrics import Row


class _Begins(Callback):
    """Says so where the file of a run leaves nothing to train."""

    def on_start(self, run: Run) -> None:
        if run.stopped or run.epoch >= run.epochs:
            print(
                f"nothing to train: the run that was resumed ended after epoch {run.epoch} of "
                f"{run.epochs}; for another one give resume= another file",
                flush=True,
            )


class Lines(_Begins):
    """Prints a line after each epoch."""

    def on_epoch(self, run: Run, row: Row) -> None:
        print(f"epoch {row['epoch']}/{run.epochs}  {shown(row)}", flush=True)


class Bar(_Begins):
    """A bar of tqdm for each epoch, whose last state stays."""

    def __init__(self, tqdm: Any) -> None:
        self._tqdm = tqdm
        self._bar: Any = None

    def on_steps(self, run: Run, losses: Sequence[float]) -> None:
        if self._bar is None:
            before = run.done - len(losses)
            self._bar = self._tqdm(
                total=run.batches, initial=before, desc=f"epoch {run.epoch + 1}/{run.epochs}"
            )
        self._bar.set_postfix_str(f"loss {losses[-1]:.4g}", refresh=False)
        self._bar.update(len(losses))

    def on_epoch(self, run: Run, row: Row) -> None:
        if self._bar is not None:
            self._bar.set_postfix_str(shown(row))
        self.on_end(run)

    def on_end(self, run: Run) -> None:
        if self._bar is not None:
            self._bar.close()
        self._bar = None


def progress() -> Callback:
    """A bar where there is a terminal and tqdm, else lines."""
    try:
        from tqdm import tqdm
    except ImportError:
        return Lines()
    return Bar(tqdm) if sys.stderr.isatty() else Lines()
