"""Time that `fit` adds to bare compiled steps, and the rows a second that a DataLoader gives."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

import miniml as ml
from benchmarks.measure import Ratio, compare, machine
from miniml import nn, optim, train
from miniml.cli.demo import network
from miniml.data import DataLoader

AIM, ROWS_AIM = 1.05, 1e6
EPOCHS = 20  # in each round; before the first one `fit` traces the network once, to see its classes


def run() -> Iterator[tuple[str, Ratio, float | None]]:
    """A case, `fit` of some epochs against a loop of the same steps on batches at hand, the aim."""
    ml.manual_seed(0)
    wide = nn.Sequential(
        nn.Dense(784, 512), nn.ReLU(), nn.Dense(512, 512), nn.ReLU(), nn.Dense(512, 10)
    )
    small = nn.Sequential(nn.Dense(64, 64), nn.ReLU(), nn.Dense(64, 10))
    yield "the demo's network, batch 32", _compared(network(), (1, 8, 8), 32, 1437), AIM
    yield "784-512-512-10, batch 128", _compared(wide, (784,), 128, 1280), AIM
    yield "64-64-10, batch 32", _compared(small, (64,), 32, 10_000), None


def _compared(net: nn.Cell, shape: tuple[int, ...], size: int, rows: int) -> Ratio:
    images = np.random.default_rng(0).standard_normal((rows, *shape), np.float32)
    data = DataLoader(images, np.arange(rows) % 10, size=size, seed=0)
    model = train.Model(net, nn.CrossEntropyLoss(), optim.Adam(net.trainable_params(), lr=1e-4))
    batches = list(data)

    def bare() -> None:
        for _ in range(EPOCHS):
            for batch in batches:
                model.step(*batch)

    # Seconds of the processor: what `fit` adds is computed, and other programs may be at work.
    def fitted() -> None:
        model.fit(data, epochs=EPOCHS, show=False)

    return compare(fitted, bare, seconds=1.0, rounds=20, clock=time.process_time)


def rows_a_second(features: int, size: int) -> float:
    """The best of some epochs of a DataLoader of float32 rows and labels."""
    rows = 200_000
    data = DataLoader(np.ones((rows, features), np.float32), np.arange(rows), size=size, seed=0)
    return max(rows / _seconds(data) for _ in range(5))


def _seconds(data: DataLoader) -> float:
    began = time.perf_counter()
    for _ in data:
        pass
    return time.perf_counter() - began


def main() -> None:
    """Print the ratios and the rows a second."""
    print(machine())
    for name, found, _ in run():
        print(f"fit, {name}: {found}")
    for features, size in ((8, 64), (64, 64), (64, 256)):
        rate = rows_a_second(features, size)
        print(f"a DataLoader, {features} floats a row, batch {size}: {rate / 1e6:.1f} M rows/s")


if __name__ == "__main__":
    main()
