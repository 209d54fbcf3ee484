"""Model: a network with what it learns from, and the call that trains it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..archive import PathLike
from ..data import DataLoader
from ..tracebacks import hides_frames
from .callbacks import Callback, check_callbacks
from .checks import check_batches, check_labels
from .learner import Learner
from .metrics import Row
from .progress import progress
from .run import Run


class Model(Learner):
    """A network, its loss and its optimizer: `fit`, `evaluate`, `predict`.

    net, loss, optimizer, clip, loss_scale: those of `train_step`; an optimizer is for `fit` alone.
    metrics: as `train.accuracy()`; they compare the network's output with the first of the labels.
    """

    @hides_frames
    def fit(
        self,
        data: DataLoader | Iterable[Any],
        epochs: int,
        validation: DataLoader | Iterable[Any] | None = None,
        callbacks: Sequence[Callback] = (),
        resume: PathLike | None = None,
        save_every: int = 1000,
        show: bool = True,
    ) -> list[Row]:
        """Train for as many epochs; one row of numbers for each that this call has finished.

        data: a DataLoader, or what gives the same batches (x, *labels) at each iteration.
        validation: evaluated after each epoch, as "val_loss" and so on. show: a bar of tqdm in a
        terminal, else a line an epoch.

        resume: a file that the run is saved to after each epoch, every `save_every` steps, on
        Ctrl-C and when something raises; and from which it goes on if it exists. However often
        a run is killed and called again, its weights end in the bits of one that is not: the file
        holds the network, the optimizer, the random stream, the place in the data, what has been
        counted and the state of callbacks. CheckpointError for the file of another run.

        NonFiniteError for a loss or weights that are not finite: the network and the file are
        then as they were some steps before. Ctrl-C takes effect after the step: a second one,
        at once.
        """
        check_batches("fit", data, epochs)
        _ = self.step  # refused without an optimizer
        check_labels(self.net, self.loss, data)
        check_callbacks(callbacks)
        if validation is not None:
            check_batches("fit", validation, epochs)
            check_labels(self.net, self.loss, validation)
        seen = [progress()] if show else []
        run = Run(self, data, epochs, validation, [*callbacks, *seen], resume, save_every)
        return run.go()
