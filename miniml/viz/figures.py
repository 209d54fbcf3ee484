"""Figures of matplotlib for the numbers inside a network: `figure.savefig("x.png")`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from io import BytesIO
from typing import Any

import numpy as np

from ..core.errors import MinimlError
from ..core.tensor import Array

_PANELS = 48
_ANNOTATED = 20  # classes; in a matrix of more the numbers are too small to read
_INK, _MAIN, _ALARM = "0.25", "C0", "C3"


def histograms(values: Mapping[str, Any], title: str = "Activations") -> Any:
    """A histogram of each array, such as those of `activations` or `gradients`: a figure.

    Each gives mean and standard deviation, the share of zeros, and the count of numbers that are
    not finite, which it leaves out. MinimlError for more than 48 arrays, or none.
    """
    _check_named("histograms", values, "viz.activations(net, x)")
    if not 0 < len(values) <= _PANELS:
        raise MinimlError(
            f"histograms got {len(values)} arrays; give 1 to {_PANELS}, picked by their names"
        )
    columns = min(4, len(values))
    rows = math.ceil(len(values) / columns)
    figure = new_figure(3.2 * columns, 2.3 * rows + 0.5)
    figure.suptitle(title)
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, (name, array) in zip(panels, values.items(), strict=False):
        _histogram(axes, name, np.asarray(array, np.float64).ravel())
    for axes in panels[len(values) :]:
        axes.axis("off")
    for axes in panels[::columns]:
        axes.set_ylabel("count")
    return figure


def _histogram(axes: Any, name: str, numbers: Array) -> None:
    finite = numbers[np.isfinite(numbers)]
    lost = numbers.size - finite.size
    axes.set_title(f"{name}: {lost} not finite" if lost else name, fontsize=9)
    axes.title.set_color(_ALARM if lost else _INK)
    axes.set_xlabel(_described(finite), fontsize=8)
    if finite.size:
        axes.hist(finite, bins=_edges(finite), color=_MAIN)
    _plain(axes)


def _edges(numbers: Array) -> Array:
    """Edges of bins; of a single one around the numbers if they are too close for more."""
    low, high = numbers.min(), numbers.max()
    edges = np.unique(np.linspace(low, high, min(40, max(5, numbers.size // 4)) + 1))
    return edges if edges.size > 1 else low + np.array([-0.5, 0.5]) * max(1.0, abs(low))


def _check_named(who: str, values: object, gives: str) -> None:
    if not isinstance(values, Mapping):
        raise MinimlError(f"{who} got {type(values).__name__}; give a dict, as {gives} does")


def _described(numbers: Array) -> str:
    if not numbers.size:
        return "no finite number"
    zeros = (numbers == 0).mean()
    spread = f"mean {numbers.mean():.3g}, deviation {numbers.std():.3g}"
    return f"{spread}\n{zeros:.0%} are 0" if zeros else spread


def gradient_flow(gradients: Mapping[str, Any]) -> Any:
    """The size of each gradient, in the order of the parameters: a figure of its mean and largest
    absolute value on a logarithmic axis. One without a number above 0, or not finite, says so.

    gradients: as `viz.gradients` gives them. MinimlError for none.
    """
    _check_named("gradient_flow", gradients, "viz.gradients(net, loss, x, y)")
    if not gradients:
        raise MinimlError("gradient_flow got no gradients; give those of trainable parameters")
    sizes = {name: np.abs(np.asarray(g, np.float64)).ravel() for name, g in gradients.items()}
    figure = new_figure(8, 1.4 + 0.3 * len(sizes))
    axes, rows = figure.subplots(), range(len(sizes))
    means, largest = ([_reduced(f, s) for s in sizes.values()] for f in (np.mean, np.max))
    shown = np.maximum([m for m in (*means, *largest) if m > 0] or [1.0], 1e-300)
    low, high = 10.0 ** math.floor(math.log10(min(shown))) / 10, max(shown) * 2
    axes.set(xlim=(low, high), xscale="log")  # before the bars, which may set none
    axes.barh(rows, largest, color=_MAIN, alpha=0.35, label="largest")
    axes.barh(rows, means, color=_MAIN, height=0.5, label="mean")
    for row, (mean, size) in enumerate(zip(means, sizes.values(), strict=True)):
        if not mean > 0:
            why = "is 0" if np.isfinite(size).all() else "not finite"
            axes.text(low * 1.2, row, why, color=_ALARM, va="center", fontsize=9)
    axes.set(ylim=(len(sizes) - 0.4, -0.6))
    axes.set_yticks(rows, sizes)
    axes.set(title="Gradient flow, first parameter on top", xlabel="absolute value of the gradient")
    axes.legend(
        frameon=False,
        loc="upper center",
        bbox_to_anchor=(0.5, -0.45 / figure.get_figheight()),
        ncols=2,
    )
    _plain(axes)
    return figure


def _reduced(reduce: Any, size: Array) -> float:
    """The mean or maximum; 0, which a logarithmic axis does not show, if it is not finite."""
    return float(reduce(size)) if size.size and np.isfinite(size).all() else 0.0


def feature_maps(maps: Any, title: str = "Feature maps") -> Any:
    """Images (channels, H, W), the output of a layer for one input, or its filters: a figure with a
    panel for each channel, all in one scale. Of more than 64 channels it shows the first.

    MinimlError for another number of axes, or none of it finite.
    """
    images = np.asarray(maps, np.float64)
    if images.ndim != 3 or not images.size or not np.isfinite(images).any():
        raise MinimlError(
            f"feature_maps got shape {images.shape}; give the images (channels, H, W) of one input,"
            ' such as activations(net, x)["0 (Conv2d)"][0], with finite numbers'
        )
    shown = images[:64]
    columns = math.ceil(math.sqrt(len(shown) * 1.6))
    rows = math.ceil(len(shown) / columns)
    figure = new_figure(1.1 * columns + 1, 1.25 * rows + 0.6)
    more = f", the first {len(shown)} of {len(images)}" if len(images) > len(shown) else ""
    figure.suptitle(f"{title}: {images.shape[1]} x {images.shape[2]}{more}")
    finite = images[np.isfinite(images)]
    scale = {"vmin": finite.min(), "vmax": finite.max(), "cmap": "viridis"}
    panels = figure.subplots(rows, columns, squeeze=False)
    for axes in panels.ravel():
        axes.axis("off")
    for i, (axes, image) in enumerate(zip(panels.ravel(), shown, strict=False)):
        drawn = axes.imshow(image, **scale)
        axes.set_title(str(i), fontsize=8, pad=2)
    figure.colorbar(drawn, ax=panels, fraction=0.03, label="value")
    return figure


def confusion_matrix(counts: Any, names: Sequence[str] | None = None) -> Any:
    """The number of samples of class i predicted as class j, counts[i, j]: a figure, coloured by
    the share of the row, with the counts for up to 20 classes.

    counts: (classes, classes), as the metric `train.confusion_matrix` gives. names: of the classes.
    MinimlError for another shape, negative counts, or another number of names.
    """
    table = np.asarray(counts)
    names = [*map(str, names if names is not None else range(math.isqrt(table.size)))]
    if (
        table.ndim != 2
        or table.shape != (len(names), len(names))
        or not table.size
        or not (np.isfinite(table) & (table >= 0)).all()
    ):
        raise MinimlError(
            f"confusion_matrix got shape {table.shape} and {len(names)} names; give counts of shape"
            " (classes, classes), none below 0, and a name for each class"
        )
    side = 2.5 + 0.42 * min(len(table), 2 * _ANNOTATED)
    figure = new_figure(side + 1, side)
    axes, rows = figure.subplots(), table.sum(1, keepdims=True)
    shares = table / np.maximum(rows, 1)
    drawn = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    figure.colorbar(drawn, ax=axes, label="share of the true class", fraction=0.046)
    if len(table) <= _ANNOTATED:
        for (i, j), count in np.ndenumerate(table):
            ink = "white" if shares[i, j] > 0.5 else _INK
            axes.text(
                j, i, f"{count:,}" if count else "", ha="center", va="center", color=ink, fontsize=8
            )
    right = np.trace(table) / max(table.sum(), 1)
    axes.set(title=f"{right:.1%} of {table.sum():,} are right", xlabel="predicted", ylabel="true")
    slanted = max(map(len, names)) > 3
    axes.set_xticks(
        range(len(names)), names, rotation=45 if slanted else 0, ha="right" if slanted else "center"
    )
    axes.set_yticks(range(len(names)), names)
    return figure


def new_figure(width: float, height: float) -> Any:
    """An empty figure, inches wide and high; MinimlError where matplotlib is not installed."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise MinimlError(
            "the picture is drawn with matplotlib, which is not installed; "
            "pip install matplotlib, or pip install 'miniml[demo]'"
        ) from None
    figure: Any = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    figure._repr_png_ = partial(_png, figure)  # else only notebooks that use pyplot show it
    return figure


def _png(figure: Any) -> bytes:
    written = BytesIO()
    figure.savefig(written, format="png")
    return written.getvalue()


def _plain(axes: Any) -> None:
    axes.grid(alpha=0.3)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
