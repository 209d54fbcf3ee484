"""Commands to begin with: a network that is trained, and a project to start from.

`demo`: trains a small convolutional network on handwritten digits, and draws its results. `new`: a
small project: a primitive, a network, a training script and tests.
"""

from __future__ import annotations

import re
import sys
import time
from argparse import ArgumentParser
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import threadpoolctl

from .. import distributed, nn, optim, train
from ..backends.selection import get_device
from ..core import settings
from ..core.errors import MinimlError
from ..core.parameter import manual_seed
from ..core.tensor import Array
from ..data import DataLoader, Digits, load_digits
from ..graph.passes import run_passes
from ..graph.tracing import trace
from ..viz.pictures import new_figure
from . import whole

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


def add_demo(command: ArgumentParser) -> None:
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
    command.set_defaults(run=lambda o: run_demo(Demo(o.device, o.epochs, o.seed, o.mode, o.lr)))


def run_demo(demo: Demo) -> int:
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


# --- `new`, and the files that it writes ----------------------------------------------------------


def add_new(command: ArgumentParser) -> None:
    command.add_argument("folder", metavar="DIR", help="a new folder, or an empty one")
    command.set_defaults(run=lambda o: run_new(o.folder))


def run_new(folder: str) -> int:
    """Write the project; MinimlError where the folder holds something already."""
    root = Path(folder)
    if root.exists() and (not root.is_dir() or any(root.iterdir())):
        raise MinimlError(f"new: {folder} exists and is not empty; name a new folder")
    title = re.sub(r"[^\w-]+", "-", root.resolve().name).strip("-") or "project"
    for name, text in FILES.items():
        path = root / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text.replace("PROJECT", title), "utf-8")
        except OSError as error:
            raise MinimlError(f"new: {path} cannot be written: {error}") from None
    print(f"{folder}: {', '.join(FILES)}")
    lacking = "" if find_spec("pytest") else f"{sys.executable} -m pip install pytest; "
    print(f"Next: cd {folder}; {sys.executable} train.py; {lacking}{sys.executable} -m pytest")
    return 0


README = """\
# PROJECT

Two spirals, told apart by a small network whose activation is a primitive of its own.

In an environment that has miniml and pytest:

    python train.py        # trains in seconds and writes weights.safetensors
    python -m pytest       # checks the primitive, its gradient, and that the network learns

- `snake.py`: the primitive: what it computes, its gradient and its kernels.
- `network.py`: the network.
- `train.py`: data, loss, optimizer, checkpoint.
- `tests/`: `gradcheck` and `opcheck` are fixtures that miniml brings to pytest.

`python -m miniml show snake:Snake` prints all that belongs to the primitive, and
`python -m pytest --miniml-opcheck snake.py` checks every primitive of a file.
"""

PYPROJECT = """\
[project]
name = "PROJECT"
version = "0.1.0"
requires-python = ">=3.11"
dependencies = ["miniml"]

[tool.pytest.ini_options]
testpaths = ["tests"]
pythonpath = ["."]
"""

SNAKE = '''\
"""Snake, an activation for periodic data."""

import numpy as np
from miniml import Primitive, ops


class Snake(Primitive):
    """x + sin(alpha x)^2 / alpha (Ziyin, Hartwig, Ueda 2020)."""

    alpha: float = 1.0
    # One element in C: fused on the CPU, a kernel of its own in CUDA.
    expression = "x + sin(alpha * x) * sin(alpha * x) / alpha"

    def infer_shape(self, x):
        return x

    def infer_dtype(self, x):
        return x

    def bprop(self, x, out, dout):
        return (dout * (1.0 + ops.sin(2.0 * self.alpha * x)),)

    def compute(self, x, *, alpha, out):
        np.add(x, np.sin(alpha * x) ** 2 / alpha, out=out)
'''

NETWORK = '''\
"""The network: two hidden layers, with Snake between."""

from miniml import nn

from snake import Snake


class Net(nn.Cell):
    def __init__(self, width=32):
        super().__init__()
        self.first = nn.Dense(2, width)
        self.second = nn.Dense(width, width)
        self.out = nn.Dense(width, 2)
        self.snake = Snake(alpha=1.0)

    def construct(self, x):
        return self.out(self.snake(self.second(self.snake(self.first(x)))))
'''

TRAIN = '''\
"""Train the network on two spirals: `python train.py`."""

import miniml as ml
import numpy as np
from miniml import nn, optim
from miniml.data import DataLoader
from miniml.train import Model, accuracy

from network import Net


def spirals(count, seed):
    """Points (count, 2) float32 and which of the two spirals each lies on."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, count)
    turn = 3.0 * np.sqrt(rng.uniform(0.02, 1.0, count)) * np.pi
    angle = turn + np.pi * labels
    points = turn[:, None] * np.stack([np.cos(angle), np.sin(angle)], 1) / 5
    return (points + 0.04 * rng.normal(size=points.shape)).astype(np.float32), labels


def train(epochs=60, show=True):
    """The trained model, and the share of new points that it tells apart."""
    ml.manual_seed(0)
    net = Net()
    loader = DataLoader(*spirals(1024, seed=0), size=64, seed=0)
    rate = optim.one_cycle(0.01, epochs * len(loader))
    optimizer = optim.AdamW(net.trainable_params(), lr=rate)
    model = Model(net, nn.CrossEntropyLoss(), optimizer, metrics=[accuracy()])
    model.fit(loader, epochs=epochs, show=show)
    points, labels = spirals(1000, seed=1)
    return model, float((model.predict(points).argmax(1) == labels).mean())


if __name__ == "__main__":
    model, right = train()
    ml.save_checkpoint(model.net, "weights.safetensors")
    print(f"{right:.1%} of new points are told apart")
'''

TEST_SNAKE = '''\
"""The primitive keeps its promises."""

import numpy as np

from snake import Snake


def test_value():
    assert np.allclose(Snake(0.5)(np.array([0.0, np.pi])).asnumpy(), [0.0, np.pi + 2.0])


def test_gradient(gradcheck):
    """First and second derivative, against differences."""
    gradcheck(Snake(0.5), np.array([-2.0, 0.3, 3.0]), order=2)


def test_everything_else(opcheck):
    """Rules, kernels on every layout and dtype, NaN and empty inputs, compiled and not."""
    opcheck(Snake(0.5))
'''

TEST_TRAIN = '''\
"""The network learns."""

from train import train


def test_the_network_tells_the_spirals_apart():
    _, right = train(show=False)
    assert right > 0.95
'''

FILES = {
    "README.md": README,
    "pyproject.toml": PYPROJECT,
    "snake.py": SNAKE,
    "network.py": NETWORK,
    "train.py": TRAIN,
    "tests/test_snake.py": TEST_SNAKE,
    "tests/test_train.py": TEST_TRAIN,
}
