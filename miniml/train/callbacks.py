"""Callbacks: hooks that a run calls at its beginning, between steps and after each epoch.

The base class; stopping, saving and logging; progress in a terminal.
"""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Protocol

from ..core.errors import CheckpointError, MinimlError
from ..core.files import PathLike, short, writable, write
from ..core.hints import Constructed
from ..core.options import choice, count, number
from ..optim import Groups
from .checkpoint import CALLS, save_checkpoint
from .learner import Learner, check_listed
from .metrics import Row

__all__ = ["Callback", "EarlyStopping", "Log", "ReduceRate", "SaveBest"]

Mode = Literal["auto", "min", "max"]
_MODES = "auto", "min", "max"


class Run(Protocol):
    """The part of a run that callbacks may use."""

    model: Learner
    epoch: int  # whole epochs done
    epochs: int
    done: int  # batches of the next epoch done
    batches: int | None  # in an epoch, if known
    steps: int
    stopped: bool
    rank: int  # of a group, 0 without one

    def stop(self) -> None:
        """End the run after this epoch."""


class Callback(Constructed):
    """Base of callbacks; a subclass defines the methods that it needs.

    state: plain numbers and arrays, which are saved with the run and restored when it resumes.
    rank_0_only: with a group a callback is called on all ranks, with equal rows; a class that sets
    this to True, as it shows or writes something, is called on rank 0 alone.
    """

    state: Mapping[str, Any] = MappingProxyType({})
    rank_0_only: ClassVar[bool] = False

    def on_start(self, run: Run) -> None:
        """Before the first step, also of a resumed run."""

    def on_epoch_start(self, run: Run) -> None:
        """Before the first step of an epoch: the place to set `run.model.optimizer.lr`."""

    def on_steps(self, run: Run, losses: Sequence[float]) -> None:
        """After some steps, a few times a second, with their losses: to observe, not to change."""

    def on_epoch(self, run: Run, row: Row) -> None:
        """After an epoch; row: its number, loss, metrics and those of the validation ("val_...").
        Entries added to it are logged by the callbacks that follow."""

    def on_end(self, run: Run) -> None:
        """After the last step, however the run ends."""


def check_callbacks(callbacks: Sequence[Callback]) -> None:
    """MinimlError for anything but a Callback, and for a hook method that no run calls."""
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
    """Base of callbacks that follow the best value of one number of the rows."""

    def __init__(self, monitor: str, mode: Mode) -> None:
        self.monitor, self.mode = monitor, choice(type(self).__name__, "mode", mode, _MODES)
        self.state: dict[str, Any] = {"best": float("inf"), "waited": 0}

    def on_start(self, run: Run) -> None:
        if not run.steps:  # a run from the start, perhaps the second of this callback
            self.state = {"best": float("inf"), "waited": 0}

    def improved(self, run: Run, row: Row) -> bool:
        """True if the number is the best so far, which NaN never is; MinimlError where an epoch
        has no such number."""
        found = numbers(row)
        if self.monitor not in found:
            unseen = self.monitor.startswith("val_") and "val_loss" not in row
            hint = "; give fit validation=" if unseen else ""
            raise MinimlError(
                f"{type(self).__name__} follows {self.monitor!r}, which is no number of an epoch; "
                f"there are {', '.join(found)}{hint}"
            )
        value = -found[self.monitor] if self._larger_is_better(run) else found[self.monitor]
        better: bool = value < self.state["best"]
        self.state["waited"] = 0 if better else self.state["waited"] + 1
        self.state["best"] = value if better else self.state["best"]
        return better

    def _larger_is_better(self, run: Run) -> bool:
        """True if larger is better; MinimlError where mode="auto" finds no metric that says it."""
        if self.mode != "auto":
            return self.mode == "max"
        of: dict[str, bool | None] = {"loss": False, "seconds": False}
        of |= {metric.name: metric.larger_is_better for metric in run.model.metrics}
        larger = of.get(self.monitor.removeprefix("val_"))
        if larger is None:
            raise MinimlError(
                f"{type(self).__name__} follows {self.monitor!r}, and does not know whether larger "
                "is better: give mode='max' or mode='min', or the Metric larger_is_better="
            )
        return larger


class EarlyStopping(_Best):
    """Ends the run after `patience` epochs in a row without a better `monitor`.

    mode: "max" where larger is better, "min" where smaller is; "auto" asks the metric of that name
    (for a loss it is "min"). MinimlError where the metric does not define it.
    """

    def __init__(self, patience: int = 5, monitor: str = "val_loss", mode: Mode = "auto") -> None:
        super().__init__(monitor, mode)
        self.patience = count("EarlyStopping", "patience", patience)

    def on_epoch(self, run: Run, row: Row) -> None:
        if not self.improved(run, row) and self.state["waited"] >= self.patience:
            run.stop()


class SaveBest(_Best):
    """Saves the network, alone, after each epoch with the best `monitor` so far:
    `load_checkpoint(path, net)` restores it. mode: as in EarlyStopping."""

    def __init__(self, path: PathLike, monitor: str = "val_loss", mode: Mode = "auto") -> None:
        super().__init__(monitor, mode)
        self.path = path

    def on_start(self, run: Run) -> None:
        super().on_start(run)
        if not run.rank:
            writable(self.path, CALLS)

    def on_epoch(self, run: Run, row: Row) -> None:
        if self.improved(run, row) and not run.rank:
            save_checkpoint(run.model.net, self.path)


class ReduceRate(_Best):
    """Multiplies the optimizer's learning rate by `factor`, down to `low`, after `patience` epochs
    in a row without a better `monitor`, and counts anew; of optim.Groups, the rate of each. mode:
    as in EarlyStopping. `optim.OnPlateau` is for loops by hand."""

    def __init__(
        self,
        factor: float = 0.1,
        patience: int = 10,
        monitor: str = "val_loss",
        mode: Mode = "auto",
        low: float = 0.0,
    ) -> None:
        super().__init__(monitor, mode)
        self.factor = number("ReduceRate", "factor", factor, 0, below=1)
        self.patience = count("ReduceRate", "patience", patience)
        self.low = number("ReduceRate", "low", low, 0)

    def on_epoch(self, run: Run, row: Row) -> None:
        if self.improved(run, row) or self.state["waited"] < self.patience:
            return
        self.state["waited"] = 0
        optimizer = run.model.optimizer
        for part in optimizer.parts() if isinstance(optimizer, Groups) else (optimizer,):
            part.lr = min(float(part.lr), max(float(part.lr) * self.factor, self.low))


class Log(Callback):
    """Writes a line an epoch: JSON, or CSV for a path that ends in .csv.

    The file is written atomically. A resumed run keeps the lines of the epochs that are done; one
    from the start begins the file anew.
    """

    rank_0_only = True

    def __init__(self, path: PathLike) -> None:
        self.path, self._rows = Path(path), list[Row]()

    def on_start(self, run: Run) -> None:
        writable(self.path, CALLS)
        self._rows = self._kept(run.epoch) if run.epoch and self.path.exists() else []

    def on_epoch(self, run: Run, row: Row) -> None:
        self._rows.append({k: _plain(v) for k, v in row.items()})
        write(self.path, iter([self._text().encode()]), self.path)

    def _kept(self, epochs: int) -> list[Row]:
        """The lines of the first epochs; CheckpointError for a file that is not such a log."""
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


# --- Progress in a terminal -----------------------------------------------------------------------


class _Progress(Callback):
    """Base of progress displays: says so if a resumed run has nothing left to train."""

    rank_0_only = True

    def on_start(self, run: Run) -> None:
        if run.stopped or run.epoch >= run.epochs:
            print(
                f"nothing to train: the run that was resumed ended after epoch {run.epoch} of "
                f"{run.epochs}; for another one give resume= another file",
                flush=True,
            )


class Lines(_Progress):
    """Prints a line after each epoch."""

    def on_epoch(self, run: Run, row: Row) -> None:
        print(f"epoch {row['epoch']}/{run.epochs}  {shown(row)}", flush=True)


class Bar(_Progress):
    """Shows a bar of tqdm for each epoch, whose last state stays."""

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
    """A bar in a terminal, if tqdm is installed, else lines."""
    try:
        from tqdm import tqdm
    except ImportError:
        return Lines()
    return Bar(tqdm) if sys.stderr.isatty() else Lines()
