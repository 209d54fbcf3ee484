"""`new`: a small project to start from: a primitive, a network, a training script and tests.

The command; then the files that it writes.
"""

from __future__ import annotations

import re
import sys
from argparse import ArgumentParser
from importlib.util import find_spec
from pathlib import Path

from ..core.errors import MinimlError


def add(command: ArgumentParser) -> None:
    command.add_argument("folder", metavar="DIR", help="a new folder, or an empty one")
    command.set_defaults(run=lambda o: run(o.folder))


def run(folder: str) -> int:
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
