"""TensorBoard: the numbers of a run in event files, which the program of that name shows."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..archive import PathLike
from ..errors import MinimlError
from .callbacks import Callback, Run, numbers
from .metrics import Row


class TensorBoard(Callback):
    """Writes event files to a folder; `tensorboard --logdir FOLDER` shows them.

    "step/loss" and "step/lr" a few times a second, and after each epoch "epoch/" and the name of
    each number of its row; all by the number of steps. A run that goes on replaces what was
    written after the place from which it goes on. MinimlError where tensorboardX is not installed.
    """

    def __init__(self, folder: PathLike) -> None:
        try:
            from tensorboardX import SummaryWriter
        except ImportError:
            raise MinimlError(
                "TensorBoard writes event files with tensorboardX, which is not installed; "
                "pip install tensorboardX, or pip install 'miniml[tensorboard]'"
            ) from None
        self.folder, self._open = Path(folder), SummaryWriter
        self._writer: Any = None

    def on_start(self, run: Run) -> None:
        # Names of files hold seconds, and a second run in one of them would replace the first's.
        mark = f".{time.time_ns()}"
        self._writer = self._open(str(self.folder), purge_step=run.steps + 1, filename_suffix=mark)

    def on_steps(self, run: Run, losses: Sequence[float]) -> None:
        mean = sum(losses) / len(losses)
        self._write(run, "step", {"loss": mean, "lr": float(run.model.optimizer.lr)})

    def on_epoch(self, run: Run, row: Row) -> None:
        self._write(run, "epoch", numbers(row))
        self._writer.flush()

    def on_end(self, run: Run) -> None:
        if self._writer is not None:
            self._writer.close()
        self._writer = None

    def _write(self, run: Run, about: str, values: Row) -> None:
        for name, value in values.items():
            self._writer.add_scalar(f"{about}/{name}", value, run.steps)
