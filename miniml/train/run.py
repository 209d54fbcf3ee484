"""Run: the loop of `fit`, which can be stopped at any moment and goes on with the same bits."""

from __future__ import annotations

import math
import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import ExitStack, closing
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from ..archive import PathLike, writable
from ..data import DataLoader
from ..errors import CheckpointError, MinimlError, NonFiniteError
from ..nn import Cell
from ..nn.state import streams
from ..optim import arguments
from ..random import random_state
from ..uninterrupted import uninterrupted
from .callbacks import Callback
from .checkpoint import load_checkpoint, save_checkpoint
from .checks import batches_of, check_manifest, is_finite, manifest
from .entries import CALLS
from .interrupts import Interrupts
from .learner import Learner
from .metrics import Row
from .snapshot import Snapshot
from .step import locate_nonfinite

# Losses are read after so many steps or seconds: reading one makes the program wait for a GPU. And
# not before the last check and copy of all weights have taken less than this share of the time.
_STEPS, _SECONDS, _SHARE = 100, 0.25, 0.02


class Run:
    """One call of `fit`: where it is, and what it has counted.

    epoch, done, steps: whole epochs, batches of the next one, and steps behind it, as of the last
    time that losses were read. What has happened since is not counted yet, and is undone if
    something raises.
    """

    def __init__(
        self,
        model: Learner,
        data: Iterable[Any],
        epochs: int,
        validation: Iterable[Any] | None,
        callbacks: Sequence[Callback],
        path: PathLike | None,
        save_every: int,
    ) -> None:
        self.epochs = arguments.count("fit", "epochs", epochs)
        self.save_every = arguments.count("fit", "save_every", save_every)
        self.model, self.data, self.validation = model, data, validation
        self.callbacks = callbacks
        self.path = None if path is None else writable(path, CALLS)
        self.batches = len(data) if isinstance(data, Sized) else None
        self.epoch = self.done = self.steps = 0
        self.stopped, self._interrupts = False, Interrupts()
        self._total, self._sums = 0.0, model.zeros()
        self._good: Snapshot | None = None
        self._unread: list[tuple[Any, Sequence[Any]]] = []
        self._most, self._pause = _STEPS, _SECONDS
        self._rows: list[Row] = []

    def stop(self) -> None:
        """End the run after this epoch."""
        self.stopped = True

    def go(self) -> list[Row]:
        """Train to the end; the rows of the epochs."""
        self._mark()
        self._resume()
        try:
            with self._interrupts:
                self._call("on_start")
                while self.epoch < self.epochs and not self.stopped:
                    self._train()
                    self._finish()
        except Exception as error:
            self._rescue(error)
            raise
        finally:
            self._end()
        return self._rows

    def _train(self) -> None:
        """The rest of an epoch."""
        if not self.done:
            self._call("on_epoch_start")
        step, unread, clock = self.model.step, self._unread, time.perf_counter
        began = self._since = clock()
        room = self._room()
        with closing(self._left()) as batches:
            for x, *labels in batches:
                unread.append((step(x, *labels), labels))
                late = clock() > self._since + self._pause
                if late or len(unread) >= room or self._interrupts.noted:
                    self._read()
                    room = self._room()
        self._read()
        self._seconds = clock() - began

    def _left(self) -> Generator[Any, None, None]:
        """The batches of this epoch that are not behind the run."""
        if isinstance(self.data, DataLoader):
            return self.data.batches(self.epoch, self.done)
        return batches_of(islice(self.data, self.done, None))

    def _room(self) -> int:
        """How many steps to take before losses are read."""
        return min(self._most, self.save_every - self.steps % self.save_every)

    def _read(self) -> None:
        """Count the steps that were taken; save if it is time to."""
        if not self._unread:
            return
        taken = self._unread
        results = [r if isinstance(r, tuple) else (r, None) for r, _ in taken]
        losses = [float(loss) for loss, _ in results]
        read = time.perf_counter()
        self._check_finite(losses)
        checked = time.perf_counter()
        total, sums = self._total, [one.copy() for one in self._sums]
        for loss, (_, out), (_, labels) in zip(losses, results, taken, strict=True):
            total += loss
            self.model.count(sums, out, labels)
        marking = time.perf_counter()
        with uninterrupted():
            taken.clear()
            self._total, self._sums = total, sums
            self.done, self.steps = self.done + len(losses), self.steps + len(losses)
            self._mark()
        self._pace(len(losses), read, checked - read + time.perf_counter() - marking)
        self._call("on_steps", losses)
        if self.steps % self.save_every == 0:
            self._save()
        self._heed()
        self._since = time.perf_counter()

    def _pace(self, steps: int, read: float, cost: float) -> None:
        """When to read next, after steps that were read at that time and whose check cost that."""
        self._pause = max(_SECONDS, cost / _SHARE)
        self._most = max(_STEPS, int(steps * cost / _SHARE / max(read - self._since, 1e-9)))

    def _finish(self) -> None:
        """The end of an epoch: its row, its validation, its callbacks, a checkpoint."""
        if not self.done:
            raise MinimlError("fit got data without a batch; give data with at least one")
        row = {"epoch": self.epoch + 1, "loss": self._total / self.done}
        row |= self.model.results(self._sums)
        if self.validation is not None:
            judged = self.model.evaluate(self._heeding(self.validation))
            row |= {f"val_{name}": value for name, value in judged.items()}
        row["seconds"] = self._seconds
        self._call("on_epoch", row)
        with uninterrupted():
            self._rows.append(row)
            self.epoch, self.done = self.epoch + 1, 0
            self._total, self._sums = 0.0, self.model.zeros()
            self._mark()
        self._save()
        self._heed()

    def _heeding(self, data: Iterable[Any]) -> Iterator[Any]:
        """The batches of a validation, between which Ctrl-C is heard."""
        for batch in data.every_row() if isinstance(data, DataLoader) else data:
            self._heed(undo=True)
            yield batch

    def _check_finite(self, losses: Sequence[float]) -> None:
        """NonFiniteError for a loss or a weight that is none, with the operation it began in."""
        bad = next((i for i, loss in enumerate(losses) if not math.isfinite(loss)), None)
        with np.errstate(all="ignore"):
            if bad is None and all(map(is_finite, self.model.optimizer.params)):
                return
        what = "a weight is not finite" if bad is None else f"the loss is {losses[bad]}"
        last = len(losses) if bad is None else bad + 1
        self._undo()
        found = None
        if not isinstance(self.data, Iterator):
            found = locate_nonfinite(self.model.step, islice(self._left(), last))
        where = "it was not found again op by op" if found is None else f"it began where {found}"
        held = "; the file holds the rate: a callback sets another one in on_start"
        error = NonFiniteError(
            f"training stopped: {what} in epoch {self.epoch + 1}, step {self.done + last}; "
            f"{where}; the network is as it was after step {self.done} of the epoch; a smaller "
            f"learning rate, or clip=1.0, may help{held if self.path else ''}"
        )
        error.__notes__ = list(getattr(found, "__notes__", ()))
        raise error

    def _mark(self) -> None:
        """Remember the present state, which is whole: what is undone goes back to it. Signals have
        to wait meanwhile, since their handlers may raise."""
        if self._good is None:
            self._good = Snapshot(self.model.optimizer, *self._cells().values())
        else:
            self._good.renew()
        self._states = [_copied(callback.state) for callback in self.callbacks]
        self._stopping = self.stopped

    def _undo(self) -> None:
        if self._good is not None:
            self._good.restore()
        self._unread.clear()
        self.stopped = self._stopping
        for callback, state in zip(self.callbacks, self._states, strict=True):
            callback.state = _copied(state)

    def _rescue(self, error: Exception) -> None:
        """Save the last whole state; whatever happens, the error is the first one."""
        try:
            self._undo()
            self._save()
        except Exception as second:
            error.add_note(f"the run could not be saved: {second}")
        else:
            error.add_note(self._where())

    def _where(self) -> str:
        place = f"step {self.done} of epoch {self.epoch + 1}"
        if self.path is None:
            return f"the network is as it was after {place}; resume='run.safetensors' saves the run"
        return f"saved as it was after {place}: fit with resume={str(self.path)!r} goes on there"

    def _end(self) -> None:
        """Call `on_end` of every callback, whatever those of others raise."""
        with ExitStack() as ends:
            for callback in reversed(self.callbacks):
                ends.callback(self._call_one, callback, "on_end")

    def _call(self, method: str, *args: Any) -> None:
        for callback in self.callbacks:
            self._call_one(callback, method, *args)

    def _call_one(self, callback: Callback, method: str, *args: Any) -> None:
        try:
            getattr(callback, method)(self, *args)
        except Exception as error:
            error.add_note(f"raised by {type(callback).__name__}.{method}")
            raise

    def _heed(self, undo: bool = False) -> None:
        """After Ctrl-C: save and stop."""
        if self._interrupts.noted:
            if undo:
                self._undo()
            self._save()
            raise KeyboardInterrupt(self._where())

    def _cells(self) -> dict[str, Cell]:
        """The cells that a step may write."""
        parts = {
            "net": self.model.net,
            "loss": self.model.loss,
            "scale": self.model.step.loss_scale,
        }
        return {name: part for name, part in parts.items() if isinstance(part, Cell)}

    def _state(self) -> dict[str, Any]:
        """All that an exact resume needs, for a checkpoint."""
        state = {**self._cells(), "optimizer": self.model.optimizer, "random": random_state}
        state |= {f"random.{path}": stream for path, stream in streams(self._cells()).items()}
        state |= {"epoch": self.epoch, "done": self.done, "steps": self.steps}
        state |= {"total": self._total, "stopped": self.stopped, **manifest(self.data)}
        metrics = zip(self.model.metrics, self._sums, strict=True)
        state |= {f"metric.{metric.name}": total for metric, total in metrics}
        return state | {f"{p}{k}": v for p, c in self._stateful() for k, v in c.state.items()}

    def _stateful(self) -> Iterator[tuple[str, Callback]]:
        """The callbacks that have a state, with the prefix of its names."""
        count: dict[str, int] = {}
        for callback in self.callbacks:
            if callback.state:
                kind = type(callback).__name__
                count[kind] = count.get(kind, 0) + 1
                yield f"callback.{kind}{count[kind]}.", callback

    def _save(self) -> None:
        if self.path is not None:
            save_checkpoint(self._state(), self.path)

    def _resume(self) -> None:
        """Go on from the file, if there is one."""
        if self.path is None or not Path(self.path).exists():
            return
        state = self._state()
        try:
            load_checkpoint(self.path, state)
            check_manifest(self.path, state, self.data)
        except CheckpointError as error:
            self._undo()
            error.add_note(
                "resume= goes on with the same network, optimizer, metrics and callbacks; give "
                "another file to begin anew"
            )
            raise
        self.epoch, self.done, self.steps = state["epoch"], state["done"], state["steps"]
        self._total, self.stopped = state["total"], state["stopped"]
        self._sums = [state[f"metric.{m.name}"] for m in self.model.metrics]
        for prefix, callback in self._stateful():
            callback.state = {key: state[prefix + key] for key in callback.state}
        self._mark()


def _copied(state: Mapping[str, Any]) -> dict[str, Any]:
    """A state of a callback, which may write into its arrays."""
    return {k: v.copy() if isinstance(v, np.ndarray) else v for k, v in state.items()}
