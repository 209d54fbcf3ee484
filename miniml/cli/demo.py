"""`demo`: a small convolutional network learns to read handwritten digits."""

from __future__ import annotations

import math
import sys
import time
from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import threadpoolctl

from .. import nn, optim, random, settings
from ..backends.devices import get_device
from ..data import Digits, load_digits, minibatches
from ..errors import MinimlError, NonFiniteError
from ..graph.function import trace
from ..graph.passes import run_passes
from ..tensor import Array, Tensor
from ..train import Snapshot, load_checkpoint, locate_nonfinite, save_checkpoint, train_step
from .named import whole
from .picture import save_picture

BATCH = 32
EPOCHS, EPOCHS_SIMULATED = 20, 1  # a step on the simulator takes a hundred times as long
COMPARED = 10  # first steps, taken on the CPU too when another device trains
AGREE = 1e-3  # of a loss: rounding, which every step carries on, stays far below, a fault does not
WEIGHTS, PICTURE = Path("digits.safetensors"), Path("digits.png")


@dataclass(frozen=True)
class Demo:
    """The options of the demo.

    epochs: None for as many as the device does in reasonable time. mode: "graph" or "eager". lr:
    the learning rate of the first epoch, from which it goes down to almost 0 along a cosine.
    """

    device: str = "cpu"
    epochs: int | None = None
    seed: int = 0
    mode: str = "graph"
    lr: float = 3e-3

    @property
    def rounds(self) -> int:
        """How many times to go through the digits."""
        if self.epochs is not None:
            return self.epochs
        simulated = settings.device_name(self.device) == "cuda-sim"
        return EPOCHS_SIMULATED if simulated else EPOCHS


@dataclass
class Progress:
    """The record of a training run: a loss for each step, an accuracy for each epoch, seconds."""

    losses: list[float] = field(default_factory=list)
    accuracies: list[float] = field(default_factory=list)
    first: float = 0.0
    rest: list[float] = field(default_factory=list)


def network() -> nn.Sequential:
    """Images (N, 1, 8, 8) to ten scores each: two convolutions, one pooling, one dense layer."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.25),
        nn.Dense(32 * 4 * 4, 10),
    )


def add(command: ArgumentParser) -> None:
    """The options of the command."""
    defaults = Demo()
    command.add_argument(
        "--device",
        default=defaults.device,
        metavar="cpu|cuda-sim|cuda",
        help="where to compute (default: %(default)s)",
    )
    command.add_argument(
        "--epochs",
        type=partial(whole, "number of epochs", 1),
        help=f"how many times to go through the digits (default: {EPOCHS}; on cuda-sim, which "
        f"takes its time, {EPOCHS_SIMULATED})",
    )
    command.add_argument(
        "--seed",
        type=partial(whole, "seed", 0),
        default=defaults.seed,
        help="chooses the initial weights, the held-out digits and their order; equal seeds give "
        "equal weights (default: %(default)s)",
    )
    command.add_argument(
        "--mode",
        choices=("graph", "eager"),
        default=defaults.mode,
        help="compile each step into one program, or run it op by op (default: %(default)s)",
    )
    command.add_argument(
        "--lr",
        type=float,
        default=defaults.lr,
        help="learning rate; try 1e30 to see a run go wrong (default: %(default)s)",
    )
    command.set_defaults(run=lambda o: run(Demo(o.device, o.epochs, o.seed, o.mode, o.lr)))


def run(demo: Demo) -> int:
    """The whole demo, in the current folder; returns the exit code."""
    started = time.perf_counter()
    get_device(settings.device_name(demo.device))
    digits = load_digits(demo.seed)
    graph = demo.mode == "graph"
    mode = settings.GRAPH_MODE if graph else settings.PYNATIVE_MODE
    # The matrices are small: threads of BLAS would wait for each other more than they compute.
    alone = threadpoolctl.threadpool_limits(1, "blas")
    with alone, settings.context(device_target=demo.device, mode=mode, jit=graph, sim="fast"):
        net, step = _learner(demo)
        _introduce(demo, digits, net, step)
        progress = _train(demo, digits, net, step)
        scores = predict(net, digits.test_images)
        _report(progress, scores, digits, time.perf_counter() - started)
        if settings.device_name(demo.device) != "cpu":
            _compare(demo, digits, progress.losses[:COMPARED])
        _save(net, scores, digits, progress)
    return 0


def _learner(demo: Demo) -> tuple[nn.Cell, Any]:
    """A new network and what trains it by a batch at a time; equal for equal seeds."""
    random.manual_seed(demo.seed)
    net = network()
    adam = optim.Adam(net.trainable_params(), lr=demo.lr)
    return net, train_step(net, nn.CrossEntropyLoss(), adam)


def predict(net: nn.Cell, images: Array) -> Array:
    """Scores (N, 10) of images (N, 1, 8, 8), with the network in evaluation mode."""
    net.set_train(False)
    scores: Tensor = net(Tensor(images))
    net.set_train(True)
    return scores.asnumpy()


def _introduce(demo: Demo, digits: Digits, net: nn.Cell, step: Callable[..., Any]) -> None:
    learnt, held_out = len(digits.labels), len(digits.test_labels)
    count = sum(p.size for p in net.trainable_params())
    traced = trace(step, digits.images[:BATCH], digits.labels[:BATCH])
    passed = run_passes(traced)
    epochs = "epoch" if demo.rounds == 1 else "epochs"
    how = "compiled into one program" if demo.mode == "graph" else "run op by op"
    print("A small convolutional network learns to read handwritten digits.")
    print(
        f"  data      {learnt:,} digits of 8 x 8 pixels to learn from, {held_out} held out to test"
    )
    print(f"  network   {len(list(net.cells())) - 1} layers, {count:,} weights, seed {demo.seed}")
    before, after = len(traced.nodes), len(passed.nodes)
    print(f"  one step  forward, backward and update of a batch of {BATCH}: a graph of")
    print(f"            {before} operations, {after} after the passes that simplify it")
    print(f"  training  {demo.rounds} {epochs} on {demo.device}, each step {how}", flush=True)


def _train(demo: Demo, digits: Digits, net: nn.Cell, step: Callable[..., Any]) -> Progress:
    progress = Progress()
    batches_per_epoch = len(digits.labels) // BATCH
    with _bar(demo.rounds * batches_per_epoch) as bar:
        for epoch in range(demo.rounds):
            _epoch(demo, epoch, digits, step, progress, bar)
            right = predict(net, digits.test_images).argmax(1) == digits.test_labels
            progress.accuracies.append(float(right.mean()))
            _tell(bar, progress)
    return progress


def _epoch(demo: Demo, epoch: int, digits: Digits, step: Any, progress: Progress, bar: Any) -> None:
    step.optimizer.lr = 0.5 * demo.lr * (1.0 + math.cos(math.pi * epoch / demo.rounds))
    before = Snapshot(step.net, step.optimizer)
    done: list[tuple[Array, ...]] = []
    data = minibatches(digits.images, digits.labels, size=BATCH, seed=demo.seed, epoch=epoch)
    for batch in data:
        begun = time.perf_counter()
        loss = float(step(*batch))
        seconds = time.perf_counter() - begun
        done.append(batch)
        if not math.isfinite(loss):
            before.restore()
            raise _diverged(loss, epoch, len(done), locate_nonfinite(step, done))
        if progress.losses:
            progress.rest.append(seconds)
        else:
            progress.first = seconds
        progress.losses.append(loss)
        bar.update()
        if len(done) % 10 == 0:
            _tell(bar, progress)


def _diverged(loss: float, epoch: int, step: int, found: NonFiniteError | None) -> NonFiniteError:
    """The error of a run whose loss is no longer a number, with the operation where it began."""
    where = "it was not found again op by op" if found is None else f"it began where {found}"
    error = NonFiniteError(
        f"training stopped: the loss is {loss} in epoch {epoch + 1}, step {step}; {where}; "
        "a smaller --lr may help"
    )
    # The operation's own line, where it has one: run from the shell, no frame is a user's.
    error.__notes__ = list(getattr(found, "__notes__", ()))
    return error


def _tell(bar: Any, progress: Progress) -> None:
    recent = progress.losses[-20:]
    shown = {"loss": f"{sum(recent) / max(len(recent), 1):.3g}"}
    if progress.accuracies:
        shown["accuracy"] = f"{progress.accuracies[-1]:.1%}"
    bar.set_postfix(shown, refresh=False)


@contextmanager
def _bar(total: int) -> Iterator[Any]:
    try:
        from tqdm import tqdm
    except ImportError:
        raise MinimlError(
            "the demo shows its progress with tqdm, which is not installed; "
            "pip install tqdm, or pip install 'miniml[demo]'"
        ) from None
    slow = 0.1 if sys.stderr.isatty() else 5.0  # in a log file each refresh is a line
    with tqdm(total=total, unit="step", mininterval=slow, desc="  training") as bar:
        yield bar


def _report(progress: Progress, scores: Array, digits: Digits, seconds: float) -> None:
    right = int((scores.argmax(1) == digits.test_labels).sum())
    total = len(digits.test_labels)
    typical = 1e3 * float(np.median(progress.rest))
    first = f"{progress.first:.2f} s for the first"
    print(
        f"  result    {right / total:.1%} accuracy: {right} of {total} held-out digits read right"
    )
    print(f"  time      {typical:.2f} ms per step, {first}; {seconds:.1f} s for everything")


def _compare(demo: Demo, digits: Digits, losses: list[float]) -> None:
    """Take the first steps on the CPU too, and say how far the losses are apart."""
    with settings.context(device_target="cpu"):
        _, step = _learner(demo)
        batches = minibatches(digits.images, digits.labels, size=BATCH, seed=demo.seed, epoch=0)
        expected = [float(step(*batch)) for batch, _ in zip(batches, losses)]
    apart = max(abs(a - b) / b for a, b in zip(losses, expected))
    if not apart <= AGREE:
        raise MinimlError(
            f"the losses of the first {len(losses)} steps are {losses} on {demo.device}, and "
            f"{expected} on the CPU: they should agree to rounding; please report it"
        )
    print(
        f"  agrees    the losses of the first {len(losses)} steps are those on the CPU to "
        f"{apart:.0e} of them"
    )


def _save(net: nn.Cell, scores: Array, digits: Digits, progress: Progress) -> None:
    save_checkpoint(net, WEIGHTS)
    again = network()
    load_checkpoint(WEIGHTS, again)
    if not np.array_equal(predict(again, digits.test_images), scores):
        raise MinimlError(f"{WEIGHTS} was read back and predicts something else: please report it")
    print(f"  saved     {WEIGHTS}: read back into a new network, its predictions are equal")
    save_picture(PICTURE, progress.losses, progress.accuracies, digits, scores)
    print(f"  saved     {PICTURE}: the learning curve and the digits that were misread")
