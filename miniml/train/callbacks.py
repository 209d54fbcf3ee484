"""Callbacks: hooks that a run calls at its beginning, between steps and after each epoch.

The base class; stopping, saving and logging; progress in a terminal; curves in a notebook;
TensorBoard.
"""

from __future__ import annotations

import csv
import io
import json
import sys
import time
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Protocol

from ..core.errors import CheckpointError, MinimlError
from ..core.files import PathLike, short, writable, write
from ..core.hints import Constructed, optional
from ..core.options import choice, count, number
from ..optim import Groups
from .checkpoint import CALLS, save_checkpoint
from .learner import Learner, check_listed
from .metrics import Row

__all__ = ["Callback", "EarlyStopping", "LivePlot", "Log", "ReduceRate", "SaveBest", "TensorBoard"]

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


# --- Curves in a notebook -------------------------------------------------------------------------


_SHARE = 0.05  # the largest share of the time spent on pictures


class LivePlot(Callback):
    """One picture below the cell of a notebook, redrawn every `seconds` at most: the loss
    by steps and, for the loss and each metric, training and validation by epochs.

    Outside of a notebook it says so, once, and does nothing. MinimlError where matplotlib is not
    installed.
    """

    rank_0_only = True

    def __init__(self, seconds: float = 1.0) -> None:
        figures = optional("LivePlot draws with", "matplotlib", "demo", "matplotlib.figure")
        self.seconds, self._figure = number("LivePlot", "seconds", seconds, 0), figures.Figure
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


# --- TensorBoard ----------------------------------------------------------------------------------


class TensorBoard(Callback):
    """Writes event files to a folder; `tensorboard --logdir FOLDER` shows them.

    "step/loss" and "step/lr" a few times a second, and after each epoch "epoch/" and the name of
    each number of its row; all by the number of steps. A resumed run replaces what was
    written after the step from which it resumes. MinimlError where tensorboardX is not installed.
    """

    rank_0_only = True

    def __init__(self, folder: PathLike) -> None:
        who = "TensorBoard writes event files with"
        self.folder = Path(folder)
        self._open = optional(who, "tensorboardX", "tensorboard").SummaryWriter
        self._writer: Any = None

    def on_start(self, run: Run) -> None:
        # File names hold whole seconds: a second run within the same one would replace the first's.
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
