"""Callbacks: what a run calls at its beginning, between steps and after each epoch."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

from ..archive import PathLike, short, writable, write
from ..constructor import Constructed
from ..errors import CheckpointError, MinimlError
from ..optim import arguments
from .checkpoint import save_checkpoint
from .checks import check_listed
from .entries import CALLS
from .learner import Learner
from .metrics import Row


class Run(Protocol):
    """What callbacks may ask of a run."""

    model: Learner
    epoch: int  # whole epochs behind it
    epochs: int
    done: int  # batches of the next epoch behind it
    batches: int | None  # in an epoch, if that is known
    steps: int
    stopped: bool

    def stop(self) -> None:
        """End the run after this epoch."""


class Callback(Constructed):
    """Base of callbacks; a subclass defines the methods that it needs.

    state: plain numbers and arrays, which are saved with the run and come back when it goes on.
    """

    state: Mapping[str, Any] = MappingProxyType({})

    def on_start(self, run: Run) -> None:
        """Before the first step, also of a run that goes on."""

    def on_epoch_start(self, run: Run) -> None:
        """Before the first step of an epoch: the place to set `run.model.optimizer.lr`."""

    def on_steps(self, run: Run, losses: Sequence[float]) -> None:
        """After some steps, a few times a second, with their losses: to look, not to change."""

    def on_epoch(self, run: Run, row: Row) -> None:
        """After an epoch; row: its number, loss, metrics and those of the validation ("val_...").
        What is added to it is logged by the callbacks that follow."""

    def on_end(self, run: Run) -> None:
        """After the last step, however the run ends."""


def check_callbacks(callbacks: Sequence[Callback]) -> None:
    """MinimlError for what is no Callback, and for a method that no run calls."""
    check_listed("callbacks", callbacks, Callback, "train.EarlyStopping()")
    called = [name for name in dir(Callback) if name.startswith("on_")]
    for callback in callbacks:
        other = [n for n in dir(callback) if n.startswith("on_") and n not in called]
        if other:
            raise MinimlError(
                f"callbacks got a {type(callback).__name__}, whose {other[0]} no run calls; give a "
                f"train.Callback that defines some of {', '.join(called)}"
            )


class _Best(Callback):
    """Follows one number of the rows."""

    def __init__(self, monitor: str, larger_is_better: bool) -> None:
        self.monitor, self._sign = monitor, -1.0 if larger_is_better else 1.0
        self.state: dict[str, Any] = {"best": float("inf"), "waited": 0}

    def on_start(self, run: Run) -> None:
        if not run.steps:  # a run that begins anew, perhaps the second of this callback
            self.state = {"best": float("inf"), "waited": 0}

    def improved(self, row: Row) -> bool:
        """True if the number is better than ever."""
        found = numbers(row)
        if self.monitor not in found:
            unseen = self.monitor.startswith("val_") and "val_loss" not in row
            hint = "; give fit validation=" if unseen else ""
            raise MinimlError(
                f"{type(self).__name__} follows {self.monitor!r}, which is no number of an epoch; "
                f"there are {', '.join(found)}{hint}"
            )
        value = self._sign * found[self.monitor]
        better: bool = value < self.state["best"]
        self.state["waited"] = 0 if better else self.state["waited"] + 1
        self.state["best"] = min(value, self.state["best"])
        return better


class EarlyStopping(_Best):
    """Ends the run after `patience` epochs in a row without a better `monitor`."""

    def __init__(
        self, patience: int = 5, monitor: str = "val_loss", larger_is_better: bool = False
    ) -> None:
        super().__init__(monitor, larger_is_better)
        self.patience = arguments.count("EarlyStopping", "patience", patience)

    def on_epoch(self, run: Run, row: Row) -> None:
        if not self.improved(row) and self.state["waited"] >= self.patience:
            run.stop()


class SaveBest(_Best):
    """Saves the network, alone, after each epoch with the best `monitor` so far:
    `load_checkpoint(path, net)` brings it back."""

    def __init__(
        self, path: PathLike, monitor: str = "val_loss", larger_is_better: bool = False
    ) -> None:
        super().__init__(monitor, larger_is_better)
        self.path = path

    def on_start(self, run: Run) -> None:
        super().on_start(run)
        writable(self.path, CALLS)

    def on_epoch(self, run: Run, row: Row) -> None:
        if self.improved(row):
            save_checkpoint(run.model.net, self.path)


class Log(Callback):
    """Writes a line an epoch: JSON, or CSV for a path that ends in .csv.

    The file is always whole. A run that goes on keeps the lines of the epochs that it has behind
    it; one that begins anew begins the file anew.
    """

    def __init__(self, path: PathLike) -> None:
        self.path, self._rows = Path(path), list[Row]()

    def on_start(self, run: Run) -> None:
        writable(self.path, CALLS)
        self._rows = self._kept(run.epoch) if run.epoch and self.path.exists() else []

    def on_epoch(self, run: Run, row: Row) -> None:
        self._rows.append({k: _plain(v) for k, v in row.items()})
        write(self.path, iter([self._text().encode()]), self.path)

    def _kept(self, epochs: int) -> list[Row]:
        """The lines of the first epochs; CheckpointError where the file has other ones."""
        try:
            return [row for row in self._read() if int(row["epoch"]) <= epochs]
        except (ValueError, KeyError, TypeError):
            raise CheckpointError(
                f"{short(self.path)} is not the log of a run; give Log another path"
            ) from None

    def _read(self) -> list[Row]:
        text = self.path.read_text("utf-8")
        if self.path.suffix == ".csv":
            return list(csv.DictReader(io.StringIO(text)))
        return [json.loads(line) for line in text.splitlines()]

    def _text(self) -> str:
        if self.path.suffix != ".csv":
            return "".join(json.dumps(row) + "\n" for row in self._rows)
        text = io.StringIO()
        names = dict.fromkeys(name for row in self._rows for name in row)
        table = csv.DictWriter(text, names, lineterminator="\n")
        table.writeheader()
        table.writerows(self._rows)
        return text.getvalue()


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else value


def numbers(row: Row) -> dict[str, float]:
    """The numbers of a row, without the epoch's."""
    single = {k: _plain(v) for k, v in row.items() if getattr(v, "shape", ()) == ()}
    return {k: v for k, v in single.items() if isinstance(v, (int, float)) and k != "epoch"}


def shown(row: Row) -> str:
    """The numbers of a row in one line, after the epoch."""
    return "  ".join(f"{name} {value:.4g}" for name, value in numbers(row).items())
