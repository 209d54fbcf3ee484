"""Data sets, prepared and augmented: digits, text as numbers, splits; transforms of images.

A transform of images is called with a batch (N, C, H, W) and a NumPy generator. All that it draws
comes from this generator, so a DataLoader repeats a batch by its numbers. They pickle, for worker
processes. In order: chains and fixed transforms; crops and flips; affine maps; colours; erasure;
mixtures of images with their labels.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ..core.errors import DTypeError, MinimlError, OutOfRangeError, ShapeError, ValueRefusedError
from ..core.hints import optional
from ..core.options import choice, count, integer, integers, number, probability
from ..core.tensor import Array

__all__ = [
    "Digits", "Vocabulary", "chain", "cutmix", "k_fold", "load_digits", "mixup", "next_tokens",
    "normalize", "pad_images", "pad_sequences", "random_affine", "random_color", "random_crop",
    "random_erase", "random_flip", "split", "stratified_split",
]  # fmt: skip

HELD_OUT = 360


class Digits(NamedTuple):
    """Images (N, 1, 8, 8) float32 of mean 0 and standard deviation 1, labels (N,) int64 from 0
    to 9: a training set and a test set."""

    images: Array
    labels: Array
    test_images: Array
    test_labels: Array


def load_digits(seed: int = 0) -> Digits:
    """The 1,797 handwritten digits, 8 x 8 pixels each, that ship inside scikit-learn: no download.

    360 of them, chosen by `seed`, are the test set. Mean and standard deviation are those of the
    training pixels. MinimlError where scikit-learn is not installed.
    Source: E. Alpaydin, C. Kaynak 1998, "Optical recognition of handwritten digits", UCI.
    """
    sets = optional("the digits come with", "scikit-learn", "demo", "sklearn.datasets")
    pixels, labels = sets.load_digits(return_X_y=True)
    images = pixels.astype(np.float32).reshape(-1, 1, 8, 8)
    order = np.random.default_rng(seed).permutation(len(images))
    test, train = order[:HELD_OUT], order[HELD_OUT:]
    images = (images - images[train].mean()) / images[train].std()
    numbers = labels.astype(np.int64)
    return Digits(images[train], numbers[train], images[test], numbers[test])


# --- Text as numbers ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Vocabulary:
    """Numbers for tokens: tokens[i] has number i.

    by: "characters", or "words", which are runs of letters, digits and underscores, and each other
    character that is no space. unknown: the token that stands for all others; None refuses
    these. `tokens` is a plain tuple of strings, to be saved as JSON.
    """

    tokens: tuple[str, ...]
    by: str = "characters"
    unknown: str | None = None
    _numbers: dict[str, int] = field(init=False, repr=False, compare=False)

    def __repr__(self) -> str:
        return f"Vocabulary({len(self):,} {self.by})"

    def __post_init__(self) -> None:
        choice("Vocabulary", "by", self.by, tuple(_SPLITS))
        object.__setattr__(self, "tokens", tuple(self.tokens))
        numbers = {token: i for i, token in enumerate(self.tokens)}
        object.__setattr__(self, "_numbers", numbers)
        if len(numbers) < len(self.tokens) or self.unknown not in {None, *numbers}:
            raise MinimlError("the tokens of a Vocabulary differ, and `unknown` is one of them")

    @classmethod
    def of(
        cls,
        text: str,
        by: str = "characters",
        size: int | None = None,
        special: Sequence[str] = (),
        unknown: str | None = None,
    ) -> Vocabulary:
        """The vocabulary of a text: `special` tokens and `unknown` first, for padding, say, then
        those of the text, the most frequent first. size: the largest number of all together."""
        counts = Counter(_SPLITS[choice("Vocabulary", "by", by, tuple(_SPLITS))](text))
        found = sorted(counts, key=lambda token: (-counts[token], token))
        first = [*special] if unknown is None else [*special, unknown]
        if size is not None:
            size = count("Vocabulary.of", "size", size, max(len(first), 1))
        return cls(tuple(dict.fromkeys([*first, *found]))[:size], by, unknown)

    def __len__(self) -> int:
        return len(self.tokens)

    def encode(self, text: str) -> Array:
        """The numbers of the text's tokens, int64; MinimlError for one that it lacks."""
        found, other = _SPLITS[self.by](text), self._numbers.get(self.unknown or "")
        numbers = [self._numbers.get(token, other) for token in found]
        if None in numbers:
            raise MinimlError(
                f"the vocabulary of {len(self)} {self.by} lacks {found[numbers.index(None)]!r}; "
                "make it of all the text, or with unknown='?'"
            )
        return np.array(numbers, np.int64)

    def decode(self, numbers: Iterable[int]) -> str:
        """The text of numbers: characters as they were, words with spaces between them.

        OutOfRangeError for a number that stands for no token."""
        indices = [int(i) for i in numbers]
        if not all(0 <= i < len(self) for i in indices):
            raise OutOfRangeError(
                f"decode got numbers from {min(indices)} to {max(indices)}; the vocabulary has "
                f"tokens 0 to {len(self) - 1}"
            )
        return _JOINS[self.by].join([self.tokens[i] for i in indices])


_WORDS = re.compile(r"\w+|[^\w\s]")
_SPLITS: dict[str, Callable[[str], list[str]]] = {"characters": list, "words": _WORDS.findall}
_JOINS = {"characters": "", "words": " "}


def pad_sequences(
    sequences: Iterable[Sequence[int] | Array], length: int | None = None, value: int = 0
) -> tuple[Array, Array]:
    """Sequences of any lengths as one array (N, T), padded with `value`, and their lengths (N,).

    length: T; None for that of the longest. Longer ones are cut. ShapeError for none at all, and
    for one of several axes.
    """
    if length is not None:
        length = count("pad_sequences", "length", length, 0)
    rows = [np.asarray(row, None if len(row) else np.int64) for row in sequences]
    if not rows or any(row.ndim != 1 for row in rows):
        raise ShapeError("pad_sequences expects at least one sequence, each of one axis")
    rows = [row[:length] for row in rows]
    lengths = np.array([len(row) for row in rows])
    width = int(lengths.max()) if length is None else length
    padded = np.full((len(rows), width), value, np.result_type(*rows, value))
    for line, row in zip(padded, rows, strict=True):
        line[: len(row)] = row
    return padded, lengths


def next_tokens(tokens: Sequence[int] | Array, length: int) -> tuple[Array, Array]:
    """All windows of `length` tokens (N, length), and the same one token later, to be predicted.
    Both are views, so a DataLoader copies only the rows of a batch. ShapeError for fewer than
    two."""
    tokens = np.asarray(tokens)
    if tokens.ndim != 1 or len(tokens) < 2:
        raise ShapeError(f"next_tokens got tokens {tokens.shape}; expected (T,), two or more")
    length = integer(f"next_tokens of {len(tokens)}", "length", length, 1, len(tokens) - 1)
    windows = np.lib.stride_tricks.sliding_window_view(tokens, length)
    return windows[:-1], windows[1:]


# --- Splits: row numbers, fixed by a seed ---------------------------------------------------------


def split(rows: int, share: float, seed: int = 0) -> tuple[Array, Array]:
    """Two arrays of row numbers, both sorted: round(share * rows) of them drawn by `seed`, held
    out, come second."""
    rows = count("split", "rows", rows, 0)
    share = number("split", "share", share, above=0, below=1)
    order = np.random.default_rng(seed).permutation(rows)
    return _parts(order[: round(share * rows)], rows, share)


def stratified_split(labels: Any, share: float, seed: int = 0) -> tuple[Array, Array]:
    """As `split`, with the share held out of each class alone, rounded: of a class of few rows
    that may be none, or all. labels: (N,), else ShapeError."""
    labels, draw = np.asarray(labels), np.random.default_rng(seed)
    share = number("stratified_split", "share", share, above=0, below=1)
    if labels.ndim != 1:
        raise ShapeError(f"stratified_split got labels {labels.shape}; expected (N,)")
    classes = [np.flatnonzero(labels == c) for c in np.unique(labels)]
    held_out = [draw.permutation(own)[: round(share * len(own))] for own in classes]
    return _parts(np.concatenate([np.arange(0), *held_out]), len(labels), share)


def k_fold(rows: int, folds: int, seed: int = 0) -> Iterator[tuple[Array, Array]]:
    """`folds` pairs (to learn from, held out) of sorted row numbers; each row is held out once."""
    rows = count("k_fold", "rows", rows, 2)
    folds = integer(f"k_fold of {rows} rows", "folds", folds, 2, rows)
    parts = np.array_split(np.random.default_rng(seed).permutation(rows), folds)
    return ((np.setdiff1d(np.arange(rows), part), np.sort(part)) for part in parts)


def _parts(held_out: Array, rows: int, share: float) -> tuple[Array, Array]:
    """The other rows and those held out; MinimlError if either is empty."""
    if not 0 < len(held_out) < rows:
        raise MinimlError(
            f"a split with share={share} holds out {len(held_out)} of {rows} rows; give a share "
            "that leaves rows on both sides"
        )
    return np.setdiff1d(np.arange(rows), held_out), np.sort(held_out)


# --- Augmentation ---------------------------------------------------------------------------------

Draw = np.random.Generator
Transform = Callable[[Any, Draw], Any]


def chain(*transforms: Transform) -> Transform:
    """A transform that applies these in turn."""
    return partial(_chained, transforms)


def _chained(transforms: Sequence[Transform], images: Any, draw: Draw) -> Any:
    for transform in transforms:
        images = transform(images, draw)
    return images


def normalize(mean: float | Sequence[float], std: float | Sequence[float]) -> Transform:
    """(images - mean) / std as float32; mean and std: numbers, or one for each channel."""
    return partial(_normalized, _per_channel("mean", mean), _per_channel("std", std, 0))


def _normalized(center: Array, scale: Array, images: Array, draw: Draw) -> Array:
    if not {center.size, scale.size} <= {1, _checked("normalize", images).shape[1]}:
        raise ShapeError(
            f"normalize got {center.size} means and {scale.size} stds for images "
            f"{images.shape}; give one number, or one for each of {images.shape[1]} channels"
        )
    return ((images - center) / scale).astype(np.float32, copy=False)


def _per_channel(name: str, value: Any, above: float = -math.inf) -> Array:
    """The value, a number or one for each channel, as floats (C, 1, 1)."""
    each = np.reshape(value, -1).tolist() if np.ndim(value) else [value]
    checked = [number("normalize", name, v, above=above) for v in each]
    return np.array(checked, np.float32).reshape(-1, 1, 1)


def pad_images(width: int, value: float = 0.0) -> Transform:
    """The images with `width` pixels of `value` more on all four sides."""
    width = count("pad_images", "width", width, 0)
    return partial(_margin, width, number("pad_images", "value", value))


def _margin(width: int, value: float, images: Array, draw: Draw) -> Array:
    _check_held("pad_images", _checked("pad_images", images), value)
    return _padded(images, width, value)


def _padded(images: Array, width: int, value: float) -> Array:
    sides = (0, 0), (0, 0), (width, width), (width, width)
    return np.pad(images, sides, constant_values=value) if width else images


# --- Crops and flips ------------------------------------------------------------------------------


def random_crop(size: int | tuple[int, int], padding: int = 0) -> Transform:
    """Each image, first padded with zeros on all sides, cropped to a window of `size` (height and
    width) at a random position."""
    sizes = size if isinstance(size, tuple) else (size, size)
    height, width = integers("random_crop", "size", sizes, 2, 1)
    return partial(_cropped, height, width, count("random_crop", "padding", padding, 0))


def _cropped(height: int, width: int, padding: int, images: Array, draw: Draw) -> Array:
    wide = _padded(_checked("random_crop", images), padding, 0.0)
    rows, columns = wide.shape[2] - height + 1, wide.shape[3] - width + 1
    if min(rows, columns) < 1:
        raise ShapeError(
            f"random_crop got images {images.shape}, padded to {wide.shape[2:]}, for windows "
            f"of {(height, width)}; give a smaller size, or padding"
        )
    windows = np.lib.stride_tricks.sliding_window_view(wide, (height, width), (2, 3))
    top, left = draw.integers(rows, size=len(wide)), draw.integers(columns, size=len(wide))
    return windows[np.arange(len(wide)), :, top, left]


def random_flip(p: float = 0.5) -> Transform:
    """Each image with left and right exchanged, with probability p."""
    return partial(_flipped, probability("random_flip", "p", p))


def _flipped(p: float, images: Array, draw: Draw) -> Array:
    chosen = draw.random(len(_checked("random_flip", images))) < p
    return np.where(chosen[:, None, None, None], images[..., ::-1], images)


# --- Affine maps ----------------------------------------------------------------------------------


def random_affine(
    degrees: float = 0.0,
    translate: float = 0.0,
    scale: tuple[float, float] = (1.0, 1.0),
    shear: float = 0.0,
    value: float = 0.0,
) -> Transform:
    """Each image turned, moved, enlarged and sheared about its centre, by bilinear interpolation.

    Uniform draws for each image: the angle from -degrees to degrees, counterclockwise; the shift
    along each axis up to that share of its extent; the factor of the size from the two of `scale`;
    the angle of shear along the rows from -shear to shear degrees. value: that of pixels from
    outside. Images of integers are rounded.
    """
    who = "random_affine"
    most = number(who, "degrees", degrees, 0), number(who, "translate", translate, 0, 1)
    lean = number(who, "shear", shear, 0, below=90)
    size = _pair(who, "scale", scale)
    return partial(_moved, *most, size, lean, number(who, "value", value))


def _moved(
    degrees: float,
    translate: float,
    scale: tuple[float, float],
    shear: float,
    value: float,
    images: Array,
    draw: Draw,
) -> Array:
    n, _, height, width = _checked("random_affine", images).shape
    _check_held("random_affine", images, value)
    turn = np.deg2rad(draw.uniform(-degrees, degrees, n))
    rows, columns = (draw.uniform(-translate, translate, n) * size for size in (height, width))
    size, lean = draw.uniform(*scale, n), np.tan(np.deg2rad(draw.uniform(-shear, shear, n)))
    # Where a pixel comes from: the inverse of turning, scaling and shearing, in that order back.
    y, x = np.mgrid[:height, :width].astype(np.float64)
    y = y - (height - 1) / 2 - rows[:, None, None]
    x = x - (width - 1) / 2 - columns[:, None, None]
    cos, sin = (f(turn)[:, None, None] / size[:, None, None] for f in (np.cos, np.sin))
    y, x = cos * y + sin * x, cos * x - sin * y
    x = x - lean[:, None, None] * y
    return _sampled(images, y + (height - 1) / 2, x + (width - 1) / 2, value)


def _sampled(images: Array, y: Array, x: Array, value: float) -> Array:
    """The images at positions (N, H, W), bilinear between pixels; `value` outside of them."""
    height, width = images.shape[2:]
    top, left = np.floor(y), np.floor(x)
    total = np.zeros((*images.shape[:2], *y.shape[1:]), np.float64)
    each = np.arange(len(images))[:, None, None]
    for down in (0, 1):
        for right in (0, 1):
            row, column = (top + down).astype(np.int64), (left + right).astype(np.int64)
            share = (1 - np.abs(y - row)) * (1 - np.abs(x - column))
            inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
            at = np.clip(row, 0, height - 1), np.clip(column, 0, width - 1)
            pixels = np.moveaxis(images[each, :, *at], -1, 1)
            total += share[:, None] * np.where(inside[:, None], pixels, value)
    return (np.rint(total) if images.dtype.kind in "iu" else total).astype(images.dtype)


# --- Colours --------------------------------------------------------------------------------------


def random_color(
    brightness: float = 0.0, contrast: float = 0.0, saturation: float = 0.0, hue: float = 0.0
) -> Transform:
    """Each image (C, H, W) with another brightness, contrast, saturation and hue, in that order.

    brightness, contrast, saturation: the factors are uniform from 1 less the number, at least 0,
    to 1 plus it: of the image, of its distance from its mean grey, and from the grey of each pixel.
    hue: shifts of the hue are uniform from -hue to hue of the circle, at most 0.5. Grey is 0.299 R
    + 0.587 G + 0.114 B. Pixels are floats from 0 to 1 or uint8, and stay within: normalize
    afterwards. Images have 3 channels, or 1 where saturation and hue are 0. As torchvision's
    ColorJitter, whose order is random.
    """
    who = "random_color"
    return partial(
        _recolored,
        number(who, "brightness", brightness, 0),
        number(who, "contrast", contrast, 0),
        number(who, "saturation", saturation, 0),
        number(who, "hue", hue, 0, 0.5),
    )


def _recolored(
    brightness: float, contrast: float, saturation: float, hue: float, images: Array, draw: Draw
) -> Array:
    most = _check_colors(images, saturation > 0 or hue > 0)
    n, spans = len(images), (brightness, contrast, saturation)
    factors = [
        draw.uniform(max(0.0, 1 - span), 1 + span, (n, 1, 1, 1)).astype(np.float32)
        for span in spans
    ]
    shift = draw.uniform(-hue, hue, (n, 1, 1)).astype(np.float32)
    pixels = images.astype(np.float32) / most
    if brightness:
        pixels = np.clip(pixels * factors[0], 0, 1)
    if contrast:
        middle = _grey(pixels).mean((2, 3), keepdims=True)
        pixels = np.clip(middle + (pixels - middle) * factors[1], 0, 1)
    if saturation:
        grey = _grey(pixels)
        pixels = np.clip(grey + (pixels - grey) * factors[2], 0, 1)
    if hue:
        pixels = _turned(pixels, shift)
    pixels = np.rint(pixels * most) if images.dtype.kind == "u" else pixels
    return pixels.astype(images.dtype)


def _grey(pixels: Array) -> Array:
    """The grey of each pixel, (N, 1, H, W)."""
    shares = np.array([0.299, 0.587, 0.114], np.float32)
    return pixels if pixels.shape[1] == 1 else np.tensordot(pixels, shares, (1, 0))[:, None]


def _turned(pixels: Array, shift: Array) -> Array:
    """The hue turned by these shares of the circle; value and saturation of HSV stay."""
    red, green, blue = np.moveaxis(pixels, 1, 0)
    most, span = pixels.max(1), np.ptp(pixels, axis=1)
    safe = np.where(span > 0, span, 1)
    sixth = np.where(
        most == red, (green - blue) / safe,
        np.where(most == green, (blue - red) / safe + 2, (red - green) / safe + 4),
    )  # fmt: skip
    turned = []
    for channel in (5, 3, 1):
        k = (channel + sixth + 6 * shift) % 6
        turned.append(most - span * np.clip(np.minimum(k, 4 - k), 0, 1))
    return np.stack(turned, 1)


def _check_colors(images: Any, of_three: bool) -> int:
    """The value of white; errors for what has no colours to change."""
    channels, dtype = _checked("random_color", images).shape[1], images.dtype
    if channels not in ((3,) if of_three else (1, 3)):
        raise ShapeError(
            f"random_color got images {images.shape}; expected 3 channels, red, green and blue, or "
            "1 where saturation and hue are 0"
        )
    if dtype == np.uint8:
        return 255
    low, high = float(images.min(initial=0)), float(images.max(initial=0))
    if dtype.kind != "f" or not 0 <= low <= high <= 1:
        raise DTypeError(
            f"random_color got images of {dtype} from {low:.3g} to {high:.3g}; expected uint8, or "
            "floats from 0 to 1: chain it before normalize"
        )
    return 1


# --- Erasure --------------------------------------------------------------------------------------


def random_erase(
    p: float = 0.5,
    area: tuple[float, float] = (0.02, 0.33),
    ratio: tuple[float, float] = (0.3, 3.3),
    value: float = 0.0,
) -> Transform:
    """Each image with a rectangle filled with `value`, with probability p.

    Its share of the image is uniform in `area`; its height over its width, between the two of
    `ratio`, uniform in the logarithm; sides are rounded, and at most those of the image. Source:
    Zhong et al. 2020, "Random erasing data augmentation".
    """
    who = "random_erase"
    chosen = probability(who, "p", p), _pair(who, "area", area, 1.0), _pair(who, "ratio", ratio)
    return partial(_erased, *chosen, number(who, "value", value))


def _erased(
    p: float,
    area: tuple[float, float],
    ratio: tuple[float, float],
    value: float,
    images: Array,
    draw: Draw,
) -> Array:
    n, _, height, width = _checked("random_erase", images).shape
    _check_held("random_erase", images, value)
    chosen = draw.random(n) < p
    share = draw.uniform(*area, n)
    shape = np.exp(draw.uniform(math.log(ratio[0]), math.log(ratio[1]), n))
    rows = np.clip(np.rint(np.sqrt(share * shape * height * width)), 1, height)
    columns = np.clip(np.rint(np.sqrt(share / shape * height * width)), 1, width)
    inside = _boxes(rows, columns, height, width, draw) & chosen[:, None, None]
    return np.where(inside[:, None], np.asarray(value, images.dtype), images)


def _boxes(rows: Array, columns: Array, height: int, width: int, draw: Draw) -> Array:
    """(N, H, W): True in a box of each size, at a random place inside the image."""
    top = np.floor(draw.random(len(rows)) * (height - rows + 1))
    left = np.floor(draw.random(len(rows)) * (width - columns + 1))
    sides = ((np.arange(height), top, rows), (np.arange(width), left, columns))
    in_rows, in_columns = (
        (at >= first[:, None]) & (at < (first + size)[:, None]) for at, first, size in sides
    )
    inside: Array = in_rows[:, :, None] & in_columns[:, None, :]
    return inside


# --- Mixtures of images with their labels: for `mix=` of a DataLoader -----------------------------


def mixup(classes: int, alpha: float = 0.2) -> Transform:
    """A batch (images, labels) with each image mixed with another one of it, s x + (1 - s) x', and
    labels so, too, which become probabilities (N, classes) of float32; s is drawn from Beta(alpha,
    alpha). Images become float32. Source: Zhang et al. 2018, "mixup"."""
    classes = count("mixup", "classes", classes)
    return partial(_mixed, classes, number("mixup", "alpha", alpha, above=0))


def _mixed(classes: int, alpha: float, batch: Any, draw: Draw) -> Any:
    images, shares, rest = _with_shares("mixup", classes, batch)
    kept = draw.beta(alpha, alpha, len(images)).astype(np.float32)
    other, s = draw.permutation(len(images)), kept[:, None, None, None]
    images = images.astype(np.float32, copy=False)
    mixed = s * images + (1 - s) * images[other]
    return (mixed, kept[:, None] * shares + (1 - kept[:, None]) * shares[other], *rest)


def cutmix(classes: int, alpha: float = 1.0) -> Transform:
    """A batch (images, labels) with a rectangle of another image pasted into each; labels become
    probabilities (N, classes) of float32, by the shares of the pixels. The share that is pasted is
    1 - s, s drawn from Beta(alpha, alpha), with the sides' ratio of the image. Source: Yun et al.
    2019, "CutMix", with the rectangle inside of the image."""
    classes = count("cutmix", "classes", classes)
    return partial(_pasted, classes, number("cutmix", "alpha", alpha, above=0))


def _pasted(classes: int, alpha: float, batch: Any, draw: Draw) -> Any:
    images, shares, rest = _with_shares("cutmix", classes, batch)
    n, _, height, width = images.shape
    side = np.sqrt(1 - draw.beta(alpha, alpha, n))
    other = draw.permutation(n)
    box = _boxes(np.rint(side * height), np.rint(side * width), height, width, draw)
    pasted = box.mean((1, 2)).astype(np.float32)[:, None]
    mixed = np.where(box[:, None], images[other], images)
    return (mixed, (1 - pasted) * shares + pasted * shares[other], *rest)


def _with_shares(who: str, classes: int, batch: Any) -> tuple[Array, Array, tuple[Any, ...]]:
    """The images, the labels as probabilities, and the rest of a batch (images, labels, ...)."""
    if not isinstance(batch, (tuple, list)) or len(batch) < 2:
        raise MinimlError(
            f"{who} mixes a batch (images, labels), as mix= of a DataLoader gets it; got a "
            f"{type(batch).__name__}; transform= is given the images alone"
        )
    images, labels, *rest = batch
    labels = np.asarray(labels)
    if labels.shape != _checked(who, images).shape[:1]:
        raise ShapeError(
            f"{who} got labels of shape {labels.shape} for images {images.shape}; expected (N,)"
        )
    if labels.dtype.kind not in "iu":
        raise DTypeError(f"{who} got labels of {labels.dtype}; expected ints")
    if not 0 <= labels.min() <= labels.max() < classes:
        raise OutOfRangeError(
            f"{who} got labels from {labels.min()} to {labels.max()} for {classes} classes"
        )
    return images, np.eye(classes, dtype=np.float32)[labels], tuple(rest)


# --- Checks ---------------------------------------------------------------------------------------


def _pair(who: str, name: str, pair: Any, most: float = math.inf) -> tuple[float, float]:
    """A range of numbers above 0; ValueRefusedError unless the smaller comes first."""
    given = pair if isinstance(pair, (tuple, list)) and len(pair) == 2 else ()
    found = [number(who, f"{name}[{i}]", v, high=most, above=0) for i, v in enumerate(given)]
    if not found or found[0] > found[1]:
        raise ValueRefusedError(f"{who} got {name}={pair!r}; expected two numbers, low first")
    return found[0], found[1]


def _check_held(who: str, images: Array, value: float) -> None:
    """MinimlError for a value that the dtype cannot hold, as integers no fraction."""
    dtype = images.dtype
    if dtype.kind in "iu":
        least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
        if not (float(value).is_integer() and least <= value <= most):
            raise MinimlError(
                f"{who} got value={value} for images of {dtype}, which do not hold it; chain it "
                "after normalize"
            )


def _checked(who: str, images: Any) -> Array:
    """The images; ShapeError unless they are (N, C, H, W)."""
    if isinstance(images, np.ndarray) and images.ndim == 4:
        return images
    raise ShapeError(
        f"{who} got {getattr(images, 'shape', type(images).__name__)}; expected images "
        "(N, C, H, W): a grey one has an axis of one channel"
    )
