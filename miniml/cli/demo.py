"""`demo`: trains a small convolutional network on handwritten digits, and draws its results."""

from __future__ import annotations

import time
from argparse import ArgumentParser
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import threadpoolctl

from .. import distributed, nn, optim, train
from ..backends.machine import get_device
from ..core import settings
from ..core.errors import MinimlError
from ..core.parameter import manual_seed
from ..core.tensor import Array
from ..data import DataLoader, Digits, load_digits
from ..graph.passes import run_passes
from ..graph.tracing import trace
from ..viz.figures import new_figure
from .named import whole

BATCH = 32
EPOCHS, EPOCHS_SIMULATED = 20, 1  # a step on the simulator takes a hundred times as long
COMPARED = 10  # first steps, repeated on the CPU if another device trains
AGREE = 1e-3  # relative difference of losses: accumulated rounding stays far below, a bug does not
WEIGHTS, PICTURE = Path("digits.safetensors"), Path("digits.png")


@dataclass(frozen=True)
class Demo:
    """The options of the demo.

    epochs: None for as many as the device does in reasonable time. mode: "graph" or "eager". lr:
    the learning rate of the first step, from which it goes down to 0 along a cosine.
    """

    device: str = "cpu"
    epochs: int | None = None
    seed: int = 0
    mode: str = "graph"
    lr: float = 3e-3

    @property
    def rounds(self) -> int:
        """The number of epochs."""
        if self.epochs is not None:
            return self.epochs
        simulated = settings.device_name(self.device) == "cuda-sim"
        return EPOCHS_SIMULATED if simulated else EPOCHS


class Losses(train.Callback):
    """Keeps the loss of every step."""

    def __init__(self) -> None:
        self.losses: list[float] = []

    def on_steps(self, run: train.callbacks.Run, losses: Sequence[float]) -> None:
        self.losses += losses


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
    """Run the whole demo in the current folder, on all ranks of a launcher of MPI, if there is one,
    of which rank 0 speaks and writes; returns the exit code."""
    started = time.perf_counter()
    speaks = distributed.init().rank == 0
    get_device(settings.device_name(demo.device))
    digits = load_digits(demo.seed)
    graph = demo.mode == "graph"
    mode = settings.GRAPH_MODE if graph else settings.PYNATIVE_MODE
    # The matrices are small: BLAS threads would spend more time waiting than computing.
    alone = threadpoolctl.threadpool_limits(1, "blas")
    with alone, settings.context(device_target=demo.device, mode=mode, jit=graph, sim="fast"):
        model, data, seen = _model(demo, digits), _batches(demo, digits), Losses()
        if speaks:
            _introduce(demo, digits, model)
        held_out = digits.test_images, digits.test_labels
        rows = model.fit(data, epochs=demo.rounds, validation=held_out, callbacks=[seen])
        scores = model.predict(digits.test_images, batch_size=len(digits.test_images))
        if speaks:
            _report(rows, len(data), scores, digits, time.perf_counter() - started)
        if settings.device_name(demo.device) != "cpu":
            apart = _compare(demo, digits, seen.losses[:COMPARED])
            if speaks:
                print(apart)
        if speaks:
            _save(model, scores, digits)
            accuracies = [row["val_accuracy"] for row in rows]
            save_picture(PICTURE, seen.losses, accuracies, digits, scores)
            print(f"  saved     {PICTURE}: the learning curve and the digits that were misread")
    return 0


def _batches(demo: Demo, digits: Digits) -> DataLoader:
    group = distributed.world()
    return DataLoader(digits.images, digits.labels, size=BATCH, seed=demo.seed, group=group)


def _model(demo: Demo, digits: Digits) -> train.Model:
    """A new network with its loss and optimizer; equal for equal seeds."""
    manual_seed(demo.seed)
    net = network()
    rate = optim.cosine(demo.lr, steps=demo.rounds * len(_batches(demo, digits)))
    adam = optim.Adam(net.trainable_params(), lr=rate)
    metrics = [train.accuracy()]
    return train.Model(net, nn.CrossEntropyLoss(), adam, metrics, group=distributed.world())


def _introduce(demo: Demo, digits: Digits, model: train.Model) -> None:
    net = model.net
    learnt, held_out = len(digits.labels), len(digits.test_labels)
    count = sum(p.size for p in net.trainable_params())
    traced = trace(model.step, digits.images[:BATCH], digits.labels[:BATCH])
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
    ranks = f" on {distributed.size()} ranks" if distributed.size() > 1 else ""
    print(
        f"  training  {demo.rounds} {epochs} on {demo.device}{ranks}, each step {how}", flush=True
    )


def _report(
    rows: Sequence[train.metrics.Row], steps: int, scores: Array, digits: Digits, seconds: float
) -> None:
    """Print accuracy and times. rows: of epochs of `steps` steps each."""
    right = int((scores.argmax(1) == digits.test_labels).sum())
    total = len(digits.test_labels)
    epochs = [row["seconds"] for row in rows]
    typical = 1e3 * float(np.median(epochs[1:] or epochs)) / steps
    print(
        f"  result    {right / total:.1%} accuracy: {right} of {total} held-out digits read right"
    )
    print(
        f"  time      {typical:.2f} ms per step; {epochs[0]:.2f} s for the first epoch, which "
        f"compiles; {seconds:.1f} s for everything"
    )


def _compare(demo: Demo, digits: Digits, losses: list[float]) -> str:
    """Repeat the first steps on the CPU; says how far the losses are apart."""
    with settings.context(device_target="cpu"):
        step = _model(demo, digits).step
        expected = [float(step(*batch)[0]) for batch, _ in zip(_batches(demo, digits), losses)]
    apart = max(abs(a - b) / b for a, b in zip(losses, expected))
    if not apart <= AGREE:
        raise MinimlError(
            f"the losses of the first {len(losses)} steps are {losses} on {demo.device}, and "
            f"{expected} on the CPU: they should agree to rounding; please report it"
        )
    return (
        f"  agrees    the losses of the first {len(losses)} steps are those on the CPU to "
        f"{apart:.0e} of them"
    )


def _save(model: train.Model, scores: Array, digits: Digits) -> None:
    """Save the network, and check that it loads with equal predictions."""
    train.save_checkpoint(model.net, WEIGHTS)
    again = network()
    train.load_checkpoint(WEIGHTS, again)
    reader = train.Model(again, nn.CrossEntropyLoss(), optim.SGD(again.trainable_params(), lr=0.0))
    if not np.array_equal(reader.predict(digits.test_images, batch_size=len(scores)), scores):
        raise MinimlError(f"{WEIGHTS} was read back and predicts something else: please report it")
    print(f"  saved     {WEIGHTS}: read back into a new network, its predictions are equal")


# --- The picture ----------------------------------------------------------------------------------


_SHOWN = 12


def save_picture(
    path: Path, losses: Sequence[float], accuracies: Sequence[float], digits: Digits, scores: Array
) -> None:
    """Write a PNG: loss by step and accuracy by epoch above, misread held-out digits below.

    scores: (N, 10) for the held-out digits.
    """
    figure = new_figure(9, 5)
    parts: Any = figure.subfigures(2, 1, height_ratios=(5, 3))
    above, below = parts
    _curve(above, losses, accuracies)
    _misread(below, digits, scores)
    figure.savefig(path, dpi=120)


def _curve(figure: Any, losses: Sequence[float], accuracies: Sequence[float]) -> None:
    left, right = figure.subplots(1, 2)
    steps = np.arange(1, len(losses) + 1)
    left.plot(steps, losses, color="0.75", linewidth=0.8, label="each step")
    width = min(20, len(losses))
    smooth = np.convolve(losses, np.ones(width) / width, mode="valid")
    middle = steps[width // 2 :][: len(smooth)]
    left.plot(middle, smooth, color="C0", label=f"mean of {width} steps")
    left.set(title="Loss while learning", xlabel="step", ylabel="cross entropy", yscale="log")
    left.legend(frameon=False)
    epochs = np.arange(1, len(accuracies) + 1)
    right.plot(epochs, 100 * np.asarray(accuracies), "o-", color="C2", markersize=4)
    title = f"Held-out digits read right: {accuracies[-1]:.1%} at the end"
    right.set(title=title, xlabel="epoch", ylabel="%")
    right.locator_params(axis="x", integer=True)
    for axes in (left, right):
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)


def _misread(figure: Any, digits: Digits, scores: Array) -> None:
    read = scores.argmax(1)
    wrong = np.flatnonzero(read != digits.test_labels)
    more = f", {_SHOWN} of them shown" if len(wrong) > _SHOWN else ""
    figure.suptitle(f"{len(wrong)} of {len(read)} held-out digits were misread{more}")
    panels = figure.subplots(1, max(1, min(_SHOWN, max(len(wrong), 6))), squeeze=False)[0]
    for axes in panels:
        axes.axis("off")
    for axes, i in zip(panels, wrong, strict=False):
        axes.imshow(digits.test_images[i, 0], cmap="gray_r")
        axes.set_title(f"a {digits.test_labels[i]},\nread as {read[i]}", fontsize=9)
