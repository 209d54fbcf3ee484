"""Model: a network with its loss and optimizer; and Run, the resumable loop of `fit`.

Run can be stopped at any moment and resumes to the same bits; Interrupts makes Ctrl-C wait for the
end of a step. Last `find_rate`, a search for the learning rate, from a few steps at growing rates.
"""

from __future__ import annotations

import json
import math
import signal
import threading
import time
from _signal import signal as set_handler  # type: ignore[import-not-found]
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import ExitStack, closing
from dataclasses import dataclass
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from ..core.access import uninterrupted
from ..core.errors import CheckpointError, MinimlError, NonFiniteError, ValueRefusedError
from ..core.files import PathLike, short, writable
from ..core.hints import by_keyword, hides_frames, optional
from ..core.options import count, number
from ..core.parameter import Parameter, random_state
from ..core.tensor import Array
from ..data import DataLoader, Stream
from ..nn import Cell
from ..nn.state import streams
from .callbacks import Callback, check_callbacks, progress
from .checkpoint import (
    CALLS,
    Snapshot,
    load_checkpoint,
    names_below,
    save_checkpoint,
    spread_checkpoint,
)
from .learner import Learner, batches_of, check_batches, check_labels, in_batches, with_weights
from .metrics import Row
from .step import TrainStep, locate_nonfinite
from .weights import ClassWeights, weights_of_classes

__all__ = ["Model", "RateSearch", "find_rate"]


class Model(Learner):
    """A network, its loss and its optimizer: `fit`, `evaluate`, `predict`.

    net, loss, optimizer, clip, loss_scale: those of `train_step`; an optimizer is for `fit` alone.
    The aux of a loss, a dict of numbers returned beside it, is averaged as the loss is.

    metrics: as `train.accuracy()`, or "accuracy", the name of one that needs no arguments; they
    compare the network's output with the first of the labels, and count all rows alike.
    For several outputs a dict, {"head": [train.accuracy()]}: by the key of a dict of outputs, or
    the index of a tuple; the name of the value is then "head_accuracy". Labels are a dict or tuple
    of the same keys, in (x, labels) or, of a tuple, in (x, *labels); one array is compared with
    each output.

    weighted_metrics: such metrics, which take the weights of rows and classes given to `fit`,
    `evaluate` and `validation=`, or to a loss of `nn.SampleWeighted`: a mean is sum(weight * value)
    / sum(weight). One whose name `metrics` has is called "weighted_" and its name.

    group: the ranks that train together, as `ml.distributed.init()` gives it; see `train_step`. All
    call `fit`, `evaluate` and `predict` alike, with arrays or a DataLoader of the group, or each
    with equally many batches of its own, and get the same numbers. The file of `resume=` is rank
    0's, and saved before the first step, after each epoch and every `save_every` steps, not when
    something is raised; as many ranks resume from it to the same bits, others to rounding.
    DistributedError where a rank raises, ends, does not come or has other weights.
    """

    @hides_frames
    @by_keyword("0.2", 2, "epochs", "validation", "callbacks", "resume", "save_every", "show")
    def fit(
        self,
        data: Any,
        *labels: Any,
        epochs: int,
        batch_size: int | None = None,
        seed: int | None = 0,
        validation: Any = None,
        class_weight: ClassWeights | None = None,
        sample_weight: Any = None,
        callbacks: Sequence[Callback] = (),
        resume: PathLike | None = None,
        save_every: int = 1000,
        show: bool = True,
    ) -> list[Row]:
        """Train for this many epochs; returns a row of numbers for each that this call finished.

        data: arrays with equally many rows, as `fit(x, y, epochs=3)` or `fit((x, y), epochs=3)`:
        batches of `batch_size` of these, by default 32, as DataLoader(x, y, size=batch_size,
        seed=seed) makes them. Or a DataLoader, or an iterable with the same batches (x, *labels) at
        each iteration. x may be a tuple or dict of arrays; alone, a tuple is (x, *labels).
        validation: in one of these forms, evaluated after each epoch, as "val_loss" and so on; of
        arrays (x, y, weights), one more than there are to learn from, with weights of its rows.
        show: a bar of tqdm in a terminal, else a line an epoch.

        class_weight: a dict or sequence of factors by class, 1 for what it lacks, of the losses of
        the rows with these labels (integers, 0 and 1 as floats, or one-hot); sample_weight: of
        arrays, a factor for each row (N,). Both multiply. As in Keras the loss is the sum of the
        weighted losses over the number of rows, not of the weights. `weighted_metrics=` of the
        Model take both, other metrics none, and the validation its own weights of rows alone.

        resume: a file that the run is saved to before its first step, after each epoch, every
        `save_every` steps, and when anything is raised, Ctrl-C and SystemExit of a handler
        included; if it exists, the run resumes from it. However often a run is stopped or killed
        and called again, with the same Model or a new one, its final weights have the bits of an
        uninterrupted run: the file holds the network, the optimizer, the random stream, the
        position in the data, the running totals and the state of callbacks. CheckpointError for
        the file of another run.

        NonFiniteError for a loss or weights that are not finite: the network and the file are
        then as they were some steps before. Ctrl-C takes effect after the step; a second one at
        once, and the interrupted step is undone, as with all that is raised.
        """
        step, weighs, classes = self.step, sample_weight is not None, weights_of_classes(None)
        held_out = self._held_out(validation, data, labels, epochs)
        if class_weight is not None or weighs:
            classes = weights_of_classes(class_weight)
            step = self.weighted_step(classes, weighs)
            data, labels = with_weights("fit", data, labels, sample_weight)
        made = in_batches("fit", data, labels, batch_size, 32, seed, self.group)
        data = _in_equal_parts("fit", made, batch_size)
        check_batches("fit", data, epochs)
        check_labels(self.net, self.loss, data)
        check_callbacks(callbacks)
        seen = [progress()] if show else []
        run = Run(self, data, epochs, held_out[0], [*callbacks, *seen], resume, save_every)
        run.weigh(step, weighs, classes, held_out[1])
        return run.go()

    def _held_out(
        self, validation: Any, data: Any, labels: Sequence[Any], epochs: int
    ) -> tuple[Any, bool]:
        """The batches of a validation, and True if weights of their rows are behind the labels: the
        array that a tuple (x, *labels) has more of than the data to learn from."""
        if validation is None:
            return None, False
        known, weights = _number_of_labels(data, labels), None
        if known and type(validation) is tuple and len(validation) == known + 2:
            *validation, weights = validation
            validation, _ = with_weights("validation", tuple(validation), (), weights)
        batches = in_batches("fit", validation, (), None, 256, group=self.group)
        check_batches("fit", batches, epochs)
        check_labels(self.net, self.loss, batches)
        return batches, weights is not None


def _number_of_labels(data: Any, labels: Sequence[Any]) -> int | None:
    """The labels of a batch, counted before there is one; None where its source does not tell."""
    if labels or isinstance(data, tuple):
        return len(labels) or len(data) - 1
    if isinstance(data, DataLoader) and not data.of_tuples:
        return len(data.sources) - 1
    return None


def _in_equal_parts(who: str, data: Any, batch_size: int | None) -> Any:
    """The data, with batches that their ranks can divide: fewer rows where nobody asked for a
    number, else ValueRefusedError."""
    if isinstance(data, DataLoader) and data.group is not None and data.size % data.group.size:
        ranks = data.group.size
        if batch_size is not None or data.size < ranks:
            raise ValueRefusedError(
                f"{who} got batches of {data.size} rows, which {ranks} ranks cannot divide in "
                f"equal parts; give batch_size= a multiple of {ranks}"
            )
        data.size -= data.size % ranks
    return data


# --- The loop of fit ------------------------------------------------------------------------------


# Losses are read after this many steps or seconds, as reading one waits for the GPU; and so seldom
# that the check and copy of all weights after it take less than this share of the time.
_STEPS, _SECONDS, _SHARE = 100, 0.25, 0.02
# The position of a run: attributes that are never changed in place.
_POSITION = ("epoch", "done", "steps", "stopped", "_total", "_sums", "_aux")


class Run:
    """One call of `fit`: its position, and its running totals.

    epoch, done, steps: whole epochs, batches of the next one, and steps done, as of the last time
    that losses were read. Later steps are not counted yet, and are undone if anything is raised,
    even a handler's SystemExit in the middle of a line.
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
        self.epochs = count("fit", "epochs", epochs)
        self.save_every = count("fit", "save_every", save_every)
        self.model, self.data, self.validation = model, data, validation
        self.weigh(model.step)
        self.callbacks = callbacks
        self.path = None if path is None else writable(path, CALLS)
        self.batches = len(data) if isinstance(data, Sized) else None
        self.epoch = self.done = self.steps = 0
        self.ranks, self.rank = model.ranks, model.ranks.group.rank
        self._several = model.group is not None
        self.stopped, self._interrupts = False, Interrupts()
        self._total, self._sums, self._aux = 0.0, model.zeros(), dict[str, float]()
        self._good: Snapshot | None = None
        cells = [cell for part in self._cells().values() for cell in part.cells()]
        self._modes = [(cell, cell.training) for cell in cells]
        self._unread: list[tuple[Any, Sequence[Any]]] = []
        self._most, self._pause, self._ahead = _STEPS, _SECONDS, 1
        self._rows: list[Row] = []

    def weigh(
        self,
        step: TrainStep,
        rows: bool = False,
        classes: tuple[float, ...] = (),
        validation: bool = False,
    ) -> None:
        """Train by a step with weights of classes; rows, validation: the batches to learn from, and
        those of the validation, have weights of rows behind the labels."""
        self.step, self._weighs, self._validation_weighs = step, (rows, classes), validation

    def stop(self) -> None:
        """End the run after this epoch."""
        self.stopped = True

    def go(self) -> list[Row]:
        """Train to the end; returns the rows of the epochs."""
        self._mark()
        self._resume()
        try:
            self._interrupts.during(self._loop)
        except BaseException as error:
            self._rescue(error)
            raise
        finally:
            self._end()
        self.ranks.group.agree("the end of fit, when all files are written")
        return self._rows

    def _loop(self) -> None:
        self.ranks.group.agree(
            f"fit of {self.epochs} epochs of {self.batches} batches, after {self.steps} steps, "
            f"save_every={self.save_every}"
        )
        self._call("on_start")
        while self.epoch < self.epochs and not self.stopped:
            self._train()
            self._finish()

    def _train(self) -> None:
        """Train the rest of an epoch."""
        if not self.done:
            self._call("on_epoch_start")
        step, unread, clock = self.step, self._unread, time.perf_counter
        began = self._since = clock()
        room = self._room()
        with closing(self._left()) as batches:
            for x, *labels in batches:
                unread.append((step(x, *labels), labels))
                late = not self._several and clock() > self._since + self._pause
                if late or len(unread) >= room or self._interrupts.noted:
                    self._read()
                    room = self._room()
        self._read()
        self._seconds = clock() - began

    def _left(self) -> Generator[Any, None, None]:
        """The remaining batches of this epoch."""
        if isinstance(self.data, (DataLoader, Stream)):
            return self.data.batches(self.epoch, self.done)
        return batches_of(islice(self.data, self.done, None))

    def _room(self) -> int:
        """The number of steps to take before losses are read. Ranks have no common clock, and read
        after as many steps as rank 0 takes in the time."""
        most = self._most
        if self._several:
            most = min(most, int(self.ranks.arrays("steps to take", np.array([self._ahead]))[0, 0]))
        return min(most, self.save_every - self.steps % self.save_every)

    def _read(self) -> None:
        """Read the losses of the steps taken, count these, and save if a checkpoint is due."""
        if not self._unread:
            return
        taken = self._unread
        results = [self.model.parts(result) for result, _ in taken]
        losses = [float(loss) for loss, _, _ in results]
        read = time.perf_counter()
        self._check_finite(losses)
        checked = time.perf_counter()
        total, sums, aux = self._total, [one.copy() for one in self._sums], self._aux
        every = zip(losses, results, taken, strict=True)
        for done, (loss, (_, out, beside), (_, labels)) in enumerate(every, self.done):
            total, aux = total + loss, self.model.added(aux, beside, not done)
            self.model.count(sums, out, labels, *self._weighs)
        self._total, self._sums, self._aux = total, sums, aux
        self.done, self.steps = self.done + len(losses), self.steps + len(losses)
        self._call("on_steps", losses)
        marking = time.perf_counter()
        self._mark()
        self._pace(len(losses), read, checked - read + time.perf_counter() - marking)
        if self.steps % self.save_every == 0:
            self._save()
        self._heed()
        self._since = time.perf_counter()

    def _pace(self, steps: int, read: float, cost: float) -> None:
        """Set when to read next, after steps read at that time, whose check took `cost` seconds."""
        self._pause = max(_SECONDS, cost / _SHARE)
        self._ahead = max(1, int(self._pause * steps / max(read - self._since, 1e-9)))
        self._most = max(_STEPS, int(steps * cost / _SHARE / max(read - self._since, 1e-9)))

    def _finish(self) -> None:
        """End an epoch: its row, its validation, its callbacks, a checkpoint."""
        if not self.done:
            raise MinimlError("fit got data without a batch; give data with at least one")
        row = {"epoch": self.epoch + 1, **self._means()}
        if self.validation is not None:
            batches = self._heeding(self.validation)
            scores = self.model.judged(batches, self._validation_weighs)
            row |= {f"val_{name}": value for name, value in scores.items()}
        row["seconds"] = row.pop("seconds")
        self._call("on_epoch", row)
        self._rows.append(row)
        self.epoch, self.done = self.epoch + 1, 0
        self._total, self._sums, self._aux = 0.0, self.model.zeros(), {}
        self._mark()
        self._save()
        self._heed()

    def _means(self) -> Row:
        """The loss, aux, metrics and seconds of the epoch, which are the same on all ranks: means
        over these, of metrics those of all rows."""
        at = f"the end of epoch {self.epoch + 1} after {self.done} steps"
        own = {"seconds": self._seconds, **self.model.counted(self._total, self._aux, self._sums)}
        found = self.ranks.summed(at, own)
        size = self.ranks.group.size
        row = self.model.means(found, self.done * size)
        return row | {"seconds": float(found["seconds"]) / size}

    def _heeding(self, data: Iterable[Any]) -> Iterator[Any]:
        """The batches of a validation, between which Ctrl-C takes effect."""
        for batch in data.every_row() if isinstance(data, DataLoader) else data:
            self._heed()
            yield batch

    def _check_finite(self, losses: Sequence[float]) -> None:
        """NonFiniteError for a NaN or infinite loss or weight, with the operation that made it."""
        bad = next((i for i, loss in enumerate(losses) if not math.isfinite(loss)), None)
        with np.errstate(all="ignore"):
            if bad is None and all(map(_is_finite, self.model.optimizer.params)):
                return
        what = "a weight is not finite" if bad is None else f"the loss is {losses[bad]}"
        last = len(losses) if bad is None else bad + 1
        self._undo()
        found = None
        if not isinstance(self.data, Iterator):
            found = locate_nonfinite(self.step, islice(self._left(), last))
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
        """Take a snapshot of the present state, to which `_undo` returns. Signals have to wait
        meanwhile, as their handlers may raise."""
        with uninterrupted():
            self._unread.clear()
            if self._good is None:
                self._good = Snapshot(self.model.optimizer, *self._cells().values())
            else:
                self._good.renew()
            self._states = [_copied(callback.state) for callback in self.callbacks]
            self._position = {name: getattr(self, name) for name in _POSITION}

    def _undo(self) -> None:
        if self._good is not None:
            self._good.restore()
        self._unread.clear()
        vars(self).update(self._position)
        for callback, state in zip(self.callbacks, self._states, strict=True):
            callback.state = _copied(state)
        for cell, mode in self._modes:  # an interrupted evaluation leaves the wrong one
            cell.training = mode

    def _rescue(self, error: BaseException) -> None:
        """Return to the last snapshot and save it; the first error is the one raised. Signals wait
        again: a second one would lose what the first one has left."""
        with uninterrupted():
            try:
                self._undo()
                if not self._several:  # else ranks are at other steps, or gone
                    self._save()
            except Exception as second:
                error.add_note(f"the run could not be saved: {second}")
            else:
                error.add_note(self._progress_note())

    def _progress_note(self) -> str:
        at = f"step {self.done} of epoch {self.epoch + 1}"
        if self.path is None:
            return f"the network is as it was after {at}; resume='run.safetensors' saves the run"
        if self._several:
            return f"fit with resume={str(self.path)!r} goes on where all ranks were saved last"
        return f"saved as it was after {at}: fit with resume={str(self.path)!r} goes on there"

    def _end(self) -> None:
        """Call `on_end` of every callback, even if that of another one raises."""
        with ExitStack() as ends:
            for callback in reversed(self.callbacks):
                ends.callback(self._call_one, callback, "on_end")

    def _call(self, method: str, *args: Any) -> None:
        for callback in self.callbacks:
            self._call_one(callback, method, *args)

    def _call_one(self, callback: Callback, method: str, *args: Any) -> None:
        if self.rank and callback.rank_0_only:
            return
        try:
            getattr(callback, method)(self, *args)
        except Exception as error:
            error.add_note(f"raised by {type(callback).__name__}.{method}")
            raise

    def _heed(self) -> None:
        """Raise KeyboardInterrupt after Ctrl-C."""
        if self._interrupts.noted:
            raise KeyboardInterrupt

    def _cells(self) -> dict[str, Cell]:
        """The cells that a step may write."""
        parts = {
            "net": self.model.net,
            "loss": self.model.loss,
            "scale": self.model.step.loss_scale,
        }
        return {name: part for name, part in parts.items() if isinstance(part, Cell)}

    def _state(self) -> dict[str, Any]:
        """The content of a checkpoint: all that an exact resume needs."""
        state = {**self._cells(), "optimizer": self.model.optimizer, "random": random_state}
        state |= {f"random.{path}": stream for path, stream in streams(self._cells()).items()}
        state |= {"epoch": self.epoch, "done": self.done, "steps": self.steps}
        state |= {"total": self._total, "stopped": self.stopped, **_manifest(self.data)}
        state |= {f"aux.{name}": total for name, total in self._aux.items()}
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
        """Save the run, if there is a file; before it DistributedError where the ranks have other
        weights, as the file holds those of rank 0."""
        if self._several and self.steps:
            self.ranks.compare(
                self.step.held(),
                f"fit got after step {self.steps}",
                "and all update theirs alike; a training_step of your own averages gradients by "
                "ml.distributed.all_reduce",
            )
        if self.path is None:
            return
        state = self._state()
        if self._several:  # what differs between ranks, those of all
            values = {name: np.asarray(state[name]) for name in self._own(state)}
            each = {n: self.ranks.arrays(f"saving {n}", value) for n, value in values.items()}
            state |= {f"ranks{len(a)}.{name}": a for name, a in each.items()}
        if not self.rank:
            save_checkpoint(state, self.path)

    def _own(self, state: Mapping[str, Any]) -> list[str]:
        """The entries that each rank has for itself: sums of metrics, and random streams."""
        return [name for name in state if name.startswith(("metric.", "random"))]

    def _resume(self) -> None:
        """Resume from the file; if there is none, save the start, so that the next call begins
        there, with the same Model, too, whatever ends this one."""
        if self.path is None:
            return
        try:
            found = json.loads(self.ranks.texts("whether to resume", json.dumps(self._found()))[0])
            if found is None:
                self._save()
                return
            aux, count = found
            self._aux = dict.fromkeys(aux, 0.0)
            state = self._state()
            for name in self._own(state) if count > 1 else ():
                one = np.asarray(state[name])
                state[f"ranks{count}.{name}"] = np.zeros((count, *one.shape), one.dtype)
            if not self.rank:
                load_checkpoint(self.path, state)
            spread_checkpoint(state, self.ranks.group)
            _check_manifest(self.path, state, self.data)
            self._take_own(state, count)
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
        self._aux = {name: state[f"aux.{name}"] for name in self._aux}
        for prefix, callback in self._stateful():
            callback.state = {key: state[prefix + key] for key in callback.state}
        self._mark()

    def _found(self) -> tuple[list[str], int] | None:
        """The names of aux in the file, and the number of ranks that saved it; None without a file,
        and on other ranks than 0, which do not look for one."""
        if self.rank or not Path(str(self.path)).exists():
            return None
        own = names_below("ranks", str(self.path))
        return names_below("aux.", str(self.path)), int(own[0].split(".")[0]) if own else 1

    def _take_own(self, state: dict[str, Any], count: int) -> None:
        """Take this rank's entries from those of `count` ranks. Where these were others, all take
        the random stream of rank 0, and rank 0 the sums of all."""
        for name in self._own(state):
            every = state.get(f"ranks{count}.{name}", np.asarray(state[name])[None])
            if isinstance(state[name], Parameter):
                state[name].set_data(every[self.rank if count == self.ranks.group.size else 0])
            elif count == self.ranks.group.size:
                state[name] = every[self.rank]
            else:
                state[name] = every.sum(0) * (self.rank == 0)


def _is_finite(parameter: Parameter) -> bool:
    """True if all elements are finite: their sum tells, unless it overflows."""
    values = np.asarray(parameter) if parameter.device == "cpu" else parameter.asnumpy()
    return bool(np.isfinite(values.sum()) or np.isfinite(values).all())


def _manifest(data: Any) -> dict[str, int]:
    """The numbers that identify the data of a run."""
    if not isinstance(data, DataLoader):
        return {}
    seed = -1 if data.seed is None else data.seed
    found = {"data.rows": data.rows, "data.size": data.size, "data.seed": seed}
    return {**found, "data.batches": len(data)}


def _check_manifest(path: PathLike, state: Mapping[str, Any], data: Any) -> None:
    """CheckpointError if the loaded state is that of a run on other data."""
    own, batches = _manifest(data), len(data) if isinstance(data, Sized) else math.inf
    other = [f"{k} {state[k]} in the file, {v} here" for k, v in own.items() if state[k] != v]
    behind = {key: state[key] for key in ("epoch", "done", "steps")}
    if min(behind.values()) < 0 or behind["done"] > batches:
        other.append(f"{behind} in the file, {batches} batches here")
    if other:
        raise CheckpointError(
            f"{short(path)} is of a run on other data: {', '.join(other)} (seed -1: no "
            "shuffling); give the same DataLoader, or another file; nothing was loaded"
        )


def _copied(state: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of the state of a callback, which may write into its arrays."""
    return {k: v.copy() if isinstance(v, np.ndarray) else v for k, v in state.items()}


# --- Interrupts -----------------------------------------------------------------------------------


class Interrupts:
    """Defers Ctrl-C: inside `during` it sets `noted`, and a second one raises KeyboardInterrupt at
    once. A handler that is not Python's default stays."""

    noted = False

    def during(self, fn: Callable[[], None]) -> None:
        """Call fn and restore the old handler, whatever other handlers raise: they run only where
        a Python function begins, of which there is none between fn and the C call that restores,
        and in that call, before it changes anything."""
        main = threading.current_thread() is threading.main_thread()
        default = signal.default_int_handler
        note = main and signal.getsignal(signal.SIGINT) is default
        try:
            if note:
                set_handler(signal.SIGINT, self._note)
            fn()
        finally:
            if note:
                try:
                    set_handler(signal.SIGINT, default)
                except BaseException:
                    set_handler(signal.SIGINT, default)
                    raise

    def _note(self, number: int, frame: Any) -> None:
        self.noted = True
        signal.signal(number, signal.default_int_handler)


# --- find_rate ------------------------------------------------------------------------------------

_SMOOTHING, _WORSE = 0.9, 4.0  # of the running mean; a loss of so many times the best one ends it


@dataclass(frozen=True)
class RateSearch:
    """The losses of steps at growing rates: rates and losses (steps,), smoothed: running means of
    the losses without start bias."""

    rates: Array
    losses: Array
    smoothed: Array

    @property
    def suggestion(self) -> float:
        """The rate at which the smoothed loss falls quickest by the logarithm of the rate, from the
        second tenth of the steps on, as the first means are of few, up to its least value."""
        start = min(len(self.rates) // 10, len(self.rates) - 3)
        end = max(int(np.argmin(self.smoothed)) + 1, start + 3)
        slopes = np.gradient(self.smoothed[start:end], np.log(self.rates[start:end]))
        return float(self.rates[start + int(np.argmin(slopes))])

    def picture(self) -> bytes:
        """The losses by rates, as a PNG; MinimlError where matplotlib is not installed."""
        who = "a picture of rates is drawn with"
        figures = optional(who, "matplotlib", "demo", "matplotlib.figure")
        figure = figures.Figure(figsize=(5.0, 3.2), layout="constrained")
        axes = figure.subplots()
        axes.plot(self.rates, self.losses, color="0.75", label="steps")
        axes.plot(self.rates, self.smoothed, label="smoothed")
        axes.axvline(self.suggestion, linestyle="--", label=f"{self.suggestion:.2g}")
        axes.set(xscale="log", xlabel="learning rate", ylabel="loss")
        axes.legend()
        out = BytesIO()
        figure.savefig(out, format="png")
        return out.getvalue()

    def _repr_png_(self) -> bytes:
        return self.picture()


@hides_frames
def find_rate(
    model: Learner,
    data: Any,
    *labels: Any,
    low: float = 1e-6,
    high: float = 1.0,
    steps: int = 100,
    batch_size: int | None = None,
) -> RateSearch:
    """The losses at rates from low to high, each a constant factor above the last, of a step each.

    data, labels, batch_size: as in `Model.fit`, again from the beginning where they end. It ends
    early at a loss that is not finite or 4 times the best smoothed one. Network, optimizer, random
    stream and rate are afterwards as before. MinimlError where it ends too early. Source: Smith
    2017, "Cyclical learning rates for training neural networks", section 3.3.
    """
    who, step = "find_rate", model.step
    low = number(who, "low", low, above=0)
    high, steps = number(who, "high", high, above=low), count(who, "steps", steps, 4)
    data = in_batches(who, data, labels, batch_size, 32, 0, model.group)
    data = _in_equal_parts(who, data, batch_size)
    check_batches(who, data, 2)
    parts = model.net, model.loss, step.loss_scale
    before = Snapshot(model.optimizer, *(part for part in parts if isinstance(part, Cell)))
    first, losses, smoothed = float(model.optimizer.lr), list[float](), list[float]()
    rates = low * (high / low) ** (np.arange(steps) / (steps - 1))
    try:
        with closing(_again(data)) as batches:
            for rate, (x, *own) in zip(rates, batches, strict=False):
                model.optimizer.lr = float(rate)
                loss = float(model.parts(step(x, *own))[0])
                if not math.isfinite(loss) or (smoothed and loss > _WORSE * min(smoothed)):
                    break
                losses.append(loss)
                weights = _SMOOTHING ** np.arange(len(losses))[::-1]
                smoothed.append(float(np.average(losses, weights=weights)))
    finally:
        before.restore()
        model.optimizer.lr = first
    if len(losses) < 4:
        raise MinimlError(
            f"find_rate got {len(losses)} losses before they grew beyond all bounds; give a "
            f"smaller low than {low:g}"
        )
    return RateSearch(rates[: len(losses)], np.array(losses), np.array(smoothed))


def _again(data: Any) -> Generator[Any, None, None]:
    """The batches, over and over."""
    while True:
        empty = True
        with closing(batches_of(data)) as batches:
            for batch in batches:
                empty = False
                yield batch
        if empty:
            raise MinimlError("find_rate got data without a batch; give data with at least one")
