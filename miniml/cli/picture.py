"""The demo's picture: the learning curve, and the digits that were misread."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..data import Digits
from ..tensor import Array
from ..viz.figures import new_figure

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
    places = figure.subplots(1, max(1, min(_SHOWN, max(len(wrong), 6))), squeeze=False)[0]
    for axes in places:
        axes.axis("off")
    for axes, i in zip(places, wrong, strict=False):
        axes.imshow(digits.test_images[i, 0], cmap="gray_r")
        axes.set_title(f"a {digits.test_labels[i]},\nread as {read[i]}", fontsize=9)
